from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.rubrics.agreement import AgreementCounts, agreement, agreement_of
from stream_rl.types import Tag, TagValue, Verdict

CATEGORIES: tuple[TagValue, ...] = ("positive", "violation", "not_applicable")
RUBRICS = ("a.one", "a.two", "b.three")
values = st.sampled_from([*CATEGORIES, "abstained"])
taggings = st.lists(st.lists(values, min_size=3, max_size=3), max_size=12)


def verdict(values: Sequence[TagValue], name: str = "g/0", rubrics: Sequence[str] = RUBRICS) -> Verdict:
    return Verdict(trajectory_id=name, tags=tuple(Tag(rubric=r, value=v) for r, v in zip(rubrics, values, strict=True)))


def verdicts(rows: Sequence[Sequence[TagValue]]) -> list[Verdict]:
    return [verdict(row, f"g/{i}") for i, row in enumerate(rows)]


def test_two_categories_by_hand() -> None:
    """20 and 15 equal of 50: p_o = 0.7. Marginals 25:25 and 30:20: p_e = 0.5. kappa = 0.2 / 0.5."""
    found = agreement_of(
        {
            ("positive", "positive"): 20,
            ("positive", "violation"): 5,
            ("violation", "positive"): 10,
            ("violation", "violation"): 15,
        }
    )
    assert found.observed == pytest.approx(0.7)
    assert found.kappa == pytest.approx(0.4)
    assert (found.pairs, found.left_out) == (50, 0)


def test_three_categories_by_hand() -> None:
    """29 equal of 40; both raters' marginals are 15, 10, 15: p_e = 550 / 1600. kappa = 610 / 1050."""
    table = [[10, 2, 3], [1, 8, 1], [4, 0, 11]]
    counts = {(a, b): table[i][j] for (i, a), (j, b) in product(enumerate(CATEGORIES), enumerate(CATEGORIES))}
    assert agreement_of(counts).kappa == pytest.approx(610 / 1050)


def test_worse_than_chance_is_negative() -> None:
    """Always the opposite at even rates: p_o = 0, p_e = 0.5."""
    assert agreement_of({("positive", "violation"): 5, ("violation", "positive"): 5}).kappa == pytest.approx(-1.0)


def test_one_category_alone_leaves_kappa_undefined() -> None:
    found = agreement_of({("not_applicable", "not_applicable"): 9})
    assert found.kappa is None
    assert found.observed == 1.0


def test_disjoint_constants_agree_as_chance_does() -> None:
    """One always says positive, the other always violation: p_o = p_e = 0."""
    assert agreement_of({("positive", "violation"): 4}).kappa == 0.0


def test_nothing_to_compare_is_undefined() -> None:
    found = agreement_of({("abstained", "positive"): 3})
    assert (found.kappa, found.observed, found.pairs, found.left_out) == (None, None, 0, 3)


def test_rubrics_are_counted_apart_and_pooled() -> None:
    """a.one: equal, equal: kappa 1. a.two: differs once, one pair abstained: p_o = 0, p_e = 0. b.three: constant."""
    first = verdicts(
        [["positive", "positive", "not_applicable"], ["violation", "abstained", "not_applicable"]],
    )
    second = verdicts(
        [["positive", "violation", "not_applicable"], ["violation", "positive", "not_applicable"]],
    )
    report = agreement(zip(first, second, strict=True))
    assert report.verdicts == 2
    assert {rubric: found.kappa for rubric, found in report.by_rubric.items()} == {
        "a.one": 1.0,
        "a.two": 0.0,
        "b.three": None,
    }
    assert report.by_rubric["a.two"].left_out == 1
    # pooled: 5 pairs, 4 equal; first 2 positive, 1 violation, 2 n.a.; second 1, 2, 2: p_e = (2 + 2 + 4) / 25
    assert report.overall.pairs == 5
    assert report.overall.kappa == pytest.approx((20 - 8) / (25 - 8))
    assert report.worst(2) == [("a.two", 0.0)]  # full agreement is not among the worst
    assert report.worst(2, min_pairs=2) == []


def test_the_worst_come_first() -> None:
    """Of four rollouts a.one differs in one, a.two in two, b.three in none."""
    p: TagValue = "positive"
    v: TagValue = "violation"
    first = verdicts([[p, p, p], [p, p, p], [v, v, v], [v, v, v]])
    second = verdicts([[p, p, p], [v, v, p], [v, p, v], [v, v, v]])
    worst = agreement(zip(first, second, strict=True)).worst(5)
    assert worst == [("a.two", 0.0), ("a.one", pytest.approx(0.5))]


def test_only_shared_rubrics_are_compared() -> None:
    """Another vocabulary may hold other rubrics, in another order."""
    one = verdict(["positive", "violation"], rubrics=("a.one", "a.two"))
    other = verdict(["positive", "positive"], rubrics=("c.new", "a.one"))
    report = agreement([(one, other)])
    assert list(report.by_rubric) == ["a.one"]
    assert report.overall.pairs == 1


def test_verdicts_on_two_rollouts_are_a_bug() -> None:
    with pytest.raises(ValueError, match="two rollouts: g/0 and g/1"):
        AgreementCounts().add(verdict(["positive"] * 3, "g/0"), verdict(["positive"] * 3, "g/1"))


@settings(deadline=None, max_examples=80)
@given(taggings, taggings)
def test_kappa_is_bounded_and_symmetric(a: list[list[TagValue]], b: list[list[TagValue]]) -> None:
    pairs = list(zip(verdicts(a), verdicts(b), strict=False))
    there, back = agreement(pairs), agreement((y, x) for x, y in pairs)
    for found, other in zip(
        [there.overall, *there.by_rubric.values()], [back.overall, *back.by_rubric.values()], strict=True
    ):
        assert found == other
        assert found.kappa is None or -1.0 <= found.kappa <= 1.0
        assert found.kappa is None or found.observed is None or found.kappa <= found.observed + 1e-12


@settings(deadline=None, max_examples=80)
@given(taggings)
def test_raters_that_say_the_same_agree_fully(rows: list[list[TagValue]]) -> None:
    report = agreement((v, v) for v in verdicts(rows))
    decided = {value for row in rows for value in row} - {"abstained"}
    assert report.overall.kappa == (1.0 if len(decided) > 1 else None)


@settings(deadline=None, max_examples=50)
@given(taggings, taggings, st.randoms(use_true_random=False))
def test_order_does_not_matter(a: list[list[TagValue]], b: list[list[TagValue]], random: object) -> None:
    pairs = list(zip(verdicts(a), verdicts(b), strict=False))
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert agreement(pairs) == agreement(shuffled)
