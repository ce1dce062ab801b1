"""Reading a model before its download: the run that downloads it makes the same plan as every later run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import Node, cluster_plan, spark
from fake_hub import COMMIT, NAME, Hub
from hypothesis import given
from hypothesis import strategies as st
from json_values import nested
from overlaid import interpreter, permitted
from repository import ROOT
from run_module import program, run_module
from run_playbook import Run, run

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_files, io_hub, io_model
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan

CONFIG = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
SHARDS = {"model-00001-of-00002.safetensors": b"1" * 600, "model-00002-of-00002.safetensors": b"2" * 400}
INDEX = {
    "metadata": {"total_size": 30_500_000_000},
    "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
}
FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    "original/consolidated.safetensors": b"twice",
    "pytorch_model.bin": b"pickle",
    **SHARDS,
}
STORED = f"/opt/gb10/models/{NAME.replace('/', '--')}/main"
#: The default patterns of excluded files, as far as these tests need them.
EXCLUDE = ["original/*"]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The server at HF_ENDPOINT."""
    with Hub(FILES) as started:
        monkeypatch.setenv("HF_ENDPOINT", started.url)
        monkeypatch.setenv("NO_PROXY", "*")
        yield started
        started.shutdown()


def described(token: str = "", name: str = NAME, revision: str = "main") -> dict[str, Any]:
    return io_hub.describe(name, revision, token, EXCLUDE, 20)


def told(found: dict[str, Any] | None, trouble: str = "", refused: int = 0, name: str = NAME) -> dict[str, Any]:
    """Return a result of hub_model_info."""
    answer = {"name": name, "revision": "main", **(found or io_hub.NOTHING), "trouble": trouble, "refused": refused}
    return {"hub_model": answer}


def write(folder: Path) -> list[model_store_plan.File]:
    """Write the model to a folder, and return its files."""
    for path, content in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return [model_store_plan.File(path, len(content)) for path, content in FILES.items()]


def download(folder: Path) -> str:
    """Write the model to a folder as the role model_store does."""
    chosen = model_store_plan.chosen(write(folder), EXCLUDE)
    listing = model_store_plan.Manifest(NAME, "main", COMMIT, tuple(chosen))
    io_files.write_manifest(str(folder), listing.with_hashes(["1" * 64] * len(chosen)))
    return str(folder)


def read(folder: str, at: str = STORED) -> dict[str, Any]:
    """Return a result of node_info for a folder, with another path."""
    return {**io_model.planned_model(folder, "", []), "model_at": at}


NOT_THERE = {**io_model.NO_MODEL, "model_at": STORED}


def pair(head: dict[str, Any], worker: dict[str, Any] | None = None, source: str = "", **settings: Any) -> list[Node]:
    nodes = [spark(number, "worker" if number > 1 else "head", **{"gb10_model": NAME, **settings}) for number in (1, 2)]
    nodes[0]["settings"]["model_store_source"] = source
    for node, answer in zip(nodes, (head, NOT_THERE if worker is None else worker), strict=True):
        node["observed"].update(answer)
    return nodes


def planned(nodes: list[Node]) -> dict[str, Any]:
    plan, problems = cluster_plan(nodes)
    assert problems == []
    return plan


def test_the_plan_of_the_first_run_is_that_of_the_second(hub: Hub, tmp_path: Path) -> None:
    first = planned(pair({**NOT_THERE, **told(described())}))
    folder = download(tmp_path / "stored")
    second = planned(pair(read(folder), read(folder)))
    assert first == second
    assert first["quantization"] == "fp8"
    assert any(word.startswith("--kv-cache-memory-bytes=") for word in first["serve"]["args"])
    assert first["serve"]["warnings"] == planned(pair(read(folder)))["serve"]["warnings"], (
        "a worker without the model has no effect"
    )
    assert hub.asked == ["GET config.json", "GET model.safetensors.index.json"], "small files only"


