"""Shared functions of the programs in this folder: run a module of the collection on this host, like a play, serve, and
write reports."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from client import healthy

ROOT = Path(__file__).resolve().parents[2]
URL = "http://127.0.0.1:8000"
# The programs import the core.
sys.path.insert(0, str(ROOT / ".collections"))


def parser(text: str | None, folder: str) -> argparse.ArgumentParser:
    """Return the parser of a program with its docstring, and with the option --folder."""
    found = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--folder", required=True, type=Path, help=folder)
    return found


def parsed(given: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the options, and create the folder."""
    options = given.parse_args()
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    return options


def trained(python: str, folder: Path) -> Path:
    """Return the folder of the models of moe.py, which are trained once."""
    models = folder / "models"
    if not (models / "training.json").exists():
        subprocess.run([python, str(Path(__file__).with_name("moe.py")), str(models)], check=True)
    return models


def run(argv: Sequence[str]) -> tuple[int, str, str]:
    """Run a command as the modules do."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 127, "", f"{argv[0]} is not installed"
    return done.returncode, done.stdout, done.stderr


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
    return dict(json.loads(result.stdout.partition("=> ")[2]))


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program during the block, then end it and its remaining child processes, such as a compiler."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def until_healthy(url: str, processes: Sequence[subprocess.Popen[bytes]], limit: float) -> float:
    """Return the seconds until a server is healthy. Raises RuntimeError if a process ends, or at the limit."""
    began = time.monotonic()
    while not healthy(url):
        if ended := [process.returncode for process in processes if process.poll() is not None]:
            raise RuntimeError(f"ended with status {ended[0]}")
        if time.monotonic() - began > limit:
            raise RuntimeError(f"did not come up within {limit} s")
        time.sleep(0.5)
    return time.monotonic() - began


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
    with running(command, environment, log) as process:
        try:
            seconds = until_healthy(URL, [process], 400)
        except RuntimeError as error:
            sys.exit(f"vLLM {error}:\n{log.read_text(encoding='utf-8', errors='replace')[-3000:]}")
        yield process, seconds


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
