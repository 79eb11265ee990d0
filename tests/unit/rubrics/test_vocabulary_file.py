"""What is said about a user's vocabulary file that cannot be used, and that what can be used is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from stream_rl.errors import ConfigError
from stream_rl.rubrics.vocabulary import builtin, load, parse
from stream_rl.rubrics.vocabulary_file import MAX_RUBRICS


def entry(rubric_id: str, **over: str) -> str:
    """A `[[rubrics]]` table whose texts are unlike those of any other id; a value is TOML, "" leaves the field out."""
    texts = ("name", "applies", "positive", "violation", "hint", "avoid")
    fields = {
        "id": repr(rubric_id),
        "skill": repr(rubric_id.partition(".")[0]),
        **{name: repr(f"{name} of {rubric_id}") for name in texts},
    } | over
    return "[[rubrics]]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items() if value) + "\n"


def fault(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, "mine.toml")
    assert caught.value.path == "judge.vocabulary"
    assert "mine.toml" in str(caught.value)
    return caught.value.problem


def test_a_good_file_is_read_in_its_order() -> None:
    assert parse(entry("b.two") + entry("a.one"), "mine.toml").ids == ("b.two", "a.one")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (entry("a.one") + entry("a.two", positive=""), ["rubric 2 (line 11, 'a.two')", "lacks positive"]),
        (
            entry("a.one", positive="", postive="'x'"),
            ["rubric 1 (line 1, 'a.one')", "unknown field 'postive'", "did you mean 'positive'?", "lacks positive"],
        ),
        (entry("a.one", weight="2"), ["unknown field 'weight'"]),
        (entry("a.one", name="5"), ["name is a number (5)", "in quotes"]),
        (entry("a.one", hint="['x']"), ["hint is a list"]),
        (entry("a.one", applies="true"), ["applies is true or false"]),
        (entry("a.one", avoid="2024-01-01"), ["avoid is a date or time"]),
        (entry("a.one", avoid="'  '"), ["avoid is empty"]),
        (entry("a.one", applies=repr("x" * 1001)), ["applies is 1,001 characters long", "1,000 are the most"]),
        (entry("a.one", skill="'b'"), ["id 'a.one' does not begin with its skill 'b'"]),
        (entry("a.one two"), ["'a.one two' holds a space"]),
        (entry("a.one") + entry("a.one", name="'n'", hint="'h'", avoid="'v'", applies="'p'"),
         ["rubric 2 (line 11, 'a.one')", "id 'a.one' stands more than once, first in rubric 1 (line 1, 'a.one')"]),
        (entry("a.one") + entry("A.One", skill="'A'", name="'n'", hint="'h'", avoid="'v'", applies="'p'"),
         ["rubric 2 (line 11, 'A.One')", "id is the same as in rubric 1", "but for case or punctuation"]),
        (entry("a.one", hint="'open  the box!'") + entry("a.two", hint="'Open the box'"), ["hint is the same as in"]),
        (
            entry("a.one", applies="'p'", positive="'q'", violation="'r'")
            + entry("a.two", applies="'P.'", positive="'Q.'", violation="'R.'"),
            ["applies, positive and violation is the same"],
        ),
        ("title = 'x'\n" + entry("a.one"), ["unknown key 'title'"]),
        ("", ["holds no [[rubrics]] table"]),
        (entry("a.one").replace("rubrics", "rubric"), ["holds no [[rubrics]] table", "where it says 'rubric'"]),
        (entry("a.one").replace("[[", "[").replace("]]", "]"), ["must be an array of tables"]),
        ("rubrics = []\n", ["holds no [[rubrics]] table"]),
        ("[[rubrics]]\nid = unquoted\n", ["not valid TOML", "line 2"]),
    ],
)  # fmt: skip
def test_every_fault_is_told_with_its_place(text: str, said: Sequence[str]) -> None:
    problem = fault(text)
    for part in said:
        assert part in problem


def test_one_shared_text_is_no_fault() -> None:
    shared = entry("a.one", violation="'it does not'") + entry("a.two", violation="'it does not'")
    assert len(parse(shared, "mine.toml").rubrics) == 2


def test_all_faults_are_told_at_once_but_not_hundreds() -> None:
    few = fault(entry("a.one", name="1") + entry("a.two", hint="2"))
    assert "2 faults" in few
    assert "'a.one'" in few
    assert "'a.two'" in few
    many = fault("".join(entry(f"a.r{i}", name="1") for i in range(20)))
    assert "20 faults" in many
    assert "and 12 more" in many
    assert many.count("\n") == 9


def test_a_line_is_told_only_where_it_is_certain() -> None:
    """A header quoted inside a text would shift the count."""
    text = entry("a.one", applies="'''\n[[rubrics]]\n'''") + entry("a.two", positive="")
    assert "rubric 2 ('a.two'): lacks positive" in fault(text)


def test_too_many_rubrics_are_refused() -> None:
    text = "".join(entry(f"a.r{i}") for i in range(MAX_RUBRICS + 1))
    assert f"{MAX_RUBRICS + 1} rubrics are more than the {MAX_RUBRICS}" in fault(text)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "bom.toml"
    file.write_text(entry("a.one"), encoding="utf-8-sig")
    assert load(str(file)) == parse(entry("a.one"), "x") == parse("\ufeff" + entry("a.one"), "x")


def test_another_encoding_is_named(tmp_path: Path) -> None:
    file = tmp_path / "wide.toml"
    file.write_text(entry("a.one"), encoding="utf-16")
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 0xff at position 0\)"):
        load(str(file))


def test_requests_too_long_for_a_judge_are_refused(tmp_path: Path) -> None:
    """Eighty rubrics of 1,000 shown characters each: forty fit into 40,000, but not forty-one."""
    file = tmp_path / "long.toml"
    texts = {"applies": repr("x" * 394), "violation": repr("v" * 300)}
    file.write_text(
        "".join(entry(f"a.r{i:02d}", **texts, positive=repr(f"{i:02d}" + "p" * 299)) for i in range(80)),
        encoding="utf-8",
    )
    assert len(load(str(file)).rubrics) == 80
    assert len(load(str(file), chunk=40).rubrics) == 80
    with pytest.raises(ConfigError, match=r"64 rubrics .*64,000 characters.*set it to 40 or less") as caught:
        load(str(file), chunk=64)
    assert caught.value.path == "judge.chunk"


def test_the_built_in_vocabulary_fits_one_request() -> None:
    assert load("builtin", chunk=64) is builtin()
