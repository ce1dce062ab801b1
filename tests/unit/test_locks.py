"""The locks: pinned, with a hash for everything, and for the CUDA that their names say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository import ROOT, load_yaml, read

from ansible_collections.gb10.cluster.plugins.module_utils import stacks

LOCKS = sorted((ROOT / "roles" / "gb10" / "files").glob("*.lock"))
NAME = re.compile(r"vllm-(?P<vllm>[\d.]+)-cu(?P<cuda>\d{3})-aarch64-py312\.lock")
#: A requirement, how it is pinned, and its hashes.
PINNED = re.compile(
    r"(?P<name>[\w.-]+)(?P<extra>\[[\w,]+\])?(==(?P<version>[\w.+!]+)| @ (?P<url>https://\S+))(?P<hashes>( \\\n    --hash=sha256:[0-9a-f]{64})+)\n"
)


def requirements(text: str) -> dict[str, re.Match[str]]:
    """What a lock lists, by name. Whatever is not a comment has to be a pin with hashes."""
    rest = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    assert PINNED.sub("", rest) == ""
    return {match["name"]: match for match in PINNED.finditer(rest)}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_is_what_its_name_says(lock: Path) -> None:
    name, text = NAME.fullmatch(lock.name), lock.read_text(encoding="utf-8")
    assert name
    listed = requirements(text)
    assert listed["vllm"]["version"] == name["vllm"]
    assert {"ray", "transformers", "triton", "torch", f"nvidia-nccl-cu{name['cuda'][:2]}"} <= set(listed)
    assert not [each for each in listed if re.search(r"nccl-cu(?!" + name["cuda"][:2] + ")", each)], "one CUDA's NCCL"
    # The role reads uv's pin from the lock to install it first.
    assert re.search(r"^uv==[^ ;\n]+", text, re.MULTILINE)
    for each in listed.values():
        if each["url"]:
            assert re.fullmatch(
                rf"https://download\.pytorch\.org/whl/cu{name['cuda']}/{each['name']}-[\d.]+%2Bcu{name['cuda']}-cp312-.*_aarch64\.whl", each["url"]
            )


def test_the_bundle_of_vllm_gb10() -> None:
    listed = requirements((ROOT / "roles/gb10/files/vllm-0.18.1-cu129-aarch64-py312.lock").read_text(encoding="utf-8"))
    assert [listed[name]["version"] for name in ("vllm", "triton", "transformers")] == ["0.18.1", "3.6.0", "4.57.6"]
    # PyPI's own build for aarch64 has no CUDA.
    assert listed["torch"]["url"]


def test_what_was_forced_into_a_lock_is_said_in_its_head() -> None:
    """vLLM 0.33.0 wants a newer certifi than there was; uv pip sync, which the role runs, does not compare."""
    text = (ROOT / "roles/gb10/files/vllm-0.33.0-cu130-aarch64-py312.lock").read_text(encoding="utf-8")
    head = text[: text.index("\n", text.rindex("\n#") + 1)]
    assert requirements(text)["certifi"]["version"] == "2026.10.18"
    assert "certifi==2026.10.18 as --override" in head
    assert "'pip', 'sync'" in read("roles/vllm_runtime/tasks/build.yml")


@pytest.mark.parametrize("bad", ["torch==2.10.0\n", "torch>=2.10.0 \\\n    --hash=sha256:" + "0" * 64 + "\n", "--no-binary torch\n"])
def test_a_lock_that_is_none(bad: str) -> None:
    with pytest.raises(AssertionError):
        requirements(bad)


def test_the_library_of_the_hub_is_the_same_everywhere() -> None:
    library = load_yaml(read("roles/model_store/vars/main.yml"))["_model_store_library"]
    assert library in read("requirements-dev.in").splitlines()
    newest = stacks.STACKS["current"].lock
    for lock in (f"roles/gb10/files/{newest}", "inventories/lab/requirements.txt"):
        assert library.replace("_", "-") in {line.split(" ")[0] for line in read(lock).splitlines()}, lock
