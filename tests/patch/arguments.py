"""The arguments of `vllm serve` in one release, read from the syntax trees of its Python sources.

vLLM is not imported. The reader follows the code that builds the parser: the calls of add_argument, and the rules of
vllm.engine.arg_utils._compute_kwargs for those made from a dataclass. Unknown code is an error, so that a new release
is never read wrongly.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

#: The platform of a GB10, for sources that query the platform.
_PLATFORM = "cuda"
_BUILTINS = {"bool", "int", "float", "str", "list", "tuple", "set", "dict"}
_CONTAINERS = ("fixed", "tuple", "list", "set")


@dataclass(frozen=True)
class Argument:
    """An option of the parser.

    ``kind``: value, list (one or more), optional (none or one), append, flag, or bool (with --no-). ``fold``: the
    change of a value before it is compared with ``choices``. ``open``: later code checks it instead of the parser, and
    plugins can have added choices.
    """

    name: str
    kind: str = "value"
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    fold: str = ""
    open: bool = False


@dataclass(frozen=True)
class Hint:
    """One part of a type: the name of a built-in class, None, Literal with its values, dataclass or other."""

    name: str
    values: tuple[str, ...] = ()
    inner: tuple[Hint, ...] = ()


@dataclass
class Keywords:
    """The needed part of the result of get_kwargs() for one field."""

    kind: str
    choices: list[str] = field(default_factory=list)
    fold: str = ""
    open: bool = False


class Release:
    """The sources of one release, the folder vllm of its wheel. Raises ValueError for unknown code."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self._names: dict[str, dict[str, tuple[str, ast.AST | None, str]]] = {}

    # Names and types

    def path(self, module: str) -> Path:
        stem = self.package.parent / module.replace(".", "/")
        return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")

    def text(self, module: str) -> str:
        return self.path(module).read_text(encoding="utf-8")

    def names(self, module: str) -> dict[str, tuple[str, ast.AST | None, str]]:
        """Return top-level name -> (module, its expression or class, "") or (other module, None, name there)."""
        if module not in self._names:
            found: dict[str, tuple[str, ast.AST | None, str]] = {}
            self._collect(module, ast.parse(self.text(module)).body, found)
            self._names[module] = found
        return self._names[module]

    def _collect(self, module: str, body: list[ast.stmt], found: dict[str, tuple[str, ast.AST | None, str]]) -> None:
        for node in body:
            match node:
                case ast.If() | ast.Try():
                    # The else of TYPE_CHECKING counts when the parser is built, so it comes second.
                    self._collect(module, node.body + node.orelse, found)
                case ast.ImportFrom():
                    origin = node.module or ""
                    if node.level:
                        parts = module.split(".")
                        parts = parts if self.path(module).name == "__init__.py" else parts[:-1]
                        origin = ".".join(
                            [*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])]
                        )
                    starred = [
                        alias
                        for alias in node.names
                        if alias.name == "*" and origin.startswith("vllm.") and self.path(origin).exists()
                    ]
                    found.update(
                        self.names(origin)
                        if starred
                        else {alias.asname or alias.name: (origin, None, alias.name) for alias in node.names}
                    )
                case ast.ClassDef() | ast.FunctionDef():
                    found[node.name] = (module, node, "")
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    found[name] = (module, value, "")

    def find(self, module: str, name: str) -> tuple[str, ast.AST] | None:
        """Return the module that defines a name, and its expression or class; None for other packages."""
        while module.startswith("vllm.") and self.path(module).exists() and name in self.names(module):
            module, node, there = self.names(module)[name]
            if node is not None:
                return module, node
            name = there
        return None

    def hints(self, module: str, node: ast.AST) -> tuple[Hint, ...]:
        """Return the parts of an annotation, like get_type_hints() of arg_utils."""
        match node:
            case ast.Constant(value=None):
                return (Hint("None"),)
            case ast.Constant(value=str() as text):
                return self.hints(module, ast.parse(text, mode="eval").body)
            case ast.BinOp(left=left, right=right):
                return self.hints(module, left) + self.hints(module, right)
            case ast.Subscript(value=ast.Name(id=name), slice=inside):
                return self._subscript(module, name, inside.elts if isinstance(inside, ast.Tuple) else [inside])
            case ast.Name(id=name):
                return (Hint(name),) if name in _BUILTINS else self._named(module, name)
        return (Hint("other"),)

    def _subscript(self, module: str, name: str, inside: list[ast.expr]) -> tuple[Hint, ...]:
        match name:
            case "Annotated" | "SkipValidation":
                return self.hints(module, inside[0])
            case "Union" | "Optional":
                return tuple(hint for part in inside for hint in self.hints(module, part)) + (
                    (Hint("None"),) if name == "Optional" else ()
                )
            case "Literal":
                return (Hint("Literal", tuple(self.literals(module, inside))),)
            case "list" | "tuple" | "set":
                fixed = name == "tuple" and not any(
                    isinstance(part, ast.Constant) and part.value is ... for part in inside
                )
                return (Hint("fixed" if fixed else name, inner=self.hints(module, inside[0])),)
            case "dict":
                return (Hint("dict"),)
        return (Hint("other"),)

    def _named(self, module: str, name: str) -> tuple[Hint, ...]:
        found = self.find(module, name)
        if found is None:
            return (Hint("other"),)
        origin, node = found
        if not isinstance(node, ast.ClassDef):
            return self.hints(origin, node)
        decorators = {_called(decorator) for decorator in node.decorator_list}
        return (Hint("dataclass" if decorators & {"config", "dataclass"} else "other"),)

    def literals(self, module: str, values: list[ast.expr]) -> Iterator[str]:
        """Yield the values of a Literal, including those of nested Literals."""
        for value in values:
            if isinstance(value, ast.Constant):
                yield str(value.value)
            else:
                for hint in self.hints(module, value):
                    yield from hint.values

    def literal(self, module: str, name: str) -> list[str]:
        """Return the values of a Literal by its name."""
        values = [value for hint in self._named(module, name) for value in hint.values]
        if not values:
            raise ValueError(f"{module}.{name} is no Literal")
        return values

    # The parser

    def fields(self, module: str, name: str) -> dict[str, Keywords]:
        """Return get_kwargs() of a dataclass: its fields and those of its bases."""
        found = self.find(module, name)
        if found is None or not isinstance(found[1], ast.ClassDef):
            raise ValueError(f"{module} has no class {name}")
        origin, node = found
        answer: dict[str, Keywords] = {}
        for base in node.bases:
            if isinstance(base, ast.Name) and self.find(origin, base.id):
                answer |= self.fields(origin, base.id)
        for statement in node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=attribute), annotation=annotation) if (
                    "ClassVar" not in ast.unparse(annotation)
                ):
                    answer[attribute] = self.keywords(origin, annotation)
        return answer

    def keywords(self, module: str, annotation: ast.expr) -> Keywords:
        """Return the result of _compute_kwargs() for a type."""
        hints = {hint.name: hint for hint in self.hints(module, annotation)}
        if "dataclass" in hints:
            return Keywords("value")
        if set(hints) == {"bool", "str", "None"} and "type_hints == {bool, str, type(None)}" in self.text(
            "vllm.engine.arg_utils"
        ):
            return Keywords("optional")
        if "bool" in hints:
            return Keywords("bool")
        kind, literal = "value", hints.get("Literal")
        if literal is None and (container := next((hints[name] for name in _CONTAINERS if name in hints), None)):
            kind = "fixed" if container.name == "fixed" else "list"
            literal = next(
                (hint for hint in container.inner if hint.name == "Literal" and len(container.inner) == 1), None
            )
        if literal is None:
            return Keywords(kind)
        checked_later = kind == "value" and "str" in hints
        # Until 0.30 the choices contained the text None, and a parsed None was compared with it.
        none = (
            "None" in hints and not checked_later and '["choices"].append(None)' in self.text("vllm.engine.arg_utils")
        )
        return Keywords(kind, [*literal.values, *(["None"] if none else [])], open=checked_later)

    @cached_property
    def cli(self) -> str:
        """The module with the server's own options, which moved in 0.29 and in 0.33."""
        places = (f"vllm.entrypoints.{place}.cli_args" for place in ("common", "launchers", "openai"))
        return next(name for name in places if self.path(name).exists())

    def arguments(self) -> dict[str, Argument]:
        """Return all options of `vllm serve` by their long names."""
        found = [
            *self._calls(self.cli, self._function(self.cli, "make_arg_parser")),
            *self._frontend(),
            *self._calls("vllm.engine.arg_utils", self._function("vllm.engine.arg_utils", "EngineArgs.add_cli_args")),
            *self._calls(
                "vllm.engine.arg_utils", self._function("vllm.engine.arg_utils", "AsyncEngineArgs.add_cli_args")
            ),
        ]
        answer = {argument.name: argument for argument in found}
        if len(answer) != len(found):
            raise ValueError("an option is defined twice")
        for name, choices, fold in self._checked_later():
            if name in answer:
                answer[name] = replace(answer[name], choices=tuple(sorted(choices)), fold=fold, open=True)
        return answer

    def _function(self, module: str, name: str) -> ast.FunctionDef:
        first, _, second = name.partition(".")
        found = self.find(module, first)
        if found and second:
            functions = (node for node in ast.iter_child_nodes(found[1]) if isinstance(node, ast.FunctionDef))
            found = next(((module, node) for node in functions if node.name == second), None)
        if found is None or not isinstance(found[1], ast.FunctionDef):
            raise ValueError(f"{module} has no function {name}")
        return found[1]

    def _frontend(self) -> Iterator[Argument]:
        """Yield the server's options: one for each field, with the changes by the functions of the class."""
        module, text = self.cli, self.text(self.cli)
        if '["flags"]' in text:
            raise ValueError(f"{module}: an option of the frontend has further flags, which is not provided for")
        fields = self.fields(module, "FrontendArgs")
        for owner in ("BaseFrontendArgs", "FrontendArgs"):
            for function in ("add_cli_args", "_customize_cli_kwargs"):
                if self.find(module, owner):
                    try:
                        body = self._function(module, f"{owner}.{function}")
                    except ValueError:
                        continue
                    Reader(self, module, {"frontend_kwargs": fields}).read(body.body)
        for name, keywords in fields.items():
            yield _argument([f"--{name.replace('_', '-')}"], keywords)

    def _calls(self, module: str, function: ast.FunctionDef) -> Iterator[Argument]:
        reader = Reader(self, module, {})
        reader.read(function.body)
        yield from reader.arguments

    def _checked_later(self) -> Iterator[tuple[str, list[str], str]]:
        """Yield (name, choices, fold) of options that the parser reads as text and later code checks."""
        yield "--quantization", self.literal("vllm.model_executor.layers.quantization", "QuantizationMethods"), ""
        yield "--load-format", self.literal("vllm.model_executor.model_loader", "LoadFormats"), ""
        for option, package in (("--tool-call-parser", "vllm.tool_parsers"), ("--reasoning-parser", "vllm.reasoning")):
            registered = next(
                node for name, (_, node, _) in self.names(package).items() if name.endswith("_PARSERS_TO_REGISTER")
            )
            assert isinstance(registered, ast.Dict)
            yield option, [key.value for key in registered.keys if isinstance(key, ast.Constant)], ""
        module = "vllm.config.attention"
        found = self.find(module, "AttentionBackendEnum")
        assert found and isinstance(found[1], ast.ClassDef)
        members = [
            node.targets[0].id
            for node in found[1].body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        ]
        yield (
            "--attention-backend",
            [*members, *(["AUTO"] if '.lower() == "auto"' in self.text(module) else [])],
            "upper",
        )

    # Everything else

    def variables(self) -> set[str]:
        """Return the environment variables in envs.py, and vLLM's own variables that other files read directly."""
        found = self.names("vllm.envs")["environment_variables"][1]
        assert isinstance(found, ast.Dict)
        named = {key.value for key in found.keys if isinstance(key, ast.Constant)}
        return named.union(
            *(
                re.findall(r"""(?:environ(?:\.get)?[\[(]|getenv\()\s*["'](VLLM_[A-Z0-9_]+)["']""", text)
                for text in self.texts
            )
        )

    @cached_property
    def texts(self) -> list[str]:
        return [path.read_text(encoding="utf-8") for path in sorted(self.package.rglob("*.py"))]


