"""The gateway's program with the locked packages, between clients and two servers that imitate vLLM's API."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from certificates import authority
from fake_backend import Backend, serve
from gateway import proxy as running
from gateway.proxy import OPERATOR, QUICK, Proxy

from ansible_collections.gb10.cluster.plugins.module_utils.common import limits
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import requests

#: A model of each cluster: one with TLS and a key, one without; the third is a fallback of the second's kind.
BIG, SMALL = "org/big-model", "small"
KEYS = {"north": "north-key-0123456789"}
HELLO: Any = [{"role": "user", "content": "Hello"}]


@dataclass
class World:
    """The gateway with its servers. ``stop`` and ``start`` end and begin the server of a model."""

    proxy: Proxy
    backends: dict[str, Backend]
    pairs: dict[str, tuple[str, str] | None]
    stacks: dict[str, ExitStack]

    def start(self, name: str) -> None:
        self.stacks[name] = ExitStack()
        self.stacks[name].enter_context(serve(self.backends[name], self.pairs[name]))

    def stop(self, name: str) -> None:
        self.stacks[name].close()

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """Stop a server, and start it again after the test."""
        self.stop(name)
        try:
            yield
        finally:
            self.start(name)
            self.proxy.wait(lambda report: all(model["healthy"] for model in report["models"]))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    running.python()
    folder = tmp_path_factory.mktemp("gateway")
    ca = authority()
    server, gateway = (ca.issue("127.0.0.1").write(folder, name) for name in ("server", "gateway"))
    (folder / "trusted.pem").write_text(ca.text, encoding="ascii")
    with running.closed_network():
        found = World(
            Proxy("", folder), {BIG: Backend(BIG, KEYS["north"]), SMALL: Backend(SMALL)}, {BIG: server, SMALL: None}, {}
        )
        for name in found.backends:
            found.start(name)
        models = [
            {
                "name": BIG,
                "url": f"https://127.0.0.1:{found.backends[BIG].port}/v1",
                "cluster": "north",
                "ca": ca.text,
                "context": 4096,
            },
            {"name": SMALL, "url": f"http://127.0.0.1:{found.backends[SMALL].port}/v1", "cluster": "south"},
        ]
        tls = {
            part: Path(path).read_text(encoding="ascii")
            for part, path in zip(("certificate", "key"), gateway, strict=True)
        }
        planned = running.planned(models, KEYS, tls, fallbacks={SMALL: [BIG]})
        with running.started(planned, KEYS, folder, gateway, str(folder / "trusted.pem")) as found.proxy:
            yield found
        for name in found.backends:
            found.stop(name)


@pytest.fixture(scope="module")
def alice(world: World) -> str:
    return world.proxy.add("alice")


def used(world: World, client: str) -> Any:
    return world.proxy.report()["usage"].get(client, {}).get("models", {})


def test_a_request_reaches_the_server_of_its_model(world: World, alice: str) -> None:
    for name, backend in world.backends.items():
        answer = world.proxy.chat(name, alice)
        assert (answer.status, answer.data["choices"][0]["message"]["content"]) == (200, f"{name}: one two three")
        path, body = backend.bodies[-1]
        assert (path, body) == ("/v1/chat/completions", {"model": name, "messages": HELLO})
        assert backend.headers[-1].get("authorization") == (f"Bearer {backend.key}" if backend.key else None)
        assert alice not in json.dumps(backend.headers)


@pytest.mark.parametrize(
    ("path", "body", "upstream"),
    [
        ("/v1/completions", {"prompt": "Hello"}, "/v1/completions"),
        ("/completions", {"prompt": "Hello"}, "/v1/completions"),
        (
            "/v1/responses",
            {"input": "Hello", "max_output_tokens": 8, "user": "x", "verbosity": "low", "priority": 1},
            "/v1/responses",
        ),
        ("/v1/messages", {"messages": HELLO, "max_tokens": 9}, "/v1/messages"),
        ("/v1/messages/count_tokens", {"messages": HELLO}, "/v1/messages/count_tokens"),
    ],
)
def test_each_path_of_the_api(world: World, alice: str, path: str, body: dict[str, Any], upstream: str) -> None:
    answer = world.proxy.ask(path, {"model": BIG, **body}, alice)
    assert answer.status == 200, answer.text
    # The server gets the client's request.
    assert world.backends[BIG].bodies[-1] == (upstream, {"model": BIG, **body})


def test_a_request_without_a_known_key_is_refused(world: World) -> None:
    for given in (
        {},
        {"authorization": "Bearer sk-unknown"},
        {"x-api-key": "sk-unknown"},
        {"authorization": f"Basic {OPERATOR}"},
    ):
        for path, method in (
            ("/v1/models", "GET"),
            ("/v1/chat/completions", "POST"),
            ("/gb10/report", "GET"),
            ("/key/list", "GET"),
        ):
            answer = world.proxy.ask(path, b"{}" if method == "POST" else None, method=method, **given)
            assert (answer.status, answer.data["error"]["code"]) == (401, "invalid_api_key")


def test_a_revoked_key_is_refused_at_once(world: World) -> None:
    key = world.proxy.add("mallory")
    assert world.proxy.chat(SMALL, key).status == 200
    world.proxy.revoke("mallory")
    assert world.proxy.chat(SMALL, key).status == 401


def test_a_damaged_list_of_clients_lets_nobody_in(world: World, alice: str) -> None:
    (world.proxy.folder / "clients.json").write_text("{", encoding="utf-8")
    time.sleep(0.15)
    assert world.proxy.chat(SMALL, alice).status == 401
    world.proxy.write(world.proxy.known)
    assert world.proxy.chat(SMALL, alice).status == 200


def test_a_client_uses_and_sees_only_its_models(world: World, alice: str) -> None:
    key = world.proxy.add("bob", SMALL)
    listed = [world.proxy.ask("/v1/models", key=each).data["data"] for each in (key, alice)]
    assert [[model["id"] for model in models] for models in listed] == [[SMALL], [BIG, SMALL]]
    answer = world.proxy.chat(BIG, key)
    assert (answer.status, answer.data["error"]["code"]) == (404, "model_not_found")
    assert world.proxy.chat(SMALL, key).status == 200
    world.proxy.revoke("bob")


def test_a_dead_server_fails_fast_and_the_others_answer(world: World, alice: str) -> None:
    with world.without(BIG):
        # The check has not seen it yet, or just has.
        assert world.proxy.chat(BIG, alice).status == 503
        report = world.proxy.wait(lambda report: not report["models"][0]["healthy"])
        assert (report["models"][0]["id"], report["models"][1]["healthy"]) == (f"north/{BIG}", True)
        assert "refused" in report["models"][0]["error"]
        before = used(world, "alice")[BIG]["failures"]
        answer = world.proxy.chat(BIG, alice)
        assert (answer.status, answer.data["error"]["code"]) == (503, "model_unavailable")
        assert (
            f"north/{BIG}: " in answer.data["error"]["message"]
            and answer.seconds < QUICK
            and answer.headers["retry-after"] == "3"
        )
        assert used(world, "alice")[BIG]["failures"] == before + 1
        assert world.proxy.chat(SMALL, alice).status == 200
    assert world.proxy.chat(BIG, alice).status == 200


def test_a_fallback_answers_for_a_dead_server(world: World) -> None:
    key, other = world.proxy.add("small-only", SMALL), world.proxy.add("other")
    with world.without(SMALL):
        # At once, because nothing was sent, and after the check without a connection to the dead server.
        for _when in ("before", "after"):
            answer = world.proxy.chat(SMALL, other)
            assert (answer.status, answer.data["choices"][0]["message"]["content"]) == (200, f"{BIG}: one two three")
            world.proxy.wait(lambda report: not report["models"][1]["healthy"])
        assert world.proxy.chat(SMALL, other).seconds < QUICK
        asked, answered = used(world, "other")[SMALL], used(world, "other")[BIG]
        assert asked == {"requests": 3, "failures": 0, "prompt_tokens": 0, "completion_tokens": 0}
        assert answered == {"requests": 0, "failures": 0, "prompt_tokens": 3 * 7, "completion_tokens": 3 * 3}
        answer = world.proxy.chat(SMALL, key)
        assert (answer.status, answer.data["error"]["code"]) == (503, "model_unavailable"), (
            "the fallback is not this client's"
        )
    world.proxy.revoke("small-only")


def test_a_wrong_key_or_model_of_a_server_is_reported(world: World, alice: str) -> None:
    backend = world.backends[BIG]
    try:
        backend.key = "another-key-0123456789"
        world.proxy.wait(
            lambda report: report["models"][0]["error"] == "HTTP 401 from /v1/models: the API key is wrong"
        )
        backend.key, backend.name = KEYS["north"], "renamed"
        world.proxy.wait(lambda report: report["models"][0]["error"] == "it does not serve this model, but renamed")
        assert world.proxy.chat(BIG, alice).status == 503
    finally:
        backend.key, backend.name = KEYS["north"], BIG
        world.proxy.wait(lambda report: all(model["healthy"] for model in report["models"]))


def test_every_other_path_and_method_is_closed(world: World, alice: str) -> None:
    own = [(path, "GET") for path in requests.ROUTES] + [
        (path, "POST") for path in (*requests.LISTS, requests.ALIVE, requests.REPORT)
    ]
    others = ["/", "/docs", "/openapi.json", "/metrics", "/version", "/tokenize", "/v1/files", "//v1/models"]
    others += ["/v1/chat/completions/", "/v1/../metrics", "/v1/chat%2Fcompletions"]
    before = len(world.backends[BIG].bodies)
    for path, method in [
        *own,
        *((path, method) for path in others for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS")),
    ]:
        for key in (alice, OPERATOR):
            answer = world.proxy.ask(path, b"{}" if method == "POST" else None, key, method)
            assert (answer.status, "The gateway does not have this path" in answer.text) == (404, True), (path, method)
    assert len(world.backends[BIG].bodies) == before


def test_connections_that_never_begin_tls_stop_nobody(world: World, alice: str) -> None:
    before = world.proxy.memory()
    with ExitStack() as stack:
        many = range(limits.MOST_OF_SOURCE + 100)
        clients = [stack.enter_context(running.connect(world.proxy.url)) for _ in many]
        assert world.proxy.ask("/health").seconds < QUICK, "after all these connections, and with TLS"
        assert world.proxy.chat(SMALL, alice).status == 200
        assert (world.proxy.memory() - before) * limits.MOST_CONNECTIONS / limits.MOST_OF_SOURCE < 700, (
            "all of them fit"
        )
        clients[0].settimeout(5)
        with suppress(ConnectionError):
            assert clients[0].recv(1) == b"", "the oldest one has ended"


def test_only_the_operator_reads_the_report(world: World, alice: str) -> None:
    assert world.proxy.ask("/gb10/report", key=alice).status == 403
    assert world.proxy.chat(SMALL, OPERATOR).status == 200, "a request of the role, which is not counted"
    report = world.proxy.report()
    assert [model["id"] for model in report["models"]] == [f"north/{BIG}", f"south/{SMALL}"]
    assert "operator" not in report["usage"]


def test_nothing_else_was_contacted_and_no_file_has_a_key(world: World, alice: str) -> None:
    """The last test with this gateway."""
    world.proxy.wait(lambda report: "alice" in report["usage"])
    log = world.proxy.log()
    assert not re.search("refused an attempt|internal error", log)
    secrets = [alice, KEYS["north"], OPERATOR, *world.proxy.keys.values()]
    usage = world.proxy.folder / "state/usage.json"
    assert usage.stat().st_mode & 0o777 == 0o600
    assert not [secret for secret in secrets if secret in log + usage.read_text(encoding="utf-8")]


def test_the_program_starts_with_the_counts_of_its_last_run(tmp_path: Path) -> None:
    with running.closed_network(), serve(Backend(SMALL)) as backend:
        models = [{"name": SMALL, "url": f"http://127.0.0.1:{backend.port}/v1", "cluster": "south"}]
        planned = running.planned(models)
        for count in (1, 2):
            with running.started(planned, {}, tmp_path) as proxy:
                key = proxy.add("alice")
                assert proxy.chat(SMALL, key).status == 200
                proxy.wait(
                    lambda report, wanted=count * 3: (
                        report["usage"]["alice"]["models"][SMALL]["completion_tokens"] == wanted
                    )
                )
            assert (
                json.loads((tmp_path / "state/usage.json").read_text())["clients"]["alice"]["models"][SMALL]["requests"]
                == count
            )
