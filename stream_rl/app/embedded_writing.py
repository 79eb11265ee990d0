"""Demonstrations of writing criteria: the compact writing prompt about a scripted group, answered from the rules.

The members of a group are noisy players that err at different rates and heed different rubrics. The answer names
rubrics on which the rule judge finds them different; it never depends on how an episode ended.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from envs.household.belief import Belief
from envs.household.player import CORE_RUBRICS, Player
from envs.household.world import Household
from judge.rules.engine import RULES, decide_all
from judge.rules.finding import Finding
from judge.transcript import from_trajectory
from learner.imitation import Demonstration
from stream_rl.app.embedded_demos import DemoRecipe, DemoSource
from stream_rl.app.embedded_tokenizer import END_OF_TURN
from stream_rl.renderer import Renderer
from stream_rl.rubrics.bundles import MAX_CRITERIA, MIN_CRITERIA
from stream_rl.rubrics.vocabulary import Vocabulary
from stream_rl.rubrics.writing import compose, load_template
from stream_rl.types import StepResult, Task, Trajectory, Turn

FIRST_INDEX = 20_000_000  # task indices that neither a training run nor the demonstrations of play reach
TEMPLATE = "compact"  # the writing prompt in the words of the embedded tokenizer
MIN_DECIDED = 2  # members a rubric must be decided on before they can differ


class WritingRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of the writing demonstrations, and of the play mixed in so that it is not forgotten."""

    play: DemoRecipe = DemoRecipe(seed=1)  # rooms of the first imitation, played otherwise
    writing_frac: float = 0.4  # share of demonstrations that write
    answer_weight: float = 3.0  # loss weight of an answer's tokens; an action's weigh 1 and are many more
    growing_frac: float = 0.6  # share of the imitation over which groups, episodes and answers grow to full length ...
    first_members: int = 2  # ... from so many members,
    first_turns: int = 7  # ... so many turns of an episode
    first_criteria: int = 1  # ... and so few criteria of an answer: much is learnt from few tokens
    group_min: int = 4  # fewest members of a group afterwards
    group_max: int = 8  # most members
    max_turns: int = 20  # of an episode
    noise_min: float = 0.2  # each member draws its error rate from here ...
    noise_max: float = 0.7  # ... to here
    clumsy_max: float = 0.7  # each member draws from 0 to here how often it does something pointless
    shared_max: int = 5  # rubrics that all members heed, 0 to here: what a group has in common differs between groups
    own_max: int = 2  # rubrics that one member heeds besides, 0 to here
    context_tokens: int = 512  # prompt and answer together: `generate.max_model_len` of the embedded policy
    answer_tokens: int = 32  # kept free for the answer: `algorithm.bundle_tokens`
    seed: int = 0  # of everything but the play


class WritingSource:
    """Endless demonstrations of writing and of play, in the recipe's proportion."""

    def __init__(self, tokenizer: Any, vocabulary: Vocabulary, recipe: WritingRecipe) -> None:
        self._recipe = recipe
        self._vocabulary = vocabulary
        self._tokenizer = tokenizer
        self._renderer = Renderer(tokenizer)
        self._template = load_template(TEMPLATE)
        self._play = DemoSource(tokenizer, vocabulary, recipe.play)
        self._rng = random.Random(f"embedded writing/{recipe.seed}")
        self._index = FIRST_INDEX

    def __call__(self, done_frac: float) -> Demonstration:
        """The next demonstration; told the share of the imitation that is done."""
        if self._rng.random() < self._recipe.writing_frac:
            return self.write(done_frac)
        return self._play(1.0)

    def write(self, done_frac: float) -> Demonstration:
        """A writing prompt and its answer; only the answer has weight."""
        recipe = self._recipe
        group, named = self._telling_group(min(1.0, done_frac / recipe.growing_frac))
        prompt = compose(
            group,
            self._template,
            budget=recipe.context_tokens - recipe.answer_tokens,
            count=lambda messages: len(self._renderer.head(messages)),
        )
        head = self._renderer.head(prompt.messages)
        phrases = [self._vocabulary[rubric].hint for rubric in named]
        answer = self._tokenizer.encode(f"{' . '.join(phrases)} .{END_OF_TURN}", add_special_tokens=False)
        weights = np.zeros(len(head) + len(answer), dtype=np.float32)
        weights[len(head) :] = recipe.answer_weight
        return Demonstration(token_ids=np.array(head + answer, dtype=np.int32), weights=weights)

    def _telling_group(self, grown: float) -> tuple[list[Trajectory], list[str]]:
        """The next group whose members differ in enough rubrics, and rubrics that say how. `grown`: 0 short, 1 full."""
        recipe = self._recipe

        def between(first: int, full: int) -> int:
            return round(first + (full - first) * grown)

        fewest, most = (between(recipe.first_members, full) for full in (recipe.group_min, recipe.group_max))
        while True:
            group = self._group(self._rng.randint(fewest, most), between(recipe.first_turns, recipe.max_turns))
            spread = spreads([findings(member) for member in group])
            named = name_differences(spread, at_least=between(recipe.first_criteria, MIN_CRITERIA))
            if named:
                return group, named

    def _group(self, size: int, max_turns: int) -> list[Trajectory]:
        recipe, rng = self._recipe, self._rng
        task = Task(environment="household", split="train", index=self._index)
        self._index += 1
        shared = rng.sample(CORE_RUBRICS, rng.randint(0, recipe.shared_max))
        return [
            play(
                Household(max_turns=max_turns),
                task,
                member,
                rng,
                noise=rng.uniform(recipe.noise_min, recipe.noise_max),
                clumsy=rng.uniform(0.0, recipe.clumsy_max),
                heeds=[*shared, *rng.sample(CORE_RUBRICS, rng.randint(0, recipe.own_max))],
            )
            for member in range(size)
        ]


