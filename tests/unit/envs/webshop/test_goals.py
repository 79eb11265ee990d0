from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.webshop.catalogue import Catalogue
from envs.webshop.data import RawInstruction
from envs.webshop.goals import NO_LIMIT, build_goals, choose_goal, draw_limit, num_held_out, possible_limits, worded
from envs.webshop.shop import open_shop
from tests.unit.envs.webshop.builders import RECORDED, needs_recordings, product


@pytest.mark.parametrize(
    ("price", "limits"),
    [
        (9.99, (20.0, 30.0, 40.0)),
        (10.0, (30.0, 40.0, 50.0)),  # 20, 30, 40 and 50 are above it, and 20 is never the larger
        (965.0, (980.0, 990.0)),
        (975.0, (990.0,)),
        (985.0, ()),
        (2000.0, ()),
    ],
)
def test_the_larger_of_two_multiples_of_ten(price: float, limits: tuple[float, ...]) -> None:
    assert possible_limits(price) == limits
    drawn = {draw_limit(price, random.Random(seed)) for seed in range(60)}
    assert drawn == set(limits or (NO_LIMIT,))


def test_pairs_are_equally_likely() -> None:
    """Of the six pairs of 20, 30, 40, 50 one has 30 as the larger, two have 40, three have 50."""
    counts = Counter(draw_limit(15.0, random.Random(seed)) for seed in range(3000))
    assert counts[30.0] == pytest.approx(500, abs=100)
    assert counts[40.0] == pytest.approx(1000, abs=120)
    assert counts[50.0] == pytest.approx(1500, abs=120)


def test_wording() -> None:
    assert worded("i want a kettle.", 40.0) == "i want a kettle, and price lower than 40.00 dollars"
    assert worded("i want a kettle.", NO_LIMIT) == "i want a kettle"


def test_one_goal_for_each_instruction_with_attributes() -> None:
    wanted = [(["soft"], ["red"]), ([], ["red"]), (["warm", "soft"], [])]
    written = [
        RawInstruction(instruction=f"number {place}.", instruction_attributes=attributes, instruction_options=options)
        for place, (attributes, options) in enumerate(wanted)
    ]
    catalogue = Catalogue([product("B1"), product("B2")])
    goals = build_goals(catalogue, {"B1": written, "B9": written}, seed=0)
    assert sorted((goal.instruction.split(",")[0], goal.attributes, goal.options) for goal in goals) == [
        ("number 0", ("soft",), ("red",)),
        ("number 2", ("warm", "soft"), ()),
    ]
    assert {goal.product.asin for goal in goals} == {"B1"}
    assert goals == build_goals(catalogue, {"B1": written}, seed=0)


@pytest.mark.parametrize(("num_goals", "held_out"), [(12_087, 500), (1000, 500), (999, 199), (100, 20), (2, 1)])
def test_how_many_are_held_out(num_goals: int, held_out: int) -> None:
    assert num_held_out(num_goals, 500) == held_out


ONE_A_PRODUCT = build_goals(
    Catalogue(product(f"B{place}") for place in range(600)),
    {
        f"B{place}": [RawInstruction(instruction="x", instruction_attributes=["a"], instruction_options=[])]
        for place in range(600)
    },
    seed=0,
)


@settings(deadline=None, max_examples=100)
@given(st.integers(2, 600), st.integers(1, 600), st.integers(0, 10_000_000))
def test_the_first_goals_are_held_out_and_the_rest_trained(num_goals: int, wanted: int, index: int) -> None:
    goals = ONE_A_PRODUCT[:num_goals]
    held_out = num_held_out(num_goals, wanted)
    assert 1 <= held_out < num_goals
    assert choose_goal(goals, "held_out", index, wanted) is goals[index % held_out]
    assert choose_goal(goals, "train", index, wanted) is goals[held_out + index % (num_goals - held_out)]


@needs_recordings
def test_recorded_goals_are_reproduced() -> None:
    recorded = json.loads((RECORDED / "golden_goals.json").read_text())
    shop = open_shop(str(RECORDED), 0, 0)
    assert len(shop.goals) == len(recorded["goals"])
    for ours, theirs in zip(shop.goals, recorded["goals"], strict=True):
        text = theirs["instruction_text"].partition(", and price lower than ")[0]
        assert ours.instruction.partition(", and price lower than ")[0] == text
        assert list(ours.attributes) == theirs["attributes"]
        assert list(ours.options) == theirs["goal_options"]
        assert ours.product.asin == theirs["asin"]
        assert ours.product.query == theirs["query"]
        assert ours.product.title == theirs["name"]
        assert ours.product.product_category == theirs["product_category"]
        price = recorded["prices"][theirs["asin"]]
        assert ours.product.prices[0] <= price <= ours.product.prices[-1]
        assert theirs["price_upper"] in (possible_limits(price) or (NO_LIMIT,))
        assert ours.price_limit in (possible_limits(shop.price(ours.product)) or (NO_LIMIT,))
