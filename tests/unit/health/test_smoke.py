"""The smoke test's requests and its verdict on answers: recorded from vLLM 0.32.0, and invalid ones."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from run_module import run_module

from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, io_smoke, smoke
from ansible_collections.gb10.cluster.plugins.module_utils.health.smoke import Answer, AnswerError

#: The unit of this process, "" outside systemd.
UNIT = systemd.unit_of_cgroup(Path("/proc/self/cgroup").read_text(encoding="ascii"))
USAGE = {"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17}
COMPLETION = {"choices": [{"index": 0, "text": " Paris.", "finish_reason": "length"}], "usage": USAGE}
CHAT = {"choices": [{"message": {"role": "assistant", "content": "Paris."}, "finish_reason": "stop"}], "usage": USAGE}


def events(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True) -> list[str]:
    """Return a stream in vLLM's form: role, deltas, end with its reason, usage."""
    chunks: list[dict[str, Any]] = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    ]
    chunks += [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks += [{"choices": [{"delta": {"content": ""}, "finish_reason": finish}]}, {"choices": [], "usage": USAGE}]
    lines = [f"data: {json.dumps(chunk)}" for chunk in chunks] + (["data: [DONE]"] if done else [])
    return [word for line in lines for word in (line, "")]


SAYS = events({"content": "Par"}, {"content": "is."})
THINKS = [events({name: "France, "}, {name: "so"}, {"content": "Paris."}) for name in smoke.REASONING_FIELDS]


def test_whole_answers() -> None:
    assert smoke.whole(json.dumps(COMPLETION)) == Answer(" Paris.", "", "", "length", USAGE)
    thought = {"choices": [{"message": {"content": None, "reasoning": "France"}, "finish_reason": "length"}]}
    assert smoke.whole(json.dumps(thought)) == Answer("", "France", "reasoning", "length", {})


@pytest.mark.parametrize(
    ("lines", "name"), list(zip(THINKS, smoke.REASONING_FIELDS, strict=True)), ids=smoke.REASONING_FIELDS
)
def test_a_stream_is_put_together(lines: list[str], name: str) -> None:
    assert smoke.streamed(lines) == Answer("Paris.", "France, so", name, "stop", USAGE)
    assert [smoke.carries_text(line) for line in lines if line].count(True) == 3


@pytest.mark.parametrize(
    ("read", "given", "said"),
    [
        (smoke.whole, "<html>", "not JSON: <html>"),
        (smoke.whole, "[]", "not a JSON object"),
        (smoke.whole, "[" * 100_000, "not JSON: [[["),
        (smoke.whole, '{"choices": []}', "no choices"),
        (smoke.whole, "x" * 999, "x" * 300 + "..."),
        (smoke.streamed, events({"content": "Par"}, done=False), "is incomplete after 4 events"),
        (smoke.streamed, [], "is incomplete after 0 events"),
        (smoke.streamed, ['data: {"error": {"message": "EngineCore died"}}', "data: [DONE]"], "EngineCore died"),
    ],
)
def test_no_answer(read: Callable[[Any], Answer], given: Any, said: str) -> None:
    with pytest.raises(AnswerError) as raised:
        read(given)
    assert said in str(raised.value)


GOOD = Answer("Paris.", finish_reason="stop", usage=USAGE)
THOUGHT = Answer("Paris.", "so", "reasoning", "stop", USAGE)
STILL = Answer("", "so", "reasoning", "length", {"completion_tokens": 512})


@pytest.mark.parametrize(
    ("answers", "reasoning", "said"),
    [
        ({"completion": GOOD, "chat": GOOD, "stream": GOOD}, False, []),
        ({"completion": GOOD, "chat": THOUGHT, "stream": THOUGHT}, True, []),
        ({"stream": STILL}, False, []),
        ({"stream": GOOD}, True, ["the stream has neither of the fields reasoning and reasoning_content"]),
        (
            {"chat": STILL},
            True,
            [
                (
                    "the chat ends before the model finished reasoning, after 512 of 512 tokens: raise "
                    "vllm_serve_smoke_tokens"
                )
            ],
        ),
        (
            {"completion": Answer(" \n", finish_reason="length", usage=USAGE)},
            False,
            ["the completion is empty after 8 of 512 tokens (finish_reason length)"],
        ),
        ({"stream": Answer("Paris.")}, False, ["the stream has no finish_reason"]),
        (
            {"chat": Answer("", finish_reason="stop"), "stream": Answer("", "so", "reasoning", "stop")},
            True,
            ["the chat is empty after unknown of 512", "the stream is empty after unknown of 512"],
        ),
    ],
)
def test_problems(answers: dict[str, Answer], reasoning: bool, said: list[str]) -> None:
    found = smoke.problems(answers, reasoning, 512)
    assert len(found) == len(said)
    assert all(problem.startswith(words) for problem, words in zip(found, said, strict=True))


def test_tokens_per_second() -> None:
    assert smoke.tokens_per_second(GOOD, 1.0, 2.0) == 7.0
    assert smoke.tokens_per_second(GOOD, 1.0, 1.0) is None
    assert smoke.tokens_per_second(Answer(), 1.0, 2.0) is None


class Server(ThreadingHTTPServer):
    """A fake vLLM with the test's answers; for the stream, a list of lines."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.completion: Any = COMPLETION
        self.chat: Any = CHAT
        self.stream = SAYS
        self.pause = 0.0
        self.key = ""
        self.asked: list[dict[str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    """Answers by path, and by the request's stream field."""

    server: Server

    def do_POST(self) -> None:
        """Answer if the key is correct."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        allowed = not self.server.key or self.headers["Authorization"] == f"Bearer {self.server.key}"
        self.send_response(200 if allowed else 401)
        self.end_headers()
        if not allowed:
            self.wfile.write(b'{"error": "Unauthorized"}')
        elif body.get("stream"):
            for line in self.server.stream:
                self.wfile.write(line.encode() + b"\n")
                self.wfile.flush()
                time.sleep(self.server.pause)
        else:
            self.wfile.write(json.dumps(self.server.chat if "messages" in body else self.server.completion).encode())

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing."""


@pytest.fixture
def vllm() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(vllm: Server, **options: Any) -> dict[str, Any]:
    """Return the result of the smoke test of a generating model."""
    of_model = {"model": "tiny", "kind": "generate", "dimension": 0, "meaning": True, "reasoning": False}
    plain = {**of_model, "max_tokens": 8, "timeout": 30}
    secret = io_client.api_key(options.pop("key_file", ""), options.pop("unit", UNIT))
    server = io_client.Server(f"http://127.0.0.1:{vllm.server_port}")
    return io_smoke.result(server, secret=secret, **{**plain, **options})


def test_a_model_that_answers(vllm: Server) -> None:
    vllm.pause = 0.01
    url = f"http://127.0.0.1:{vllm.server_port}"
    answer = run_module("vllm_smoke_test", {"url": url, "model": "tiny", "unit": UNIT}, check=True)
    answers = answer["answers"]
    assert answer["changed"] is False
    assert [answers[name]["text"] for name in ("completion", "chat", "stream")] == [" Paris.", "Paris.", "Paris."]
    assert answers["completion"]["answered"] <= answers["chat"]["answered"] <= answers["stream"]["answered"]
    assert answers["stream"]["tokens_per_second"] > 0 and answers["stream"]["first_token_after"] >= 0
    assert [(body["model"], body["max_tokens"], body.get("stream", False)) for body in vllm.asked] == [
        ("tiny", 8, False),
        ("tiny", 8, False),
        ("tiny", 8, True),
    ]


def test_a_model_that_reasons(vllm: Server) -> None:
    vllm.stream = THINKS[1]
    answers = ask(vllm, reasoning=True, max_tokens=512)["answers"]
    assert (answers["stream"]["reasoning"], answers["stream"]["reasoning_field"]) == ("France, so", "reasoning_content")


def test_all_that_is_wrong_is_said_together(vllm: Server) -> None:
    vllm.completion = {"choices": [{"text": "", "finish_reason": "stop"}]}
    answer = ask(vllm, reasoning=True)
    assert "the completion is empty" in answer["msg"] and "neither of the fields" in answer["msg"]
    assert len(answer["problems"]) == 2


def test_the_key_is_sent_and_not_shown(vllm: Server, tmp_path: Path) -> None:
    vllm.key = "5ec0e7"
    assert "HTTP 401" in ask(vllm)["msg"]
    file = tmp_path / "key"
    file.write_text("5ec0e7\n", encoding="ascii")
    assert ask(vllm, key_file=str(file))["answers"]["chat"]["text"] == "Paris."
    file.write_text("two words\n", encoding="ascii")
    said = ask(vllm, key_file=str(file))["msg"]
    assert "does not contain a key" in said and "two words" not in said
    assert "HTTP 401" in ask(vllm, key_file=str(tmp_path / "none"))["msg"]


def test_the_key_is_sent_to_the_unit_alone(vllm: Server, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("5ec0e7\n", encoding="ascii")
    said = ask(vllm, key_file=str(file), unit="gb10-vllm.service")["msg"]
    assert f"port {vllm.server_port} is used by " in said and "so the API's key was not sent" in said
    assert vllm.asked == []


def test_a_stream_that_drips_is_too_slow(vllm: Server) -> None:
    vllm.pause = 0.1
    assert "the stream: no answer after 0 s: timed out" in ask(vllm, timeout=0.3)["msg"]


@pytest.mark.parametrize("line", ["x" * 1000, "x" * 1000 + "\n"], ids=["one line", "many lines"])
def test_an_answer_without_an_end_is_cut_off(vllm: Server, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(io_client, "MOST", 10_000)
    vllm.chat = line * 100
    server = io_client.Server(f"http://127.0.0.1:{vllm.server_port}")
    with pytest.raises(AnswerError, match="longer than 10000 bytes"):
        io_smoke.ask(server, "/v1/chat/completions", {"messages": []}, 5, None)


def test_lines_are_those_that_were_sent_however_they_come(vllm: Server) -> None:
    vllm.stream, vllm.pause = ["data: 1", "", "data: 2\r", "last"], 0.01
    server = io_client.Server(f"http://127.0.0.1:{vllm.server_port}")
    lines = io_smoke.ask(server, "/v1/completions", {"stream": True}, 5, None)
    assert [line for _when, line in lines] == ["data: 1", "", "data: 2", "last"]


def test_nobody_listens() -> None:
    with Server() as server:
        url = f"http://127.0.0.1:{server.server_port}"
    answer = run_module("vllm_smoke_test", {"url": url, "model": "tiny"})
    assert (answer["failed"], answer["msg"].count("refused")) == (True, 3)
