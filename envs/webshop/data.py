"""The user's three files of upstream, and how they become a catalogue."""

from __future__ import annotations

import json
import mmap
import re
import sys
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from envs.webshop.catalogue import Catalogue, Option, Product
from stream_rl.errors import ConfigError

PRODUCTS, ATTRIBUTES, INSTRUCTIONS = "items_shuffle", "items_ins_v2", "items_human_ins"
_NO_ATTRIBUTES = ("DUMMY_ATTR",)  # upstream's mark of a product nobody described
_UNKNOWN_PRICE = 100.0
_NOT_A_NUMBER = re.compile(r"[^0-9.]")

T = TypeVar("T")


class RawOption(msgspec.Struct, frozen=True):
    """One value of `customization_options`."""

    value: str = ""  # as on the page it was read from


class RawProduct(msgspec.Struct, frozen=True, kw_only=True):
    """What is used of an entry of `items_shuffle`; other fields are skipped while decoding."""

    asin: str
    name: str
    full_description: str | None = ""
    small_description: list[str] | str | None = None
    pricing: str | None = ""
    category: str
    query: str
    product_category: str
    customization_options: dict[str, list[RawOption] | None] | Literal[""] | None = None


class RawAttributes(msgspec.Struct, frozen=True):
    """An entry of `items_ins_v2`."""

    attributes: list[str] | None = None


class RawInstruction(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence of `items_human_ins`: what a person was asked to write for a product."""

    instruction: str
    instruction_attributes: list[str]
    instruction_options: list[str]


class RawData(msgspec.Struct, frozen=True, kw_only=True):
    """The three files."""

    products: list[RawProduct]
    attributes: dict[str, RawAttributes]  # by asin
    instructions: dict[str, list[RawInstruction]]  # by asin


def read_data(folder: str) -> RawData:
    """Read a user's folder; the files may be named with or without "_1000" (the full ones win).

    Raises `ConfigError` for what is missing or is not in upstream's format.
    """
    return RawData(
        products=_read(_find(folder, PRODUCTS), list[RawProduct]),
        attributes=_read(_find(folder, ATTRIBUTES), dict[str, RawAttributes]),
        instructions=_read(_find(folder, INSTRUCTIONS), dict[str, list[RawInstruction]]),
    )


def write_data(raw: RawData, folder: Path) -> None:
    """Write the three files in upstream's format."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem, content in ((PRODUCTS, raw.products), (ATTRIBUTES, raw.attributes), (INSTRUCTIONS, raw.instructions)):
        (folder / f"{stem}.json").write_bytes(msgspec.json.encode(content))


def build_catalogue(raw: RawData, limit: int | None = None) -> Catalogue:
    """Clean the first `limit` entries as upstream does: no "nan", no long and no repeated identifiers."""
    return Catalogue(_clean(raw, limit))


def _clean(raw: RawData, limit: int | None) -> Iterator[Product]:
    seen: set[str] = set()
    for entry in raw.products[:limit]:
        if entry.asin == "nan" or len(entry.asin) > 10 or entry.asin in seen:
            continue
        seen.add(entry.asin)
        known = raw.attributes.get(entry.asin)
        attributes = _NO_ATTRIBUTES if known is None or known.attributes is None else _shared(known.attributes)
        yield Product(
            asin=entry.asin,
            title=entry.name,
            description=entry.full_description or "",
            bullets=_bullets(entry.small_description),
            prices=parse_prices(entry.pricing),
            category=sys.intern(entry.category),
            query=sys.intern(entry.query.lower().strip()),
            product_category=sys.intern(entry.product_category),
            attributes=attributes,
            options=_options(entry),
        )


def parse_prices(text: str | None) -> tuple[float, ...]:
    """Dollars in a price text: the first two numbers that follow a "$"; 100 when there is none.

    >>> parse_prices("$1,299.00")
    (1299.0,)
    >>> parse_prices("$9.99 - $12.50")
    (9.99, 12.5)
    """
    prices = []
    for part in (text or "").split("$")[1:]:
        try:
            prices.append(float(Decimal(_NOT_A_NUMBER.sub("", part))))
        except InvalidOperation:  # a "$" without a number says nothing about the price
            continue
    return tuple(prices[:2]) or (_UNKNOWN_PRICE,)


def _bullets(text: list[str] | str | None) -> tuple[str, ...]:
    if isinstance(text, list):
        return tuple(text) or ("",)
    return (text or "",)


def _options(entry: RawProduct) -> tuple[Option, ...]:
    values = {
        name.lower(): _shared([raw.value.strip().replace("/", " | ").lower() for raw in contents])
        for name, contents in (entry.customization_options or {}).items()
        if contents is not None
    }
    return tuple(Option(name=sys.intern(name), values=those) for name, those in values.items())


def _shared(texts: list[str]) -> tuple[str, ...]:
    return tuple(sys.intern(text) for text in texts)


def _find(folder: str, stem: str) -> Path:
    for name in (f"{stem}.json", f"{stem}_1000.json"):
        if (path := Path(folder) / name).is_file():
            return path
    raise ConfigError(
        "environments.options.data",
        f"webshop: {folder!r} has neither {stem}.json nor {stem}_1000.json; the folder must hold upstream's "
        f"{PRODUCTS}, {ATTRIBUTES} and {INSTRUCTIONS} files.",
    )


def _read(path: Path, content: type[T]) -> T:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return _decode(text, content)
    except (ValueError, OSError) as error:  # also what msgspec and json raise
        raise ConfigError(
            "environments.options.data", f"webshop: {path} is not upstream's {path.stem} file: {error}."
        ) from error


def _decode(text: mmap.mmap, content: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=content)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # Python's json writes NaN, which is no JSON
        loaded: Any = json.loads(text[:])
        return msgspec.convert(loaded, content)
