"""The records that travel through the stream. Frozen, keyword-only, one line a field.

Token axis: every `[tokens]` array of one `Sample` has the same length. Times are seconds; versions count optimiser
updates from 0 (the start policy).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]

Split = Literal["train", "held_out"]
TagValue = Literal["positive", "violation", "not_applicable", "abstained"]
Transport = Literal["files", "stream", "nccl"]  # how a generator gets the bytes of a version


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One problem to solve in one world.

    >>> Task(environment="household", split="train", index=7).id
    'household/train/7'
    """

    environment: str  # name of the `[[environments]]` entry
    split: Split  # training and held-out tasks never overlap
    index: int  # position in the split's seeded order, >= 0

    @property
    def id(self) -> str:
        """World, split and index: unique across environments."""
        return f"{self.environment}/{self.split}/{self.index}"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One chat message as the template renders it."""

    role: Literal["system", "user", "assistant"]  # who speaks
    content: str  # plain text


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What a world shows at the start of an episode."""

    text: str  # shown to the policy as the first user message
    admissible: tuple[str, ...] = ()  # actions the world would accept now; empty if it does not say


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """A world's answer to one action."""

    text: str  # shown to the policy as the next user message
    reward: float = 0.0  # reward of this step
    done: bool = False  # the episode is over
    success: bool = False  # the task is solved (binary)
    score: float = 0.0  # the world's own graded score, 0 to 1
    valid: bool = True  # False: the action was not understood or did nothing
    admissible: tuple[str, ...] = ()  # actions the world would accept next
    details: tuple[str, ...] = ()  # of the outcome, as tests that failed; for people: never shown to policy or judge


class VersionSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A run of consecutive sampled tokens that one version of the policy produced."""

    version: int  # policy version, >= 0
    num_tokens: int  # > 0


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One generation and the environment's answer."""

    sample: int  # index into `Trajectory.samples`
    start: int  # first sampled token within that sample
    stop: int  # one past the last sampled token
    spans: tuple[VersionSpan, ...]  # versions of tokens [start, stop), in order; their counts sum to stop - start
    action: str  # decoded text the world was given
    observation: str  # the world's answer; empty when the episode ended by the turn limit before an answer
    valid: bool  # the world understood the action
    cut: bool  # generation hit the token limit before the end-of-turn token
    reward: float  # reward of this step
    generate_s: float  # time in the generator
    environment_s: float  # time in the world


