"""Everything that crosses a link between two roles: one tagged union for each direction.

Arrays inside a message travel as raw frames (`stream_rl.link.codec`). New fields get defaults, so that roles of
neighbouring releases can talk.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stream_rl.types import Task, Trajectory, UpdateReport, WeightsManifest, Writing


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base: the struct's name is its tag on the wire."""


# orchestrator -> producer


class TrainLease(_Message, frozen=True, kw_only=True):
    """Roll out one group of `size` trajectories of a training task. The only lease that can carry guidance."""

    group_id: str  # unique in the run
    task: Task  # split is always "train"
    size: int  # G, trajectories to produce
    seed: int  # seeds the world and, with the member number, the sampler
    temperature: float  # sampling temperature
    max_tokens: int  # limit of one turn, in tokens
    max_turns: int  # limit of one episode, in turns
    deadline_s: float  # the group is closed with what it has after this long
    guidance: tuple[str, ...] = ()  # rubric ids to avoid, shown in the prompt
    bundles: int = 0  # rubric bundles to write once the rollouts have ended


class EvalLease(_Message, frozen=True, kw_only=True):
    """Roll out a held-out task. It has no field for guidance, so validation cannot carry any."""

    group_id: str  # unique in the run
    task: Task  # split is "held_out"
    size: int  # rollouts of this task
    seed: int  # seeds the sampler
    temperature: float  # sampling temperature
    max_tokens: int  # limit of one turn, in tokens
    max_turns: int  # limit of one episode, in turns
    deadline_s: float  # as for training


class UpdateWeights(_Message, frozen=True, kw_only=True):
    """Load this version now. Requests in flight are paused and go on under the new weights."""

    manifest: WeightsManifest  # where the weights are


class Finish(_Message, frozen=True, kw_only=True):
    """No more work: close in order."""

    reason: str = ""  # shown in the log


# producer -> orchestrator


class ProducerReady(_Message, frozen=True, kw_only=True):
    """The generator is up and the template check passed; leases may come."""

    engine: str  # "vllm", "transformers" or "scripted"
    version: int  # version its weights are
    capacity: int  # rollouts it is willing to hold at once
    num_held_out: dict[str, int] = {}  # held-out tasks of each environment whose world counts them


class TrajectoryDone(_Message, frozen=True, kw_only=True):
    """One rollout ended, well or badly. Sent the moment it ends."""

    trajectory: Trajectory  # the record
    purpose: str = "train"  # "train" or "eval"


class GroupClosed(_Message, frozen=True, kw_only=True):
    """Every rollout of the lease has been sent; no more will come for it."""

    group_id: str  # the lease
    states: dict[str, float] = {}  # seconds of this group's rollouts by state (generate, environment, ...)
    written: Writing | None = None  # what the policy wrote about the group; None: it was not asked to
    rerolled: dict[str, int] = {}  # reason -> attempts at a rollout that were dropped and made again
    rerolled_tokens: int = 0  # sampled in those attempts


class WeightsLive(_Message, frozen=True, kw_only=True):
    """The generator now samples from this version."""

    report: UpdateReport  # version, fingerprint, pause


class WeightsFailed(_Message, frozen=True, kw_only=True):
    """The update was not applied. The producer leaves and is started again."""

    version: int  # version that was refused
    error: str  # what happened


class ProducerStats(_Message, frozen=True, kw_only=True):
    """Where the producer's time went since the last report. `states` add up to `total_s`."""

    states: dict[str, float]  # seconds by state
    total_s: float  # wall time covered
    generated_tokens: int = 0  # sampled since the last report
    slots: dict[str, float] = {}  # slot-seconds by state of its places for rollouts
    parts: dict[str, dict[str, float]] = {}  # "generator", "environment/NAME" -> seconds by state
    cpu_s: dict[str, float] = {}  # "producers", "generators", "environments" -> CPU seconds used since the last report


# learner -> orchestrator


class LearnerReady(_Message, frozen=True, kw_only=True):
    """The learner's engine is up and asks for rounds from `version` on."""

    version: int  # its parameters' version
    manifest: WeightsManifest  # those parameters, published


class GroupRefused(_Message, frozen=True, kw_only=True):
    """The learner will not train on a group of the round that is being filled. It waits for another in its place."""

    update: int  # k
    group_id: str  # the group
    reason: str  # for people


