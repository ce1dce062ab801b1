# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bytes per parameter in a checkpoint, by component and quantization."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from ansible_collections.gb10.cluster.plugins.module_utils.model.quantization import Quantization

#: Bytes per number.
ELEMENT = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
#: Bytes per weight with its scales: NVFP4 has 8 bits per 16 weights, MXFP4 per 32; scales of 8-bit formats are less
#: than 0.1 %. Sources: NVIDIA, "Introducing NVFP4"; OCP Microscaling Formats 1.0.
_WEIGHT = {"fp8": Fraction(1), "int8": Fraction(1), "nvfp4": Fraction(9, 16), "mxfp4": Fraction(17, 32)}
#: AWQ and GPTQ have a 16-bit scale and a 4-bit zero point per group.
_GROUP, _GROUP_BYTES = 128, Fraction(5, 2)
#: Limits: characters per name, patterns per model, choices per expression.
_LONGEST, _MOST_PATTERNS, _MOST_CHOICES = 256, 256, 64
_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "backbone.")
#: Modules that represent all modules of their kind in a layer. Routers, norms, embeddings and the output always count
#: as unquantized.
_MODULES = {
    "attention": ("self_attn.o_proj", "linear_attn.out_proj", "mixer.o_proj", "mixer.out_proj"),
    "mlp": (
        "mlp.down_proj",
        "mlp.shared_expert.down_proj",
        "mlp.shared_experts.down_proj",
        "mixer.shared_experts.down_proj",
    ),
    "experts": ("mlp.experts.0.down_proj", "block_sparse_moe.experts.0.w2", "mixer.experts.0.down_proj"),
}
#: Gemma 4's experts are not in the module mlp, so a pattern for that module does not apply to them.
_GEMMA4 = {**_MODULES, "experts": ("experts.0.down_proj",)}


@dataclass(frozen=True)
class Stored:
    """Bytes per parameter.

    ``known`` is False for a format of unknown size: the figures then only show relative sizes.
    """

    scheme: str
    known: bool
    attention: Fraction
    mlp: Fraction
    experts: Fraction
    #: Embeddings, output, norms, router.
    plain: Fraction


def stored(quantization: Quantization, family: str, layers: int) -> Stored:
    """Return the bytes per parameter of a family's model; components unquantized in some layers count in part."""
    scheme, plain = quantization.scheme, Fraction(ELEMENT.get(quantization.dtype, 2))
    weight = (
        Fraction(1, 2) + _GROUP_BYTES / (quantization.group_size or _GROUP)
        if scheme == "int4"
        else _WEIGHT.get(scheme, plain)
    )
    left_out = _LeftOut(quantization.left_out)
    parts = {}
    for component, modules in (_GEMMA4 if family.startswith("gemma4") else _MODULES).items():
        share = Fraction(sum(left_out.layer(index, modules) for index in range(layers)), max(1, layers))
        parts[component] = share * plain + (1 - share) * weight
    return Stored(
        scheme,
        left_out.understood and (scheme == "none" or scheme in _WEIGHT or scheme == "int4"),
        **parts,
        plain=plain,
    )


class _LeftOut:
    """Names of unquantized modules: full names, parent modules, wildcards, or ``re:`` with a regular expression.

    The expressions are untrusted, and Python's matcher can take exponential time. So they are converted to wildcards
    where possible; ``understood`` is False if one could not be converted.
    """

    def __init__(self, names: Iterable[object]) -> None:
        self.names: set[str] = set()
        self.understood = True
        wildcards: set[str] = set()
        for name in names:
            try:
                if not isinstance(name, str) or len(name) > _LONGEST:
                    raise ValueError
                if len(wildcards) > _MOST_PATTERNS:
                    # Each of thousands could be up to _MOST_CHOICES wildcards.
                    self.understood = False
                    break
                if name.startswith("re:"):
                    wildcards.update(_wildcards(name.removeprefix("re:")))
                elif "*" in name:
                    wildcards.add(name)
                else:
                    self.names.add(name)
            except ValueError:
                self.understood = False
        self.understood = self.understood and len(wildcards) <= _MOST_PATTERNS
        self.patterns = [
            re.compile(fnmatch.translate(wildcard))
            for wildcard in sorted(wildcards)
            if len(wildcards) <= _MOST_PATTERNS
        ]

    def layer(self, index: int, modules: Iterable[str]) -> bool:
        """Return whether one of these modules of the index-th layer is unquantized."""
        return any(self._has(f"{prefix}layers.{index}.{module}") for prefix in _PREFIXES for module in modules)

    def _has(self, module: str) -> bool:
        parts = module.split(".")
        above = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        return bool(self.names.intersection(above)) or any(
            pattern.match(name) for pattern in self.patterns for name in above[3:]
        )


#: Tokens that quantizers use in such expressions; _wildcard() converts each.
_TOKENS = re.compile(
    r"(?P<many>\.[*+]\??)|(?P<digits>(?:\\d|\[0-9\])\+?)|\\(?P<escaped>\W)|(?P<any>\.)|(?P<plain>[\w:/-])", re.ASCII
)
_GROUPS = re.compile(r"\((?:\?:)?([^()]*)\)(?![*+?{])")


def _wildcards(expression: str) -> set[str]:
    """Return wildcards that together match the same names as an expression.

    Raises ValueError if wildcards cannot express it.
    """
    found, todo = set(), [expression]
    while todo:
        one = todo.pop()
        if group := _GROUPS.search(one):
            todo += [one[: group.start()] + choice + one[group.end() :] for choice in group[1].split("|")]
        elif "|" in one:
            todo += one.split("|")
        else:
            found.add(_wildcard(one))
        if len(todo) + len(found) > _MOST_CHOICES:
            raise ValueError("too many choices")
    return found


def _wildcard(expression: str) -> str:
    begun, ended = expression.removeprefix("^"), expression.endswith("$")
    rest, result = begun.removesuffix("$"), ""
    while rest:
        token = _TOKENS.match(rest)
        if token is None:
            raise ValueError(f"{rest[:20]!r} cannot be converted to a wildcard")
        kinds = {"many": "*", "digits": "[0-9]*", "any": "?", "escaped": f"[{token['escaped']}]"}
        result += kinds.get(str(token.lastgroup), token[0])
        rest = rest[token.end() :]
    # A regular expression matches a prefix, a wildcard the whole name.
    return result if ended else f"{result}*"
