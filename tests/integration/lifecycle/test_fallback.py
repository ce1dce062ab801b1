"""A fallback next to a rank of the gateway's node: it answers while the pair does not, and until the pair is golden."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from live_cluster import Cluster, extra, of_unit, on_all
from live_gateway import Client, client_of
from testinfra.host import Host
from waiting import wait_until

pytestmark = pytest.mark.disruptive

MODEL, SMALL, UNIT = "tiny", "tiny-moe", "gb10-fallback.service"
KEY = "/etc/gb10/fallback.key"
FILES = ("/etc/systemd/system/gb10-fallback.service", "/etc/gb10/fallback.json", "/etc/gb10/fallback.env", KEY)
WEIGHTS = "/srv/models/tiny/model.safetensors"
HEADER = "x-gb10-fallback-for"


@dataclass(frozen=True)
class Pair:
    """The pair with a fallback on its worker, where the gateway is, and a client there."""

    cluster: Cluster
    front: Host
    client: Client

    def ask(self, model: str = MODEL, seconds: int = 60, **more: Any) -> tuple[int, str, str]:
        """Return the status, the model that the answer names, and the model of the header."""
        body = json.dumps({"model": model, "prompt": "Hello", "max_tokens": 3, "temperature": 0, **more})
        words = "curl --silent --max-time %s --config %s --json %s --dump-header - http://127.0.0.1:4000/v1/completions"
        head, _blank, text = self.front.run(words, str(seconds), self.client.settings, body).stdout.partition(
            "\r\n\r\n"
        )
        first, *lines = head.split("\r\n") or [""]
        headers = {name.lower(): value for name, _colon, value in (line.partition(": ") for line in lines)}
        status = int(first.split()[1]) if first else 0
        answer = json.loads(text) if text.startswith("{") else {}
        return status, str(answer.get("model", "")), headers.get(HEADER, "")

    def back(self, within: float = 400) -> float:
        """Return the seconds until the pair answers."""
        began = time.monotonic()
        wait_until(lambda: self.ask() == (200, MODEL, ""), within, "the pair does not answer")
        return time.monotonic() - began

    def log(self, since: str) -> str:
        return str(self.front.check_output(f"journalctl --output=cat --unit=gb10-gateway --since=@{since}"))


@pytest.fixture(scope="module")
def pair(
    cluster: Cluster, nodes: dict[str, Host], workers: list[Host], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    folder, worker = tmp_path_factory.mktemp("fallback"), cluster.groups["worker"][0]
    (folder / "hosts.yml").write_text(json.dumps({"gateway": {"hosts": {worker: {}}}}), encoding="utf-8")
    place = f"/srv/models/{SMALL}"
    config = json.loads(workers[0].check_output(f"cat {place}/config.json"))
    size = int(workers[0].check_output(f"stat --format=%s {place}/model.safetensors"))
    given = {
        "gb10_models": {SMALL: {"path": place, "config": config, "weights_bytes": size}},
        "gb10_fallback_model": SMALL,
        # The machine of a lab may have less than a Spark leaves.
        "gb10_fallback_memory": 1,
        "gb10_fallback_args": list(cluster.variable("gb10_vllm_extra_args", [])),
        "gateway_fallbacks": {MODEL: [SMALL]},
        "golden_directory": str(folder / "golden"),
    }
    found = replace(cluster, arguments=["--inventory", str(folder / "hosts.yml"), *cluster.arguments, *extra(**given)])
    found.play("golden", golden_record=True).assert_ok()
    try:
        found.site().assert_ok()
        with client_of(found, workers[0], folder) as client:
            yield Pair(found, workers[0], client)
    finally:
        # Without the group, no run removes the gateway.
        found.site("--tags", "gateway", *extra(gateway_state="absent"))
        cluster.site().assert_ok()
        for host in nodes.values():
            assert not any(host.file(path).exists for path in FILES)


def test_a_second_run_changes_nothing_and_both_models_answer(pair: Pair) -> None:
    assert (pair.ask(), pair.ask(SMALL)) == ((200, MODEL, ""), (200, SMALL, ""))
    assert pair.front.check_output("stat --format='%%a %%U' %s", KEY) == "600 root"
    assert pair.front.run("curl --silent --fail http://127.0.0.1:8010/v1/models").rc == 22, "it takes no key"
    pair.cluster.site().assert_unchanged()
    pair.cluster.play("verify").assert_ok()


def test_an_ended_rank_costs_some_requests_and_the_pair_returns_with_the_golden_answer(pair: Pair, head: Host) -> None:
    since = pair.front.check_output("date +%s")
    head.check_output("systemctl kill --signal=SIGKILL gb10-vllm.service")
    began = time.monotonic()
    wait_until(lambda: pair.ask() == (200, SMALL, MODEL), 30, "the fallback does not answer")
    passed = time.monotonic() - began
    back = pair.back()
    print(f"the fallback answered after {passed:.1f} s, the pair {back:.0f} s later")  # noqa: T201
    assert passed < 10
    log = pair.log(since)
    proof = log.index("its first answer is compared with the golden record")
    assert proof < log.index("healthy again", proof)
    assert f"model={MODEL} answered={SMALL}" in log


def test_a_pair_with_other_numbers_serves_nobody(pair: Pair, nodes: dict[str, Host], head: Host) -> None:
    # A third of the tensors' bytes becomes zero.
    program = (
        "import sys; d = bytearray(sys.stdin.buffer.read()); d[len(d) // 3 : 2 * len(d) // 3] = bytes(len(d) // "
        "3); sys.stdout.buffer.write(d)"
    )
    since = pair.front.check_output("date +%s")
    on_all(nodes, f"mv {WEIGHTS} /opt/weights && python3 -c '{program}' </opt/weights >{WEIGHTS}")
    try:
        head.check_output("systemctl restart gb10-vllm")
        wait_until(lambda: "differs from the record" in pair.log(since), 300, "no proof failed")
        for _second in range(20):
            assert pair.ask() == (200, SMALL, MODEL)
            time.sleep(1)
    finally:
        on_all(nodes, f"mv /opt/weights {WEIGHTS}")
        head.check_output("systemctl restart gb10-vllm")
    pair.back()


def test_a_lost_head_is_replaced_within_ten_seconds(pair: Pair, cluster: Cluster) -> None:
    name, opened = cluster.groups["head"][0], list[tuple[float, int]]()
    began = time.monotonic()

    def long() -> None:
        status = pair.ask(seconds=120, max_tokens=1000, ignore_eos=True)[0]
        opened.append((time.monotonic() - began, status))

    thread = threading.Thread(target=long)
    thread.start()
    time.sleep(1)
    cluster.power("off", name)
    began = time.monotonic()
    assert pair.ask() == (200, SMALL, MODEL)
    first = time.monotonic() - began
    thread.join()
    print(f"the fallback answered {first:.1f} s after the loss; the open request ended with {opened}")  # noqa: T201
    assert first < 10
    assert opened[0][1] >= 500 and opened[0][0] < 25, opened
    cluster.power("on", name)
    cluster.booted(name)
    print(f"the pair answered {pair.back():.0f} s after the boot")  # noqa: T201


def test_stop_ends_it_and_site_starts_it(pair: Pair) -> None:
    pair.cluster.play("stop").assert_ok()
    assert of_unit(pair.front, UNIT) == "0"
    pair.cluster.site().assert_ok()
    assert pair.ask(SMALL)[0] == 200
