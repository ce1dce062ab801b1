"""The output of playbooks: no skipped tasks, and errors as text, also at the end."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT, load_yaml, read
from run_playbook import command

PLAYBOOK = load_yaml(r"""
- hosts: a,b,c
  gather_facts: false
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  tasks:
    - name: Run in any case
      ansible.builtin.debug: {msg: hello}
    - name: Skip on all hosts
      ansible.builtin.debug: {msg: hello}
      when: false
    - name: Skip on one host
      gb10.cluster.show: {lines: [one, two]}
      when: inventory_hostname == "a"
    - name: Ignore an error
      ansible.builtin.fail: {msg: ignored}
      ignore_errors: true
    - name: Fail and recover
      block:
        - name: Fail first
          ansible.builtin.fail: {msg: rescued}
          when: inventory_hostname == "c"
      rescue:
        - name: Recover
          ansible.builtin.debug: {msg: recovered}
    - name: Fail and clean up
      block:
        - name: Refuse
          ansible.builtin.fail: {msg: "nodes[0]: \e[2J\n  Expected: \"x\". Fix: y"}
          when: inventory_hostname != "c"
        - name: Run a command for each item
          ansible.builtin.command: {argv: "{{ item }}"}
          loop: [["true"], ["sh", "-c", "echo it is broken >&2; exit 3"]]
          changed_when: false
      always:
        - name: Clean up
          ansible.builtin.debug: {msg: done}
""")
#: The last word of a command, longer than a row and with blanks.
DATA = "'{a: " + "b " * 50 + "}'"
ANSWER = load_yaml(
    r"""
