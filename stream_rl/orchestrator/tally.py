"""Numbers between two updates, and the metrics line they become (DESIGN: run directory contract)."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.staleness import histograms, origins
from stream_rl.types import Scores, Trajectory, Verdict, Writing


class Episode(NamedTuple):
    """What is compared between rollouts that count and rollouts that were cut off."""

    turns: int  # answers sampled
    tokens: int  # sampled
    reward: float  # earned until then


class Tally:
    """Counts what happens; `line` merges it with the learner's numbers and starts again."""

    def __init__(self, prices: Mapping[str, tuple[float, float]] | None = None) -> None:
        """`prices`: per million prompt and completion tokens, by endpoint address."""
        self._prices = dict(prices or {})
        self._reset()

    def _reset(self) -> None:
        self.discarded: Counter[str] = Counter()
        self.generated_tokens = 0
        self.discarded_tokens = 0
        self.discarded_rollouts: Counter[str] = Counter()
        self.rerolled_attempts: Counter[str] = Counter()
        self.deferred = 0
        self.kept: list[Episode] = []
        self.cut: list[Episode] = []
        self.judge = {"prompt": 0, "completion": 0}
        self.judge_price = 0.0
        self.judge_seconds: list[float] = []
        self.abstained_tags = 0
        self.tags = 0
        self.missing_scores = 0
        self.scores = 0
        self.writing_tokens = 0
        self.malformed_bundles = 0
        self.bundles = 0
        self.roles: dict[str, Counter[str]] = {}
        self.slots: dict[str, Counter[str]] = {}
        self.cpu_s: Counter[str] = Counter()

    def trajectory(self, trajectory: Trajectory) -> None:
        """A training rollout came back."""
        self.generated_tokens += trajectory.num_sampled_tokens
        episode = Episode(len(trajectory.turns), trajectory.num_sampled_tokens, trajectory.reward)
        (self.kept if trajectory.valid else self.cut).append(episode)

    def judged(self, answer: Verdict | Scores) -> None:
        """A judging ended."""
        self.judge["prompt"] += answer.prompt_tokens
        self.judge["completion"] += answer.completion_tokens
        price_in, price_out = self._prices.get(answer.endpoint, (0.0, 0.0))
        self.judge_price += (answer.prompt_tokens * price_in + answer.completion_tokens * price_out) / 1e6
        self.judge_seconds.append(answer.seconds)
        if isinstance(answer, Verdict):
            self.tags += len(answer.tags)
            self.abstained_tags += sum(tag.value == "abstained" for tag in answer.tags)
        else:
            self.scores += len(answer.scores)
            self.missing_scores += sum(score is None for score in answer.scores)

    def writing(self, writing: Writing) -> None:
        """The policy wrote bundles about a group."""
        self.writing_tokens += writing.prompt_tokens + writing.sampled_tokens
        self.bundles += len(writing.bundles)
        self.malformed_bundles += writing.malformed

    def discard(self, flight: Flight, reason: str) -> None:
        """A group will never be trained."""
        self.discarded[reason] += 1
        self.discarded_rollouts[reason] += len(flight.trajectories)
        self.discarded_tokens += flight.sampled_tokens

    def rerolled(self, attempts: Mapping[str, int], tokens: int) -> None:
        """Attempts at rollouts of a group that were dropped and made again, by reason, and their tokens."""
        self.rerolled_attempts.update(attempts)
        self.generated_tokens += tokens
        self.discarded_tokens += tokens

    def lost(self, flight: Flight) -> None:
        """What a lost producer had sent of a group is dropped; the group itself is leased again."""
        self.discarded_tokens += flight.sampled_tokens

    def role_states(self, name: str, states: Mapping[str, float]) -> None:
        """Seconds a role spent in each state."""
        self.roles.setdefault(name, Counter()).update(states)

    def slot_states(self, name: str, states: Mapping[str, float]) -> None:
        """Slot-seconds of a role that does many things at once, by state."""
        self.slots.setdefault(name, Counter()).update(states)

    def cpu(self, seconds: Mapping[str, float]) -> None:
        """CPU seconds that roles used, by role."""
        self.cpu_s.update(seconds)

    def line(
        self, *, step: int, candidates: Sequence[Flight], trained: Sequence[Flight], learner: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The metrics line of update `step`. `learner` is its part as reported, waits already attributed."""
        lags = [flight.lag for flight in trained]
        by_env: dict[str, list[float]] = {}
        for flight in candidates:
            by_env.setdefault(flight.row.task.environment, []).append(flight.success_rate)
        turns = [turn for flight in candidates for t in flight.valid for turn in t.turns]
        num_turns = max(1, len(turns))
        rewards = [t.reward for flight in candidates for t in flight.valid]
        episode_turns = [len(t.turns) for flight in candidates for t in flight.valid]
        tokens = {
            "generated": self.generated_tokens,
            "discarded": self.discarded_tokens,
            "judge": self.judge["prompt"] + self.judge["completion"],
            "judge_prompt": self.judge["prompt"],
            "judge_completion": self.judge["completion"],
            "writing": self.writing_tokens,
            **learner.get("tokens", {}),
        }
        self.cpu(learner.get("cpu_s", {}))
        line = {
            **{key: value for key, value in learner.items() if key not in ("tokens", "cpu_s")},
            "step": step,
            "version": step + 1,
            "groups": {
                "candidate": len(candidates),
                "selected": len(trained),
                "discarded": dict(sorted(self.discarded.items())),
                "deferred": self.deferred,
            },
            "success": {
                "train": statistics.fmean([x for rates in by_env.values() for x in rates]) if by_env else None,
                "by_env": {name: statistics.fmean(rates) for name, rates in sorted(by_env.items())},
            },
            "by_env": _by_environment(candidates, trained),
            "reward_mean": statistics.fmean(rewards) if rewards else None,
            "lag": {
                "max": max(lags, default=0),
                "mean": statistics.fmean(lags) if lags else 0.0,
                "histogram": {str(lag): n for lag, n in sorted(Counter(lags).items())},
                "by_origin": histograms(map(_origins, trained)),
            },
            "zero_variance": {
                "all_pass": _share(candidates, lambda f: f.success_rate == 1.0),
                "all_fail": _share(candidates, lambda f: f.success_rate == 0.0),
            },
            "turns_mean": statistics.fmean(episode_turns) if episode_turns else None,
            "invalid_action_share": sum(not turn.valid for turn in turns) / num_turns,
            "cut_share": sum(turn.cut for turn in turns) / num_turns,
            "rollouts": {
                "discarded": dict(sorted(self.discarded_rollouts.items())),
                "rerolled": dict(sorted(self.rerolled_attempts.items())),
            },
            "invalid_trajectories": len(self.cut),
            "cut": {"kept": episode_means(self.kept), "cut": episode_means(self.cut)},
            "judge": {
                "seconds_mean": statistics.fmean(self.judge_seconds) if self.judge_seconds else None,
                "abstained_share": self.abstained_tags / self.tags if self.tags else None,
                "missing_scores_share": self.missing_scores / self.scores if self.scores else None,
                "price": self.judge_price,
            },
            **({"orsd": self._orsd(candidates)} if any(f.offer for f in candidates) else {}),
            "roles": {name: dict(sorted(states.items())) for name, states in sorted(self.roles.items())},
            "slots": {name: dict(sorted(states.items())) for name, states in sorted(self.slots.items())},
            "tokens": tokens,
            "cost": {"cpu_s": dict(sorted(self.cpu_s.items()))},
        }
        self._reset()
        return line

    def _orsd(self, candidates: Sequence[Flight]) -> dict[str, Any]:
        """How well written bundles aligned, over the candidates of a round."""
        found = [f.alignment for f in candidates if f.alignment is not None]
        banked = [f.alignment.index == len(f.offer.bundles) - 1 for f in candidates
                  if f.offer and f.offer.banked and f.alignment and f.alignment.index is not None]  # fmt: skip
        written = self.bundles + self.malformed_bundles
        return {
            "rho_mean": _mean([a.rho for a in found if a.index is not None and a.rho is not None]),
            "undefined_share": _mean([a.reason == "undefined" for a in found]),
            "taught_share": _mean([a.index is not None for a in found]),
            "malformed_share": self.malformed_bundles / written if written else None,
            "bank_share": _mean(banked),
            "omitted_turns_mean": _mean([f.offer.omitted_turns for f in candidates if f.offer]),
        }


def _origins(flight: Flight) -> dict[str, int]:
    """Where its lag arose; a group without a token has none."""
    round_ = flight.row.round
    return origins(round_ if flight.oldest_version is None else flight.oldest_version, flight.stamps, round_)


def _by_environment(candidates: Sequence[Flight], trained: Sequence[Flight]) -> dict[str, dict[str, Any]]:
    """What the candidates of each environment did, and how many of them were trained."""
    selected = Counter(flight.row.task.environment for flight in trained)
    flights: dict[str, list[Flight]] = {}
    for flight in candidates:
        flights.setdefault(flight.row.task.environment, []).append(flight)
    out = {}
    for name, group in sorted(flights.items()):
        episodes = [t for flight in group for t in flight.valid]
        out[name] = {
            "candidate": len(group),
            "selected": selected[name],
            "reward_mean": _mean([t.reward for t in episodes]),
            "turns_mean": _mean([len(t.turns) for t in episodes]),
            "invalid_action_share": _mean([not turn.valid for t in episodes for turn in t.turns]),
        }
    return out


def episode_means(episodes: Sequence[Episode]) -> dict[str, float | None]:
    """How long episodes were and what they earned, in the mean; None without any."""
    turns, tokens, rewards = zip(*episodes, strict=True) if episodes else ((), (), ())
    return {"turns": _mean(turns), "tokens": _mean(tokens), "reward": _mean(rewards)}


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _share(flights: Sequence[Flight], test: Any) -> float:
    return sum(bool(test(flight)) for flight in flights) / max(1, len(flights))
