"""Evidence of a hang, and its notification, with fake commands and without a node."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_module import program
from small_server import serving
from stand_in_modules import changed

from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import io_evidence, io_node
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import Process

NOWHERE = io_client.Server("http://127.0.0.1:9")


@pytest.mark.parametrize(("ras", "shown"), [(None, "silent"), ("", "no listener"), ("OK\n", "OK\n")])
def test_the_evidence_says_why_a_part_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ras: str | None, shown: str
) -> None:
    found = [Process(7, "VLLM::Worker_TP", "T"), Process(8, "sh", "S")]
    monkeypatch.setattr(io_node, "processes", lambda _units: found)
    monkeypatch.setattr(io_node, "ras", lambda _units: ras)
    monkeypatch.setenv("PATH", str(program(tmp_path / "bin", "journalctl", "")))
    program(tmp_path / "bin", "timeout", f"printf '%s\\n' \"$*\"; exit {124 if ras else 0}")
    folder = io_evidence.collect(str(tmp_path / "e"), 2, {"reason": "x", "n": 1}, NOWHERE, ["a.service"])
    assert re.fullmatch(r"\d{8}T\d{6}Z", Path(folder).name)
    texts = {path.name: path.read_text(encoding="utf-8") for path in Path(folder).iterdir()}
    log = f'10 sh -c "$@" | tail --bytes=1048576 sh {tmp_path}/bin/journalctl --no-pager --boot --unit=a.service --lines=300'
    refused = texts.pop("metrics.txt")
    assert refused.startswith("not read: ") and "refused" in refused
    assert texts == {
        "alarm.json": '{\n "reason": "x",\n "n": 1\n}',
        "processes.txt": "T 7 VLLM::Worker_TP\nS 8 sh\n",
        "nccl_ras.txt": shown,
        "nvidia_smi.txt": "nvidia-smi is not installed",
        "py_spy_7.txt": "py-spy is not installed",
        "a.service.log": "journalctl failed: no end after 10 s" if ras else log,
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in Path(folder).iterdir()} == {0o600}


def test_a_command_that_cannot_run_is_named_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program(tmp_path / "bin", "py-spy", "")))
    assert "py-spy failed: " in (found := io_evidence._output(["py-spy", "dump"])) and "timeout" in found
    program(tmp_path / "bin", "timeout", "echo out; echo of error >&2")
    assert io_evidence._output(["py-spy"]) == "out\nof error\n"


def test_the_end_of_a_long_text_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest lines are the evidence."""
    monkeypatch.setattr(io_evidence, "_MOST", 10)
    monkeypatch.setattr(io_node, "ras", lambda _units: "an error line")
    folder = io_evidence.collect(str(tmp_path / "e"), 1, {}, NOWHERE, [])
    assert (Path(folder) / "nccl_ras.txt").read_text(encoding="utf-8") == "error line"


def test_a_blank_line_of_a_secret_file_is_no_secret(tmp_path: Path) -> None:
    """Each blank would become a mark."""
    (tmp_path / "key").write_text("  sk-1234  \n\nEMPTY=\n", encoding="utf-8")
    assert io_evidence.secrets([str(tmp_path / "none"), str(tmp_path / "key")]) == {"sk-1234", "EMPTY="}
    assert io_evidence.secrets([]) == set()


def test_a_webhook_gets_the_document_as_json() -> None:
    posted: list[Any] = []

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        posted.append((request.command, request.headers["content-type"], json.loads(request.body)))  # type: ignore[attr-defined]
        return 204, "", {}

    with serving(answer) as url:
        assert io_evidence.notify({"reason": "x"}, [], f"{url}/hook") == []
    assert posted == [("POST", "application/json", {"reason": "x"})]


def test_a_notification_without_an_end_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a command nor a webhook may keep the following actions, such as a restart, waiting."""
    monkeypatch.setattr(io_evidence, "_NOTIFY_SECONDS", 0.05)
    end = threading.Event()
    with serving(lambda _request: (200, "x" * end.wait(5), {})) as url:
        found = io_evidence.notify({}, ["sleep", "5"], url)
        end.set()
    assert found[0] == "the notification by sleep failed: TimeoutExpired"
    late = "the notification by webhook failed: "
    assert found[1:] in ([f"{late}no answer in time"], [f"{late}TimeoutError"])


def test_each_notification_has_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a webhook that answers in single bytes, each of which renews the limit of a read."""
    limits: list[Any] = []
    monkeypatch.setattr(subprocess, "run", lambda *_argv, **options: limits.append(options["timeout"]))
    thread = SimpleNamespace(start=lambda: None, join=limits.append)
    monkeypatch.setattr(io_evidence, "threading", changed(threading, Thread=lambda **_given: thread))
    late = ["the notification by webhook failed: no answer in time"]
    assert (io_evidence.notify({}, ["mail"], NOWHERE.url), limits) == (late, [10, 10])
