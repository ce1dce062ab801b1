"""A controller that dies at any task: the same command again ends in the state of an uninterrupted run."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import completion
from live_cluster import SERVE, Cluster
from outage import State, compared, leftovers
from repository import ROOT
from run_playbook import Run, run, run_and_kill
from testinfra.host import Host
from waiting import last_reading

#: Killed runs of each playbook.
TIMES = 10
#: Seconds for what services do after their start.
SETTLE_SECONDS = 90
#: Tasks before the first that could leave something: the lock. A killed run before it is not another state.
FIRST = "gb10.cluster.gb10 : "
MODELS = ("/srv/models/tiny", "/srv/models/tiny-moe")
STATE = (
    "readlink /etc/gb10/records/current /opt/gb10/runtime/current; ls /opt/gb10 /run/gb10; systemctl is-active "
    "gb10-ray gb10-vllm gb10-watchdog; find /etc/gb10 /etc/systemd/system /etc/netplan /usr/local/lib -type f "
    "-not -path '*/records/*' -not -name '*.pyc' | sort | xargs sha256sum"
)


def state(nodes: dict[str, Host]) -> dict[str, State]:
    """Return the files, links, services, processes and ports of each node."""
    return {
        name: {"files and services": host.run(STATE).stdout.splitlines(), **leftovers(host)}
        for name, host in nodes.items()
    }


def differences(nodes: dict[str, Host], wanted: dict[str, State]) -> dict[str, dict[str, tuple[int, int]]]:
    """Return how often a line was wanted and is there, by node and kind, where it differs.

    Waits for later effects of a service's start, such as Ray's idle workers.
    """
    return last_reading(lambda: compared(wanted, state(nodes)), lambda found: not found, SETTLE_SECONDS, 2)


def settled(nodes: dict[str, Host]) -> dict[str, State]:
    """Return the state once it stays the same for ten seconds."""
    last, since = state(nodes), time.monotonic()
    until = since + SETTLE_SECONDS
    while time.monotonic() < min(since + 10, until):
        time.sleep(2)
        if (now := state(nodes)) != last:
            last, since = now, time.monotonic()
    return last


@pytest.fixture(scope="module")
def other_lock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same packages, and another environment."""
    path = tmp_path_factory.mktemp("lock") / "requirements.txt"
    lines = (ROOT / "inventories/lab/requirements.txt").read_text(encoding="utf-8")
    path.write_text(f"{lines}# Another environment with the same packages.\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module", autouse=True)
def restored(cluster: Cluster) -> Iterator[None]:
    cluster.site().assert_ok()
    yield
    cluster.site().assert_ok()


def commands(playbook: str, other_lock: Path) -> tuple[list[str], list[str]]:
    """Return the arguments of two commands of a playbook, each of which ends in another state."""
    if playbook == "playbooks/upgrade.yml":
        locks = (ROOT / "inventories/lab/requirements.txt", other_lock)
        one, other = ({"gb10_runtime_lock": str(lock), "upgrade_confirmed": True} for lock in locks)
    else:
        one, other = ({"gb10_model": model} for model in MODELS)
    tags = SERVE if playbook == "site.yml" else ()
    return [*tags, "--extra-vars", json.dumps(one)], [*tags, "--extra-vars", json.dumps(other)]


def model_of(arguments: list[str]) -> str:
    return str(json.loads(arguments[-1]).get("gb10_model", MODELS[0])).rpartition("/")[2]


def tasks(done: Run) -> list[str]:
    """Return the tasks of a run, in order, that can be awaited by their name."""
    names = [
        line.removeprefix("TASK [").partition("]")[0] for line in done.output.splitlines() if line.startswith("TASK [")
    ]
    return names[next(number for number, name in enumerate(names) if name.startswith(FIRST)) :]


@pytest.mark.parametrize("playbook", ["site.yml", "playbooks/switch_model.yml", "playbooks/upgrade.yml"])
def test_a_killed_run_and_the_same_command_equal_one_run(
    cluster: Cluster, nodes: dict[str, Host], head: Host, other_lock: Path, playbook: str
) -> None:
    here, there = commands(playbook, other_lock)
    wanted: dict[str, dict[str, State]] = {}
    texts: dict[str, str] = {}
    points: dict[str, list[str]] = {}
    for name, arguments in (("there", there), ("here", here)):
        done = run(playbook, [*cluster.arguments, *arguments]).assert_ok()
        wanted[name], texts[name], points[name] = (
            settled(nodes),
            completion(head, model=model_of(arguments)),
            tasks(done),
        )
    # An environment is installed once: later runs do not have its tasks.
    common = [task for task in points["there"] if task in points["here"]]
    for number in range(TIMES):
        name, arguments = ("there", there) if number % 2 == 0 else ("here", here)
        task, after = random.SystemRandom().choice(common), random.SystemRandom().uniform(0, 1.5)
        where = f"{playbook} {number}: killed {after:.1f} s after the start of {task!r}"
        run_and_kill(playbook, [*cluster.arguments, *arguments], task, after)
        run(playbook, [*cluster.arguments, *arguments]).assert_ok()
        assert completion(head, model=model_of(arguments)) == texts[name], where
        assert differences(nodes, wanted[name]) == {}, where