def play(
    world: Household,
    task: Task,
    member: int,
    rng: random.Random,
    *,
    noise: float,
    clumsy: float = 0.0,
    heeds: Sequence[str] = (),
) -> Trajectory:
    """One episode of the scripted player.

    clumsy: probability of something pointless instead of its action, 0 to 1, as a policy does that has learnt little:
        any possible action, one that fails, or its last action again
    """
    first = observation = world.reset(task, seed=0).text
    player = Player(observation, rng, noise=noise, heeds=heeds)
    steps: list[tuple[str, StepResult]] = []
    while not steps or not steps[-1][1].done:
        if steps:
            player.observe(steps[-1][0], steps[-1][1].text)
        action = player.act()
        if rng.random() < clumsy:
            last = steps[-1][0] if steps else action
            action = rng.choice((rng.choice(world.admissible()), _failing(player.belief, rng), last))
        steps.append((action, world.step(action)))
    return record(task, member, first, steps)


def _failing(belief: Belief, rng: random.Random) -> str:
    """A well-formed command that the world will hardly take now."""
    there = rng.choice(belief.places)
    thing = belief.holding or f"{belief.goal.object} 1"
    at = belief.at or there
    return rng.choice((f"go to {at}", f"open {there}", f"take {thing} from {at}", f"move {thing} to {there}"))


def record(task: Task, member: int, first_prompt: str, steps: Sequence[tuple[str, StepResult]]) -> Trajectory:
    """Actions and the world's answers as a trajectory without tokens: what a judge or a writer reads of it."""
    turns = tuple(
        Turn(
            sample=0,
            start=0,
            stop=0,
            spans=(),
            action=action,
            observation=result.text,
            valid=result.valid,
            cut=False,
            reward=result.reward,
            generate_s=0.0,
            environment_s=0.0,
        )
        for action, result in steps
    )
    return Trajectory(
        id=f"{task.id}/{member}",
        group_id=task.id,
        member=member,
        task=task,
        samples=(),
        turns=turns,
        reward=sum(result.reward for _, result in steps),
        success=any(result.success for _, result in steps),
        score=steps[-1][1].score if steps else 0.0,
        first_prompt=first_prompt,
    )


def findings(trajectory: Trajectory) -> dict[str, Finding]:
    """What the rules say about a trajectory, for every rubric that has one."""
    return decide_all(from_trajectory(trajectory), tuple(RULES))


def spreads(members: Sequence[Mapping[str, Finding]]) -> dict[str, float]:
    """How far the members of a group [G] differ in each rubric: 0 (all alike) to 0.25 (half of them each way).

    The variance of positive = 1, violation = 0 over the members it was decided on, p (1 - p) with p the share of
    positives, times the share of members it was decided on: what cannot be said of most members tells few apart.
    Rubrics decided on fewer than two members are left out.
    """
    found: dict[str, float] = {}
    for rubric in members[0] if members else ():
        values = [member[rubric].value for member in members]
        positives, violations = values.count("positive"), values.count("violation")
        if positives + violations >= MIN_DECIDED:
            found[rubric] = positives * violations / ((positives + violations) * len(values))
    return found


def name_differences(spread: Mapping[str, float], at_least: int = MIN_CRITERIA) -> list[str]:
    """5 to 8 of the rubrics with the largest spread; none if fewer than 5 have any.

    The first five, and of the next three those with at least half the largest spread. They come in the order of
    `spread`, not of size: with one order for all answers the next rubric is easier to learn, and none comes twice.
    """
    best = sorted((rubric for rubric, s in spread.items() if s > 0), key=lambda rubric: -spread[rubric])[:MAX_CRITERIA]
    if len(best) < at_least:
        return []
    told = {
        rubric for place, rubric in enumerate(best) if place < MIN_CRITERIA or spread[rubric] >= spread[best[0]] / 2
    }
    return [rubric for rubric in spread if rubric in told]
