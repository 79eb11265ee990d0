"""Episodes played in one batch, token ids in and out, and what a trainer needs of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from benchmarks.lean_model import Cache, LeanQwen3
from envs.household.world import Household
from judge.transcript import Transcript, TranscriptTurn
from stream_rl.renderer import Renderer
from stream_rl.rubrics.guidance import with_guidance
from stream_rl.types import Message, Task


@dataclass(kw_only=True, eq=False)
class Rollout:
    """One episode. Ids are appended, never rendered again."""

    task: Task
    head: tuple[Message, ...]  # messages of the first prompt, guidance included
    head_tokens: int  # length of their rendering
    ids: list[int]  # prompt, then sampled and observed tokens in turn
    sampled: list[bool]  # True where the policy sampled the token
    logprobs: list[float]  # under the sampling policy; 0 where `sampled` is False
    turns: list[TranscriptTurn] = field(default_factory=list)
    success: bool = False

    def transcript(self) -> Transcript:
        """What a judge may see."""
        return Transcript(task=self.head[-1].content, turns=tuple(self.turns))

    def observe(self, ids: Sequence[int]) -> None:
        """Append tokens that the world or the template wrote."""
        self.ids += ids
        self.sampled += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)


class Player:
    """Plays batches of episodes with one model."""

    def __init__(
        self, model: LeanQwen3, renderer: Renderer, *, max_tokens: int, max_turns: int, temperature: float
    ) -> None:
        self._model = model
        self._renderer = renderer
        self._max_tokens = max_tokens
        self._max_turns = max_turns
        self._temperature = temperature
        self._stops = frozenset(renderer.stop_token_ids)

    def play(self, tasks: Sequence[tuple[Task, str]], rng: torch.Generator) -> list[Rollout]:
        """One episode for each (task, guidance text), all at once, each to its end."""
        worlds = [Household(max_turns=self._max_turns) for _ in tasks]
        rollouts = [self._begin(world, task, text) for world, (task, text) in zip(worlds, tasks, strict=True)]
        cache = Cache(self._model, len(rollouts))
        live = list(range(len(rollouts)))
        fresh = [list(rollout.ids) for rollout in rollouts]
        while live:
            actions = self._act(cache, [rollouts[i] for i in live], fresh, rng)
            going: list[int] = []
            fresh = []
            for row, i in enumerate(live):
                chunk = self._step(worlds[i], rollouts[i], actions[row])
                if chunk is not None:
                    going.append(row)
                    fresh.append(chunk)
            if going and len(going) < len(live):
                cache.keep(going)
            live = [live[row] for row in going]
        return rollouts

    def _begin(self, world: Household, task: Task, guidance: str) -> Rollout:
        head = with_guidance([Message(role="user", content=world.reset(task, seed=0).text)], guidance)
        ids = self._renderer.head(head)
        size = len(ids)
        return Rollout(task=task, head=head, head_tokens=size, ids=ids, sampled=[False] * size, logprobs=[0.0] * size)

    def _act(
        self, cache: Cache, rollouts: Sequence[Rollout], fresh: Sequence[Sequence[int]], rng: torch.Generator
    ) -> list[list[int]]:
        """Sample an action for every rollout, after its `fresh` ids. Of each action all but the last id is cached."""
        width = max(map(len, fresh))
        ids = torch.tensor([[*chunk, *[0] * (width - len(chunk))] for chunk in fresh])
        logits = cache.feed(ids, torch.tensor([len(chunk) for chunk in fresh]))
        actions: list[list[int]] = [[] for _ in rollouts]
        open_rows = [True] * len(rollouts)
        for count in range(1, self._max_tokens + 1):
            log_softmax = torch.log_softmax(logits / self._temperature, dim=-1)
            chosen = torch.multinomial(log_softmax.exp(), 1, generator=rng)
            logprobs = log_softmax.gather(-1, chosen)[:, 0].tolist()
            tokens = chosen[:, 0].tolist()
            for row, rollout in enumerate(rollouts):
                if open_rows[row]:
                    actions[row].append(tokens[row])
                    rollout.ids.append(tokens[row])
                    rollout.sampled.append(True)
                    rollout.logprobs.append(logprobs[row])
                    open_rows[row] = tokens[row] not in self._stops
            if count == self._max_tokens or not any(open_rows):
                return actions
            logits = cache.feed(chosen, torch.tensor(open_rows, dtype=torch.long))
        raise AssertionError("max_tokens is at least 1")

    def _step(self, world: Household, rollout: Rollout, action_ids: list[int]) -> list[int] | None:
        """Tell the world; the ids to feed before the next action, or None when the episode is over."""
        action = self._renderer.decode_action(action_ids)
        result = world.step(action)
        rollout.turns.append(
            TranscriptTurn(turn=len(rollout.turns) + 1, action=action, observation=result.text, valid=result.valid)
        )
        rollout.success = result.success
        if result.done:
            return None
        between = self._renderer.after_action(result.text, ended=self._renderer.ends_turn(action_ids))
        rollout.observe(between)
        return [action_ids[-1], *between]
