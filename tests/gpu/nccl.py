"""Build NCCL like the role nccl_sm121_build, on a host with GPUs, and verify that processes with collectives use it. With
one GPU, the collectives move nothing.

    .venv/bin/python tests/gpu/nccl.py --python /opt/torch/bin/python --source /var/tmp/nccl --identity 'sha256 …'
    --folder /var/tmp/proof

PYTHON belongs to a virtual environment with a CUDA build of PyTorch and NVIDIA's wheel of NCCL. The environment is not
changed. FOLDER gets a copy made of links, with its own library. If the package `vllm` is missing, the copy gets an
empty one, which nccl_select uses to find the environment. SOURCE is NCCL's source tree; IDENTITY identifies it if it is
not a git checkout. nccl_build, nccl_select, nccl_info and the step nccl_install run through ansible. One process per GPU
measures all_reduce and all_gather (nccl_bandwidth.py) three times: with the wheel's library, with our library by
LD_PRELOAD, and with our library by a link in place of the wheel's. Each time nccl_info reads the mapped libraries of
the processes. Afterwards FOLDER contains the build, report.json, and report.md. The
exit status is 1 if a check fails.

Standard library only. Run it with a Python that has ansible-core, such as that of .venv.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adhoc import ROOT, conclude, module, parsed, parser

PROGRAM = ROOT / "roles/nccl_sm121_build/files/nccl_bandwidth.py"
PATCHES, PATCH = ROOT / "roles/nccl_sm121_build/files", "arm-send-fence"
METHODS = ("wheel", "preload", "link")
#: Prints an environment's folder, the folder of its packages, and PyTorch's release.
ASK = (
    "import json, sys, sysconfig, torch; print(json.dumps([sys.prefix, sysconfig.get_path('purelib'), "
    "torch.__version__]))"
)
NCCL = "nvidia/nccl/lib/libnccl.so.2"


def main() -> None:
    given = parser(__doc__, "for the build, the copy of the environment and the reports")
    given.add_argument("--python", required=True, help="the interpreter of a virtual environment with PyTorch")
    given.add_argument("--source", required=True, type=Path, help="NCCL's source tree")
    given.add_argument("--identity", help="identity of the source, such as the hash of its archive")
    given.add_argument("--cuda-home", help="the folder of the CUDA toolkit, if it is not found")
    given.add_argument("--bytes", type=int, default=1024**3, help="the largest message")
    options = parsed(given)
    conclude(options.folder, "NCCL built for the GPUs", measure(options))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report: GPUs, build, measurements and mapped libraries."""
    found = module("gpu_info", {})
    if not found["gpus"]:
        sys.exit(f"no GPU: {found['reason']}")
    capabilities = sorted({gpu["capability"] for gpu in found["gpus"]})
    packed = str(options.folder / "nccl.tar")
    python, wheel, torch = copy(options.python, options.folder / "environment")
    built, again, cost = build(options, capabilities, packed)
    install = {
        "store": str(options.folder / "installed"),
        "name": built["name"],
        "sha256": built["sha256"],
        "capabilities": capabilities,
        "artifact": packed,
        "artifact_sha256": built["packed_sha256"],
    }
    installed = module("node_step", {"name": "nccl_install", "inputs": install})
    before = module("nccl_info", {"path": str(wheel)})["library"]
    prefer = {"python": str(python), "library": installed["library"]}
    requires = {"capabilities": capabilities, "sha256": built["sha256"]}
    cases = {}
    for method in METHODS:
        preferred: dict[str, Any] = {"environment": {}, "replaced": ""}
        if method != "wheel":
            preferred = module("nccl_select", {**prefer, "method": method})
        info = {"path": installed["library"], "requires": {**requires, "alone": method == "link"}}
        cases[method] = run(str(python), len(found["gpus"]), options.bytes, preferred["environment"], info) | {
            "preferred": preferred
        }
    module("nccl_select", {"python": str(python), "state": "absent"})
    report = {
        "gpu": found,
        "torch": torch,
        "built": built | cost | {"again": again["changed"]},
        "library": module("nccl_info", {"path": installed["library"]})["library"],
        "wheel": {"before": before, "after": module("nccl_info", {"path": str(wheel)})["library"]},
        "cases": cases,
        "bandwidth": [{"method": method, **entry} for method in METHODS for entry in cases[method]["results"]],
    }
    return report | {"checks": checks(report)}


def build(
    options: argparse.Namespace, capabilities: list[str], packed: str
) -> tuple[dict[str, Any], dict[str, Any], dict[str, float]]:
    """Build twice. Return both results of nccl_build, and the first build's {cpu, wall, bytes, cores}: CPU seconds of
    all processes, wall seconds, and the library's bytes."""
    arguments = {
        "store": str(options.folder / "store"),
        "source": str(options.source.resolve()),
        "capabilities": capabilities,
        "pack": packed,
        "patches": [{"name": PATCH, "text": (PATCHES / f"{PATCH}.patch").read_text(encoding="utf-8")}],
    }
    arguments |= {
        key: value for key, value in (("identity", options.identity), ("cuda_home", options.cuda_home)) if value
    }
    used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    built = module("nccl_build", arguments)
    wall, now = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    size = (options.folder / "store" / built["name"] / "lib/libnccl.so.2").stat().st_size
    return (
        built,
        module("nccl_build", arguments),
        {"cpu": cpu, "wall": wall, "bytes": size, "cores": len(os.sched_getaffinity(0))},
    )


