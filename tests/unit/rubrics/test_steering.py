from __future__ import annotations

import pytest

from stream_rl.rubrics.profile import GroupProfile, profile
from stream_rl.rubrics.steering import Steering
from stream_rl.types import TagValue
from tests.unit.records import RUBRICS, verdict


def _group(*tags: dict[str, TagValue]) -> GroupProfile:
    return profile([verdict(f"t{i}", t) for i, t in enumerate(tags)], RUBRICS)


def test_moving_rates_by_hand() -> None:
    """First group sets the rates; the second moves them: 0.75 * 1 + 0.25 * 0 = 0.75."""
    steering = Steering(3, rate=0.25, floor=0.1, top=3)
    steering.observe(_group({"a.one": "violation"}))
    steering.observe(_group({"a.one": "positive"}))
    assert steering.violation.tolist() == pytest.approx([0.75, 0, 0])
    assert steering.positive.tolist() == pytest.approx([0.25, 0, 0])


def test_only_dominant_violations_above_the_floor_steer_and_they_stop_when_no_longer_dominant() -> None:
    steering = Steering(3, rate=1.0, floor=0.3, top=3)
    steering.observe(
        _group(
            {"a.one": "violation", "a.two": "violation", "b.three": "positive"},
            {"a.one": "violation", "b.three": "violation"},
            {"a.one": "positive", "b.three": "positive"},
            {},
        )
    )
    assert steering.avoid(RUBRICS) == ("a.one",)  # a.two: 0.25 is below the floor; b.three: positives dominate
    steering.observe(_group({"a.one": "positive"}))
    assert steering.avoid(RUBRICS) == ()


def test_the_most_violated_come_first_and_only_the_top() -> None:
    steering = Steering(3, rate=1.0, floor=0.0, top=2)
    steering.observe(
        _group({"b.three": "violation", "a.two": "violation"}, {"b.three": "violation", "a.one": "violation"})
    )
    assert steering.avoid(RUBRICS) == ("b.three", "a.one")


def test_a_group_without_tags_says_nothing() -> None:
    steering = Steering(3, rate=0.5, floor=0.0, top=1)
    steering.observe(_group({"a.one": "violation"}))
    steering.observe(_group())
    assert steering.avoid(RUBRICS) == ("a.one",)


def test_state_survives_a_restart_but_not_another_vocabulary() -> None:
    one, two, other = (Steering(n, rate=0.5, floor=0.0, top=3) for n in (3, 3, 4))
    one.observe(_group({"a.one": "violation"}))
    two.restore(one.state())
    other.restore(one.state())
    assert two.avoid(RUBRICS) == one.avoid(RUBRICS) == ("a.one",)
    assert other.avoid((*RUBRICS, "x.y")) == ()
    two.restore(None)
    assert two.avoid(RUBRICS) == ("a.one",)
