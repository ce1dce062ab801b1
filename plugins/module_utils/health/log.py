# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse vLLM's log: the progress of a start, and the cause of its failure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.launch.log_line import ADDRESS, parts

#: Start of a message -> its description, for each step of the start, in order. Each `{}` is a group of the match.
STEPS = (
    (r"gb10-gates wait: (.+)", "waiting for gates: {}"),
    (r"Ray counts all (\d+ nodes)", "Ray counts all {}"),
    (r".*\bversion (\d+\.\d+\S*)$", "vLLM {} starts"),
    (r"Resolved architecture: (\S+)", "architecture {}"),
    (r"Initializing a V1 LLM engine", "engine starts"),
    (r".*Creating a new placement group", "Ray places the ranks"),
    (r"rank \d+ in world size (\d+)", "ranks connected, world size {}"),
    (r"Starting to load model", "loading model"),
    (r"(?:Multi-thread )?[Ll]oading [\w ]*shards[^:]*:\s+(\d+% Completed \| \d+/\d+)", "weights: {}"),
    (r"Loading weights took (.+? seconds)", "weights read in {}"),
    (r"Model loading took (.+? seconds)", "model loaded: {}"),
    (r"Dynamo bytecode transform|Compiling a graph|torch\.compile took|torch\.compile takes", "compiling graph"),
    (r"[GC]PU KV cache size: ([\d,]+ tokens)", "KV cache: {}"),
    (r"Profiling CUDA graph memory", "measuring CUDA graphs"),
    (r"Capturing [\w -]*CUDA graphs?[^:]*:\s+(\d+%)(?:\|[^|]*\| (\d+/\d+))?", "CUDA graphs: {} {}"),
    (r"Graph capturing finished in (.+ secs), took (.+ GiB)", "CUDA graphs captured in {}, {}"),
    (r"[Ww]arming up", "warm-up"),
    (r"init engine .* took (\S+ s)", "engine initialized in {}"),
    (r"Starting vLLM server on", "API server starts"),
    (r"(?:INFO:\s+)?Application startup complete", "API server is up"),
)
#: The line of an exception: its class without its package, and its message.
EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout|OutOfResources))(?:: (.*))?$"
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
_VALIDATION = re.compile(r"^\d+ validation errors? for (\w+)$")
#: Levels of harmless messages: vLLM's, then in the prefixes of Ray, PyTorch, uvicorn and NCCL.
_HARMLESS = ("DEBUG", "INFO", "WARNING")
_HARMLESS_PREFIX = re.compile(
    r"^(?:\[rank\d+\]:)?\[?(?:[IW]\d{4} |(?:\d{4}-\d\d-\d\d [\d:,.]+\s+)?(?:DEBUG|INFO|WARNING)\b"
    r"|[\w.-]{1,64}:\d+:\d+ \[\d+\] NCCL INFO )"
)
_FAILED = re.compile(r"^\S+\.service: (?:Main|Control) process exited, code=exited, status=[1-9]")
#: Maximum lines of an error's details: NCCL's and Triton's reasons follow their exception.
_DETAILS = 5


def progress(lines: Sequence[str]) -> str:
    """Return a description of the furthest step in the lines, "" without one.

    The last step would be wrong, because Ray forwards the lines of other nodes late.
    """
    furthest, message = -1, ""
    for line in lines:
        level, _address, text = parts(line)
        for index, (pattern, words) in enumerate(STEPS):
            if index >= furthest and level != "WARNING" and (match := re.match(pattern, text)):
                furthest, message = index, words.format(*(group or "" for group in match.groups())).rstrip()
    return message


def evidence(lines: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Return (error, details, others) of a failed start: the root cause, its following lines, and other messages.

    ``others`` are the messages before the error without a harmless level. If the root cause is "" or an echo, they are
    all such messages. Without a root cause and without a failed process, all three are empty.
    """
    index, error = _first_error(lines)
    if not error and not any(_FAILED.match(line) for line in lines):
        return "", [], []
    details = []
    for _level, _address, text in map(parts, lines[index + 1 : index + 1 + _DETAILS]):
        if EXCEPTION.match(text) or text.startswith("Traceback "):
            break
        details.append(text)
    messages = [(level, text) for level, _address, text in map(parts, lines[:index])]
    others = [text for level, text in messages if text and level not in _HARMLESS and not _HARMLESS_PREFIX.match(text)]
    return error, details, others


def _first_error(lines: Sequence[str]) -> tuple[int, str]:
    """Return the root cause with its index; an echo or "" with the number of lines."""
    echo = killed = remote = ""
    texts = [parts(line) for line in lines]
    for index, (level, address, text) in enumerate(texts):
        if level in _HARMLESS:
            continue
        if plain := _plain_cause(text):
            return index, plain
        if _REMOTE.match(text) and (found := ADDRESS.search(text)):
            remote = found[1]
        elif match := EXCEPTION.match(text):
            message = match[2] or ""
            if not _is_echo(match[1], message):
                after = [after for _level, _address, after in texts[index + 1 :]]
                return index, _placed(_telling(text, message, after), address or remote)
            echo = echo or text
        elif _KILLED.match(text):
            killed = text
    return len(lines), echo or killed


def _placed(text: str, place: str) -> str:
    return f"{text} (on {place})" if place else text


def _plain_cause(text: str) -> str:
    """Return the cause in a line without an exception, "" if it has none."""
    if any(pattern.match(text) for pattern in _CAUSES):
        return text
    match = _DEAD_RANK.match(text)
    return f"the rank with pid {match[2]} on {match[1]} died: {match[3]}" if match else ""


def _is_echo(exception: str, message: str) -> bool:
    """Return whether an exception only reports that another process failed."""
    return (
        exception in _ECHO_CLASSES or message in _ECHO_WHOLE_TEXTS or any(echoed in message for echoed in _ECHO_TEXTS)
    )


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
