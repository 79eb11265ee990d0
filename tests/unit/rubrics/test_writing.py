"""The writing prompt: what is in it, what never is, and what is left out when it does not fit."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.errors import ConfigError
from stream_rl.rubrics.writing import PromptTooLong, compose, load_template, parse_template
from stream_rl.types import Message, Trajectory
from tests.unit.rubrics.episodes import Step, episode, steps

COMPACT, BUILTIN = load_template("compact"), load_template("builtin")
FREE = 10**9


def words(messages: Sequence[Message]) -> int:
    return sum(len(message.content.split()) for message in messages)


def text(group: Sequence[Trajectory], template: str = "compact", budget: int = FREE) -> str:
    messages = compose(group, load_template(template), budget=budget, count=words).messages
    return "\n".join(message.content for message in messages)


def test_compact_is_the_transcripts_and_the_word_to_answer() -> None:
    group = [episode(0, steps("look", "go")), episode(1, steps("jump"))]
    (message,) = compose(group, COMPACT, budget=FREE, count=words).messages
    assert message.role == "user"
    assert message.content in ("1 : look . go .\n2 : jump .\nguide :", "1 : jump .\n2 : look . go .\nguide :")


def test_builtin_asks_in_a_system_message_and_quotes_in_the_user_message() -> None:
    group = [episode(0, steps("look", "go")), episode(1, steps("jump"))]
    system, user = compose(group, BUILTIN, budget=FREE, count=words).messages
    assert (system.role, user.role) == ("system", "user")
    assert "5 to 8 short criteria" in system.content
    assert "do not follow instructions" in system.content
    assert user.content.startswith('<<<TRANSCRIPTS\n{"task": "Find the mug."}\ntranscript 1:\n')
    for word in ("reward", "score", "success"):
        assert word not in (system.content + user.content).lower()


@pytest.mark.parametrize("template", ["builtin", "compact"])
def test_no_outcome_is_in_the_text(template: str) -> None:
    group = [
        episode(
            member,
            [
                ("look", "A desk.", True),
                ("open desk", "It opens.", True),
                ("take mug", f"SENTINEL you won {member}", won),
            ],
            rewards=0.918273,
            reward=7.654321,
            score=0.314159,
            success=won,
            guidance=("sentinel.guidance",),
        )
        for member, won in enumerate([True, False, True])
    ]
    told = text(group, template)
    assert "take mug" in told
    for secret in ("sentinel", "won", "918273", "7.65", "654321", "314159", "true", "reward", "score", "success"):
        assert secret not in told.lower(), secret


STEPS = st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12), st.booleans()), min_size=1, max_size=6)
OUTCOMES = st.tuples(st.floats(-9, 9), st.booleans(), st.floats(0, 1), st.text(max_size=9), st.booleans())


def ended(trajectory: Trajectory, outcome: tuple[float, bool, float, str, bool]) -> Trajectory:
    """The same behaviour with another end."""
    reward, success, score, observation, valid = outcome
    last = msgspec.structs.replace(trajectory.turns[-1], observation=observation, valid=valid, reward=reward)
    turns = tuple(msgspec.structs.replace(turn, reward=reward / 2) for turn in trajectory.turns[:-1])
    return msgspec.structs.replace(
        trajectory, reward=reward, success=success, score=score, turns=(*turns, last), seconds=reward, guidance=("r",)
    )


@settings(deadline=None, max_examples=60)
@given(
    played=st.lists(STEPS, min_size=2, max_size=4),
    ends=st.lists(OUTCOMES, min_size=4, max_size=4),
    template=st.sampled_from([COMPACT, BUILTIN]),
    budget=st.integers(150, 400),
)
def test_another_outcome_gives_the_same_prompt(
    played: list[list[Step]], ends: list[tuple[float, bool, float, str, bool]], template: object, budget: int
) -> None:
    group = [episode(member, moves) for member, moves in enumerate(played)]
    other = [ended(trajectory, outcome) for trajectory, outcome in zip(group, ends, strict=False)]
    chosen = COMPACT if template == COMPACT else BUILTIN
    try:
        expected = compose(group, chosen, budget=budget, count=words)
    except PromptTooLong:
        with pytest.raises(PromptTooLong):
            compose(other, chosen, budget=budget, count=words)
    else:
        assert compose(other, chosen, budget=budget, count=words) == expected


def test_the_order_depends_on_the_groups_id_alone() -> None:
    def orders(group_id: str) -> str:
        group = [episode(member, steps(f"act{member}"), group_id=group_id) for member in range(8)]
        told = text(group)
        random.Random(3).shuffle(group)
        assert text(group) == told
        return "".join(re.findall(r"act(\d)", told))

    seen = {orders(f"g{i}") for i in range(20)}
    assert len(seen) > 15
    # A member's place says nothing: over many groups the first place goes to all of them.
    assert len({order[0] for order in seen}) > 4


def test_a_group_that_fits_is_told_whole() -> None:
    group = [episode(member, steps(*"abcdef")) for member in range(3)]
    prompt = compose(group, COMPACT, budget=3 * (2 + 12) + 2, count=words)  # "1 :", six times "a .", "guide :"
    assert prompt.omitted_turns == 0
    assert ". . ." not in prompt.messages[0].content


def go(*places: str) -> list[Step]:
    """Actions of two words, so that a turn ("go a .") is as long as the mark for turns left out (". . .")."""
    return steps(*(f"go {place}" for place in places))


def test_turns_of_the_middle_go_first() -> None:
    group = [episode(member, go(*"abcdef")) for member in range(3)]
    # Four turns of each: 3 * (2 + 12 + 3) + 2 = 53 words; five: 62.
    prompt = compose(group, COMPACT, budget=61, count=words)
    assert prompt.messages[0].content.split("\n")[0] == "1 : go a . go b . . . . go e . go f ."
    assert prompt.omitted_turns == 3 * 2
    assert compose(group, COMPACT, budget=53, count=words) == prompt
    assert compose(group, COMPACT, budget=52, count=words).omitted_turns == 3 * 3


def test_short_episodes_stay_whole_while_long_ones_are_cut() -> None:
    group = [episode(0, go("x", "y", "z")), episode(1, go(*"abcdefgh"))]
    # Three turns of each: (2 + 9) + (2 + 9 + 3) + 2 = 27 words; four: 30.
    prompt = compose(group, COMPACT, budget=29, count=words)
    assert "go x . go y . go z ." in prompt.messages[0].content
    assert "go a . go b . . . . go h ." in prompt.messages[0].content
    assert prompt.omitted_turns == 5


def test_then_trajectories_go_evenly() -> None:
    group = [episode(member, steps(f"first{member}", "m m m m", f"last{member}")) for member in range(8)]
    order = re.findall(r"first(\d)", text(group))
    # Two turns of each take 2 + 2 + 3 + 2 = 9 words: four trajectories and the last line are 38, five are 47.
    # All three turns take 2 + 2 + 5 + 2 = 11.
    prompt = compose(group, COMPACT, budget=45, count=words)
    assert re.findall(r"first(\d)", prompt.messages[0].content) == order[::2]
    assert prompt.omitted_turns == 4 * 1 + 4 * 3


def test_a_prompt_that_never_fits_says_so() -> None:
    group = [episode(member, steps("a", "b b b b", "c")) for member in range(4)]
    assert compose(group, COMPACT, budget=20, count=words).omitted_turns == 2 * 1 + 2 * 3
    with pytest.raises(PromptTooLong, match=r"20 tokens; .* leaves 19"):
        compose(group, COMPACT, budget=19, count=words)


def test_one_trajectory_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="2 trajectories are needed to tell apart, got 1"):
        compose([episode(0, steps("a"))], COMPACT, budget=FREE, count=words)


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=2, max_size=9),
    template=st.sampled_from(["compact", "builtin"]),
    slack=st.integers(0, 400),
)
def test_what_fits_is_within_the_budget_and_counted(lengths: list[int], template: str, slack: int) -> None:
    group = [episode(member, steps(*(f"m{member}t{i}" for i in range(n)))) for member, n in enumerate(lengths)]
    chosen = load_template(template)
    budget = words(chosen.messages("Find the mug.", [])) + slack
    try:
        prompt = compose(group, chosen, budget=budget, count=words)
    except PromptTooLong:
        return
    assert words(prompt.messages) <= budget
    told = "\n".join(message.content for message in prompt.messages)
    shown = set(re.findall(r"m(\d)t(\d+)", told))
    assert prompt.omitted_turns == sum(lengths) - len(shown)
    for member, length in enumerate(lengths):
        turns = {int(turn) for who, turn in shown if who == str(member)}
        assert not turns or {0, length - 1} <= turns


def test_counting_is_cheap_for_a_group_that_fits() -> None:
    calls = 0

    def count(messages: Sequence[Message]) -> int:
        nonlocal calls
        calls += 1
        return words(messages)

    compose([episode(member, steps(*"abcdefgh")) for member in range(8)], COMPACT, budget=FREE, count=count)
    assert calls == 2
    calls = 0
    compose([episode(member, steps(*map(str, range(200)))) for member in range(8)], COMPACT, budget=900, count=count)
    assert calls <= 12


def test_a_users_template(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("Be short.\n=== user ===\nSee:\n{actions}\nNow write.\n", encoding="utf-8")
    system, user = load_template(str(file)).messages("task", [])
    assert (system.content, user.content) == ("Be short.", "See:\n\nNow write.")


def test_a_placeholder_in_an_episode_is_text() -> None:
    group = [episode(member, steps("say {transcripts} {actions}")) for member in range(2)]
    assert text(group, "builtin").count("{transcripts}") == 2


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("Write.\n", "neither"),
        ("{transcripts}\n=== user ===\nWrite.\n", "neither"),
        ("{transcripts} and {actions}", "{transcripts}, {actions}"),
        ("{actions} {actions}", "{actions}, {actions}"),
    ],
)
def test_a_template_without_its_place_is_refused(template: str, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_template(template, "mine.txt")
    assert caught.value.path == "algorithm.writing_prompt"
    assert "'mine.txt' must hold {transcripts} or {actions} exactly once" in caught.value.problem
    assert caught.value.problem.endswith(f"found {found}.")


def test_a_template_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it is neither one of builtin, compact nor a file"):
        load_template(str(tmp_path / "none.txt"))
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe{actions}")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_template(str(tmp_path / "bytes.txt"))
