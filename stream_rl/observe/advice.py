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
BUSY = 0.80  # of a generator's time: more leases would not make it faster
CREDIT_LIMIT = 0.10  # of a producer's time
LEDGER_LIMIT = 0.40  # of the orchestrator's time


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules read. Shares are 0 to 1; a share that is missing says nothing."""

    learner: Mapping[str, float] = {}  # share of training time by part, see `learner_time.PARTS`
    producers: Mapping[str, Mapping[str, float]] = {}  # name -> share of its time by state
    generators: Mapping[str, float] = {}  # share of all generators' time by state
    orchestrator: Mapping[str, float] = {}  # share of its time by state
    async_depth: int | None = None  # in force at the end
    lost: Mapping[str, float] = {}  # reason -> share of all groups that came to an end
    all_pass: float | None = None  # share of groups whose members all succeed
    all_fail: float | None = None  # share of groups whose members all fail
    abstained: float | None = None  # share of tags without an answer
    gain_unclear: bool = False  # the change of held-out success is smaller than its 95 % interval


def advise(facts: Facts) -> tuple[str, ...]:
    """One sentence for each limit that is passed."""
    return (*_waits(facts), *_producers(facts), *_orchestrator(facts), *_groups(facts), *_evaluation(facts))


def _waits(facts: Facts) -> Iterator[str]:
    share = facts.learner.get
    if (wait := share("rollout_wait", 0.0)) > ROLLOUT_WAIT_LIMIT:
        yield f"the learner waited {wait:.0%} of its time for rollouts: {_faster(facts)}"
    if (wait := share("judge_wait", 0.0)) > JUDGE_WAIT_LIMIT:
        yield (
            f"the learner waited {wait:.0%} of its time for verdicts alone: attach another judge endpoint, "
            "or raise its concurrency"
        )
    if (part := share("publish", 0.0)) > PUBLISH_LIMIT:
        yield f"publishing weights took {part:.0%} of the learner's time: keep weights.directory in memory"
    if (part := share("teacher", 0.0)) > TEACHER_LIMIT:
        yield f"teacher passes took {part:.0%} of the learner's time: raise algorithm.hint_support"


def _faster(facts: Facts) -> str:
    """A generator that is busy needs help; one that idles needs leases, which the async depth holds back."""
    producers = f"generate.producers = {len(facts.producers) + 1}" if facts.producers else "generate.producers"
    depth = "async_depth" if facts.async_depth is None else f"async_depth = {facts.async_depth + 1}"
    if not facts.generators:
        return f"add a producer ({producers}), or raise {depth} if generation has idle time of its own"
    busy = facts.generators.get("generate", 0.0) + facts.generators.get("write", 0.0)
    if busy >= BUSY:
        return f"the generators were busy {busy:.0%} of theirs, so add a producer ({producers}); {depth} would not help"
    return (
        f"the generators were busy {busy:.0%} of theirs only, so run further ahead ({depth}) before adding {producers}"
    )


def _orchestrator(facts: Facts) -> Iterator[str]:
    if (part := facts.orchestrator.get("ledger", 0.0)) > LEDGER_LIMIT:
        yield f"the orchestrator waited for its ledger {part:.0%} of its time: put the run on a faster disk"


def _producers(facts: Facts) -> Iterator[str]:
    for name, states in facts.producers.items():
        if (part := states.get("wait_for_lease", 0.0)) > LEASE_WAIT_LIMIT:
            yield (
                f"{name} had nothing to do for {part:.0%} of its time, the learner being slower: raise "
                "learner.threads or learner.ranks, raise async_depth by one, or use fewer producers"
            )
        if (part := states.get("paused_for_sync", 0.0)) > SYNC_LIMIT:
            yield f"{name} was paused for weights {part:.0%} of its time: make updates larger (groups.per_update)"
        if (part := states.get("wait_for_credit", 0.0)) > CREDIT_LIMIT:
            yield (
                f"{name} waited {part:.0%} of its time until the orchestrator took what it sent: see the "
                "orchestrator's row and loop_lag in metrics.jsonl"
            )
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
