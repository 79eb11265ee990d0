from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.webshop.actions import LONGEST_ACTION, Action, parse_action

UPSTREAM = re.compile(r"(.+)\[(.+)\]")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("search[Red Shoes]", Action("search", "red shoes")),
        ("click[< Prev]", Action("click", "< prev")),
        ("click[Buy Now] and more", Action("click", "buy now")),
        ("search[ ]", Action("search", " ")),
        ("search[a] b]", Action("search", "a] b")),
        ("search[a]\nclick[b]", Action("search", "a")),
        ("search[a [b] c]", None),  # the name is "search[a "
        ("search[]", None),
        ("Search[a]", None),
        (" search[a]", None),
        ("\nsearch[a]", None),
        ("think[a]", None),
        ("[a]", None),
        ("search a", None),
        ("", None),
    ],
)
def test_what_is_understood(text: str, action: Action | None) -> None:
    assert parse_action(text) == action


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet="ab[]\n S", max_size=12), st.sampled_from(["", "search", "click", "search[", "click[x"]))
def test_it_reads_what_upstreams_pattern_reads(text: str, start: str) -> None:
    found = UPSTREAM.match(start + text)
    expected = None
    if found and found[1] in ("search", "click"):
        expected = (found[1], found[2].lower())
    assert parse_action(start + text) == expected


def test_what_is_too_long_for_an_action_is_none() -> None:
    assert parse_action(f"search[{'a' * (LONGEST_ACTION - 8)}]") is not None
    assert parse_action(f"search[{'a' * (LONGEST_ACTION - 7)}]") is None
    assert parse_action("search[" * 1_500_000) is None
