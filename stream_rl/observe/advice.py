"""What to change, decided from where the time went and what became of the groups. Pure rules, most telling first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

ROLLOUT_WAIT_LIMIT = 0.25  # of the learner's training time
JUDGE_WAIT_LIMIT = 0.10
PUBLISH_LIMIT = 0.15
TEACHER_LIMIT = 0.30
LEASE_WAIT_LIMIT = 0.30  # of a producer's time
SYNC_LIMIT = 0.15
ENVIRONMENT_LIMIT = 0.40
LOST_LIMIT = 0.05  # of all groups that came to an end
NO_SIGNAL_LIMIT = 0.60
ABSTAINED_LIMIT = 0.20


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules read. Shares are 0 to 1; a share that is missing says nothing."""

    learner: Mapping[str, float] = {}  # share of training time by part, see `learner_time.PARTS`
    producers: Mapping[str, Mapping[str, float]] = {}  # name -> share of its time by state
    lost: Mapping[str, float] = {}  # reason -> share of all groups that came to an end
    all_pass: float | None = None  # share of groups whose members all succeed
    all_fail: float | None = None  # share of groups whose members all fail
    abstained: float | None = None  # share of tags without an answer
    gain_unclear: bool = False  # the change of held-out success is smaller than its 95 % interval


def advise(facts: Facts) -> tuple[str, ...]:
    """One sentence for each limit that is passed."""
    return (*_waits(facts), *_producers(facts), *_groups(facts), *_evaluation(facts))


def _waits(facts: Facts) -> Iterator[str]:
    share = facts.learner.get
    if (wait := share("rollout_wait", 0.0)) > ROLLOUT_WAIT_LIMIT:
        yield (
            f"the learner waited {wait:.0%} of its time for rollouts: add a producer (generate.producers), "
            "or raise async_depth if generation has idle time of its own"
        )
    if (wait := share("judge_wait", 0.0)) > JUDGE_WAIT_LIMIT:
        yield (
            f"the learner waited {wait:.0%} of its time for verdicts alone: attach another judge endpoint, "
            "or raise its concurrency"
        )
    if (part := share("publish", 0.0)) > PUBLISH_LIMIT:
        yield f"publishing weights took {part:.0%} of the learner's time: keep weights.directory in memory"
    if (part := share("teacher", 0.0)) > TEACHER_LIMIT:
        yield f"teacher passes took {part:.0%} of the learner's time: raise algorithm.hint_support"


def _producers(facts: Facts) -> Iterator[str]:
    for name, states in facts.producers.items():
        if (part := states.get("wait_for_lease", 0.0)) > LEASE_WAIT_LIMIT:
            yield (
                f"{name} had nothing to do for {part:.0%} of its time, the learner being slower: raise "
                "learner.threads or learner.ranks, raise async_depth by one, or use fewer producers"
            )
        if (part := states.get("paused_for_sync", 0.0)) > SYNC_LIMIT:
            yield f"{name} was paused for weights {part:.0%} of its time: make updates larger (groups.per_update)"
        if (part := states.get("environment", 0.0)) > ENVIRONMENT_LIMIT:
            yield f"{name} waited for its worlds {part:.0%} of its time: raise workers of the environment"


def _groups(facts: Facts) -> Iterator[str]:
    lost = {reason: share for reason, share in facts.lost.items() if share > LOST_LIMIT}
    for reason, share in lost.items():
        match reason:
            case "stale" | "refused":
                yield f"{share:.0%} of the groups were too old to be trained: lower async_depth, or raise max_lag"
            case "too_few_valid":
                yield f"{share:.0%} of the groups had too few valid rollouts: see the errors in events.jsonl"
            case _:
                yield f"{share:.0%} of the groups were lost ({reason.replace('_', ' ')}): see events.jsonl"
    if (share := facts.all_fail or 0.0) > NO_SIGNAL_LIMIT:
        yield f"in {share:.0%} of the groups every rollout failed and taught nothing: begin with easier tasks"
    if (share := facts.all_pass or 0.0) > NO_SIGNAL_LIMIT:
        yield f"in {share:.0%} of the groups every rollout succeeded and taught nothing: go on with harder tasks"
    if (share := facts.abstained or 0.0) > ABSTAINED_LIMIT:
        yield f"the judge gave no answer for {share:.0%} of the tags: look at its endpoint, or lower judge.chunk"


def _evaluation(facts: Facts) -> Iterator[str]:
    if facts.gain_unclear:
        yield "the change of held-out success is within its error: raise eval.tasks, or train longer"
