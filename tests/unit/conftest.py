"""Settings shared by the unit tests."""

from __future__ import annotations

from hypothesis import Phase, settings

# Reproducible everywhere: the same examples in each run, and no time limit that a busy machine would break.
settings.register_profile("gates", derandomize=True, deadline=None)
# For tests/mutants.py: any counterexample kills a mutant, so the smallest is not searched for.
settings.register_profile("mutants", settings.get_profile("gates"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("gates")
