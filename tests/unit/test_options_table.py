import re
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta
from msgspec import inspect as types

from scripts import options_table
from scripts.declarations import declared
from scripts.options_table import Table, Undocumented, section, table_in, tables
from stream_rl.config import Config


class Lamp(msgspec.Struct, frozen=True, kw_only=True):
    """`[rooms.lamps]`: what shines."""

    # light
    colour: Literal["red", "amber"] = "red"  # red | amber
    watts: Annotated[float, Meta(gt=0, le=60)] = 5.0  # power

    # fixture
    height: tuple[  # metres
        Annotated[int, Meta(ge=0, le=9)], ...
    ] = ()  # from the floor
    socket: str  # "E27" or the like


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """`[rooms]`: where it shines."""

    name: str = ""  # which room
    lamps: tuple[Lamp, ...] = ()  # none: darkness


class House(msgspec.Struct, frozen=True, kw_only=True):
    """A whole house."""

    rooms: Room = Room()


class Silent(msgspec.Struct, frozen=True, kw_only=True):
    """Says nothing."""

    size: int = 1


def test_the_page_is_what_the_declarations_say_now() -> None:
    written = options_table.PAGE.read_text(encoding="utf-8")
    assert written == options_table.page(), "run: python -m scripts.options_table"


def options_of(table: Table) -> list[str]:
    return [option.name for option in table.kind.fields if table_in(option.type) is None]


def test_every_option_stands_on_the_page_once_under_its_table() -> None:
    parts = {part.partition("\n")[0]: part for part in options_table.page().split("\n## ")[1:]}
    assert set(parts) == {table.title for table in tables(Config)}
    for table in tables(Config):
        keys = re.findall(r"^\| `(\w+)` \|", parts[table.title], re.MULTILINE)
        assert keys == options_of(table)


def test_every_option_has_a_comment() -> None:
    silent = [
        f"{table.title} {name}"
        for table in tables(Config)
        for name in options_of(table)
        if not declared(table.kind.cls)[name].comment
    ]
    assert silent == []


def test_a_table_is_told_in_full() -> None:
    *_, lamps = tables(House)
    assert section(lamps).splitlines() == [
        "## `[[rooms.lamps]]`",
        "",
        "What shines. None: darkness.",
        "",
        "### Light",
        "",
        "| key | value | default | meaning |",
        "|---|---|---|---|",
        '| `colour` | `"red"`, `"amber"` | `"red"` | red \\| amber |',
        "| `watts` | number, above 0, at most 60 | `5.0` | power |",
        "",
        "### Fixture",
        "",
        "| key | value | default | meaning |",
        "|---|---|---|---|",
        "| `height` | list, each: integer, 0 to 9 | `[]` | metres from the floor |",
        '| `socket` | text | required | "E27" or the like |',
    ]


def test_tables_are_found_at_any_depth_and_are_no_options_themselves() -> None:
    assert [table.title for table in tables(House)] == ["Top level", "`[rooms]`", "`[[rooms.lamps]]`"]
    _, rooms, _ = tables(House)
    assert "`name`" in section(rooms)
    assert "`lamps`" not in section(rooms)


def test_an_option_without_a_comment_is_named() -> None:
    kind = types.type_info(Silent)
    assert isinstance(kind, types.StructType)
    with pytest.raises(Undocumented, match=r"Silent\.size has no comment"):
        section(Table(path="", repeated=False, kind=kind, note=""))
