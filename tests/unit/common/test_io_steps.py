"""The inputs of a step, from the fields of its dataclass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_steps

PACKAGE = "ansible_collections.gb10.cluster.plugins.module_utils.common"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    names: Sequence[str]
    number: int = 5
    maybe: int | None = None
    on: bool = True
    files: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] = (1, 2)
    anything: Any = None
    key: str = field(default="", metadata={"no_log": True})
    kind: str = field(default="a", metadata={"choices": ["a", "b"]})


def test_each_field_is_an_argument() -> None:
    assert io_steps.specification(Inputs) == {
        "names": {"required": True, "no_log": False, "type": "list", "elements": "str"},
        "number": {"required": False, "no_log": False, "type": "int", "default": 5},
        "maybe": {"required": False, "no_log": False, "type": "int", "default": None},
        "on": {"required": False, "no_log": False, "type": "bool", "default": True},
        "files": {"required": False, "no_log": False, "type": "dict", "default": {}},
        "ports": {"required": False, "no_log": False, "type": "list", "elements": "int", "default": [1, 2]},
        "anything": {"required": False, "no_log": False, "type": "raw", "default": None},
        "key": {"required": False, "no_log": True, "type": "str", "default": ""},
        "kind": {"required": False, "no_log": False, "type": "str", "default": "a", "choices": ["a", "b"]},
    }


def test_texts_of_the_command_line_are_numbers_and_a_secret_is_known() -> None:
    found, secrets = io_steps.inputs(Inputs, {"names": ["x"], "number": "7", "on": "no", "key": "planted"})
    assert (found, secrets) == (Inputs(names=["x"], number=7, on=False, ports=[1, 2], key="planted"), {"planted"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data", [{}, {"names": ["x"], "other": 1}, {"names": [], "number": "x"}, {"names": [], "kind": "c"}]
)
def test_a_wrong_input_is_an_error(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"names|other|number|kind"):
        io_steps.inputs(Inputs, data)


@pytest.mark.parametrize("name", ["none", "", "..io_steps", "os.path", "A", "io_steps.x"])
def test_only_a_file_of_the_package_is_a_step(name: str) -> None:
    assert io_steps.entry(PACKAGE, "io_steps") is io_steps
    with pytest.raises(ValueError, match=r"^there is no such step in module_utils/common$"):
        io_steps.entry(PACKAGE, name)
