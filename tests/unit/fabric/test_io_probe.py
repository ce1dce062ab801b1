"""Full packets on every path, without a network: what ping and ip report."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_probe

RAILS = [
    {"interface": "port0", "peers": {"spark2": "10.110.0.2"}, "macs": {"spark2": "02:00:00:00:00:02"}},
    {"interface": "port1", "peers": {"spark2": "10.110.1.2", "spark3": "10.110.1.3"}, "macs": {}},
]


@pytest.mark.parametrize(
    ("stdout", "stderr", "reported"),
    [
        ("", "ping: local error: message too long, mtu=1500\n", "ping: local error: message too long, mtu=1500"),
        (
            "PING 10.110.0.2\n\n--- 10.110.0.2 ping statistics ---\n1 packets transmitted, 0 received\n\n",
            "",
            "1 packets transmitted, 0 received",
        ),
        ("reply lost\n--- ping statistics ---\n", "", "reply lost"),
        ("--- ping statistics ---\n", "", "ping failed with status 2"),
        ("", "", "ping failed with status 2"),
    ],
)
def test_the_last_line_of_ping_is_the_reason(stdout: str, stderr: str, reported: str) -> None:
    (target, *_others) = io_probe.targets(RAILS)
    assert io_probe._failed(lambda _argv: (2, stdout, stderr), [target], 9000) == [
        {**target, "reported": reported, "small": None}
    ]


def test_every_path_is_a_target() -> None:
    assert [tuple(target.values()) for target in io_probe.targets(RAILS)] == [
        ("port0", "spark2", "10.110.0.2", "02:00:00:00:00:02"),
        ("port1", "spark2", "10.110.1.2", ""),
        ("port1", "spark3", "10.110.1.3", ""),
    ]


@pytest.mark.parametrize(
    ("mac", "neighbors", "deleted", "reported"),
    [
        ("02::2", [{"dev": "port0", "lladdr": "02::2"}], 0, ""),
        (
            "02::2",
            [{"dev": "port0", "lladdr": "02::9"}],
            1,
            "02::9 replied instead of 02::2, the device with the address",
        ),
        ("02::2", [{"dev": "port1", "lladdr": "02::9"}, {"dev": "port0", "lladdr": "02::2"}], 0, ""),
        ("02::2", [{"dev": "port0"}], 0, ""),
        ("02::2", [], 0, ""),
        ("", [{"dev": "port0", "lladdr": "02::9"}], 0, ""),
    ],
)
def test_the_device_that_replied(mac: str, neighbors: list[dict[str, str]], deleted: int, reported: str) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        asked.append(argv)
        entries = [{"dst": "10.110.0.2", **entry} for entry in neighbors]
        return 0, json.dumps(entries) if entries and argv[0] == "ip" else "", ""

    target = {"interface": "port0", "peer": "spark2", "address": "10.110.0.2", "mac": mac}
    assert [path["reported"] for path in io_probe._failed(run, [target], 9000)] == [reported] * bool(reported)
    assert asked[2:] == [["ip", "neighbour", "delete", "10.110.0.2", "dev", "port0"]] * deleted


class Later:
    """Paths that carry full packets from a time on, and small ones always unless ``cut``; ``mac`` replies on port0."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, cut: bool = False, mac: str = "02:00:00:00:00:02", **ready: float
    ) -> None:
        self.now, self.ready, self.cut, self.mac, self.pauses = 100.0, ready, cut, mac, 0
        monkeypatch.setattr(io_probe.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(io_probe.time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses += 1

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        if argv[0] != "ping":
            return 0, json.dumps([{"dev": "port0", "dst": "10.110.0.2", "lladdr": self.mac}]), ""
        # Without "do" the packet is fragmented, and a path with a smaller MTU carries it.
        assert argv[argv.index("-M") + 1] == "do"
        size, interface = int(argv[argv.index("-s") + 1]), argv[argv.index("-I") + 1]
        carries = (size == 576 - 28 and not self.cut) or (size == 9000 - 28 and self.now >= self.ready[interface])
        return (0, "", "") if carries else (1, "", "no answer")


@pytest.mark.parametrize(
    ("port1", "mac", "verified"),
    [(0, "02:00:00:00:00:02", True), (1000, "02:00:00:00:00:02", False), (0, "02:00:00:00:00:09", False)],
    ids=["every path", "a silent one", "another device"],
)
def test_a_fabric_is_verified_by_a_packet_on_every_path(
    monkeypatch: pytest.MonkeyPatch, port1: float, mac: str, verified: bool
) -> None:
    assert io_probe.verified(Later(monkeypatch, mac=mac, port0=0, port1=port1), RAILS, 9000) is verified


@pytest.mark.parametrize(
    ("ready", "timeout", "pauses"), [({"port0": 0, "port1": 0}, 5, 0), ({"port0": 101, "port1": 102.5}, 5, 5)]
)
def test_it_waits_until_all_paths_carry_full_packets(
    monkeypatch: pytest.MonkeyPatch, ready: dict[str, float], timeout: int, pauses: int
) -> None:
    run = Later(monkeypatch, **ready)
    assert io_probe.unverified_paths(run, io_probe.targets(RAILS), 9000, timeout) == []
    assert run.pauses == pauses


@pytest.mark.parametrize(
    ("cut", "reported"),
    [(False, "small packets arrive, but not packets of 9000 bytes"), (True, "no reply (no answer)")],
    ids=["MTU", "cut"],
)
def test_a_path_that_stays_unverified_is_tried_with_a_small_packet(
    monkeypatch: pytest.MonkeyPatch, cut: bool, reported: str
) -> None:
    run = Later(monkeypatch, cut, port0=0, port1=1000)
    found = io_probe.unverified_paths(run, io_probe.targets(RAILS), 9000, 2)
    assert [(path["peer"], path["small"], path["reported"]) for path in found] == [
        (peer, not cut, reported) for peer in ("spark2", "spark3")
    ]
    assert run.pauses == 5, "until the time is over, and once more"


PING = """5 packets transmitted, 4 received, 20% packet loss, time 8ms
rtt min/avg/max/mdev = 0.021/0.032/0.043/0.004 ms
"""
ROUND_TRIP = ["ping", "-nq", "-c", "5", "-i", "0.2", "-W", "1", "-I", "port0", "10.110.0.2"]


def test_a_round_trip() -> None:
    times = {"lost_percent": 20.0, "min_ms": 0.021, "avg_ms": 0.032, "max_ms": 0.043}
    found = io_probe.round_trip(lambda argv: (0, PING * (argv == ROUND_TRIP), ""), io_probe.targets(RAILS)[0], 5)
    assert found == {"interface": "port0", "peer": "spark2", **times}
