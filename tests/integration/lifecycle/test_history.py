"""Launch records: two different starts, their difference, the return to the first, and refused or failed rollbacks."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from api_client import completion
from live_cluster import Cluster, copied, extra, on_all
from testinfra.host import Host

pytestmark = pytest.mark.disruptive

RECORDS = "/etc/gb10/records"


def history(cluster: Cluster, **variables: object) -> list[str]:
    """Return the output lines of history.yml."""
    return cluster.play("history", **variables).assert_unchanged().shown("Show the launch records")


def listed(lines: list[str]) -> list[str]:
    """Return the shown IDs, newest first."""
    return [line[:12] for line in lines if re.match(r"[0-9a-f]{12}  ", line)]


def current(nodes: dict[str, Host]) -> set[str]:
    """Return the current record's ID of each node."""
    return {host.check_output(f"readlink {RECORDS}/current").removesuffix(".json") for host in nodes.values()}


def records(nodes: dict[str, Host]) -> dict[str, str]:
    """Return the files of all records and of the launch by node, to compare them."""
    command = (
        f"readlink {RECORDS}/current; sha256sum {RECORDS}/*.json /etc/gb10/cluster.env "
        "/etc/systemd/system/gb10-*.service"
    )
    return on_all(nodes, command)


def test_the_running_launch_has_a_complete_record_without_secrets(
    cluster: Cluster, nodes: dict[str, Host], head: Host
) -> None:
    (name,) = current(nodes)
    # Newest first; after a rollback, the current record is not the newest.
    entries = re.split(r"\n(?=[0-9a-f]{12}  )", "\n".join(history(cluster)))
    (own,) = (entry.splitlines() for entry in entries if entry.splitlines()[0].endswith("(current)"))
    assert own[0].startswith(f"{name[:12]}  ") and "on all nodes; a rollback needs no download" in own
    assert f"launch record: {name[:12]}" in cluster.screen()
    for host in nodes.values():
        assert host.check_output(f"stat --format=%a:%U {RECORDS}/{name}.json") == "600:root"
    for secret in ("/etc/gb10/api.key", "/etc/gb10/ray.token"):
        assert head.run(f"grep --recursive --quiet --fixed-strings --file={secret} {RECORDS}").rc == 1


def test_a_rollback_to_an_unknown_record_changes_nothing(cluster: Cluster, nodes: dict[str, Host]) -> None:
    before = records(nodes)
    refused = cluster.play("rollback", rollback_to="ffffffffffff", rollback_confirmed=True).assert_failed(
        "no record with the ID 'ffffffffffff'. Expected: one of "
    )
    assert set(refused.changed.values()) == {0}
    assert records(nodes) == before


def test_the_first_of_two_launches_comes_back(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    text, (first,) = completion(head), current(nodes)
    arguments = [*cluster.variable("gb10_vllm_extra_args", []), "--max-num-seqs=8"]
    changed = extra(gb10_vllm_extra_args=arguments)
    try:
        cluster.serve(*changed).assert_ok()
        (second,) = current(nodes)
        assert second != first
        shown = listed(history(cluster))
        assert shown[0] == second[:12] and first[:12] in shown
        assert any(
            line.endswith("+ --max-num-seqs=8")
            for line in history(cluster, history_from=first[:12], history_to=second[:12])
        )
        # The same launch again writes nothing.
        before = records(nodes)
        cluster.serve(*changed).assert_unchanged()
        assert records(nodes) == before
        announced = cluster.play("rollback", "--check").assert_unchanged().shown("Announce the rollback")
        assert any(line.endswith("- --max-num-seqs=8") for line in announced)
        cluster.play("rollback").assert_failed("Nothing was rolled back.")
        assert records(nodes) == before
        cluster.play("rollback", rollback_confirmed=True).assert_ok(
            f"is served again, as in the record {first[:12]}.", "The next run of site.yml applies the inventory again"
        )
        assert (completion(head), current(nodes)) == (text, {first})
        cluster.play("rollback", rollback_to=first[:12], rollback_confirmed=True).assert_ok(
            "is the current record, and its launch inputs are in place"
        )
    finally:
        cluster.serve().assert_ok()
    assert (completion(head), current(nodes)) == (text, {first})
    cluster.site().assert_unchanged()


@pytest.fixture
def copy(nodes: dict[str, Host]) -> Iterator[str]:
    """A copy of the model on every node."""
    with copied(nodes, "tiny", "/srv/models/tiny-history") as folder:
        yield folder


def test_a_rollback_that_fails_ends_with_the_former_launch(
    cluster: Cluster, nodes: dict[str, Host], head: Host, copy: str
) -> None:
    text, (first,) = completion(head), current(nodes)
    try:
        cluster.play("switch_model", gb10_model=copy).assert_ok()
        (second,) = current(nodes)
        cluster.play("rollback", rollback_to=first[:12], rollback_confirmed=True).assert_ok()
        on_all(nodes, f"truncate --size=4096 {copy}/*.safetensors")
        cluster.play("rollback", rollback_to=second[:12], rollback_confirmed=True).assert_failed(
            f"The rollback to {second[:12]} failed: ", f"The former record {first[:12]} was restored. It answers again."
        )
        assert (completion(head), current(nodes)) == (text, {first})
        on_all(nodes, f"rm {copy}/config.json")
        cluster.play("rollback", rollback_to=second[:12], rollback_confirmed=True).assert_failed(
            f"{copy} is missing or changed. Fix: gb10_model: {copy}"
        )
        assert (completion(head), current(nodes)) == (text, {first})
    finally:
        cluster.serve().assert_ok()
    cluster.site().assert_unchanged()
