from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.webshop.colours import plain_colour
from envs.webshop.fuzzy import common_subsequence, token_set_ratio
from envs.webshop.goals import NO_LIMIT, Goal
from envs.webshop.nouns import by_rule, noun_finder
from envs.webshop.reward import grade, kind_factor
from stream_rl.errors import ConfigError
from tests.unit.envs.webshop.builders import GOAL, SCARF, product


@pytest.mark.parametrize(
    ("left", "right", "ratio"),
    [
        ("non gmo", "NON-GMO", 100),
        ("gluten free", "free of gluten", 100),  # all words of one side are in the other
        ("fuzzy was a bear", "fuzzy fuzzy was a bear", 100),
        ("new york mets", "new york yankees", 76),  # "new york": 2 * 8 / 21; the whole: 2 * 11 / 29 = 75.9
        ("sulfate free", "paraben free", 58),  # "free ", a, e: 2 * 7 / 24
        ("red", "blue", 29),  # one letter of seven
        ("x-large", "xx-large", 93),  # "large", space, x: 2 * 7 / 15
        ("caf\u00e9", "caf", 100),  # Latin-1 letters are dropped
        ("", "red", 0),
        ("!!!", "red", 0),
    ],
)
def test_likeness_by_hand(left: str, right: str, ratio: int) -> None:
    assert token_set_ratio(left, right) == token_set_ratio(right, left) == ratio


def slow_common_subsequence(a: str, b: str) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        previous, row = row, [0] * (len(b) + 1)
        for k, y in enumerate(b):
            row[k + 1] = previous[k] + 1 if x == y else max(previous[k + 1], row[k])
    return row[-1]


@settings(deadline=None, max_examples=200)
@given(st.text("abc ", max_size=70), st.text("abc ", max_size=70))
def test_common_subsequence(a: str, b: str) -> None:
    assert common_subsequence(a, b) == slow_common_subsequence(a, b)


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=30), st.text(max_size=30))
def test_likeness_is_a_percentage_and_symmetric(a: str, b: str) -> None:
    assert 0 <= token_set_ratio(a, b) == token_set_ratio(b, a) <= 100


def test_the_first_colour_word_of_the_vocabulary_counts_wherever_it_is() -> None:
    assert plain_colour("navy blue") == "blue"  # earlier in the vocabulary than navy
    assert plain_colour("heather grey") == "grey"
    assert plain_colour("cashew") == "ash"
    assert plain_colour("13.5 fl oz") == "13.5 fl oz"


def test_all_that_was_asked_for_is_one() -> None:
    assert grade(SCARF, 12.5, {"color": "red", "size": "large"}, GOAL, by_rule).reward == 1.0


def test_each_part_is_one_of_attributes_options_and_price() -> None:
    assert grade(SCARF, 12.5, {}, GOAL, by_rule).reward == pytest.approx(2 / 3)
    assert grade(SCARF, 12.5, {"color": "navy blue"}, GOAL, by_rule).reward == pytest.approx(2 / 3)
    assert grade(SCARF, 30.0, {"color": "red"}, GOAL, by_rule).reward == 1.0
    assert grade(SCARF, 30.01, {"color": "red"}, GOAL, by_rule).reward == pytest.approx(2 / 3)
    assert grade(SCARF, 31.0, {"color": "red | white"}, GOAL, by_rule).reward == pytest.approx(2 / 3)
    other = product(attributes=("dry clean",))
    assert grade(other, 31.0, {}, GOAL, by_rule).reward == 0.0


@pytest.mark.parametrize(
    "has",
    [
        {"title": "Machine Washable Scarf"},
        {"bullets": ("Warm", "MACHINE WASHABLE")},
        {"bullets": ("machine", "washable")},  # bullets are read in one go
        {"description": "machine washable"},
        {"attributes": ("machine wash", "washable machine")},
    ],
)
def test_an_attribute_counts_wherever_it_is_written(has: dict[str, Any]) -> None:
    bought = product(**({"attributes": ("DUMMY_ATTR",)} | has))
    assert grade(bought, 12.5, {}, GOAL, by_rule).attributes == 1


def test_a_goal_without_options_or_limit() -> None:
    goal = Goal(instruction="x", product=SCARF, attributes=("soft", "silk"), options=(), price_limit=NO_LIMIT)
    assert grade(SCARF, 5000.0, {"color": "red"}, goal, by_rule).reward == pytest.approx(2 / 3)  # "Soft" is a bullet


WANTED = product(title="Alpha Beta Gamma Delta Epsilon Zeta Eta Theta Iota Kappa Lambda", query="letters")
FOREIGN = {"query": "other", "product_category": "Else"}


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        ({"title": WANTED.title}, 1.0),
        ({"title": "Alpha Beta Gamma", **FOREIGN}, 1.0),  # 3 of 11 nouns: more than a fifth
        ({"title": "Alpha Beta", **FOREIGN}, 0.5),  # 2 of 11
        ({"title": "Alpha", **FOREIGN}, 0.1),  # 1 of 11: less than a tenth
        ({"title": "Alpha", "query": "letters"}, 0.1),  # even where the query agrees
        ({"title": "Omega", "query": "letters"}, 0.0),
        ({"title": "Alpha Beta", **FOREIGN, "query": "letters"}, 1.0),
        ({"title": "Alpha Beta", **FOREIGN, "product_category": "Women ›  Scarves › New"}, 1.0),
        ({"title": "Alpha Beta", **FOREIGN, "product_category": "Men › Scarves"}, 0.5),
    ],
)
def test_the_kind_of_thing(changes: dict[str, str], factor: float) -> None:
    assert kind_factor(product(**changes), WANTED, by_rule) == factor


def test_a_title_without_nouns_is_neither_like_nor_unlike() -> None:
    """Upstream takes an overlap of 0.2, which is not more than 0.2."""
    nameless = product(title="2 for 1")
    assert kind_factor(SCARF, nameless, by_rule) == 1.0
    assert kind_factor(product(**FOREIGN), nameless, by_rule) == 0.5


def test_nouns_by_rule() -> None:
    assert by_rule("Women's T-Shirt, 2 Pack of 4K Tees & more") == ("women", "t", "shirt", "pack", "4k", "tees")


@pytest.mark.parametrize("spec", ["", "rules", "spacy", "spacy:", "spacy:no_such_model"])
def test_a_noun_finder_that_is_not_there_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match="nouns"):
        noun_finder(spec)


def test_the_log_says_which_noun_finder(caplog: pytest.LogCaptureFixture) -> None:
    noun_finder.cache_clear()
    with caplog.at_level("INFO"):
        noun_finder("rule")
        noun_finder("rule")
    assert [record.getMessage() for record in caplog.records] == ["webshop: nouns of titles are found by rule"]
