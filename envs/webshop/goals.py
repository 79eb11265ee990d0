"""What a shopper is asked to buy."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import msgspec

from envs.webshop.catalogue import Catalogue, Product, real_price
from envs.webshop.data import RawInstruction
from stream_rl.types import Split

SHUFFLE_SEED = 233  # upstream's
NO_LIMIT = 1_000_000.0
_LIMITS = tuple(10.0 * k for k in range(1, 100))


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """One instruction and what satisfies it."""

    instruction: str  # as shown, with the price limit
    product: Product  # the one it was written for
    attributes: tuple[str, ...]  # wanted, at least one
    options: tuple[str, ...]  # wanted values, may be empty
    price_limit: float  # dollars; `NO_LIMIT` if the instruction names none


def build_goals(
    catalogue: Catalogue, instructions: Mapping[str, Sequence[RawInstruction]], seed: int
) -> tuple[Goal, ...]:
    """All goals in upstream's order. `seed` decides prices and limits, which upstream draws anew at every start."""
    goals = []
    for product in catalogue.products:
        price = real_price(product, seed) if product.asin in instructions else 0.0
        for number, written in enumerate(instructions.get(product.asin, ())):
            if not written.instruction_attributes:
                continue
            limit = draw_limit(price, random.Random(f"webshop/{seed}/limit/{product.asin}/{number}"))
            goals.append(
                Goal(
                    instruction=worded(written.instruction, limit),
                    product=product,
                    attributes=tuple(written.instruction_attributes),
                    options=tuple(written.instruction_options),
                    price_limit=limit,
                )
            )
    random.Random(SHUFFLE_SEED).shuffle(goals)
    return tuple(goals)


def possible_limits(price: float) -> tuple[float, ...]:
    """The limits a price can be given: of the first four multiples of 10 above it, up to 990, all but the lowest."""
    return _above(price)[1:]


def draw_limit(price: float, rng: random.Random) -> float:
    """The larger of two different multiples of 10 picked from the four above the price; `NO_LIMIT` under two."""
    above = _above(price)
    return max(rng.sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def _above(price: float) -> tuple[float, ...]:
    first = bisect_right(_LIMITS, price)
    return _LIMITS[first : first + 4]


def worded(instruction: str, limit: float) -> str:
    """An instruction with its price limit."""
    ending = "" if limit == NO_LIMIT else f", and price lower than {limit:.2f} dollars"
    return instruction.strip(".") + ending


def num_held_out(num_goals: int, wanted: int) -> int:
    """Goals kept for evaluation: the first `wanted`, or a fifth of a catalogue with fewer than twice as many."""
    return wanted if num_goals >= 2 * wanted else max(1, num_goals // 5)


def choose_goal(goals: Sequence[Goal], split: Split, index: int, wanted_held_out: int) -> Goal:
    """The goal of a task: its index counts through the split's goals, again and again. Needs two goals or more."""
    held_out = num_held_out(len(goals), wanted_held_out)
    if split == "held_out":
        return goals[index % held_out]
    return goals[held_out + index % (len(goals) - held_out)]
