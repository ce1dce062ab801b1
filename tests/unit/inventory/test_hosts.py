"""Faults of an inventory file: mistakes of owners in the sample, each with the line and the fix that is reported."""

from __future__ import annotations

import re
import time
from pathlib import Path

import ansible
import pytest
from repository import ROLES, ROOT, read, specs_of
from run_playbook import run

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.words_data import OF_VLLM, WORDS
from ansible_collections.gb10.cluster.plugins.plugin_utils import inventory_yaml

SAMPLE = read("inventories/two-spark/hosts.yml")
BLOCK = """\
gb10_cluster:
  children:
    head:
      hosts:
        spark1:
          ansible_host: 192.168.1.11
          ansible_user: nvidia
    worker:
      hosts:
        spark2:
          ansible_host: 192.168.1.12
          ansible_user: nvidia
  vars:
    gb10_model: qwen3.8-27b
"""
TOP = "head:\n  hosts:\n    spark1: {ansible_host: 192.168.1.11}\n"
OWN = "gb10_cluster:\n  hosts:\n    spark1:\n    spark2:\n"


def faults(text: str) -> list[str]:
    return [str(problem) for problem in inventory_yaml.problems(text, "hosts.yml")]


@pytest.mark.parametrize("path", sorted(ROOT.glob("inventories/*/hosts.yml")), ids=lambda path: path.parent.name)
def test_a_sample_has_no_fault(path: Path) -> None:
    assert faults(read(path)) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # Text that the parser refuses.
        ("    worker:", "\tworker:", "8:1: a tab"),
        ("gb10_model: q", "gb10_model:\tq", "14:16: a tab"),
        ("gb10_model: q", "gb10_x: @a\n    gb10_y: b\n\tgb10_z: q", "14:13: a value that begins with @"),
        ("    worker:", "     worker:", "8:6: worker begins in column 6. Expected: column 5, as head in line 3"),
        ("    worker:", "       worker:", "Fix: move it 3 columns to the left"),
        ("    worker:", "   worker:", "Fix: move it 1 column to the right"),
        ("          ansible_user: nvidia\n    worker", "        ansible_user: nvidia\n    worker", ""),
        ("ansible_user: nvidia\n  vars", "ansible_user:nvidia\n  vars", "12:11: ansible_user: and its value"),
        ("ansible_user: nvidia\n    worker", "ansible_user:nvidia\n    worker", "7:11: ansible_user: and its value"),
        ("        spark2:\n", "        spark2\n", "10:9: … without a colon"),
        ("    worker:\n", "    worker\n", "8:5: worker without a colon"),
        ("    worker:\n", "    worker\n    # the others\n\n", "8:5: worker without a colon"),
        ("gb10_cluster:\n", "gb10_cluster\n", "1:1: gb10_cluster without a colon"),
        ("gb10_model: qwen3.8-27b", 'gb10_model: "qwen3.8-27b', "14:17: a quotation mark without its partner"),
        ("gb10_model: qwen3.8-27b", "gb10_model: name: qwen", "14:21: a second colon in the value"),
        ("gb10_model: qwen3.8-27b", "gb10_api_key: @secret", "14:19: a value that begins with @"),
        (
            "gb10_model: q",
            "gb10_x: {a: q",
            "14:13: { without its }. Expected: both, { and }. Fix: write } at the end of line 14",
        ),
        ("gb10_model: q", "gb10_x: [a\n    gb10_y: q", "14:13: [ without its ]. Expected: both, [ and ]. Fix: write ]"),
        ("gb10_model: qwen3.8-27b", "gb10_x: {a: 1 b: 2}", "14:20: two entries without a comma between them"),
        ("gb10_model: qwen3.8-27b", "gb10_x: {a:1, b: 1 c: 2}", "14:14: …: and its value without a space"),
        # What Ansible reads otherwise.
        ("gb10_model: qwen3.8-27b", "gb10_model: {{ mine }}", "14:17: a value that begins with {{"),
        ("gb10_model: qwen3.8-27b", "gb10_model=qwen3.8-27b", "14:5: gb10_model= and its value"),
        ("    gb10_model: ", "    max_model_len: 8192\n    gb10_model: ", "14:5: max_model_len, which nothing reads"),
        ("  vars:\n    gb10", "vars:\n  gb10", "13:1: vars at the level of groups"),
        ("  vars:\n    gb10", "    vars:\n      gb10", "13:5: vars as a group below children"),
        ("  vars:\n", "", "13:5: the variable gb10_model among groups"),
        ("  vars:\n    gb10", "  gb10", "13:3: the variable gb10_model outside of vars"),
        ("        spark2:\n", "      spark2:\n", "10:7: … next to hosts, not below it"),
        (BLOCK, "head:\n  hosts: spark1\n  spark2:\n", "3:3: the variable … outside of vars"),
        (BLOCK, "gb10_cluster:\n  head:\n    hosts:\n", "2:3: the group head outside of children"),
        (BLOCK, "gb10_cluster:\n  ansible_x:\n    a: 1\n", "2:3: the variable ansible_x outside of vars"),
        (
            BLOCK,
            "gb10_cluster:\n  mine:\n    hosts:\n",
            "2:3: … in the group gb10_cluster. Expected: hosts, children or vars",
        ),
        ("    head:", "    heads:", "3:5: the group heads in gb10_cluster. Expected: head or worker"),
        ("gb10_cluster:", "gb10-cluster:", "1:1: the group gb10-cluster, which no playbook reads"),
        ("      hosts:", "      host:", "4:7: host in the group head. Expected: hosts"),
        ("  children:", "  childs:", "2:3: childs in the group gb10_cluster. Expected: children"),
        ("ansible_host: 192.168.1.12", "ansible_hots: 192.168.1.12", "11:11: ansible_hots, which nothing reads"),
        ("ansible_host: 192.168.1.12", "ip: 192.168.1.12", "11:11: ip, which nothing reads. Expected: ansible_host"),
        ("ansible_host: 192.168.1.12", "ansible_host: a@192.168.1.12", "11:25: a wrong ansible_host"),
        ("ansible_user: nvidia\n  vars", "ansible_port: 22x\n  vars", "12:25: a wrong ansible_port"),
        ("        spark2:\n", "        - spark2\n", "10:9: … as an entry of a list"),
        ("  vars:\n", "  vars:\n    gb10_api_port: 1\n  vars:\n", "15:3: vars again, as in line 13"),
        # Another file of the inventory may have the rest.
        (BLOCK, TOP, ""),
        (BLOCK, OWN, ""),
        ("    worker:", "    thor:", ""),
        (BLOCK, "[head]\nspark1 ansible_host=192.168.1.11\n", "1:1: a section in brackets, as in an INI file"),
        (BLOCK, "- spark1\n", "1:1: a list instead of groups"),
        (BLOCK, "# nothing yet\n", "1:1: an empty file"),
        (BLOCK, "gb10_cluster: &a\n  children: *a\n", ""),
        (BLOCK, "[" * 5000, "hosts.yml: too many levels"),
    ],
    ids=lambda value: value.strip().replace("\n", " ")[:30],
)
def test_a_mistake_has_its_line(old: str, new: str, expected: str) -> None:
    assert old in BLOCK
    found = "\n".join(faults(BLOCK.replace(old, new, 1)))
    assert expected in found and (expected != "" or new not in (TOP, OWN) or found == "")


