"""Tests of the draft model in vLLM's arguments."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.model.drafts import Draft, find, with_folder

HUB = "z-lab/Qwen3.8-27B-DFlash2"
CONFIG = json.dumps({"method": "dflash", "model": HUB, "num_speculative_tokens": 8})
FORMS = {
    "two words": ["--speculative-config", CONFIG],
    "one word": [f"--speculative-config={CONFIG}"],
    "an underscore": ["--speculative_config", CONFIG],
    "the short name": ["-sc", CONFIG],
    "members of the short name": [f"-sc.model={HUB}", "-sc.method=dflash"],
    "a member of a list": ["--speculative-config.model+", HUB, "--speculative-config.method=dflash"],
    "keys": ["--speculative-config.method", "dflash", f"--speculative-config.model={HUB}"],
    "options": ["--spec-model", HUB, "--spec-method=dflash", "--spec-tokens", "8"],
}


@pytest.mark.parametrize("args", FORMS.values(), ids=FORMS)
def test_a_draft_and_its_folder(args: list[str]) -> None:
    found = find(["--x", *args, "--y"])
    assert found == Draft(HUB)
    replaced = with_folder(["--x", *args, "--y"], HUB, "/opt/draft")
    assert (replaced[0], replaced[-1], find(replaced)) == ("--x", "--y", None)
    assert "/opt/draft" in " ".join(replaced)
    assert "dflash" in " ".join(replaced)


NONE = {
    "nothing": [],
    "a method without a model": ["--speculative-config", '{"method": "mtp"}'],
    "a folder": ["--speculative-config", '{"model": "/srv/draft"}'],
    "no JSON": ["--speculative-config", "{"],
    "a list": ["--speculative-config", "[1]"],
    "a number": ["--speculative-config", '{"model": 1}'],
}


@pytest.mark.parametrize("args", NONE.values(), ids=NONE)
def test_no_draft(args: list[str]) -> None:
    assert find(args) is None
    assert with_folder(args, HUB, "/opt/draft") == args


def test_the_last_option_counts_and_a_revision_is_the_drafts() -> None:
    args = ["--speculative-config", CONFIG, "--speculative-config", '{"model": "a/b", "revision": "c"}']
    assert find(args) == Draft("a/b", "c")
    assert json.loads(with_folder(args, "a/b", "/opt/draft")[-1]) == {"model": "/opt/draft"}
