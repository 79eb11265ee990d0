"""Selected groups become training rows: one row for each token sequence of each valid trajectory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
import numpy as np

from learner.advantages import Estimator
from stream_rl.messages import SelectedGroup
from stream_rl.rubrics.guidance import with_guidance
from stream_rl.types import BoolArray, FloatArray, IntArray, Message, Sample, Trajectory


class HeadRenderer(Protocol):
    """The part of `stream_rl.renderer.Renderer` a teacher needs."""

    def head(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the messages and of the opening of the assistant's turn."""
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

    @property
    def has_signal(self) -> bool:
        """Whether the policy gradient or the teacher can move a parameter because of this row."""
        return bool(self.advantages.any()) or self.teacher_ids is not None


class Rows(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """All rows of one update, and what was left out of them."""

    rows: tuple[Row, ...]  # in group, member, sample order
    dropped_teachers: int = 0  # rows trained without the teacher's term: hint and response exceed the context


def build_rows(
    groups: Iterable[SelectedGroup],
    *,
    version: int,
    estimator: Estimator,
    invalid_action_penalty: float,
    renderer: HeadRenderer | None,
    max_model_len: int,
) -> Rows:
    """Rows of `groups` for parameters of `version`, with per-token advantages and teacher sequences.

    Group statistics run over valid trajectories, before the penalty. The hint is rendered into the head, and every id
    after the head is kept, so teacher and student score the same response. `renderer` None: no teacher at all.
    Raises `ValueError` for a sample whose arrays do not fit together.
    """
    rows: list[Row] = []
    dropped = 0
    for group in groups:
        members = group.trajectories
        advantages = estimator([t.reward for t in members], [t.valid for t in members])
        for trajectory, advantage in zip(members, advantages.tolist(), strict=True):
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
                        advantages=_token_advantages(trajectory, number, advantage, invalid_action_penalty),
                        teacher_ids=teacher,
                    )
                )
    return Rows(rows=tuple(rows), dropped_teachers=dropped)


def teacher_sequence(sample: Sample, hint: str, renderer: HeadRenderer) -> IntArray:
    """The head rendered again with `hint` in it, then the sample's own ids: those of the response never change.

    An empty hint gives the sample's ids back unless the renderer has changed since, which is an error.
    """
    head = renderer.head(with_guidance(sample.head, hint))
    ids: IntArray = np.concatenate([np.asarray(head, dtype=np.int32), sample.token_ids[sample.head_tokens :]])
    if not hint and not np.array_equal(ids, sample.token_ids):
        raise ValueError(
            f"the head renders to {len(head)} ids here and to {sample.head_tokens} in the producer: "
            "learner and producer use different tokenizers or templates"
        )
    return ids


def _token_advantages(trajectory: Trajectory, number: int, advantage: float, penalty: float) -> FloatArray:
    sample = trajectory.samples[number]
    out = np.where(sample.loss_mask, np.float32(advantage), np.float32(0.0)).astype(np.float32)
    if penalty:
        for turn in trajectory.turns:
            if turn.sample == number and not turn.valid:
                span = slice(turn.start, turn.stop)
                out[span] -= np.float32(penalty) * sample.loss_mask[span]
    return out


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
