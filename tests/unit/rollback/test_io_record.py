"""The records on a node: stored once, pruned and restored; and the modules."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import launches
import pytest
import start_logs
from launches import PLAN, UNIT, put, record, runtime, with_arguments
from run_module import program, run_module
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.common.paths import API_KEY
from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_parse
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record

ADDED = "/etc/gb10/overrides.d/vllm_patch.json"
KEY = "/etc/gb10/tls/api.key"
SECRETS = {KEY: rollback_record.File("SECRET", 0o600)}
OLD, NEW = record(time="2026-11-21 10:00:00"), record("new\n", time="2026-11-22 10:00:00", plan=with_arguments("--a"))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "gb10/records")


def save(folder: str, each: rollback_record.Record, keep: int = 20, secrets: io_record.Files | None = None) -> bool:
    return io_record.save(io_record.read(folder), each, keep, secrets or {}, True)


def test_a_launch_is_recorded_once(folder: str) -> None:
    assert save(folder, OLD)
    path = Path(folder, f"{OLD.id}.json")
    text = path.read_text(encoding="utf-8")
    assert (path.stat().st_mode & 0o777, Path(folder).stat().st_mode & 0o777) == (0o600, 0o700)
    assert not save(folder, dataclasses.replace(OLD, time="2026-11-23 10:00:00"))
    assert path.read_text(encoding="utf-8") == text
    assert str(Path(folder, "current").readlink()) == f"{OLD.id}.json"


CHOSEN = [{"process": "Worker_TP0", "address": "", "found": {"attention": ["TRITON_ATTN"]}}]


def test_the_choices_belong_to_the_launch_inputs(folder: str) -> None:
    with_inputs = record("[Service]\nEnvironment=GB10_INPUTS=abc\n")
    assert io_record.choices(folder, "abc") == []
    save(folder, dataclasses.replace(with_inputs, choices=CHOSEN))
    assert [io_record.choices(folder, inputs) for inputs in ("abc", "ab", "")] == [CHOSEN, [], []]
    # The record is written again, when the log is gone.
    assert save(folder, with_inputs, secrets=SECRETS)
    assert io_record.choices(folder, "abc") == CHOSEN


def test_a_new_launch_becomes_the_current_record_with_its_parent(folder: str) -> None:
    save(folder, OLD)
    assert save(folder, NEW)
    store = io_record.read(folder)
    assert (store.current, store.found[NEW.id].parent, store.found[OLD.id].parent) == (NEW.id, OLD.id, "")
    assert io_record.start_id(store) == NEW.content["start"]["id"]
    # The first launch again: now it follows the second.
    assert save(folder, OLD)
    assert io_record.read(folder).found[OLD.id].parent == NEW.id


def test_a_selected_record_keeps_its_parent(folder: str) -> None:
    save(folder, OLD)
    save(folder, NEW)
    # What a killed run left.
    Path(folder, "current.part").symlink_to("x.json")
    io_record.select(io_record.read(folder), OLD.id, {})
    store = io_record.read(folder)
    assert (store.current, store.found[OLD.id].parent, store.found[NEW.id].parent) == (OLD.id, "", OLD.id)


def test_old_records_are_removed_but_not_the_current_one_and_its_parent(folder: str) -> None:
    many = [record(f"{number}\n", time=f"2026-11-22 10:00:0{number}") for number in range(5)]
    for each in many:
        save(folder, each, keep=1)
    assert io_record.read(folder).found.keys() == {many[3].id, many[4].id}


def test_secret_files_are_kept_apart_for_the_current_record_only(folder: str) -> None:
    save(folder, OLD, secrets=SECRETS)
    assert all("SECRET" not in path.read_text(encoding="utf-8") for path in Path(folder).glob("*.json"))
    apart = Path(folder).parent / "record_secrets.json"
    assert "SECRET" in apart.read_text(encoding="utf-8") and apart.stat().st_mode & 0o777 == 0o600
    store = io_record.read(folder)
    assert io_record.wanted(store, store.found[OLD.id])[KEY] == SECRETS[KEY]
    assert save(folder, OLD, secrets={KEY: rollback_record.File("RENEWED", 0o600)})
    assert not save(folder, OLD, secrets={KEY: rollback_record.File("RENEWED", 0o600)})
    save(folder, NEW)
    store = io_record.read(folder)
    assert KEY not in io_record.wanted(store, store.found[OLD.id])


@pytest.mark.parametrize("left", [None, "", "{}", "[1", '{"/etc/gb10/tls/api.key": 1}'])
def test_a_lost_copy_of_the_secret_files_removes_none_of_them(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str | None
) -> None:
    put(tmp_path, KEY, "SECRET", 0o600)
    monkeypatch.setattr(io_record, "present", lambda names, of=io_record.present: of(names, str(tmp_path)))
    launch = record(secret_files=[KEY])
    save(folder, launch, secrets=SECRETS)
    copy = Path(folder).parent / "record_secrets.json"
    copy.unlink() if left is None else copy.write_text(left, encoding="utf-8")
    store = io_record.read(folder)
    files = io_record.wanted(store, store.found[launch.id])
    assert files[KEY] == SECRETS[KEY]
    assert io_record.differences(files, io_record.present((*files, *rollback_record.SECRET_FILES))) == sorted(
        launches.files("unit\n")
    )


def test_files_come_back_as_they_were(tmp_path: Path) -> None:
    root = str(tmp_path)
    for name in rollback_record.FILES:
        put(tmp_path, name, f"old {name}")
    old = io_record.launch_files(root)
    assert io_record.units(old) == ["gb10-ray.service", "gb10-vllm.service"]
    # Another executor and another model: one file is removed, one changed, one new.
    ray = "/etc/systemd/system/gb10-ray.service"
    Path(f"{root}{ray}").unlink()
    put(tmp_path, UNIT, "new")
    put(tmp_path, ADDED, "{}")
    differs = io_record.differences(old, io_record.launch_files(root))
    assert differs == sorted([ADDED, ray, UNIT])
    io_record.restore(old, differs, root)
    assert io_record.launch_files(root) == old


def node_files(root: Path) -> io_record.Files:
    return io_record.launch_files(str(root)) | io_record.present(rollback_record.SECRET_FILES, str(root))


@pytest.mark.parametrize("now", ["another", "none"])
def test_the_api_key_comes_back_with_the_launch_that_needs_it(folder: str, tmp_path: Path, now: str) -> None:
    """The run changes or removes the key before the launch, and the old unit does not start without its file."""
    for name, file in launches.files("unit\n").items():
        put(tmp_path, name, file.text, file.mode)
    for name in API_KEY:
        put(tmp_path, name, f"SECRET {name}", 0o600)
    old = node_files(tmp_path)
    save(folder, OLD, secrets=io_record.present(rollback_record.SECRET_FILES, str(tmp_path)))
    assert "SECRET" not in Path(folder, f"{OLD.id}.json").read_text(encoding="utf-8")
    for name in API_KEY:
        if now == "none":
            Path(f"{tmp_path}{name}").unlink()
        else:
            put(tmp_path, name, "new", 0o600)
    store = io_record.read(folder)
    files = io_record.wanted(store, io_record.stored(store, ""))
    differs = io_record.differences(files, node_files(tmp_path))
    assert differs == sorted(API_KEY)
    io_record.restore(files, differs, str(tmp_path))
    assert node_files(tmp_path) == old


def test_a_record_without_a_copy_of_the_api_key_does_not_remove_it(folder: str, tmp_path: Path) -> None:
    save(folder, OLD)
    for name, file in {**launches.files("unit\n"), **dict.fromkeys(API_KEY, SECRETS[KEY])}.items():
        put(tmp_path, name, file.text, file.mode)
    store = io_record.read(folder)
    assert io_record.differences(io_record.wanted(store, io_record.stored(store, "")), node_files(tmp_path)) == []


def test_damaged_records_are_reported_and_not_used(folder: str) -> None:
    save(folder, OLD)
    for name, text in {"a": "[", "b": "{}", "0" * 64: rollback_record.text(OLD)}.items():
        Path(folder, f"{name}.json").write_text(text, encoding="utf-8")
    store = io_record.read(folder)
    assert (store.found.keys(), store.invalid.keys()) == ({OLD.id}, {"a", "b", "0" * 64})
    assert "is not JSON" in store.invalid["a"] and "SHA-256 of its name" in store.invalid["0" * 64]
    Path(folder, f"{OLD.id}.json").write_text("[", encoding="utf-8")
    assert io_record.start_id(io_record.read(folder)) == ""
    assert save(folder, OLD) and io_record.start_id(io_record.read(folder)) == OLD.content["start"]["id"]


@pytest.mark.parametrize(
    ("lost", "fix"),
    [("runtime/.complete", "gb10_stack"), ("model/config.json", "gb10_model"), ("nccl.so", "nccl_sm121_build_version")],
)
def test_missing_items_are_found(tmp_path: Path, lost: str, fix: str) -> None:
    each = record(plan=runtime(tmp_path))
    assert io_record.missing(unused, each) == []
    (tmp_path / lost).write_text("other", encoding="utf-8") if lost.endswith(".so") else (tmp_path / lost).unlink()
    found = io_record.missing(unused, each)
    assert len(found) == 1 and f"Fix: {fix}: " in found[0]


def unused(argv: Any, **_options: Any) -> Any:
    raise AssertionError(argv)


@pytest.mark.parametrize("answer", [(1, "", "Error: No such image"), (127, "", "")])
def test_a_missing_image_is_found(tmp_path: Path, answer: tuple[int, str, str]) -> None:
    plan = runtime(tmp_path)
    plan["runtime"] |= {"kind": "container", "image": "img:1"}
    assert len(io_record.missing(lambda _argv: answer, record(plan=plan))) == 1


def test_a_patched_file_that_changed_is_missing(tmp_path: Path) -> None:
    plan, package = runtime(tmp_path), "runtime/lib/python3.12/site-packages/vllm"
    tables = f"{plan['runtime']['path']}/gb10_moe_configs"
    patched = (f"{package}/model_executor/a.py", f"{package}/__init__.py", "runtime/gb10_moe_configs/table.json")
    for path in (*patched, "runtime/bin/python"):
        put(tmp_path, f"/{path}", "patched", 0o755)
    digest = hashlib.sha256(b"patched").hexdigest()
    files = {"model_executor/a.py": digest, "b.py": "", f"{tables}/table.json": digest}
    for each in plan["nodes"]:
        each["additions"]["vllm_patch"] = {
            "files": files,
            "environment": {"VLLM_TUNED_CONFIG_FOLDER": tables},
            "flags": [],
        }
    assert io_record.missing(unused, record(plan=plan)) == []
    (tmp_path / package / "model_executor/a.py").write_text("shipped", encoding="utf-8")
    assert (
        "model_executor/a.py is missing or changed. Fix: the vllm_patch_patches"
        in io_record.missing(unused, record(plan=plan))[0]
    )


def of_this_machine(folder: str, **changes: Any) -> dict[str, Any]:
    """Return the arguments of launch_record for a launch on this machine, as the role gives them."""
    launch = io_record.launch({"driver_version": None})
    content = rollback_record.content(typed(PLAN), {"spark1": launch, "spark2": launch})
    return {"folder": folder, "content": content, "node": "spark1", "time": "2026-11-22 10:00:00", **changes}


def test_the_modules_record_select_and_compare(folder: str) -> None:
    nothing = run_module("launch_record_info", {"folder": folder})
    assert (nothing["changed"], nothing["current"], nothing["start"], nothing["records"]) == (False, "", {}, [])
    given = of_this_machine(folder, golden="golden answers: 7 equal")
    assert run_module("launch_record", given, check=True)["changed"]
    assert not Path(folder).exists()
    first = run_module("launch_record", given)
    assert first["changed"] and first["id"][:12] in first["diff"]["after"]
    assert not run_module("launch_record", given)["changed"]
    other = {**given, "content": {**given["content"], "start": {**given["content"]["start"], "model": "b"}}}
    second = run_module("launch_record", other)
    found = run_module("launch_record_info", {"folder": folder, "missing": True}, check=True)
    assert (found["current"], found["start"]["model"], found["differs"], found["invalid"]) == (
        second["id"],
        "b",
        [],
        [],
    )
    assert {each["id"] for each in found["records"]} == {first["id"], second["id"]}
    assert all(any(".complete is missing" in item for item in each["missing"]) for each in found["records"])
    assert run_module("launch_record", {"folder": folder, "state": "selected", "id": first["id"]})["changed"]
    restored = run_module("launch_record", {"folder": folder, "state": "restored"})
    assert (restored["changed"], restored["id"], restored["runtime"]["kind"]) == (False, first["id"], "native")


def test_a_new_record_has_the_launch_files_of_the_node(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = launches.files("unit\n")
    monkeypatch.setattr(io_record, "launch_files", lambda: files)
    given = {"folder": folder, "content": OLD.content, "node": "spark1", "time": OLD.time, "findings": ["a: b"]}
    made = run_module("launch_record", given)
    stored = io_record.read(folder).found[OLD.id]
    assert (made["id"], stored.files, stored.time, stored.findings) == (OLD.id, files, OLD.time, ("a: b",))
    monkeypatch.setattr(io_record, "launch_files", lambda: launches.files("changed since\n"))
    assert "digests of its content" in run_module("launch_record", given)["msg"]


def programs(tmp_path: Path, log: str) -> Path:
    """Return a folder with systemctl and journalctl of a running vLLM."""
    shown = {
        **dict.fromkeys(node_parse.SERVICE_PROPERTIES, "0"),
        "MainPID": "1",
        "InvocationID": "abc",
        "Environment": "",
    }
    (tmp_path / "shown").write_text("".join(f"{name}={value}\n" for name, value in shown.items()), encoding="utf-8")
    entries = [json.dumps({"__MONOTONIC_TIMESTAMP": "1", "MESSAGE": line}) for line in log.splitlines()]
    (tmp_path / "entries").write_text("\n".join([*entries, ""]), encoding="utf-8")
    program(tmp_path / "bin", "systemctl", f"cat {tmp_path}/shown")
    return program(
        tmp_path / "bin", "journalctl", f'case "$*" in *_SYSTEMD_INVOCATION_ID=abc*) cat {tmp_path}/entries;; esac'
    )


def test_a_new_record_has_the_choices_of_the_running_start(tmp_path: Path, folder: str) -> None:
    given = of_this_machine(folder)
    first = run_module("launch_record", given, programs(tmp_path, start_logs.H200))
    record = io_record.read(folder).found[first["id"]]
    assert record.started.keys() == {"config", "weights", "compile", "memory", "kernels", "graphs", "server"}
    recorded = record.choices
    assert list(recorded) == choices.read(start_logs.H200.splitlines())
    # A restart with the same launch inputs.
    again = run_module("launch_record", given, programs(tmp_path, start_logs.CUDA))
    assert not again["changed"] and io_record.read(folder).found[first["id"]].choices == recorded


def test_an_unreadable_log_is_a_warning(tmp_path: Path, folder: str) -> None:
    path = programs(tmp_path, "")
    program(path, "journalctl", "echo no permission >&2; exit 1")
    first = run_module("launch_record", of_this_machine(folder), path)
    assert first["changed"] and "no permission" in str(first["warnings"])
    assert io_record.read(folder).found[first["id"]].choices == ()


def test_the_environments_of_older_records_are_removed(tmp_path: Path, folder: str) -> None:
    def given(name: str, **changes: Any) -> dict[str, Any]:
        path = tmp_path / "runtime" / (name * 12)
        path.mkdir(parents=True, exist_ok=True)
        made = of_this_machine(folder, time=f"2026-11-22 10:00:0{int(name, 16) - 10}", **changes)
        made["content"]["plan"]["runtime"] |= {"path": str(path)}
        return made

    left = tmp_path / "runtime"
    for name in "ab":
        data = {key: given(name)[key] for key in ("content", "node", "time")}
        files = {"files": io_record.launch_files(), "parent": "", "golden": ""}
        save(folder, rollback_record.stored(data | files, rollback_record.digest(data["content"])))
    third = run_module("launch_record", given("c"), check=True)
    assert third["removed"] == [str(left / ("a" * 12))] and f"removed {left}/aaaaaaaaaaaa" in third["diff"]["after"]
    assert len(list(left.iterdir())) == 3
    assert run_module("launch_record", given("c"))["changed"]
    assert {path.name[0] for path in left.iterdir()} == {"b", "c"}
    # A run that was killed before the removal, and a smaller number.
    fewer = run_module("launch_record", given("c", keep_runtimes=1))
    assert fewer["changed"] and {path.name[0] for path in left.iterdir()} == {"c"}


def test_the_modules_refuse_with_a_reason(folder: str) -> None:
    changed = of_this_machine(folder)
    changed["content"]["nodes"]["spark1"]["files"] = {UNIT: "0644 x"}
    refused = {
        "its files do not have the digests": {"folder": folder},
        "there is no launch  to restore": {"folder": folder, "state": "restored"},
        "no launch ffff to restore": {"folder": folder, "state": "selected", "id": "ffff"},
        "digests of its content": changed,
    }
    for reason, given in refused.items():
        assert reason in run_module("launch_record", given)["msg"]
    assert not Path(folder).exists()
