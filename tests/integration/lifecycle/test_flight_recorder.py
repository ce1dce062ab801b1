"""The flight recorder: a power cut and a pulled cable leave a record on the peer, a reboot and a stop leave none.

The lab has no kernel of its own: kernel messages and netconsole are not in it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import answers_again, stream
from live_cluster import Cluster, flight_records, new_flight_records, of_unit
from testinfra.host import Host
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import record, report, schema

pytestmark = pytest.mark.disruptive

LIVE = "/run/gb10-flight-recorder/sample.json"
#: Seconds until a record exists: the silence, two connections that time out, and the time of this test's ssh.
WITHIN = 40


def generated(head: Host) -> float:
    found = schema.parse(head.file(LIVE).content).engine
    return (found.generated or 0.0) if found else 0.0


@pytest.fixture
def load(head: Host) -> Iterator[None]:
    """Streams that nothing waits for."""
    answers_again(head)
    before = generated(head)
    for _number in range(4):
        stream(head)
    # The samples of the head have it.
    wait_until(lambda: generated(head) > before + 20, 60, "the load generates no tokens")
    yield
    head.run("pkill curl")


def test_each_node_has_its_newest_sample_and_any_user_may_read_it(nodes: dict[str, Host]) -> None:
    for name, host in nodes.items():
        found = schema.parse(host.check_output(f"setpriv --reuid=65534 --clear-groups cat {LIVE}").encode())
        assert found.node == name
        assert abs(found.time - float(host.check_output("date +%s.%N"))) < 6
        assert found.gpus[0].power == 4.5, "of the lab's nvidia-smi, which runs in a loop"
        assert [rail.carrier for rail in found.rails] == [True, True]
        assert (found.engine is not None) == (name == next(iter(nodes)))


def test_the_receiver_has_no_rights_and_a_second_run_changes_nothing(cluster: Cluster, head: Host) -> None:
    pid = of_unit(head, "gb10-flight-recorder")
    fields = dict(line.split(":\t") for line in head.file(f"/proc/{pid}/status").content_string.splitlines())
    assert "0" not in fields["Uid"].split()
    # At most CAP_SYSLOG, which the lab's hosts do not have.
    assert int(fields["CapBnd"], 16) in (0, 1 << 34)
    cluster.site("--tags", "flight_recorder").assert_unchanged()


def test_a_reboot_leaves_no_record(cluster: Cluster, head: Host, nodes: dict[str, Host]) -> None:
    worker, before = list(nodes)[-1], flight_records(head)
    cluster.reboot(worker, nodes[worker])
    time.sleep(15)
    assert flight_records(head).keys() == before.keys()


@pytest.mark.usefixtures("load")
def test_a_power_cut_under_load_leaves_the_last_seconds(
    cluster: Cluster, head: Host, nodes: dict[str, Host], tmp_path: Path
) -> None:
    worker, before = list(nodes)[-1], flight_records(head)
    cut = float(head.check_output("date +%s.%N"))
    cluster.power("off", worker)
    try:
        (found,) = new_flight_records(head, before, WITHIN)
        assert (found.node, found.verdict) == (worker, record.OFF)
        assert cut - found.samples[-1][1].time < 4
        assert found.samples[-1][1].memory_available
        assert found.samples[-1][0] - found.samples[0][0] > 8, "the seconds before"
        shown = cluster.play("status").output
        assert f"{worker} fell silent" in shown
        assert report.values(found.samples[-1][1]) in shown
    finally:
        cluster.power("on", worker)
        cluster.booted(worker)
    (name,) = flight_records(head).keys() - before.keys()
    wait_until(lambda: flight_records(head)[name].returned, 60, "nothing notes that the node is back")
    file = tmp_path / "report.json"
    cluster.play("field_report", field_report_file=str(file)).assert_ok()
    evidence = json.loads(file.read_text(encoding="utf-8"))["nodes"][0]["evidence"]["flight_records"]
    assert "fell silent" in evidence[0]
    assert worker not in "\n".join(evidence), "a report has no names"


def test_a_pulled_cable_is_told_apart(cluster: Cluster, head: Host, nodes: dict[str, Host]) -> None:
    worker, before = list(nodes)[-1], flight_records(head)
    wait_until(lambda: head.file(LIVE).exists, 30)
    cluster.rails(worker, "down")
    try:
        (found,) = new_flight_records(head, before, WITHIN)
    finally:
        cluster.rails(worker, "up")
    assert found.verdict == record.CABLE
    assert "QSFP cable" in report.steps(found)[0]
    (name,) = flight_records(head).keys() - before.keys()
    wait_until(lambda: flight_records(head)[name].returned, 60, "nothing notes that the cable is back")


def test_a_stop_leaves_no_record(cluster: Cluster, head: Host, nodes: dict[str, Host]) -> None:
    before = {name: flight_records(host).keys() for name, host in nodes.items()}
    cluster.play("stop").assert_ok()
    time.sleep(15)
    assert {name: flight_records(host).keys() for name, host in nodes.items()} == before
    cluster.serve().assert_ok()
    answers_again(head)


def test_the_role_removes_everything(cluster: Cluster, nodes: dict[str, Host]) -> None:
    cluster.site("--tags", "flight_recorder", "--extra-vars", "flight_recorder_enabled=false").assert_ok()
    for host in nodes.values():
        left = host.check_output(
            "find /etc /run /usr/local/lib /var/lib -xdev -name '*flight-recorder*' -o -xdev -name 'gb10-netconsole*'"
        )
        assert left == ""
        assert host.run("systemctl is-active gb10-flight-recorder gb10-netconsole").stdout.split() == ["inactive"] * 2
    cluster.site("--tags", "flight_recorder").assert_ok()
