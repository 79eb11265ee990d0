"""What new verdicts would have changed: agreement with the old ones, the groups selected, the hints told. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

import msgspec

from stream_rl.config import Algorithm
from stream_rl.observe.archive import ArchivedGroup
from stream_rl.orchestrator.selection import Candidate, select_mmr, select_rised
from stream_rl.rubrics.agreement import AgreementCounts, AgreementReport
from stream_rl.rubrics.profile import hint_rubrics, profile
from stream_rl.rubrics.tag_rates import TagCounts, TagRates
from stream_rl.types import Verdict

Method = Literal["rised", "mmr"]


class RejudgedGroup(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One group with its new verdicts, and the run's own where there are any."""

    group: ArchivedGroup  # as the run left it
    old: tuple[Verdict, ...]  # the run's verdicts
    new: tuple[Verdict, ...]  # on its valid rollouts
    complete: bool  # every valid rollout was judged again


class RoundChange(msgspec.Struct, frozen=True, kw_only=True):
    """The selection of one round under the new verdicts."""

    round: int  # its number
    candidates: int  # groups to choose from
    selected: int  # groups chosen, then and now
    added: tuple[str, ...]  # groups chosen now only
    removed: tuple[str, ...]  # groups chosen then only; as many

    @property
    def overlap(self) -> float:
        """Share of the run's own selection that would have been chosen again."""
        return 1.0 - len(self.removed) / self.selected


class HintChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Hints of the groups the run selected, under the new verdicts."""

    groups: int  # compared
    changed: tuple[str, ...]  # groups whose teacher would have been told something else


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """New verdicts against a run's own. None: nothing to compare."""

    rates: dict[str, dict[str, TagRates]]  # environment -> rubric -> new tags
    agreement: AgreementReport | None  # None: the run has no verdicts on these rollouts
    method: Method | None  # the selection that was made again; None with `rounds` empty
    rounds: tuple[RoundChange, ...]  # rounds that left candidates out, wholly judged again
    hints: HintChanges | None  # None: the run told no vocabulary rubrics to a teacher

    @property
    def overlap(self) -> float | None:
        """Mean over rounds."""
        return statistics.fmean(r.overlap for r in self.rounds) if self.rounds else None


class Comparing:
    """Takes rounds in as they are read, so that no more than one is in memory."""

    def __init__(self, algorithm: Algorithm, rubric_ids: Sequence[str]) -> None:
        """`algorithm`: the run's own. A run whose selection read no verdicts is compared with what RISED chooses."""
        self._algorithm = algorithm
        self._rubric_ids = rubric_ids
        self._method: Method = "mmr" if algorithm.selection == "mmr" else "rised"
        self._tags = TagCounts()
        self._agreement = AgreementCounts()
        self._rounds: list[RoundChange] = []
        self._hinted = algorithm.distillation != "none" and algorithm.rubrics == "vocabulary"
        self._hints = 0
        self._hints_changed: list[str] = []

    def add_round(self, groups: Sequence[RejudgedGroup]) -> None:
        """All groups of one round that were judged again, wholly or in part."""
        for rejudged in groups:
            self._add_verdicts(rejudged)
        candidates = [g for g in groups if g.group.candidate]
        selected = [g for g in candidates if g.group.selected]
        whole = all(g.complete for g in candidates) and any(g.old for g in candidates)
        if whole and 0 < len(selected) < len(candidates):
            self._rounds.append(self._select_again(candidates))
        if self._hinted:
            told = [g for g in selected if g.complete and g.old]
            self._hints += len(told)
            self._hints_changed += [g.group.group_id for g in told if self._hint(g) != g.group.hint]

    def result(self) -> Comparison:
        """What has been found."""
        agreement = self._agreement.report()
        return Comparison(
            rates=self._tags.rates(),
            agreement=agreement if agreement.verdicts else None,
            method=self._method if self._rounds else None,
            rounds=tuple(self._rounds),
            hints=HintChanges(groups=self._hints, changed=tuple(self._hints_changed)) if self._hints else None,
        )

    def _add_verdicts(self, rejudged: RejudgedGroup) -> None:
        old = {verdict.trajectory_id: verdict for verdict in rejudged.old}
        for verdict in rejudged.new:
            self._tags.add(rejudged.group.environment, verdict)
            if verdict.trajectory_id in old:
                self._agreement.add(old[verdict.trajectory_id], verdict)

    def _select_again(self, candidates: Sequence[RejudgedGroup]) -> RoundChange:
        then = {g.group.group_id for g in candidates if g.group.selected}
        now = set(self._choose(candidates, len(then)))
        return RoundChange(
            round=candidates[0].group.round,
            candidates=len(candidates),
            selected=len(then),
            added=tuple(sorted(now - then)),
            removed=tuple(sorted(then - now)),
        )

    def _choose(self, candidates: Sequence[RejudgedGroup], count: int) -> list[str]:
        pool = [
            Candidate(
                group_id=g.group.group_id,
                environment=g.group.environment,
                vector=profile(g.new, self._rubric_ids).vector,
                reward_std=0.0,  # neither method reads it
            )
            for g in candidates
        ]
        redundancy = self._algorithm.redundancy
        if self._method == "mmr":
            return select_mmr(pool, count, redundancy=redundancy)
        return select_rised(pool, count, redundancy=redundancy, rotation=candidates[0].group.round)

    def _hint(self, rejudged: RejudgedGroup) -> tuple[str, ...] | None:
        found = hint_rubrics(
            profile(rejudged.new, self._rubric_ids),
            self._rubric_ids,
            support=self._algorithm.hint_support,
            top_k=self._algorithm.hint_top_k,
        )
        return found or None
