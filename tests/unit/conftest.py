"""Settings shared by the unit tests."""

from __future__ import annotations

from hypothesis import settings

# Reproducible everywhere: the same examples in each run, and no time limit that a busy machine would break.
settings.register_profile("gates", derandomize=True, deadline=None)
settings.load_profile("gates")
