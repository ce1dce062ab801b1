# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare a run with the record, and check it without one.

Kernels may legitimately differ in the last bits, so that a greedy answer takes another way where two tokens are nearly
equally likely. A wrong kernel moves the log-probabilities of all tokens, also where the answer stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby

from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import (
    DIFFERENT,
    EQUAL,
    NEAR,
    Answer,
    Bounds,
    Comparison,
    Record,
    Run,
)

#: Below this log-probability (0.03 %), rounding dominates the distance.
_FLOOR = -8.0
#: Equal tokens in a row that count as repetition: half of an answer.
_REPEATED = 16


@dataclass
class Verdict:
    """The result. ``errors`` fail the gate, ``warnings`` only if the bounds are strict."""

    comparisons: list[Comparison] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def judge(run: Run, record: Record | None, bounds: Bounds) -> Verdict:
    """Return the verdict on a run, with the record if there is one."""
    verdict = Verdict(errors=list(run.problems))
    verdict.errors += [f"{name}: the answer has no tokens" for name, answer in run.answers.items() if not answer.tokens]
    if not run.answers and not run.problems:
        verdict.errors.append("the server returned no answer")
    if record:
        _compare_all(run, record, bounds, verdict)
    new = [name for name in run.answers if not record or name not in record.run.answers]
    suspect = {*new, *(each.name for each in verdict.comparisons if each.relation == DIFFERENT)}
    for name, answer in run.answers.items():
        if name in suspect:
            verdict.warnings += [f"{name}: {found}" for found in oddities(answer)]
    _check_numbers(run, record.run if record else None, bounds, verdict)
    return verdict


def compare(name: str, before: Answer, now: Answer, bounds: Bounds) -> Comparison:
    """Compare an answer with its record. A longer answer is equal up to the length of the shorter one."""
    total = min(len(before.tokens), len(now.tokens))
    agreed = next((index for index in range(total) if before.tokens[index] != now.tokens[index]), total)
    # Up to the first different token, both answers have the same context.
    distances = [
        _distance(token, value, now.top[index])
        for index in range(min(agreed + 1, total))
        for token, value in before.top[index].items()
        if value > _FLOOR
    ]
    mean, largest = (sum(distances) / len(distances), max(distances)) if distances else (0.0, 0.0)
    relation, why = EQUAL, ""
    if agreed < total:
        relation, why = _divergence(before, now, agreed, bounds)
    if total == 0:
        relation, why = DIFFERENT, "there are no tokens to compare"
    if relation != DIFFERENT and mean > bounds.distance:
        why = f"the mean distance of log-probabilities is {mean:.3f}, the bound {bounds.distance:g}"
        relation = DIFFERENT
    return Comparison(name, relation, agreed, total, round(mean, 4), round(largest, 4), why)


def oddities(answer: Answer) -> list[str]:
    """Return the signs of nonsense in an answer: repetition, replacement characters, or no text."""
    found = []
    longest = max((len(list(group)) for _token, group in groupby(answer.tokens)), default=0)
    if longest > _REPEATED:
        found.append(f"the same token {longest} times in a row")
    # The end may be cut within a character.
    if "\N{REPLACEMENT CHARACTER}" in answer.text.rstrip("\N{REPLACEMENT CHARACTER}"):
        found.append("the text has bytes that are not UTF-8")
    if not answer.text.strip():
        found.append("the answer has no text")
    return found


def _compare_all(run: Run, record: Record, bounds: Bounds, verdict: Verdict) -> None:
    for name, before in record.run.answers.items():
        if now := run.answers.get(name):
            verdict.comparisons.append(compare(name, before, now, bounds))
        else:
            verdict.warnings.append(f"{name}: not compared, because the server returned no answer")
    if not verdict.comparisons and run.answers:
        verdict.errors.append("no request of the record has an answer")
    verdict.errors += [f"{each.name}: {each.why}" for each in verdict.comparisons if each.relation == DIFFERENT]


def _check_numbers(run: Run, before: Run | None, bounds: Bounds, verdict: Verdict) -> None:
    """Check perplexity and draft acceptance. Without a record both only warn, because of untrained models."""
    old, now = before.perplexity if before else None, run.perplexity
    if old and now and abs(now / old - 1) > bounds.perplexity_change:
        change = f"{100 * (now / old - 1):+.1f} %, the bound {100 * bounds.perplexity_change:g} %"
        verdict.errors.append(f"perplexity of the known text: {now:.4g} instead of {old:.4g} ({change})")
    if old and now is None:
        verdict.warnings.append("perplexity of the known text: the record has a value, the server returned none")
    if not old and now is not None and now > bounds.perplexity:
        verdict.warnings.append(
            f"perplexity of the known text: {now:.4g}, a trained model has at most {bounds.perplexity:g}"
        )
    if run.acceptance == 0:
        found = "draft acceptance: none of the drafted tokens was accepted"
        if before and before.acceptance:
            verdict.errors.append(f"{found}, {before.acceptance:.2f} in the record")
        else:
            verdict.warnings.append(f"{found}, so speculative decoding only costs time")


def _distance(token: int, value: float, candidates: Mapping[int, float]) -> float:
    """Return the distance to a recorded log-probability, a lower bound for a token that is no longer a candidate."""
    if token in candidates:
        return abs(candidates[token] - value)
    return max(0.0, value - min(candidates.values(), default=value))


def _divergence(before: Answer, now: Answer, index: int, bounds: Bounds) -> tuple[str, str]:
    """Return the relation of two answers that differ at ``index``, and the reason."""
    old, new = before.logprobs[index], before.top[index].get(now.tokens[index])
    place = f"token {index + 1}"
    if new is None:
        return DIFFERENT, f"{place} is not among the record's candidates"
    if old - new > bounds.tie:
        less = f"less likely in the record than its own token by {old - new:.2f}"
        return DIFFERENT, f"{place} is {less}, the bound is {bounds.tie:g}"
    return NEAR, f"near tie at {place} ({old - new:.2f})"
