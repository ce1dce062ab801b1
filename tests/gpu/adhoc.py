"""Shared functions of the programs in this folder: run a module of the collection on this host, like a play, serve, and
write reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from client import healthy

ROOT = Path(__file__).resolve().parents[2]
URL = "http://127.0.0.1:8000"


def module(name: str, arguments: Mapping[str, Any], check: bool = False) -> dict[str, Any]:
    """Run a module through ansible, and return its result. Exits if it fails."""
    command = [
        sys.executable,
        "-m",
        "ansible",
        "adhoc",
        "localhost",
        "-m",
        f"gb10.cluster.{name}",
        "-a",
        json.dumps(arguments) if arguments else "",
    ]
    command += ["-e", f"ansible_python_interpreter={sys.executable}", *(["--check"] if check else [])]
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
    }
    result = subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        sys.exit(f"{name} failed:\n{result.stdout}{result.stderr}")
    answer: dict[str, Any] = json.loads(result.stdout.partition("=> ")[2])
    return answer


@contextmanager
def server(
    python: str, model: Path, arguments: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """Serve a model as moe at URL, without CUDA graphs. Yields the process, and the seconds until it is healthy."""
    command = [
        python,
        "-m",
        "vllm.entrypoints.cli.main",
        "serve",
        str(model),
        "--served-model-name=moe",
        "--enforce-eager",
    ]
    command += ["--host=127.0.0.1", "--port=8000", *arguments]
    # DeepGEMM warms up for minutes, and a GB10 does not support it.
    environment = {**os.environ, "VLLM_USE_DEEP_GEMM": "0", **environment}
    began = time.monotonic()
    with (
        log.open("wb") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        try:
            while not healthy(URL):
                if process.poll() is not None or time.monotonic() - began > 400:
                    sys.exit(f"vLLM did not start:\n{log.read_text(encoding='utf-8', errors='replace')[-3000:]}")
                time.sleep(1)
            yield process, time.monotonic() - began
        finally:
            process.terminate()
            process.wait(60)


def below(pid: int) -> list[int]:
    """Return a process ID and those of all descendants, or an empty list if the process has ended."""
    try:
        text = " ".join(
            (thread / "children").read_text(encoding="ascii") for thread in Path(f"/proc/{pid}/task").iterdir()
        )
    except OSError:
        return []
    return [pid, *(found for child in text.split() for found in below(int(child)))]


def gpus() -> list[str]:
    """Return the name, the capability and the driver of each GPU."""
    query = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()


def conclude(folder: Path, report: Mapping[str, Any], section: Callable[[Mapping[str, Any]], str]) -> None:
    """Write report.json and report.md into a folder, and report.md also to stdout.

    Exits with 1 if one of the report's checks fails.
    """
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    text = section(report)
    (folder / "report.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    if failed := [check for check, holds in report["checks"].items() if not holds]:
        sys.exit("failed: " + "; ".join(failed))
