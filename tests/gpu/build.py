# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build vLLM with the code of the role vllm_build on a real GPU, then serve a model with the wheel.

    python3 tests/gpu/build.py build --folder F --source SOURCE --version 0.24.0 --python VENV/bin/python
    [--patches …] python3 tests/gpu/build.py serve --folder F --wheels WHEELS [--cases eager graphs]

`build` does the work of the module vllm_build with the unit's commands. Only the systemd unit is left out, so that they
have the rights of the user. SOURCE is a source tree of vLLM. VENV has uv and the packages that the build
imports. Each `--variable NAME=VALUE` is one of `vllm_build_environment` or names the folder of a dependency. The GPU of
this machine is the target. STATE in plan.py is the working folder. Another call continues with ccache. Afterwards F
contains build.json with the stamp of the wheel and the time of each step.

`serve` installs the wheel and those in the folders WHEELS into F/site, without their dependencies, and serves the model
of moe.py, which was trained to recite passages. The loaded extensions are compared with the files in the wheel.
Afterwards F contains report.json, report.md, and logs. The exit status is 1 if a
check fails. The Python that runs it needs torch and transformers.

build-0.24.0.patch leaves FlashAttention 3, FlashMLA and the extensions in GB10_LEAVE_OUT out of vLLM 0.24.0, so that
the rest compiles in 20 minutes with 16 compilers.

Standard library only. Run it as root.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adhoc import URL, below, conclude, gpus, parsed, passages, run, selected, server, trained
from client import decode, recited

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import refuse
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_build, plan, schema

#: The end of the build's name, which becomes that of its version.
NAME = "00000000"
#: Tokens of a measured answer, and the number of measurements.
DECODE, ROUNDS = 512, 3
CASES = {"eager": [], "graphs": ["--no-enforce-eager"]}
#: NVLink's multicast can disable shared GPUs.
QUIET = {"NCCL_NVLS_ENABLE": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = given.add_subparsers(dest="command", required=True)
    build_, serve_ = commands.add_parser("build"), commands.add_parser("serve")
    for command in (build_, serve_):
        command.add_argument("--folder", required=True, type=Path)
    build_.add_argument("--source", required=True)
    build_.add_argument("--identity", default="a source tree", help="of the source, such as the hash of its archive")
    build_.add_argument("--version", required=True, help="the release")
    build_.add_argument("--python", required=True, help="of an environment with uv and the tools of the build")
    build_.add_argument("--patches", nargs="*", default=[], type=Path)
    build_.add_argument("--variable", action="append", default=[], metavar="NAME=VALUE")
    build_.add_argument("--cuda-home")
    build_.add_argument("--jobs", type=int, default=0)
    serve_.add_argument("--wheels", nargs="*", default=[], help="folders with wheels that vLLM needs")
    serve_.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="with or without CUDA graphs")
    serve_.add_argument(
        "--argument", action="append", default=[], help="for vLLM, such as --argument=--attention-backend=TRITON_ATTN"
    )
    options = parsed(given)
    if options.command == "build":
        build(options)
    else:
        conclude(options.folder, "A build of vLLM", serve(options))