def test_an_index_is_not_needed(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(FILES, "model.safetensors.index.json")
    del hub.files["model.safetensors.index.json"]
    stored = io_model.planned_model(download(tmp_path / "stored"), "", [])
    assert (described()["model_bytes"], stored["model_bytes"]) == (1000, 1000)


def test_a_folder_that_it_is_copied_from_counts_until_the_copy_is_complete(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "stored"
    write(source)
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    before = io_model.planned_model(str(folder), str(source), EXCLUDE)
    assert (before["model_at"], before["model_complete"], before["model_bytes"]) == (str(source), False, 30_500_000_000)
    download(folder)
    after = io_model.planned_model(str(folder), str(source), EXCLUDE)
    assert (after["model_at"], after["model_complete"]) == (str(folder), True)
    assert {**after, "model_at": "", "model_complete": False} == {**before, "model_at": ""}
    (folder / next(iter(SHARDS))).unlink()
    assert not io_model.planned_model(str(folder), str(source), EXCLUDE)["model_complete"]
    settings = {"source": str(source)}
    assert planned(pair(before, **settings)) == planned(pair({**after, "model_at": STORED}, **settings))


def test_files_that_are_not_copied_do_not_count(tmp_path: Path) -> None:
    for name in ("model.safetensors", "draft.safetensors", "config.json"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    assert io_model.planned_model(str(tmp_path / "none"), str(tmp_path), ["draft*"])["model_bytes"] == 2
    names = ("a.safetensors", ".b.safetensors", "c/d.safetensors", "e.bin")
    assert model_store_plan.weights([model_store_plan.File(name, 1) for name in names], []) == {"a.safetensors": 1}


@pytest.mark.usefixtures("hub")
def test_a_worker_with_all_of_it_comes_before_the_hub_and_a_partial_download_after_it(tmp_path: Path) -> None:
    folder = read(download(tmp_path / "stored"))
    assert planned(pair(NOT_THERE, folder)) == planned(pair(folder, folder))
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "num_key_value_heads": 2}), encoding="utf-8")
    partial, asked = read(str(tmp_path)), told(described())
    assert planned(pair({**partial, **asked})) == planned(pair({**NOT_THERE, **asked}))
    assert planned(pair({**partial, **told(None, "no")}))["quantization"] == "fp8", "it is the last resort"


@pytest.mark.usefixtures("hub")
def test_answers_about_another_model_do_not_count(tmp_path: Path) -> None:
    stored = {**read(download(tmp_path / "stored")), **told(described())}
    nothing = planned(pair(NOT_THERE, gb10_model="org/other"))
    assert planned(pair(stored, stored, gb10_model="org/other")) == nothing
    assert nothing["quantization"] == "unknown"
    own = {"gb10_model": "mine", "gb10_models": {"mine": {"hub": NAME, "revision": "v2"}}}
    assert planned(pair(stored, stored, **own))["quantization"] == "unknown"


def test_what_nobody_tells_is_a_warning_and_the_plan_stays_cautious() -> None:
    silent = {**NOT_THERE, **told(None, "127.0.0.1 does not respond: refused")}
    plan = planned(pair(silent))
    assert [word for word in plan["serve"]["args"] if "memory" in word] == ["--gpu-memory-utilization=0.79"]
    (warning,) = [line for line in plan["serve"]["warnings"] if "127.0.0.1" in line]
    failed = f"Hugging Face Hub could not be queried for {NAME} at main: 127.0.0.1 does not respond: refused; "
    assert warning.startswith(failed)
    assert "the plan uses cautious defaults" in warning
    (warning,) = [line for line in planned(pair(NOT_THERE, source="/mnt/m"))["serve"]["warnings"] if "/mnt/m" in line]
    assert warning.startswith("spark1 has no /mnt/m/config.json (model_store_source)")


@pytest.mark.parametrize(
    ("status", "name", "fix"),
    [
        (401, NAME, "accept its license on https://huggingface.co/org/tiny, and set model_store_hub_token"),
        (403, NAME, "model_store_hub_token"),
        (404, NAME, "its revision"),
        (401, "openai/gpt-oss-120", "perhaps use openai/gpt-oss-120b"),
        (401, "Openai/gpt-oss-20", "perhaps use openai/gpt-oss-20b"),
    ],
)
def test_a_model_that_cannot_be_downloaded_is_a_problem_before_any_change(status: int, name: str, fix: str) -> None:
    refused = {**NOT_THERE, **told(None, f"the Hub returned HTTP {status}", status, name)}
    _plan, (problem,) = cluster_plan(pair(refused, gb10_model=name))
    found = f"{name} at main cannot be downloaded: the Hub returned HTTP {status}"
    assert (problem.path, problem.found) == ("gb10_model", found)
    assert fix in problem.fix and ("perhaps" in problem.fix) is (name != NAME)


