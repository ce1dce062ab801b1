"""The stacks have the versions that their lock files pin."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from repository import ROOT, read
from snapshot import assert_recorded

from ansible_collections.gb10.cluster.plugins.module_utils.runtime.stacks import (
    CONTAINER,
    STACKS,
    Stack,
    check_ray,
    locked,
    resolve,
    table,
)
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks

LOCKS = "roles/gb10/files"
START = "## Versions\n\n"


@pytest.mark.parametrize(
    "stack", [stack for stack in STACKS.values() if stack.lock or stack.name == "lab"], ids=lambda stack: stack.name
)
def test_a_stack_is_what_its_lock_pins(stack: Stack) -> None:
    said, path = asdict(stack), f"{LOCKS}/{stack.lock}" if stack.lock else "inventories/lab/requirements.txt"
    pinned = locked(read(path))
    assert {field: said[field] for field in pinned} == pinned
    assert not stack.lock or set(pinned) == {"vllm", "torch", "triton", "transformers", "ray", "bundled_nccl"}
    assert vllm_release_checks.known(stack.vllm)


def test_every_lock_has_a_stack() -> None:
    assert {path.name for path in (ROOT / LOCKS).glob("*.lock")} == {stack.lock for stack in STACKS.values()} - {""}


def test_every_stack_says_where_it_comes_from() -> None:
    for stack in STACKS.values():
        assert stack.source and stack.evidence and stack.exercised
        assert bool(stack.image) == (stack.runtime == CONTAINER)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vllm==0.32.0+cpu \\\n    --hash=sha256:12\n", {"vllm": "0.32.0"}),
        ("ray[default]==2.60.0 ; python_version > '3'\n# torch==1\n", {"ray": "2.60.0"}),
        ("nvidia-nccl-cu13==2.29.7", {"bundled_nccl": "2.29.7"}),
        ("torch @ https://example.org/whl/torch-2.10.0%2Bcu129-cp312-cp312-linux_aarch64.whl", {"torch": "2.10.0"}),
        ("vllm>=0.30", {}),
        ("", {}),
    ],
)
def test_what_a_lock_file_says(text: str, expected: dict[str, str]) -> None:
    assert locked(text) == expected


@pytest.mark.parametrize(
    ("name", "runtime", "lock", "path", "where", "fix"),
    [
        (
            "curent",
            "",
            "vllm==1",
            "x.lock",
            "gb10_stack: 'curent'. Expected: one of current, vllm-0.32.0",
            "use current",
        ),
        ("xyz", "", "vllm==1.0.0", "x.lock", "gb10_stack: 'xyz'", "correct gb10_stack"),
        ("lab", "", "", "", "gb10_runtime_lock: '' is not", "set gb10_runtime_lock, because lab has none"),
        (
            "current",
            "",
            "",
            "x.lock",
            "gb10_runtime_lock: 'x.lock' is not a readable file",
            "correct gb10_runtime_lock",
        ),
        (
            "current",
            "",
            "ray==2.60.0",
            "x.lock",
            "gb10_runtime_lock: x.lock pins no vllm",
            "add it, or use another lock",
        ),
        (
            "lab",
            "container",
            "",
            "",
            "gb10_container_image: none is given, and the stack lab has none",
            "set gb10_container_image",
        ),
        ("ngc-26.04", "native", "", "", "gb10_runtime_lock: '' is not a readable file", "set gb10_runtime_lock"),
        (
            "ngc-26.04",
            "",
            "",
            "x.lock",
            "gb10_runtime_lock: 'x.lock' is not a readable file",
            "correct gb10_runtime_lock",
        ),
    ],
)
def test_what_cannot_be_resolved(name: str, runtime: str, lock: str, path: str, where: str, fix: str) -> None:
    _stack, (problem,) = resolve(name, lock, path, runtime)
    assert str(problem).startswith(where) and problem.fix.startswith(fix)


def test_a_lock_is_read_also_with_an_unknown_stack() -> None:
    stack, _problems = resolve("curent", "vllm==0.18.1\nray==2.48.0\n", "x.lock")
    assert (stack.vllm, stack.ray) == ("0.18.1", "2.48.0")


def test_a_container_needs_an_image_and_no_lock() -> None:
    image = "vllm/vllm-openai@sha256:" + "1" * 64
    ngc, problems = resolve("ngc-26.04", "", "")
    assert (problems, ngc.runtime, ngc.image) == ([], "container", "nvcr.io/nvidia/vllm:26.04-py3")
    assert resolve("ngc-26.04", "", "", image=image)[0].image == image
    lab, problems = resolve("lab", "vllm==0.33.0\n", "x.lock", "container", image)
    assert (problems, lab.runtime, lab.image, lab.vllm) == ([], "container", image, "0.33.0")
    native, problems = resolve("lab", "vllm==0.33.0\n", "x.lock", "native", image)
    assert (problems, native.runtime, native.image) == ([], "native", "")
    (ignored,) = resolve("lab", "vllm==0.33.0\n", "x.lock", "", image)[1]
    assert (ignored.path, ignored.found) == ("gb10_container_image", "it has no effect without a container")


def test_what_is_known_of_a_stacks_image_counts_for_no_other() -> None:
    name = STACKS["ngc-26.04"].image
    digest = "@sha256:" + "1" * 64
    for image, known in (("", False), (name, False), (name + digest, False), (f"registry.example/vllm{digest}", None)):
        assert resolve("ngc-26.04", "", "", image=image)[0].image_has_ray is known
    stacked = STACKS["vllm-openai-0.28.0"].image
    for image, known in (("", False), (stacked, False), (stacked.partition("@")[0] + digest, None)):
        assert resolve("vllm-openai-0.28.0", "", "", image=image)[0].image_has_ray is known
    assert resolve("ngc-26.04", "vllm==0.19.0", "x.lock", "native")[0].image_has_ray is None


def test_the_lock_counts() -> None:
    stack, problems = resolve("current", "vllm==0.33.1\nnvidia-nccl-cu13==2.31.2\n", "mine.lock")
    assert problems == []
    assert (stack.vllm, stack.bundled_nccl, stack.ray, stack.name) == ("0.33.1", "2.31.2", "2.60.0", "current")


def test_the_document_is_current() -> None:
    text = f"{read('docs/stacks.md').partition(START)[0]}{START}{table()}"
    assert_recorded(ROOT / "docs/stacks.md", text)


@pytest.mark.parametrize(
    ("version", "wrong"),
    [("2.48.0", 1), ("2.51.9", 1), ("1.99.0", 1), ("2.52.0", 0), ("2.60.0", 0), ("3.0.0", 0), ("", 0)],
)
def test_a_ray_without_a_token_is_refused(version: str, wrong: int) -> None:
    assert [problem.expected for problem in check_ray(version, "gb10_runtime_lock")] == ["Ray 2.52 or newer"] * wrong
