"""One episode while it is being recorded. Pure bookkeeping: the arrays agree with each other after every call."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from stream_rl.ports import GenerateResult
from stream_rl.types import IntArray, Message, Sample, StepResult, Task, Trajectory, Turn


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a lease asks of one of its rollouts."""

    group_id: str  # the lease
    member: int  # 0 .. size - 1
    task: Task  # what to attempt
    seed: int  # the lease's; seeds the world
    temperature: float  # sampling temperature
    max_tokens: int  # limit of one turn, in tokens
    max_turns: int  # limit of the episode, in turns
    guidance: tuple[str, ...] = ()  # rubric ids shown as "avoid"; always empty for evaluation

    @property
    def trajectory_id(self) -> str:
        """Unique in the run."""
        return f"{self.group_id}/{self.member}"


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn, or a whole conversation, starts from."""

    messages: tuple[Message, ...]  # guidance included
    ids: Sequence[int]  # [tokens] their rendering, up to where the answer begins
    thinking: bool = False  # rendered with the chat template's own thinking switched on


class _Sequence:
    """One sample while it grows."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self.ids: list[int] = []
        self._mask: list[bool] = []
        self._logprobs: list[float] = []
        self.observe(prompt.ids)

    def observe(self, ids: Sequence[int]) -> None:
        self.ids.extend(ids)
        self._logprobs.extend([0.0] * len(ids))
        self._mask.extend([False] * len(ids))

    def act(self, sampled: GenerateResult) -> None:
        self.ids.extend(sampled.token_ids.tolist())
        self._logprobs.extend(sampled.logprobs.tolist())
        self._mask.extend([True] * len(sampled.token_ids))

    def sample(self) -> Sample:
        return Sample(
            token_ids=np.array(self.ids, dtype=np.int32),
            loss_mask=np.array(self._mask, dtype=np.bool_),
            behavior_logprobs=np.array(self._logprobs, dtype=np.float32),
            head=self._prompt.messages,
            head_tokens=len(self._prompt.ids),
            thinking=self._prompt.thinking,
        )


class Episode:
    """Token ids, log-probabilities and turns of one rollout, appended and never changed.

    Calls come in the order begin, (act, answer, [observe or renew])...; `trajectory` may be taken at any moment.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sequences: list[_Sequence] = []
        self._turns: list[Turn] = []
        self._acted: tuple[GenerateResult, str, float] | None = None  # an action the world has not answered
        self._result = StepResult(text="")
        self._reward = 0.0
        self._first_prompt = ""

    @property
    def num_tokens(self) -> int:
        """Length of what the next token is sampled after."""
        return len(self._sequences[-1].ids)

    @property
    def num_turns(self) -> int:
        """Actions taken, answered or not."""
        return len(self._turns) + (self._acted is not None)

    @property
    def prompt_ids(self) -> IntArray:
        """[tokens] what the next token is sampled after."""
        return np.array(self._sequences[-1].ids, dtype=np.int32)

    def begin(self, first_prompt: str, prompt: Prompt) -> None:
        """The first observation, and what it was rendered into."""
        self._first_prompt = first_prompt
        self._sequences.append(_Sequence(prompt))

    def act(self, sampled: GenerateResult, action: str, generate_s: float) -> None:
        """Append a sampled action."""
        self._sequences[-1].act(sampled)
        self._acted = (sampled, action, generate_s)

    def answer(self, result: StepResult, environment_s: float) -> None:
        """The world's answer to the last action; `observe` or `renew` shows it, if another turn follows."""
        self._turns.append(self._turn(result, environment_s))
        self._acted = None
        self._result = result
        self._reward += result.reward

    def observe(self, ids: Sequence[int]) -> None:
        """Append ids that the policy did not sample."""
        self._sequences[-1].observe(ids)

    def renew(self, prompt: Prompt) -> None:
        """The next action answers a prompt of its own: begin another sample."""
        self._sequences.append(_Sequence(prompt))

    def trajectory(self, seconds: float, error: str | None = None) -> Trajectory:
        """The record so far. An action without an answer becomes a turn with an empty observation."""
        turns = list(self._turns)
        if self._acted is not None:
            turns.append(self._turn(StepResult(text="", valid=False), 0.0))
        plan = self._plan
        return Trajectory(
            id=plan.trajectory_id,
            group_id=plan.group_id,
            member=plan.member,
            task=plan.task,
            samples=tuple(sequence.sample() for sequence in self._sequences),
            turns=tuple(turns),
            reward=self._reward,
            success=self._result.success,
            score=self._result.score,
            guidance=plan.guidance,
            error=error,
            first_prompt=self._first_prompt,
            seconds=seconds,
        )

    def _turn(self, result: StepResult, environment_s: float) -> Turn:
        if self._acted is None:
            raise RuntimeError("an answer to no action")
        sampled, action, generate_s = self._acted
        # Only the newest action can be unanswered, so it ends the newest sample.
        stop = self.num_tokens
        return Turn(
            sample=len(self._sequences) - 1,
            start=stop - len(sampled.token_ids),
            stop=stop,
            spans=sampled.spans,
            action=action,
            observation=result.text,
            valid=result.valid,
            cut=sampled.cut,
            reward=result.reward,
            generate_s=generate_s,
            environment_s=environment_s,
        )
