"""A scripted judge."""

from __future__ import annotations

import random

import anyio

from stream_rl.types import Scores, Tag, Trajectory, Verdict
from tests.unit.orchestrator.virtual.schedule import Schedule, about
from tests.unit.records import RUBRICS


class ScriptedJudge:
    """Answers late, abstains, and is out for a while."""

    def __init__(self, schedule: Schedule, life: int) -> None:
        self._weather = schedule.weather
        self._rng = random.Random(f"judge/{life}/{schedule.seed}")

    async def tag(self, trajectory: Trajectory) -> Verdict:
        """All rubrics, or none."""
        if not await self._answers():
            return Verdict(trajectory_id=trajectory.id, tags=tuple(Tag(rubric=r, value="abstained") for r in RUBRICS))
        abstains = self._rng.random() < self._weather.abstains_p
        tags = tuple(
            Tag(rubric=r, value="abstained" if abstains else self._rng.choice(("positive", "violation")))
            for r in RUBRICS
        )
        return Verdict(trajectory_id=trajectory.id, tags=tags, endpoint="http://judge")

    async def score(self, trajectory: Trajectory, criteria: tuple[str, ...]) -> Scores:
        """All criteria, or none."""
        if not await self._answers():
            return Scores(trajectory_id=trajectory.id, scores=(None,) * len(criteria))
        abstains = self._rng.random() < self._weather.abstains_p
        scores = tuple(None if abstains else self._rng.random() for _ in criteria)
        return Scores(trajectory_id=trajectory.id, scores=scores, endpoint="http://judge")

    async def _answers(self) -> bool:
        await anyio.sleep(about(self._rng, self._weather.judge_s))
        begin, end = self._weather.judge_out
        return not begin <= anyio.current_time() < end
