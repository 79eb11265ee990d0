"""What a shopper sees. A page is a row of text nodes; both observation modes and the buttons are read from it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from envs.webshop.catalogue import Product

NodeKind = Literal["text", "button", "link", "option"]
PAGE_SIZE = 10  # results

BACK_TO_SEARCH, BUY_NOW, NEXT, PREV, SEARCH = "Back to Search", "Buy Now", "Next >", "< Prev", "Search"
SUB_PAGES = ("Description", "Features", "Reviews")
_SPACES = " \n\t\f\r"
_RECEIPT_HEAD = (
    "Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)", "Purchased",
    "asin",
)  # fmt: skip
_RECEIPT_MIDDLE = (
    "attrs", "None", "category", "None", "query", "None", "product category", "None", "Target", "asin", "options",
    "attrs", "price upper", "instuction text", "category", "product category", "query", "Goal ", "None", "Reward",
    "Your score (min 0.0, max 1.0)",
)  # fmt: skip


class Node(NamedTuple):
    """A piece of text, or something to click."""

    kind: NodeKind
    text: str
    clicked: bool = False  # a link that was followed, an option that is chosen
    option: str = ""  # name of the option of which `text` is a value


Page = tuple[Node, ...]


def start_page(instruction: str) -> Page:
    """The page with the search bar."""
    return (_text("WebShop"), _text("Instruction: "), _text(instruction), _button(SEARCH))


def results_page(instruction: str, products: Sequence[Product], page: int, total: int, seen: Collection[str]) -> Page:
    """Page number `page`, from 1, of `total` results; `seen` are the products looked at since the start page."""
    nodes = [*_head(instruction), _text(f"Page {page} (Total results: {total})")]
    if page > 1:
        nodes.append(_button(PREV))
    nodes.append(_button(NEXT))  # upstream offers it on the last page too
    for product in products:
        nodes += (Node("link", product.asin, product.asin in seen), _text(product.title), _text(product.price_tag))
    return tuple(nodes)


def item_page(instruction: str, product: Product, address: str) -> Page:
    """A product. As upstream has it, a value counts as chosen when it stands in quotes in the page's `address`."""
    nodes = [*_head(instruction), _button(PREV)]
    for option in product.options:
        nodes.append(_text(option.name))
        nodes += (Node("option", value, f'"{value}"' in address, option.name) for value in option.values)
    nodes += (_text(product.title), _text(f"Price: {product.price_tag}"), _text("Rating: N.A."))
    nodes += map(_button, (*SUB_PAGES, BUY_NOW))
    return tuple(nodes)


def item_address(keywords: Sequence[str], page: int, chosen: Mapping[str, str]) -> str:
    """The part of an item page's address that the shopper decides."""
    return f"{'+'.join(keywords)}/{page}/{json.dumps(chosen)}"


def sub_page(instruction: str, product: Product, name: str) -> Page:
    """One of `SUB_PAGES` of a product. Upstream's data has no reviews."""
    texts: Sequence[str] = ()
    if name == "Description":
        texts = (product.description,)
    elif name == "Features":
        texts = [f" {bullet}" for bullet in product.bullets]
    return (*_head(instruction), _button(PREV), *map(_text, texts))


def done_page(asin: str, chosen: Mapping[str, str], reward: float) -> Page:
    """The receipt. Fields that upstream leaves out of its own template show as "None", or as nothing."""
    options = json.dumps(chosen, sort_keys=True)
    for letter in "<>&'":  # escaped for a script, and so shown
        options = options.replace(letter, f"\\u{ord(letter):04x}")
    texts = (*_RECEIPT_HEAD, asin, "options", options, *_RECEIPT_MIDDLE, str(reward), "Reward Details ", "None")
    return tuple(map(_text, texts))


def plain(page: Page) -> str:
    """The observation in text mode: everything in a row."""
    return " [SEP] ".join(node.text.strip() for node in _shown(page))


def rich(page: Page) -> str:
    """The observation in rich mode: a line each, buttons marked; what was clicked is said first, the latest on top."""
    lines: list[str] = []
    clicked: list[str] = []
    for node in _shown(page):
        mark = "clicked button" if node.clicked else "button"
        match node.kind:
            case "text":
                lines.append(node.text)
            case "button":
                lines.append(f"[button] {node.text} [button_]")
            case "link":
                lines.append(f"\n[{mark}] {node.text} [{mark}_]")
            case "option":
                lines.append(f"  [{mark}] {node.text} [{mark}_]")
                if node.clicked:
                    clicked.append(f"You have clicked {node.text}.")
    return "\n".join([*reversed(clicked), *lines, ""])


def clickables(page: Page) -> dict[str, Node]:
    """Label -> what is under it: buttons, products, options. Where two share a label the later has it."""
    targets = {node.text.lower(): node for kind in ("button", "link") for node in page if node.kind == kind}
    targets |= {node.text: node for node in page if node.kind == "option"}
    return targets


def has_search_bar(page: Page) -> bool:
    """Whether this is the start page."""
    return Node("button", SEARCH) in page


def _head(instruction: str) -> Page:
    return (_text("Instruction:"), _text(instruction), _button(BACK_TO_SEARCH))


def _text(text: str) -> Node:
    return Node("text", text)


def _button(text: str) -> Node:
    return Node("button", text)


def _shown(page: Page) -> list[Node]:
    """Nodes a reader of the HTML finds: white space alone vanishes with a line end in it, else it is one space."""
    shown = []
    for node in page:
        if node.text.strip(_SPACES):
            shown.append(node)
        elif node.text and "\n" not in node.text:
            shown.append(node._replace(text=" "))
    return shown
