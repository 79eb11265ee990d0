from __future__ import annotations

import pytest

from envs.webshop import pages
from envs.webshop.actions import parse_action
from envs.webshop.catalogue import Option
from envs.webshop.pages import plain, rich
from tests.unit.envs.webshop.builders import GOAL, SCARF, product, session, walk

MANY = [product(f"B{place:09}", title=f"scarf {place}", options=()) for place in range(23)]


def labels(shopper: object) -> list[str]:
    return list(pages.clickables(shopper.page))  # type: ignore[attr-defined]


def test_a_visit_by_hand() -> None:
    shopper = session()
    assert plain(shopper.page) == f"WebShop [SEP] Instruction: [SEP] {GOAL.instruction} [SEP] Search"
    assert labels(shopper) == ["search"]
    walk(shopper, "search[scarf]")
    head = f"Instruction: [SEP] {GOAL.instruction} [SEP] Back to Search"
    assert plain(shopper.page) == (
        f"{head} [SEP] Page 1 (Total results: 1) [SEP] Next > [SEP] B000000001 [SEP] Acme Wool Scarf [SEP] $12.5"
    )
    walk(shopper, "click[B000000001]")
    assert plain(shopper.page) == (
        f"{head} [SEP] < Prev [SEP] color [SEP] red [SEP] navy blue [SEP] size [SEP] small [SEP] large [SEP] "
        "Acme Wool Scarf [SEP] Price: $12.5 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] "
        "Buy Now"
    )
    buttons = ["back to search", "< prev", "description", "features", "reviews", "buy now"]
    assert labels(shopper) == [*buttons, "red", "navy blue", "small", "large"]
    walk(shopper, "click[red]", "click[large]")
    assert rich(shopper.page) == (
        "You have clicked large.\nYou have clicked red.\nInstruction:\n"
        f"{GOAL.instruction}\n[button] Back to Search [button_]\n[button] < Prev [button_]\n"
        "color\n  [clicked button] red [clicked button_]\n  [button] navy blue [button_]\n"
        "size\n  [button] small [button_]\n  [clicked button] large [clicked button_]\n"
        "Acme Wool Scarf\nPrice: $12.5\nRating: N.A.\n[button] Description [button_]\n[button] Features [button_]\n"
        "[button] Reviews [button_]\n[button] Buy Now [button_]\n"
    )
    walk(shopper, "click[features]")
    assert rich(shopper.page).endswith("[button] < Prev [button_]\n Warm \n Soft\n")
    walk(shopper, "click[< prev]", "click[description]")
    assert plain(shopper.page) == f"{head} [SEP] < Prev [SEP] A scarf."
    walk(shopper, "click[< prev]", "click[reviews]")
    assert plain(shopper.page) == f"{head} [SEP] < Prev"
    assert shopper.grade is None
    walk(shopper, "click[< prev]", "click[buy now]")
    assert shopper.reward == 1.0
    assert labels(shopper) == []
    assert 'options [SEP] {"color": "red", "size": "large"} [SEP] attrs [SEP] None' in plain(shopper.page)
    assert plain(shopper.page).endswith("Your score (min 0.0, max 1.0) [SEP] 1.0 [SEP] Reward Details [SEP] None")
    assert not shopper.act(parse_action("search[scarf]"))


def test_options_are_kept_through_sub_pages_and_dropped_by_prev() -> None:
    shopper = walk(session(), "search[scarf]", "click[b000000001]", "click[red]", "click[features]", "click[< prev]")
    assert "[clicked button] red" in rich(shopper.page)
    walk(shopper, "click[< prev]")
    assert "Page 1 (Total results: 1)" in plain(shopper.page)
    assert "\n[clicked button] B000000001 [clicked button_]\n" in rich(shopper.page)
    walk(shopper, "click[b000000001]", "click[buy now]")
    assert shopper.reward == pytest.approx(2 / 3)


def test_a_second_value_replaces_the_first() -> None:
    shopper = walk(session(), "search[scarf]", "click[b000000001]", "click[red]", "click[navy blue]")
    assert rich(shopper.page).startswith("You have clicked navy blue.\nInstruction:")


def test_back_to_search_forgets_what_was_seen() -> None:
    shopper = walk(session(), "search[scarf]", "click[b000000001]", "click[back to search]")
    assert pages.has_search_bar(shopper.page)
    assert "[button] B000000001" in rich(walk(shopper, "search[scarf]").page)


