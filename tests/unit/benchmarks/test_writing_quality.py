from __future__ import annotations

import random

import pytest

from benchmarks.writing_quality import summarise
from stream_rl.rubrics.vocabulary import builtin


def hint(rubric: str) -> str:
    return builtin()[rubric].hint


def test_what_was_written_is_held_against_its_group_and_against_the_next() -> None:
    found = [
        {"precision.valid_actions": 0.25, "efficiency.keep_open": 0.1, "efficiency.no_idle_looks": 0.0},
        {"precision.valid_actions": 0.0, "efficiency.keep_open": 0.2},
    ]
    first = (
        hint("precision.valid_actions"),  # 0.25 here, 0 in the next group
        hint("efficiency.keep_open"),  # 0.1 here, 0.2 in the next
        hint("efficiency.no_idle_looks"),  # 0 here, not decided in the next
        hint("exploration.learn_tools"),  # no rule decides it
        "be nice to the plants",  # no rubric
    )
    quality = summarise(found, [[first, None], [None, None]], 1.0, random.Random(0))
    assert quality.usable == 0.25  # 1 of 4 answers
    assert quality.known == pytest.approx(4 / 5)
    assert quality.differing == pytest.approx(2 / 5)
    assert quality.spread == pytest.approx((0.25 + 0.1) / 5)
    assert quality.spread_elsewhere == pytest.approx(0.2 / 5)
    assert quality.spread_best == pytest.approx((0.25 + 0.1 + 0.0 + 0.0 + 0.2) / 5)
    assert (quality.groups, quality.answers) == (2, 4)


def test_nothing_usable_is_no_error() -> None:
    quality = summarise([{"precision.valid_actions": 0.25}], [[None]], 1.0, random.Random(0))
    assert (quality.usable, quality.known, quality.differing, quality.spread) == (0.0, 0.0, 0.0, 0.0)
