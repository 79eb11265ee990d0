"""The discrete-event model of a run: who waits for whom, in virtual time.

Groups are admitted by the orchestrator's own gate. Producers play rollouts (processor sharing), judges answer (a
queue), the learner trains complete rounds, new weights pause the generators and open the next round. Left out: failures
and restarts, hedging and second opinions, the deadline of a group, memory.
"""

from __future__ import annotations

import msgspec
import numpy as np

from stream_rl.config import Config
from stream_rl.simulate.episodes import WorldMix, coarse, environment_times, episodes, grain
from stream_rl.simulate.generators import Paces
from stream_rl.simulate.judges import judges_of
from stream_rl.simulate.learner import Learner
from stream_rl.simulate.machine import Machine
from stream_rl.simulate.pace import turn_cycle_s
from stream_rl.simulate.prediction import Prediction
from stream_rl.simulate.profile import Profile
from stream_rl.simulate.rounds import Group, Rounds
from stream_rl.simulate.schedule import Due, Schedule
from stream_rl.simulate.work import update_work


def simulate(config: Config, profile: Profile, *, updates: int | None = None, seed: int | None = None) -> Prediction:
    """Predict a run of `config` with the service times of `profile`. Pure and deterministic.

    updates, seed: the configuration's, where not given

    Raises `ConfigError` when the profile does not know one of the configuration's worlds.
    """
    return Model(
        config,
        profile,
        updates=config.updates if updates is None else updates,
        seed=config.seed if seed is None else seed,
    ).run()


