"""NCCL for a GB10 on its own architecture: source, patch, plan and command are the role's, with one of NCCL's functions.

A cross compiler of the machine builds it in minutes, where emulated compilers would take hours. No GPU runs it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import arm64_cuda
import pytest
from live_cluster import Cluster
from nccl import source
from repository import ROOT
from testinfra.host import Host
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.nccl import build, io_build
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability

CXX = "aarch64-linux-gnu-g++"
FENCE = {
    "name": "arm-send-fence",
    "text": (ROOT / "roles/nccl_sm121_build/files/arm-send-fence.patch").read_text(encoding="utf-8"),
}
EXCHANGE = Path(__file__).parent / "nccl/exchange.cc"
VERSION = (
    "import ctypes, sys; code = ctypes.c_int();"
    " print(ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(code)), code.value)"
)


@dataclass(frozen=True)
class Built:
    """The plan of a build, and its folder on the hosts."""

    plan: build.BuildPlan
    place: str


def run(argv: list[str]) -> tuple[int, str, str]:
    """Run a command. nvcc compiles for an Arm server ("sbsa"), whatever the machine is."""
    environment = os.environ | {"NVCC_PREPEND_FLAGS": "--target-directory=sbsa-linux"}
    done = subprocess.run(argv, env=environment, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def compiled(argv: list[str]) -> None:
    status, stdout, stderr = run(argv)
    assert status == 0, f"{stdout[-2000:]}{stderr[-2000:]}"


@pytest.fixture(scope="module")
def built(cluster: Cluster) -> Built:
    """Build NCCL as the role does, except for the compilers, and the program that exchanges bytes."""
    folder = arm64_cuda.folder(cluster)
    try:
        digest = hashlib.sha256(source.tarball().read_bytes()).hexdigest()
    except source.NotFetchedError as error:
        pytest.skip(f"no source of NCCL: {error}")
    unpacked = folder / digest[:12]
    # The patched copy is beside it, with a plus in its name.
    kept = (path.parent for path in unpacked.glob("*/makefiles") if "+" not in path.parent.name)
    given = io_build.source(run, str(next(kept, None) or source.tree(unpacked)), f"sha256 {digest}")
    patched, applied, unfit = io_build.patched(run, given, [FENCE], check=False)
    assert unfit == [] and [*applied] == [FENCE["name"]]
    tools = io_toolkit.find(run, str(arm64_cuda.toolkit(folder)))
    builder = replace(io_build.builder(str(folder)), machine="aarch64")
    plan = build.plan(patched, [ComputeCapability(12, 1)], tools, builder, "AllReduce Sum f32 RING SIMPLE", applied)
    target = folder / plan.name
    compiled([*plan.argv(patched, tools, str(target)), f"CXX={CXX}"])
    includes = [
        *(f"{patched.path}/src/{name}" for name in ("include", "include/plugin")),
        *(f"{target}/{name}" for name in ("include", "obj/include")),
        *(f"{tools.home}/include{name}" for name in ("", "/cccl")),
    ]
    compiled(
        [
            *(CXX, "-std=c++17", "-O2", "-DNCCL_OS_LINUX", *(f"-I{path}" for path in includes), str(EXCHANGE)),
            *map(str, sorted(target.glob("obj/**/*.o"))),
            *("-Wl,--wrap=cudaGetDevice,--wrap=cudaSetDevice", f"-L{tools.home}/lib64", "-lcudart_static"),
            *("-lpthread", "-lrt", "-ldl", "-o", f"{target}/exchange"),
        ]
    )
    return Built(plan, f"{arm64_cuda.PLACE}/{plan.name}")


def test_the_library_has_code_for_a_gb10_and_the_release_of_its_source(cluster: Cluster, built: Built) -> None:
    info = cluster.module("gb10.cluster.nccl_info", path=built.place, requires={"capabilities": ["12.1"]})
    library = info["library"]
    assert info["problems"] == []
    assert (library["machine"], library["native"]) == ("aarch64", ["12.1"])
    assert library["version"] == built.plan.stamp["release"]
    assert {code["architecture"] for code in library["code"] if code["kind"] == "cubin"} == {"sm_121", "sm_100f"}


def test_the_ranks_python_loads_it(nodes: dict[str, Host], built: Built) -> None:
    major, minor, patch = map(int, str(built.plan.stamp["release"]).split("."))
    for host in nodes.values():
        python = "/opt/gb10/runtime/current/bin/python"
        answer = host.check_output("%s -c %s %s", python, VERSION, f"{built.place}/lib/libnccl.so.2")
        assert answer == f"0 {10_000 * major + 100 * minor + patch}"


def test_two_processes_exchange_bytes_over_its_sockets(nodes: dict[str, Host], built: Built) -> None:
    """A communicator needs a GPU, its transport does not. A stub answers for the device of each thread."""
    receiver, sender = nodes.values()
    # The service user's ports are open between the nodes.
    program = (
        "runuser --user=gb10 -- env NCCL_SOCKET_IFNAME=enp1s0f0np0 NCCL_SOCKET_NTHREADS=2 NCCL_NSOCKS_PERTHREAD=2 "
        f"timeout 300 {built.place}/exchange"
    )
    size = "64 1000003"
    receiver.check_output(
        f": >/run/received; setsid sh -c '{program} receive {size} >/run/received 2>&1; echo $? >>/run/received' </dev/null >/dev/null 2>&1 &"
    )

    def received() -> list[str]:
        return str(receiver.check_output("cat /run/received")).splitlines()

    (handle,) = wait_until(received, 120)
    sent = sender.check_output(f"{program} send {size} {handle}")
    wait_until(lambda: len(received()) > 2, 60)
    assert received()[1:] == [sent, "0"]
