"""Selected groups become training rows: one row for each token sequence of each valid trajectory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
import numpy as np

from learner.advantages import Advantages, turn_advantages
from learner.members import member_of
from stream_rl.config import Algorithm
from stream_rl.messages import SelectedGroup
from stream_rl.rubrics.guidance import with_guidance
from stream_rl.types import BoolArray, FloatArray, IntArray, Message, Sample, Trajectory


class HeadRenderer(Protocol):
    """The part of `stream_rl.renderer.Renderer` a teacher needs."""

    def head(self, messages: Sequence[Message], thinking: bool = False) -> list[int]:
        """Ids of the messages and of the opening of the assistant's turn, in which it may be about to think."""
        ...


class Row(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One token sequence to train on. `[tokens]` arrays share one length; token 0 is never a loss token."""

    group_id: str  # its group
    trajectory_id: str  # its trajectory
    lag: int  # updates between its oldest token and the parameters it trains
    token_ids: IntArray  # [tokens]
    loss_mask: BoolArray  # [tokens] True where the policy sampled the token
    behavior_logprobs: FloatArray  # [tokens] under the sampling policy
    advantages: FloatArray  # [tokens] 0 where the mask is False
    teacher_ids: IntArray | None = (
        None  # [teacher tokens] the same response after a head with the hint; None: no teacher
    )

    @property
    def num_loss_tokens(self) -> int:
        """Tokens the policy sampled."""
        return int(self.loss_mask.sum())

    @property
    def teacher_shift(self) -> int:
        """How much later every response token stands in `teacher_ids`."""
        return 0 if self.teacher_ids is None else len(self.teacher_ids) - len(self.token_ids)

    @property
    def padded_to(self) -> int:
        """Longest sequence any pass over this row needs, in tokens."""
        return max(len(self.token_ids), len(self.teacher_ids) if self.teacher_ids is not None else 0)


class Rows(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """All rows of one update, and what was left out of them."""

    rows: tuple[Row, ...]  # in group, member, sample order
    dropped_teachers: int = 0  # rows trained without the teacher's term: hint and response exceed the context


def build_rows(
    groups: Iterable[SelectedGroup],
    *,
    version: int,
    algorithm: Algorithm,
    renderer: HeadRenderer | None,
    max_model_len: int,
) -> Rows:
    """Rows of `groups` for parameters of `version`, with per-token advantages and teacher sequences.

    A turn's advantage (`turn_advantages`) stands on every loss token of the turn. The hint is rendered into the head,
    and every id after the head is kept, so teacher and student score the same response. `renderer` None: no teacher.
    Raises `ValueError` for a sample whose arrays do not fit together, or with a loss token that no turn sampled.
    """
    rows: list[Row] = []
    dropped = 0
    for group in groups:
        members = group.trajectories
        by_member = turn_advantages([member_of(trajectory) for trajectory in members], algorithm)
        for trajectory, by_turn in zip(members, by_member, strict=True):
            if not trajectory.valid:
                continue
            oldest = trajectory.oldest_version
            for number, sample in enumerate(trajectory.samples):
                _check(sample, trajectory)
                if not sample.loss_mask.any():
                    continue
                teacher = None
                if renderer is not None and group.hint is not None:
                    teacher = teacher_sequence(sample, group.hint, renderer)
                    if len(teacher) > max_model_len:
                        teacher = None
                        dropped += 1
                rows.append(
                    Row(
                        group_id=group.group_id,
                        trajectory_id=trajectory.id,
                        lag=0 if oldest is None else version - oldest,
                        token_ids=sample.token_ids,
                        loss_mask=sample.loss_mask,
                        behavior_logprobs=sample.behavior_logprobs,
                        advantages=_token_advantages(trajectory, number, by_turn),
                        teacher_ids=teacher,
                    )
                )
    return Rows(rows=tuple(rows), dropped_teachers=dropped)


def teacher_sequence(sample: Sample, hint: str, renderer: HeadRenderer) -> IntArray:
    """The head rendered again with `hint` in it, then the sample's own ids: those of the response never change.

    An empty hint gives the sample's ids back unless the renderer has changed since, which is an error.
    """
    head = renderer.head(with_guidance(sample.head, hint), sample.thinking)
    ids: IntArray = np.concatenate([np.asarray(head, dtype=np.int32), sample.token_ids[sample.head_tokens :]])
    if not hint and not np.array_equal(ids, sample.token_ids):
        raise ValueError(
            f"the head renders to {len(head)} ids here and to {sample.head_tokens} in the producer: "
            "learner and producer use different tokenizers or templates"
        )
    return ids


def _token_advantages(trajectory: Trajectory, number: int, by_turn: Advantages) -> FloatArray:
    sample = trajectory.samples[number]
    tokens = len(sample.token_ids)
    out = np.zeros(tokens, dtype=np.float32)
    sampled = np.zeros(tokens, dtype=np.bool_)
    for turn, advantage in zip(trajectory.turns, by_turn, strict=True):
        if turn.sample == number:
            if not 0 <= turn.start <= turn.stop <= tokens:
                raise ValueError(
                    f"trajectory {trajectory.id}: a turn samples tokens [{turn.start}, {turn.stop}) of "
                    f"sample {number}, which has {tokens}"
                )
            out[turn.start : turn.stop] = advantage
            sampled[turn.start : turn.stop] = True
    if unowned := int((sample.loss_mask & ~sampled).sum()):
        raise ValueError(f"trajectory {trajectory.id}: {unowned} loss tokens of sample {number} belong to no turn")
    return np.where(sample.loss_mask, out, np.float32(0.0))


def _check(sample: Sample, trajectory: Trajectory) -> None:
    tokens = len(sample.token_ids)
    where = f"trajectory {trajectory.id}"
    if not len(sample.loss_mask) == len(sample.behavior_logprobs) == tokens:
        raise ValueError(
            f"{where}: {tokens} ids, {len(sample.loss_mask)} mask entries and "
            f"{len(sample.behavior_logprobs)} log-probabilities"
        )
    if not 0 < sample.head_tokens <= tokens:
        raise ValueError(f"{where}: a head of {sample.head_tokens} tokens in a sequence of {tokens}")
    if sample.loss_mask[: sample.head_tokens].any():
        raise ValueError(f"{where}: the prompt's head of {sample.head_tokens} tokens holds loss tokens")
