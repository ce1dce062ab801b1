"""Shared functions of the programs in this folder: run a module of the collection on this host, like a play, serve, and
write reports."""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from client import healthy

ROOT = Path(__file__).resolve().parents[2]
URL = "http://127.0.0.1:8000"
#: Lines of vLLM's log about its choices.
SELECTED = re.compile(
    r"Selected \w+ for \w+|Using \w+ Fp8 MoE backend|Using \w+ attention backend|Using AttentionBackendEnum\.\w+ backend|"
    r"Graph capturing finished in \d+ secs|NCCL version \S+"
)
#: Characters of a cell in report.md. report.json has everything.
MOST_CELL = 300
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


def passages(models: Path) -> list[dict[str, list[int]]]:
    """Return the passages that these models recite, as token IDs."""
    return list(json.loads((models / "passages.json").read_text(encoding="utf-8")))


def tiny(folder: Path) -> None:
    """Write the lab's model with random weights into a folder."""
    subprocess.run([sys.executable, str(ROOT / "tests/lab/roles/lab/files/make_model.py"), str(folder)], check=True)


def selected(logs: Iterable[Path]) -> list[str]:
    """Return the lines of vLLM's logs about its choices, each once."""
    text = "".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)
    return list(dict.fromkeys(SELECTED.findall(text)))


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


def conclude(folder: Path, title: str, report: Mapping[str, Any]) -> None:
    """Write report.json and report.md into a folder, and report.md also to stdout.

    Exits with 1 if one of the report's checks fails.
    """
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    text = section(title, report)
    (folder / "report.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    if failed := [check for check, holds in report["checks"].items() if not holds]:
        sys.exit("failed: " + "; ".join(failed))


def section(title: str, report: Mapping[str, Any]) -> str:
    """Return a report as Markdown: its short values, a table for each list of rows, and the checks.

    Rows are mappings. A mapping of rows has their names in the first column.
    """
    program, day = Path(sys.argv[0]).name, time.strftime("%Y-%m-%d")
    lines = [f"## {title}", "", f"`tests/gpu/{program}` on {day}, {os.uname().machine}.", ""]
    tables = []
    for name, value in report.items():
        if rows := _rows(value) if name != "checks" else []:
            columns = list(
                dict.fromkeys(key for row in rows for key in row if any(_cell(each.get(key)) for each in rows))
            )
            tables += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
            tables += [f"| {' | '.join(_cell(row.get(column)) for column in columns)} |" for row in rows] + [""]
        elif name != "checks" and (text := _cell(value)):
            lines.append(f"- {name}: {text}")
    checks = [f"- {'yes' if holds else '**no**'}: {check}" for check, holds in report["checks"].items()]
    return "\n".join([*lines, "", *tables, *checks]) + "\n"


def _rows(value: Any) -> list[Mapping[str, Any]]:
    """Return the rows of a table, [] of another value."""
    if isinstance(value, Mapping):
        value = [{"": name, **row} if isinstance(row, Mapping) else row for name, row in value.items()]
    return list(value) if isinstance(value, list) and all(isinstance(each, Mapping) for each in value) else []


def _cell(value: Any) -> str:
    """Return a value as the text of a cell: measurements as their median and range. What is long has none."""
    if isinstance(value, list | tuple) and value and all(isinstance(each, bool) for each in value):
        return f"{sum(value)} of {len(value)}"
    if isinstance(value, list | tuple) and len(value) > 1 and all(isinstance(each, float) for each in value):
        return f"{statistics.median(value):.4g} ({min(value):.4g} to {max(value):.4g})"
    if isinstance(value, list | tuple):
        texts = [_cell(each) if isinstance(each, str | int | float) else "" for each in value]
        return ", ".join(texts) if all(texts) else ""
    if isinstance(value, Mapping):
        return _cell([f"{name}={each}" for name, each in value.items()])
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return "" if "\n" in text or len(text) > MOST_CELL else text