def test_all_mistakes_of_a_file_are_reported_together() -> None:
    wrong = SAMPLE.replace("ansible_user", "user").replace("  vars:", "  variables:")
    assert [line.split()[0] for line in faults(wrong)] == ["hosts.yml:9:46:", "hosts.yml:12:46:", "hosts.yml:13:3:"]


def test_a_name_that_a_template_reads_is_the_users() -> None:
    used = BLOCK.replace(
        "gb10_model: q", "max_model_len: 8192\n    gb10_max_model_len: '{{ max_model_len }}'\n    gb10_model: q"
    )
    assert faults(used) == []


def test_a_word_means_a_variable_of_a_role() -> None:
    known = {name for role in ROLES for entry in specs_of(role).values() for name in entry.get("options", {})}
    assert {*WORDS.values()} <= known
    assert WORDS.keys() >= OF_VLLM


def test_a_faulty_inventory_ends_the_run_with_nothing_but_its_faults(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(BLOCK.replace("    worker:", "\tworker:"), encoding="utf-8")
    done = run("playbooks/status.yml", ["-i", str(tmp_path)])
    assert (done.status, len(done.output.splitlines())) == (4, 2), done.output
    done.assert_failed("1 problem found; nothing was changed.", "hosts.yml:8:1: a tab.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plugin: ansible.builtin.constructed\n", "the configuration of a plugin that is not enabled"),
        ('"plug\\x69n": ansible.builtin.constructed\n', "the configuration of a plugin that is not enabled"),
        ("plugin: gb10.lab.overlay\n", "inventory: no host in the group gb10_cluster"),
        ('{"recipe_version": 1, "gb10_cluster": {"vars": {"x": 1}}}\n', "… with a text"),
        ("all:\n  vars: 1\n", "vars with a text"),
        ("a: 1\n" * (1 << 16), "more than 262144 characters"),
    ],
)
def test_each_file_in_yaml_is_checked_unless_an_enabled_plugin_has_it(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "other.yml").write_text(text, encoding="utf-8")
    run("playbooks/status.yml", ["-i", str(tmp_path / "other.yml")]).assert_failed(expected)


