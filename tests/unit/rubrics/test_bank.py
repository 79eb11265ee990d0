from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.rubrics.bank import BankedCriterion, RubricBank, normalise_criterion

EIGHT = [f"criterion {name}" for name in "abcdefgh"]


def full_bank(round_: int = 0) -> RubricBank:
    """Eight criteria seen twice, a (0.8) better than b (0.7) and so on to h (0.1)."""
    bank = RubricBank()
    for _ in range(2):
        bank.observe(EIGHT, [0.8 - 0.1 * i for i in range(8)], round_)
    return bank


def test_the_best_come_first_and_only_as_many_as_asked() -> None:
    assert full_bank().propose(1) == tuple(EIGHT)
    assert full_bank().propose(1, size=5) == tuple(EIGHT[:5])


def test_one_observation_is_luck() -> None:
    bank = RubricBank()
    bank.observe(EIGHT, [0.5] * 8, 0)
    assert bank.propose(1) is None
    bank.observe(EIGHT[:4], [0.5] * 4, 1)
    assert bank.propose(1) is None  # four have been seen twice: no bundle
    bank.observe(EIGHT[4:5], [0.5], 1)
    assert bank.propose(1) == tuple(sorted(EIGHT[:5]))


def test_the_mean_moves_by_a_fifth_once_it_has_five_observations() -> None:
    """1, 0, 1, 0 average 0.5; then rate 0.2 = 1/5: 0.5 + 0.2 * 0.5 = 0.6; then 0.6 + 0.2 * (1 - 0.6) = 0.68."""
    bank = RubricBank(rate=0.2)
    for round_, rho in enumerate([1.0, 0.0, 1.0, 0.0, 1.0, 1.0]):
        bank.observe(["x"], [rho], round_)
    (kept,) = stored(bank)
    assert kept.alignment == pytest.approx(0.68)
    assert (kept.observations, kept.observed) == (6, 5)


def test_what_was_not_seen_for_long_is_not_proposed() -> None:
    bank = full_bank(round_=10)
    assert bank.propose(30) is not None
    assert bank.propose(31) is None
    bank.observe(EIGHT[:5], [0.5] * 5, 31)
    assert bank.propose(31) == tuple(EIGHT[:5])


def test_criteria_that_go_with_failure_are_no_advice() -> None:
    bank = full_bank()
    for _ in range(10):
        bank.observe(EIGHT[:4], [-1.0] * 4, 1)
    assert bank.propose(1) is None
    assert len(bank) == 8


def test_an_undefined_correlation_says_nothing() -> None:
    bank = RubricBank()
    bank.observe(["x", "y"], [None, math.nan], 0)
    assert len(bank) == 0
    bank.observe(["x"], [0.5], 0)
    bank.observe(["x"], [None], 9)
    (kept,) = stored(bank)
    assert (kept.observations, kept.observed) == (1, 0)


def test_wording_that_differs_in_case_spacing_and_marks_is_one_criterion() -> None:
    bank = RubricBank()
    bank.observe(["Searches each  place once."], [1.0], 0)
    bank.observe(['"searches each place once"', "SEARCHES EACH PLACE ONCE"], [0.5, -1.0], 1)
    (kept,) = stored(bank)
    assert kept.text == "Searches each place once."
    assert (kept.observations, kept.alignment) == (2, 0.75)  # of one group's two writings the first counts
    bank.observe([" .. "], [1.0], 2)
    assert len(bank) == 1


def test_a_full_bank_drops_the_aged_then_the_worst_then_the_oldest() -> None:
    bank = RubricBank(capacity=8, max_age=5)
    bank.observe(["aged"], [1.0], 0)
    bank.observe([f"c{i}" for i in range(7)], [0.1 * i for i in range(7)], 6)
    bank.observe(["new"], [0.05], 6)
    assert {c.text for c in stored(bank)} == {"new", *(f"c{i}" for i in range(7))}
    bank.observe(["best"], [0.9], 7)
    assert "c0" not in {c.text for c in stored(bank)}
    bank.observe(["as good as new"], [0.05], 8)
    assert "new" not in {c.text for c in stored(bank)}


def test_state_survives_a_restart() -> None:
    one, two = full_bank(), RubricBank()
    two.restore(None)
    assert len(two) == 0
    two.restore(one.state())
    assert two.state() == one.state()
    assert two.propose(3) == one.propose(3)
    small = RubricBank(capacity=8)
    big = full_bank()
    big.observe(["best"], [1.0], 1)
    small.restore(big.state())
    assert {c.text for c in stored(small)} == {"best", *EIGHT[:7]}


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="2 criteria with 1 correlations"):
        RubricBank().observe(["x", "y"], [0.5], 0)
    for size in (4, 9):
        with pytest.raises(ValueError, match=f"5 to 8 criteria, not {size}"):
            full_bank().propose(1, size=size)
    with pytest.raises(ValueError, match="0 < rate"):
        RubricBank(rate=0.0)
    with pytest.raises(ValueError, match="7 criteria cannot hold"):
        RubricBank(capacity=7)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([*EIGHT, "Criterion A.", "i", "j", "k", "l"]), max_size=6),
            st.floats(-1, 1),
            st.integers(0, 40),
        ),
        max_size=25,
    )
)
def test_never_more_than_capacity_and_alignment_stays_a_correlation(
    history: list[tuple[list[str], float, int]],
) -> None:
    bank = RubricBank(capacity=8, max_age=10)
    for criteria, rho, round_ in history:
        bank.observe(criteria, [rho] * len(criteria), round_)
        assert len(bank) <= 8
    assert all(-1 - 1e-9 <= c.alignment <= 1 + 1e-9 for c in stored(bank))
    proposed = bank.propose(20)
    assert proposed is None or 5 <= len({normalise_criterion(text) for text in proposed}) == len(proposed) <= 8


def stored(bank: RubricBank) -> tuple[BankedCriterion, ...]:
    return msgspec.json.decode(bank.state(), type=tuple[BankedCriterion, ...])
