"""One rollout as people read it: turns, what was decided about it, and its tokens with what they were worth. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from stream_rl.types import Trajectory, Turn, Verdict

Pieces = Callable[[Sequence[int]], list[str]]  # token ids to the text of each


class ShownToken(msgspec.Struct, frozen=True, kw_only=True):
    """A sampled token."""

    text: str  # as the tokenizer writes it
    logprob: float  # under the policy that sampled it, nats
    version: int  # of that policy


class ShownTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn."""

    action: str  # what the world was given
    observation: str  # its answer
    valid: bool  # the world understood the action
    cut: bool  # the token limit came first
    reward: float  # of this step
    advantage: float | None  # of every token of this turn, before any teacher's part; None: not known
    versions: tuple[int, ...]  # policies that sampled it
    tokens: tuple[ShownToken, ...]  # empty where the record or the tokenizer is not there


class ShownTag(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's decision about one behaviour."""

    rubric: str  # id
    value: str  # "positive", "violation", "not_applicable" or "abstained"
    reason: str  # the judge's words


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout with everything that is known about it."""

    id: str  # "<group id>/<member>"
    group: str  # its group
    environment: str  # world
    task: str  # task id
    prompt: str  # the world's first words
    guidance: tuple[str, ...]  # rubrics shown to it
    hint: tuple[str, ...]  # told to its teacher
    success: bool  # outcome
    reward: float  # sum of step rewards
    score: float  # the world's graded score
    error: str | None  # why it is invalid
    seconds: float  # wall time
    turns: tuple[ShownTurn, ...]  # in order
    tags: tuple[ShownTag, ...]  # decided ones first, abstained ones last
    judge: str  # model that decided; empty without a verdict


_ORDER = {"violation": 0, "positive": 1, "not_applicable": 2, "abstained": 3}


def episode(
    trajectory: Trajectory,
    *,
    advantages: Sequence[float] | None,
    verdict: Verdict | None,
    hint: tuple[str, ...],
    pieces: Pieces | None,
) -> Episode:
    """`advantages`: one a turn, None when they are not known. `pieces` None: tokens are not shown."""
    tags = verdict.tags if verdict else ()
    return Episode(
        id=trajectory.id,
        group=trajectory.group_id,
        environment=trajectory.task.environment,
        task=trajectory.task.id,
        prompt=trajectory.first_prompt,
        guidance=trajectory.guidance,
        hint=hint,
        success=trajectory.success,
        reward=trajectory.reward,
        score=trajectory.score,
        error=trajectory.error,
        seconds=trajectory.seconds,
        turns=tuple(
            ShownTurn(
                action=turn.action,
                observation=turn.observation,
                valid=turn.valid,
                cut=turn.cut,
                reward=turn.reward,
                advantage=None if advantages is None else advantages[number],
                versions=tuple(dict.fromkeys(span.version for span in turn.spans)),
                tokens=_tokens(trajectory, turn, pieces) if pieces else (),
            )
            for number, turn in enumerate(trajectory.turns)
        ),
        tags=tuple(
            ShownTag(rubric=tag.rubric, value=tag.value, reason=tag.reason)
            for tag in sorted(tags, key=lambda tag: _ORDER[tag.value])
        ),
        judge=verdict.model if verdict else "",
    )


def pieces_by(decode: Callable[[list[int]], str]) -> Pieces:
    """The text each token adds to the one before it: a tokenizer writes a space only between two.

    >>> pieces_by(lambda ids: " ".join(map(str, ids)))([4, 5])
    ['4', ' 5']
    """

    def pieces(token_ids: Sequence[int]) -> list[str]:
        texts = []
        for place, token_id in enumerate(token_ids):
            before = decode([token_ids[place - 1]]) if place else ""
            both = decode([*token_ids[max(0, place - 1) : place], token_id])
            # Halves of one character are written otherwise together than alone: then the token stands for itself.
            texts.append(both[len(before) :] if both.startswith(before) else decode([token_id]))
        return texts

    return pieces


def _tokens(trajectory: Trajectory, turn: Turn, pieces: Pieces) -> tuple[ShownToken, ...]:
    if turn.sample >= len(trajectory.samples):
        return ()
    sample = trajectory.samples[turn.sample]
    texts = pieces(sample.token_ids[turn.start : turn.stop].tolist())
    logprobs = sample.behavior_logprobs[turn.start : turn.stop].tolist()
    versions = [span.version for span in turn.spans for _ in range(span.num_tokens)]
    return tuple(
        ShownToken(text=text, logprob=logprob, version=version)
        for text, logprob, version in zip(texts, logprobs, versions, strict=True)
    )
