"""Insert a block into a function of any Python file. All other bytes stay unchanged, or the edit is rejected."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.patch import source_edit
from ansible_collections.gb10.cluster.plugins.module_utils.patch.source_edit import SourceEditError, find, insert, parse

BLOCK = ["# added", "if x:", "    return 1"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f():\n    return 0\n", "def f():\n    # added\n    if x:\n        return 1\n    return 0\n"),
        (
            'def f():\n  """Doc."""\n  return 0\n',
            'def f():\n  """Doc."""\n  # added\n  if x:\n      return 1\n  return 0\n',
        ),
        ('def f():\n  """Doc.\n\n  More."""  # why\n\n  # c\n  return 0\n', None),
        ('def f():\n    """Only a docstring."""\n', None),
        ('def f():\n    """No newline at the end."""', None),
        ("def f():\r\n\treturn 0\r\n", "def f():\r\n\t# added\r\n\tif x:\r\n\t    return 1\r\n\treturn 0\r\n"),
        ("def f(): return 0\n", "def f():\n    # added\n    if x:\n        return 1\n    return 0\n"),
        ("def f(\n    a=1,\n): return 0  # c\n", None),
        ("def f(): a = 1; return a\n", None),
        (
            'def f(): "Doc."; return 0\n',
            'def f():\n    "Doc."\n    # added\n    if x:\n        return 1\n    return 0\n',
        ),
        ('def f(): "Doc."', None),
        ('def f():\n    "Doc."; return 0\n', None),
        ("async def f():\n    return 0\n", None),
        ("@a\n@b(\n  1)\ndef f():\n    @c\n    def g(): ...\n    return g\n", None),
        ("# é\ndef f(a='é'): return 'é'\n", None),
        (
            "def f():\n    # about it\n    return 0\n",
            "def f():\n    # added\n    if x:\n        return 1\n    # about it\n    return 0\n",
        ),
        ("def f(): \\\n    return 0\n", None),
        ("if a:\n    try:\n        def f(): return 0\n    except E:\n        pass\n", None),
        ("\ufeffdef f():\n    return 0\n", "\ufeffdef f():\n    # added\n    if x:\n        return 1\n    return 0\n"),
        ("\ufeffdef f(): return 0\n", None),
        ("def f():\r    return 0\r", None),
        ("# -*- coding: utf-8 -*-\ndef f():\n    return 0\n", None),
        ("#!/usr/bin/python3\n# vim: set fileencoding=UTF-8 :\ndef f():\n    return 0\n", None),
        # Only the first two lines count.
        ("\n\n# coding: latin-1\ndef f():\n    return 0\n", None),
        ("x = '''\ndef f():\n    pass\n'''\n\ndef f():\n    pass\n", None),
    ],
)
def test_the_block_is_first_and_the_rest_stays(before: str, after: str | None) -> None:
    result = insert(before.encode(), "f", BLOCK).decode()
    assert after is None or result == after
    assert_only_added(before, result, "f")


def assert_only_added(before: str, after: str, name: str) -> None:
    """The tree is the old one with the block at the start of the body. Comments and spacing stay in order."""
    old, new = ast.parse(before.encode()), ast.parse(after.encode())
    old_body, new_body = find(old, name).body, find(new, name).body
    at = int(
        isinstance(old_body[0], ast.Expr)
        and isinstance(old_body[0].value, ast.Constant)
        and isinstance(old_body[0].value.value, str)
    )
    assert ast.unparse(new_body.pop(at)) == "if x:\n    return 1"
    assert ast.dump(old) == ast.dump(new)
    rest = iter("".join(after.split()))
    assert all(character in rest for character in "".join(before.split()).replace(";", "")), (
        "something of the old file is gone"
    )


@pytest.mark.parametrize(
    ("before", "name", "after", "expected"),
    [
        (
            "class A:\n    def f(self): ...\n\nclass B:\n\tdef f(self):\n\t\treturn 0\n",
            "B.f",
            None,
            "class A:\n    def f(self): ...\n\nclass B:\n\tdef f(self):\n\t\tpass\n\t\treturn 0\n",
        ),
        (
            "def f(self):\n    if a:\n        self.b = 1\n    else:\n        self.b = 2\n    # use\n    return self.b\n",
            "f",
            "self.b",
            "def f(self):\n    if a:\n        self.b = 1\n    else:\n        self.b = 2\n    pass\n    # use\n    return self.b\n",
        ),
        ("def f(s): s.b: int = 1; return s.b\n", "f", "s.b", "def f(s):\n    s.b: int = 1\n    pass\n    return s.b\n"),
    ],
    ids=["a method", "behind an assignment", "behind one on the line of the header"],
)
def test_another_place(before: str, name: str, after: str | None, expected: str) -> None:
    assert insert(before.encode(), name, ["pass"], after).decode() == expected


@pytest.mark.parametrize(
    ("source", "name", "after", "expected"),
    [
        (b"def g(): pass\n", "f", None, "one definition of f, found 0"),
        (b"def f(): pass\ndef f(): pass\n", "f", None, "one definition of f, found 2"),
        (b"def f(): pass\n", "A.f", None, "one class A, found 0"),
        (b"class A: pass\n", "A.f", None, "one definition of f, found 0"),
        (b"def g():\n    def f(): pass\n", "f", None, "one definition of f, found 0"),
        (b"# -*- coding: latin-1 -*-\ndef f(): return '\xe9'\n", "f", None, "UTF-8, not latin-1"),
        (b"def f():\n    'doc' \\\n    ; return 0\n", "f", None, "without changing its meaning"),
        (b"def f(self):\n    self.c = 1\n", "f", "self.b", r"a statement that assigns self\.b"),
    ],
)
def test_another_shape_is_refused(source: bytes, name: str, after: str | None, expected: str) -> None:
    with pytest.raises(SourceEditError, match=expected):
        insert(source, name, BLOCK, after)


@pytest.mark.parametrize("source", [b"def f(:\n", b"def f(): '\xff'\n", b"def f():\n    return '\x00'\n"])
def test_a_file_with_an_error(source: bytes) -> None:
    with pytest.raises(SyntaxError):
        insert(source, "f", BLOCK)


NOISE = st.sampled_from(
    [
        "",
        "\n",
        "# noise é\n",
        "    # indented comment\n",
        "\n\n",
        "\f\n",
        "VALUE = '''\ndef f(): no\n'''\n",
        "X = 1; Y = 2\n",
    ]
)
OTHER = st.sampled_from(
    [
        "def other(a, b): return (a,\n b)\n",
        "class C:\n  def f(self): return 1\n",
        "@d\nasync def more():\n\tawait x\n",
        "",
    ]
)
DOC = st.sampled_from(["", '"""Doc."""', "'é; # no comment'", '"""Two\n  lines."""', "r'raw'"])
END = st.sampled_from(["", "  # trailing", " ;", "  "])
STATEMENTS = ["return a", "pass", "b = (1,\n2)", "if a: pass", "@d\n{indent}def g(): ...", "# comment", "", 'f"{a}"']
BODY = st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4)
HEADER = st.sampled_from(
    [
        "def f(a=1):",
        "def f(\n  a=1,  # c:\n):",
        "def f(a=1) -> 'x: y':",
        "@d\n@e(1,\n 2)\ndef f(a=1):",
        "async def f(a=1) :",
    ]
)


@given(
    header=HEADER,
    comment=st.sampled_from(["", "  # colon: here"]),
    doc=DOC,
    body=BODY,
    end=END,
    indent=st.sampled_from(["    ", "\t", " "]),
    inline=st.booleans(),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    parts=st.tuples(NOISE, OTHER, NOISE, OTHER, NOISE),
    bom=st.booleans(),
    cut=st.booleans(),
)
def test_any_layout_is_edited_rightly_or_refused(
    header: str,
    comment: str,
    doc: str,
    body: list[str],
    end: str,
    indent: str,
    inline: bool,
    newline: str,
    parts: tuple[str, ...],
    bom: bool,
    cut: bool,
) -> None:
    statements = [line.replace("{indent}", indent) for line in ([doc] if doc else []) + body]
    if inline:
        simple = [line for line in statements if line and not line.startswith(("#", "if", "@"))] or ["pass"]
        function = f"{header} {'; '.join(simple)}{end}\n"
    else:
        ends = [end if index == 0 and line and "#" not in line else "" for index, line in enumerate(statements)]
        function = "".join(
            [header, comment, "\n", *(f"{indent}{line}{last}\n" for line, last in zip(statements, ends, strict=True))]
        )
    text = f"{parts[0]}{parts[1]}{parts[2]}{function}{parts[3]}{parts[4]}"
    source = (text.rstrip("\n") if cut else text).replace("\n", newline)
    start = "\ufeff" if bom else ""
    try:
        parse((start + source).encode())
    except SyntaxError:
        return  # not a file that Python can import
    edited = insert((start + source).encode(), "f", BLOCK).decode()
    assert edited.startswith("\ufeff") is bom
    assert_only_added(source, edited.removeprefix("\ufeff"), "f")


def test_parameters_without_a_default_are_required() -> None:
    function = source_edit.find(source_edit.parse(b"def f(a, b=1, *, c, d=2): pass\n"), "f")
    assert source_edit.required(function) == ["a", "c"]
