# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The failures in a log: each is one process's chain of exceptions, or a line that is a cause by itself.

Python prints a chain from its innermost exception, which came first, to the outermost one. Several processes write
into one log, and most of them fail only because another one did.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ansible_collections.gb10.cluster.plugins.module_utils.launch.log_line import ADDRESS, parts, sender

#: The line of an exception: its class without its package, and its message.
EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exit|Interrupt|Timeout)|(?:[A-Z]\w*)?(?:Exception|OutOfResources))"
    r"(?:: (.*))?$"
)
#: An exception that Ray forwards from another node; its node's traceback follows.
_REMOTE = re.compile(r"^(?:[\w.]+\.)?RayTaskError\(\w+\): ")
#: Exceptions that only report another exception, by class or by text.
_ECHO_CLASSES = (
    "ActorDiedError",
    "ActorHandleNotFoundError",
    "CancelledError",
    "EngineDeadError",
    "KeyboardInterrupt",
    "RayActorError",
    "RayTaskError",
    "SystemExit",
)
_ECHO_TEXTS = (
    "Engine core initialization failed",
    "EngineCore encountered an issue",
    "See root cause above",
    "Worker failed with error",
    "WorkerProc initialization failed",
    "Executor failed",
)
_ECHO_WHOLE_TEXTS = ("cancelled",)
#: Lines that are a cause without an exception: the match is reported unchanged.
_CAUSES = (
    re.compile(r"^(?:vllm|vllm serve|api_server\.py)[\w ]*: error: (.+)$"),
    re.compile(r"^Ray is not complete (.+)$"),
    re.compile(r"^gb10-gates refused the start: "),
    re.compile(r"^(?!.*ignoring)\S+\.service: (?:Failed to \w+ .*|Failed at step .*|\S+ operation timed out.*)$"),
    re.compile(r"^\S+\.service: A process of this unit has been killed by the OOM killer\.?$"),
    re.compile(r"^(?:RayWorkerProc|Worker proc) .*died unexpectedly"),
)
#: Ray's message about a rank that died without output.
_DEAD_RANK = re.compile(
    r"^A worker died or was killed.*Worker IP address: (\S+).*Worker PID: (\d+).*Worker exit detail: (.+?)(?: "
    r"Some common causes|$)"
)
#: Reported if the log has no other cause.
_KILLED = re.compile(r"^\S+\.service: (?:Main|Control) process exited, code=(?:killed|dumped), .*$")
_FAILED = re.compile(r"^\S+\.service: (?:Main|Control) process exited, code=exited, status=[1-9]")
_VALIDATION = re.compile(r"^\d+ validation errors? for (\w+)$")
#: Levels of harmless messages: vLLM's, then in the prefixes of Ray, PyTorch, uvicorn and NCCL.
_HARMLESS = ("DEBUG", "INFO", "WARNING")
_HARMLESS_PREFIX = re.compile(
    r"^\[?(?:[IW]\d{3,4} |(?:\d{4}-\d\d-\d\d [\d:,.]+\s+)?(?:- )?(?:DEBUG|INFO|WARNING)\b"
    r"|[\w.-]{1,64}:\d+:\d+ \[\d+\] NCCL INFO )"
)
#: PyTorch's prefix of a rank.
_RANK = re.compile(r"^\[rank(\d{1,5})\]: ?")
#: A frame in a library whose files identify the failure. Source: their repositories.
_FRAME = re.compile(
    r'^\s*File "(?:[^"]{0,300}/)?((?:vllm|flashinfer|triton|deep_gemm|torch|transformers|ray)/[^"]{1,200})", line \d+, '
    r"in (\S{1,80})"
)
_JOINED = ("The above exception was the direct cause", "During handling of the above exception")
#: Python reports such an exception, and goes on.
_IGNORED = "Exception ignored in"
#: Maximum lines of an error's details: NCCL's and Triton's reasons follow their exception.
_DETAILS = 5
#: Maximum lines between an exception and details of its process. Other processes write between them.
_NEAR = 100


@dataclass(frozen=True)
class Line:
    """A message of a log without prefixes. ``process``: its pid, or its rank, "" if unknown. ``node``: its address."""

    text: str
    process: str
    node: str
    harmless: bool


@dataclass(frozen=True)
class Error:
    """An exception, with its reasons from the following lines. ``place``: of its last known frame, "" without one.

    ``bare``: it has no message. ``echo``: it only reports that another process failed.
    """

    text: str
    place: str = ""
    bare: bool = False
    echo: bool = False


