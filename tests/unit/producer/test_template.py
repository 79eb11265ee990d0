"""Prompt files: what is put where, what is left out, where the action stands, and what is refused."""

from __future__ import annotations

import pytest

from stream_rl.errors import ConfigError
from stream_rl.producer.template import Moment, Step, Template, parse_template
from stream_rl.types import Message

FILE = """
=== system ===
You play.

=== first ===
{observation}

Can: {admissible}

{answer}

=== later ===
Task: {task}

{steps} done, {shown} shown:
{history}

{step}: {observation}

Can: {admissible}

{answer}

=== plain ===
Act.

=== thinking ===
Think in <think> </think>.

Act in <action> </action>.
"""


def template(text: str = FILE, *, thinking: bool = False) -> Template:
    return parse_template(text, "my.txt", thinking=thinking, path="environments.0.template")


def user(messages: tuple[Message, ...]) -> str:
    assert [message.role for message in messages] == ["system", "user"]
    assert messages[0].content == "You play."
    return messages[1].content


def test_the_first_turn_shows_the_observation_and_what_can_be_done() -> None:
    moment = Moment(task="Find it.", observation="Find it.", admissible=("look", "go"))
    assert user(template().messages(moment, 0)) == "Find it.\n\nCan: look\ngo\n\nAct."


THREE = (
    Step(observation="Find it.", action="look"),
    Step(observation="A door.", action="open door"),
    Step(observation="Open.", action="go"),
)


def test_later_turns_show_the_task_and_the_last_steps_with_their_numbers() -> None:
    moment = Moment(task="Find it.", steps=THREE, observation="A hall.", admissible=("go",))
    assert user(template().messages(moment, 2)) == (
        "Task: Find it.\n\n3 done, 2 shown:\nObservation 2: A door.\nAction 2: open door\n"
        "Observation 3: Open.\nAction 3: go\n\n4: A hall.\n\nCan: go\n\nAct."
    )


def test_the_first_observation_is_not_told_twice() -> None:
    moment = Moment(task="Find it.", steps=THREE[:1], observation="A door.")
    told = user(template().messages(moment, 1))
    assert told.count("Find it.") == 1
    assert "Observation 1: (what you were told with the task)\nAction 1: look" in told


def test_paragraphs_about_nothing_are_left_out() -> None:
    moment = Moment(task="Find it.", steps=THREE, observation="A hall.")
    assert user(template().messages(moment, 0)) == "Task: Find it.\n\n4: A hall.\n\nAct."
    assert user(template().messages(Moment(task="x", observation="x"), 0)) == "x\n\nAct."


def test_what_a_world_says_is_never_filled_in() -> None:
    forged = "{history} {task} {admissible} {answer}\n\n=== plain ==="
    moment = Moment(
        task="T", steps=(Step(observation="T", action="{observation}"),), observation=forged, admissible=("{task}",)
    )
    told = user(template().messages(moment, 1))
    assert f"2: {forged}\n\nCan: {{task}}\n\nAct." in told
    assert "Action 1: {observation}\n" in told


def test_braces_that_are_no_placeholder_stay() -> None:
    text = FILE.replace("Act.", 'Answer {"name": "x"} or {} or {A}.')
    assert user(template(text).messages(Moment(task="x", observation="x"), 0)).endswith('{"name": "x"} or {} or {A}.')


def test_without_a_system_section_there_is_no_system_message() -> None:
    bare = template(FILE.replace("=== system ===\nYou play.\n", ""))
    assert [message.role for message in bare.messages(Moment(task="x", observation="x"), 0)] == ["user"]


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("<think>a door</think><action>open door</action>", "open door"),
        ("<action>\n open door \n</action> done", "open door"),
        ("<think><action>look</action>?</think> <action>go</action>", "go"),
        ("<action>look<action>go</action>", "go"),
        ("<action></action>", ""),
        ("open door", "open door"),
        ("<think>open</think> open door", "<think>open</think> open door"),
        ("<action>open door", "<action>open door"),
        ("open door</action>", "open door</action>"),
        ("</action>open<action>", "</action>open<action>"),
        ("", ""),
    ],
)
def test_the_action_is_what_stands_between_the_last_tags_or_everything(answer: str, action: str) -> None:
    assert template(thinking=True).action(answer) == action


def test_a_plain_template_takes_the_whole_answer() -> None:
    assert template().action("<action>go</action>") == "<action>go</action>"


@pytest.mark.parametrize(
    ("old", "new", "problem", "nearest"),
    [
        ("{observation}\n\nCan", "{obsevation}\n\nCan", r"section `first` has {obsevation}", "{observation}"),
        ("{observation}\n\nCan", "Can", "does not say where {observation} goes|section `first` has", None),
        ("{history}", "that", "section `later` does not say where {history} goes", None),
        ("You play.", "You have {steps}.", "section `system` has {steps}", None),
        ("Act.", "Act after {observation}.", "section `plain` has {observation}.*known there: none", None),
        ("=== later ===", "=== latter ===", "a section `latter`", "later"),
        ("=== thinking ===", "=== plain ===", "section `plain` stands twice", None),
        ("=== first ===", "", "no section `first`", None),
        ("\n=== system ===", "hello\n=== system ===", "text before its first section", None),
    ],
)
def test_a_file_that_cannot_work_is_refused_with_the_place(
    old: str, new: str, problem: str, nearest: str | None
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        template(FILE.replace(old, new, 1))
    assert caught.value.path == "environments.0.template"
    assert caught.value.nearest == nearest
    assert "'my.txt'" in str(caught.value)


def test_thinking_without_tags_is_refused() -> None:
    text = FILE.replace("Act in <action> </action>.", "Act.")
    template(text)
    with pytest.raises(ConfigError, match="must ask for the action between <action> and </action>"):
        template(text, thinking=True)
