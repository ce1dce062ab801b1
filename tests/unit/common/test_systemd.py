"""Words of a unit, files of variables, and the digest of launch inputs."""

from __future__ import annotations

import hashlib

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd


@pytest.mark.parametrize(
    ("word", "in_exec", "in_environment"),
    [
        ("a_B9@+=:,./-", "a_B9@+=:,./-", "a_B9@+=:,./-"),
        ("", '""', '""'),
        ("5%", "5%%", "5%%"),
        ("$HOME", "$$HOME", "$HOME"),
        ("a b", '"a b"', '"a b"'),
        ('a"b\\c', '"a\\"b\\\\c"', '"a\\"b\\\\c"'),
        ("a;b", '"a;b"', '"a;b"'),
    ],
)
def test_a_word_of_a_unit_is_what_systemd_reads(word: str, in_exec: str, in_environment: str) -> None:
    assert systemd.systemd_quote(word) == in_exec
    assert systemd.systemd_quote(word, exec_line=False) == in_environment
    assert systemd.exec_line(["run", word]) == f"run {in_exec}"


VALUES = {"b": "plain/1", "A_1": "", "c": 'two "$x` \\n'}
FILE = 'A_1=\nb=plain/1\nc="two \\"\\$x\\` \\\\n"\n'


def test_variables_survive_a_file() -> None:
    assert systemd.environment_file(VALUES) == FILE
    assert systemd.variables_of_file(f"# a comment\n{FILE}no name\n1a=x\n") == VALUES
    assert systemd.engine_file(VALUES) == f"A_1=\nb=plain/1\nc={VALUES['c']}\n"


@pytest.mark.parametrize("end", ["\n", "\r", "\0"])
def test_a_line_break_is_refused_and_a_secret_name_is_not_shown(end: str) -> None:
    with pytest.raises(ValueError, match="contains a line break"):
        systemd.systemd_quote(f"a{end}b")
    wrong = {"ok": "1", "a b": "2", "z": f"x{end}y"}
    with pytest.raises(ValueError) as raised:
        systemd.environment_file(wrong)
    assert str(raised.value) == "'a b' is not the name of an environment variable; the value of z contains a line break"
    with pytest.raises(ValueError, match=r"^name 1 in alphabetical order is not the name"):
        systemd.environment_file(wrong, secret=True)


def test_the_digest_of_a_unit_changes_with_its_inputs_and_not_with_their_order() -> None:
    first = systemd.unit_with_digest("A=@inputs@ @inputs@", [{"a": 1, "b": 2}])
    assert first["text"] == f"A={first['inputs']} {first['inputs']}"
    assert first["inputs"] == hashlib.sha256(b'["A=@inputs@ @inputs@",[{"a":1,"b":2}]]').hexdigest()
    assert systemd.unit_with_digest("A=@inputs@ @inputs@", ({"b": 2, "a": 1},)) == first
    with pytest.raises(ValueError, match="no placeholder @inputs@"):
        systemd.unit_with_digest("A=", [])