- name: Answer
  hosts: a,b
  gather_facts: false
  vars: {playbook_answer: true, ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  tasks:
    - name: Read something
      block:
        - name: Fail first
          ansible.builtin.fail: {msg: rescued}
      rescue:
        - name: Recover
          ansible.builtin.command: {argv: ["true"]}
    - name: Show the answer
      gb10.cluster.show: {lines: ["it answers", "  WORDS", 'curl --header "a b" \', "  --data DATA"]}
      run_once: true
    - name: Refuse
      ansible.builtin.fail: {msg: "it is \e[2J broken"}
      when: inventory_hostname in (refused | default([]))
- name: Nobody
  hosts: absent
  vars: {playbook_answer: true}
  tasks: []
""".replace("WORDS", "several-words " * 12).replace("DATA", DATA)
)


def shown(
    playbook: str, *arguments: str, terminal: int = 0, errors: int = subprocess.STDOUT, **environment: str
) -> str:
    """Run a playbook as a user does, also on a terminal with this number of columns, and return its output."""
    argv = command(playbook, arguments)
    if terminal:
        argv = ["script", "--quiet", "--command", f"stty columns {terminal}; {shlex.join(argv)}", "/dev/null"]
    given = os.environ | {"NO_COLOR": "1"} | environment
    done = subprocess.run(argv, cwd=ROOT, env=given, stdout=subprocess.PIPE, stderr=errors, check=False)
    return done.stdout.decode()


def output(folder: Path, plays: list[dict[str, Any]], *arguments: str, **given: Any) -> str:
    """Run plays on this machine."""
    (folder / "play.yml").write_text(json.dumps(plays), encoding="utf-8")
    return shown(str(folder / "play.yml"), "-i", "a,b,c,absent2", "-c", "local", *arguments, **given)


def answer(folder: Path, *arguments: str, **given: Any) -> str:
    return output(folder, ANSWER, *arguments, errors=subprocess.DEVNULL, **given)


def failures(said: str) -> list[str]:
    """Return the lines after the heading of the last block."""
    return said.partition("\nFAILED ")[2].splitlines()[1:]


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return output(tmp_path_factory.mktemp("brief"), PLAYBOOK)


@pytest.mark.slow
def test_skipped_tasks_are_hidden_and_names_precede_what_is_printed(failed: str) -> None:
    assert "TASK [Run in any case]" in failed and "Skip on all hosts" not in failed and "skipping" not in failed
    assert failed.partition("TASK [Skip on one host]")[2].splitlines()[1:4] == ["  one", "  two", "ok: [a]"]


def test_an_error_is_text_that_cannot_change_the_terminal(failed: str) -> None:
    lines = ["]: FAILED! => ", "  nodes[0]: \\x1b[2J", '    Expected: "x". Fix: y']
    # The host that failed first has the text.
    assert any(f"fatal: [{host}" + "\n".join(lines) in failed for host in "ab")
    assert "\x1b" not in failed and "[ERROR]" not in failed


def test_a_report_of_every_node_is_shown_once_at_the_task_and_once_at_the_end(failed: str) -> None:
    assert failed.count('Expected: "x". Fix: y') == 2
    assert "FAILED! => the same\n" in failed


def test_a_run_ends_with_its_failures_and_the_output_of_a_failed_item(failed: str) -> None:
    refused, item = ["a, b: Refuse", "  nodes[0]: \\x1b[2J", '    Expected: "x". Fix: y'], failures(failed)[3:]
    assert failures(failed)[:3] == refused and failed.index("PLAY RECAP") < failed.index("\nFAILED ")
    assert item[0] == "c: Run a command for each item" and "non-zero return code" in item[1]
    # Other errors were rescued or ignored.
    assert item[2] == "  it is broken" and len(item) == 4 and "docs/troubleshooting.md" in item[3]
    assert failed.count("rescued\n") == 1


def test_a_terminal_breaks_the_lines_of_the_last_block_between_words(tmp_path: Path) -> None:
    message = f"nodes[0]: {'twelve-words ' * 12}\n  Fix: {'another-word ' * 12}"
    plays = [{"hosts": "a", "gather_facts": False, "tasks": [{"fail": {"msg": message}}]}]
    said = output(tmp_path, plays, terminal=100).replace("\r", "")
    block = said.partition("FAILED **")[2].splitlines()[2:-2]
    assert len(block) == 4 and all(len(line) < 100 for line in block), said
    assert block[0].startswith("  nodes[0]: twelve-words ") and block[2].startswith("    Fix: another-word ")
    assert block[3].startswith("      another-word")
    assert {word for line in block for word in line.split()} == {"nodes[0]:", "twelve-words", "Fix:", "another-word"}


def test_a_play_that_answers_prints_nothing_else(tmp_path: Path) -> None:
    lines = ["  it answers", f"    {'several-words ' * 12}".rstrip(), '  curl --header "a b" \\', f"    --data {DATA}"]
    assert answer(tmp_path).splitlines() == lines


def test_a_terminal_shows_the_running_task_until_the_answer_which_breaks_between_words(tmp_path: Path) -> None:
    before, _found, after = answer(tmp_path, terminal=60).partition("\x1b[K\r  it answers")
    assert "\x1b[KRead something" not in before and "\x1b[KRecover\r" in before
    lines = after.replace("\r\n", "\n").splitlines()
    assert lines[1].startswith("    several-words") and lines[2].startswith("      several-words")
    end = lines.index('  curl --header "a b" \\')
    assert max(map(len, lines[:end])) < 80
    assert lines[end + 1] == f"    --data {DATA}", "the end of a command cannot be copied from two lines"


@pytest.mark.slow
def test_an_answer_that_fails_ends_with_its_failure_alone(tmp_path: Path) -> None:
    said = answer(tmp_path, "-e", '{"refused": ["a", "b"]}')
    assert failures(said)[:2] == ["a, b: Refuse", "  it is \\x1b[2J broken"] and "rescued\n" not in said
    assert said.startswith("  it answers\n") and "RECAP" not in said


@pytest.mark.slow
def test_the_names_and_the_recap_are_shown_on_request(tmp_path: Path) -> None:
    verbose = output(tmp_path, ANSWER, "-v", "-e", '{"refused": ["a"]}')
    for said in (verbose, answer(tmp_path, GB10_ANSWER_ONLY="0")):
        assert "TASK [Recover]" in said and "PLAY [Answer]" in said and "PLAY RECAP" in said and "rescued=1" in said
        assert ("skipping: no hosts matched" in said) == (said is verbose)
    assert '"msg": "it is \\\\x1b[2J broken' in verbose and "[ERROR]: " in verbose


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Run a play with includes, and with lines that end a run. Tests share the output."""
    folder = tmp_path_factory.mktemp("last")
    (folder / "none.yml").write_text("[]", encoding="utf-8")
    role = {"name": "gb10.cluster.common", "tasks_from": "service_start"}
    later = "later | default(false)"
    tasks = [
        {"name": "Include a role", "include_role": role, "when": later, "loop": []},
        {"name": "Include nothing", "include_tasks": "none.yml"},
        {"name": "Skip the lines", "gb10.cluster.show": {"lines": "absent"}, "when": later},
        {"name": "Keep the lines", "gb10.cluster.show": {"lines": ["endpoint"], "last": True}},
        {"name": "gb10.cluster.gb10 : Plan", "debug": {"msg": "done"}},
    ]
    return cache(partial(output, folder, [{"hosts": "a", "gather_facts": False, "tasks": tasks}]))


@pytest.mark.slow
def test_the_last_lines_of_a_run_follow_its_recap(last: Callable[..., str]) -> None:
    for said, end in ((last(), True), (last(ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default"), False)):
        assert said.count("  endpoint\n") == 1
        assert said.endswith("\n  endpoint\n") == end


def test_a_terminal_gets_short_names_and_a_recap_without_zeros(last: Callable[..., str]) -> None:
    lines, plain = last(terminal=80).replace("\r", "").splitlines(), last().splitlines()
    assert [line.partition("]")[0] for line in lines if line.startswith("TASK")] == ["TASK [gb10 : Plan"]
    assert [line.partition("]")[0] for line in plain if line.startswith("TASK")] == ["TASK [gb10.cluster.gb10 : Plan"]
    assert [line.split() for line in lines if line.startswith("a ")] == [["a", ":", "ok=3", "changed=0", "skipped=2"]]
    assert max(map(len, lines)) <= 80 and lines[-1] == "  endpoint"
    assert any(line.startswith("a ") and "unreachable=0" in line for line in plain)


#: Clear the screen, write to the clipboard, reverse the direction, a control sequence of 8 bits, return, a line.
EVIL = "\x1b[2J\x1b]52;c;eA==\x07\u202e\x9b2J\x7f\r\u2028\nFORGED"
#: A module that answers as a hostile node would.
ANY_ANSWER = f"""#!/usr/bin/python
# WANT_JSON
import json, sys
evil = {EVIL!a}
diff = {{name: f"{{name}} {{evil}}\\n" for name in ("before", "after", "prepared", "before_header", "after_header")}}
answer = {{name: f"{{name}} {{evil}}" for name in ("msg", "stdout", "stderr", "exception", evil)}}
answer |= {{"changed": True, "warnings": [f"warning {{evil}}"], "deprecations": [{{"msg": evil, "version": "9"}}]}}
answer |= {{"diff": [diff, {{"before": {{evil: [evil]}}, "after": None}}], "stdout_lines": [evil], evil: {{evil: [evil]}}}}
print(json.dumps(answer | json.load(open(sys.argv[1]))["more"]))
"""


@pytest.mark.slow
def test_no_text_of_a_node_changes_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library/any_answer.py").write_text(ANY_ANSWER, encoding="utf-8")
    ends = ("changed", "failed", "skipped", "unreachable")
    tasks: list[dict[str, Any]] = [{"any_answer": {"more": {end: True}}, "ignore_errors": True} for end in ends]
    tasks += [task | {"loop": [EVIL, "b"]} for task in tasks]
    tasks[3]["ignore_unreachable"] = tasks[7]["ignore_unreachable"] = True
    tasks += [tasks[1] | {"retries": 1, "delay": 0, "until": False}]
    tasks += [
        {"any_answer": {"more": {"failed": True, "msg": "the reason", "deprecations": ["x"]}}, "ignore_errors": True}
    ]
    tasks += [
        {"any_answer": {"more": {"diff": [{"src_binary": 1, "dst_larger": "x", "before": 7, "after": [8]}, "x"]}}}
    ]
    tasks += [{"any_answer": {"more": {"ansible_stats": {"data": {EVIL: EVIL}, "per_host": False}}}}]
    given = {"ANSIBLE_FORCE_COLOR": "1", "ANSIBLE_SHOW_CUSTOM_STATS": "1", "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "1"}
    plays = [{"hosts": "a", "gather_facts": False, "tasks": tasks, "vars": PLAYBOOK[0]["vars"]}]
    said = output(tmp_path, plays, "--diff", "-vv", **given)
    # The colors are Ansible's.
    assert "\x1b[0;32m+after \\x1b[2J" in said and "\x1b[0;31m-before " in said
    plain = re.sub(r"\x1b\[[01];3\dm|\x1b\[0m", "", said)
    assert {char for char in plain if not char.isprintable()} <= {"\n", "\t"}, ascii(plain)
    assert "RETRYING" in plain and "UNREACHABLE" in plain and "skipping: [a] => (item=" in plain and "RUN: {" in plain
    assert re.search("^FORGED", plain, re.MULTILINE) is None, "no line of a node begins one on the terminal"
    # Ansible prints no result whose parts have other types than its own.
    assert "the reason" in plain, ascii(plain)
    assert "-7\n" in plain and "+[8]\n" in plain, ascii(plain)
    assert "[WARNING]: warning \\x1b[2J" in plain and "[DEPRECATION WARNING]: \\x1b[2J" in plain
    assert "\n+after \\x1b[2J\\x1b]52;c;eA==\\x07\\u202e\\x9b2J\\x7f\\r\\u2028\n" in plain


@pytest.mark.parametrize("name", ["history", "models", "plan", "status", "verify"])
def test_every_play_of_a_playbook_that_shows_something_answers(name: str) -> None:
    assert all(play["vars"]["playbook_answer"] for play in load_yaml(read(f"playbooks/{name}.yml")))


@pytest.mark.slow
def test_the_end_of_a_plan_is_its_answer_on_a_small_terminal() -> None:
    arguments = ["-i", "inventories/two-spark", "-e", "gb10_plan_offline=typical"]
    said = shown("playbooks/plan.yml", *arguments, terminal=80)
    lines = [line.rpartition("\x1b[K")[2].lstrip("\r") for line in said.split("\r\n")]
    assert lines[0] == "  typical facts, not read from the nodes:"
    end = [line for line in lines if line.strip()]
    assert end[-3].startswith("  Qwen3.8-27B-NVFP4 on 2 nodes: fits, ")
    assert end[-1] == "  API at http://192.168.1.11:8000/v1, with a key, no TLS"
    assert all(len(line) < 80 or len(line.removesuffix(" \\").split()) == 1 for line in lines)
