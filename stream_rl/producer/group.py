"""One group: a lease's rollouts side by side.

Consumes: a lease. Waits for: its rollouts, or the deadline. Produces: each trajectory as it ends, then `GroupClosed`,
with the rubric bundles that a training lease asked for. Unblocked by: generator and environments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import anyio

from stream_rl.messages import EvalLease, FromProducer, GroupClosed, TrainLease, TrajectoryDone
from stream_rl.producer.account import ENVIRONMENT, GENERATE, WRITE
from stream_rl.producer.episode import Plan
from stream_rl.producer.rollout import Means, rollout
from stream_rl.producer.writer import write
from stream_rl.types import Trajectory, Writing

LOST = "environment_lost"  # why a rollout was made again: see `stream_rl.errors.EnvironmentLost`


async def run_group(
    lease: TrainLease | EvalLease, means: Means, send: Callable[[FromProducer], Awaitable[None]]
) -> None:
    """Roll out every member of `lease` and send what happened. Members still playing at the deadline are invalid.

    Bundles are written once all members have ended, in what the deadline leaves.
    """
    until = anyio.current_time() + lease.deadline_s
    purpose = "train" if isinstance(lease, TrainLease) else "eval"
    asked = isinstance(lease, TrainLease) and lease.bundles > 0
    states = {GENERATE: 0.0, ENVIRONMENT: 0.0, "other": 0.0}
    members: list[Trajectory] = []  # kept only to be written about
    rerolled: Counter[str] = Counter()
    rerolled_tokens = 0

    def account(trajectory: Trajectory) -> None:
        for state, seconds in _split(trajectory).items():
            states[state] += seconds

    def drop(trajectory: Trajectory) -> None:
        nonlocal rerolled_tokens
        account(trajectory)
        rerolled[LOST] += 1
        rerolled_tokens += trajectory.num_sampled_tokens

    async def member(plan: Plan) -> None:
        trajectory = await rollout(plan, means, lease.deadline_s, drop)
        account(trajectory)
        if asked:
            members.append(trajectory)
        await send(TrajectoryDone(trajectory=trajectory, purpose=purpose))

    async with anyio.create_task_group() as group:
        for number in range(lease.size):
            group.start_soon(member, plan_of(lease, number))
    written: Writing | None = None
    if isinstance(lease, TrainLease) and lease.bundles > 0:
        began = means.clock()
        written = await write(lease, members, means, until - anyio.current_time())
        states[WRITE] = means.clock() - began
    await send(
        GroupClosed(
            group_id=lease.group_id,
            states=states,
            written=written,
            rerolled=dict(rerolled),
            rerolled_tokens=rerolled_tokens,
        )
    )


def plan_of(lease: TrainLease | EvalLease, member: int) -> Plan:
    """What the lease asks of one member. Only a training lease has guidance to give."""
    return Plan(
        group_id=lease.group_id,
        member=member,
        task=lease.task,
        seed=lease.seed,
        temperature=lease.temperature,
        max_tokens=lease.max_tokens,
        max_turns=lease.max_turns,
        guidance=lease.guidance if isinstance(lease, TrainLease) else (),
    )


def _split(trajectory: Trajectory) -> dict[str, float]:
    """Seconds of one rollout by state; they add up to its wall time."""
    generate_s = sum(turn.generate_s for turn in trajectory.turns)
    environment_s = sum(turn.environment_s for turn in trajectory.turns)
    return {
        GENERATE: generate_s,
        ENVIRONMENT: environment_s,
        "other": max(0.0, trajectory.seconds - generate_s - environment_s),
    }
