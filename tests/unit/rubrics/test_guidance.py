from __future__ import annotations

from stream_rl.rubrics.guidance import avoid_text, criteria_text, hint_text, with_guidance
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.types import Message

USER = Message(role="user", content="task")


def test_phrases_become_one_line() -> None:
    ids = ["exploration.new_places", "exploration.open_closed"]
    assert hint_text(builtin(), ids) == "guide : search every place only once . open closed places at once ."
    assert avoid_text(builtin(), ids[:1]) == "guide : avoid searching a place twice ."
    assert hint_text(builtin(), []) == ""


def test_guidance_is_a_system_turn_or_joins_the_one_there_is() -> None:
    assert with_guidance([USER], "guide : x .") == (Message(role="system", content="guide : x ."), USER)
    system = Message(role="system", content="be good")
    assert with_guidance([system, USER], "guide : x .")[0].content == "be good\nguide : x ."


def test_no_text_leaves_the_head_as_it_is() -> None:
    assert with_guidance([USER], "") == (USER,)


def test_written_criteria_have_the_form_of_a_hint() -> None:
    assert criteria_text(["Open drawers.", "look first", "be kind . ", "..."]) == (
        "guide : Open drawers . look first . be kind ."
    )
    assert criteria_text([]) == ""
