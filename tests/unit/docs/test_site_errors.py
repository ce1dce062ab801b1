"""Errors that users can see, found in the sources for the documentation site."""

from __future__ import annotations

from site_errors import Message, messages, task_messages


def test_errors_are_found_in_python() -> None:
    text = (
        'x = [Problem(f"nodes[{index}].a", repr(node.name), "b or " + c, "set it")]\n'
        'fail(f"{path} is old. Expected: a new one. Fix: renew it.")\n"Expected"\n'
    )
    assert messages(text) == [
        Message("nodes[{INDEX}].a", "{NAME}", "b or {VALUE}", "set it"),
        Message("", "{PATH} is old", "a new one", "renew it"),
    ]


def test_a_text_is_found_where_a_name_is_assigned() -> None:
    text = (
        'WHERE = "gb10_a"\n'
        'def check(given):\n    found = "none"\n    found, fix = f"{given} is old", "renew it" if given else "set it"\n'
        "    return Problem(WHERE, found, expected, fix)\n"
        'def other(found):\n    return Problem(WHERE, found, "a", "b")\n'
    )
    assert messages(text) == [
        Message("gb10_a", "{GIVEN} is old", "{EXPECTED}", "renew it | set it"),
        Message("gb10_a", "{FOUND}", "a", "b"),
    ]
    loop = 'name = "x"\nfor name in sizes:\n    Problem(name, "a", "b", "c")\n'
    assert messages(loop) == [Message("{NAME}", "a", "b", "c")]


def test_errors_are_found_in_tasks() -> None:
    text = "{{ inventory_hostname }} serves.\n Expected: none. Fix: stop it."
    tasks = [
        {"block": [{"ansible.builtin.assert": {"that": "x", "fail_msg": text}}]},
        {"ansible.builtin.debug": {"msg": "Expected"}},
    ]
    assert list(task_messages(tasks)) == [Message("", "{INVENTORY_HOSTNAME} serves", "none", "stop it")]