def build(options: argparse.Namespace) -> None:
    """Build the wheel like the module vllm_build, and add it to a store."""
    targets = sorted({ComputeCapability.parse(line.split(", ")[1]) for line in gpus()})
    toolkit, host = io_toolkit.find(run, options.cuda_home), io_build.host(run, ())
    store = str(options.folder / "store")
    given = {
        "name": f"{options.version}-{NAME}",
        "store": store,
        "folder": str(Path(options.python).parents[1]),
        "device": schema.CUDA,
        "capabilities": [str(target) for target in targets],
        "torch": "",
        "cuda": toolkit.release,
        "driver": "",
        "jobs": options.jobs,
        "nvcc_threads": 0,
        "ccache": "ccache" in host.programs,
        "while_serving": False,
        "environment": dict(each.partition("=")[::2] for each in options.variable),
    }
    refuse(plan.problems(given, host, toolkit))
    for path in (store, plan.STATE):
        Path(path).mkdir(parents=True, exist_ok=True)
    patches = [str(path.resolve()) for path in options.patches]
    refuse(plan.source_problems(given, host, *io_build.prepare(run, store, options.source, patches, targets)))
    jobs = plan.jobs(given, host)
    begin = time.time()
    with (options.folder / "build.log").open("ab") as log:
        done = subprocess.run(
            ["/bin/sh", "-eu", "-c", plan.script(given)],
            cwd=plan.STATE,
            env=plan.environment(given, jobs, toolkit),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    seconds = time.time() - begin
    sys.stdout.write(f"the commands took {seconds:.0f} s, status {done.returncode}\n")
    stamp = {
        "name": given["name"],
        "version": plan.version(given["name"]),
        "source": options.identity,
        "patches": [path.name for path in options.patches],
        "architectures": plan.architectures(given["capabilities"]),
        "cuda": toolkit.release,
        "compiler": host.compiler,
        "jobs": jobs,
        "seconds": seconds,
    }
    built = io_build.add(run, store, stamp, targets)
    report = {"stamp": built, "steps": steps(), "gpu": gpus()[0], "capability": str(targets[0])}
    (options.folder / "build.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join([built["wheel"], *built["coverage"]]) + "\n")


def steps() -> list[tuple[float, str]]:
    """Return the seconds and the output of each finished step, longest first.

    Source: ninja's log, milliseconds since its start.
    """
    found: dict[str, float] = {}
    for path in Path(plan.STATE, "work/build").glob("temp*/.ninja_log"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if len(fields := line.split("\t")) == 5:
                # An output can have two lines, one with its full path.
                found[fields[3].removeprefix(f"{path.parent}/")] = (int(fields[1]) - int(fields[0])) / 1000
    return sorted(((seconds, output) for output, seconds in found.items()), reverse=True)


def serve(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report: the build, and the servers with their answers and loaded extensions."""
    built = json.loads((options.folder / "build.json").read_text(encoding="utf-8"))
    wheel = options.folder / "store/wheels" / built["stamp"]["name"] / built["stamp"]["wheel"]
    site, models = options.folder / "site", trained(sys.executable, options.folder)
    # The installed files of an earlier call are kept.
    if not (site / "vllm").exists():
        wheels = [str(path) for folder in options.wheels for path in sorted(Path(folder).glob("*.whl"))]
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-index",
            "--no-deps",
            "--no-compile",
            "--no-cache-dir",
        ]
        subprocess.run([*pip, f"--target={site}", str(wheel), *wheels], check=True)
    known = passages(models)
    cases: list[dict[str, Any]] = []
    for name in options.cases:
        arguments = [*CASES[name], *options.argument]
        cases.append({"name": name, **answers(name, arguments, options.folder, wheel, site, known)})
        (options.folder / "cases.json").write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")
    checks = {
        "each server answers every token of every passage": all(case["recited"] == len(known) for case in cases),
        "each loaded extension of vLLM is the wheel's": all(
            case["loaded"] and all(case["loaded"].values()) for case in cases
        ),
        "vLLM's kernels are loaded": all(any("/_C" in name for name in case["loaded"]) for case in cases),
    }
    return {**built, "passages": len(known), "cases": cases, "checks": checks}


def answers(
    name: str,
    arguments: Sequence[str],
    folder: Path,
    wheel: Path,
    site: Path,
    known: Sequence[Mapping[str, list[int]]],
) -> dict[str, Any]:
    """Serve the model with the installed wheel, and return the results of the server."""
    log = folder / f"{name}.log"
    environment = QUIET | {"PYTHONPATH": str(site), "VLLM_CACHE_ROOT": str(folder / "cache")}
    limits = ["--max-model-len=2048", "--gpu-memory-utilization=0.3"]
    with server(sys.executable, folder / "models/block", [*limits, *arguments], environment, log) as (process, seconds):
        right = recited(URL, known)
        rates, first = zip(*(decode(URL, known[0]["opening"], DECODE) for _ in range(ROUNDS)), strict=True)
        loaded = mapped(process.pid, wheel, site)
    return {
        "seconds": seconds,
        "recited": right,
        "rates": rates,
        "first": first,
        "loaded": loaded,
        "selected": selected([log]),
    }


def mapped(pid: int, wheel: Path, site: Path) -> dict[str, bool]:
    """Return {extension of vLLM: whether its file is the wheel's} of a process and its descendants.

    Extensions from elsewhere are not.
    """
    paths = set()
    for each in below(pid):
        maps = Path(f"/proc/{each}/maps").read_text(encoding="utf-8", errors="replace")
        paths |= {line.split(maxsplit=5)[-1] for line in maps.splitlines() if re.search(r"/vllm/\S+\.so$", line)}
    with zipfile.ZipFile(wheel) as archive:
        members = {
            name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist() if name.endswith(".so")
        }
    same = {}
    for path in sorted(paths):
        name = os.path.relpath(path, site)
        same[name] = members.get(name) == hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return same


if __name__ == "__main__":
    main()
