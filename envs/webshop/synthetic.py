"""A shop out of nothing, for use without upstream's data: a seed decides every product, in upstream's format."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

from envs.webshop.data import RawAttributes, RawData, RawInstruction, RawOption, RawProduct


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """Products of one sort."""

    category: str
    query: str
    path: str  # product category
    things: tuple[str, ...]  # what a product is called
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]  # name -> values
    dollars: tuple[int, int]  # usual prices


_LINES = (
    _Line(
        category="garden",
        query="kettles",
        path="Home & Kitchen › Kitchen & Dining › Coffee, Tea & Espresso › Kettles",
        things=("Electric Kettle", "Gooseneck Kettle", "Stovetop Kettle"),
        attributes=("stainless steel", "quick boil", "bpa free", "auto shutoff", "easy clean", "cool touch handle"),
        options={"Color": ("Matte Black", "White", "Copper", "Forest Green"), "Size": ("1 Liter", "1.7 Liter")},
        dollars=(18, 120),
    ),
    _Line(
        category="fashion",
        query="women's rain jackets",
        path="Clothing, Shoes & Jewelry › Women › Clothing › Coats, Jackets & Vests › Raincoats",
        things=("Rain Jacket", "Hooded Raincoat", "Packable Windbreaker"),
        attributes=("machine washable", "quick drying", "water resistant", "long sleeve", "loose fit", "light weight"),
        options={"Size": ("Small", "Medium", "Large", "X-Large"), "Color": ("Navy", "Olive", "Red/Black", "Mustard")},
        dollars=(25, 160),
    ),
    _Line(
        category="beauty",
        query="face serums",
        path="Beauty & Personal Care › Skin Care › Face › Treatments & Masks › Serums",
        things=("Face Serum", "Night Serum", "Vitamin C Serum"),
        attributes=(
            "fragrance free",
            "cruelty free",
            "hyaluronic acid",
            "sensitive skin",
            "anti aging",
            "dark circles",
        ),
        options={"Size": ("1 Fl Oz (Pack of 1)", "2 Fl Oz (Pack of 1)", "1 Fl Oz (Pack of 2)")},
        dollars=(9, 70),
    ),
    _Line(
        category="electronics",
        query="phone chargers",
        path="Cell Phones & Accessories › Accessories › Chargers & Power Adapters › Wall Chargers",
        things=("USB C Wall Charger", "Travel Charger", "Charging Station"),
        attributes=("fast charging", "easy carry", "foldable plug", "certified safe", "wireless charging"),
        options={"Color": ("Black", "White", "Sky Blue"), "Style": ("20W", "45W", "65W")},
        dollars=(8, 60),
    ),
    _Line(
        category="grocery",
        query="green tea",
        path="Grocery & Gourmet Food › Beverages › Bottled Beverages, Water & Drink Mixes › Tea",
        things=("Green Tea", "Jasmine Tea", "Matcha Powder"),
        attributes=("caffeine free", "usda organic", "gluten free", "non gmo", "sugar free", "hand crafted"),
        options={"Flavor Name": ("Lemon Ginger", "Mint", "Original"), "Size": ("20 Count", "100 Count")},
        dollars=(5, 45),
    ),
    _Line(
        category="garden",
        query="desk chairs",
        path="Home & Kitchen › Furniture › Home Office Furniture › Home Office Desk Chairs",
        things=("Office Chair", "Ergonomic Desk Chair", "Swivel Stool"),
        attributes=(
            "lumbar support",
            "easy assemble",
            "height adjustable",
            "high density",
            "heavy duty",
            "faux leather",
        ),
        options={"Color": ("Charcoal", "Cream", "Teal"), "Style": ("With Arms", "Armless")},
        dollars=(60, 420),
    ),
    _Line(
        category="pets",
        query="dog beds",
        path="Pet Supplies › Dogs › Beds & Furniture › Beds",
        things=("Dog Bed", "Orthopedic Dog Mat", "Donut Pet Bed"),
        attributes=("memory foam", "machine washable", "non slip", "water proof", "faux fur"),
        options={"Size": ("Small (24 inch)", "Large (36 inch)", "Jumbo (48 inch)"), "Color": ("Grey", "Brown", "Pink")},
        dollars=(15, 110),
    ),
    _Line(
        category="fashion",
        query="men's running shoes",
        path="Clothing, Shoes & Jewelry › Men › Shoes › Athletic › Running",
        things=("Running Shoe", "Trail Runner", "Walking Sneaker"),
        attributes=("arch support", "rubber sole", "memory foam", "slip resistant", "breathable mesh", "lace closure"),
        options={"Size": ("8", "9.5", "11", "12 Wide"), "Color": ("Black/White", "Royal Blue", "Sand")},
        dollars=(30, 190),
    ),
)
_BRANDS = (
    "Alderwick", "Brightmoor", "Calder & Finch", "Dunmere", "Everlark", "Fennimore", "Greyhollow", "Harrowgate",
    "Isenfeld", "Juniper Row", "Kestonia", "Lindqvist", "Marlowe", "Northbeck", "Oakhurst", "Pellworth", "Quenby",
    "Rosmarin", "Silverbrook", "Thornbury",
)  # fmt: skip
_ENDINGS = ("Gift for Friends", "for Home & Office", "for Everyday Use", "2 Year Warranty", "New Version")
_PLACES = 36**8  # identifiers
_STRIDE = 1_234_567_890_133  # prime to the number of places, so that no identifier comes twice


def synthetic_data(products: int, seed: int) -> RawData:
    """`products` products with attributes, and instructions for seven of ten; no instruction comes twice.

    A longer shop begins as a shorter one.
    """
    told: set[str] = set()
    data = RawData(products=[], attributes={}, instructions={})
    for number in range(products):
        rng = random.Random(f"webshop/{seed}/product/{number}")
        line = _LINES[number % len(_LINES)]
        asin = _asin(number)
        thing = rng.choice(line.things)
        attributes = rng.sample(line.attributes, rng.randint(2, 4))
        product = _product(rng, line, asin, thing, attributes)
        data.products.append(product)
        data.attributes[asin] = RawAttributes(attributes=attributes)
        if rng.random() < 0.7:
            written = [_instruction(rng, thing.lower(), attributes, product) for _ in range(rng.randint(1, 3))]
            new = {each.instruction: each for each in written if each.instruction not in told}
            told.update(new)
            data.instructions[asin] = list(new.values())
    return data


def _product(rng: random.Random, line: _Line, asin: str, thing: str, attributes: list[str]) -> RawProduct:
    brand = rng.choice(_BRANDS)
    model = f"{rng.choice('ABCDEFGHKLMNPRSTVX')}{rng.randint(10, 999)}"
    first, second = attributes[:2]
    sentence = " and ".join(attributes)
    return RawProduct(
        asin=asin,
        name=f"{brand} {thing}, {first.title()} {thing.split()[-1]} {model}, {rng.choice(_ENDINGS)}",
        full_description=rng.choice(("", f"The {model} is a {thing.lower()} by {brand}: {sentence}, made to last.")),
        small_description=[
            f"{first.upper()}: our {thing.lower()} is {first}, as {brand} has made it for years ",
            f"{second.upper()}: {second}, tested by people who use it every day ",
            "Not what you expected? Send it back within 30 days ",
        ],
        pricing=_pricing(rng, line.dollars),
        category=line.category,
        query=line.query,
        product_category=line.path,
        customization_options=_customization(rng, line.options),
    )


def _pricing(rng: random.Random, dollars: tuple[int, int]) -> str:
    low = rng.randint(*dollars) - 0.01
    match rng.choice(("single", "single", "range", "none")):
        case "single":
            return f"${low:.2f}"
        case "range":
            return f"${low:.2f}${low * rng.choice((1.25, 1.5, 2.0)):.2f}"
    return ""


def _customization(rng: random.Random, options: Mapping[str, tuple[str, ...]]) -> dict[str, list[RawOption] | None]:
    offered = rng.sample(sorted(options), rng.randint(0, len(options)))
    return {
        name: [RawOption(value) for value in rng.sample(options[name], rng.randint(1, len(options[name])))]
        for name in offered
    }


def _instruction(rng: random.Random, thing: str, attributes: list[str], product: RawProduct) -> RawInstruction:
    wanted = rng.sample(attributes, rng.randint(1, 2))
    options = [
        rng.choice(values).value.replace("/", " | ").lower()
        for values in (product.customization_options or {}).values()
        if values
    ]
    article = rng.choice(("i am looking for a", "i need a", "find me a"))
    ending = f" in {', '.join(options)}" if options else ""
    return RawInstruction(
        instruction=f"{article} {thing} that is {' and '.join(wanted)}{ending}.",
        instruction_attributes=wanted,
        instruction_options=options,
    )


def _asin(number: int) -> str:
    """Ten characters, all different, in no order that tells anything."""
    rest = (number + 1) * _STRIDE % _PLACES
    digits = ""
    for _ in range(8):
        rest, digit = divmod(rest, 36)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit] + digits
    return f"B0{digits}"
