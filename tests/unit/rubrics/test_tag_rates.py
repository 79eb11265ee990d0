from __future__ import annotations

import pytest

from stream_rl.rubrics.tag_rates import TagCounts, TagRates, by_skill, pooled
from stream_rl.types import Tag, TagValue, Verdict


def verdict(**tags: TagValue) -> Verdict:
    return Verdict(trajectory_id="g/0", tags=tuple(Tag(rubric=r.replace("__", "."), value=v) for r, v in tags.items()))


def test_an_abstention_moves_no_rate() -> None:
    rates = TagRates(positive=3, violation=1, not_applicable=4, abstained=2)
    assert rates.coverage == pytest.approx(0.8)
    assert [rates.rate(v) for v in ("positive", "violation", "not_applicable")] == [3 / 8, 1 / 8, 4 / 8]
    assert rates.rate("abstained") == pytest.approx(0.2)


def test_no_tags_have_no_rates() -> None:
    assert TagRates().coverage is None
    assert TagRates().rate("abstained") is None
    silent = TagRates(abstained=3)
    assert silent.coverage == 0.0
    assert silent.rate("positive") is None


def test_rates_are_kept_by_environment_and_rubric_and_pooled_by_skill() -> None:
    counts = TagCounts()
    counts.add("shop", verdict(a__x="positive", a__y="violation", b__z="abstained"))
    counts.add("shop", verdict(a__x="positive", a__y="positive", b__z="not_applicable"))
    counts.add("home", verdict(a__x="violation"))
    rates = counts.rates()
    assert list(rates) == ["home", "shop"]
    assert rates["shop"]["a.x"] == TagRates(positive=2)
    assert rates["shop"]["b.z"] == TagRates(not_applicable=1, abstained=1)
    assert by_skill(rates["shop"]) == {
        "a": TagRates(positive=3, violation=1),
        "b": TagRates(not_applicable=1, abstained=1),
    }
    everything = pooled(r for rubrics in rates.values() for r in rubrics.values())
    assert everything == TagRates(positive=3, violation=2, not_applicable=1, abstained=1)