def copy(python: str, folder: Path) -> tuple[Path, Path, str]:
    """Copy an environment as links, and return the copy's interpreter, its file of NCCL, and PyTorch's release.

    The loader derives $ORIGIN from the path that it used to find PyTorch's libraries, so the copy's libraries find the
    copy's NCCL.
    """
    answer = subprocess.run([python, "-c", ASK], capture_output=True, text=True, check=True).stdout
    prefix, packages, torch = json.loads(answer.splitlines()[-1])
    if not Path(prefix, "pyvenv.cfg").is_file() or not Path(packages, NCCL).is_file():
        sys.exit(f"{prefix} is not a virtual environment with NVIDIA's wheel of NCCL")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prefix, folder, symlinks=True, copy_function=os.symlink)
    copied = folder / Path(packages).relative_to(prefix)
    wheel = copied / NCCL
    original = wheel.resolve()
    wheel.unlink()
    shutil.copy(original, wheel)
    if not (copied / "vllm").exists():
        (copied / "vllm/model_executor").mkdir(parents=True)
        (copied / "vllm/__init__.py").touch()
    return folder / "bin" / Path(python).name, wheel, torch


def run(
    python: str, ranks: int, largest: int, environment: Mapping[str, str], info: Mapping[str, Any]
) -> dict[str, Any]:
    """Run one process per GPU. Return {results, versions, processes, problems}: the measurements, NCCL's versions in
    the log, and the report of nccl_info."""
    # No other process on this host may use this port.
    base = (
        os.environ
        | environment
        | {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29510", "NCCL_DEBUG": "VERSION"}
    )
    command = [python, str(PROGRAM), "--bytes", str(largest)]
    processes = [
        subprocess.Popen(
            command,
            env=base | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [until_report(process) for process in processes]
        told = module("nccl_info", {**info, "pids": [process.pid for process in processes]})
    finally:
        for process in processes:
            process.kill()  # after an error in one process, the others wait for it
            process.wait()
    lines = [line for before, _report in said for line in before]
    return {
        "results": said[0][1]["results"],
        "versions": sorted({match[0] for match in (re.search(r"NCCL version \S+", line) for line in lines) if match}),
        "processes": told["processes"],
        "problems": told["problems"],
    }


def until_report(process: subprocess.Popen[str]) -> tuple[list[str], dict[str, Any]]:
    """Return a rank's output before its report, and the report. Exits if the rank ends without a report."""
    lines: list[str] = []
    for line in process.stdout or ():
        if line.startswith("{"):
            return lines, json.loads(line)
        lines.append(line.rstrip())
    sys.exit(f"a rank ended with status {process.wait()}:\n" + "\n".join(lines))


def checks(report: Mapping[str, Any]) -> dict[str, bool]:
    """Return the checks, each with its result."""
    cases, ours, before = report["cases"], report["library"], report["wheel"]["before"]
    ranks = len(report["gpu"]["gpus"])

    def mapped(method: str) -> list[set[str]]:
        return [{library["sha256"] for library in process["libraries"]} for process in cases[method]["processes"]]

    def version(library: Mapping[str, Any]) -> list[str]:
        return [f"NCCL version {library['version']}+cuda{library['cuda']}"]

    return {
        "an identical build is not repeated": report["built"]["again"] is False,
        "the build has our patch": [*report["built"]["stamp"]["patches"]] == [PATCH],
        "our library has code for these GPUs": {gpu["capability"] for gpu in report["gpu"]["gpus"]}
        <= set(ours["native"]),
        "without a change, every rank maps only the wheel's library, and nccl_info reports each rank": mapped("wheel")
        == [{before["sha256"]}] * ranks
        and len(cases["wheel"]["problems"]) == ranks,
        "by LD_PRELOAD, every rank maps our library and the wheel's": mapped("preload")
        == [{before["sha256"], ours["sha256"]}] * ranks,
        "by a link, every rank maps only our library": mapped("link") == [{ours["sha256"]}] * ranks,
        "nccl_info reports no problem with either": not cases["preload"]["problems"] and not cases["link"]["problems"],
        "NCCL's log names the wheel's release without a change, and ours by both methods": cases["wheel"]["versions"]
        == version(before)
        and cases["preload"]["versions"] == cases["link"]["versions"] == version(ours),
        "the wheel's library is restored afterwards": report["wheel"]["after"]["sha256"] == before["sha256"],
    }


if __name__ == "__main__":
    main()
