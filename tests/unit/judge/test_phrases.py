"""Written criteria in the words of the built-in vocabulary."""

from __future__ import annotations

import pytest

from judge.rules.engine import decide_all
from judge.rules.phrases import rubric_of, score_all
from stream_rl.rubrics.vocabulary import builtin
from tests.unit.judge.builders import CLEAN, FAILED, transcript

TWICE = transcript(
    "put some apple in desk",
    ("go to desk 1", "On the desk 1, you see nothing."),
    ("fly to desk 1", FAILED),
    ("fly to desk 1", FAILED),
)


def test_every_hint_and_avoid_phrase_names_its_rubric() -> None:
    for rubric in builtin().rubrics:
        assert rubric_of(rubric.hint) == rubric_of(rubric.avoid) == rubric.id


@pytest.mark.parametrize(
    "phrase",
    [
        "search every place only once",
        "Search  every place\tonly once.",
        " SEARCH EVERY PLACE ONLY ONCE .\n",
        "Avoid searching a place twice.",
    ],
)
def test_case_spacing_and_a_final_stop_do_not_matter(phrase: str) -> None:
    assert rubric_of(phrase) == "exploration.new_places"


@pytest.mark.parametrize(
    "phrase", ["", ".", "search every place", "exploration.new_places", "search every place only once?"]
)
def test_other_words_are_nobodys(phrase: str) -> None:
    assert rubric_of(phrase) is None


def test_scores_follow_the_rules() -> None:
    valid = builtin()["precision.valid_actions"]
    heat = builtin()["precision.right_tool"]
    criteria = (valid.hint, heat.avoid, "be kind", valid.avoid, valid.hint)
    # Nothing failed in the clean episode, and the apple was heated in the microwave.
    assert [s.score for s in score_all(CLEAN, criteria)] == [1.0, 1.0, None, 1.0, 1.0]
    # Two actions failed in the other, and nothing had to be heated.
    assert [s.score for s in score_all(TWICE, criteria)] == [0.0, None, None, 0.0, 0.0]


def test_all_phrases_agree_with_the_tags() -> None:
    score = {"positive": 1.0, "violation": 0.0, "not_applicable": None}
    findings = decide_all(TWICE, builtin().ids)
    expected = [(score[findings[r.id].value], findings[r.id].reason) for r in builtin().rubrics]
    found = score_all(TWICE, [r.hint for r in builtin().rubrics])
    assert [(s.score, s.reason) for s in found] == expected


def test_no_criteria_no_scores() -> None:
    assert score_all(CLEAN, ()) == ()
