from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.webshop.catalogue import Option, real_price
from envs.webshop.data import build_catalogue, parse_prices, read_data, write_data
from envs.webshop.synthetic import synthetic_data
from stream_rl.errors import ConfigError
from tests.unit.envs.webshop.builders import product

ENTRY: dict[str, Any] = {
    "asin": "B000000001",
    "name": "Acme Kettle",
    "full_description": "Boils.",
    "small_description": ["Quick ", "Quiet"],
    "pricing": "$19.99",
    "category": "garden",
    "query": " Tea Kettles ",
    "product_category": "Home › Kitchen",
    "customization_options": {"Color": [{"value": " Red/White ", "image": None}], "Gone": None},
    "images": ["x"],
    "average_rating": 4.2,
}


def write(folder: Path, entries: list[dict[str, Any]], suffix: str = "") -> Path:
    (folder / f"items_shuffle{suffix}.json").write_text(json.dumps(entries))
    attributes = {"B000000001": {"attributes": ["quick boil"], "instruction": "x"}, "B000000002": {"instruction": "x"}}
    (folder / f"items_ins_v2{suffix}.json").write_text(json.dumps(attributes))
    (folder / "items_human_ins.json").write_text(json.dumps({}))
    return folder


@pytest.mark.parametrize("suffix", ["", "_1000"])
def test_an_entry_is_cleaned(tmp_path: Path, suffix: str) -> None:
    (only,) = build_catalogue(read_data(str(write(tmp_path, [ENTRY], suffix)))).products
    assert only.query == "tea kettles"
    assert only.options == (Option(name="color", values=("red | white",)),)
    assert (only.bullets, only.attributes, only.price_tag) == (("Quick ", "Quiet"), ("quick boil",), "$19.99")


def test_what_upstream_leaves_out_is_left_out(tmp_path: Path) -> None:
    asins = ["nan", "B0000000011", "B000000001", "B000000002", "B000000001", "B000000003"]
    entries = [ENTRY | {"asin": asin, "name": f"entry {place}"} for place, asin in enumerate(asins)]
    raw = read_data(str(write(tmp_path, entries)))
    assert [each.title for each in build_catalogue(raw).products] == ["entry 2", "entry 3", "entry 5"]
    assert [each.title for each in build_catalogue(raw, limit=4).products] == ["entry 2", "entry 3"]
    assert build_catalogue(raw).products[1].attributes == ("DUMMY_ATTR",)


@pytest.mark.parametrize("missing", [{"small_description": None}, {"small_description": []}, {"small_description": ""}])
def test_there_is_always_a_bullet(tmp_path: Path, missing: dict[str, Any]) -> None:
    (only,) = build_catalogue(read_data(str(write(tmp_path, [ENTRY | missing])))).products
    assert only.bullets == ("",)


def test_not_a_number_is_read_as_python_writes_it(tmp_path: Path) -> None:
    raw = read_data(str(write(tmp_path, [ENTRY | {"average_rating": float("nan")}])))
    assert raw.products[0].asin == "B000000001"


@pytest.mark.parametrize(
    ("text", "prices"),
    [
        (None, (100.0,)),
        ("", (100.0,)),
        ("sold out", (100.0,)),
        ("$", (100.0,)),
        ("$7", (7.0,)),
        ("$1,299.00", (1299.0,)),
        ("$9.99$12.50", (9.99, 12.5)),
        ("from $9.99 to $12.50", (9.99, 12.5)),
        ("$1$2$3", (1.0, 2.0)),
    ],
)
def test_prices(text: str | None, prices: tuple[float, ...]) -> None:
    assert parse_prices(text) == prices


def test_a_range_has_one_price_per_seed_inside_it() -> None:
    ranged = product(prices=(10.0, 20.0))
    assert ranged.price_tag == "$10.0 to $20.0"
    paid = [real_price(ranged, seed) for seed in range(20)]
    assert paid == [real_price(ranged, seed) for seed in range(20)]
    assert all(10.0 <= price <= 20.0 for price in paid)
    assert len(set(paid)) == 20
    assert real_price(product(prices=(12.5,)), 1) == 12.5


def test_a_folder_that_is_not_upstreams_is_refused_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"items_shuffle\.json nor items_shuffle_1000\.json"):
        read_data(str(tmp_path))
    write(tmp_path, [ENTRY | {"name": 7}])
    with pytest.raises(ConfigError, match=r"items_shuffle\.json.*Expected `str`, got `int`.*name"):
        read_data(str(tmp_path))
    (tmp_path / "items_shuffle.json").write_text("[")
    with pytest.raises(ConfigError, match="items_shuffle"):
        read_data(str(tmp_path))
    (tmp_path / "items_shuffle.json").write_text("")
    with pytest.raises(ConfigError, match="items_shuffle"):
        read_data(str(tmp_path))


def test_a_synthetic_shop_is_its_seeds_and_survives_upstreams_format(tmp_path: Path) -> None:
    raw = synthetic_data(40, seed=3)
    assert raw == synthetic_data(40, seed=3)
    assert raw != synthetic_data(40, seed=4)
    assert synthetic_data(60, seed=3).products[:40] == raw.products
    assert len({entry.asin for entry in synthetic_data(500, seed=0).products}) == 500
    write_data(raw, tmp_path)
    assert build_catalogue(read_data(str(tmp_path))).products == build_catalogue(raw).products
