"""A strategy of Hypothesis for nested data, as JSON and YAML have it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def nested(
    leaves: st.SearchStrategy[Any],
    keys: st.SearchStrategy[str] | None = None,
    max_size: int | None = None,
    max_leaves: int = 10,
) -> st.SearchStrategy[Any]:
    """Return leaves, and lists and mappings of them with at most ``max_size`` elements each."""
    names = st.text() if keys is None else keys

    # Hypothesis parses the source of a lambda for its messages, and a parser of Python 3.11.7 fails in a process with
    # threads (python/cpython#106905). One of three random orders failed that way.
    def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(inner, max_size=max_size) | st.dictionaries(names, inner, max_size=max_size)

    return st.recursive(leaves, containers, max_leaves=max_leaves)