class Sample(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A trainable token sequence: prompt, then sampled and observed tokens in turn. Ids are never rendered twice.

    The first `head_tokens` ids are the rendering of `head`; a teacher renders `head` again with a hint and keeps
    every id after it.
    """

    token_ids: IntArray  # [tokens]
    loss_mask: BoolArray  # [tokens] True where the policy sampled the token
    behavior_logprobs: FloatArray  # [tokens] log-probability under the sampling policy; 0 where the mask is False
    head: tuple[Message, ...]  # the messages the first prompt was rendered from, guidance included
    head_tokens: int  # length of that rendering
    thinking: bool = False  # the head was rendered with the chat template's own thinking switched on


class Trajectory(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One rollout of one task, as recorded. An invalid one (world or generator failed) carries `error`."""

    id: str  # "<group id>/<member>"
    group_id: str  # the group it belongs to
    member: int  # 0 .. G-1
    task: Task  # what was attempted
    samples: tuple[Sample, ...]  # one for an append-only history, one a turn for a window
    turns: tuple[Turn, ...]  # in order
    reward: float  # sum of step rewards
    success: bool  # binary outcome
    score: float  # the world's graded score, 0 to 1
    guidance: tuple[str, ...] = ()  # rubric ids shown to this rollout as "avoid"; always empty for evaluation
    error: str | None = None  # why it is invalid; None for a valid one
    first_prompt: str = ""  # the world's first observation, without guidance
    seconds: float = 0.0  # wall time of the episode

    @property
    def valid(self) -> bool:
        """Whether the trajectory counts in group statistics."""
        return self.error is None

    @property
    def num_sampled_tokens(self) -> int:
        """Tokens the policy generated."""
        return sum(turn.stop - turn.start for turn in self.turns)

    @property
    def oldest_version(self) -> int | None:
        """Version of its oldest token; None when nothing was sampled."""
        return oldest_version(self.turns)


def oldest_version(turns: Iterable[Turn]) -> int | None:
    """The smallest version of any span of any turn."""
    return min((span.version for turn in turns for span in turn.spans), default=None)


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """One rubric decided on one trajectory."""

    rubric: str  # rubric id
    value: TagValue  # `abstained` means no usable answer: it is not zero anywhere
    reason: str = ""  # short, written before the value


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """All tags of one trajectory from one judging."""

    trajectory_id: str  # whose behaviour
    tags: tuple[Tag, ...]  # one a rubric of the vocabulary, in its order
    endpoint: str = ""  # url that answered; empty when all abstained
    model: str = ""  # judge model
    prompt_tokens: int = 0  # as reported by the endpoint
    completion_tokens: int = 0  # as reported by the endpoint
    seconds: float = 0.0  # from submission to verdict

    @property
    def abstained(self) -> bool:
        """Whether no rubric was decided at all."""
        return all(tag.value == "abstained" for tag in self.tags)


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """Rubric bundles the policy wrote about one group, without having seen any outcome."""

    bundles: tuple[tuple[str, ...], ...]  # criteria of each usable bundle, in the order they were sampled
    malformed: int = 0  # answers that held no usable bundle
    prompt_tokens: int = 0  # of all requests
    sampled_tokens: int = 0  # of all answers
    omitted_turns: int = 0  # turns left out of the prompt to fit the token budget
    error: str | None = None  # why nothing was written; None when the policy answered


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """How far one trajectory satisfies each of some criteria, from one judging."""

    trajectory_id: str  # whose behaviour
    scores: tuple[float | None, ...]  # 0 to 1, one a criterion in the order asked; None: missing, which is not 0
    endpoint: str = ""  # url that answered; empty when none did
    model: str = ""  # judge model
    prompt_tokens: int = 0  # as reported by the endpoint
    completion_tokens: int = 0  # as reported by the endpoint
    seconds: float = 0.0  # from submission to scores

    @property
    def abstained(self) -> bool:
        """Whether no criterion was scored at all."""
        return all(score is None for score in self.scores)


class TensorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of a published version."""

    name: str  # as Hugging Face names it
    dtype: str  # as safetensors names it: "F32", "BF16", ...
    shape: tuple[int, ...]  # full shape
    checksum: str  # XXH3-128 of its bytes, hex


class AdapterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the factors of a LoRA version are added to: W = W0 + alpha / rank * B A for every adapted matrix.

    >>> AdapterRecord(rank=16, alpha=32.0, base="9f0c").scale
    2.0
    """

    rank: int  # r: rows of every A, columns of every B
    alpha: float  # numerator of the scale
    base: str  # fingerprint of the start policy's files, which hold every W0

    @property
    def scale(self) -> float:
        """Factor of B A."""
        return self.alpha / self.rank


class WeightsManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Where one version of the policy lies, and what it must look like once loaded."""

    run_id: str  # manifests of another run are refused
    version: int  # the version these weights are
    path: str  # file (safetensors) to load; with another transport than "files", where it lies at the learner
    fingerprint: str  # hex digest over names, dtypes, shapes and checksums, and over `adapter`
    num_bytes: int  # size of the file
    tensors: tuple[TensorRecord, ...] = ()  # all of them, in the order of the file
    transport: Transport = "files"  # how a generator gets the bytes
    address: str = ""  # of the learner's rank 0, for "stream" and "nccl"
    adapter: AdapterRecord | None = None  # the file holds factors of this adapter; None: it holds every parameter


class UpdateReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a generator did with a weight update."""

    version: int  # version now live
    fingerprint: str  # digest the generator computed of what it read
    pause_s: float  # time during which no token was sampled
    load_s: float  # part of it spent loading
    probe: tuple[float, ...] = ()  # log-probabilities of a fixed prompt under the new weights; empty: not asked
