"""An upgrade to another lock: prepared while the old model answers, switched once, rolled back, and killed."""

from __future__ import annotations

import hashlib
import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from api_client import completion
from live_cluster import Cluster, extra, on_all
from repository import ROOT
from run_playbook import Run, run_and_kill
from testinfra.host import Host

pytestmark = pytest.mark.disruptive

COMMENT = "# Another environment with the same packages.\n"
#: Another constant in each normalization: the model loads and answers, with other numbers.
OTHER_NUMBERS = '{"rms_norm_eps": 10.0}'


@pytest.fixture
def lock(cluster: Cluster, nodes: dict[str, Host], head: Host, tmp_path: Path) -> Iterator[Path]:
    """A lock with another digest. The old one serves again at the end."""
    path = tmp_path / "requirements.txt"
    path.write_text((ROOT / "inventories/lab/requirements.txt").read_text(encoding="utf-8") + COMMENT, encoding="utf-8")
    text = completion(head)
    yield path
    cluster.site().assert_ok()
    assert completion(head) == text
    on_all(nodes, f"rm -rf {folder(path)}")
    cluster.site().assert_unchanged()


def folder(lock: Path) -> str:
    """Return the environment of a lock."""
    # As Ansible's lookup reads the file.
    return f"/opt/gb10/runtime/{hashlib.sha256(lock.read_bytes().rstrip()).hexdigest()[:12]}"


def upgrade(cluster: Cluster, lock: Path, *arguments: str, **variables: object) -> Run:
    return cluster.play("upgrade", *arguments, gb10_runtime_lock=str(lock), **variables)


def running(nodes: dict[str, Host]) -> dict[str, str]:
    """Return the services, the launch inputs and the link of each node."""
    command = (
        "systemctl show --property=MainPID --value gb10-ray gb10-vllm; readlink /opt/gb10/runtime/current "
        "/etc/gb10/records/current; find /etc/gb10 /etc/systemd/system -name '*.json' -o -name "
        "'gb10-*.service' -o -name cluster.env | sort | xargs sha256sum"
    )
    return on_all(nodes, command)


@contextmanager
def answering(connection: Host) -> Iterator[list[str]]:
    """Request a completion in a loop during the block. The list has each answer, or the error."""
    answers: list[str] = []
    ended = threading.Event()

    def loop() -> None:
        while not ended.is_set():
            try:
                answers.append(completion(connection))
            except AssertionError as error:
                answers.append(f"error: {error}")
            ended.wait(0.5)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield answers
    finally:
        ended.set()
        thread.join()


def test_check_mode_shows_the_differences_and_changes_nothing(
    cluster: Cluster, nodes: dict[str, Host], lock: Path
) -> None:
    before = running(nodes)
    shown = upgrade(cluster, lock, "--check").assert_unchanged().shown("Announce the upgrade")
    assert any(line.startswith("runtime digest: ") for line in shown)
    assert running(nodes) == before
    for host in nodes.values():
        assert not host.file(folder(lock)).exists


def test_the_old_model_answers_until_the_switch(
    cluster: Cluster, nodes: dict[str, Host], head: Host, lock: Path
) -> None:
    text, before = completion(head), running(nodes)
    with answering(cluster.connect("spark1")) as answers:
        done = upgrade(cluster, lock).assert_ok()
    assert (
        "To switch now, with a stop of the model, run the same command with -e upgrade_confirmed=true." in done.output
    )
    assert len(answers) > 10 and set(answers) == {text}
    assert running(nodes) == before
    for host in nodes.values():
        assert host.file(f"{folder(lock)}/.complete").exists
    # The old launch is still the inventory's: site.yml changes nothing, and keeps the prepared environment.
    cluster.site().assert_unchanged()
    began = time.monotonic()
    switched = upgrade(cluster, lock, upgrade_confirmed=True).assert_ok()
    elapsed = time.monotonic() - began
    assert "Install exactly the locked packages" not in switched.changed_tasks()
    seconds = re.search(r"stop: ([0-9.]+) s, from the stop of the old server to the first answer", switched.output)
    assert seconds and 0 < float(seconds[1]) < elapsed
    assert completion(head) == text
    for host in nodes.values():
        assert host.check_output("readlink /opt/gb10/runtime/current") == folder(lock)
    upgrade(cluster, lock, upgrade_confirmed=True).assert_unchanged("stop: none")


def current(nodes: dict[str, Host]) -> dict[str, str]:
    """Return the current record and environment of each node."""
    return on_all(nodes, "readlink /etc/gb10/records/current /opt/gb10/runtime/current")


def test_other_golden_answers_restore_the_old_runtime(
    cluster: Cluster, nodes: dict[str, Host], head: Host, lock: Path, tmp_path: Path
) -> None:
    text, before, golden = completion(head), current(nodes), {"golden_directory": str(tmp_path / "golden")}
    cluster.play("golden", **golden, golden_record=True).assert_ok()
    arguments = [*cluster.variable("gb10_vllm_extra_args", []), "--hf-overrides", OTHER_NUMBERS]
    failed = upgrade(cluster, lock, **golden, gb10_vllm_extra_args=arguments, upgrade_confirmed=True)
    said = failed.output.replace("\\n", "\n")
    assert failed.status != 0 and "The golden answers failed: " in said
    assert "Restored /srv/models/tiny with its previous configuration. It answers again." in said
    assert (completion(head), current(nodes)) == (text, before)


@pytest.mark.parametrize("number", range(2))
def test_killed_at_a_random_task_the_repeated_upgrade_converges(
    cluster: Cluster, nodes: dict[str, Host], head: Host, lock: Path, number: int
) -> None:
    text = completion(head)
    tasks = (
        "Install exactly the locked packages",
        "Compare vLLM with the patches for this GPU",
        "Point the link current at this runtime",
        "Write gb10-vllm.service, its programs and settings",
        "Stop the vLLM server that must be replaced",
        "Verify that Ray has every node and GPU",
        "Wait until the API is healthy",
        "Record the launch inputs of the working model",
    )
    task = random.SystemRandom().choice(tasks)
    given = extra(gb10_runtime_lock=str(lock), upgrade_confirmed=True)
    run_and_kill("playbooks/upgrade.yml", [*cluster.arguments, *given], task, after=number)
    upgrade(cluster, lock, upgrade_confirmed=True).assert_ok()
    assert completion(head) == text, task
    for host in nodes.values():
        assert host.check_output("readlink /opt/gb10/runtime/current") == folder(lock), task
    upgrade(cluster, lock, upgrade_confirmed=True).assert_unchanged()
