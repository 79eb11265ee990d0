"""The policy writes rubric bundles about one group.

Consumes: the group's trajectories. Waits for: the generator, or the deadline. Produces: a `Writing`, whatever happens.
Unblocked by: the group's last rollout.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio
import msgspec
import numpy as np

from stream_rl.errors import GenerationFailed, GeneratorBroken
from stream_rl.messages import TrainLease
from stream_rl.ports import GenerateRequest
from stream_rl.producer.rollout import Means, sampler_seed
from stream_rl.rubrics.bundles import parse_bundle
from stream_rl.rubrics.writing import MIN_TRAJECTORIES, PromptTooLong, WritingOptions, compose
from stream_rl.types import IntArray, Message, Trajectory, Writing

log = logging.getLogger(__name__)


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one request."""

    bundle: tuple[str, ...] | None = None  # None: nothing usable
    sampled_tokens: int = 0
    error: str | None = None  # why there was no answer


async def write(lease: TrainLease, trajectories: Sequence[Trajectory], means: Means, deadline_s: float) -> Writing:
    """`lease.bundles` bundles by the policy that is live now, about the valid ones of `trajectories`.

    They are sampled side by side and independently of each other, within `deadline_s`. Each request ends as a bundle
    or counts as malformed: an answer without a usable bundle, a failed generation, or one the deadline cut off. With
    no answer at all, or nothing to ask about, there is an `error` instead. A broken generator is raised.
    """
    options = means.writing
    if options is None:
        raise ValueError(f"lease {lease.group_id} asks for {lease.bundles} bundles of a producer that writes none")
    valid = [trajectory for trajectory in trajectories if trajectory.valid]
    if len(valid) < MIN_TRAJECTORIES:
        found = f"{len(valid)} of {len(trajectories)} trajectories are valid"
        return _nothing(lease, f"{found}; it takes {MIN_TRAJECTORIES} to tell them apart")

    def count(messages: Sequence[Message]) -> int:
        return len(means.renderer.prompt(messages))

    budget = means.max_model_len - options.bundle_tokens
    try:
        prompt = compose(valid, options.template, budget=budget, count=count)
    except PromptTooLong as problem:
        return _nothing(lease, str(problem))
    prompt_ids = np.array(means.renderer.prompt(prompt.messages), dtype=np.int32)
    answers = [_Answer(error=f"the deadline of {lease.deadline_s:g} s passed")] * lease.bundles

    async def ask(number: int) -> None:
        answers[number] = await _ask(_request(lease, prompt_ids, number, options, means), means)

    with anyio.move_on_after(deadline_s):
        async with anyio.create_task_group() as group:
            for number in range(lease.bundles):
                group.start_soon(ask, number)
    return _writing(lease, answers, len(prompt_ids), prompt.omitted_turns)


def _request(
    lease: TrainLease, prompt_ids: IntArray, number: int, options: WritingOptions, means: Means
) -> GenerateRequest:
    return GenerateRequest(
        prompt_ids=prompt_ids,
        max_tokens=options.bundle_tokens,
        temperature=lease.temperature,
        stop_token_ids=means.renderer.stop_token_ids,
        # Numbers from `size` on belong to no member, so no rollout has this seed.
        seed=sampler_seed(lease.seed, lease.size + number, 0) if means.deterministic else None,
        affinity=f"{lease.group_id}/write",
    )


async def _ask(request: GenerateRequest, means: Means) -> _Answer:
    try:
        with means.activities.writing():
            sampled = await means.generator.generate(request)
    except GeneratorBroken:
        raise  # as in a rollout: the lease must go to another process
    except GenerationFailed as failure:
        return _Answer(error=f"{type(failure).__name__}: {failure}")
    ids = sampled.token_ids.tolist()
    bundle = parse_bundle(means.renderer.decode_action(ids), cut=sampled.cut)
    return _Answer(bundle=bundle, sampled_tokens=len(ids))


def _writing(lease: TrainLease, answers: Sequence[_Answer], prompt_tokens: int, omitted_turns: int) -> Writing:
    """The account of all requests, in the order they were sent."""
    errors = [answer.error for answer in answers if answer.error is not None]
    for error in errors:
        log.warning("group %s: a rubric bundle was not written: %s", lease.group_id, error)
    bundles = tuple(answer.bundle for answer in answers if answer.bundle is not None)
    answered = len(errors) < len(answers)
    return Writing(
        bundles=bundles,
        malformed=len(answers) - len(bundles) if answered else 0,
        prompt_tokens=prompt_tokens * len(answers),
        sampled_tokens=sum(answer.sampled_tokens for answer in answers),
        omitted_turns=omitted_turns,
        error=None if answered else errors[0],
    )


def _nothing(lease: TrainLease, error: str) -> Writing:
    log.warning("group %s: no rubric bundle was written: %s", lease.group_id, error)
    return Writing(bundles=(), error=error)