class Model:
    """One simulation. `run` may be called once."""

    def __init__(self, config: Config, profile: Profile, *, updates: int, seed: int) -> None:
        worlds = environment_times(config, profile)
        generator = profile.generator
        self._config, self._profile, self._updates = config, profile, updates
        self._grain = grain(config, worlds, updates, seed)
        self._turns = episodes(config, worlds, seed, spread=generator.spread)
        self._draws = np.random.default_rng([seed, 1])
        tokens = generator.turn_tokens
        self._writing = [config.algorithm.bundle_tokens / tokens if tokens else 1.0] * config.written_bundles
        mix = WorldMix.of(config, worlds)
        paces = Paces(
            lambda n: turn_cycle_s(
                n,
                turn_s=generator.turn_s,
                rollout_s=generator.rollout_s / self._grain.stretch,
                step_s=mix.step_s,
                worker_s=mix.worker_s,
            )
        )
        self._work = update_work(config, profile.learner)
        self._schedule = Schedule()
        self._learner = Learner(self._work)
        self._machine = Machine(config, profile, paces, self._learner, self._schedule, weight=self._grain.weight)
        self._rounds = Rounds(config, updates)
        self._judges = judges_of(config, profile.judge)
        self._tags = self._judges if config.needs_tags or not config.needs_scores else None

        self._running = 0  # groups leased and not closed
        self._evaluated = -1
        self._written = 0  # newest version that generators can read
        self._syncing = False
        self._tally = _Tally()

    def run(self) -> Prediction:
        """All updates."""
        self._pump()
        while self._learner.version < self._updates:
            if self._happens(self._schedule.next()):
                self._pump()
        return self._prediction()

    def _happens(self, due: Due) -> bool:
        """Whether anybody but a producer itself can be concerned."""
        match due.kind:
            case "rollouts":
                return due.stamp == self._machine.producers[due.who].stamp and self._rollouts_end(due.who)
            case "judged":
                self._rounds.candidate(self._rounds[due.who])
            case "trained":
                if due.stamp != self._learner.stamp:
                    return False
                self._trained(due.time_s)
            case "written":
                self._written = due.who
                if self._learner.held:
                    self._take(due.time_s)
            case "live":
                self._syncing = False
                self._rounds.live(due.who)
        return True

    # all that has become possible, in the orchestrator's order

    def _pump(self) -> None:
        self._push_weights()
        version = self._rounds.gate.version
        if self._held(version) and self._running == 0:
            self._evaluated = version  # in no time: the training clock stands still
        self._lease()
        self._train()

    def _held(self, version: int) -> bool:
        """Whether this version has to be evaluated first: no lease, and not the round that starts from it."""
        every = self._config.eval.every
        return every > 0 and version > self._evaluated and version % every == 0

    @property
    def _behind(self) -> bool:
        """Whether a version is made that is not live."""
        return self._learner.version > self._rounds.gate.version

    def _push_weights(self) -> None:
        if (
            self._syncing
            or self._written == self._rounds.gate.version
            or (self._config.weights.mode == "drain" and self._running)
        ):
            return
        self._syncing = True
        live_s = self._schedule.now_s + self._profile.generator.pause_s
        self._machine.pause(live_s)
        self._schedule.at(live_s, "live", self._written)

    def _lease(self) -> None:
        rounds = self._rounds
        if self._held(rounds.gate.version) or (self._config.weights.mode == "drain" and self._behind):
            return
        while (round_ := rounds.open_round) is not None and (i := self._machine.choose()) is not None:
            turns = next(self._turns)
            if self._grain.weight > 1:
                turns = coarse(turns, self._grain.weight)
            group = rounds.admit(round_, members=len(turns), now_s=self._schedule.now_s)
            self._running += 1
            self._machine.play(i, turns, group.number)

    def _trained(self, now_s: float) -> None:
        learner = self._learner
        learner.hold(now_s)
        self._machine.learner_changed()
        if self._written == learner.version:  # else once the version before is written
            self._take(now_s)

    def _take(self, now_s: float) -> None:
        self._learner.end(now_s)
        self._schedule.at(self._learner.written_s, "written", self._learner.version)

    def _train(self) -> None:
        learner = self._learner
        round_ = learner.version
        if (
            learner.computing
            or learner.held
            or round_ >= self._updates
            or self._held(round_)
            or not self._rounds.complete(round_)
        ):
            return
        groups = list(self._rounds.members(round_))
        self._tally.lags += [round_ - group.version for group in groups]
        produced_s = max(group.ended_s for group in groups)
        self._tally.round_s += produced_s - self._profile.handover_s - min(group.leased_s for group in groups)
        learner.begin(
            self._schedule.now_s,
            produced_s=produced_s,
            judged_s=max(group.judged_s for group in groups),
        )
        self._machine.learner_changed()

    # what happens to groups

    def _rollouts_end(self, i: int) -> bool:
        """Some of a producer's rollouts end now. Returns whether a group is closed."""
        tags, weight, now_s, tally = self._tags, self._grain.weight, self._schedule.now_s, self._tally
        closed = False
        for number in self._machine.ended(i):
            group = self._rounds[number]
            group.open -= 1
            if not group.written:
                tally.rollouts += weight
                tally.rollout_s += weight * (now_s - group.leased_s)
                if tags:
                    group.judged_s = tags.ask(now_s, weight)
            if group.open == 0:
                closed |= self._close(i, group)
        self._machine.settle(i)
        return closed

    def _close(self, i: int, group: Group) -> bool:
        """All its rollouts have ended. Returns whether the group has, too: bundles may have to be written."""
        now_s = self._schedule.now_s
        if self._writing and not group.written:
            group.written = True
            group.open = len(self._writing)
            self._machine.producers[i].add(now_s, self._writing, group.number)
            return False
        self._machine.give_back(i)
        self._running -= 1
        self._tally.close(now_s - group.leased_s)
        if self._profile.invalid_share and self._draws.random() < self._profile.invalid_share:
            self._rounds.discard(group)
            return True
        if self._judges and self._config.needs_scores:
            group.judged_s = max(group.judged_s, self._judges.ask(now_s, self._config.groups.size))
        group.ended_s = now_s + self._profile.handover_s
        group.judged_s = max(group.judged_s, group.ended_s)
        if group.judged_s > now_s:
            self._schedule.at(group.judged_s, "judged", group.number)
        else:
            self._rounds.candidate(group)
        return True

    # what comes of it

    def _prediction(self) -> Prediction:
        learner, total_s, updates, tally = self._learner, self._schedule.now_s, self._updates, self._tally
        producers = self._machine.producers
        stretch = learner.busy_s / self._work.computing_s if self._work.computing_s else 0.0
        utilisation = {
            "producer": _share(sum(p.played_s(total_s) for p in producers), len(producers) * total_s),
            "learner": _share(learner.busy_s, total_s),
        }
        if self._judges:
            utilisation["judge"] = _share(self._judges.busy_s, self._judges.places * total_s)
        parts = {part: seconds * stretch / updates for part, seconds in msgspec.structs.asdict(self._work).items()}
        cpu_s = {}
        if self._profile.cores:
            pauses_s = self._config.generate.threads * len(producers) * self._profile.generator.pause_s * updates
            cpu_s = self._machine.cpu_s(total_s)
            cpu_s["generators"] += pauses_s  # a generator that reads weights computes
            cpu_s["learner"] = (
                self._config.learner.ranks * self._config.learner.threads * self._work.computing_s * updates
            )
        return Prediction(
            updates=updates,
            update_s=total_s / updates,
            rollout_wait_s=learner.waited_s / updates,
            judge_wait_s=learner.judge_waited_s / updates,
            learner=parts | {"publish_s": learner.published_s / updates},
            lag_max=max(tally.lags),
            lag_mean=sum(tally.lags) / len(tally.lags),
            utilisation=utilisation,
            rollouts_per_s=_share(tally.rollouts, total_s),
            rollout_s=_share(tally.rollout_s, tally.rollouts),
            round_s=tally.round_s / updates,
            group_s=_share(tally.group_s, tally.closed),
            group_s_max=tally.group_s_max,
            turns=sum(p.turns for p in producers) / updates,
            cpu_s={role: seconds / updates for role, seconds in cpu_s.items()},
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        deadline_s, longest_s, notes = self._config.groups.deadline_s, self._tally.group_s_max, []
        if longest_s > deadline_s:
            notes.append(
                f"the longest group takes {longest_s:.0f} s: groups.deadline_s = {deadline_s:g} would cut it, "
                "the model does not"
            )
        if self._judges and not self._profile.judge.answer_s:
            notes.append("the profile says nothing of the judge: its answers take no time here")
        if self._grain.weight > 1:
            notes.append(f"with so many rollouts, {self._grain.weight} of a group end together")
        if self._writing and not self._profile.generator.turn_tokens:
            notes.append("the profile has no generator.turn_tokens: a bundle is written in the time of one turn")
        return tuple(notes)


class _Tally:
    """Sums for the prediction."""

    def __init__(self) -> None:
        self.lags: list[int] = []
        self.round_s = 0.0
        self.rollouts = 0
        self.rollout_s = 0.0
        self.closed = 0
        self.group_s = 0.0
        self.group_s_max = 0.0

    def close(self, took_s: float) -> None:
        """A group ended `took_s` after its lease."""
        self.closed += 1
        self.group_s += took_s
        self.group_s_max = max(self.group_s_max, took_s)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
