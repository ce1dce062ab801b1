# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CUDA compute capabilities: compilers' names for a GPU, and the binaries that it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError


@dataclass(frozen=True, order=True)
class ComputeCapability:
    """A compute capability such as 12.1 (GB10, DGX Spark) or 11.0 (Jetson Thor)."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str, path: str = "capability") -> ComputeCapability:
        """Read "12.1".

        Raises ProblemsError, with ``path`` as the place, for anything else ("12.1a", "sm_121", "[N/A]").
        """
        match = re.fullmatch(r"\s*(\d{1,2})\.(\d)\s*", text)
        if match is None:
            raise ProblemsError(
                [
                    Problem(
                        path, f"{text!r} is not a compute capability", 'MAJOR.MINOR, such as "12.1"', f"correct {path}"
                    )
                ]
            )
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def sm(self) -> str:
        """The real architecture's name for nvcc and ptxas: ``sm_121``."""
        return f"sm_{self.major}{self.minor}"

    @property
    def gencode(self) -> str:
        """The nvcc option that emits code for this GPU alone."""
        number = f"{self.major}{self.minor}"
        return f"-gencode=arch=compute_{number},code=sm_{number}"

    def runs(self, built_for: ComputeCapability, variant: Variant = "") -> bool:
        """Return whether a cubin for ``built_for`` loads on this GPU.

        The major must be equal, and the minor not newer; with variant "a" both must be equal. A family (``120f``) has
        the rule of plain cubins: the same major, from that minor on.
        Source: CUDA C++ programming guide, "Binary Compatibility" and "Family-Specific Features".
        """
        return self == built_for if variant == "a" else self.major == built_for.major and self.minor >= built_for.minor

    def translates(self, ptx_for: ComputeCapability, variant: Variant = "") -> bool:
        """Return whether the driver can translate PTX: any older PTX, with a variant only if its cubin would load.

        Source: CUDA C++ programming guide, "PTX Compatibility".
        """
        return self.runs(ptx_for, variant) if variant else self >= ptx_for


#: Features that code may use: "" of its capability, "f" of its family, "a" of exactly this GPU.
Variant = Literal["", "a", "f"]


@dataclass(frozen=True, order=True)
class Architecture:
    """The target of compiled code: ``sm_121``, ``sm_120f``, ``sm_90a``."""

    capability: ComputeCapability
    variant: Variant = ""

    def __str__(self) -> str:
        return f"{self.capability.sm}{self.variant}"
