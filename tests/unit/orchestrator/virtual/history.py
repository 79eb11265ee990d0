"""What outlives the processes of a run."""

from __future__ import annotations

import msgspec

from stream_rl.messages import SelectedGroup, TrainLease


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """What the learner did with one round."""

    update: int
    trained: tuple[SelectedGroup, ...]


class History:
    """What the roles did over all lives of the run. What is written here is on disk: it outlives every process."""

    def __init__(self) -> None:
        self.leases: list[TrainLease] = []
        self.updates: list[Update] = []
        self.checkpoints = {0}  # versions the learner can start from
        self.finished: list[str] = []  # roles of this life that were told of its end
        self.deepest = 0  # the largest async depth that was ever in force

    @property
    def last_updates(self) -> dict[int, Update]:
        """By round. One that was lost with its checkpoint was done again, and the last time counts."""
        return {update.update: update for update in self.updates}

    @property
    def newest(self) -> int:
        """Version of the newest checkpoint."""
        return max(self.checkpoints)