def test_a_refusal_of_another_model_or_of_a_download_by_vllm_is_no_problem() -> None:
    refused = {**NOT_THERE, **told(None, "no", refused=401)}
    assert planned(pair(refused, gb10_model="org/other"))
    nodes = pair(refused)
    for node in nodes:
        node["settings"]["model_store_enabled"] = False
    assert any("no" in line for line in planned(nodes)["serve"]["warnings"])


def test_the_catalog_counts_where_the_hub_is_silent() -> None:
    trouble = {
        "name": "openai/gpt-oss-120b",
        "revision": "b5c939de8f754692c1647ca79fbf85e8c1e70f8a",
        **io_hub.NOTHING,
        "trouble": "no",
    }
    plan = planned(pair({"model": None, "hub_model": trouble}, {"model": None}, gb10_model="gpt-oss-120b"))
    assert plan["serve"]["memory"]
    assert any("the plan uses the catalog entry" in line for line in plan["serve"]["warnings"])


@pytest.mark.usefixtures("hub")
def test_the_module_sets_the_environment_and_does_not_fail(tmp_path: Path, hub: Hub) -> None:
    environment = {"HF_ENDPOINT": hub.url, "NO_PROXY": "*"}
    given = {"name": NAME, "environment": environment, "record": str(tmp_path / "record.json"), "token": "hf_right"}
    hub.gated = True
    found = told(described("hf_right"))
    assert {"changed": False, **found}.items() <= run_module("hub_model_info", given, check=True).items()
    given["token"] = "hf_wrong"
    refused = run_module("hub_model_info", given, check=True)["hub_model"]
    assert refused == told(None, refused["trouble"], 403)["hub_model"]
    assert "with the token in model_store_hub_token (HTTP 403)" in refused["trouble"]


def test_what_was_told_before_counts_where_the_hub_is_silent(tmp_path: Path, hub: Hub) -> None:
    record = tmp_path / "record.json"

    def known(revision: str = "main") -> dict[str, Any]:
        return io_hub.known(NAME, revision, str(record), lambda: described(revision=revision))

    found = known()
    assert {"hub_model": found} == told(described())
    record.write_text(json.dumps(found), encoding="utf-8")
    hub.answer = b"{"
    assert known() == {**found, "trouble": "its response is invalid"}
    now, then = (planned(pair({**NOT_THERE, "hub_model": said}))["serve"] for said in (known(), found))
    assert (now["args"], now["why"]) == (then["args"], then["why"])
    assert any("the plan uses facts from an earlier read" in line for line in now["warnings"])
    assert known("v2")["model"] is None, "a record of another revision does not count"
    record.write_text(json.dumps({**found, "revision": COMMIT}), encoding="utf-8")
    assert known(COMMIT) == {**found, "revision": COMMIT}, "a commit does not change, so the Hub is not queried"
    hub.answer = b""
    for text in ("{", "[]", "{}", json.dumps({"name": NAME, "revision": COMMIT})):
        record.write_text(text, encoding="utf-8")
        assert known(COMMIT)["model"] == CONFIG


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"HTTP_PROXY": "{hub}"}, "hub.invalid denied access"),
        ({"ALL_PROXY": "{hub}"}, "hub.invalid denied access"),
        ({"HTTP_PROXY": "{hub}", "NO_PROXY": ".invalid"}, "hub.invalid does not respond"),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ({"REQUESTS_CA_BUNDLE": "/nowhere.pem"}, "/nowhere.pem cannot be read"),
    ],
)
def test_the_hub_is_reached_as_the_download_reaches_it(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], words: str
) -> None:
    hub.gated = True
    for name, value in {"HF_ENDPOINT": "http://hub.invalid", "NO_PROXY": "", **environment}.items():
        monkeypatch.setenv(name, value.format(hub=hub.url))
    with pytest.raises(io_hub.HubError, match=f"^{words}"):
        described()


