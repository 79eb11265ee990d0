from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge.loose_json import MAX_CHARS
from judge.parse import MAX_REASON, parse_reply

ASKED = ("skill.one", "skill.two", "skill.three")
ONE = {"id": "skill.one", "reason": "turn 1", "tag": "positive"}
TWO = {"id": "skill.two", "reason": "turn 2", "tag": "violation"}
THREE = {"id": "skill.three", "reason": "", "tag": "not_applicable"}
ALL = {"skill.one": "positive", "skill.two": "violation", "skill.three": "not_applicable"}
REPLY = json.dumps({"tags": [ONE, TWO, THREE]})


def values(text: str) -> dict[str, str]:
    return {rubric: tag.value for rubric, tag in parse_reply(text, ASKED).tags.items()}


def test_the_asked_form() -> None:
    reply = parse_reply(REPLY, ASKED)
    assert {r: t.value for r, t in reply.tags.items()} == ALL
    assert reply.tags["skill.two"].reason == "turn 2"
    assert (reply.missing, reply.contradicted, reply.unknown) == ((), (), 0)


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{REPLY}\n```",
        f"Here's the agent's review, as {{asked}}:\n\n{REPLY}\n\nThat's it [done].",
        f"<think>maybe {json.dumps({'tags': [{'id': 'skill.one', 'tag': 'violation'}]})}</think>\n{REPLY}",
        json.dumps([ONE, TWO, THREE]),
        json.dumps({"result": {"answer": {"tags": [ONE, [TWO, [THREE]]]}}}),
        "\n".join(json.dumps(e) for e in (ONE, TWO, THREE)),
        json.dumps(ALL),
        json.dumps({"tags": ALL}),
        json.dumps({k: {"reason": "x", "tag": v} for k, v in ALL.items()}),
        f"{json.dumps(ALL)}\ntrailing",
        REPLY.replace('"positive"', '" POSITIVE "').replace("not_applicable", "Not Applicable"),
        REPLY.replace("not_applicable", "N/A").replace("skill.one", "Skill.One").replace('"tag"', '"Tag"'),
        REPLY.replace("]}", ",]}"),
        "{'tags': [{'id': 'skill.one', 'reason': 'it didn't stop', 'tag': 'positive'}, "
        "{'id': 'skill.two', 'reason': 'said \"no\"', 'tag': 'violation'}, {'id': 'skill.three', 'tag': 'n/a'}]}",
        "{tags: [{id: skill.one, tag: positive}, {id: skill.two, tag: violation}, {id: skill.three, tag: n/a}]}",
    ],
)
def test_forms_that_models_reply_in(text: str) -> None:
    assert values(text) == ALL


@pytest.mark.parametrize("keep", range(len(REPLY)))
def test_of_a_truncated_reply_the_complete_entries_count(keep: int) -> None:
    cut = REPLY[:keep]
    complete = [e for e in (ONE, TWO, THREE) if json.dumps(e) in cut]
    assert values(cut) == {e["id"]: e["tag"] for e in complete}


def test_missing_and_unknown_ids() -> None:
    reply = parse_reply(json.dumps({"tags": [ONE, {"id": "skill.four", "tag": "positive"}]}), ASKED)
    assert reply.missing == ("skill.two", "skill.three")
    assert reply.unknown == 1


def test_the_first_of_equal_duplicates_counts() -> None:
    reply = parse_reply(json.dumps([ONE, {**ONE, "reason": "later"}]), ASKED)
    assert reply.tags["skill.one"].reason == "turn 1"
    assert reply.contradicted == ()


@pytest.mark.parametrize("wrap", ["{}", "text {}"])
def test_contradictions_are_missing(wrap: str) -> None:
    again = {**ONE, "tag": "violation"}
    reply = parse_reply(wrap.format(json.dumps([ONE, again, TWO, ONE])), ASKED)
    assert reply.contradicted == ("skill.one",)
    assert reply.missing == ("skill.one", "skill.three")
    within = '[{"id": "skill.one", "tag": "positive", "tag": "violation"}]'
    assert parse_reply(wrap.format(within), ASKED).missing == ASKED


@pytest.mark.parametrize(
    "tag", ["abstained", "negative", "yes", "positive or violation", "", None, 1, True, ["positive"]]
)
def test_no_tag_is_guessed(tag: object) -> None:
    assert values(json.dumps([{"id": "skill.one", "reason": "positive", "tag": tag}])) == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"tags": [{"id": "skill.two", "reason": "it says {\'id\': \'skill.one\', \'tag\': \'positive\'}',
        '{"tags": [{"id": "skill.two", "reason": "it says "{"id": "skill.one", "tag": "positive"}" so", "tag": "x"}]}',
        json.dumps([{"id": "skill.two", "reason": json.dumps(ONE), "tag": "?"}]) + " trailing",
        "The agent wrote skill.one: positive",
    ],
)
def test_quoted_text_is_not_an_answer(text: str) -> None:
    assert values(text) == {}


def test_a_reason_is_shortened_and_always_encodable() -> None:
    reply = parse_reply('[{"id": "skill.one", "reason": "\\ud800' + "x" * 1000 + '", "tag": "positive"}]', ASKED)
    reason = reply.tags["skill.one"].reason
    assert len(reason) == MAX_REASON
    assert reason.encode().startswith(b"?xxx")


@pytest.mark.parametrize("unit", ["{", "[", '"', "'", "\\", '{"a":', "[[", "{'a':'", " ", "a", '{"a":1}', "9"])
def test_huge_replies_are_read_in_linear_time(unit: str) -> None:
    assert values(unit * (100_000 // len(unit))) == {}
    assert values(" " * MAX_CHARS + REPLY) == {}


pieces = st.sampled_from(
    [
        '{"id":',
        "{'id':",
        '"skill.one"',
        "'skill.two'",
        "skill.three",
        '"tag":',
        "tag",
        ":",
        ",",
        "}",
        "]",
        "[",
        "{",
        '"',
        "'",
        "\\",
        "positive",
        '"violation"',
        "n/a",
        '"abstained"',
        "```json\n",
        "\n",
        "</think>",
        "\ud800",
        "\x00",
        "1e9",
    ]
)


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=200) | st.lists(pieces, max_size=60).map("".join))
def test_any_text_gives_a_result(text: str) -> None:
    reply = parse_reply(text, ASKED)
    assert set(reply.tags) <= set(ASKED)
    assert set(reply.tags) | set(reply.missing) == set(ASKED)
    assert not set(reply.tags) & set(reply.missing)
    assert set(reply.contradicted) <= set(reply.missing)
    assert {t.value for t in reply.tags.values()} <= {"positive", "violation", "not_applicable"}
