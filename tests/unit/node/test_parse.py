"""Facts from the output of a node's tools. Comments name the recorded outputs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.host_guard.plan import _CLOCK
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_parse

MEMINFO = "MemTotal:       125513088 kB\nMemFree:        100000000 kB\n"
SUMMARY = "| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |"
#: The output of nvidia-smi on a DGX Spark, whose GPU has no separate memory (driver 580.142).
GB10 = "NVIDIA GB10, 12.1, 580.142, [N/A], GPU-11111111-2222-3333-4444-555555555555\n"
#: Recorded on an H200, except for the identifier.
H200 = "NVIDIA H200, 9.0, 580.159.04, 143771, GPU-66666666-7777-8888-9999-000000000000\n"


#: The first line of the table of nvidia-smi 610.43.02, as sgl-project/sglang#27487 shows it.
DRIVER_610 = "| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |\n"
DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed.\n"
)
UNREAD = "NVIDIA GB10, [Unknown Error], 580.142, [GPU requires reset], GPU-1\n"
NOT_A_TABLE = (
    "nvidia-smi printed 'No devices were found' instead of name, compute_cap, driver_version, memory.total, uuid"
)
OF_GB10 = {
    "name": "NVIDIA GB10",
    "uuid": "GPU-11111111-2222-3333-4444-555555555555",
    "capability": "12.1",
    "sm": "sm_121",
    "memory_bytes": None,
    "reasons": {"memory_bytes": "nvidia-smi reports [N/A]: the GPU shares the host's memory"},
}
OF_H200 = {
    "name": "NVIDIA H200",
    "uuid": "GPU-66666666-7777-8888-9999-000000000000",
    "capability": "9.0",
    "sm": "sm_90",
    "memory_bytes": 143771 * 2**20,
    "reasons": {},
}
OF_UNREAD = {
    "name": "NVIDIA GB10",
    "uuid": "GPU-1",
    "capability": None,
    "sm": None,
    "memory_bytes": None,
    "reasons": {
        "capability": "compute_cap: '[Unknown Error]' is not a compute capability. Expected: MAJOR.MINOR, such as "
        '"12.1". Fix: correct compute_cap.',
        "memory_bytes": "nvidia-smi reports [GPU requires reset]",
    },
}


@pytest.mark.parametrize(
    ("stdout", "summary", "gpus", "driver", "cuda", "unified", "reason"),
    [
        pytest.param(GB10, SUMMARY, [OF_GB10], "580.142", "13.0", True, "", id="GB10 shares the host's memory"),
        pytest.param(GB10, DRIVER_610, [OF_GB10], "580.142", "13.3", True, "", id="the words of driver 610"),
        pytest.param(H200, SUMMARY, [OF_H200], "580.159.04", "13.0", False, "", id="memory of its own"),
        pytest.param(GB10 + H200, SUMMARY, [OF_GB10, OF_H200], "580.142", "13.0", False, "", id="two kinds, in order"),
        pytest.param(
            UNREAD, "", [OF_UNREAD], "580.142", None, None, "nvidia-smi prints no CUDA version", id="nothing is guessed"
        ),
        pytest.param("", SUMMARY, [], None, None, None, "nvidia-smi lists no GPU", id="nothing"),
        pytest.param("No devices were found\n", SUMMARY, [], None, None, None, NOT_A_TABLE, id="no devices, status 0"),
    ],
)
def test_gpus(
    stdout: str, summary: str, gpus: list[Any], driver: str | None, cuda: str | None, unified: bool | None, reason: str
) -> None:
    assert node_parse.gpu_facts((0, stdout, ""), summary, MEMINFO) == {
        "gpus": gpus,
        "driver_version": driver,
        "cuda_version": cuda,
        "memory_bytes": 125513088 * 1024,
        "unified_memory": unified,
        "reason": reason,
    }


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "reason"),
    [
        pytest.param(127, "", "x", "nvidia-smi is not installed", id="not installed"),
        pytest.param(126, "", "x", "nvidia-smi failed with status 126: x", id="not executable"),
        pytest.param(-9, "", "", "nvidia-smi failed with status -9: ", id="killed"),
        pytest.param(9, DRIVER, "", f"nvidia-smi failed with status 9: {DRIVER.strip()}", id="driver fails"),
        pytest.param(
            6, "No devices were found\n", "", "nvidia-smi failed with status 6: No devices were found", id="6"
        ),
    ],
)
def test_a_query_that_fails_has_a_reason(status: int, stdout: str, stderr: str, reason: str) -> None:
    found = node_parse.gpu_facts((status, stdout, stderr), SUMMARY, "")
    nothing = {"driver_version": None, "cuda_version": None, "memory_bytes": None, "unified_memory": None}
    assert found == {"gpus": [], **nothing, "reason": reason}


def test_memory_of_the_host() -> None:
    """A kernel whose handover reserve is CMA reports CmaFree above CmaTotal."""
    found = node_parse.cma_facts("CmaTotal:              0 kB\nCmaFree:         9764864 kB\n")
    assert found == {"cma_total_bytes": 0, "cma_free_bytes": 9764864 * 1024}
    assert node_parse.cma_facts(MEMINFO) == {"cma_total_bytes": None, "cma_free_bytes": None}
    assert node_parse.total_memory(MEMINFO) == 125513088 * 1024
    with pytest.raises(ValueError, match="/proc/meminfo has no MemAvailable"):
        node_parse.available_memory(MEMINFO)


#: `ip -json address show` of iproute2 6.1 in a network namespace with a veth link up and one down; lifetimes left out.
LINKS = """
[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK"],"mtu":65536,"qdisc":"noop","operstate":"DOWN","link_type":"loopback",
  "address":"00:00:00:00:00:00","broadcast":"00:00:00:00:00:00","addr_info":[]},
 {},
 {"ifindex":3,"link":"peer0","ifname":"enp1s0f1np1","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":9000,"qdisc":"noqueue",
  "operstate":"UP","link_type":"ether","address":"7a:54:4d:96:2a:16","broadcast":"ff:ff:ff:ff:ff:ff",
  "addr_info":[{"family":"inet","local":"10.110.0.1","prefixlen":24,"scope":"global","label":"enp1s0f1np1"},
               {"family":"inet6","local":"fe80::7854:4dff:fe96:2a16","prefixlen":64,"scope":"link","tentative":true}]},
 {"ifindex":5,"link":"peer1","ifname":"enP2p1s0f1np1","flags":["BROADCAST","MULTICAST","M-DOWN"],"mtu":1500,"qdisc":"noop",
  "operstate":"DOWN","link_type":"ether","address":"ee:b5:cc:ad:22:f3","broadcast":"ff:ff:ff:ff:ff:ff","addr_info":[]},
 {"ifindex":6,"ifname":"tun0","flags":["POINTOPOINT","NOARP","UP"],"mtu":1420,"link_type":"none",
  "addr_info":[{"family":"inet","local":"10.9.0.2","prefixlen":32}]}]