def test_ten_results_a_page_and_next_without_end() -> None:
    shopper = walk(session(*MANY), "search[scarf]")
    shown = labels(shopper)
    assert shown[:2] == ["back to search", "next >"]
    assert len(shown) == 12
    walk(shopper, "click[next >]", "click[next >]")
    assert "Page 3 (Total results: 23)" in plain(shopper.page)
    assert len(labels(shopper)) == 3 + 3
    walk(shopper, "click[next >]")
    assert labels(shopper) == ["back to search", "< prev", "next >"]
    walk(shopper, "click[< prev]", "click[< prev]", "click[< prev]")
    assert labels(shopper) == shown
    walk(shopper, "click[next >]")
    walk(shopper, f"click[{labels(shopper)[3]}]", "click[< prev]")  # its first product
    assert "Page 2 (Total results: 23)" in plain(shopper.page)


def test_a_search_can_be_made_on_every_page_but_the_receipt() -> None:
    shopper = walk(session(), "search[scarf]", "search[hat]")
    assert "Total results: 0" in plain(shopper.page)
    walk(shopper, "search[scarf]", "click[b000000001]", "search[scarf]", "click[b000000001]", "click[reviews]")
    walk(shopper, "search[wool]")
    assert "Total results: 1" in plain(shopper.page)


@pytest.mark.parametrize("action", ["click[search]", "click[buy now]", "click[b000000001]", "click[nonsense]", "look"])
def test_what_is_not_on_the_page_does_nothing(action: str) -> None:
    shopper = session()
    before = shopper.page
    assert not shopper.act(parse_action(action))
    assert shopper.page == before
    assert shopper.reward == 0.0


def test_a_value_counts_as_chosen_when_the_address_has_it_in_quotes() -> None:
    """Upstream looks for the quoted value in the page's address, which holds the query as well."""
    shopper = walk(session(), 'search["red" scarf]', "click[b000000001]")
    assert rich(shopper.page).startswith("You have clicked red.\n")
    walk(shopper, "click[buy now]")
    assert shopper.reward == pytest.approx(2 / 3)


def test_a_value_of_two_options_is_the_later_ones() -> None:
    options = tuple(Option(name=name, values=("red", "other")) for name in ("band", "case"))
    shopper = walk(session(product(options=options)), "search[scarf]", "click[b000000001]", "click[red]")
    walk(shopper, "click[buy now]")
    assert '{"case": "red"}' in plain(shopper.page)


def test_a_value_that_reads_like_a_button_is_the_button() -> None:
    strange = product(options=(Option(name="color", values=("reviews",)),))
    shopper = walk(session(strange), "search[scarf]", "click[b000000001]", "click[reviews]")
    assert plain(shopper.page).endswith("[SEP] < Prev")


def test_letters_of_html_are_shown_as_they_are_but_escaped_on_the_receipt() -> None:
    odd = product(title="Salt & <b>'Pepper'</b>", options=(Option(name="color", values=("black & white",)),))
    shopper = walk(session(odd), "search[salt]", "click[b000000001]", "click[black & white]")
    assert "Salt & <b>'Pepper'</b>" in plain(shopper.page)
    walk(shopper, "click[buy now]")
    assert '{"color": "black \\u0026 white"}' in plain(shopper.page)


@pytest.mark.parametrize(
    ("description", "shown"), [("", ""), ("  ", " [SEP] "), (" \n ", ""), (" a\nb ", " [SEP] a\nb")]
)
def test_white_space_is_shown_as_an_html_parser_leaves_it(description: str, shown: str) -> None:
    shopper = walk(session(product(description=description)), "search[scarf]", "click[b000000001]")
    assert plain(walk(shopper, "click[description]").page).partition("< Prev")[2] == shown


def test_the_cheapest_way_to_the_goal_is_worth_less_when_it_is_another_kind() -> None:
    other = product("B000000002", title="Acme Kettle", query="kettles", product_category="Kitchen")
    walked = walk(session(SCARF, other), "search[kettle]", "click[b000000002]", "click[red]", "click[buy now]")
    assert walked.reward == 1.0  # one noun of three is shared, which is enough for the full factor
    third = product("B000000003", title="Kettle", query="kettles", product_category="Kitchen")
    assert walk(session(third), "search[kettle]", "click[b000000003]", "click[buy now]").reward == 0.0
