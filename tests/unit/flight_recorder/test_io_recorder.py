"""The recorder itself: two on the loopback, a kernel's log, a nvidia-smi that hangs, metrics, and a node without a peer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import certificates
import pytest
from repository import ROOT
from small_server import serving
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import (
    io_node,
    io_recorder,
    io_records,
    messages,
    record,
    report,
    ring,
    schema,
    watch,
)
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.messages import Message

#: Of what spark1 and spark2 send.
KEYS = {"spark1": "a" * 64, "spark2": "b" * 64}


@pytest.fixture
def port() -> int:
    """Return a free UDP port whose next one is free too."""
    for _try in range(50):
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two,
        ):
            one.bind(("127.0.0.2", 0))
            with contextlib.suppress(OSError):
                two.bind(("127.0.0.2", one.getsockname()[1] + 1))
                return int(one.getsockname()[1])
    raise AssertionError("no free ports")


def settings(node: str, own: str, peer: str, other: str, port: int) -> dict[str, Any]:
    return {
        "node": node,
        "port": port,
        "rails": [{"interface": "lo", "hca": ""}],
        "url": "",
        "ca_file": "",
        "server_name": "",
        "peer": {"name": peer, "address": other, "interface": "lo", "from": own, "port": port + 1},
        "watched": {"name": peer, "address": other, "addresses": [other], "listen": own},
    }


@pytest.fixture
def pair(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[io_recorder.Recorder]]:
    """Two recorders in this process, with the kernel's log of each in a pipe."""
    found = []
    for node, own, peer, other in (
        ("spark1", "127.0.0.2", "spark2", "127.0.0.3"),
        ("spark2", "127.0.0.3", "spark1", "127.0.0.2"),
    ):
        (tmp_path / node).mkdir()
        os.mkfifo(tmp_path / node / "kmsg")
        given = settings(node, own, peer, other, port)
        log = str(tmp_path / node / "kmsg")
        monkeypatch.setattr(io_recorder.Kmsg.__init__, "__defaults__", (log,))
        monkeypatch.setattr(io_node.Smi.__init__, "__defaults__", (["/nonexistent"],))
        found.append(
            io_recorder.Recorder(
                given, (KEYS[node], KEYS[peer]), str(tmp_path / node), str(tmp_path / node / "sample.json")
            )
        )
    yield found
    for each in found:
        each.end()


def turns(pair: list[io_recorder.Recorder], count: int = 3) -> None:
    """Let both take samples, and handle the received messages."""
    for _turn in range(count):
        for each in pair:
            each.tick(time.monotonic())
        for each in pair * 3:
            each.turn(time.monotonic() + 0.05, time.monotonic())


