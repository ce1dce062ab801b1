"""Tests of the program that reads an installed vLLM: the release of the NCCL that its ranks load."""

from __future__ import annotations

import ctypes
import json
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import answer, io_introspect


@pytest.mark.parametrize(("code", "release"), [(23007, "2.30.7"), (22705, "2.27.5"), (2708, "0.27.8")])
def test_the_library_returns_its_release(code: int, release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def load(name: str) -> Any:
        opened.append(name)
        return SimpleNamespace(ncclGetVersion=lambda pointer: setattr(pointer._obj, "value", code))

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.delenv("VLLM_NCCL_SO_PATH", raising=False)
    assert io_introspect._nccl() == release
    monkeypatch.setenv("VLLM_NCCL_SO_PATH", "/own/libnccl.so")
    assert io_introspect._nccl() == release
    assert opened == ["libnccl.so.2", "/own/libnccl.so"], "as vLLM's ranks open it"


def test_an_image_without_the_library_has_no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_NCCL_SO_PATH", "/none/libnccl.so.2")
    assert io_introspect._nccl() == ""


@pytest.mark.parametrize("said", ["2.27", "2.27.5-1", "2.27.5\n", "-1.0.0", "{{ 1 }}", 2, ["2.27.5"]])
def test_only_a_release_passes(said: Any) -> None:
    option = {"name": "--a", "kind": "value", "aliases": [], "choices": [], "fold": "", "open": False}
    whole = {"version": "0.33.0", "ray": "", "nccl": "2.27.5", "options": [option], "variables": []}
    assert answer.answered(json.dumps(whole))["nccl"] == "2.27.5"
    with pytest.raises(ValueError, match="not a valid name or value"):
        answer.answered(json.dumps({**whole, "nccl": said}))