class Trained(_Message, frozen=True, kw_only=True):
    """An optimiser update is done, and its numbers are here. Its weights follow, in a `Published`."""

    update: int  # k, from 0: round k turned version k into k + 1
    version: int  # k + 1
    group_ids: tuple[str, ...]  # groups it consumed: all that were announced
    metrics: dict[str, Any]  # learner's part of a metrics line
    checkpoint: str | None = None  # folder, when this update wrote one


class Published(_Message, frozen=True, kw_only=True):
    """The weights of an update that was reported can be read. The learner may be training the next meanwhile."""

    manifest: WeightsManifest  # the new weights
    write_s: float  # writing took so long, beside whatever the learner did


# orchestrator -> learner


class RoundStart(_Message, frozen=True, kw_only=True):
    """Groups of round `update` follow, each as it is selected."""

    update: int  # k
    num_groups: int  # P, how many will come


class SelectedGroup(_Message, frozen=True, kw_only=True):
    """One group of a round. Delivered again unchanged after a crash."""

    update: int  # k
    group_id: str  # the group
    trajectories: tuple[Trajectory, ...]  # its members, valid and not
    hint: str | None  # rubric text for the teacher only; None: no teacher pass for this group
    hint_rubrics: tuple[str, ...] = ()  # ids, or written criteria, behind the hint
    alternatives: tuple[str, ...] = ()  # hints the learner itself chooses from (`bundle_score = "within"`)
    judge_s: float = 0.0  # time this group waited for its verdicts


class SaveCheckpoint(_Message, frozen=True, kw_only=True):
    """Write a checkpoint now, between two updates."""


class CheckpointSaved(_Message, frozen=True, kw_only=True):
    """Answer of the learner to `SaveCheckpoint`."""

    version: int  # parameters' version
    path: str  # folder


# command line <-> orchestrator


class StatusRequest(_Message, frozen=True, kw_only=True):
    """What is going on?"""


class StatusReply(_Message, frozen=True, kw_only=True):
    """The orchestrator's state, plain data for people and scripts."""

    status: dict[str, Any]  # see `stream_rl.orchestrator.service`


class AttachJudge(_Message, frozen=True, kw_only=True):
    """Ask one more judge endpoint."""

    endpoint: dict[str, Any]  # keys of a [[judge.endpoints]] entry; the key's variable is one of the orchestrator


class DetachJudge(_Message, frozen=True, kw_only=True):
    """Send nothing more to an endpoint."""

    url: str  # its base address


class ListJudges(_Message, frozen=True, kw_only=True):
    """How do the endpoints stand?"""


class JudgesReply(_Message, frozen=True, kw_only=True):
    """Answer to all three."""

    endpoints: list[dict[str, Any]]  # fields of `judge.standing.EndpointStanding`
    error: str | None = None  # why nothing was changed


class Tune(_Message, frozen=True, kw_only=True):
    """Change a run while it goes on. What is None stays."""

    async_depth: int | None = None  # updates generation may run ahead from now on
    paused: bool | None = None  # True: nothing new is leased for training


class TuneReply(_Message, frozen=True, kw_only=True):
    """How it stands now."""

    async_depth: int  # in force
    paused: bool  # whether training leases are held back
    error: str | None = None  # why nothing was changed


class AttachGenerator(_Message, frozen=True, kw_only=True):
    """Start one more producer, which samples at a vLLM server that somebody runs."""

    url: str  # base address of the server
    key_env: str = ""  # variable, of the run, that holds its key


class DetachGenerator(_Message, frozen=True, kw_only=True):
    """End the producer of an attached server; its groups are leased again."""

    url: str  # base address of the server


class ListGenerators(_Message, frozen=True, kw_only=True):
    """Which generators are there?"""


class GeneratorsReply(_Message, frozen=True, kw_only=True):
    """Answer to all three."""

    generators: list[dict[str, Any]]  # see `stream_rl.orchestrator.guests`
    error: str | None = None  # why nothing was changed


ToProducer = TrainLease | EvalLease | UpdateWeights | Finish
FromProducer = ProducerReady | TrajectoryDone | GroupClosed | WeightsLive | WeightsFailed | ProducerStats
ToLearner = RoundStart | SelectedGroup | SaveCheckpoint | Finish
FromLearner = LearnerReady | GroupRefused | Trained | Published | CheckpointSaved
ToControl = StatusReply | JudgesReply | TuneReply | GeneratorsReply
FromControl = (
    StatusRequest | AttachJudge | DetachJudge | ListJudges | Tune | AttachGenerator | DetachGenerator | ListGenerators
)
ToOrchestrator = FromProducer | FromLearner | FromControl
FromOrchestrator = ToProducer | ToLearner | ToControl
