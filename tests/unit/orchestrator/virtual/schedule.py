"""One schedule: everything that will happen to a run, drawn from one number."""

from __future__ import annotations

import math
import random
from typing import Any, Literal

import msgspec

from stream_rl.config import Config
from stream_rl.config.impossible import refuse_impossible

ENVIRONMENTS = ("attic", "barn", "cellar")
_JUDGED = ({"selection": "rised"}, {"selection": "mmr"}, {"selection": "random", "steering": True})
_PLAIN = ({"selection": "random"}, {"selection": "reward_variance"})
_WRITTEN = {"selection": "random", "distillation": "orsd", "rubrics": "written", "bundle_choice": "aligned"}


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """How one process of the orchestrator ends. The run goes on with the next life, from its newest checkpoint."""

    end: Literal["complete", "stopped", "killed", "learner_died"]
    after_s: float = math.inf  # stopped, learner_died: virtual seconds of this life
    after_calls: int = 0  # killed: at this ledger call of this life
    committed: bool = False  # killed: just after that call, not just before it


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """What the roles do, and what befalls them. Seconds are virtual; `_p` are probabilities."""

    num_producers: int
    capacity: int  # rollouts a producer holds at once
    late_s: float  # the producers after the first join up to this late
    turn_s: float  # median seconds of one turn
    tail: float  # Pareto exponent of a turn: at 1 and below even the mean is without bound
    max_turns: int  # turns of an episode, at most
    member_fails_p: float  # one rollout is invalid
    group_fails_p: float  # every rollout of a group is invalid
    silent_p: float  # a rollout ends before a token is sampled
    old_tokens_p: float  # a token is of an older version than the generator should have: it is broken
    twice_p: float  # a message is sent twice
    producer_life_s: float  # mean seconds between the deaths of a producer; infinite: it never dies
    update_s: float  # mean seconds of a weight update
    update_fails_p: float  # an update is refused; the producer leaves
    update_hangs_p: float  # an update never ends; the producer is quarantined and killed
    cut_every_s: float  # mean seconds between broken connections; infinite: none
    dark: tuple[float, float]  # from, to: no producer lives
    train_s: float  # mean seconds of an update of the learner
    publish_s: float  # mean seconds until its weights can be read, while it goes on
    refused_p: float  # the learner refuses a group
    judge_s: float  # mean seconds of a verdict
    abstains_p: float  # a verdict abstains from everything
    judge_out: tuple[float, float]  # from, to: no judge answers
    ledger_s: float  # mean seconds of a ledger call; 0: none takes time

    @property
    def honest(self) -> bool:
        """Whether every token is of the version its generator says."""
        return self.old_tokens_p == 0


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What people ask for while a process of the run goes on."""

    after_s: float  # virtual seconds of that process
    async_depth: int | None = None  # from then on
    paused: bool | None = None  # from then on


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A run, its roles, and its ends."""

    seed: int
    config: Config
    weather: Weather
    lives: tuple[Life, ...]  # the last one is "complete"
    wishes: tuple[Wish, ...]  # of people, in every life; a pause ends
    judged: bool  # there is a judge
    threaded: bool  # the ledger works in its real thread


def draw(seed: int) -> Schedule:
    """The schedule with this number. The first draws decide what is possible at all, so that all is met often."""
    rng = random.Random(f"schedule/{seed}")
    tree, judged = _configuration(rng)
    config = msgspec.convert(tree, Config)  # `from_dict` is made for good messages, and takes longer than many a run
    refuse_impossible(config)
    return Schedule(
        seed=seed,
        config=config,
        weather=_weather(rng, size=tree["groups"]["size"]),
        lives=(*_ends(rng), Life(end="complete")),
        wishes=_wishes(rng, config),
        judged=judged,
        threaded=rng.random() < 0.1,
    )


def _configuration(rng: random.Random) -> tuple[dict[str, Any], bool]:
    per_update = rng.randint(1, 3)
    extra = rng.choice((0, 0, 1, 2))
    depth = rng.choice((0, 1, 1, 2, 3, 4))
    size = rng.choice((2, 2, 3))
    judged = rng.random() < 0.5
    algorithm: dict[str, Any] = dict(rng.choice(_JUDGED if judged else _PLAIN))
    if judged and rng.random() < 0.2:
        algorithm = dict(_WRITTEN)
    if extra == 0 and not algorithm.get("steering") and rng.random() < 0.5:
        algorithm["selection"] = "all"
    candidates = per_update + extra
    window = rng.choice((1, 1, 2, 3))
    room = rng.choice((0, 0, 0, 1, 2, 3, 4, 6)) if depth else 0
    tree: dict[str, Any] = {
        "seed": rng.randrange(1000),
        "updates": rng.randint(1, 4) + rng.choice((0, 0, depth)),
        "async_depth": depth,
        "max_lag": room,
        "groups": {
            "per_update": per_update,
            "candidates": candidates,
            "size": size,
            "min_valid": rng.choice((0, 1, size)),
            "deadline_s": 60.0,
            "window": min(window, depth + 1),
            "buffer": rng.choice((0, 0, candidates, candidates + 1)),
        },
        "algorithm": algorithm,
        "environments": _environments(rng),
        "eval": {"every": rng.choice((0, 0, 0, 1, 2)), "tasks": 1, "rollouts": 1},
        "weights": {"deadline_s": 40.0, "mode": rng.choice(("in_flight", "in_flight", "drain"))},
        "learner": {"checkpoint_every": rng.choice((0, 1, 2, 3))},
        "stall_s": 900.0,
    }
    if judged:
        tree["judge"] = {
            "endpoints": [{"url": "http://judge"}],
            "required": rng.random() < 0.7,
            "second_share": rng.choice((0.0, 0.2)),
        }
    return tree, judged


