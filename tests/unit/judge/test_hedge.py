from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from judge.hedge import CAP, HedgeBudget


def test_twenty_requests_earn_one_hedge_at_five_percent() -> None:
    budget = HedgeBudget(0.05)
    earned = []
    for _ in range(20):
        earned.append(budget.available)
        budget.earn()
    assert earned == [False] * 20
    assert budget.available
    budget.spend()
    assert not budget.available


def test_what_is_saved_has_a_limit() -> None:
    budget = HedgeBudget(0.5)
    for _ in range(10_000):
        budget.earn()
    spent = 0
    while budget.available:
        budget.spend()
        spent += 1
    assert spent == CAP


def test_no_share_no_hedge() -> None:
    budget = HedgeBudget(0.0)
    for _ in range(1000):
        budget.earn()
    assert not budget.available
    assert not budget.enabled


@settings(deadline=None, max_examples=80)
@given(st.floats(0.0, 1.0), st.lists(st.booleans(), max_size=300))
def test_hedges_never_exceed_their_share_of_the_requests(share: float, late: list[bool]) -> None:
    budget, hedges = HedgeBudget(share), 0
    for requests, is_late in enumerate(late, 1):
        budget.earn()
        if is_late and budget.available:
            budget.spend()
            hedges += 1
        assert hedges <= share * requests + 1e-6
