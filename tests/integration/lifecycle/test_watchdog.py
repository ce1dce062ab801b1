"""The watchdog detects a stopped rank and restarts the server. Neither it nor the memory guard acts on a load."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest
from api_client import API, CURL, answers_again, completion, stream
from live_cluster import Cluster, started
from testinfra.host import Host
from waiting import wait_until

pytestmark = pytest.mark.disruptive

JOURNAL = "journalctl --no-pager --quiet --boot --unit=gb10-watchdog --output=cat"
SECRETS = ("/etc/gb10/api.key", "/etc/gb10/ray.token", "/etc/gb10/message.secret")
EVIDENCE = "/var/lib/gb10-watchdog/evidence"
GUARD = "/var/lib/gb10-memory-guard/starts.json"
PROMPT = "planted-prompt"


@pytest.fixture(scope="module", autouse=True)
def restarting(cluster: Cluster, head: Host) -> None:
    cluster.site("--tags", "vllm_watchdog").assert_ok()
    # The restarts of an earlier run of these tests count for an hour, also after a start of the watchdog.
    head.check_output("rm -f /var/lib/gb10-watchdog/restarts.json && systemctl restart gb10-watchdog")
    completion(head)


def processed(head: Host) -> float:
    """Return the number of tokens that the engine has read and generated."""
    command = (
        f"{CURL} --silent --fail {API}/metrics | awk '/^vllm:(prompt|generation)_tokens_total/ {{ sum += $NF }} "
        f"END {{ print sum }}'"
    )
    return float(head.check_output(command))


def alarms(head: Host, lines_before: int) -> list[str]:
    return [line for line in head.check_output(JOURNAL).splitlines()[lines_before:] if line.startswith("ALARM: ")]


def alarm(head: Host, lines_before: int, within: float) -> str:
    """Return the new alarm in the journal."""
    return wait_until(lambda: alarms(head, lines_before), within, "no alarm")[0]


def test_a_second_run_changes_nothing(cluster: Cluster) -> None:
    cluster.site("--tags", "vllm_watchdog").assert_unchanged()


#: Seconds of each load. GB10_LOAD_SECONDS=720 makes an hour of all.
LOAD_SECONDS = float(os.environ.get("GB10_LOAD_SECONDS", "60"))
#: The requests of each load: how many, every how many seconds, the arguments of each, and options of curl. The context
#: has 1024 tokens.
LOADS: dict[str, tuple[int, float, dict[str, Any], tuple[str, ...]]] = {
    "idle": (0, 10, {}, ()),
    "long prefill": (1, 10, {"tokens": 1, "prompt": [100] * 1000}, ()),
    "bursts": (8, 10, {"tokens": 50}, ()),
    "cancelled requests": (8, 3, {}, ("--max-time 1",)),
    "64 streams": (64, 60, {}, ()),
}


def guarded(nodes: dict[str, Host]) -> list[Any]:
    """Return the actions of the memory guards. A start that ends is also in their records."""
    records = [each for host in nodes.values() for each in json.loads(host.check_output(f"cat {GUARD} || echo []"))]
    return [each for each in records if each["end"] in ("restarted", "stopped", "reported")]


@pytest.mark.parametrize("load", LOADS)
def test_load_raises_no_alarm(head: Host, nodes: dict[str, Host], load: str) -> None:
    acted = guarded(nodes)
    before, start, tokens = len(head.check_output(JOURNAL).splitlines()), started(head), processed(head)
    number, pause, arguments, options = LOADS[load]
    until = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < until:
        for _number in range(number):
            stream(head, *options, **{"prompt": PROMPT, **arguments})
        time.sleep(pause)
    head.run("pkill curl")
    assert alarms(head, before) == []
    assert started(head) == start
    assert guarded(nodes) == acted
    assert load == "idle" or processed(head) > tokens + 500


@pytest.mark.parametrize("busy", [True, False], ids=["under load", "idle"])
def test_a_stopped_rank_is_detected_and_the_model_serves_again(head: Host, nodes: dict[str, Host], busy: bool) -> None:
    worker = list(nodes.values())[-1]
    answers_again(head)
    before, start = len(head.check_output(JOURNAL).splitlines()), started(head)
    if busy:
        tokens = processed(head)
        stream(head, prompt=PROMPT)
        time.sleep(2)
        assert processed(head) > tokens
    worker.check_output("pkill -STOP ray::RayWorkerP")
    stopped = time.monotonic()
    assert "is stopped" in alarm(head, before, 40)
    assert time.monotonic() - stopped < 35, "30 s, and the time of this test's ssh"
    answers_again(head)
    assert started(head) != start
    # Ray ends it, or after 45 s the watchdog of its node.
    worker.check_output("timeout 90 sh -c 'while ps -eo stat,comm | grep -q \"^T.*ray::\"; do sleep 1; done'")
    answers_again(head)
    evidence = head.check_output(f"cat {EVIDENCE}/*/*")
    for secret in SECRETS:
        assert head.file(secret).content_string.strip() not in evidence
    assert PROMPT not in evidence
    assert head.file(EVIDENCE).mode == 0o700


def test_status_shows_the_watchdog(cluster: Cluster) -> None:
    done = cluster.play("status")
    assert "watchdog: auto, armed, last alarm 20" in done.output
