"""One rollout: the policy and a world in turn, until the world, a limit or a failure ends the episode."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping

import anyio
import msgspec

from stream_rl.errors import EnvironmentFailed, EnvironmentLost, GenerationFailed, GeneratorBroken
from stream_rl.ports import EnvironmentPool, EnvironmentSession, GenerateRequest, Generator
from stream_rl.producer.account import ProducerAccount
from stream_rl.producer.episode import Episode, Plan
from stream_rl.producer.history import History, TurnRenderer, Window, new_history
from stream_rl.rubrics.guidance import avoid_text
from stream_rl.rubrics.vocabulary import Vocabulary
from stream_rl.rubrics.writing import WritingOptions
from stream_rl.types import StepResult, Trajectory

_ATTEMPTS = 8  # a task that brings workers down itself is refused by the pool long before
_CLOSE_S = 5.0  # an episode that cannot be given back in this time is left to its pool


class Means(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What every rollout of a producer shares."""

    generator: Generator  # samples turns
    environments: EnvironmentPool  # hands out episodes
    renderer: TurnRenderer  # of the policy's tokenizer
    vocabulary: Vocabulary  # words of the guidance
    activities: ProducerAccount  # told what the producer is doing
    max_model_len: int  # longest history, in tokens, answer included
    windows: Mapping[str, Window] = msgspec.field(default_factory=dict)  # by environment; the others are conversations
    writing: WritingOptions | None = None  # how bundles are written; None: no lease asks for any
    deterministic: bool = False  # seed every request; costs speed in the engine
    clock: Callable[[], float] = time.monotonic  # for the times in the record


def _forget(trajectory: Trajectory) -> None:
    pass


async def rollout(
    plan: Plan, means: Means, deadline_s: float, dropped: Callable[[Trajectory], None] = _forget
) -> Trajectory:
    """Play one episode and return its record.

    An episode whose world goes away (`EnvironmentLost`) is played again from its beginning, seven times at most and
    within the deadline; `dropped` is given the record of each attempt that does not count. Otherwise long episodes
    would be lost more often than short ones, and training would lean towards easy tasks.

    A world or generator that fails, and a deadline that passes, give an invalid trajectory that holds what there was;
    the turn limit and the token limit are ordinary ends without success. Any other exception is a bug and is raised.
    """
    until = anyio.current_time() + deadline_s
    with means.activities.rollout():
        for _ in range(_ATTEMPTS - 1):
            trajectory, lost = await _attempt(plan, means, deadline_s, until)
            if not lost or anyio.current_time() >= until:
                return trajectory
            dropped(trajectory)
        trajectory, _ = await _attempt(plan, means, deadline_s, until)
        return trajectory


async def _attempt(plan: Plan, means: Means, deadline_s: float, until: float) -> tuple[Trajectory, bool]:
    """One episode, and whether its world went away."""
    began = means.clock()
    episode = Episode(plan)
    error: str | None = None
    lost = False
    with anyio.CancelScope(deadline=until) as scope:
        try:
            await _play(episode, plan, means)
        except GeneratorBroken:
            raise  # no rollout of this process can succeed any more: its leases must go elsewhere
        except (EnvironmentFailed, GenerationFailed) as failure:
            error = f"{type(failure).__name__}: {failure}"
            lost = isinstance(failure, EnvironmentLost)
    if scope.cancelled_caught:
        error = f"deadline of {deadline_s:g} s passed in turn {episode.num_turns}"
    return episode.trajectory(means.clock() - began, error), lost


async def _play(episode: Episode, plan: Plan, means: Means) -> None:
    began = means.clock()
    with means.activities.entering(plan.task.environment):
        session = await means.environments.open(plan.task.environment)
    try:
        with means.activities.acting(plan.task.environment):
            first = await session.reset(plan.task, plan.seed)
        reset_s = means.clock() - began
        history = new_history(
            means.windows.get(plan.task.environment),
            means.renderer,
            avoid_text(means.vocabulary, plan.guidance),
            max_model_len=means.max_model_len,
            max_tokens=plan.max_tokens,
        )
        prompt = history.first(first)
        if len(prompt.ids) >= means.max_model_len:
            raise EnvironmentFailed(
                f"the first prompt of {plan.task.id} has {len(prompt.ids)} tokens, which leaves no room for an answer "
                f"in generate.max_model_len = {means.max_model_len}"
            )
        episode.begin(first.text, prompt)
        await _turns(episode, history, plan, means, session, reset_s)
    finally:
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await session.aclose()


async def _turns(
    episode: Episode, history: History, plan: Plan, means: Means, session: EnvironmentSession, reset_s: float
) -> None:
    while True:
        result = await _turn(episode, history, plan, means, session, reset_s)
        reset_s = 0.0
        if result.done or episode.num_turns >= plan.max_turns or not history.go_on(episode, result):
            return


async def _turn(
    episode: Episode, history: History, plan: Plan, means: Means, session: EnvironmentSession, reset_s: float
) -> StepResult:
    """One action and its answer. The first turn's time holds the reset."""
    began = means.clock()
    request = GenerateRequest(
        prompt_ids=episode.prompt_ids,
        max_tokens=min(plan.max_tokens, means.max_model_len - episode.num_tokens),
        temperature=plan.temperature,
        stop_token_ids=means.renderer.stop_token_ids,
        seed=sampler_seed(plan.seed, plan.member, episode.num_turns) if means.deterministic else None,
        affinity=plan.group_id,
    )
    with means.activities.generating():
        sampled = await means.generator.generate(request)
    generated = means.clock()
    action = history.action(sampled.token_ids.tolist())
    episode.act(sampled, action, generated - began)
    acting = means.clock()
    with means.activities.acting(plan.task.environment):
        result = await session.step(action)
    episode.answer(result, means.clock() - acting + reset_s)
    return result


def sampler_seed(seed: int, member: int, turn: int) -> int:
    """A 31-bit seed of one request: the same in every process, different for each lease, member and turn."""
    digest = hashlib.blake2b(f"{seed}/{member}/{turn}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1
