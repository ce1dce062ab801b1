"""The paths that the API's guard opens to clients are routes of vLLM's releases, and each other route is known."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from patch import sources

from ansible_collections.gb10.cluster.plugins.module_utils.api import io_guard

#: Routes that stop or change the server, read its state or its environment, repeat another route, or are no API.
OTHERS = frozenset(
    """
    /abort_requests /collective_rpc /docs /fault_tolerance/apply /fault_tolerance/status /finish_weight_update
    /get_world_size /inference/v1/abort_requests /init_weight_transfer_engine /invocations /is_paused
    /is_scaling_elastic_ep /is_sleeping /kv_event_sources /pause /ready /readyz /release_kv_cache_memory
    /reset_encoder_cache /reset_mm_cache /reset_prefix_cache /resume /scale_elastic_ep /server_info
    /shutdown_weight_transfer_engine /sleep /start_draft_weight_update /start_profile /start_weight_update /stop_profile
    /update_weight_version /update_weights /v1/load_lora_adapter /v1/unload_lora_adapter /wake_up /weight_checker
    /weight_info
    """.split()
)
_METHODS = {"get", "post", "put", "patch", "delete", "websocket", "route", "api_route", "add_api_route"}
#: The server of an example, without an API; FastAPI's own route.
_NO_API, _OF_FASTAPI = {"/generate"}, {"/openapi.json"}


def routes(version: str) -> Iterator[str]:
    for file in (sources.tree(version) / "entrypoints").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
                path = node.args[0] if node.args else None
                if isinstance(path, ast.Constant) and str(path.value).startswith("/"):
                    yield str(path.value)


def public(path: str) -> bool:
    return path in io_guard.OPEN or io_guard._public(path)


def test_each_route_is_for_clients_or_for_the_head(version: str) -> None:
    found = {*routes(version)} - _NO_API
    assert len(found) > 30
    assert {path for path in found if not public(path)} <= OTHERS


def test_each_path_for_clients_is_a_route() -> None:
    found = {path for version in sources.TWO for path in routes(version)}
    assert found >= io_guard.PUBLIC - _OF_FASTAPI
    assert not any(map(public, OTHERS))
