"""The edges of the stream, as protocols. Concrete classes are named in `stream_rl.app` only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from stream_rl.types import (
    FloatArray,
    IntArray,
    Observation,
    Scores,
    Split,
    StepResult,
    Task,
    Trajectory,
    UpdateReport,
    Verdict,
    VersionSpan,
    WeightsManifest,
)

S_contra = TypeVar("S_contra", contravariant=True)
R = TypeVar("R")


class Delivery(msgspec.Struct, Generic[R], frozen=True, kw_only=True, eq=False):
    """A message that was received and is not acknowledged yet."""

    message: R  # typed
    ack: Callable[[], None]  # call once, when what the message carries is safe; returns its credit to the sender


class Link(Protocol[S_contra, R]):
    """One role's end of its link to the orchestrator. Iteration ends when the other side closed in order."""

    async def send(self, message: S_contra) -> None:
        """Queue a message; waits for credit. It will arrive once, in order, through reconnects."""
        ...

    def __aiter__(self) -> AsyncIterator[Delivery[R]]:
        """Messages in order."""
        ...


class PeerJoined(msgspec.Struct, frozen=True, kw_only=True):
    """A role connected, or came back as a new process."""

    peer: str  # key to send to; unique for one process of one role
    role: str  # "producer", "learner", "control"
    name: str  # "producer-0", ...


class PeerLeft(msgspec.Struct, frozen=True, kw_only=True):
    """A role said goodbye, or was silent for too long. What it held is nobody's now."""

    peer: str  # the key
    reason: str  # for the log


class Received(msgspec.Struct, Generic[R], frozen=True, kw_only=True, eq=False):
    """A message of one peer."""

    peer: str  # who sent it
    message: R  # typed
    ack: Callable[[], None]  # as in `Delivery`


class Hub(Protocol[S_contra, R]):
    """The orchestrator's end of all links."""

    async def send(self, peer: str, message: S_contra) -> None:
        """Queue a message for one peer; waits for credit. Raises `LinkError` if the peer has left."""
        ...

    def __aiter__(self) -> AsyncIterator[PeerJoined | PeerLeft | Received[R]]:
        """Events of all peers, in order for each peer."""
        ...


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One turn to sample: ids in, ids out."""

    prompt_ids: IntArray  # [tokens] the whole history so far
    max_tokens: int  # sample at most this many
    temperature: float  # 0 = greedy
    stop_token_ids: tuple[int, ...]  # sampling ends with (and includes) one of these
    seed: int | None = None  # None: the engine's own stream
    affinity: str = ""  # requests with one affinity share a prefix (the group id)


class GenerateResult(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What was sampled. Log-probabilities are those of the distribution sampled from (temperature included)."""

    token_ids: IntArray  # [sampled]
    logprobs: FloatArray  # [sampled]
    spans: tuple[VersionSpan, ...]  # counts sum to `sampled`
    cut: bool  # the token limit came before a stop token


@runtime_checkable
class Generator(Protocol):
    """Samples from the policy and takes new weights while it does.

    `generate` raises `GenerationFailed`; `update` raises `WeightsRejected` and then the generator must not be used
    again. Many `generate` calls run at once; `update` may come at any moment between their tokens.
    """

    @property
    def engine(self) -> str:
        """Name for logs: "vllm", "transformers", "scripted"."""
        ...

    @property
    def version(self) -> int:
        """Version of the weights that are live."""
        ...

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample one turn."""
        ...

    async def update(self, manifest: WeightsManifest) -> UpdateReport:
        """Pause, load, check the fingerprint, set the version, resume (always)."""
        ...

    async def aclose(self) -> None:
        """Release processes and memory."""
        ...


class Environment(Protocol):
    """A world, inside a worker process. Plain blocking calls; one episode at a time."""

    def reset(self, task: Task, seed: int) -> Observation:
        """Begin an episode. The same task and seed give the same world."""
        ...

    def step(self, action: str) -> StepResult:
        """Act. An action that is not understood is answered with `valid=False`, never with an exception."""
        ...

    def close(self) -> None:
        """Release what the episode holds."""
        ...


class CountsTasks(Protocol):
    """What a world may offer besides `Environment`, when its tasks are finite in number.

    An evaluation then asks for no more held-out tasks than there are. The constructor must have found the count out:
    it is asked once, before the first episode.
    """

    def num_tasks(self, split: Split) -> int | None:
        """Tasks in the split, whose indices are 0 to one less; None: as many as anyone asks for."""
        ...


class Prepares(Protocol):
    """What a world may offer besides `Environment`, when its episodes share something that takes time to start."""

    def prepare(self) -> int:
        """Start it; called once in a worker process, before its first episode and within the time to get ready.

        Returns how many episodes may be open in this process at once, further ones wait; 0: any number.
        """
        ...


class EnvironmentSession(Protocol):
    """One episode as the producer sees it: the same calls, awaited. Both raise `EnvironmentFailed`."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the episode."""
        ...

    async def step(self, action: str) -> StepResult:
        """Act."""
        ...

    async def aclose(self) -> None:
        """Give the place back."""
        ...


class EnvironmentPool(Protocol):
    """Hands out episodes over worker processes."""

    async def open(self, environment: str) -> EnvironmentSession:
        """A place for one episode of the named environment."""
        ...


class Judge(Protocol):
    """Decides about one trajectory. Never raises for a judge's fault: it abstains."""

    async def tag(self, trajectory: Trajectory) -> Verdict:
        """All tags of this trajectory, for the whole vocabulary."""
        ...

    async def score(self, trajectory: Trajectory, criteria: tuple[str, ...]) -> Scores:
        """How far this trajectory satisfies each of some written criteria, 0 to 1; missing scores are None."""
        ...
