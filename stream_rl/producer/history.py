"""What the policy sees of an episode: one conversation that grows, or a window that is rendered anew each turn."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Protocol

import msgspec

from stream_rl.producer.episode import Episode, Prompt
from stream_rl.producer.template import Moment, Step, Template
from stream_rl.rubrics.guidance import with_guidance
from stream_rl.types import Message, Observation, StepResult


class TurnRenderer(Protocol):
    """The part of `stream_rl.renderer.Renderer` that rollouts and the writing of bundles need."""

    stop_token_ids: tuple[int, ...]

    def head(self, messages: Sequence[Message], thinking: bool = False) -> list[int]:
        """First prompt."""
        ...

    def prompt(self, messages: Sequence[Message], thinking: bool = False) -> list[int]:
        """A prompt that is asked about once."""
        ...

    def after_action(self, observation: str, ended: bool) -> list[int]:
        """Ids between two actions."""
        ...

    def ends_turn(self, ids: Sequence[int]) -> bool:
        """Whether sampled ids hold the end of turn."""
        ...

    def decode_action(self, ids: Sequence[int]) -> str:
        """Sampled ids as text."""
        ...


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """How one environment is prompted when its prompts are windows."""

    template: Template  # words around what is shown
    turns: int  # past turns shown at most, > 0
    thinking: bool = False  # the chat template's own thinking is on as well


class History(Protocol):
    """One episode's way of being told. Calls come in the order first, (action, go_on)..."""

    def first(self, observation: Observation) -> Prompt:
        """The first prompt, whatever its length."""
        ...

    def action(self, ids: Sequence[int]) -> str:
        """What the world is given of sampled ids."""
        ...

    def go_on(self, episode: Episode, result: StepResult) -> bool:
        """Put the next prompt into `episode`, after the world answered; False: it leaves no room for an answer."""
        ...


class Conversation:
    """Append-only: each observation follows the action it answers, and no id is ever rendered twice."""

    def __init__(self, renderer: TurnRenderer, guide: str, max_model_len: int) -> None:
        """`guide`: text for the system turn, or empty."""
        self._renderer = renderer
        self._guide = guide
        self._max_model_len = max_model_len
        self._ended = False  # the newest action closed its own turn

    def first(self, observation: Observation) -> Prompt:
        """The observation as it is, after the guidance."""
        messages = with_guidance([Message(role="user", content=observation.text)], self._guide)
        return Prompt(messages=messages, ids=self._renderer.head(messages))

    def action(self, ids: Sequence[int]) -> str:
        """The whole answer."""
        self._ended = self._renderer.ends_turn(ids)
        return self._renderer.decode_action(ids)

    def go_on(self, episode: Episode, result: StepResult) -> bool:
        """Append the observation."""
        between = self._renderer.after_action(result.text, self._ended)
        if episode.num_tokens + len(between) >= self._max_model_len:
            return False
        episode.observe(between)
        return True


class Windowed:
    """Every turn is a prompt of its own: the task, the last turns, what is seen now.

    A prompt that leaves less than `max_tokens` for the answer loses its oldest turns first, all of them if need be;
    task, observation and admissible actions always stay. If they alone fill the context, the episode is over.
    """

    def __init__(
        self, window: Window, renderer: TurnRenderer, guide: str, *, max_model_len: int, max_tokens: int
    ) -> None:
        """`guide`: text for the system turn, or empty; `max_tokens`: limit of one answer."""
        self._window = window
        self._renderer = renderer
        self._guide = guide
        self._max_model_len = max_model_len
        self._room = max_model_len - max_tokens
        self._task = ""
        self._observation = ""  # the newest one
        self._action = ""  # the newest one
        self._steps: tuple[Step, ...] = ()

    def first(self, observation: Observation) -> Prompt:
        """The template's first prompt; the same for every member of a group, so its rendering is remembered."""
        self._task = self._observation = observation.text
        moment = Moment(task=self._task, observation=observation.text, admissible=observation.admissible)
        messages = self._messages(moment, 0)
        thinking = self._window.thinking
        return Prompt(messages=messages, ids=self._renderer.head(messages, thinking), thinking=thinking)

    def action(self, ids: Sequence[int]) -> str:
        """The part of the answer the template says is the action."""
        self._action = self._window.template.action(self._renderer.decode_action(ids))
        return self._action

    def go_on(self, episode: Episode, result: StepResult) -> bool:
        """Begin a sample with a prompt about the new moment."""
        self._steps = (*self._steps, Step(observation=self._observation, action=self._action))
        self._observation = result.text
        prompt = self._fitting(
            Moment(task=self._task, steps=self._steps, observation=result.text, admissible=result.admissible)
        )
        if len(prompt.ids) >= self._max_model_len:
            return False
        episode.renew(prompt)
        return True

    def _fitting(self, moment: Moment) -> Prompt:
        """The prompt with the most turns that leaves room for a whole answer, or with none."""
        most = min(self._window.turns, len(moment.steps))
        whole = self._prompt(moment, most)
        if len(whole.ids) <= self._room:
            return whole
        fitting = bisect.bisect_right(range(most), self._room, key=lambda shown: len(self._prompt(moment, shown).ids))
        return self._prompt(moment, max(0, fitting - 1))

    def _prompt(self, moment: Moment, shown: int) -> Prompt:
        messages, thinking = self._messages(moment, shown), self._window.thinking
        return Prompt(messages=messages, ids=self._renderer.prompt(messages, thinking), thinking=thinking)

    def _messages(self, moment: Moment, shown: int) -> tuple[Message, ...]:
        return with_guidance(self._window.template.messages(moment, shown), self._guide)


def new_history(
    window: Window | None, renderer: TurnRenderer, guide: str, *, max_model_len: int, max_tokens: int
) -> History:
    """The history of one episode: a conversation without a window. `guide` is shown in the system turn."""
    if window is None:
        return Conversation(renderer, guide, max_model_len)
    return Windowed(window, renderer, guide, max_model_len=max_model_len, max_tokens=max_tokens)
