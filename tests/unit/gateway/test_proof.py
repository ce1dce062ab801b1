"""The proof of a server that returns while a fallback answers: one request of the golden record."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import io_state, proof
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.io_state import Entry, State
from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import Answer, Bounds, Identity, Record, Run

ANSWER = Answer(" Rome.", (1, 2, 3), (7, 8), (-0.1, -0.2), ({7: -0.1, 9: -2.5}, {8: -0.2, 9: -2.0}))
BOUNDS = Bounds(tie=0.5, distance=0.25, perplexity_change=0.1, perplexity=100.0, strict=False)
RECORD = Record(Identity("a/b", "c", "fp8"), "2026-12-01", Run({"completion": ANSWER}, None, None, "0.33.0"))
#: As the settings of the program have it.
PROOF: Any = json.loads(json.dumps(proof.of_record(RECORD, BOUNDS, "/srv/big")))
SERVED = {"data": [{"id": "big", "root": "/srv/big", "max_model_len": 1024}]}


def response(*tokens: int, shift: float = 0) -> str:
    """Return vLLM's response to the request."""
    logprobs = {
        "tokens": [f"token_id:{token}" for token in tokens],
        "token_logprobs": [value + shift for value in ANSWER.logprobs],
        "top_logprobs": [{f"token_id:{token}": value + shift for token, value in top.items()} for top in ANSWER.top],
    }
    return json.dumps({"choices": [{"text": "?", "prompt_token_ids": [1, 2, 3], "logprobs": logprobs}]})


def test_a_record_without_the_request_or_its_prompt_gives_no_proof() -> None:
    assert PROOF["answer"]["tokens"] == [7, 8]
    for answers in ({}, {"chat": ANSWER}, {"completion": replace(ANSWER, prompt=())}):
        assert proof.of_record(replace(RECORD, run=replace(RECORD.run, answers=answers)), BOUNDS, "/srv/big") == {}


def test_the_request_has_the_recorded_prompt_and_a_new_salt() -> None:
    body = json.loads(proof.request(PROOF, "big", "salt"))
    assert (body["model"], body["prompt"], body["cache_salt"], body["temperature"]) == ("big", [1, 2, 3], "salt", 0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (response(7, 8), ""),
        (response(7, 8, shift=-0.1), ""),
        (response(7, 9), "differs from the record: token 2 is less likely"),
        (response(7, 8, shift=-0.5), "differs from the record: the mean distance"),
        ("{}", "its golden answer is not valid: choices"),
        ("<html>", "its golden answer is not valid"),
    ],
)
def test_an_answer_is_compared_with_the_record(text: str, reason: str) -> None:
    found = proof.judge(PROOF, text)
    assert reason in found and bool(found) is bool(reason)


class Pair:
    """A gateway with one server, which is down first."""

    def __init__(self, folder: Path, given: Any = PROOF) -> None:
        model = {"id": "gb10/big", "name": "big", "cluster": "gb10", "kind": "generate", "wake": 0, "ca": ""}
        model |= {"url": "http://127.0.0.1:9/v1", "variable": "", "proof": given}
        settings = {"models": [model], "fallbacks": {}, "health_interval": 10, "clients": str(folder / "clients")}
        self.state, self.answers, self.asked = State(settings, str(folder)), list[Any](), 0
        self.down, self.served = False, SERVED

    async def read(self, _entry: Entry, path: str, _key: str, body: bytes) -> tuple[int, bytes]:
        if self.down:
            raise ConnectionRefusedError("refused")
        if not body:
            return 200, json.dumps(self.served).encode() if path == "/v1/models" else b""
        assert path == "/v1/completions"
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await asyncio.sleep(60)
        return (200, answer.encode()) if isinstance(answer, str) else (answer, b"")

    async def check(self) -> str:
        await io_state.check(self.state, self.read)
        return self.state.errors.get("gb10/big", "")


async def settled(pair: Pair) -> str:
    """Check until no proof runs, and return the error."""
    await pair.check()
    while pair.state.proofs:
        await asyncio.wait(pair.state.proofs.values(), timeout=30)
        # The end of a proof brings the next check.
        assert pair.state.wake.is_set()
        pair.state.wake.clear()
        found = await pair.check()
        if found != io_state._PROVES:
            return found
    return pair.state.errors.get("gb10/big", "")


