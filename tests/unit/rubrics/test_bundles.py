"""What a policy may answer, and the criteria read from it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.rubrics.bundles import parse_bundle
from stream_rl.rubrics.guidance import criteria_text, hint_text
from stream_rl.rubrics.vocabulary import builtin

FIVE = ("open closed places", "look first", "don't repeat moves", "take the mug", "check the desk")
LIST = json.dumps(FIVE)

ANSWERS = {
    "list": LIST,
    "pretty list": json.dumps(FIVE, indent=2),
    "object": json.dumps({"thoughts": "they differ", "criteria": FIVE}),
    "object of strings": json.dumps({str(i): c for i, c in enumerate(FIVE)}),
    "list of objects": json.dumps([{"id": str(i), "criterion": c} for i, c in enumerate(FIVE)]),
    "fenced": f"Here they are:\n```json\n{LIST}\n```\nThat is all. [end]",
    "fence left open": f"```\n{LIST}",
    "text around": f"The [4] transcripts differ.\n{LIST}\nI hope this helps.\n- a\n- b\n- c\n- d\n- e",
    "after reasoning": f'<think>["a", "b", "c", "d", "e"]</think>{LIST}',
    "trailing comma": f"{LIST[:-1]},]",
    "broken off": f'{LIST[:-1]}, "never half a crit',
    "single quotes": f"{list(FIVE)!r}".replace('"', "'"),
    "single quotes broken off": f"{list(FIVE)!r}".replace('"', "'")[:-1] + ", 'never half a",
    "numbered": "Criteria:\n" + "\n".join(f"{i}. {c}" for i, c in enumerate(FIVE, 1)) + "\nDone.",
    "numbered with brackets": "\n".join(f'({i}) "{c}"' for i, c in enumerate(FIVE, 1)),
    "bulleted": "\n\n".join(f"- **{c}**" for c in FIVE),
    "bullets in a fence": "Text\nText\n```\n" + "\n".join(f"* {c}" for c in FIVE) + "\n```",
    "phrases": " . ".join(FIVE) + " .",
    "phrases after guide": f"guide : {' . '.join(FIVE)} .",
    "phrases without the last stop": " . ".join(FIVE),
    "lines": "\n".join(FIVE),
    "repeated": json.dumps([*FIVE, "Look  First.", " OPEN CLOSED PLACES", "look first ."]),
    "empty and odd ones": json.dumps(["", " ", "...", None, 3, ["x"], True, *FIVE, "long " * 41]),
    "control characters": json.dumps(
        ["open closed\nplaces", "look\x00first", "don't\t\trepeat moves", "take\u2028the\ud800mug", "check the\x7fdesk"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_forms_of_an_answer(name: str) -> None:
    assert parse_bundle(ANSWERS[name]) == FIVE


@pytest.mark.parametrize(
    "answer",
    ["", "I cannot.", "[]", "[[[[", "{}", "[1, 2, 3, 4, 5]", json.dumps(FIVE[:4]), " . ".join(FIVE[:4]) + " .",
     "same . same . same . same . same . same .", f"{json.dumps(FIVE[:4])}\none\ntwo\nthree\nfour\nfive", "[" * 5000],
)  # fmt: skip
def test_fewer_than_five_criteria_are_no_bundle(answer: str) -> None:
    assert parse_bundle(answer) is None


def test_more_than_eight_are_cut() -> None:
    many = tuple(f"criterion {i}" for i in range(12))
    assert parse_bundle(json.dumps(many)) == many[:8]


def test_a_criterion_may_have_two_hundred_characters() -> None:
    assert parse_bundle(json.dumps([*FIVE[:4], "x" * 200])) == (*FIVE[:4], "x" * 200)
    assert parse_bundle(json.dumps([*FIVE[:4], "x" * 201])) is None


BULLETS = "\n".join(f"- {c}" for c in FIVE)


@pytest.mark.parametrize("whole", [" . ".join(FIVE) + " . ", BULLETS + "\n", "\n".join(FIVE) + "\n"])
def test_what_an_answer_at_its_limit_broke_off_in_is_left_out(whole: str) -> None:
    assert parse_bundle(whole, cut=True) == FIVE
    assert parse_bundle(f"{whole}- hal", cut=True) == FIVE
    assert parse_bundle(whole.rstrip(" .\n"), cut=True) is None


MARKS = ["[", "]", "{", "}", '"', "'", "\\", ",", ":", "\n", "- ", "1. ", " . ", "```", "json", "guide :"]
PIECES = st.sampled_from([*MARKS, "é", "\ud800", "x", " "])


@settings(deadline=None, max_examples=300)
@given(answer=st.text(max_size=200) | st.lists(PIECES, max_size=60).map("".join), cut=st.booleans())
def test_any_text_is_a_bundle_or_none(answer: str, cut: bool) -> None:
    bundle = parse_bundle(answer, cut=cut)
    if bundle is not None:
        assert 5 <= len(bundle) <= 8
        assert len({criterion.casefold() for criterion in bundle}) == len(bundle)
        for criterion in bundle:
            assert criterion.isprintable()
            assert criterion.strip() == criterion
            assert 0 < len(criterion) <= 200
            criterion.encode()


WORDS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)


@settings(deadline=None, max_examples=100)
@given(st.lists(WORDS, min_size=5, max_size=8, unique_by=str.casefold))
def test_a_json_list_is_read_as_it_was_written(criteria: list[str]) -> None:
    assert parse_bundle(json.dumps(criteria)) == tuple(criteria)
    assert parse_bundle(f"So: {json.dumps(criteria, ensure_ascii=False)} Good luck.") == tuple(criteria)


def test_a_hostile_answer_does_not_hold_up_the_producer() -> None:
    for evil in ('["' + '\\"' * 100_000, "['" + "' " * 100_000, "```" * 100_000, " ." * 100_000, "{[" * 100_000):
        assert parse_bundle(evil) is None


def test_every_hint_of_the_vocabulary_survives_the_way_to_the_teacher() -> None:
    ids = builtin().ids
    for start in range(0, len(ids) - 8, 8):
        line = hint_text(builtin(), ids[start : start + 8])
        bundle = parse_bundle(line)
        assert bundle is not None
        assert criteria_text(bundle) == line
