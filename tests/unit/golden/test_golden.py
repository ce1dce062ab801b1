"""Golden answers of a model over real HTTP: recorded, compared, and with planted faults.

Hostile responses and records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_openai import Model, serve
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd
from ansible_collections.gb10.cluster.plugins.module_utils.golden import (
    compare,
    io_golden,
    parse,
    record,
    report,
    table,
)
from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import Answer, Bounds, Record, Run
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client
from ansible_collections.gb10.cluster.plugins.module_utils.health.io_client import Server
from ansible_collections.gb10.cluster.plugins.module_utils.health.smoke import AnswerError

UNIT = systemd.unit_of_cgroup(Path("/proc/self/cgroup").read_text(encoding="ascii"))
SERVED = {"kind": "generate", "stack": {"vllm": "0.33.0"}, "serve": {"args": ["--max-logprobs", "5"], "user_args": []}}
PLAN = {"model": "/srv/models/tiny", "served_model_name": "tiny", "quantization": "bf16", "store": {}, **SERVED}
PLAN |= {"api": {"url": "http://127.0.0.1:8000", "server_name": ""}}
BOUNDS = {"tie": 0.5, "distance": 0.25, "perplexity_change": 0.1, "perplexity": 1000.0, "strict": False}
PATH = "golden/tiny.json"
TODAY = "2026-11-22"
CHATS = {"chat", "reasoning", "turns"}
ALL = {"completion", "code", "long", *CHATS}


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def url(model: Model) -> Iterator[str]:
    with serve(model) as address:
        yield address


def collect(url: str, prompts: str = "") -> dict[str, Any]:
    """Return the answers as the module does, without its process."""
    return io_golden.run(
        Server(url), "tiny", "/srv/models/tiny", False, parse.prompts(prompts), 60, io_client.api_key("", UNIT)
    )


#: A line of the journal, in the far future.
ENDED = json.dumps({"__MONOTONIC_TIMESTAMP": "9" * 15, "MESSAGE": "RuntimeError: out of luck"})


def module(url: str, path: Path | None = None, **arguments: Any) -> dict[str, Any]:
    given = {"directory": "/x", "url": url, "model": "tiny", "unit": UNIT, **arguments}
    return run_module("vllm_golden", given, path, check=True)


def verdict(run: Mapping[str, Any], content: str | None = None, renew: bool = False, **bounds: Any) -> dict[str, Any]:
    given: dict[str, Any] = {**BOUNDS, **bounds}
    return report.result(run, content, Bounds(**given), record.served(PLAN).identity, TODAY, PATH, renew)


def refusal(content: str | None, plan: Mapping[str, Any] = PLAN) -> str:
    """Return the problems of a record and of a plan as text."""
    return record.inputs(content, PATH, record.served(plan))[0]


def refused(run: Mapping[str, Any], content: str | None = None) -> str:
    """Return the problem of an invalid run or record. The last result has it too, so that no older result stays."""
    found = verdict(run, content)
    result = json.loads(found.pop("result"))
    problem = str(found["problem"])
    assert found == {"lines": [], "end": [], "problem": problem, "record": ""}
    assert (result["answers"], result["equal"], [each.removesuffix("...") for each in result["errors"]]) == (
        0,
        0,
        [" ".join(problem.split())[:200]],
    )
    return problem


def recorded(url: str) -> str:
    found = verdict(collect(url), renew=True)
    assert found["problem"] == "" and found["record"]
    return str(found["record"])


@pytest.fixture(scope="module")
def content() -> str:
    """Return the record of the unchanged model."""
    with serve(Model()) as address:
        return recorded(address)


def prompts(content: str) -> str:
    problem, found = record.inputs(content, PATH, record.served(PLAN))
    assert problem == ""
    return found


def again(url: str, content: str, **bounds: Any) -> dict[str, Any]:
    """Collect the answers as the role does with a record, and judge them."""
    return verdict(collect(url, prompts=prompts(content)), content, **bounds)


MOVED, GONE = "the mean distance of log-probabilities is", "is not among the record's candidates"
FAR, NEAR_TIE = "the recorded prompt does not fit into 1024 tokens", "near tie at token 16 (0.11)"


@pytest.mark.parametrize(
    ("change", "counts", "line", "problem"),
    [
        pytest.param({}, (6, 0, 0), "", "", id="the same model"),
        # Logits that are rounded as BF16 rounds them take another way at ties, and pass.
        pytest.param({"step": 0.125}, (3, 3, 0), NEAR_TIE, "", id="rounding"),
        # The chat template of gpt-oss contains the date, so that its answers change every day.
        pytest.param({"date": "2026-11-23"}, (6, 0, 0), "turns: the record has another prompt", "", id="another date"),
        pytest.param({"max_model_len": 1024}, (5, 0, 0), FAR, "", id="a shorter context"),
        pytest.param({"scale": 1.3}, (4, 0, 2), "code: different, 32 of 32 tokens", MOVED, id="scaled up"),
        pytest.param({"scale": 0.5}, (0, 0, 6), "turns: different, 7 of 7 tokens", MOVED, id="scaled down"),
        pytest.param({"weights": 2}, (0, 0, 6), "", GONE, id="other weights"),
        pytest.param({"step": 4.0}, (0, 0, 6), "", GONE, id="coarse"),
    ],
)
def test_a_wrong_kernel_is_different_and_other_changes_are_not(
    model: Model, url: str, content: str, change: dict[str, Any], counts: tuple[int, int, int], line: str, problem: str
) -> None:
    vars(model).update(change)
    found = again(url, content)
    summary = "golden answers: {} equal, {} near, {} different, compared with the record of".format(*counts)
    assert found["lines"][0] == f"{summary} {TODAY} (vLLM 0.32.0)"
    assert line in "\n".join(found["lines"]) and problem in found["problem"]
    assert found["problem"].startswith("The golden answers failed: " if problem else "")
    assert (f"Expected: the answers of {PATH}." in found["problem"]) is bool(problem) is bool(found["problem"])
    assert found["record"] == ""


def test_each_run_has_its_own_salt_so_that_no_cached_prefix_is_used(model: Model, url: str, content: str) -> None:
    for _run in range(2):
        again(url, content)
    bodies = [body for _path, body in model.requests]
    assert {body["temperature"] for body in bodies} == {0}
    answers = [body for body in bodies if "prompt_logprobs" not in body]
    assert all(body["return_tokens_as_token_ids"] and body["return_token_ids"] for body in answers), (
        "texts are ambiguous"
    )
    assert len({body["cache_salt"] for body in bodies}) == 2


def test_the_result_has_the_figures_without_the_answers(model: Model, url: str, content: str) -> None:
    renewed = json.loads(verdict(collect(url), renew=True)["result"])
    same = json.loads(again(url, content)["result"])
    # A renewed record is compared with itself, so that the next run writes the same result.
    assert renewed == same
    assert (same["model"], same["date"], same["record_date"], same["errors"]) == ("/srv/models/tiny", TODAY, TODAY, [])
    assert (same["answers"], same["equal"], same["near"], same["different"]) == (6, 6, 0, 0)
    assert same["perplexity"] == same["record_perplexity"] > 0
    model.scale = 1.3
    wrong = json.loads(again(url, content)["result"])
    assert wrong["different"] > 0 and wrong["errors"] and "completion" not in wrong


def test_a_record_is_the_answers_with_candidates(url: str, content: str) -> None:
    run = collect(url)
    assert set(run["answers"]) == ALL and run["problems"] == run["notes"] == []
    record = json.loads(content)
    identity = [record[key] for key in ("model", "revision", "quantization", "date", "vllm")]
    assert identity == ["/srv/models/tiny", "", "bf16", TODAY, "0.32.0"]
    answer = record["answers"]["completion"]
    assert len(answer["tokens"]) == len(answer["logprobs"]) == len(answer["top"]) <= table.MAX_TOKENS
    assert all(len(position) == table.TOP for position in answer["top"])
    assert answer["tokens"] == [int(max(position, key=position.get)) for position in answer["top"]]
    assert len(content.splitlines()) < 60, "a list is one line, for short diffs"
    assert refusal(content) == ""


def test_a_renewal_accepts_differences_and_shows_them(model: Model, url: str, content: str) -> None:
    model.weights = 2
    found = verdict(collect(url), content, renew=True)
    assert found["problem"] == "" and found["record"] != content
    assert "5 different" in found["lines"][0] or "6 different" in found["lines"][0]
    assert any(line.startswith("recorded in ") for line in found["lines"])
    assert again(url, found["record"])["problem"] == ""


@pytest.mark.parametrize("old", ["", "{", json.dumps({"format": 1, "model": "other"})])
def test_a_renewal_replaces_an_invalid_record(url: str, old: str) -> None:
    assert verdict(collect(url), old, renew=True)["record"]


def test_a_model_without_a_chat_template_completes(model: Model, url: str) -> None:
    model.template = False
    run = collect(url)
    assert set(run["answers"]) == ALL - CHATS and run["problems"] == []
    assert len(run["notes"]) == 3 and all(note.endswith("the model has no chat template") for note in run["notes"])
    assert verdict(run)["problem"] == ""


def test_without_a_record_the_run_shows_the_answers(url: str, content: str) -> None:
    found = verdict(collect(url))
    assert found["problem"] == "" and found["record"] == ""
    compared = again(url, content)["lines"]
    assert not {line.split(":")[0].strip() for line in compared} & ALL, "equal answers are not shown"
    assert any(line.startswith(f"no record {PATH}.") and "golden_record=true" in line for line in found["lines"])
    assert {line.split(":")[0].strip() for line in found["lines"]} >= ALL
    # The answers are the last lines, but not the answer of the run.
    assert found["end"] == [found["lines"][0], next(line for line in found["lines"] if line.startswith("no record "))]
    (recorded,) = verdict(collect(url), renew=True)["end"]
    assert recorded.startswith(f"recorded in {PATH};")


def test_a_server_without_logprobs_fails_with_each_request(model: Model, url: str) -> None:
    model.hostile = lambda _path, _body: b'{"choices": [{"text": "x", "message": {"content": "x"}, "logprobs": null}]}'
    found = verdict(collect(url))
    assert found["problem"].count("logprobs is None, expected an object") == 6


def completion(**changes: Any) -> bytes:
    lists = {"tokens": ["token_id:1"], "token_logprobs": [-0.5], "top_logprobs": [{"token_id:1": -0.5}]}
    choice = {"text": "x", "prompt_token_ids": [1], "logprobs": {**lists, **changes.pop("logprobs", {})}, **changes}
    return json.dumps({"choices": [choice]}).encode()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the response is"),
        (b"<html>", "the response is"),
        (b"[" * 100_000, "the response is"),
        (b'{"choices": [{"text": NaN}]}', "NaN is not a number"),
        (b"[]", "expected an object"),
        (b'{"choices": {}}', "choices is {}"),
        (completion(text=7), "text is 7"),
        (completion(text="x" * 20000), "a text of at most"),
        (completion(logprobs={"tokens": ["x"]}), "is x, expected a token ID"),
        *((completion(logprobs={"tokens": [each]}), "expected a token ID") for each in (True, 1.0, None, [1])),
        (completion(logprobs={"tokens": ["token_id:1"] * 300}), "is 300 entries, expected at most 256"),
        (completion(logprobs={"tokens": []}), "expected equal lengths"),
        (completion(logprobs={"token_logprobs": [None]}), "logprobs[0] is None, expected a finite number"),
        (completion(logprobs={"top_logprobs": [{str(n): 0 for n in range(40)}]}), "is 40 candidates"),
        (completion(prompt_token_ids="x"), "prompt is x, expected a list"),
        (completion(prompt_token_ids=[-1]), "prompt[0] is -1, expected a token ID"),
        (b"x" * 400_000, "the answer is longer than 300000 bytes"),
    ],
    ids=range(20),
)
def test_hostile_responses(
    model: Model, url: str, monkeypatch: pytest.MonkeyPatch, content: bytes, expected: str
) -> None:
    monkeypatch.setattr(io_client, "MOST", 300_000)
    code = table.questions("tiny", 4096, False)["code"].body["prompt"]
    model.hostile = lambda _path, body: content if body.get("prompt") == code else None
    run = collect(url)
    assert set(run["answers"]) == ALL - {"code"}
    problem = verdict(run)["problem"]
    assert "code: " in problem and expected in problem and problem.isprintable()


def test_control_characters_of_an_answer_are_not_shown(model: Model, url: str) -> None:
    model.hostile = lambda path, _body: (
        completion(text="\x1b]0;x\x07 {{ 1 }}\nfoo") if path == table.COMPLETIONS else None
    )
    lines = verdict(collect(url))["lines"]
    assert all(line.isprintable() for line in lines)
    assert "  code: ?]0;x? {{ 1 }} foo" in lines


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"name": "other"}, "the served model is other, expected tiny"),
        ({"root": "/srv/models/old"}, "the served model's path is /srv/models/old, expected /srv/models/tiny"),
        ({"max_model_len": None}, "max_model_len is None"),
        ({"max_model_len": True}, "max_model_len is True"),
    ],
)
def test_another_model_is_served(model: Model, url: str, change: dict[str, Any], expected: str) -> None:
    vars(model).update(change)
    with pytest.raises(AnswerError) as raised:
        collect(url)
    assert expected in str(raised.value) and model.requests == []


def test_the_module_sends_the_key_to_its_unit_only(model: Model, url: str, tmp_path: Path) -> None:
    model.key = "5ec0e7"
    file = tmp_path / "key"
    file.write_text("5ec0e7\n", encoding="ascii")
    found = module(url, key_file=str(file), tools=True)
    assert found["changed"] is False and set(found["run"]["answers"]) == {*ALL, "tool"}
    assert "HTTP 401" in verdict(module(url)["run"])["problem"]
    failed = module(url, key_file=str(file), unit="gb10-vllm.service")["msg"]
    assert "the API's key was not sent" in failed and "5ec0e7" not in failed


def test_the_module_without_a_server(tmp_path: Path) -> None:
    program(tmp_path, "journalctl", f"echo '{ENDED}'")
    said = module("http://127.0.0.1:9", tmp_path)["msg"]
    assert "The golden answers could not be collected: no answer" in said
    assert f"The log of {UNIT} since then: RuntimeError: out of luck" in said
    assert "prompts" in module("http://127.0.0.1:9", prompts="{")["msg"]


@pytest.mark.parametrize("given", ["{", "[]", '{"chat": "x"}', '{"chat": [1.5]}'])
def test_invalid_prompts_are_refused(given: str) -> None:
    with pytest.raises(parse.InvalidError, match="prompts"):
        parse.prompts(given)


@pytest.mark.parametrize(
    ("drafts", "acceptance", "expected"),
    [
        (None, None, ""),
        ((4, 2), 0.5, ""),
        ((4, 0), 0.0, "warning: draft acceptance: none of the drafted tokens"),
        ((0, 0), None, ""),
    ],
)
def test_draft_acceptance(
    model: Model, url: str, drafts: tuple[int, int] | None, acceptance: float | None, expected: str
) -> None:
    model.drafts = drafts
    collect(url)
    # The server has counted the tokens of others before.
    run = collect(url)
    assert run["acceptance"] == acceptance
    assert any(line.startswith("warning: draft") for line in verdict(run)["lines"]) is bool(expected)
    assert bool(verdict(run, strict=True)["problem"]) is bool(expected)


def test_drafts_that_were_accepted_once_must_be(model: Model, url: str) -> None:
    model.drafts = (4, 2)
    content = recorded(url)
    model.drafts = (4, 0)
    assert "none of the drafted tokens was accepted, 0.50 in the record" in again(url, content)["problem"]


@pytest.mark.parametrize(
    ("factor", "problem"), [(1.05, ""), (1.2, "(+20.0 %, the bound 10 %)"), (0.5, "(-50.0 %, the bound 10 %)")]
)
def test_another_perplexity_than_recorded_fails(url: str, content: str, factor: float, problem: str) -> None:
    run = collect(url, prompts(content))
    found = verdict({**run, "perplexity": run["perplexity"] * factor}, content)
    assert problem in found["problem"] and bool(found["problem"]) is bool(problem)


def test_the_perplexity_is_that_of_the_tokens_after_the_first() -> None:
    tokens = [None, {"7": {"logprob": -1.0}, "8": {"logprob": -9.0}}, {"8": {"logprob": -3.0}}]
    assert parse.perplexity(json.dumps({"choices": [{"prompt_logprobs": tokens}]})) == pytest.approx(math.exp(2))


def test_a_high_or_missing_perplexity_only_warns(model: Model, url: str) -> None:
    run = collect(url)
    assert 64 < run["perplexity"] < 1000, "an untrained model with 64 tokens"
    high, strict = (verdict(run, perplexity=20.0, strict=strict) for strict in (False, True))
    assert high["problem"] == "" and "warning: perplexity of the known text: " in "\n".join(high["lines"])
    assert "a trained model has at most 20" in strict["problem"]
    model.hostile = lambda _path, body: (
        b'{"choices": [{"prompt_logprobs": [null]}]}' if "prompt_logprobs" in body else None
    )
    without = collect(url)
    assert without["perplexity"] is None and "perplexity: prompt_logprobs is empty" in without["notes"][0]


@pytest.mark.parametrize(
    ("tokens", "text", "expected"),
    [
        ([1, 2] * 16, "x", []),
        ([1] * 16, "x", []),
        ([2] + [1] * 17, "x", ["the same token 17 times in a row"]),
        ([1], "caf\ufffd, x", ["the text has bytes that are not UTF-8"]),
        ([1], "caf\ufffd", []),
        ([1], " \n", ["the answer has no text"]),
    ],
)
def test_oddities(tokens: list[int], text: str, expected: list[str]) -> None:
    assert compare.oddities(Answer(text, (), tokens, (), ())) == expected


LIMITS = Bounds(tie=0.5, distance=0.25, perplexity_change=0.1, perplexity=100, strict=False)


def at(*positions: tuple[int, dict[int, float]]) -> Answer:
    """Return an answer with these tokens and candidates."""
    tokens, top = [token for token, _top in positions], [found for _token, found in positions]
    return Answer("x", (1,), tokens, [found[token] for token, found in positions], top)


FIRST = (1, {1: -0.1, 2: -2.5})


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (at(FIRST), at(FIRST), ("equal", 1, 0.0)),
        # A longer answer: the common part is equal.
        (at(FIRST), at(FIRST, FIRST), ("equal", 1, 0.0)),
        (at(FIRST, (3, {3: -0.6, 4: -1.0})), at(FIRST, (4, {3: -0.7, 4: -0.6})), ("near", 1, 0.125)),
        (at(FIRST, (3, {3: -0.6, 4: -1.2})), at(FIRST, (4, {3: -0.7, 4: -0.6})), ("different", 1, 0.175)),
        (at(FIRST, (3, {3: -0.6, 4: -0.7})), at(FIRST, (5, {5: -0.6, 4: -0.7})), ("different", 1, 0.025)),
        # The same token from another distribution.
        (at(FIRST), at((1, {1: -0.7, 2: -3.1})), ("different", 1, 0.6)),
        # A candidate that is not among the new ones any more is below all of them.
        (at(FIRST), at((1, {1: -0.1, 3: -4.5})), ("different", 1, 1.0)),
        # Very unlikely candidates are rounding only.
        (at((1, {1: 0.0, 2: -9.0})), at((1, {1: 0.0, 2: -12.0})), ("equal", 1, 0.0)),
        (at(FIRST), at(), ("different", 0, 0.0)),
    ],
    ids=["same", "longer", "tie", "no tie", "no candidate", "moved", "replaced", "unlikely", "empty"],
)
def test_compare(before: Answer, now: Answer, expected: tuple[str, int, float]) -> None:
    found = compare.compare("chat", before, now, LIMITS)
    assert (found.relation, found.agreed, found.mean) == (expected[0], expected[1], pytest.approx(expected[2]))
    assert bool(found.why) is (found.relation != "equal")


REPEATED = at(*[FIRST] * 17)


@pytest.mark.parametrize(
    ("before", "warned"),
    [(None, True), ({"code": REPEATED}, True), ({"chat": REPEATED}, False), ({"chat": at((3, {3: -0.1}))}, True)],
    ids=["no record", "not in the record", "as in the record", "different"],
)
def test_a_new_or_different_answer_is_checked_for_nonsense(before: dict[str, Answer] | None, warned: bool) -> None:
    run = Run({"chat": REPEATED}, None, None, "0.33.0")
    old = None if before is None else Record(record.served(PLAN).identity, TODAY, replace(run, answers=before))
    warnings = compare.judge(run, old, LIMITS).warnings
    assert ("chat: the same token 17 times in a row" in warnings) is warned


def test_an_empty_run_fails() -> None:
    assert "the server returned no answer" in verdict({"answers": {}})["problem"]
    assert refused({}) == "run.answers is None, expected an object"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _text: "", "the record is empty. Expected: a record of golden answers. Fix: restore the file"),
        (lambda _text: " \n", "the record is empty"),
        (lambda text: text[:200], "not JSON"),
        (lambda _text: "[]", "the record is []. Expected: an object"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "format is 2. Expected: the number 1"),
        (
            lambda text: text.replace('"model": "/srv/models/tiny"', '"model": "gpt-oss-20b"'),
            "a record of gpt-oss-20b (bf16). Expected",
        ),
        (
            lambda text: text.replace('"bf16"', '"fp8"'),
            "a record of /srv/models/tiny (fp8). Expected: a record of /srv/models/tiny (bf16)",
        ),
        (
            lambda text: text.replace('"revision": ""', '"revision": "main"'),
            "a record of /srv/models/tiny (main, bf16)",
        ),
        (lambda text: text.replace(f'"{TODAY}"', '"\\u001b[1m"'), "date is ?[1m. Expected: a printable text"),
        (lambda text: text.replace('"logprobs": [', '"logprobs": ["x", ', 1), "record.answers.completion"),
        (
            lambda text: text.replace('"tokens": [', '"tokens": [-5, ', 1),
            "record.answers.completion.tokens[0] is -5. Expected: a token ID",
        ),
        (lambda text: text.replace('"completion":', '"../x":'), "names of requests"),
        (lambda text: text.replace('"answers": {', '"answers": {}, "others": {'), "record.answers is empty"),
        (lambda text: text + " " * parse.MOST, "longer than"),
    ],
    ids=range(14),
)
def test_invalid_records_are_refused_with_their_location(
    content: str, change: Callable[[str], str], expected: str
) -> None:
    invalid = change(content)
    problem = refusal(invalid)
    assert (
        f"{PATH}: " in problem and expected in problem and problem.count("1 problem found; nothing was changed.") == 1
    )
    assert refused({"answers": {}}, invalid) == problem


def test_no_record_is_no_problem() -> None:
    assert record.inputs(None, PATH, record.served(PLAN)) == ("", "")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--max-logprobs=4"], "4"),
        (["--max_logprobs", "0"], "0"),
        (["--max-logprobs", "20", "--max-logprobs", "1"], "1"),
        (["--max-logprobs", "1", "--max-logprobs", "5"], ""),
        (["--max-logprobs=-1"], ""),
        ([], ""),
    ],
)
def test_too_few_log_probabilities_are_refused_together_with_the_record(words: list[str], found: str) -> None:
    plan = {**PLAN, "serve": {"args": [], "user_args": words}}
    problem = refusal("", plan)
    assert f"{PATH}: the record is empty. " in problem
    assert refusal(None, plan).startswith("1 problem found" if found else "")
    reported = f"  2. gb10_vllm_extra_args: --max-logprobs is {found}. Expected: 5 or more, or -1, because"
    assert (
        reported in problem and problem.endswith("Fix: remove --max-logprobs, or set golden_enabled: false.")
    ) is bool(found)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (PLAN, "/x/tiny-0f5db2c95f29.json"),
        ({**PLAN, "store": {"hub": "org/tiny", "revision": "refs/pr/1"}}, "/x/tiny-refs-pr-1.json"),
        (
            {**PLAN, "served_model_name": "../../etc/x", "store": {"hub": "a/b", "revision": "main"}},
            "/x/..-..-etc-x-main.json",
        ),
    ],
)
def test_path_of_a_record(plan: dict[str, Any], expected: str) -> None:
    assert record.file(record.served(plan), "/x") == expected


@pytest.mark.parametrize(
    ("limit", "tools", "expected"),
    [
        (100_000, True, {*ALL, "tool"}),
        (100_000, False, ALL),
        (600, True, {*ALL, "tool"}),
        (300, False, {*ALL} - {"long"}),
        (100, True, set()),
    ],
)
def test_questions_fit_into_the_context(limit: int, tools: bool, expected: set[str]) -> None:
    found = table.questions("tiny", limit, tools)
    assert set(found) == expected
    assert all(question.characters + table.MAX_TOKENS < limit for question in found.values())
    assert found == table.questions("tiny", limit, tools)


def test_the_long_prompt_has_its_answer() -> None:
    text = table.long_prompt(8192)
    assert 8000 < len(text) <= 8192
    assert text.endswith("\nThe code of lamp 3 is") and text.count("\nThe code of lamp 3 is ") == 1
    assert table.long_prompt(299) == "" and 300 <= len(table.long_prompt(330)) <= 330


def test_a_tool_call_is_part_of_the_text() -> None:
    call = {"function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    message = {"content": None, "reasoning_content": "so", "tool_calls": [call]}
    entry = {"token": "token_id:1", "logprob": -0.5, "top_logprobs": [{"token": "token_id:1", "logprob": -0.5}]}
    found = parse.chat(
        json.dumps({"choices": [{"message": message, "logprobs": {"content": [entry]}}], "prompt_token_ids": [1]})
    )
    assert found == Answer('so\nget_weather({"city": "Oslo"})', (1,), (1,), (-0.5,), ({1: -0.5},))