def test_a_peer_keeps_the_samples_and_writes_them_when_the_node_is_silent(
    pair: list[io_recorder.Recorder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    descriptor = os.open(tmp_path / "spark2/kmsg", os.O_WRONLY)
    turns(pair)
    os.write(descriptor, b"3,12,812250000,-;NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.\n")
    turns(pair)
    os.close(descriptor)
    assert one.link and two.link
    # Silent from now on: its clock stands.
    monkeypatch.setattr(watch, "SILENT", 0.0)
    monkeypatch.setattr(io_node, "probe", lambda _address: record.NOTHING)
    one.link.look(time.monotonic() + 1)
    one.records.finish()
    ((path, found),) = io_records.read(0, str(tmp_path / "spark1"))
    # Both have the addresses of this machine, which then say nothing.
    assert (found.node, found.recorder, found.verdict) == ("spark2", "spark1", record.UNCLEAR)
    assert found.samples[-1][1].node == "spark2"
    assert (
        found.samples[-1][1].memory_total == schema.parse((tmp_path / "spark2/sample.json").read_bytes()).memory_total
    )
    assert "Xid 79" in "\n".join(report.lines(found))
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    # The kernel is alive, and then the node.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
        kernel.bind(("127.0.0.3", 0))
        kernel.sendto(b"BUG: soft lockup\n\x1b[2J\n", one.link.netconsole.getsockname())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.4", 0))
        stranger.sendto(b"planted\n", one.link.netconsole.getsockname())
    monkeypatch.setattr(watch, "SILENT", 10.0)
    one.turn(time.monotonic() + 0.05, time.monotonic())
    turns(pair, 1)
    one.records.finish()
    ((_path, found),) = io_records.read(0, str(tmp_path / "spark1"))
    assert found.netconsole == ("BUG: soft lockup", " [2J")
    assert found.returned is not None


def test_forged_lines_push_out_no_sample_and_no_return(
    pair: list[io_recorder.Recorder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _two = pair
    assert one.link
    turns(pair)

    def flood(count: int) -> None:
        assert one.link
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
            forger.bind(("127.0.0.3", 0))
            for _datagram in range(count):
                forger.sendto(b"BUG: forged\n" * 100, one.link.netconsole.getsockname())
                one.link.console()

    flood(60)
    monkeypatch.setattr(watch, "SILENT", 0.0)
    monkeypatch.setattr(io_node, "probe", lambda _address: record.NOTHING)
    one.link.look(time.monotonic() + 1)
    flood(60)
    monkeypatch.setattr(watch, "SILENT", 10.0)
    turns(pair, 1)
    one.records.finish()
    ((_path, found),) = io_records.read(0, str(tmp_path / "spark1"))
    assert found.samples and found.returned is not None
    assert len(found.netconsole) == 500 + record.MOST_APPENDED


def test_a_goodbye_leaves_no_record(
    pair: list[io_recorder.Recorder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    turns(pair)
    assert one.link and one.link.sender.heard is not None
    two.end()
    one.turn(time.monotonic() + 0.05, time.monotonic())
    monkeypatch.setattr(watch, "SILENT", 0.0)
    one.link.look(time.monotonic() + 100)
    one.records.finish()
    assert io_records.read(0, str(tmp_path / "spark1")) == []


def test_messages_of_others_are_not_those_of_the_watched_node(pair: list[io_recorder.Recorder]) -> None:
    one, _two = pair
    assert one.link
    place, nonce = one.link.incoming.getsockname(), one.link.sender.nonce
    named = Message(messages.KERNEL, "spark2", "spark1", "session", 1, nonce, lines=("BUG: forged",))
    others = (
        b"",
        b"no message",
        messages.encode(named, KEYS["spark1"]),
        messages.encode(replace(named, sender="spark3"), KEYS["spark2"]),
        messages.encode(replace(named, to="spark3"), KEYS["spark2"]),
        messages.encode(replace(named, nonce=""), KEYS["spark2"]),
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        for data in others:
            other.sendto(data, place)
        one.link.receive(time.monotonic())
        assert one.link.sender.heard is None and one.link.sender.entries() == []
        other.sendto(messages.encode(named, KEYS["spark2"]), place)
    one.link.receive(time.monotonic())
    assert [each.text for each in one.link.sender.entries()] == ["BUG: forged"]


def test_the_addresses_of_a_node_are_read_once_a_minute(
    pair: list[io_recorder.Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = [1e6], list[float]()
    monkeypatch.setattr(io_recorder, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    monkeypatch.setattr(io_node, "addresses", lambda _left_out: asked.append(clock[0]) or ())
    link = pair[0].link
    assert link
    for second in range(0, 130, 2):
        clock[0] = 1e6 + second
        link.send(messages.SAMPLE)
    assert asked == [1e6, 1e6 + 62, 1e6 + 124]


def test_after_its_own_pause_a_recorder_takes_no_peer_for_silent(pair: list[io_recorder.Recorder]) -> None:
    one, _two = pair
    turns(pair)
    assert one.link and one.link.sender.heard is not None
    one.link.sender.heard -= 100
    now = time.monotonic()
    one.turn(now, now - 100)
    assert not one.link.sender.silent


def test_a_flood_of_the_kernel_waits_for_the_next_sample(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    log = io_recorder.Kmsg(str(tmp_path / "kmsg"))
    writer = os.open(tmp_path / "kmsg", os.O_WRONLY)
    os.write(writer, b"3,1,1,-;a\n")
    assert log.lines(5) == (["[0.000] a"], False)
    assert log.lines(0) == ([], True)
    os.close(writer)
    assert io_recorder.Kmsg(str(tmp_path / "none")).lines(5) == ([], False)


SMI = """#!/bin/sh
echo "0, 580.142, 62, 38.5, 2405, 96, 0x4"
exec sleep 1000
"""


def test_a_hanging_nvidia_smi_is_ended_and_started_later(tmp_path: Path) -> None:
    program = tmp_path / "smi"
    program.write_text(SMI, encoding="utf-8")
    program.chmod(0o755)
    smi = io_node.Smi([str(program)])
    now = time.monotonic()
    smi.read(now)
    found = wait_until(lambda: smi.read(now), 60, pause=0.05)
    assert (found[0].power, found[0].reasons) == (38.5, 4)
    assert smi.read(now + 5) == found, "two samples may be missing"
    assert smi.read(now + 7) == (), "an old value is none"
    process = smi._process
    smi.read(now + 40)
    assert process and process.wait(60) == -signal.SIGKILL
    smi.read(now + 41)
    assert smi._process is None
    smi.read(now + 101)
    assert smi._process is not None
    smi.stop()


def test_a_missing_nvidia_smi_gives_no_values() -> None:
    smi = io_node.Smi(["/nonexistent"])
    assert smi.read(100.0) == () == smi.read(200.0)


def test_a_value_that_the_node_does_not_have_is_none() -> None:
    given = {"node": "spark1", "rails": [{"interface": "none0", "hca": "none"}, {"interface": "lo", "hca": ""}]}
    found = io_node.sample(given, (), None)
    assert found.rails[0] == schema.SampledRail("none0")
    assert (found.rails[1].carrier, found.rails[1].rdma_rx, found.engine) == (True, None, None)
    assert found.rails[1].mtu and found.memory_available and found.memory_total
    assert schema.parse(schema.dump(found)) == found


def test_a_rail_has_the_counters_of_its_interface_and_of_its_rdma_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io_node, "_NET", str(tmp_path))
    monkeypatch.setattr(io_node, "_RDMA", str(tmp_path))
    files = {
        "eth/carrier": "1",
        "eth/speed": "200000",
        "eth/mtu": "9000",
        "eth/operstate": "up",
        "eth/statistics/rx_bytes": "10",
        "eth/statistics/tx_bytes": "20",
        "hca/ports/1/counters/port_rcv_data": "30",
        "hca/ports/1/counters/port_xmit_data": "40",
        "hca/ports/1/state": "4: ACTIVE",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n", encoding="ascii")
    given = {"node": "spark1", "rails": [{"interface": "eth", "hca": hca} for hca in ("hca", "")]}
    with_rdma, without = io_node.sample(given, (), None).rails
    # RDMA counts words of four bytes.
    assert with_rdma == schema.SampledRail("eth", True, 200_000, 9000, 10, 20, 120, 160, "up", "ACTIVE")
    assert without == replace(with_rdma, rdma_rx=None, rdma_tx=None, rdma="")


class Paced(io_recorder.Recorder):
    """A recorder without a kernel and a network, whose turns are late by given seconds."""

    def __init__(self, delays: list[float], clock: list[float]) -> None:
        self.delays, self.clock, self.ticks = delays, clock, list[float]()

    def turn(self, until: float, last: float) -> float:
        if not self.delays:
            raise io_recorder.Stop
        self.clock[0] = max(last, until) + self.delays.pop(0)
        return self.clock[0]

    def tick(self, now: float) -> None:
        self.ticks.append(now)

    def end(self) -> None:
        self.ticks.append(-1.0)


def test_after_a_late_sample_the_next_one_comes_soon_and_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(io_recorder, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    recorder = Paced([0, 0, 7, 0, 0], clock)
    recorder.run()
    assert recorder.ticks == [100, 102, 111, 112, 114, -1]


def test_sshd_is_told_from_a_frozen_host() -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
        assert io_node.probe("127.0.0.2", port) == record.ACCEPTS
    assert io_node.probe("127.0.0.2", port) == record.REFUSES


CA = certificates.authority()
NAME = "spark.example.com"


@pytest.mark.parametrize("secured", [False, True], ids=["http", "https"])
def test_metrics_are_read_while_the_server_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secured: bool
) -> None:
    monkeypatch.setattr(schema, "INTERVAL", 0.1)
    (tmp_path / "ca.crt").write_text(CA.text, encoding="ascii")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if secured else None
    if context:
        context.load_cert_chain(*CA.issue(NAME).write(tmp_path, "api"))
    seen: list[tuple[str, int]] = []

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        seen.append((request.path, request.client_address[1]))
        return 200, f'vllm:num_requests_running{{engine="0"}} {len(seen)}.0\n', {}

    with serving(answer, context) as plain:
        url = plain.replace("http:", "https:") if secured else plain
        metrics = io_node.Metrics({"url": url, "ca_file": str(tmp_path / "ca.crt"), "server_name": NAME})
        found = wait_until(lambda: len(seen) > 2 and metrics.read(time.monotonic()), 10, pause=0.05)
        assert found.running and found.running >= 2
        assert {path for path, _port in seen} == {"/metrics"}
        assert metrics.read(time.monotonic() + 4)
        assert metrics.read(time.monotonic() + 7) is None, "an old value is none"
    wait_until(lambda: metrics.read(time.monotonic()) is None, 10, pause=0.05)


@pytest.mark.parametrize(
    ("status", "text"), [(503, "vllm:num_requests_running 1.0\n"), (200, "x" * (io_node._MOST_PAGE + 1))]
)
def test_an_error_or_an_endless_page_gives_no_values(status: int, text: str) -> None:
    asked = threading.Event()

    def answer(_request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        asked.set()
        return status, text, {}

    with serving(answer) as url:
        metrics = io_node.Metrics({"url": url, "ca_file": "", "server_name": ""})
        assert asked.wait(10)
        wait_until(lambda: metrics._found[0], 10, pause=0.05)
        assert metrics.read(time.monotonic()) is None


def alone() -> dict[str, Any]:
    return {**settings("spark1", "", "", "", 1), "peer": None, "watched": None}


def test_a_former_boot_that_did_not_end_becomes_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_node.Smi.__init__, "__defaults__", (["/nonexistent"],))
    live = str(tmp_path / "sample.json")
    for boot, ends, records in (
        ("one", True, 0),
        ("two", False, 0),
        ("two", False, 0),
        ("three", True, 1),
        ("four", True, 1),
    ):
        monkeypatch.setattr(io_recorder, "boot_id", lambda boot=boot: boot)
        each = io_recorder.Recorder(alone(), (), str(tmp_path), live)
        assert each.ring
        each.tick(time.monotonic())
        each.ring.lines(["[1.000] BUG: x"], time.monotonic() + 1)
        found = io_records.read(0, str(tmp_path))
        assert len(found) == records, boot
        if ends:
            each.end()
    assert (found[0][1].verdict, found[0][1].node) == (record.POWER, "spark1")
    assert found[0][1].samples and "[1.000] BUG: x" in found[0][1].kernel
    assert (tmp_path / "ring").stat().st_size == ring.SIZE


def test_a_link_in_the_folder_of_the_recorders_user_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(record.text("a", "b", 1.0, record.OFF, []), encoding="utf-8")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / record.name("a", 1.0)).symlink_to(secret)
    assert io_records.read(0, str(tmp_path / "state")) == []
    assert io_records.read(0, str(tmp_path / "none")) == []


def test_the_status_shows_records_of_the_last_day_and_a_recorder_that_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    name = record.name("spark2", now)
    (tmp_path / name).write_text(record.text("spark2", "spark1", now, record.OFF, []), encoding="utf-8")
    live = tmp_path / "sample.json"
    monkeypatch.setattr(paths, "UNIT_FOLDER", str(tmp_path))
    (line,) = io_records.status(now + 60, str(tmp_path), str(live))
    assert line.startswith("spark2 fell silent 1 min ago") and line.endswith(f"File: {tmp_path / name}")
    assert io_records.status(now + 90000, str(tmp_path), str(live)) == []
    (tmp_path / paths.RECORDER_UNIT).touch()
    assert "takes no samples" in io_records.status(now + 90000, str(tmp_path), str(live))[0]
    live.touch()
    assert io_records.status(time.time(), str(tmp_path / "none"), str(live)) == []


def test_the_program_says_goodbye_and_ends_with_sigterm(tmp_path: Path, port: int) -> None:
    """As systemd starts it, with its settings, folders and credential."""
    given = tmp_path / "settings.json"
    given.write_text(json.dumps(settings("spark1", "127.0.0.2", "spark2", "127.0.0.3", port)), encoding="utf-8")
    (tmp_path / "keys").write_text("\n".join([*KEYS.values(), "mark", ""]), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / ".collections"),
        **dict.fromkeys(("CREDENTIALS_DIRECTORY", "STATE_DIRECTORY", "RUNTIME_DIRECTORY"), str(tmp_path)),
    }
    process = subprocess.Popen([sys.executable, io_recorder.__file__, str(given)], env=environment)
    wait_until((tmp_path / "sample.json").exists, 60, pause=0.1)
    assert stat.S_IMODE((tmp_path / "sample.json").stat().st_mode) == 0o644
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("given", "keys", "missing"),
    [
        (False, "", "settings.json does not exist"),
        (True, "", "the keys of the messages are missing"),
        (True, KEYS["spark1"], "the keys of the messages are missing"),
    ],
)
def test_the_program_ends_without_its_settings_and_keys(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: bool,
    keys: str,
    missing: str,
) -> None:
    path = tmp_path / "settings.json"
    if given:
        path.write_text(json.dumps(settings("spark1", "127.0.0.2", "spark2", "127.0.0.3", 1)), encoding="utf-8")
    (tmp_path / "keys").write_text(keys, encoding="utf-8")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["gb10-flight-recorder", str(path)])
    assert io_recorder.main() == 1
    assert missing in capsys.readouterr().out
