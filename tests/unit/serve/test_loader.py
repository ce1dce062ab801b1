# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The loader of the weights: named where the lock has it, and never against another choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_nodes import planned, sparks
from plans import inputs
from repository import ROOT

from ansible_collections.gb10.cluster.plugins.module_utils.model.drafts import Draft
from ansible_collections.gb10.cluster.plugins.module_utils.serve import plan as serve_plan

NAMED, DEPTH = "--load-format=instanttensor", "INSTANTTENSOR_IO_DEPTH"
DRAFT = ["--speculative-config.method=mtp", "--speculative-config.num_speculative_tokens=1"]


def decided(model: str = "gpt-oss-120b", stack: str = "current", **settings: Any) -> serve_plan.Decision:
    return serve_plan.decide(replace(inputs(model, stack, **settings), packages=("vllm", "instanttensor")))


def loads(decision: serve_plan.Decision) -> list[str]:
    return [word for word in decision.args if "load" in word]


@pytest.mark.parametrize(("count", "depth"), [(1, "32"), (2, "16"), (4, "8"), (16, "3")])
def test_the_loader_of_the_lock_is_named_with_little_memory(count: int, depth: str) -> None:
    decision = decided("qwen3.5-122b-a10b-fp8", count=count)
    assert loads(decision) == [NAMED] if count < 16 else loads(decision) == []
    assert f"{NAMED}: mapped files load several times slower on a GB10" in decision.why or count == 16
    # Each rank has a buffer for the requests of all.
    assert decision.environment[DEPTH] == depth
    # A model in a file system in memory is read by mmap: InstantTensor refuses AIO there.
    assert decision.environment["INSTANTTENSOR_BACKEND"] == "AIO,MMAP"


@pytest.mark.parametrize(("release", "has"), [("0.33.0-cu130", True), ("0.32.0-cu130", True), ("0.18.1-cu129", False)])
def test_the_lock_decides(release: str, has: bool) -> None:
    lock = (ROOT / f"roles/gb10/files/vllm-{release}-aarch64-py312.lock").read_text(encoding="utf-8")
    assert (f"{NAMED}: mapped" in str(planned(sparks(2, gb10_model="gpt-oss-120b"), lock))) is has


@pytest.mark.parametrize(
    "own",
    [
        ["--load-format=auto"],
        ["--load-format", "fastsafetensors"],
        ["--safetensors-load-strategy=eager"],
        ["--model-loader-extra-config", '{"enable_multithread_load": true}'],
        ["--model-loader-extra-config.enable_multithread_load=true"],
        ["--config-format=mistral"],
    ],
)
def test_a_choice_of_the_user_stays(own: list[str]) -> None:
    assert NAMED not in decided(gb10_vllm_extra_args=own).args


def test_a_lock_without_the_package_a_recipe_and_other_devices_keep_their_loader() -> None:
    given = replace(inputs("gpt-oss-120b"), packages=("instanttensor",))
    recipe = replace(given, model=replace(given.model, recipe=True))
    for other in (replace(given, packages=("vllm",)), replace(given, packages=()), recipe):
        decision = serve_plan.decide(other)
        assert loads(decision) == []
        assert DEPTH not in decision.environment
    assert loads(decided("gpt-oss-20b", "lab")) == []
    assert loads(decided("gpt-oss-20b", count=2, thors=2)) == []


def test_an_image_for_which_the_user_names_it_has_the_limits_too() -> None:
    given = inputs("gpt-oss-120b", gb10_vllm_extra_args=["--load-format=instanttensor"])
    assert serve_plan.decide(given).environment[DEPTH] == "16"
    assert DEPTH not in serve_plan.decide(inputs("gpt-oss-120b")).environment


@pytest.mark.parametrize(("gib", "named"), [(16.1, True), (16, False), (None, False)])
def test_small_and_unread_weights_keep_vllms_loader(gib: float | None, named: bool) -> None:
    given = replace(inputs("gpt-oss-120b"), packages=("instanttensor",))
    sized = replace(given, model=replace(given.model, weights_bytes=gib and int(gib * 2**30)))
    assert (loads(serve_plan.decide(sized)) == [NAMED]) is named


def test_sockets_vectors_and_mistrals_own_files_keep_vllms_loader() -> None:
    given = replace(inputs("gpt-oss-120b"), packages=("instanttensor",))
    assert loads(serve_plan.decide(replace(given, transport="socket"))) == []
    own = replace(given.model, config=replace(given.model.config, type="mistral3"))
    assert loads(serve_plan.decide(replace(given, model=own))) == []
    large = replace(inputs("qwen3-embedding-8b"), packages=("instanttensor",))
    assert loads(serve_plan.decide(replace(large, model=replace(large.model, weights_bytes=40 * 2**30)))) == []


@pytest.mark.parametrize(("size", "known"), [(10**9, True), (None, False)])
def test_a_draft_needs_safetensors_too(size: int | None, known: bool) -> None:
    method = ["--speculative-config", '{"method": "eagle3", "model": "owner/draft", "num_speculative_tokens": 2}']
    given = replace(inputs("gpt-oss-120b", gb10_vllm_extra_args=method), packages=("instanttensor",))
    read = replace(given, model=replace(given.model, draft=Draft("owner/draft", "", size)))
    assert (loads(serve_plan.decide(read)) == [NAMED]) is known


def test_a_draft_that_only_the_last_stage_has_keeps_vllms_loader() -> None:
    draft = {"gb10_vllm_extra_args": DRAFT}
    assert loads(decided(**draft)) == [NAMED]
    assert loads(decided(gb10_tensor_parallel_size=1, gb10_pipeline_parallel_size=2)) == [NAMED]
    assert loads(decided(gb10_tensor_parallel_size=1, gb10_pipeline_parallel_size=2, **draft)) == []
