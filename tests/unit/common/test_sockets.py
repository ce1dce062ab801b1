"""The kernel's tables of TCP sockets, and the units of processes."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import sockets, systemd

#: Rows of a kernel 6.1; the last is an established connection.
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21034 1 0000000065169e13 100 0 0 10 0
   1: 01006E0A:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000   998        0 21035 1 0000000065169e14 100 0 0 10 0
   2: 01006E0A:18EB 02006E0A:C350 01 00000000:00000000 00:00000000 00000000   998        0 21036 1 0000000065169e15 20 4 30 10 -1
"""
TCP6 = """  sl  local_address                         remote_address                st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1135 1 0
   1: 00000000000000000000000001000000:2328 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1136 1 0
   2: 0000000000000000FFFF00000100007F:2329 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1137 1 0
"""


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        pytest.param(TCP, [("127.0.0.1", 8000, 21034), ("10.110.0.1", 6379, 21035)], id="tcp"),
        pytest.param(TCP6, [("::", 22, 1135), ("::1", 9000, 1136), ("::ffff:127.0.0.1", 9001, 1137)], id="tcp6"),
        pytest.param("", [], id="unreadable"),
        pytest.param(TCP.splitlines()[0], [], id="header only"),
        pytest.param(TCP.partition(" 21034")[0], [], id="cut off"),
        pytest.param(TCP.partition(" 1 0000")[0], [("127.0.0.1", 8000, 21034)], id="cut off after the inode"),
    ],
)
def test_listening_sockets(table: str, expected: list[tuple[str, int, int]]) -> None:
    found = sockets.listening(table)
    # Python 3.13 formats IPv4-mapped addresses differently from 3.11.
    assert [
        (entry["address"].replace("::ffff:7f00:1", "::ffff:127.0.0.1"), entry["port"], entry["inode"])
        for entry in found
    ] == expected


#: A connection that waits to be accepted, one that was, one that ends, and one to a socket of both families.
CONNECTED = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000   998        0 100 1 0
   1: 0100007F:1F40 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0
   2: 0100007F:1F40 0100007F:C351 01 00000000:00000000 00:00000000 00000000   998        0 101 1 0
   3: 0100007F:1F40 0100007F:C352 06 00000000:00000000 00:00000000 00000000     0        0 0 3 0
   4: 0100007F:C351 0100007F:1F40 01 00000000:00000000 00:00000000 00000000     0        0 102 1 0
"""
CONNECTED6 = """  sl  local_address                         remote_address                st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000   998        0 200 1 0
   1: 0000000000000000FFFF00000100007F:1F40 0000000000000000FFFF00000100007F:C353 01 00000000:00000000 00:00000000 00000000   998        0 201 1 0
   2: 00000000000000000000000001000000:1F40 00000000000000000000000001000000:C354 01 00000000:00000000 00:00000000 00000000   998        0 0 1 0
"""


@pytest.mark.parametrize(
    ("address", "port", "inodes"),
    [
        pytest.param("127.0.0.1", 50001, {101}, id="accepted"),
        pytest.param("127.0.0.1", 50003, {201}, id="accepted by a socket of IPv6"),
        pytest.param("127.0.0.1", 50000, {100, 200}, id="a listener will accept it"),
        pytest.param("::1", 50004, {200}, id="a listener of IPv6 will"),
        pytest.param("127.0.0.1", 50002, set(), id="closed"),
        pytest.param("127.0.0.1", 50009, set(), id="of another host"),
        pytest.param("10.0.0.1", 50001, set(), id="another address"),
    ],
)
def test_servers_of_a_connection(address: str, port: int, inodes: set[int]) -> None:
    assert sockets.servers([CONNECTED, CONNECTED6], (address, 8000), (address, port)) == inodes


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        pytest.param("0::/system.slice/gb10-ray.service\n", "gb10-ray.service", id="v2"),
        pytest.param("0::/system.slice/gb10-ray.service/ray/worker\n", "gb10-ray.service", id="below the service"),
        pytest.param(
            "12:pids:/system.slice/gb10-vllm.service\n11:cpu,cpuacct:/\n1:name=systemd:/system.slice/gb10-vllm.service\n",
            "gb10-vllm.service",
            id="v1",
        ),
        pytest.param(
            "2:memory:/system.slice/ssh.service\n1:name=systemd:/system.slice/ssh.service\n0::/system.slice/ssh.service\n",
            "ssh.service",
            id="hybrid",
        ),
        pytest.param(
            "0::/machine.slice/systemd-nspawn@spark1.service/payload/system.slice/gb10-ray.service\n",
            "systemd-nspawn@spark1.service",
            id="in nspawn",
        ),
        pytest.param(
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/gb10-vllm.service\n",
            "user@1000.service",
            id="a user's unit with the same name",
        ),
        pytest.param(
            "0::/user.slice/user-1000.slice/user@1000.service/gb10.slice/gb10-vllm.slice/x.scope\n",
            "user@1000.service",
            id="a user's slice with the same name",
        ),
        pytest.param("0::/user.slice/gb10.slice/gb10-vllm.slice/x.scope\n", "", id="a slice elsewhere"),
        pytest.param("0::/user.slice/user-1000.slice/session-3.scope\n", "", id="a login"),
        pytest.param("0::/system.slice/docker-1234.scope\n", "", id="a container"),
        pytest.param(
            "0::/gb10.slice/gb10-vllm.slice/docker-1234.scope\n", "gb10-vllm.service", id="a container of ours"
        ),
        pytest.param(
            "1:a:/gb10-ray.slice/x.scope\n0::/gb10.slice/gb10-vllm.slice/x.scope\n",
            "gb10-vllm.service",
            id="the last slice",
        ),
        pytest.param(
            "0::/system.slice/docker-1.scope/system.slice/gb10-vllm.service\n", "", id="a unit of a container's systemd"
        ),
        *(
            pytest.param(f"0::/{path}/system.slice/gb10-vllm.service\n", "", id=path)
            for path in ("lxc.payload.c1", "docker/0123", "lxc/100/ns", "kubepods/burstable/pod1/2")
        ),
        pytest.param("0::/\n", "", id="root"),
        pytest.param("", "", id="gone"),
    ],
)
def test_unit_of_cgroup(text: str, unit: str) -> None:
    assert systemd.unit_of_cgroup(text) == unit


def test_a_server_is_the_one_of_both_ends_and_its_port() -> None:
    rows = CONNECTED.replace("0100007F:C351", "0100007F:1F41")
    assert sockets.servers([rows], ("127.0.0.1", 8000), ("127.0.0.1", 8001)) == {101}
    assert sockets.servers([rows], ("127.0.0.1", 8001), ("127.0.0.1", 8000)) == {102}
    assert sockets.servers([rows], ("::ffff:127.0.0.1", 8000), ("::ffff:127.0.0.1", 50000)) == {100}
    closed = CONNECTED.replace(" 101 1 0", " 0 1 0")
    assert sockets.servers([closed, CONNECTED6], ("127.0.0.1", 8000), ("127.0.0.1", 50001)) == {100, 200}
    assert sockets.servers([CONNECTED6], ("::1%lo", 8000), ("::1", 50004)) == {200}
