"""The prompt by which the policy writes rubric bundles about one group (ORSD). Pure, but for reading a template."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Literal, NoReturn

import msgspec

from stream_rl.errors import ConfigError, StreamRLError
from stream_rl.rubrics import behaviour
from stream_rl.rubrics.behaviour import MIN_TURNS, Act, Excerpt
from stream_rl.types import Message, Trajectory

BUILTIN = {"builtin": "write_v1.txt", "compact": "write_compact_v1.txt"}
MIN_TRAJECTORIES = 2  # one alone differs from nothing
_SPLIT = "=== user ===\n"
_TRANSCRIPTS, _ACTIONS = "{transcripts}", "{actions}"


class PromptTooLong(StreamRLError):
    """Two trajectories with two turns each do not fit into the token budget. Nothing is written about this group."""


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A writing prompt around the place where behaviour is told."""

    system: str  # system message; empty: none is sent
    before: str  # user message up to the behaviour
    after: str  # user message after it
    style: Literal["transcripts", "actions"]  # quoted JSON lines, or one line of actions each

    def messages(self, task: str, excerpts: Sequence[Excerpt]) -> tuple[Message, ...]:
        """The prompt that shows these excerpts."""
        told = behaviour.compact(excerpts) if self.style == "actions" else behaviour.quoted(task, excerpts)
        user = Message(role="user", content=f"{self.before}{told}{self.after}")
        return (Message(role="system", content=self.system), user) if self.system else (user,)


class WritingPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about one group."""

    messages: tuple[Message, ...]  # the head to render
    omitted_turns: int  # turns that are not shown, those of trajectories left out included


class WritingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer writes bundles."""

    template: Template  # of the prompt
    bundle_tokens: int  # limit of one answer; the prompt may fill the rest of the context


def load_template(source: str) -> Template:
    """`"builtin"`, `"compact"` or a text file.

    A file holds a system message, a line `=== user ===` and a user message, or a user message alone; the user message
    holds `{transcripts}` or `{actions}` once, where the group's behaviour goes. Raises `ConfigError`.
    """
    if source in BUILTIN:
        text = resources.files("stream_rl.rubrics.prompts").joinpath(BUILTIN[source]).read_text(encoding="utf-8")
    else:
        try:
            text = Path(source).read_text(encoding="utf-8")
        except OSError as error:
            _refuse(
                f"{source!r} cannot be read: {error.strerror}; it is neither one of {', '.join(BUILTIN)} nor a file."
            )
        except UnicodeDecodeError as error:
            _refuse(f"{source!r} is not UTF-8 text: {error}.")
    return parse_template(text, source)


def parse_template(text: str, name: str) -> Template:
    """The template in `text`; `name` is told in the `ConfigError` raised for one without its placeholder."""
    system, marker, user = text.partition(_SPLIT)
    if not marker:
        system, user = "", text
    found = [mark for mark in (_TRANSCRIPTS, _ACTIONS) for _ in range(user.count(mark))]
    if len(found) != 1:
        _refuse(
            f"{name!r} must hold {_TRANSCRIPTS} or {_ACTIONS} exactly once in its user message, where the group's "
            f"behaviour goes; found {', '.join(found) or 'neither'}."
        )
    before, mark, after = user.strip("\n").partition(found[0])
    style: Literal["transcripts", "actions"] = "transcripts" if mark == _TRANSCRIPTS else "actions"
    return Template(system=system.strip("\n"), before=before, after=after, style=style)


def compose(
    trajectories: Sequence[Trajectory],
    template: Template,
    *,
    budget: int,
    count: Callable[[Sequence[Message]], int],
) -> WritingPrompt:
    """The prompt about `trajectories`, members of one group, of at most `budget` tokens as `count` counts them.

    No outcome is in it (`stream_rl.rubrics.behaviour`). Transcripts come in an order that only the group's id decides,
    so neither arrival nor member number says anything. What does not fit is left out by this rule, each number being
    found by bisection (it fits, and one more does not):

    1. as many trajectories as fit with two turns each (the first and the last), spread evenly over that order;
    2. of these, as many turns of each as fit: the first ones and the last ones, what lies between is marked.

    Raises `PromptTooLong` if two trajectories of two turns do not fit, `ValueError` for fewer than two trajectories.
    """
    if len(trajectories) < MIN_TRAJECTORIES:
        raise ValueError(f"{MIN_TRAJECTORIES} trajectories are needed to tell apart, got {len(trajectories)}")
    members = _shuffled(trajectories)
    task = members[0].first_prompt
    acts = [behaviour.acts_of(member) for member in members]

    def prompt(num_members: int, num_turns: int) -> tuple[Message, ...]:
        return template.messages(task, [behaviour.excerpt(a, num_turns) for a in _spread(acts, num_members)])

    def fits(num_members: int, num_turns: int) -> bool:
        return count(prompt(num_members, num_turns)) <= budget

    num_members = _most(MIN_TRAJECTORIES, len(acts), lambda n: fits(n, MIN_TURNS))
    if num_members is None:
        raise PromptTooLong(
            f"two trajectories of two turns make a prompt of {count(prompt(MIN_TRAJECTORIES, MIN_TURNS))} tokens; "
            f"generate.max_model_len - algorithm.bundle_tokens leaves {budget}"
        )
    longest = max(MIN_TURNS, *(len(a) for a in _spread(acts, num_members)))
    # Two turns are known to fit.
    num_turns = _most(MIN_TURNS + 1, longest, lambda n: fits(num_members, n)) or MIN_TURNS
    shown = sum(min(len(a), num_turns) for a in _spread(acts, num_members))
    return WritingPrompt(messages=prompt(num_members, num_turns), omitted_turns=sum(map(len, acts)) - shown)


def _shuffled(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """An order that depends on the group's id alone."""
    members = sorted(trajectories, key=lambda trajectory: trajectory.member)
    seed = hashlib.blake2b(f"transcripts of {members[0].group_id}".encode(), digest_size=8).digest()
    random.Random(int.from_bytes(seed, "big")).shuffle(members)
    return members


def _spread(acts: Sequence[tuple[Act, ...]], number: int) -> list[tuple[Act, ...]]:
    """`number` of them, evenly spaced, in order."""
    return [acts[i * len(acts) // number] for i in range(number)]


def _most(low: int, high: int, fits: Callable[[int], bool]) -> int | None:
    """A number in [low, high] that fits while the next one does not (or is past `high`); None if `low` does not.

    `high` is tried first, because most groups fit as a whole.
    """
    if high < low:
        return None
    if fits(high):
        return high
    if high == low or not fits(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _refuse(problem: str) -> NoReturn:
    raise ConfigError("algorithm.writing_prompt", problem)
