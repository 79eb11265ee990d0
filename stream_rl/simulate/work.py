"""What one update asks of the learner, in seconds. Pure."""

from __future__ import annotations

import msgspec

from stream_rl.config import Config
from stream_rl.simulate.profile import LearnerTimes


class UpdateWork(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one update by part, named as in `metrics.jsonl`."""

    prox_s: float  # passes under the parameters at the start of the update, and of the reference
    teacher_s: float  # passes with the hint
    train_s: float  # forward, backward, step
    publish_s: float  # writing the version, beside the next update
    other_s: float  # everything else

    @property
    def computing_s(self) -> float:
        """All of it but the writing."""
        return self.prox_s + self.teacher_s + self.train_s + self.other_s


def update_work(config: Config, times: LearnerTimes) -> UpdateWork:
    """Seconds of an update of `config`, whose `learner.ranks` share the work evenly.

    Counts the passes that the learner makes: a rollout with a signal is trained; no pass reads one without. A prox
    pass is needed by every mini-batch but the first, and by that one, too, where the gap of teacher and student is
    read before it is trained. A group is taught, or has equal outcomes, independently of the other; written criteria
    teach only groups whose outcomes differ.
    """
    a = config.algorithm
    rollouts = config.groups.per_update * config.groups.size
    written = a.distillation != "none" and a.rubrics == "written"
    taught = 0.0 if a.distillation == "none" else times.taught_share
    if written:
        taught = min(taught, 1 - times.silent_share)
    match a.distillation:
        case _ if a.kl_coef > 0 or a.entropy_coef > 0:
            signal = 1.0
        case "opsd":
            signal = taught
        case "rised" | "sdar" | "orsd" if not written:
            signal = 1 - times.silent_share * (1 - taught)
        case _:
            signal = 1 - times.silent_share
    before = taught > 0 and (
        (a.divergence == "jsd" and a.distillation in ("rised", "opsd"))
        or (a.distillation == "orsd" and a.orsd_norm != "none")
    )
    later = taught > 0 or a.correction != "none"
    first = 1 / config.learner.mini_batches
    prox_share = first * before + (1 - first) * (before or later)
    forwards = prox_share * signal + (a.kl_coef > 0)
    bundles = config.written_bundles if config.learner_chooses else 1
    speed = config.learner.ranks / times.ranks
    return UpdateWork(
        prox_s=rollouts * forwards * times.forward_s / speed,
        teacher_s=rollouts * taught * bundles * (times.teacher_s or times.forward_s) / speed,
        train_s=rollouts * signal * times.train_s / speed,
        publish_s=times.publish_s,
        other_s=times.fixed_s,
    )