def test_a_server_is_used_after_its_proof(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.answers = [response(7, 9), response(7, 8)]

    async def checks() -> None:
        assert await pair.check() == io_state._PROVES
        assert "differs from the record" in await settled(pair)
        assert await settled(pair) == "" and pair.asked == 2
        assert await pair.check() == "" and pair.asked == 2, "a healthy server proves nothing"

    asyncio.run(checks())


def test_each_failure_needs_a_new_proof(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.answers = [response(7, 8)] * 2

    async def checks() -> None:
        assert await pair.check() == io_state._PROVES
        await asyncio.wait(pair.state.proofs.values(), timeout=30)
        # The server ends after its proof, and before the check that would use it.
        pair.down = True
        assert await pair.check() == "refused" and not pair.state.proofs
        pair.down = False
        assert await pair.check() == io_state._PROVES
        assert await settled(pair) == "" and pair.asked == 2

    asyncio.run(checks())


def test_a_woken_server_proves_itself_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_state, "_LEAST_SECONDS", 0.01)
    pair = Pair(tmp_path)
    pair.answers = [response(7, 9), response(7, 8)]
    entry = pair.state.entries["gb10/big"]

    async def woken() -> str:
        pair.state.errors = {"gb10/big": "refused"}
        return await io_state.woken(pair.state, [entry.id], pair.read)

    assert asyncio.run(woken()) == "" and pair.state.unproven == {entry.id}
    assert asyncio.run(woken()) == io_state.HEALTHY
    assert pair.asked == 2 and pair.state.errors == {} and pair.state.unproven == set()


def test_the_gateway_begins_with_the_servers_that_are_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(tmp_path)
    pair.answers = [response(7, 8)]
    asyncio.run(io_state.first_check(pair.state, pair.read))
    assert pair.state.errors == {}
    monkeypatch.setattr(io_state, "_FIRST_SECONDS", 0.01)
    slow = Pair(tmp_path)
    slow.answers = [None]
    asyncio.run(io_state.first_check(slow.state, slow.read))
    assert slow.state.errors == {"gb10/big": io_state._PROVES}


def test_another_model_of_the_same_name_needs_no_proof(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.served = {"data": [{"id": "big", "root": "/srv/other", "max_model_len": 1024}]}
    assert asyncio.run(settled(pair)) == "" and pair.asked == 0


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(503, "its golden answer is HTTP 503"), (None, "no golden answer after 0 s"), (OSError("reset"), "reset")],
)
def test_a_server_without_the_answer_stays_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, reason: str
) -> None:
    monkeypatch.setattr(io_state, "_PROOF_SECONDS", 0.05)
    pair = Pair(tmp_path)
    pair.answers = [answer]
    assert asyncio.run(settled(pair)) == reason


def test_a_model_without_a_record_needs_health_alone(tmp_path: Path) -> None:
    pair = Pair(tmp_path, {})
    assert asyncio.run(pair.check()) == "" and pair.asked == 0


def test_a_refused_server_keeps_its_reason_while_it_proves_again(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.answers = [response(7, 9), response(7, 9)]

    async def checks() -> None:
        refused = await settled(pair)
        assert "differs from the record" in refused
        assert await pair.check() == refused and pair.state.proofs
        pair.down = True
        assert await pair.check() == "refused"
        pair.down = False
        assert await pair.check() == io_state._PROVES, "a new start"

    asyncio.run(checks())


def test_a_slow_check_does_not_end_a_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(tmp_path)
    pair.answers = [response(7, 8)]

    async def checks() -> None:
        assert await pair.check() == io_state._PROVES
        (task,) = pair.state.proofs.values()
        with monkeypatch.context() as patched:
            patched.setattr(io_state, "probe", slow)
            await pair.check()
        await asyncio.wait([task], timeout=30)
        assert not task.cancelled() and await pair.check() == ""

    async def slow(_entry: Entry, _read: Any) -> str:
        return io_state._SLOW

    asyncio.run(checks())


def test_models_with_a_proof_are_checked_at_least_every_15_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def wait(waited: Any, seconds: float) -> None:
        waited.close()
        waits.append(seconds)
        raise TimeoutError if len(waits) == 1 else asyncio.CancelledError

    async def checked(_state: State, _read: Any) -> None:
        return

    monkeypatch.setattr(io_state, "_LEAST_SECONDS", 0.01)
    monkeypatch.setattr(io_state, "check", checked)
    monkeypatch.setattr(io_state.asyncio, "wait_for", wait)
    for given, longest in ((PROOF, 15.0), ({}, 600.0)):
        pair = Pair(tmp_path, given)
        pair.state.settings = {**pair.state.settings, "health_interval": 600}
        waits.clear()
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(io_state.watch(pair.state, pair.read))
        assert waits[0] == longest - 0.01
