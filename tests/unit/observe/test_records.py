from __future__ import annotations

import math

import pytest

from stream_rl.observe.records import number, numbers, shares, sum_numbers, table


@pytest.mark.parametrize("value", [None, "3", True, math.nan, math.inf, {}, [1.0]])
def test_what_is_no_finite_number_is_none(value: object) -> None:
    assert number({"a": {"b": value}}, "a", "b") is None


def test_a_path_through_something_else_is_none() -> None:
    assert number({"a": 1.0}, "a", "b") is None
    assert table({"a": None}, "a", "b") == {}


def test_numbers_leaves_out_the_rest() -> None:
    assert numbers({"t": {"a": 1, "b": None, "c": 2.5}}, "t") == {"a": 1.0, "c": 2.5}


def test_sums_and_shares() -> None:
    total = sum_numbers([{"a": 1.0}, {"a": 2.0, "b": 1.0}])
    assert total == {"a": 3.0, "b": 1.0}
    assert shares(total) == {"a": 0.75, "b": 0.25}
    assert shares({"a": 0.0}) == {}