def test_a_token_is_shown_to_the_hub_alone(hub: Hub) -> None:
    with Hub(FILES) as other:
        hub.elsewhere = other.url
        assert described("hf_right")["model"] == CONFIG
        assert (hub.shown, other.shown) == ({"Bearer hf_right"}, {None})
        other.shutdown()


def test_nobody_is_led_from_https_to_http() -> None:
    request = io_hub.urllib.request.Request("https://hub.invalid/a", headers={"Authorization": "Bearer x"})
    handler = io_hub._Redirects()
    with pytest.raises(OSError, match="from https to http"):
        handler.redirect_request(request, None, 302, "", None, "http://hub.invalid/a")  # type: ignore[arg-type]
    following = handler.redirect_request(request, None, 302, "", None, "https://hub.invalid/b")  # type: ignore[arg-type]
    assert following is not None
    assert following.has_header("Authorization")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"answer": b"{"}, "its response is invalid"),
        ({"answer": b"[]"}, "its response is invalid"),
        ({"answer": b"[" * 100_000}, "its response is invalid"),
        ({"answer": b'{"sha": "main", "siblings": []}'}, "its response contains no commit"),
        (
            {"answer": json.dumps({"sha": COMMIT, "siblings": [{"rfilename": "../x"}]}).encode()},
            "'../x' is not a valid relative path",
        ),
        (
            {"answer": json.dumps({"sha": COMMIT, "siblings": [{"rfilename": "README.md"}]}).encode()},
            "the model has no config.json",
        ),
        ({"files": {**FILES, "config.json": b"{"}}, "its config.json is not JSON"),
        ({"files": {**FILES, "config.json": b"[]"}}, "its config.json is not a JSON object"),
        ({"cut": {"config.json": 10}}, "127.0.0.1 closed the connection early"),
        ({"elsewhere": "ftp://127.0.0.1"}, "127.0.0.1 does not respond"),
        ({"elsewhere": "file:///etc/passwd#"}, "127.0.0.1"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_a_hub_says_wrong_is_told(hub: Hub, change: dict[str, Any], words: str) -> None:
    for name, value in change.items():
        setattr(hub, name, value)
    with pytest.raises(io_hub.HubError, match=words):
        described()


@pytest.mark.usefixtures("hub")
def test_what_is_asked_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, words, refused in (
        (("", NAME, "v2"), "no such revision of the model", 404),
        (("", "org/none", "main"), "private or nonexistent", 401),
        (("", "../../etc", "main"), "is not OWNER/NAME", 0),
        (("hf_\nX: y", NAME, "main"), "the token is not a single ASCII word", 0),
    ):
        with pytest.raises(io_hub.HubError, match=words) as caught:
            described(*arguments)
        assert (caught.value.refused, "hf_" in str(caught.value)) == (refused, False)
    monkeypatch.setitem(io_hub.FILES, "config.json", 100)
    with pytest.raises(io_hub.HubError, match=r"config.json has more than 100 bytes"):
        described()
    monkeypatch.setattr(io_hub, "_describe", lambda *_: io_hub.threading.Event().wait(5))
    with pytest.raises(io_hub.HubError, match="no complete response within 0 s"):
        io_hub.describe(NAME, "main", "", [], 0.1)


KEYS = st.sampled_from(["sha", "siblings", "rfilename", "size"])
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
JSON = nested(PLAIN, KEYS, max_size=3, max_leaves=8)
FILE = st.fixed_dictionaries({"rfilename": JSON, "size": JSON, "lfs": JSON, "blobId": JSON})


@given(JSON | st.fixed_dictionaries({"sha": st.just(COMMIT) | JSON, "siblings": st.lists(FILE, max_size=3) | JSON}))
def test_no_answer_of_a_hub_is_more_than_its_own_error(answer: Any) -> None:
    try:
        found = io_hub._listing(json.dumps(answer).encode(), NAME, "main")
    except io_hub.HubError:
        return
    assert model_store_plan.files_problem(asdict(found)["files"], hashed=False) == ""
    assert found.commit == COMMIT


def test_node_info_reads_the_folder_that_counts(tmp_path: Path) -> None:
    program(tmp_path / "bin", "ip", "echo '[]'")
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text("{}", encoding="utf-8")
    answer = run_module("node_info", {"model": str(tmp_path / "none"), "source": str(source)}, tmp_path / "bin")
    assert (answer["model"], answer["model_at"], answer["model_complete"]) == ({}, str(source), False)
    assert run_module("node_info", {}, tmp_path / "bin")["model_at"] == ""


class Planner:
    """Runs the role gb10 on this machine, as a node with fake programs of a Spark."""

    def __init__(self, folder: Path, hub: str) -> None:
        self.folder, self.root = folder, folder / "root"
        address = {"family": "inet", "local": "192.0.2.1", "prefixlen": 24}
        link = {"ifname": "eth0", "mtu": 1500, "flags": ["UP"], "addr_info": [address]}
        self.path = program(folder / "bin", "ip", f"echo '{json.dumps([link])}'")
        program(self.path, "nvidia-smi", SMI)
        local = {
            "ansible_connection": "local",
            "ansible_host": "192.0.2.1",
            "ansible_become": False,
            "ansible_python_interpreter": sys.executable,
        }
        stack = {"gb10_stack": "lab", "gb10_runtime_lock": str(ROOT / "inventories/lab/requirements.txt")}
        ours = {
            "gb10_model": NAME,
            "gb10_install_dir": str(self.root),
            "gb10_download_env": {"HF_ENDPOINT": hub, "NO_PROXY": "*"},
        }
        inventory = {"gb10_cluster": {"children": {"head": {"hosts": {"here": local}}}, "vars": {**stack, **ours}}}
        (folder / "hosts.yml").write_text(json.dumps(inventory), encoding="utf-8")

    def run(self, *arguments: str) -> tuple[dict[str, Any], Run]:
        """Run the planner; return the plan and the run."""
        answer = self.folder / "plan.json"
        given = ["--inventory", str(self.folder / "hosts.yml"), "--extra-vars", f"plan_file={answer}", *arguments]
        done = run("tests/integration/model/plan.yml", given, {"PATH": f"{self.path}:{os.environ['PATH']}"}).assert_ok()
        plan: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return plan, done


SMI = """case "$*" in
--query-gpu=name,compute_cap,*) echo "NVIDIA GB10, 12.1, 580.142, [N/A], GPU-1";;
"") echo "| CUDA Version: 13.0 |";;
*) exit 2;;
esac"""


@pytest.mark.slow
def test_the_role_plans_the_same_before_and_after_the_download(tmp_path: Path, hub: Hub) -> None:
    hub.gated = True
    planner = Planner(tmp_path, hub.url)
    token = ("--extra-vars", "model_store_hub_token=hf_right")
    first, done = planner.run(*token, "--check", "-vvv", "--diff")
    assert first["quantization"] == "fp8"
    assert "hf_right" not in done.output.replace("model_store_hub_token=hf_right", "")
    assert not planner.root.exists()
    download(Path(first["store"]["folder"]))
    hub.asked.clear()
    second, _done = planner.run()
    assert second == first
    assert hub.asked == [], "the node has the model"


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the record is root's")
def test_what_each_node_downloads_by_itself_is_kept(tmp_path: Path, hub: Hub) -> None:
    if not permitted(tmp_path / "probe"):
        pytest.skip("this machine does not permit overlay mounts")
    planner = Planner(tmp_path, hub.url)
    variables = {"ansible_python_interpreter": str(interpreter(tmp_path / "host")), "model_store_enabled": False}
    given = ["--inventory", str(tmp_path / "hosts.yml"), "--extra-vars", json.dumps(variables), "--tags", "model_store"]
    done = run("site.yml", given, {"PATH": f"{planner.path}:{os.environ['PATH']}"}).assert_ok()
    assert done.changed_tasks() == {"Save the model information from Hugging Face Hub"}
    record = (tmp_path / "host/etc/gb10/hub-model.json").read_text(encoding="utf-8")
    assert json.loads(record) == told(described())["hub_model"]
