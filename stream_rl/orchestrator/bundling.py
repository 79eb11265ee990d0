"""ORSD's middle: from written bundles to the one the teacher is told. Owns the rubric banks; else pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stream_rl.config import Config
from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.offer import Offer
from stream_rl.rubrics.alignment import Alignment, choose_bundle, satisfaction, spearman
from stream_rl.rubrics.bank import RubricBank
from stream_rl.types import Writing


class Bundling:
    """Offers bundles, says what has to be scored, and chooses once the scores are in."""

    def __init__(self, config: Config) -> None:
        self._algorithm = config.algorithm
        self._seed = config.seed
        self._scores = config.needs_scores
        self._elsewhere = config.learner_chooses
        names = [e.name for e in config.environments] if config.algorithm.rubric_bank else []
        self._banks = {name: RubricBank() for name in names}

    def offer(self, flight: Flight, writing: Writing) -> Offer:
        """What is on offer to a produced group. Where all outcomes are equal nothing aligns: no verifier is asked."""
        bundles = writing.bundles
        bank = self._banks.get(flight.row.task.environment)
        banked = bank.propose(flight.row.round) if bank is not None else None
        if banked:
            bundles = (*bundles, banked)
        outcomes = {t.reward for t in flight.valid}
        return Offer(
            bundles=bundles,
            banked=bool(banked),
            malformed=writing.malformed,
            omitted_turns=writing.omitted_turns,
            asked=self._scores and bool(bundles) and len(outcomes) > 1,
        )

    def choose(self, flight: Flight) -> Alignment | None:
        """The bundle this group's teacher is told; None when no bundles were asked for, or the learner chooses."""
        offer = flight.offer
        if offer is None or self._elsewhere:
            return None
        members = flight.valid
        outcomes = [t.reward for t in members]
        by_criterion = criterion_scores(flight, offer.criteria)
        satisfied = [
            [satisfaction([by_criterion[c][m] for c in bundle]) for m in range(len(members))]
            for bundle in offer.bundles
        ]
        return choose_bundle(
            satisfied,
            outcomes,
            choice=self._algorithm.bundle_choice,
            min_rho=self._algorithm.min_rho,
            seed=self._seed,
            group_id=flight.group_id,
        )

    def learn(self, flight: Flight) -> None:
        """Let the bank take in how this group's criteria went with its outcomes. Once for each group."""
        bank = self._banks.get(flight.row.task.environment)
        if bank is None or flight.offer is None:
            return
        outcomes = [t.reward for t in flight.valid]
        by_criterion = criterion_scores(flight, flight.offer.criteria)
        bank.observe(list(by_criterion), [spearman(s, outcomes) for s in by_criterion.values()], flight.row.round)

    def states(self) -> Iterable[tuple[str, str]]:
        """Key and text of each bank, for the ledger."""
        return ((f"bank/{name}", bank.state()) for name, bank in self._banks.items())

    def restore(self, texts: Mapping[str, str | None]) -> None:
        """Go on from `states`."""
        for name, bank in self._banks.items():
            bank.restore(texts.get(f"bank/{name}"))

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of what `restore` needs."""
        return tuple(f"bank/{name}" for name in self._banks)


def criterion_scores(flight: Flight, criteria: tuple[str, ...]) -> dict[str, list[float | None]]:
    """Scores of each criterion over the valid members, in member order; None where there is none."""
    out: dict[str, list[float | None]] = {c: [] for c in criteria}
    for trajectory in flight.valid:
        scores = flight.scores.get(trajectory.id)
        values = scores.scores if scores is not None else (None,) * len(criteria)
        for criterion, value in zip(criteria, values, strict=True):
            out[criterion].append(value)
    return out
