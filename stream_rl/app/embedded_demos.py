"""Demonstrations for the embedded policy: a noisy player's episodes, half of them with advice it heeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from envs.household.player import CORE_RUBRICS, Player
from envs.household.world import Household
from learner.imitation import Demonstration
from stream_rl.app.embedded_tokenizer import END_OF_TURN
from stream_rl.rubrics.vocabulary import Vocabulary
from stream_rl.types import Task

FIRST_INDEX = 10_000_000  # task indices that no training run reaches, so that RL starts on rooms never demonstrated


class DemoRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of the demonstrations."""

    max_turns: int = 20  # of an episode
    clean_frac: float = 0.25  # share of the imitation that shows play without errors
    noise_min: float = 0.2  # afterwards each episode draws its error rate from here ...
    noise_max: float = 0.5  # ... to here
    advised_frac: float = 0.6  # share of episodes with a guide line
    avoid_frac: float = 0.3  # share of rubrics told as "avoid ..."
    others_frac: float = 0.25  # share of guide lines that also hold rubrics the player has no error for
    lapse_frac: float = 0.1  # share of actions replaced by one nobody should imitate: shows how to go on after it
    observation_weight: float = 0.5  # loss weight of what the world says; an action's tokens weigh 1
    seed: int = 0  # of everything


class DemoSource:
    """Endless demonstrations; calling it with the share of imitation that is done gives the next one."""

    def __init__(self, tokenizer: Any, vocabulary: Vocabulary, recipe: DemoRecipe) -> None:
        self._recipe = recipe
        self._vocabulary = vocabulary
        self._others = [r for r in vocabulary.ids if r not in CORE_RUBRICS]
        self._rng = random.Random(f"embedded demonstrations/{recipe.seed}")
        self._world = Household(max_turns=recipe.max_turns)
        self._index = FIRST_INDEX
        self._encode: Callable[[str], list[int]] = lru_cache(maxsize=100_000)(
            lambda text: tokenizer.encode(text, add_special_tokens=False)
        )

    def __call__(self, done_frac: float) -> Demonstration:
        """One episode as the chat template renders it."""
        recipe, rng = self._recipe, self._rng
        heeded, guide = self._advice() if rng.random() < recipe.advised_frac else ((), "")
        noise = 0.0 if done_frac < recipe.clean_frac else rng.uniform(recipe.noise_min, recipe.noise_max)
        observation = self._world.reset(Task(environment="household", split="train", index=self._index), seed=0).text
        self._index += 1
        player = Player(observation, rng, noise=noise, heeds=heeded)
        tokens = _Tokens(self._encode, recipe.observation_weight)
        if guide:
            tokens.add(f"<|system|>{guide}", 0.0)
        while True:
            tokens.add(f"<|user|>{observation}<|assistant|>", recipe.observation_weight)
            action, weight = player.act(), 1.0
            if rng.random() < recipe.lapse_frac:
                action, weight = self._lapse(player.belief.at), 0.0
            tokens.add(f"{action}{END_OF_TURN}", weight)
            result = self._world.step(action)
            if result.done:
                return tokens.demonstration()
            observation = result.text
            player.observe(action, observation)

    def _lapse(self, at: str | None) -> str:
        """Something pointless: half of the time an action that fails, else any that is possible."""
        if at and self._rng.random() < 0.5:
            return f"go to {at}"
        return self._rng.choice(self._world.admissible())

    def _advice(self) -> tuple[Sequence[str], str]:
        rng, recipe = self._rng, self._recipe
        heeded = rng.sample(CORE_RUBRICS, rng.choice((1, 2, 3, 3, 4, 4, 6, 8)))
        told = list(heeded)
        if self._others and rng.random() < recipe.others_frac:
            told += rng.sample(self._others, min(len(self._others), rng.choice((1, 2))))
            rng.shuffle(told)
        rubrics = [self._vocabulary[r] for r in told]
        phrases = [r.avoid if rng.random() < recipe.avoid_frac else r.hint for r in rubrics]
        return heeded, f"guide : {' . '.join(phrases)} ."


class _Tokens:
    def __init__(self, encode: Callable[[str], list[int]], observation_weight: float) -> None:
        self._encode = encode
        self._ids: list[int] = []
        self._weights: list[float] = []

    def add(self, text: str, weight: float) -> None:
        ids = self._encode(text)
        self._ids += ids
        self._weights += [weight] * len(ids)

    def demonstration(self) -> Demonstration:
        return Demonstration(
            token_ids=np.array(self._ids, dtype=np.int32), weights=np.array(self._weights, dtype=np.float32)
        )
