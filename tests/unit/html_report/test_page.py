"""The page of a verification: its contents and order, its form, and that it loads and runs nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from html_page import Page, parsed
from hypothesis import given as generate
from hypothesis import strategies as st
from repository import load_yaml, read
from verified_nodes import NOW, Facts, healthy, pair
from verified_nodes import cluster as verified

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import report as benchmark_report
from ansible_collections.gb10.cluster.plugins.module_utils.html_report import report
from ansible_collections.gb10.cluster.plugins.module_utils.launch.choices import MESSAGES
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import gpu_probe
from ansible_collections.gb10.cluster.plugins.module_utils.verify.report import CHECKS
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS
from ansible_collections.gb10.cluster.plugins.plugin_utils import html_page
from ansible_collections.gb10.cluster.plugins.plugin_utils.html_page import clean

SYMBOLS = {
    "error": "\N{MULTIPLICATION X}",
    "warning": "\N{WARNING SIGN}\N{VARIATION SELECTOR-15}",
    "": "\N{CHECK MARK}",
}
RAIL, TWIN = "enp1s0f1np1", "enP2p1s0f1np1"
KEY = "hf_" + "AbCd1234" * 4
GOLDEN = {
    "format": 1,
    "date": "2026-11-22",
    "model": "openai/gpt-oss-120b",
    "revision": "b5c9",
    "quantization": "mxfp4",
    "vllm": "0.32.0",
    "record_date": "2026-11-01",
    "record_vllm": "0.31.0",
    "answers": 7,
    "equal": 6,
    "near": 1,
    "different": 0,
    "perplexity": 4.231,
    "record_perplexity": 4.228,
    "acceptance": 0.71,
    "errors": [],
    "warnings": [],
}


def measured(concurrency: int, tokens: float, **changes: Any) -> dict[str, Any]:
    return {
        "concurrency": concurrency,
        "input_tokens": 1024,
        "output_tokens": 256,
        "requests": 8,
        "failed": 0,
        "tokens_per_second": tokens,
        "ttft_ms": {"median": 210.5, "p99": 380.0},
        "tpot_ms": {"median": 20.7},
        "itl_ms": {"median": 20.0 + concurrency},
        "decode_tokens_per_second": 48.3,
        "roofline_percent": 88.5 if concurrency == 1 else None,
        "hit_rate": 0.125,
        "clocks": {"sm_mhz": 2405.0},
        **changes,
    }


def shape(concurrency: int, tokens: float | None, **changes: Any) -> dict[str, Any]:
    return {
        "concurrency": concurrency,
        "input_tokens": 1024,
        "output_tokens": 128,
        "tokens_per_second": tokens,
        **changes,
    }


#: The record of playbooks/benchmark_all.yml.
MATRIX: dict[str, Any] = {
    "format": 1,
    "date": "2026-11-22T20:00:00Z",
    "finished": True,
    "rows": [
        {"name": "gpt-oss-120b", "problem": "", "runs": [shape(1, 46.5), shape(8, 221.2)]},
        {
            "name": "qwen3-30b-a3b",
            "problem": "",
            "runs": [shape(1, 93.0), shape(8, 10.0), shape(1, 60.0, input_tokens=16384)],
        },
        {"name": "too-large", "problem": "it does not fit", "runs": []},
    ],
}


def benchmark(**changes: Any) -> dict[str, Any]:
    """Return a document as playbooks/benchmark_model.yml writes it."""
    return {
        "format": 1,
        "date": "2026-11-22T21:30:00Z",
        "mode": "full",
        "served_model_name": "gpt-oss-120b",
        "stack": "current",
        "vllm": "0.32.0",
        "executor": "ray",
        "quantization": "mxfp4",
        "nodes": 2,
        "tensor": 2,
        "pipeline": 1,
        "drivers": {"spark1": "580.142", "spark2": "580.142"},
        "findings": [],
        "args": ["--api-key", KEY],
        "roofline_tokens_per_second": 54.6,
        "published_tokens_per_second": [48, 55.4],
        "runs": [measured(1, 46.5), measured(8, 221.2), measured(32, 625.6), measured(1, 38.0, input_tokens=16384)],
        **changes,
    }


def faulty() -> list[Facts]:
    """Return a pair with a wrong MTU, a dead rail, another vLLM, a wrong clock and a path without reply."""
    nodes = pair()
    facts = nodes[1]["facts"]
    facts["interfaces"][RAIL]["mtu"] = 1500
    facts["interfaces"][TWIN]["carrier"] = False
    facts["packages"]["vllm"] = "0.31.0"
    facts["clock"] = NOW - 300
    nodes[0]["paths"] = [path("spark2", "no reply")]
    return nodes


def path(peer: str, reported: str) -> dict[str, Any]:
    return {"interface": RAIL, "peer": peer, "address": "10.110.0.2", "mac": "", "reported": reported, "small": False}


def records(**changes: Any) -> dict[str, Any]:
    documents = {"b/gpt-oss-120b-20261122T213000Z.json": json.dumps(benchmark())}
    return {"golden": json.dumps(GOLDEN), "benchmarks": documents, "matrix": json.dumps(MATRIX), **changes}


def page(
    nodes: list[Facts],
    groups: Sequence[str] = GROUPS,
    waivers: dict[str, str] | None = None,
    cluster: str = "two-spark",
    quick: bool = False,
    **changes: Any,
) -> str:
    values = report.page(verified(nodes), groups, waivers or {}, records(**changes))
    return html_page.rendered({**values, "cluster": cluster, "quick": quick})


def probed() -> list[Facts]:
    """Return a pair with other GPU code and a wrong result of a kernel on the second node, and a log with a finding."""
    nodes = pair()
    nodes[1]["facts"]["kernels"]["extensions"]["vllm/_moe_C_stable_libtorch"] = {
        "native": 0,
        "same_major": 0,
        "ptx": 0,
        "none": 28,
    }
    for process in nodes[0]["facts"]["evidence"]["processes"][1:]:
        process["found"]["network"] = ["Socket"]
    for number, node in enumerate(nodes):
        state = {"state": "failed", "cause": "wrong_result"} if number else {"state": "passed", "cause": ""}
        fields = {"error": 0.25, "bound": 0.02, "seconds": 1.0, "message": ""}
        node["probe"] = [{"name": name, "state": "passed", "cause": "", **fields} for name in gpu_probe.CHECKS][1:]
        node["probe"].insert(0, {"name": next(iter(gpu_probe.CHECKS)), **state, **fields})
    return nodes


PAGES: dict[str, Callable[[], str]] = {
    "a pair with findings": lambda: page(faulty(), waivers={"clock-wrong": "a test"}),
    "a probe with findings": lambda: page(probed()),
    "a ring of three": lambda: page(healthy(3, ring=True)),
    "eight on a switch": lambda: page(healthy(8), quick=True, groups=["fabric"]),
    "one node": lambda: page(pair()[:1], golden=None, benchmarks={}),
    "no node was read": lambda: page([{**node, "facts": {}, "unreachable": "no route"} for node in pair()]),
    "another tool's cluster": lambda: page(pair("foreign")),
    "the laboratory": lambda: page(pair("lab")),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_well_formed_and_loads_nothing(name: str) -> None:
    text = PAGES[name]()
    found = parsed(text)
    assert found.problems == []
    assert found.count("script", "img", "iframe", "link", "object", "embed", "form", "base", "image", "use") == 0
    assert not any(
        attribute.startswith("on") or attribute in ("src", "style", "srcset")
        for _tag, given in found.elements
        for attribute in given
    )
    assert not re.search(r"@import|url\(|javascript:|data:", text)
    assert found.elements[0] == ("html", {"lang": "en"})
    ids = found.values("id")
    assert len(set(ids)) == len(ids)
    for target in found.values("href"):
        assert target.startswith(f"{report.REPOSITORY}/blob/main/docs/") or (target[1:] in ids and target[0] == "#"), (
            target
        )
    for names in found.values("aria-labelledby"):
        assert set(names.split()) <= set(ids)
    levels = [int(tag[1]) for tag, _given in found.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and levels.count(1) == 1, "headings go down one level at a time"
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_policy_allows_only_the_style_of_the_page() -> None:
    text = page(pair())
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    given = [given["content"] for _tag, given in parsed(text).elements if "http-equiv" in given]
    assert given == [policy]


def test_the_documentation_is_that_of_the_package() -> None:
    assert load_yaml(read("galaxy.yml"))["repository"] == report.REPOSITORY


def test_findings_come_first_errors_before_warnings() -> None:
    text = page(faulty(), waivers={"packages-differ": "a test of 0.31"})
    found = parsed(text)
    # The next sections follow in the order of the issue.
    assert re.findall(r'<h2 id="([\w-]+)">', text) == [
        "findings",
        "cluster",
        "differences-between-nodes",
        "gpu-code",
        "evidence-from-the-log",
        "golden-answers",
        "benchmarks",
        "versions-and-state",
        "how-this-page-was-made",
    ]
    assert re.findall(r'id="finding-([\w-]+)"', text) == [
        "rail-down",
        "rail-mtu",
        "mtu-differs",
        "rail-path",
        "clock-wrong",
        "packages-differ",
    ]
    assert "Worst severity: error (4 errors, 1 warning), 1 waived" in found.text
    assert "<title>two-spark: 4 errors, 1 warning, 2026-11-22 21:30 UTC</title>" in text
    for check in CHECKS:
        if check.id == "rail-mtu":
            assert all(part in found.text for part in (check.expected, check.why, check.fix))
    assert "spark2 enp1s0f1np1 has MTU 1500, but /etc/netplan/60-gb10-qsfp.yaml sets 9000" in found.text
    assert "Waived because a test of 0.31" in found.text


def overview() -> str:
    """Return the page of a pair with a URL for clients, load and a watchdog."""
    nodes = pair()
    nodes[0]["endpoint"] = "https://spark.example.com:8000/v1"
    nodes[0]["facts"]["api"] |= {"tokens_per_second": 31.5, "running": 2.0}
    watchdog = {"active": True, "head": True, "mode": "report", "armed": True, "last_alarm": "", "restarts": 0}
    nodes[0]["facts"]["watchdog"] = watchdog
    return page(nodes)


def incomplete() -> str:
    """Return the page of nodes with a log that was not read completely."""
    nodes = probed()
    nodes[0]["facts"]["evidence"]["complete"] = False
    return page(nodes)


def single() -> str:
    document = benchmark(runs=[measured(1, 46.5)], findings=["too slow"])
    return page(pair(), benchmarks={"a.json": json.dumps(document)}, matrix=json.dumps({**MATRIX, "finished": False}))


HEALTHY = (
    f"{SYMBOLS['']} All {len(CHECKS)} checks passed",
    "No finding.",
    "No compared attribute differs between the nodes.",
)
#: Pages, and the visible text of each.
SHOWN: dict[str, tuple[Callable[[], str], Sequence[str]]] = {
    "three healthy nodes": (lambda: page(healthy(3, ring=True)), HEALTHY),
    "eight healthy nodes": (lambda: page(healthy(8)), HEALTHY),
    "a healthy pair": (
        lambda: page(pair()),
        [
            *HEALTHY,
            "Verified on 2026-11-22 21:30 UTC: 2 of 2 nodes read, all groups of checks ",
            "All answers agree with the record. Model openai/gpt-oss-120b mxfp4 Run 2026-11-22 (vLLM 0.32.0) Record "
            "2026-11-01 (vLLM 0.31.0) Answers 6 equal, 1 near, 0 different Perplexity of the known text 4.231 (record "
            "4.228) Accepted draft tokens 0.71",
            "One request at a time: 48.3 tokens/s, 88 % of 54.6, the upper bound by memory bandwidth; published: 48 "
            "to 55.4",
            "2026-11-22T21:30:00Z: mode full, stack current, vLLM 0.32.0, executor ray",
            "by requests at the same time. 1024 + 256 tokens: 46.5 at 1, 221.2 at 8, 625.6 at 32; 16384 + 256 tokens: 38 "
            "at 1.",
            "too-large it does not fit",
        ],
    ),
    "a partial verification": (
        lambda: page(pair(), groups=["fabric", "nccl"], quick=True),
        [
            "2 of 2 nodes read, only fabric, nccl, without slow checks ",
            "Left out hardware, runtime, serving, security; packets over each rail",
        ],
    ),
    "a probe with findings": (lambda: page(probed()), ["extension native same major PTX none"]),
    "the overview": (
        overview,
        [
            "API https://spark.example.com:8000/v1 (answers in 200 ms)",
            "Load 31.5 tokens/s, 2 requests running, 0 waiting",
            "Watchdog report, armed, no alarm, no restart in the last hour",
        ],
    ),
    "other records": (single, ["too slow", "interrupted: a further run"]),
    "messages of golden answers": (
        lambda: page(pair(), golden=json.dumps({**GOLDEN, "errors": ["chat: token 3 differs"]})),
        ["The golden answers failed.", "error chat: token 3 differs"],
    ),
    "records that are none": (
        lambda: page(pair(), golden="{", matrix="[]", benchmarks={"a/b.json": "{"}),
        ["The file of the last result is ignored: ", "benchmark_all.json is ignored: ", "b.json is ignored: "],
    ),
}


@pytest.mark.parametrize(("make", "texts"), SHOWN.values(), ids=SHOWN)
def test_the_page_shows(make: Callable[[], str], texts: Sequence[str]) -> None:
    found = parsed(make())
    assert [each for each in texts if each not in found.text] == []
    assert found.problems == []


#: Pages, and parts of their markup without the titles of columns.
MARKED: dict[str, tuple[Callable[[], str], Sequence[str]]] = {
    "GPU code, kernels and log": (
        lambda: page(probed()),
        [
            "<caption>spark1 (12.1)</caption>",
            "<caption>spark2 (12.1)</caption>",
            '<th scope="row">vllm/_flashmla_C (no code)</th><td>0</td><td>0</td><td>0</td><td>53</td></tr>',
            '<th scope="row">vllm/_C_stable_libtorch</th><td>0</td><td>85</td><td>6</td><td>20</td></tr>',
            '<span class="error">\N{MULTIPLICATION X} wrong result (deviation 0.25, bound 0.02)</span>',
            '<td><a href="#finding-log-nccl-socket">log-nccl-socket</a></td>',
            '<th scope="row">the log reports the size of the KV cache</th><td><span class="good">\N{CHECK MARK} '
            "passed</span></td>",
            '<th scope="row">attention backend</th><td>TRITON_ATTN</td>',
            '<th scope="row">network of NCCL</th><td>Socket</td>',
            # Only the head has a log with Ray.
            '<th scope="col">attribute</th><th scope="col">spark1</th></tr></thead><tbody>\n<tr><th scope="row">vLLM',
        ],
    ),
    "a log that was read in part": (
        incomplete,
        ["<td>not checked: not all messages of spark1</td>"],
    ),
    "equal nodes and the matrix": (
        lambda: page(pair()),
        [
            "<caption>spark1, spark2 (12.1)</caption>",
            '<th scope="col">model</th><th scope="col">1 at once, 1024 + 128</th><th scope="col">8 at once, 1024 + 128'
            '</th><th scope="col">1 at once, 16384 + 128</th>',
            # Each column has its own scale.
            '<th scope="row">gpt-oss-120b</th><td><span class="h2">46.5</span></td><td><span class="h5">221.2'
            "</span></td><td>-</td>",
            '<th scope="row">qwen3-30b-a3b</th><td><span class="h5">93.0</span></td><td><span class="h0">'
            '10.0</span></td><td><span class="h5">60.0</span></td>',
        ],
    ),
    "differences": (
        lambda: page(faulty()),
        [
            f'href="{report.REPOSITORY}/blob/main/docs/verification.md#rail-mtu"',
            '<th scope="row">vllm</th><td>0.32.0</td><td>0.31.0</td><td><a href="#finding-packages-differ">'
            "packages-differ</a></td>",
            '<th scope="row">torch</th><td colspan="2">2.9.1 (all nodes)</td>',
        ],
    ),
}


@pytest.mark.parametrize(("make", "parts"), MARKED.values(), ids=MARKED)
def test_the_page_has(make: Callable[[], str], parts: Sequence[str]) -> None:
    text = re.sub(' data-label="[^"]*"', "", make())
    assert [each for each in parts if each not in text] == []


def test_each_table_and_plot_is_there_once() -> None:
    text = page(probed())
    assert text.count("<caption>spark1 (12.1)</caption>") == 1 == text.count("<caption>spark2 (12.1)</caption>")
    assert text.partition('id="evidence-from-the-log"')[0].count("passed") == 2 * len(gpu_probe.CHECKS) - 1
    assert report.MESSAGES.keys() == MESSAGES.keys()
    found = parsed(page(pair()))
    assert (found.count("figure"), "interrupted" in found.text) == (2, False)
    assert parsed(single()).count("figure") == 0
    assert "127.0.0.1" not in parsed(overview()).text


def test_a_plot_has_a_place_for_each_value() -> None:
    runs = [measured(number, tokens) for number, tokens in ((32, 800.0), (1, 0.0), (4, 200.0))]
    text = page(pair(), benchmarks={"a.json": json.dumps(benchmark(runs=runs))})
    # The positions are in the order of the numbers, and a larger value is higher.
    assert '<polyline points="64.0,200.0 240.0,152.5 416.0,10.0"' in text
    assert re.findall(r'text-anchor="end">([\d.]+)<', text)[:5] == ["0", "200", "400", "600", "800"]
    assert "requests at the same time. 1024 + 256 tokens: 0 at 1, 200 at 4, 800 at 32." in text


def test_sections_without_data_are_left_out() -> None:
    nodes = pair()
    for node in nodes:
        node["facts"] |= {"kernels": None, "evidence": None}
    text = page(nodes, matrix=None)
    assert not re.search(r'id="(gpu-code|evidence-from-the-log)"|href="#gpu-code"', text)
    assert "All models" not in text and 'class="scroll figures names heat"' not in text


@pytest.mark.parametrize(
    "rows", [None, [], [7], [{"name": 7, "runs": [{"concurrency": "x", "tokens_per_second": -1}]}]]
)
def test_an_edited_matrix_is_no_error(rows: Any) -> None:
    found = parsed(page(pair(), matrix=json.dumps({**MATRIX, "rows": rows})))
    assert found.problems == [] and "All models" in found.text


WARNING, ERROR = ["chat: the same token 18 times in a row"], ["chat: token 3 differs"]
PASSED = f"All {len(CHECKS)} checks passed"


@pytest.mark.parametrize(
    ("changes", "status", "words", "verdict"),
    [
        ({}, "", "All answers agree with the record.", ("", "")),
        (
            {"different": 2, "errors": ERROR, "warnings": WARNING},
            "error",
            "The golden answers failed.",
            ("error", "failed"),
        ),
        (
            {"warnings": WARNING},
            "warning",
            "All answers agree with the record, but with 1 warning.",
            ("warning", "have 1 warning"),
        ),
        ({"answers": 0}, "", "No answer was compared.", ("", "")),
        (
            {"record_date": None, "equal": 0, "near": 0},
            "warning",
            "7 answers without a record: nothing was compared.",
            ("", ""),
        ),
        (
            {"record_date": None, "warnings": WARNING * 2},
            "warning",
            "7 answers without a record: nothing was compared, 2 warnings.",
            ("warning", "have 2 warnings"),
        ),
    ],
)
def test_the_state_of_the_golden_answers(
    changes: dict[str, Any], status: str, words: str, verdict: tuple[str, str]
) -> None:
    text = page(pair(), golden=json.dumps({**GOLDEN, **changes}))
    assert f'<p><span class="{status or "good"}">{SYMBOLS[status]} {words}</span></p>' in text
    told = f", the last golden answers {verdict[1]}" if verdict[1] else ""
    assert f'<p class="status {verdict[0] or "good"}">{SYMBOLS[verdict[0]]} {PASSED}{told}</p>' in text


def test_the_banner_has_the_worst_severity() -> None:
    text = page(faulty(), golden=json.dumps({**GOLDEN, "warnings": WARNING}))
    words = "Worst severity: error (5 errors, 1 warning), the last golden answers have 1 warning"
    assert f'<p class="status error">{SYMBOLS["error"]} {words}</p>' in text
    assert (
        "<title>two-spark: 5 errors, 1 warning, the last golden answers have 1 warning, 2026-11-22 21:30 UTC</title>"
        in text
    )
    assert f'<p class="status good">{SYMBOLS[""]} {PASSED}</p>' in page(pair())


def test_the_figures_of_the_golden_answers() -> None:
    text = page(pair(), golden=json.dumps({**GOLDEN, "perplexity": "low", "record_date": None, "vllm": None}))
    assert (
        "Model openai/gpt-oss-120b mxfp4 Run 2026-11-22 Record none Answers 7, not compared Accepted draft tokens 0.71 "
        in parsed(text).text
    )


@pytest.mark.parametrize("runs", [None, [], 7])
def test_a_benchmark_has_runs(runs: Any) -> None:
    text = page(pair(), benchmarks={"a/b.json": json.dumps(benchmark(runs=runs))})
    assert "b.json is ignored: it has no runs." in text


def test_the_newest_benchmark_of_each_model_is_on_the_page() -> None:
    files = "x/a-20261101T000000Z.json x/a-20261102T000000Z.json x/b-c-20261103T000000Z.json x/n.json x/a-20261109T000000Z.svg"
    assert benchmark_report.newest(files.split()) == ["x/b-c-20261103T000000Z.json", "x/a-20261102T000000Z.json"]


HOSTILE = (
    "</td><script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\u2066\x00\x1b[31m\ud800 {{ 7 }} " + "&lt;" * 2
)


def planted(value: Any, text: str) -> Any:
    """Add text to each string that is no address, interface or unit, on which the checks depend."""
    if isinstance(value, dict):
        return {key: planted(each, text) for key, each in value.items()}
    if isinstance(value, list):
        return [planted(each, text) for each in value]
    return value + text if isinstance(value, str) and value else value


#: Facts that are free text, or that another program could choose.
FREE = """
error kernel boot product bios firmware packages files images cuda_libraries nccl nccl_installed evidence environments
gpu firewalls rank_users ranks runtime unread disks processes services listeners
""".split()


def hostile(text: str) -> str:
    """Return a page with a text in all facts, records and names."""
    nodes = faulty()
    for node in nodes:
        facts = node["facts"]
        facts |= {name: planted(facts[name], text) for name in FREE}
        kernels = facts["kernels"]
        kernels["extensions"] = {f"{name}{text}": each for name, each in kernels["extensions"].items()}
        kernels["capability"] += text
        facts |= {"unread": {f"disks{text}": text}, "unreadable": [{"file": f"/etc/netplan/{text}", "reason": text}]}
        facts["interfaces"][RAIL]["hca"] += text
        probe = {"name": "cuda", "state": "failed", "cause": "error", "error": None, "bound": 0.0, "message": text}
        node |= {"name": node["name"] + text, "probe": [probe]}
    nodes[0]["facts"]["api"] |= {"model": text, "reason": text, "url": f"http://127.0.0.1/{text}:8000"}
    nodes[0]["paths"] = [{key: f"{value}{text}" for key, value in nodes[0]["paths"][0].items()}]
    nodes.append({**pair()[1], "name": f"spark3{text}", "facts": {}, "unreachable": text})
    rows = [{**row, "name": text, "problem": text} for row in MATRIX["rows"]]
    return page(
        nodes,
        cluster=text,
        waivers={"clock-wrong": text},
        golden=json.dumps(planted({**GOLDEN, "errors": [text], "warnings": [text]}, text)),
        benchmarks={f"b/{text}.json": "{", "c.json": json.dumps(planted(benchmark(findings=[text]), text))},
        matrix=json.dumps({**MATRIX, "date": text, "rows": rows}),
    )


def test_planted_markup_is_text() -> None:
    text = hostile(HOSTILE)
    found = parsed(text)
    assert found.problems == []
    assert {tag for tag, _given in found.elements} == {
        tag for make in PAGES.values() for tag, _given in parsed(make()).elements
    }
    assert not any(attribute.startswith("on") for _tag, given in found.elements for attribute in given)
    assert text.count("alert(1)") > 40, "the text is planted"
    assert all(character.isprintable() or character == "\n" for character in text)
    text.encode("utf-8")


def test_keys_and_digests_are_not_in_the_page() -> None:
    forms = ("sk-", "sk_live_", "gsk_", "pplx-", "npm_", "Bearer ", "Basic ")
    for key in (KEY, *(form + "x" * 20 for form in forms), "0123456789abcdef" * 2, "aB3" * 12):
        text = hostile(f" {key} ")
        assert key not in text and key[:20] not in text
    assert "hmac:" not in page(faulty())


def test_no_own_text_looks_like_a_key() -> None:
    for check in CHECKS:
        for text in (check.expected, check.why, check.fix):
            assert clean(text) == text


def test_sizes_are_bounded() -> None:
    nodes = [dict(pair()[1], name=f"spark{number}") for number in range(40)]
    nodes[0]["paths"] = [path(f"spark{number}", "y" * 100) for number in range(3000)]
    text = page(nodes, benchmarks={f"{number}.json": json.dumps(benchmark()) for number in range(50)})
    found = parsed(text)
    assert len(text) < 2_000_000 and found.problems == []
    assert (
        "and 2700 more" in found.text
        and "The drawing has the first 16 of 40 nodes." in found.text
        and "38 older ones are left out." in found.text
    )
    assert len(hostile("x" * 10**5)) < 2_000_000


@generate(st.text())
def test_any_text_stays_text(text: str) -> None:
    found = Page()
    found.feed(html_page.environment().from_string('<p title="{{ it }}">{{ it }}</p>').render(it=text))
    shown = clean(text)
    assert "".join(found.words) == shown
    assert found.elements == [("p", {"title": shown})] and found.problems == []


def test_long_text_is_cut() -> None:
    assert clean("a" * 10, 4) == "aaaa\N{HORIZONTAL ELLIPSIS}"
    assert clean("a\t\n b") == "a b"
    assert clean(f"x {KEY}", 10) == "x KEY"


def luminance(color: str) -> float:
    parts = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


STYLE = read("roles/verify/templates/report.css")
COLORS = re.findall(r"--(\w+):light-dark\((#\w{6}),(#\w{6})\)", STYLE)


def mixed(color: str, ground: str, percent: int) -> str:
    channels = [[int(each[place : place + 2], 16) for each in (color, ground)] for place in (1, 3, 5)]
    return "#" + "".join(f"{round((percent * one + (100 - percent) * other) / 100):02x}" for one, other in channels)


@pytest.mark.parametrize("scheme", [1, 2], ids=["light", "dark"])
def test_the_contrast_of_each_color_is_readable(scheme: int) -> None:
    """WCAG 2.2, level AA: 4.5 to 1. In a heat map the text is on each shade."""
    colors = {each[0]: each[scheme] for each in COLORS}
    parts = [int(part) for part in re.findall(r"\.h\d\{background:color-mix\(in srgb,var\(--s0\) (\d+)%", STYLE)]
    assert len(colors) == 13 and len(parts) == 6
    pairs = [(colors["text"], mixed(colors["s0"], colors["page"], part)) for part in parts]
    pairs += [
        (colors[name], colors[on]) for on in ("page", "panel") for name in colors.keys() - {"page", "panel", "line"}
    ]
    for color, ground in pairs:
        low, high = sorted((luminance(color), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (color, ground)


def test_a_narrow_window_shows_each_table_as_a_list_with_the_titles_of_its_columns() -> None:
    text = page(faulty())
    for body in re.findall("<tbody>.*?</tbody>", text, re.DOTALL):
        assert all(' data-label="' in cell or " colspan=" in cell for cell in re.findall("<td[^>]*>", body))
    assert '<td data-label="spark2">0.31.0</td>' in text
    assert '<th scope="row" data-label="at once">8</th>' in text
    narrow = STYLE.partition("@media screen and (max-width:37.5rem){")[2].partition("\n}\n")[0]
    assert "thead{display:none}" in narrow and "content:attr(data-label)" in narrow
    assert ".diagram svg{display:block;max-width:100%;height:auto}" in STYLE


def test_a_rail_that_no_check_reads_is_not_drawn_as_checked() -> None:
    nodes = pair()
    for interface in nodes[0]["facts"]["interfaces"].values():
        interface["driver"] = "veth"
    drawn = page(nodes)
    assert drawn.count(">not a ConnectX:</text>") == drawn.count(">not checked</text>") == 2
    assert ">not checked</text>" not in page(pair())
