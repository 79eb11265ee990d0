from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.orchestrator.production import is_steered
from stream_rl.orchestrator.tasks import TaskStream, evaluation_tasks


def test_shares_are_kept_over_every_window() -> None:
    stream = TaskStream({"a": 2.0, "b": 1.0, "c": 1.0}, seed=0)
    names = [stream.take().task.environment for _ in range(40)]
    assert Counter(names) == {"a": 20, "b": 10, "c": 10}
    assert all(Counter(names[i : i + 4]) == {"a": 2, "b": 1, "c": 1} for i in range(0, 40, 4))


def test_decimal_shares_are_kept_exactly_too() -> None:
    """0.1 has no exact binary form; 1 : 2 : 7 must hold in every ten tasks all the same, wherever they begin."""
    stream = TaskStream({"a": 0.1, "b": 0.2, "c": 0.7}, seed=0)
    names = [stream.take().task.environment for _ in range(3000)]
    assert all(Counter(names[i : i + 10]) == {"a": 1, "b": 2, "c": 7} for i in range(2990))


@settings(deadline=None, max_examples=40)
@given(shares=st.lists(st.integers(1, 9), min_size=1, max_size=4), start=st.integers(0, 30), length=st.integers(1, 40))
def test_no_window_is_two_tasks_away_from_its_shares(shares: list[int], start: int, length: int) -> None:
    stream = TaskStream({str(i): float(share) for i, share in enumerate(shares)}, seed=0)
    stream.skip(start)
    found = Counter(stream.take().task.environment for _ in range(length))
    for i, share in enumerate(shares):
        assert abs(found[str(i)] - length * share / sum(shares)) < 2


def test_same_seed_same_order_other_seed_other_tasks() -> None:
    one, same, other = (TaskStream({"a": 1.0}, seed=s) for s in (3, 3, 4))
    first = [one.take() for _ in range(20)]
    assert first == [same.take() for _ in range(20)]
    assert not {t.task.id for t in first} & {other.take().task.id for _ in range(20)}


def test_a_resumed_stream_goes_on_where_it_was() -> None:
    whole, resumed = TaskStream({"a": 3.0, "b": 1.0}, seed=1), TaskStream({"a": 3.0, "b": 1.0}, seed=1)
    expected = [whole.take() for _ in range(30)][17:]
    resumed.skip(17)
    assert [resumed.take() for _ in range(13)] == expected


def test_no_task_twice_and_training_only() -> None:
    stream = TaskStream({"a": 1.0, "b": 1.0}, seed=0)
    tickets = [stream.take() for _ in range(100)]
    assert len({t.task.id for t in tickets}) == 100
    assert {t.task.split for t in tickets} == {"train"}
    assert [t.position for t in tickets] == list(range(100))


def test_held_out_tasks_do_not_depend_on_the_run() -> None:
    tasks = evaluation_tasks(("a", "b"), 3)
    assert [t.id for t in tasks] == [f"{e}/held_out/{i}" for e in "ab" for i in range(3)]


def test_a_small_split_is_evaluated_once_and_others_do_not_shrink_with_it() -> None:
    tasks = evaluation_tasks(("a", "b", "c"), 3, {"b": 2, "c": 100})
    assert Counter(t.environment for t in tasks) == {"a": 3, "b": 2, "c": 3}
    assert [t.index for t in tasks if t.environment == "b"] == [0, 1]


def test_a_share_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive share"):
        TaskStream({"a": 0.0}, seed=0)


@pytest.mark.parametrize(("share", "steered"), [(0.0, 0), (0.25, 25), (0.5, 50), (1.0, 100)])
def test_the_steered_share_is_kept_and_evenly_spread(share: float, steered: int) -> None:
    chosen = [is_steered(position, share) for position in range(100)]
    assert sum(chosen) == steered
    assert all(sum(chosen[i : i + 20]) == 20 * share for i in range(0, 100, 20))