def _environments(rng: random.Random) -> list[dict[str, Any]]:
    names = rng.sample(ENVIRONMENTS, rng.randint(1, 3))
    return [{"name": name, "share": rng.choice((0.5, 1.0, 2.0))} for name in names]


def _weather(rng: random.Random, *, size: int) -> Weather:
    def sometimes(share: float, low: float, high: float, otherwise: float = 0.0) -> float:
        """Between the two in this share of schedules."""
        value = rng.uniform(low, high)
        return value if rng.random() < share else otherwise

    def spell(share: float) -> tuple[float, float]:
        """A stretch of time in this share of schedules."""
        begin, length = rng.uniform(0, 60), rng.uniform(5, 120)
        return (begin, begin + length) if rng.random() < share else (math.inf, math.inf)

    return Weather(
        num_producers=rng.choice((1, 2, 2, 3)),
        capacity=rng.choice((1, size, 2 * size, 4 * size, 16 * size)),
        late_s=sometimes(0.4, 1, 60),
        turn_s=rng.choice((0.3, 1.0, 3.0)),
        tail=rng.choice((0.9, 1.3, 3.0)),
        max_turns=rng.randint(1, 2),
        member_fails_p=sometimes(0.4, 0.02, 0.3),
        group_fails_p=sometimes(0.4, 0.02, 0.3),
        silent_p=sometimes(0.15, 0.02, 0.2),
        old_tokens_p=sometimes(0.15, 0.02, 0.15),
        twice_p=sometimes(0.3, 0.05, 0.5),
        producer_life_s=sometimes(0.35, 20, 120, math.inf),
        update_s=rng.choice((0.0, 0.2, 2.0)),
        update_fails_p=sometimes(0.15, 0.05, 0.3),
        update_hangs_p=sometimes(0.15, 0.05, 0.3),
        cut_every_s=sometimes(0.12, 10, 60, math.inf),
        dark=spell(0.1),
        train_s=rng.choice((0.1, 2.0, 8.0)),
        publish_s=rng.choice((0.0, 0.0, 0.5, 6.0)),
        refused_p=sometimes(0.35, 0.05, 0.4),
        judge_s=rng.choice((0.0, 0.3, 3.0)),
        abstains_p=sometimes(0.3, 0.05, 0.4),
        judge_out=spell(0.2),
        ledger_s=sometimes(0.3, 0.001, 0.05),
    )


def _wishes(rng: random.Random, config: Config) -> tuple[Wish, ...]:
    """Depths that the lag limit leaves room for, one that it does not, and a pause."""
    deepest = config.lag_limit - (config.groups.window - 1)
    wishes = []
    if rng.random() < 0.2:
        wishes += [Wish(after_s=rng.uniform(0, 60), async_depth=rng.randint(0, max(0, deepest) + 1)) for _ in range(2)]
    if rng.random() < 0.1:
        begin = rng.uniform(0, 40)
        wishes += [Wish(after_s=begin, paused=True), Wish(after_s=begin + rng.uniform(1, 2000), paused=False)]
    return tuple(sorted(wishes, key=lambda wish: wish.after_s))


def _ends(rng: random.Random) -> list[Life]:
    """The ends before the last."""
    return [_end(rng) for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3)))]


def _end(rng: random.Random) -> Life:
    match rng.choice(("stopped", "killed", "killed", "learner_died")):
        case "stopped":
            return Life(end="stopped", after_s=rng.uniform(0, 60))
        case "killed":
            return Life(end="killed", after_calls=rng.randint(1, 150), committed=rng.random() < 0.5)
        case _:
            return Life(end="learner_died", after_s=rng.uniform(0, 60))


def about(rng: random.Random, mean_s: float) -> float:
    """An exponential draw around a mean; exactly 0 for a mean of 0."""
    return rng.expovariate(1 / mean_s) if mean_s else 0.0