@pytest.mark.parametrize(
    "line",
    [
        "ansible_password:hunter2",
        "ansible_password hunter2",
        "- hunter2 hunter2",
        "ansible_password=hunter2",
        "a\\e: hunter2",
    ],
)
@pytest.mark.parametrize("place", ["          ", "    ", "  "])
def test_a_value_is_never_shown(place: str, line: str) -> None:
    """A password may stand where something else was expected."""
    for text in (BLOCK.replace("  vars:\n", f"{place}{line}\n  vars:\n"), f"{line}\n", f"{BLOCK}    {line}\n"):
        said = "\n".join(faults(text))
        assert "hunter2" not in said, said


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("    ansible_password: *hunter2\n", "3:23: a value that begins with *"),
        ("    ansible_password: !hunter2!x\n", "3:23: a value that begins with !"),
        ("    ansible_password: !<hunter2\n", "no valid YAML"),
        ("    ansible_password: &hunter2!!x y\n", "no valid YAML"),
        ("    ansible_password: %hunter2\n", "3:23: a value that begins with %"),
        ('    ansible_password: "a\\hunter2"\n', "3:26: an unknown character after a backslash"),
        ("    ansible_password:\n    hunter2\n    gb10_x: 1\n", "4:5: … without a colon"),
        ("    gb10_api_key: >\n    hunter2\n    gb10_x: 1\n", "4:5: … without a colon"),
        ("    ansible_password: hunter2: x\n", "a second colon in the value"),
        ("    gb10_api_tls_key: |\n        -----BEGIN\n     hunter2\n        -----END\n", "begins in column 6"),
        ("    gb10_secret_env:\n      A: 'x'\n       hunter2: 1\n", "begins in column 8"),
        ("    a: hunter2\x07\n", "a control character, or another encoding"),
        ("  hunter2: x\n", "the variable … outside of vars"),
        ("  hosts: hunter2:x\n", "a space after the colon"),
        ("  hosts: {s1: {ansible_host: 'root:hunter2@10.0.0.1'}}\n", "a wrong ansible_host"),
        ("  hosts: {s1: {ansible_port: hunter2}}\n", "a wrong ansible_port"),
        ("  hosts: {hunter2: {}, hunter2: {}}\n", "… again, as in line 3"),
        ("  hosts: {s1: hunter2=x}\n", "…= and its value"),
    ],
)
def test_what_may_be_a_secret_is_never_shown(text: str, found: str) -> None:
    """The sentences are fixed, and only known names are shown."""
    said = "\n".join(faults(f"gb10_cluster:\n  vars:\n{text}"))
    assert found in said and "hunter2" not in said, said


def test_many_faults_are_found_in_time() -> None:
    text = "g:\n" + "".join(f"  k{number}: {{a: 1}}\n" for number in range(4000))
    before = time.process_time()
    assert len(faults(text)) == 4000
    # 4,000 keys once took 25 s.
    assert time.process_time() - before < 10


def test_a_key_is_printed_without_its_control_characters(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text('gb10_cluster:\n  "x\\e]0;evil\\a:y": 1\n', encoding="utf-8")
    done = run("playbooks/status.yml", ["-i", str(tmp_path)])
    assert done.status == 4 and "\x1b" not in done.output


def test_aliases_of_aliases_are_read_once() -> None:
    levels = [f"a{number + 1}: &a{number + 1} {{x: *a{number}, y: *a{number}}}" for number in range(40)]
    assert faults("\n".join(["a0: &a0 {x: 1}", *levels])) != []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "ansible_user: nvidia",
            "ansible_user: nvidia\n          ansible_sftp_extra_args: -v\n          ansible_ssh_timeout: 9",
        ),
        ("ansible_user: nvidia", "ansible_user: nvidia\n          ip: 10.0.0.1\n          user: me"),
        ("spark2:", "spark[2:4]:"),
        ("spark2:", "'spark[2:4]':"),
        ("spark2:", "192.168.1.12:2222:"),
        ("spark2:", "'fd00::2':"),
        (
            BLOCK,
            f"{BLOCK}workers:\n  hosts:\n    other1:\nheads:\ngateways:\nmonitors:\ngb10_cluster_a:\n  hosts: spark1\n",
        ),
    ],
)
def test_what_ansible_reads_as_it_is_meant_has_no_fault(old: str, new: str) -> None:
    assert faults(BLOCK.replace(old, new, 1)) == []


def test_ansibles_own_variables_are_known() -> None:
    """Those of its plugins and of its configuration, in the installed release."""
    folder = Path(str(ansible.__path__[0]))
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("plugins/*/*.py")]
    texts.append((folder / "config" / "base.yml").read_text(encoding="utf-8"))
    names = {name for text in texts for name in re.findall(r"name: *['\"]?(ansible_\w+)", text)}
    assert len(names) > 100
    vars_of = {name: BLOCK.replace("  vars:\n", f"  vars:\n    {name}: '1'\n") for name in names}
    assert [name for name, text in vars_of.items() if faults(text)] == []


def test_another_file_beside_the_inventory_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text("- name: Mine\n  hosts: all\n", encoding="utf-8")
    (tmp_path / "hosts.sh").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", encoding="utf-8")
    (tmp_path / "hosts.sh").chmod(0o755)
    (tmp_path / "hosts.yml").write_text(SAMPLE, encoding="utf-8")
    assert "text instead of" not in (said := run("playbooks/models.yml", ["-i", str(tmp_path), "--list-hosts"]).output)
    assert "a list instead of groups" not in said and "spark1" in said
    assert not (tmp_path / "ran").exists()
