# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the models with a short name on the controller: a YAML file in families/ for each family.

It is the only I/O that other files of the core may import. The files are a part of this collection, as its code is.
``catalog`` defines the keys of a model, and ``catalog_checks`` validates them.

``config`` has the keys of each config.json for shape and quantization. They come from copies, tables and tests in
public repositories, not from Hugging Face Hub. For the BF16 models and gpt-oss, the published number of bytes was
computed from these keys and matches to the byte (tests/unit/model/test_catalog.py). Lists of unquantized modules are
shortened to wildcards. ``requires`` comes from vLLM's own model registries, 0.10.2 to 0.32.0, or is the first release
that others report to serve the checkpoint.

The presets' settings for memory (0.80 to 0.90 of it, --swap-space, lengths), --enforce-eager, --enable-expert-parallel
and --attention-backend are left out. They disagree with each other and with newer evidence; the memory plan and the
rules choose these settings for the installed release. Every parser in ``args`` is registered in each inspected vLLM
from 0.11.2 or from ``requires`` to 0.33.0, or is a file of the model. ``args`` sets --kv-cache-dtype only if
config.json does not name the FP8 cache that the model is published for. ``args`` has the draft and the kernels of the
fastest published configuration, with ``requires`` for them: NVIDIA measured with aiperf 0.12.0, SPEED-Bench
throughput_8k, one request (NVIDIA/local-ai-inference-recipes at 12b25c66). ``published`` is without speculative
decoding, except in an entry whose ``args`` have a draft, and never of a build that loads weights in fewer bytes than
the checkpoint has.
"""

from __future__ import annotations

import functools
import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import refuse
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog_checks
from ansible_collections.gb10.cluster.plugins.module_utils.model.drafts import Draft
from ansible_collections.gb10.cluster.plugins.module_utils.plan.load import load

FOLDER = os.path.join(os.path.dirname(__file__), "families")


@dataclass(frozen=True)
class Family:
    """A file. ``older``: its models come last in every list. ``shared``: values that its models repeat."""

    models: Mapping[str, Mapping[str, Any]]
    drafts: Sequence[Draft] = ()
    older: bool = False
    shared: Mapping[str, Any] = field(default_factory=dict)


@functools.cache
def families(folder: str = FOLDER) -> Sequence[Family]:
    """Return all families, the older ones last. Raises TypeError and ProblemsError with the file and the key."""
    # ansible-test imports module_utils without PyYAML.
    import yaml  # noqa: PLC0415

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found, problems = [], []
    for path in sorted(glob.glob(os.path.join(folder, "*.yml"))):
        name = os.path.basename(path)
        with open(path, encoding="utf-8") as file:
            family = load(Family, yaml.load(file, Loader=loader), name)
        found.append(family)
        for model, entry in family.models.items():
            problems += catalog_checks.check_entry(f"{name}: models.{model}", entry)
    refuse(problems)
    return sorted(found, key=lambda family: family.older)