"""


def test_interfaces() -> None:
    assert node_parse.interface_facts(json.loads(LINKS)) == {
        "lo": {
            "mtu": 65536,
            "mac": "00:00:00:00:00:00",
            "up": False,
            "carrier": False,
            "addresses": [],
            "link_local": "",
        },
        "enp1s0f1np1": {
            "mtu": 9000,
            "mac": "7a:54:4d:96:2a:16",
            "up": True,
            "carrier": True,
            "addresses": ["10.110.0.1/24"],
            "link_local": "fe80::7854:4dff:fe96:2a16",
        },
        "enP2p1s0f1np1": {
            "mtu": 1500,
            "mac": "ee:b5:cc:ad:22:f3",
            "up": False,
            "carrier": False,
            "addresses": [],
            "link_local": "",
        },
        "tun0": {
            "mtu": 1420,
            "mac": None,
            "up": True,
            "carrier": False,
            "addresses": ["10.9.0.2/32"],
            "link_local": "",
        },
    }


#: `systemctl show` of a missing unit, from systemd 252.
SHOWN = {
    "LoadState": "not-found",
    "UnitFileState": "",
    "ActiveState": "inactive",
    "SubState": "dead",
    "Result": "success",
    "MainPID": "0",
    "NRestarts": "0",
    "InvocationID": "",
    "Job": "0",
    "ExecMainStatus": "0",
    "Environment": "",
    "ExecStopPost": "",
    "ExecMainStartTimestampMonotonic": "0",
    "ActiveExitTimestampMonotonic": "0",
}
MISSING = {
    "unit": "gb10-ray.service",
    "load": "not-found",
    "enabled": False,
    "active": "inactive",
    "sub": "dead",
    "result": "success",
    "pid": None,
    "restarts": 0,
    "status": 0,
    "invocation": "",
    "started": 0.0,
    "stopped": 0.0,
    "queued": False,
    "container": False,
    "loaded_inputs": "",
}
RUNNING = {"LoadState": "loaded", "UnitFileState": "enabled", "ActiveState": "active", "SubState": "running"}
WAITING = {"ActiveState": "activating", "SubState": "auto-restart", "Result": "exit-code", "ExecMainStatus": "203"}
CONTAINER = "{ path=/usr/bin/podman ; argv[]=podman rm --force gb10-vllm ; ignore_errors=yes ; start_time=[n/a] }"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        (
            {
                **RUNNING,
                "MainPID": "730",
                "NRestarts": "2",
                "InvocationID": "0f3c",
                "Environment": 'GB10_INPUTS=abc123 RAY_AUTH_TOKEN_PATH=%d/ray.token "LESS=a b"',
                "ExecMainStartTimestampMonotonic": "123456789",
                "ActiveExitTimestampMonotonic": "120000000",
            },
            {
                "load": "loaded",
                "enabled": True,
                "active": "active",
                "sub": "running",
                "pid": 730,
                "restarts": 2,
                "invocation": "0f3c",
                "started": 123.456789,
                "stopped": 120.0,
                "loaded_inputs": "abc123",
            },
        ),
        (
            {**WAITING, "Job": "12", "Environment": "OTHER=GB10_INPUTS=no GB10_INPUTS=new"},
            {
                "active": "activating",
                "sub": "auto-restart",
                "result": "exit-code",
                "status": 203,
                "queued": True,
                "loaded_inputs": "new",
            },
        ),
        ({"ExecStopPost": CONTAINER}, {"container": True}),
    ],
    ids=["missing", "running", "waits for its next start", "container"],
)
def test_a_service(changes: dict[str, str], expected: dict[str, Any]) -> None:
    assert set(SHOWN) == set(node_parse.SERVICE_PROPERTIES)
    text = "".join(f"{name}={value}\n" for name, value in {**SHOWN, **changes}.items())
    assert node_parse.service_facts("gb10-ray.service", text) == {**MISSING, **expected}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ("PATH=/bin\0GB10_INPUTS=abc\0X=\0", "abc"),
        ("GB10_INPUTS=\0", ""),
        ("XGB10_INPUTS=abc\0GB10_INPUTS_OLD=abc", ""),
        ("", ""),
    ],
    ids=["set", "empty", "other names", "unreadable"],
)
def test_inputs_of_environment(environ: str, expected: str) -> None:
    assert node_parse.inputs_of_environment(environ) == expected


STATE = {"clock_mhz": 2405.0, "max_clock_mhz": 3003.0, "power_w": 45.12, "temperature_c": 62.0, "utilization": 96.0}
KNOWN = {**STATE, "slowed": [], "limit_mhz": None}
UNKNOWN = {**dict.fromkeys(STATE), "slowed": [], "limit_mhz": None}
CLOCK = _CLOCK % 2100


@pytest.mark.parametrize(
    ("printed", "unit", "expected"),
    [
        # The last field as driver 580.159.04 prints it for an idle GPU.
        ("2405, 3003, 45.12, 62, 96, 0x0000000000000001\n", "", KNOWN),
        ("2405, 3003, [N/A], 62, 96, 0x0000000000000000\n", CLOCK, {**KNOWN, "power_w": None, "limit_mhz": 2100}),
        (
            "2405, 3003, 45.12, 62, 96, 0x0000000000000045\n",
            "",
            {**KNOWN, "slowed": ["power cap", "thermal slowdown by hardware"]},
        ),
        ("2405, 3003, 45.12, 62, 96, [N/A]\n", "", KNOWN),
        *((text, "", UNKNOWN) for text in ("", "1, 2\n", "No devices were found\n")),
    ],
)
def test_the_state_of_the_gpu(printed: str, unit: str, expected: dict[str, Any]) -> None:
    assert node_parse.gpu_state(printed, unit) == expected


SESSION = "0::/user.slice/user-1000.slice/session-3.scope"
RANK_CGROUPS = {
    "0::/system.slice/gb10-vllm.service": (True, True),
    "0::/gb10.slice/gb10-ray.slice/docker-0a1b.scope": (True, True),
    "0::/system.slice/docker-0a1b.scope": (False, True),
    "4:pids:/docker/0a1b\n0::/docker/0a1b": (False, True),
    "0::/machine.slice/libpod-0a1b.scope/container": (False, True),
    "0::/system.slice/other-tool.service": (False, True),
    "0::/": (False, False),
    SESSION: (False, False),
    "0::/system.slice/cron.service": (False, False),
    "0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker-0a1b.scope": (False, False),
    "0::/user.slice/user-1000.slice/user@1000.service/gb10-vllm.service": (False, False),
    "0::/user.slice/user-1000.slice/user@1000.service/gb10.slice/gb10-vllm.slice/x.scope": (False, False),
}


@pytest.mark.parametrize("cgroup", RANK_CGROUPS)
@pytest.mark.parametrize("name", node_parse.RANKS)
def test_a_rank_is_known_by_its_unit(name: str, cgroup: str) -> None:
    found = tuple(node_parse.is_rank(f"{name}X", cgroup, ours) for ours in (True, False))
    assert found == RANK_CGROUPS[cgroup]
    assert not node_parse.is_rank("python3", cgroup, False)