@dataclass
class Failure:
    """A chain of exceptions of one process, innermost first. ``index``: of its first line; ``details``: lines after it.

    ``node`` is the address of its process, "" for this one.
    """

    index: int
    process: str
    node: str
    chain: list[Error]
    details: list[str] = field(default_factory=list)

    @property
    def echo(self) -> bool:
        """Whether it only reports that another process failed."""
        return all(error.echo for error in self.chain)

    def texts(self) -> list[str]:
        """Return the exceptions except for echoes, innermost first and with their places, and the lines that follow."""
        own = [error for error in self.chain if not error.echo]
        return [f"{error.text} @ {error.place}" if error.place else error.text for error in own] + self.details

    def shown(self, text: str = "") -> str:
        """Return an exception with its node: that of ``text`` from texts(), or the innermost one with a message."""
        own = [error for error in self.chain if not error.echo] or self.chain
        named = [error.text for error in own if text.startswith(error.text)] if text else []
        told = (named or [error.text for error in own if not error.bare] or [own[0].text])[0]
        return f"{told} (on {self.node})" if self.node else told


@dataclass
class _State:
    """The state of one process after the lines read so far."""

    failure: Failure | None = None
    place: str = ""
    joined: bool = False
    ignored: bool = False
    remote: str = ""


def read(lines: Iterable[str]) -> list[Line]:
    """Return the messages of a log."""
    return list(map(_line, lines))


def _line(line: str) -> Line:
    (level, address, text), who = parts(line), sender(line)
    rank = _RANK.match(text)
    text = text[rank.end() :] if rank else text
    process = who.pid or (f"rank {rank[1]}" if rank else "")
    return Line(text, process, address, level in _HARMLESS or bool(_HARMLESS_PREFIX.match(text)))


def failures(log: Sequence[Line]) -> list[Failure]:
    """Return the failures in the order of their first lines."""
    states: dict[tuple[str, str], _State] = {}
    found: list[Failure] = []
    for index, line in enumerate(log):
        if line.harmless:
            continue
        state = states.setdefault((line.node, line.process), _State())
        match = None if state.ignored else EXCEPTION.match(line.text)
        plain = _plain_cause(line.text)
        if not (match or plain):
            _follow(state, line.text)
            continue
        same = (each.text for each in log[index + 1 : index + _NEAR] if _process(each) == _process(line))
        after = list(same)
        error = _error(match, state.place, after) if match and not plain else Error(plain)
        if not (state.joined and state.failure):
            state.failure = Failure(index, line.process, "" if plain else line.node or state.remote, [])
            found.append(state.failure)
        state.failure.chain.append(error)
        state.failure.details = list(_details(after))
        state.place, state.joined = "", False
    return found


def _process(line: Line) -> tuple[str, str]:
    return line.node, line.process


def _follow(state: _State, text: str) -> None:
    """Take a line that is not an exception into account."""
    if text.startswith("Traceback ") or EXCEPTION.match(text):
        state.place = ""
        state.ignored = state.ignored and text.startswith("Traceback ")
    elif frame := _FRAME.match(text):
        state.place = f"{frame[1]} in {frame[2]}"
    elif text.startswith(_JOINED):
        state.joined = True
    elif text.startswith(_IGNORED):
        state.ignored = True
    elif _REMOTE.match(text) and (address := ADDRESS.search(text)):
        state.remote = address[1]


def is_failure(text: str) -> bool:
    """Return whether a message is an exception, or a cause by itself."""
    return bool(EXCEPTION.match(text) or _plain_cause(text))


def killed(log: Iterable[Line]) -> str:
    """Return systemd's last line about a service that a signal ended, "" without one."""
    return next((line.text for line in reversed(list(log)) if not line.harmless and _KILLED.match(line.text)), "")


def failed(log: Iterable[Line]) -> bool:
    """Return whether a service ended with an error."""
    return any(_FAILED.match(line.text) for line in log)


def _details(after: Sequence[str]) -> Iterator[str]:
    for text in after[:_DETAILS]:
        if EXCEPTION.match(text) or text.startswith(("Traceback ", *_JOINED)):
            break
        yield text


def _plain_cause(text: str) -> str:
    """Return the cause in a line without an exception, "" if it has none."""
    if any(pattern.match(text) for pattern in _CAUSES):
        return text
    match = _DEAD_RANK.match(text)
    return f"the rank with pid {match[2]} on {match[1]} died: {match[3]}" if match else ""


def _error(match: re.Match[str], place: str, after: Sequence[str]) -> Error:
    text, exception, message = match[0], match[1], match[2] or ""
    echo = exception in _ECHO_CLASSES or message in _ECHO_WHOLE_TEXTS or any(each in message for each in _ECHO_TEXTS)
    return Error(_telling(text, message, after), place, not message, echo)


def _telling(text: str, message: str, after: Sequence[str]) -> str:
    """Return an exception's line, with the following lines if it has no details itself."""
    if model := _VALIDATION.match(message):
        # Pydantic prints for each error the field (if any), then the reason and the input.
        reasons = []
        for line in after:
            if "For further information visit" in line or not line.strip():
                break
            reasons.append(re.sub(r"\s*\[type=.*", "", line.strip()).removeprefix("Value error, "))
        return f"{model[1]}: {': '.join(reasons)}" if reasons else text
    if message.endswith(":") and after and after[0].strip():
        return f"{text} {after[0].strip()}"
    return text
