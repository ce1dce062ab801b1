"""Settings shared by the unit tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import Phase, settings

# Reproducible everywhere: the same examples in each run, and no time limit that a busy machine would break.
settings.register_profile("gates", derandomize=True, deadline=None)
# For tests/mutants.py: any counterexample kills a mutant, so the smallest is not searched for.
settings.register_profile("mutants", settings.get_profile("gates"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("gates")
#: What the tests keep of the user's variables. Others change what Ansible, Python, vLLM and NCCL do.
KEPT = frozenset(["PATH", "HOME", "TMPDIR", "CI", "GB10_RENEW"])


# Last, because pytest's own variables choose its colors. Before Ansible reads its variables with its first import.
@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    for name in os.environ.keys() - KEPT:
        if not name.startswith("PYTEST_"):
            del os.environ[name]
