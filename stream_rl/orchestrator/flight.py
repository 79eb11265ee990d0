"""A group between its lease and its end, as the orchestrator holds it in memory."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Literal

from stream_rl.orchestrator.ledger import GroupRow
from stream_rl.orchestrator.offer import Offer
from stream_rl.orchestrator.staleness import Stamps
from stream_rl.rubrics.alignment import Alignment
from stream_rl.types import Scores, Trajectory, Verdict

Stage = Literal["waiting", "leased", "produced", "candidate", "selected", "unselected"]


@dataclass(kw_only=True)
class Flight:
    """One group. `stage` mirrors the ledger ("waiting": to be leased again; "unselected": keeps its permit only)."""

    row: GroupRow
    stage: Stage
    producer: str | None = None  # peer that holds the lease
    trajectories: dict[str, Trajectory] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    offer: Offer | None = None  # rubric bundles the policy wrote; None: it was not asked to
    scores: dict[str, Scores] = field(default_factory=dict)  # of the offer's criteria, by trajectory
    alignment: Alignment | None = None  # which bundle the teacher is told, once every score is in
    produced_s: float = 0.0  # when its last rollout ended
    judged_s: float = 0.0  # when its last verdict came
    stamps: Stamps = field(default_factory=Stamps)  # which versions there were when it passed its phases
    hint: tuple[str, ...] | None = None  # rubric ids or written criteria for the teacher, once selected

    @property
    def group_id(self) -> str:
        """The group's id."""
        return self.row.group_id

    @property
    def valid(self) -> list[Trajectory]:
        """Valid members, by member number."""
        return sorted((t for t in self.trajectories.values() if t.valid), key=lambda t: t.member)

    @property
    def oldest_version(self) -> int | None:
        """Version of the oldest token of any valid member."""
        versions = [t.oldest_version for t in self.valid]
        return min((v for v in versions if v is not None), default=None)

    @property
    def newest_version(self) -> int | None:
        """Version of the newest token of any valid member."""
        return max((span.version for t in self.valid for turn in t.turns for span in turn.spans), default=None)

    @property
    def lag(self) -> int:
        """Updates between its oldest token and the version that trains it (its round's)."""
        oldest = self.oldest_version
        return 0 if oldest is None else self.row.round - oldest

    @property
    def unjudged(self) -> list[Trajectory]:
        """Valid members without a verdict."""
        return [t for t in self.valid if t.id not in self.verdicts]

    @property
    def unscored(self) -> list[Trajectory]:
        """Valid members whose written criteria still have to be scored."""
        asked = self.offer is not None and self.offer.asked
        return [t for t in self.valid if t.id not in self.scores] if asked else []

    def forget(self) -> None:
        """Drop everything its rollouts brought: the group will be rolled out again."""
        self.trajectories.clear()
        self.verdicts.clear()
        self.scores.clear()
        self.offer = None

    @property
    def success_rate(self) -> float:
        """Mean raw outcome of the valid members."""
        return statistics.fmean(float(t.success) for t in self.valid)

    @property
    def reward_std(self) -> float:
        """Spread of the raw outcome over the valid members, unbiased; 0 for one member."""
        outcomes = [t.reward for t in self.valid]
        return statistics.stdev(outcomes) if len(outcomes) > 1 else 0.0

    @property
    def sampled_tokens(self) -> int:
        """Tokens generated for it, invalid members included."""
        return sum(t.num_sampled_tokens for t in self.trajectories.values())
