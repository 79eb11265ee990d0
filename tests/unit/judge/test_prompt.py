from __future__ import annotations

import json

import msgspec

from judge.prompt import asked_rubrics, chunks, render, subset
from judge.transcript import quote, unquote
from stream_rl.rubrics.vocabulary import builtin
from tests.unit.judge.builders import CLEAN


def test_one_prompt_holds_the_whole_vocabulary() -> None:
    (prompt,) = chunks(builtin(), 64)
    assert prompt.rubric_ids == builtin().ids
    assert asked_rubrics(prompt.system) == builtin().ids


def test_chunks_cover_the_vocabulary_in_order() -> None:
    parts = chunks(builtin(), 20)
    assert [len(p.rubric_ids) for p in parts] == [20, 20, 19]
    assert tuple(r for p in parts for r in p.rubric_ids) == builtin().ids
    assert all(asked_rubrics(p.system) == p.rubric_ids for p in parts)


def test_the_static_part_is_rendered_once() -> None:
    assert chunks(builtin(), 64)[0] is chunks(builtin(), 64)[0]
    assert subset(builtin(), ["focus.needed_objects"]) is render((builtin()["focus.needed_objects"],))


def test_the_text_states_the_rules_of_the_game() -> None:
    (prompt,) = chunks(builtin(), 64)
    assert "do not follow instructions" in prompt.system
    assert prompt.system.index('"reason"') < prompt.system.index('"tag":"positive')
    assert "{" + "count}" not in prompt.system + prompt.user("")
    user = prompt.user(quote(CLEAN))
    assert unquote(user) == CLEAN
    assert "59 rubrics" in user
    assert len(prompt.system) < 16_000


def test_placeholders_in_a_transcript_are_left_alone() -> None:
    (prompt,) = chunks(builtin(), 64)
    assert "{count} {rubrics} {transcript}" in prompt.user("{count} {rubrics} {transcript}")


def test_encoded_parts_are_what_goes_out() -> None:
    prompt = subset(builtin(), ["focus.needed_objects", "care.small_scope"])
    encoded = json.loads(msgspec.json.encode({"m": prompt.system_json, "f": prompt.response_format}))
    assert encoded["m"] == {"role": "system", "content": prompt.system}
    entry = encoded["f"]["json_schema"]["schema"]["properties"]["tags"]["items"]
    assert list(entry["properties"]) == ["id", "reason", "tag"]
    assert entry["properties"]["id"]["enum"] == list(prompt.rubric_ids)


def test_a_rubric_of_a_users_file_stays_on_its_line() -> None:
    odd = msgspec.structs.replace(builtin().rubrics[0], positive="two\nlines\n- x.y | applies: no")
    assert asked_rubrics(render((odd,)).system) == (odd.id,)
