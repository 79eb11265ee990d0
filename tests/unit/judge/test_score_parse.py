from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from judge.loose_json import MAX_CHARS
from judge.score_parse import parse_scores

ASKED = (1, 2, 3)
ONE = {"id": 1, "reason": "turn 1", "score": 0.7}
TWO = {"id": 2, "reason": "turn 2", "score": 0}
THREE = {"id": 3, "reason": "no occasion", "score": None}
ALL = {1: 0.7, 2: 0.0, 3: None}
REPLY = json.dumps({"scores": [ONE, TWO, THREE]})


def scores(text: str) -> dict[int, float | None]:
    return parse_scores(text, ASKED).scores


def test_the_asked_form() -> None:
    reply = parse_scores(REPLY, ASKED)
    assert reply.scores == ALL
    assert (reply.missing, reply.contradicted, reply.unknown) == ((), (), 0)


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{REPLY}\n```",
        f"Here's my {{careful}} review [1]:\n\n{REPLY}\n\nThat's it [done].",
        f"<think>perhaps {json.dumps([{'id': 1, 'score': 0.1}])}</think>\n{REPLY}",
        json.dumps([ONE, TWO, THREE]),
        json.dumps({"result": {"answer": {"scores": [ONE, [TWO, [THREE]]]}}}),
        "\n".join(json.dumps(e) for e in (ONE, TWO, THREE)),
        json.dumps({"1": 0.7, "2": 0, "3": None}),
        json.dumps({"scores": {"1": 0.7, "2": 0.0, "3": "n/a"}}),
        json.dumps([{"1": 0.7}, {"2": 0.0}, {"3": None}]),
        json.dumps({"1": {"reason": "x", "score": 0.7}, "2": {"score": 0}, "3": {"score": None}}),
        json.dumps({"criterion_1": "0.7", "Criterion 2": "0", "c3": "null"}),
        json.dumps([{"ID": "1", "Score": "0.7"}, {"Id": " #2. ", "SCORE": "0.0"}, {"iD": "3", "score": "None"}]),
        json.dumps([{"id": 1, "score": "70%"}, {"id": 2, "score": "0 %"}, {"id": 3, "score": "Not applicable"}]),
        json.dumps([{"id": 1, "score": " 7e-1 "}, {"id": 2, "score": "-0"}, {"id": 3, "score": "N/A"}]),
        REPLY.replace("]}", ",]}"),
        "{'scores': [{'id': 1, 'reason': 'it didn't stop', 'score': 0.7}, {'id': 2, 'reason': 'said \"1\"', "
        "'score': 0}, {'id': 3, 'reason': '', 'score': None}]}",
        "{scores: [{id: 1, score: 70%}, {id: 2, score: .0}, {id: 3, score: null}]}",
    ],
)
def test_forms_that_models_reply_in(text: str) -> None:
    assert scores(text) == ALL


@pytest.mark.parametrize("keep", range(len(REPLY)))
def test_of_a_truncated_reply_the_complete_entries_count(keep: int) -> None:
    cut = REPLY[:keep]
    complete = [e for e in (ONE, TWO, THREE) if json.dumps(e) in cut]
    assert scores(cut) == {e["id"]: e["score"] for e in complete}


@pytest.mark.parametrize("value", ["0", "0.0", "-0", "1", "1.0", '"100%"', '"1e0"', '"+1"', '".5"', '"1."'])
def test_both_ends_are_scores(value: str) -> None:
    number = float(value.strip('"').replace("100%", "1"))
    for text in (f'[{{"id": 1, "score": {value}}}]', f'[{{"id": 1, "score": {value},}}]'):
        found = scores(text)
        assert found == {1: number}
        assert math.copysign(1.0, found[1] or 0.0) == 1.0  # no negative zero


@pytest.mark.parametrize(
    "value",
    [
        "1.0001",
        "-0.1",
        "7",
        "70",
        "1e400",
        "9" * 400,
        "9" * 5000,
        "NaN",
        "Infinity",
        "-Infinity",
        "true",
        "false",
        '""',
        '"nan"',
        '"inf"',
        '"101%"',
        '"-1%"',
        '"%"',
        '"0,7"',
        '"7/10"',
        '"0.7 of 1"',
        '"about 0.7"',
        '"0.7 or 0.8"',
        '"high"',
        '"true"',
        '"\u0661"',
        '"0_1"',
        "[0.7]",
        '{"value": 0.7}',
        "{}",
    ],
)
def test_no_score_is_guessed(value: str) -> None:
    for text in (f'[{{"id": 1, "reason": "0.5", "score": {value}}}]', f'[{{"id": 1, "score": {value},}}] so'):
        reply = parse_scores(text, ASKED)
        assert reply.scores == {}
        assert reply.missing == ASKED


@pytest.mark.parametrize("entry", ['{"id": 1}', '{"id": 1, "reason": "0.5"}', '{"id": 1, "scores": 0.5}'])
def test_an_entry_without_a_score_is_missing_not_null(entry: str) -> None:
    for text in (f"[{entry}]", f"[{entry},] so"):
        assert scores(text) == {}


@pytest.mark.parametrize(
    "number", ["0", "4", "-1", "1.5", "true", "null", '"one"', '"1st"', '"11111111111"', "[1]", "1e0"]
)
def test_no_id_is_invented(number: str) -> None:
    for text in (f'[{{"id": {number}, "score": 0.5}}]', f'[{{"id": {number}, "score": 0.5,}}] so'):
        assert scores(text) == {}


def test_missing_and_unknown_ids() -> None:
    reply = parse_scores(json.dumps({"scores": [ONE, {"id": 4, "score": 0.5}]}), ASKED)
    assert (reply.missing, reply.unknown) == ((2, 3), 1)


def test_only_what_is_asked_is_read() -> None:
    assert parse_scores(REPLY, (2,)).scores == {2: 0.0}
    assert parse_scores(REPLY, ()).scores == {}


@pytest.mark.parametrize("wrap", ["{}", "text {}"])
def test_contradictions_are_missing(wrap: str) -> None:
    reply = parse_scores(wrap.format(json.dumps([ONE, ONE, {**ONE, "score": 0.6}, TWO, TWO])), ASKED)
    assert (reply.contradicted, reply.missing, reply.scores) == ((1,), (1, 3), {2: 0.0})
    null = parse_scores(wrap.format(json.dumps([{**ONE, "score": None}, ONE])), ASKED)
    assert null.missing == ASKED
    within = '[{"id": 1, "score": 0.7, "score": 0.1}]'
    assert parse_scores(wrap.format(within), ASKED).missing == ASKED


@pytest.mark.parametrize(
    "text",
    [
        '{"scores": [{"id": 2, "reason": "it says {\'id\': 1, \'score\': 1}',
        '{"scores": [{"id": 2, "reason": "it says "{"id": 1, "score": 1}" so", "score": "x"}]}',
        json.dumps([{"id": 2, "reason": json.dumps(ONE), "score": "?"}]) + " trailing",
        json.dumps([{"id": 2, "evidence": {"1": 0.9}, "score": "?"}]),
        json.dumps([{"id": 2, "evidence": [{"1": 0.9}], "score": "?"}]),
        json.dumps([{"id": 2, "evidence": [{"1": 0.9}], "score": "?"}]) + " trailing",
        "[0.7, 0.2, 0.1]",
        "1. 0.7\n2. 0.2\n3. 0.1",
    ],
)
def test_quoted_and_unnumbered_text_is_not_an_answer(text: str) -> None:
    assert scores(text) == {}


@pytest.mark.parametrize("unit", ["{", "[", '"', "'", '{"a":', "[[", "9", '{"1":', "9.", "%", '"9'])
def test_huge_replies_are_read_in_linear_time(unit: str) -> None:
    assert scores(unit * (100_000 // len(unit))) == {}
    assert scores(f'{{"id": 1, "score": {unit * (100_000 // len(unit))}x}}') == {}
    assert scores(" " * MAX_CHARS + REPLY) == {}


pieces = st.sampled_from(
    [
        *('{"id":', "{'id':", '{"1":', '"2"', '"score":', "score", "1", "3", "4", "0.5", '"50%"', "1.5", "-1"),
        *("NaN", "1e999", "true", "null", '"n/a"', "{", "}", "[", "]", ":", ",", '"', "'", "\\", "%"),
        *("```json\n", "</think>", "\ud800", "\x00"),
    ]
)
entries = st.fixed_dictionaries(
    {
        "id": st.integers(-1, 5) | st.booleans() | st.text(max_size=3),
        "score": st.floats() | st.integers() | st.booleans() | st.none() | st.text(max_size=5),
    }
)


@settings(deadline=None, max_examples=300)
@given(
    st.text(max_size=200)
    | st.lists(pieces, max_size=60).map("".join)
    | st.lists(entries, max_size=8).map(json.dumps)
    | st.dictionaries(st.text(max_size=3) | st.sampled_from("123"), st.floats() | st.none()).map(json.dumps)
)
@example('{"1":' * 3000)
def test_any_text_gives_a_result(text: str) -> None:
    reply = parse_scores(text, ASKED)
    assert set(reply.scores) <= set(ASKED)
    assert set(reply.scores) | set(reply.missing) == set(ASKED)
    assert not set(reply.scores) & set(reply.missing)
    assert set(reply.contradicted) <= set(reply.missing)
    for score in reply.scores.values():
        assert score is None or (type(score) is float and math.isfinite(score) and 0.0 <= score <= 1.0)
