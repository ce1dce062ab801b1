# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Format the plan for people: the processes on each node, the memory use, the findings and the reasons."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.runtime import unread
from ansible_collections.gb10.cluster.plugins.module_utils.common import shell, spans
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan as host_guard_plan
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import (
    Container,
    Expected,
    Fallback,
    Plan,
    PlannedNode,
    Rest,
)

_INDENT = "  "
#: The title of the reasons, by the state of plan.build. Without a request, it has none.
BUILD = {
    "off": "",
    "missing": "vLLM is built from source",
    "ready": "vLLM was built from source",
}


def guards(settings: Mapping[str, Any], rest: Rest) -> list[str]:
    """Return what watches the ranks of each node, from the settings of the head."""
    floor = float(settings["vllm_serve_memory_floor"])
    memory = f"{settings['vllm_serve_memory_guard']} below {floor:g} GiB available" if floor else "off"
    found = [f"memory guard: {memory}", f"watchdog: {settings['vllm_watchdog_mode']}"]
    if rest.after:
        after = settings["gb10_idle_stop"]
        found.append(f"rest: after {after} without a request; the next one to the gateway starts the model")
    elif spans.seconds(str(settings["gb10_idle_stop"])):
        found.append("rest: never, because the watchdog is off")
    return found


def lines(plan: Plan, object_store_memory: int, watched: Sequence[str] = ()) -> list[str]:
    """Return the lines for a plan of plan.py; ``object_store_memory`` is Ray's, in bytes. ``watched``: of guards()."""
    plan = replace(plan, nodes=tuple(replace(node, additions=node.foreseen) for node in plan.nodes))
    serve, served = plan.serve, _served(plan)
    result = [f"{plan.label}:"] if plan.label else []
    result += [
        f"{served}: tensor {plan.tensor_parallel_size} "
        f"x pipeline {plan.pipeline_parallel_size} x data {plan.data_parallel_size} by {plan.executor}",
        (
            f"vLLM {_release(plan)} (stack {plan.stack.name}), NCCL "
            f"{serve.nccl or 'of the runtime, which verify.yml shows'}"
        ),
    ]
    # The role has shown the warnings.
    others = [finding for finding in serve.findings if finding not in serve.warnings]
    result += _block("findings", others or ["none, except for the warnings above" if serve.findings else "none"])
    secured = f"TLS with a certificate until {plan.api_tls.until}" if plan.api_tls else "no TLS"
    api = f"API at {plan.api.endpoint}, {'with a key' if plan.api_key else 'without a key'}, {secured}"
    if plan.runtime.image:
        result.append(f"in containers of {plan.runtime.image}, run by {plan.runtime.engine}")
        result += _tag(plan.runtime)
    result += _block(f"NCCL {'is built' if plan.nccl.build else 'comes with the runtime'}", plan.nccl.why)
    result += _block(BUILD[plan.build.state], plan.build.why)
    result += _block("why", serve.why)
    result += _block("FlashInfer compiles before the first start", serve.compiled)
    result += _block("the recipe", serve.recipe)
    result += _block("the model", serve.model)
    result += _block("memory", serve.memory)
    result += _fallback(plan.fallback)
    result += _block("fabric", plan.fabric)
    result += _block("system", plan.system)
    result += watched
    result += _nodes(plan, object_store_memory)
    # The end of a long output stays on the screen.
    label = f" ({plan.label})" if plan.label else ""
    return [*result, f"{served}: {_fits(serve.expected)}{label}", api]


def _fallback(given: Fallback | None) -> list[str]:
    """Return the fallback with the memory that it has, [] without one."""
    if not given:
        return []
    title = f"the fallback {given.served_model_name} on {given.node}, port {given.port} of loopback"
    return _block(title, given.memory or ["its memory is not planned"])


def _tag(runtime: Container) -> list[str]:
    """Return the image that a tag means, [] without a tag."""
    tag, image = runtime.tag, runtime.base.removeprefix(f"{runtime.tag}@")
    return (
        [f"{tag} is {'a tag: the first pull pins its digest' if image == tag else f'pinned to {image}'}"] if tag else []
    )


def _release(plan: Plan) -> str:
    unknown = unread(plan.runtime, plan.stack.name)
    return "of the image, which is read when it is on the head" if unknown else plan.stack.vllm


def _served(plan: Plan) -> str:
    count = len(plan.nodes)
    return f"{plan.served_model_name} on {count} {'node' if count == 1 else 'nodes'}"


def _fits(expected: Expected) -> str:
    if not expected.context:
        return "its memory is not planned"
    speed = f", at most {expected.tokens_per_second:.1f} tokens/s" if expected.tokens_per_second else ""
    more = " without speculative decoding" if speed and expected.speculative else ""
    return f"fits, context {expected.context}{speed}{more}"


def _block(title: str, text: Sequence[str]) -> list[str]:
    return [f"{title}:", *(_INDENT + line for line in text)] if text else []


def _nodes(plan: Plan, object_store_memory: int) -> list[str]:
    """Return the variables that all ranks share, then each node's processes and other variables."""
    environments = [overrides.rank_environment(node) for node in plan.nodes]
    shared = {
        name: value
        for name, value in environments[0].items()
        if all(other.get(name) == value for other in environments)
    }
    result = _block("environment of each rank" if len(environments) > 1 else "environment", _environment(shared))
    for node, environment in zip(plan.nodes, environments, strict=True):
        own = {name: value for name, value in environment.items() if name not in shared}
        result += [
            *_node(plan, node, object_store_memory),
            *(_INDENT + line for line in _environment(own, node.secrets)),
        ]
    return result


def _node(plan: Plan, node: PlannedNode, object_store_memory: int) -> list[str]:
    mine = plan.at(node)
    gpu = f"compute capability {node.capability}" if node.capability else "no GPU found"
    ray = [launch_argv.ray_argv(mine, object_store_memory)] if plan.by_ray else []
    argvs = ray + ([launch_argv.vllm_argv(mine)] if node.head or not ray else [])
    result = [
        (
            f"{node.name} ({'head' if node.head else 'worker'}, {node.address} on "
            f"{node.interface or 'no interface yet'}, {gpu}):"
        )
    ]
    if missing := sorted({name for names in node.packages.values() for name in names}):
        result.append(f"{_INDENT}Debian packages to install: {', '.join(missing)}")
    if host := host_guard_plan.about(node.host_guard):
        result.append(f"{_INDENT}host protection: {', '.join(host)}")
    for argv in argvs:
        result += [_INDENT + line for line in shell.folded(_joined(argv), shell.COLUMNS - len(_INDENT))]
    return result


def _environment(variables: Mapping[str, str], secrets: Iterable[str] = ()) -> list[str]:
    return _wrapped(
        [*(f"{name}={value}" for name, value in sorted(variables.items())), *(f"{name} (secret)" for name in secrets)]
    )


def _wrapped(items: Iterable[str]) -> list[str]:
    """Return lines of whole items, which two levels of indentation leave room for."""
    result: list[str] = []
    for item in items:
        if result and len(result[-1]) + 1 + len(item) <= shell.COLUMNS - 2 * len(_INDENT):
            result[-1] += f" {item}"
        else:
            result.append(item)
    return result


def _joined(argv: list[str]) -> list[str]:
    """Join the program with its command, and each option with the words that follow it, all quoted."""
    words = [shlex.quote(word) for word in argv]
    result = [" ".join(words[:2])]
    for word in words[2:]:
        if not word.startswith("-") and result[-1].startswith("-") and "=" not in result[-1]:
            result[-1] += f" {word}"
        else:
            result.append(word)
    return result
