"""The locks: pinned releases with hashes, for the CUDA release in their names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import cluster_plan, spark
from repository import ROOT, load_yaml, read

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import locks, stacks

LOCKS = sorted((ROOT / "roles" / "gb10" / "files").glob("*.lock"))
ZEROS = "0" * 64
NAME = re.compile(r"vllm-(?P<vllm>[\d.]+)-cu(?P<cuda>\d{3})-aarch64-py312\.lock")
#: Packages with a CUDA compiler or a part of one.
COMPILERS = re.compile(r"nvidia-(cuda-(nvcc|crt|nvrtc|tileiras)|nvvm|nvptxcompiler)(-cu\d\d)?")
#: A requirement, its pin, and its hashes.
PINNED = re.compile(
    r"(?P<name>[\w.-]+)(?P<extra>\[[\w,]+\])?(==(?P<version>[\w.+!]+)| @ (?P<url>https://\S+))(?P<hashes>( "
    r"\\\n    --hash=sha256:[0-9a-f]{64})+)\n"
)


def requirements(text: str) -> dict[str, re.Match[str]]:
    """The requirements of a lock, by name. All lines except comments must be pins with hashes."""
    rest = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    assert PINNED.sub("", rest) == ""
    return {match["name"]: match for match in PINNED.finditer(rest)}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_is_what_its_name_says(lock: Path) -> None:
    name, text = NAME.fullmatch(lock.name), lock.read_text(encoding="utf-8")
    assert name
    cuda, listed = name["cuda"], requirements(text)
    versions = {each: match["version"] for each, match in listed.items()}
    assert versions["vllm"] == name["vllm"]
    assert {"ray", "transformers", "triton", "torch", f"nvidia-nccl-cu{cuda[:2]}"} <= set(listed)
    assert not [each for each in listed if re.search(f"nccl-cu(?!{cuda[:2]})", each)], "one CUDA's NCCL"
    # The role reads uv's pin from the lock, to install uv first.
    assert re.search(r"^uv==[^ ;\n]+", text, re.MULTILINE)
    # PyPI's build for aarch64 has no CUDA.
    place = rf"https://download\.pytorch\.org/whl/cu{cuda}/{{}}-[\d.]+%2Bcu{cuda}-cp312-.*_aarch64\.whl"
    urls = {each: match["url"] for each, match in listed.items() if match["url"]}
    assert [url for each, url in urls.items() if not re.fullmatch(place.format(each), url)] == []
    # With another compiler, CCCL's headers end each compilation.
    assert others({each: version for each, version in versions.items() if version}) == []
    # cuda-python 12 contains the bindings, and its files would replace those of the package cuda-bindings.
    assert "cuda-bindings" not in listed or versions["cuda-python"] == versions["cuda-bindings"]


def others(listed: dict[str, str]) -> list[str]:
    """The compiler packages whose release (major.minor) is not that of the CUDA runtime."""
    release = {name: version.split(".")[:2] for name, version in listed.items()}
    compilers = [name for name in release if COMPILERS.fullmatch(name)]
    (runtime,) = (release[name] for name in release if re.fullmatch(r"nvidia-cuda-runtime(-cu\d\d)?", name))
    assert compilers
    return [name for name in compilers if release[name] != runtime]


def test_what_was_forced_into_a_lock_is_said_in_its_head() -> None:
    """vLLM 0.33.0 requires a newer certifi than existed; uv pip sync, which the role runs, does not check that."""
    text = (ROOT / "roles/gb10/files/vllm-0.33.0-cu130-aarch64-py312.lock").read_text(encoding="utf-8")
    head = text[: text.index("\n", text.rindex("\n#") + 1)]
    assert requirements(text)["certifi"]["version"] == "2026.10.18"
    assert "certifi==2026.10.18 as --override" in head
    assert "else 'sync'" in read("roles/common/vars/main.yml")


def test_the_library_of_the_hub_is_the_same_everywhere() -> None:
    library = "huggingface_hub==2.4.0"
    for tools in ("dev", "mutants"):
        assert library in read(f"requirements-{tools}.in").splitlines()
    newest = stacks.STACKS["current"].lock
    for lock in (f"roles/gb10/files/{newest}", "inventories/lab/requirements.txt", "roles/model_store/files/hub.lock"):
        assert library.replace("_", "-") in {line.split(" ")[0] for line in read(lock).splitlines()}, lock


#: All files that root or a developer installs from an index.
INSTALLED = [
    "inventories/lab/requirements.txt",
    "requirements-dev.txt",
    "requirements-mutants.txt",
    "roles/model_store/files/hub.lock",
]


@pytest.mark.parametrize("path", [*INSTALLED, *(str(lock.relative_to(ROOT)) for lock in LOCKS)])
def test_whatever_is_installed_is_pinned_by_hash(path: str) -> None:
    assert locks.check_lock(read(path), path) == []


@pytest.mark.parametrize(
    ("lock", "found"),
    [
        ("vllm==0.32.0\n", "line 1: vllm==0.32.0"),
        (
            f"# a comment\nray==2.60.0 \\\n    --hash=sha256:{ZEROS}\nvllm==0.32.0 ; python_version > '3'  # it\n",
            "line 4: vllm==0.32.0",
        ),
        (
            f"vllm==0.32.0 --hash=sha256:{ZEROS}\n" + "".join(f"a{number}==1\n" for number in range(9)),
            "line 4: a2==1; 6 more)",
        ),
        (f"vllm==0.32.0 --hash=md5:{ZEROS}\n", "line 1: vllm==0.32.0 --hash=md5"),
        (f"vllm>=0.32.0 --hash=sha256:{ZEROS}\n", "line 1: vllm>=0.32.0"),
        (f"vllm==0.32.* --hash=sha256:{ZEROS}\n", "line 1: vllm==0.32.*"),
        ("-r other.txt\n", "line 1: -r other.txt"),
        ("-e .\n", "line 1: -e ."),
        ("vllm @ file:///tmp/vllm.whl\n", "line 1: vllm @ file:///tmp/vllm.whl"),
        (
            "ray[default] @ https://example.org/ray-2.60.0-py3-none-any.whl\n",
            "line 1: ray[default] @ https://example.org/",
        ),
    ],
)
def test_a_lock_that_leaves_something_open_is_refused_before_any_change(lock: str, found: str) -> None:
    (problem,) = locks.check_lock(lock, "my.lock")
    assert (problem.path, problem.found.startswith("my.lock has ")) == ("gb10_runtime_lock", True)
    assert found in problem.found
    assert "uv pip compile" in problem.fix
    _plan, problems = cluster_plan([spark(1, "head")], f"{lock}vllm==0.32.0 --hash=sha256:{ZEROS}\n")
    assert [each for each in problems if each.path == "gb10_runtime_lock"]


def test_the_lock_of_an_image_is_not_installed() -> None:
    """It only lists the releases in the image."""
    settings = {
        "gb10_runtime": "container",
        "gb10_container_image": f"sha256:{ZEROS}",
        "gb10_distributed_executor_backend": "mp",
    }
    plan, problems = cluster_plan([spark(1, "head", **settings)], "vllm==0.32.0\n")
    assert (problems, plan["runtime"]["kind"]) == ([], "container")


def test_where_packages_are_is_no_problem() -> None:
    lock = (
        "--index-url https://download.pytorch.org/whl/cpu\n--find-links=/srv/wheels\n--no-index\nvllm==1 "
        f"--hash=sha256:{ZEROS}\n"
    )
    assert locks.check_lock(lock, "x") == []


def steps(path: str) -> list[dict[str, Any]]:
    tasks = load_yaml(read(path))
    return [*tasks, *(inner for task in tasks for inner in task.get("block", []))]


def test_what_pip_and_uv_install_as_root_must_match_its_hash() -> None:
    """For a runtime and the gateway: first uv, then the lock.

    For the library of Hugging Face Hub: where no runtime has it.
    """
    pip, sync = (
        next(
            task["ansible.builtin.command"]["argv"]
            for task in steps("roles/common/tasks/environment.yml")
            if task["name"].startswith(name)
        )
        for name in ("Install uv", "Install exactly the locked packages")
    )
    assert "'--require-hashes'" in pip and "'--no-deps'" in pip and "'-r'" in pip
    install = load_yaml(read("roles/common/vars/main.yml"))["_common_environment_install"]
    assert "_common_environment_install" in sync and "'--require-hashes'" in install
    (hub,) = (
        task["ansible.builtin.pip"]
        for task in steps("roles/model_store/tasks/fetch.yml")
        if "ansible.builtin.pip" in task
    )
    assert "name" not in hub and hub["requirements"].endswith("/hub.lock")
    assert {"--require-hashes", "--no-deps"} <= set(hub["extra_args"].split())


def test_uv_is_taken_out_of_the_lock_with_its_hashes() -> None:
    path = "roles/gb10/files/vllm-0.32.0-cu130-aarch64-py312.lock"
    expression = load_yaml(read("roles/common/vars/main.yml"))["_common_environment_uv"]
    content = f"{{{{ lookup('ansible.builtin.file', '{ROOT / path}') }}}}"
    given = json.dumps({"common_environment_lock": content, "_common_environment_uv": expression})
    command = [Path(sys.executable).with_name("ansible"), "localhost", "-m", "ansible.builtin.debug", "-e", given]
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    said = subprocess.check_output(
        [*command, "-a", "msg={{ _common_environment_uv }}"], cwd=ROOT, env=environment, text=True
    )
    text = json.loads(said.partition("=>")[2])["msg"] + "\n"
    assert list(requirements(text)) == ["uv"]
    assert text in read(path)