class Reader:
    """Reads a function that adds arguments, statement by statement."""

    def __init__(self, release: Release, module: str, known: dict[str, dict[str, Keywords]]) -> None:
        self.release, self.module, self.known = release, module, known
        self.single: dict[str, Keywords] = {}
        self.arguments: list[Argument] = []

    def read(self, body: list[ast.stmt]) -> None:
        for node in body:
            match node:
                case ast.If():
                    # `if not async_args_only` and `if "nargs" in ...`: both are true for `vllm serve`.
                    self.read(node.body)
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=of)])
                ):
                    if of != "cls" and name not in self.known:
                        self.known[name] = self.release.fields(self.module, of)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() as value) if (
                    found := self.field(value)
                ) is not None:
                    self.single[name] = found
                case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str() as key)) as target], value=value):
                    self.change(target, key, value)
                case ast.AugAssign(target=ast.Subscript(value=target, slice=ast.Constant(value="choices"))):
                    self.permutations(target, node)
                case ast.Delete(targets=[ast.Subscript(value=target, slice=ast.Constant(value="nargs"))]):
                    found = self.needed(target)
                    found.kind = "value" if found.kind == "list" else found.kind
                case ast.Expr(value=ast.Call(func=ast.Attribute(attr="add_argument")) as call):
                    self.add(call)
                case ast.Expr(
                    value=ast.Call(
                        func=ast.Attribute(attr="remove", value=ast.Subscript(value=target)), args=[ast.Name(id=name)]
                    )
                ):
                    found_at = self.release.find(self.module, name)
                    assert found_at and isinstance(found_at[1], ast.Constant)
                    self.needed(target).choices.remove(str(found_at[1].value))

    def field(self, node: ast.AST) -> Keywords | None:
        """Return the field for X["name"] or a variable assigned from it."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as key)) if name in self.known:
                return self.known[name][key]
            case ast.Subscript(
                value=ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=of)]),
                slice=ast.Constant(value=str() as key),
            ):
                return self.release.fields(self.module, of)[key]
            case ast.Name(id=name):
                return self.single.get(name)
            case ast.Dict(keys=[None, *_], values=[first, *_]):
                return self.field(first)
        return None

    def needed(self, node: ast.AST) -> Keywords:
        found = self.field(node)
        if found is None:
            raise ValueError(f"{self.module}: {ast.unparse(node)} is not understood")
        return found

    def change(self, target: ast.Subscript, key: str, value: ast.expr) -> None:
        if key in ("default", "metavar", "help"):
            return
        found, text = self.needed(target.value), ast.unparse(value)
        match key:
            case "type" if "lower()" in text:
                if text != "lambda s: s.lower().replace('-', '_')":
                    raise ValueError(f"{self.module}: {text} is not understood")
                found.fold = "lower"
            case "type":
                pass
            case "action" if text == "'append'":
                found.kind = "append"
            case "action":
                pass
            case _:
                raise ValueError(f"{self.module}: {ast.unparse(target)} = {text} is not understood")

    def permutations(self, target: ast.expr, node: ast.AugAssign) -> None:
        """Read the one extended list: each pair of the values, separated by a comma."""
        asked = re.search(r"permutations\(get_args\((\w+)\), r=2\)", ast.unparse(node.value))
        if asked is None:
            raise ValueError(f"{self.module}: {ast.unparse(node)} is not understood")
        pairs = itertools.permutations(self.release.literal(self.module, asked[1]), 2)
        self.needed(target).choices += [",".join(pair) for pair in pairs]

    def add(self, call: ast.Call) -> None:
        flags = [node.value for node in call.args if isinstance(node, ast.Constant)]
        if not flags or len(flags) != len(call.args):
            # `for key, value in frontend_kwargs.items()` is not read here.
            raise ValueError(f"{self.module}: {ast.unparse(call)} is not understood")
        if not flags[0].startswith("-"):
            return
        keywords = Keywords("value")
        for keyword in call.keywords:
            if keyword.arg is None:
                found = self.needed(keyword.value)
                keywords = Keywords(found.kind, list(found.choices), found.fold, found.open)
        for keyword in call.keywords:
            text = ast.unparse(keyword.value)
            match keyword.arg:
                case "action":
                    actions = {"'store_true'": "flag", "argparse.BooleanOptionalAction": "bool", "'append'": "append"}
                    keywords.kind = actions.get(text) or self.action(text)
                case "nargs":
                    keywords.kind = {"'?'": "optional", "'+'": "list"}[text]
                case "choices":
                    keywords.choices = self.choices(keyword.value)
        self.arguments.append(_argument(flags, keywords))

    def action(self, text: str) -> str:
        """Return the kind of vLLM's own action classes: one value, unless they call super().__init__."""
        found = self.release.find(self.module, text)
        if found is None or "super().__init__" in ast.unparse(found[1]):
            raise ValueError(f"{self.module}: the action {text} is not understood")
        return "value"

    def choices(self, node: ast.expr) -> list[str]:
        match node:
            case ast.List(elts=values):
                return [
                    _PLATFORM if ast.unparse(value) == "current_platform.device_type" else str(ast.literal_eval(value))
                    for value in values
                ]
            case ast.Call(func=ast.Name(id="get_args"), args=[ast.Name(id=name)]):
                return self.release.literal(self.module, name)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.choices(left) + self.choices(right)
            case ast.IfExp(body=body):
                return self.choices(body)
            case ast.Call(func=ast.Name(id="list" | "sorted"), args=[inside]):
                return self.choices(inside)
        raise ValueError(f"{self.module}: choices {ast.unparse(node)} are not understood")


def _argument(flags: list[str], keywords: Keywords) -> Argument:
    name = next(flag for flag in flags if flag.startswith("--"))
    if keywords.kind == "fixed":
        raise ValueError(f"{name} takes a fixed number of values, which is not provided for")
    choices = tuple(sorted(set(keywords.choices)))
    return Argument(
        name, keywords.kind, tuple(flag for flag in flags if flag != name), choices, keywords.fold, keywords.open
    )


def _called(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]
