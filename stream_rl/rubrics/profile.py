"""A group's behaviour as a vector: how often each rubric was shown and broken by its tagged rollouts. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from stream_rl.types import Verdict

Float64 = npt.NDArray[np.float64]


class GroupProfile(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Rates over the tagged rollouts of one group.

    A rubric that is abstained on, or not applicable, adds to neither rate; a rollout with every rubric abstained
    counts as untagged and is left out of the denominator.
    """

    positive: Float64  # [num_rubrics] share of tagged rollouts tagged positive
    violation: Float64  # [num_rubrics] share tagged as a violation
    positive_counts: npt.NDArray[np.int64]  # [num_rubrics] tagged rollouts that showed it
    num_tagged: int  # rollouts behind the rates

    @property
    def vector(self) -> Float64:
        """[2 * num_rubrics] both rates, L2-normalised; zeros for a group without a tag."""
        return normalise(np.concatenate([self.positive, self.violation]))


def profile(verdicts: Sequence[Verdict], rubric_ids: Sequence[str]) -> GroupProfile:
    """Rates per rubric over `verdicts` (one a rollout). ALGORITHMS: mean positive and mean violation rate."""
    index = {rubric: i for i, rubric in enumerate(rubric_ids)}
    positive = np.zeros(len(index), np.int64)
    violation = np.zeros(len(index), np.int64)
    tagged = [verdict for verdict in verdicts if not verdict.abstained]
    for verdict in tagged:
        for tag in verdict.tags:
            if tag.value == "positive":
                positive[index[tag.rubric]] += 1
            elif tag.value == "violation":
                violation[index[tag.rubric]] += 1
    scale = 1.0 / max(1, len(tagged))
    return GroupProfile(
        positive=positive.astype(np.float64) * scale,
        violation=violation.astype(np.float64) * scale,
        positive_counts=positive,
        num_tagged=len(tagged),
    )


def normalise(vector: Float64) -> Float64:
    """`vector` of length 1, or zeros for a zero vector."""
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm > 0 else np.zeros_like(vector)


def hint_rubrics(group: GroupProfile, rubric_ids: Sequence[str], *, support: int, top_k: int) -> tuple[str, ...]:
    """Positive rubrics for the teacher: seen in at least `support` rollouts, the `top_k` most frequent.

    Ties keep vocabulary order, so the hint does not depend on the order in which verdicts came.
    """
    order = sorted(range(len(rubric_ids)), key=lambda i: (-int(group.positive_counts[i]), i))
    return tuple(rubric_ids[i] for i in order if group.positive_counts[i] >= support)[:top_k]
