"""Service times: what a turn, a pass over a rollout and a verdict take. From a small TOML file, or from a run."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from stream_rl.config.base import Count, Fraction, NonNegative, NonNegativeFloat, PositiveFloat, Section
from stream_rl.errors import ConfigError


class GeneratorTimes(Section, frozen=True, kw_only=True):
    """`[generator]`: one producer's. A turn beside n - 1 others takes `turn_s` + n * `rollout_s` in the generator."""

    turn_s: NonNegativeFloat  # of a turn, however few are sampled at once: latency
    rollout_s: NonNegativeFloat  # more for each turn that is sampled at once: 1 / turns a second of a full generator
    spread: Fraction = 0.0  # rollouts are served unevenly: one's turns take 1 - spread to 1 + spread times as long
    turn_tokens: NonNegativeFloat = 0.0  # sampled in one turn, mean; needed only where the policy writes bundles
    pause_s: NonNegativeFloat = 0.0  # nothing is sampled for this long when new weights are loaded
    cores: PositiveFloat = 1.5  # of a full generator with all around it, where cores are shared and the next is unknown
    turn_cpu_s: NonNegativeFloat = 0.0  # CPU around the generator for a turn: producer, worlds, orchestrator, judges


class EnvironmentTimes(Section, frozen=True, kw_only=True):
    """One `[[environments]]` entry."""

    name: str  # as in the configuration
    turns: Annotated[tuple[PositiveFloat, ...], Meta(min_length=1)]  # of an episode: equally likely values
    step_s: NonNegativeFloat = 0.0  # of the world's answer to one action, as a rollout sees it
    worker_s: NonNegativeFloat = 0.0  # of a worker's time for one answer; 0: workers are never too few


class LearnerTimes(Section, frozen=True, kw_only=True):
    """`[learner]`: seconds over one rollout on all `ranks` together; other numbers of ranks scale in proportion."""

    ranks: Count = 1  # processes the times below hold for
    forward_s: NonNegativeFloat  # one pass without gradient
    train_s: NonNegativeFloat  # forward and backward
    teacher_s: NonNegativeFloat = 0.0  # one pass with the hint; 0: as `forward_s`
    fixed_s: NonNegativeFloat = 0.0  # of every update, whatever it holds; does not shrink with ranks
    publish_s: NonNegativeFloat = 0.0  # to write one version; does not shrink with ranks
    silent_share: Fraction = 0.0  # trained groups without spread: no advantage, so no backward pass under plain GRPO
    taught_share: Fraction = 1.0  # trained groups whose teacher is told something


class JudgeTimes(Section, frozen=True, kw_only=True):
    """`[judge]`: what one question takes in one of the endpoints' `concurrency` places."""

    answer_s: NonNegativeFloat = 0.0  # from sending to the answer
    requests: Count = 1  # requests of one question, for endpoints with a limit a minute


class Profile(Section, frozen=True, kw_only=True):
    """Everything a simulation needs to know of models and machines.

    >>> turn = GeneratorTimes(turn_s=0.02, rollout_s=0.0005)
    >>> world = EnvironmentTimes(name="household", turns=(12, 16, 20))
    >>> profile = Profile(generator=turn, environments=(world,), learner=LearnerTimes(forward_s=0.004, train_s=0.013))
    >>> profile.cores
    0
    """

    note: str = ""  # what was measured, where
    cores: NonNegative = 0  # cores that generators, worlds and learner share; 0: every role has devices of its own
    generator: GeneratorTimes
    environments: Annotated[tuple[EnvironmentTimes, ...], Meta(min_length=1)]
    learner: LearnerTimes
    judge: JudgeTimes = JudgeTimes()
    handover_s: NonNegativeFloat = 0.0  # from a group's last rollout to a learner that waits for it
    invalid_share: Annotated[float, Meta(ge=0, lt=1)] = 0.0  # groups with too few valid members: generated again


def read_profile(path: Path) -> Profile:
    """A profile file. Raises `ConfigError` for a missing file, bad TOML, an unknown key or a wrong value."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Profile)
    except FileNotFoundError:
        raise ConfigError(str(path), "no such profile of service times.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"not valid TOML: {error}.") from None
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}.") from None
    except msgspec.ValidationError as error:
        raise ConfigError(str(path), f"not a profile of service times: {error}.") from None


def write_profile(profile: Profile, path: Path) -> None:
    """The same as TOML, numbers to four significant digits. Raises `ConfigError` when the file cannot be written."""
    tree = msgspec.to_builtins(profile)
    environments = tree.pop("environments")
    tables = {name: tree.pop(name) for name in ("generator", "learner", "judge")}
    lines = _values(tree)
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_values(table)]
    for table in environments:
        lines += ["", "[[environments]]", *_values(table)]
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(str(path), f"cannot be written: {error.strerror}.") from None


def _values(table: dict[str, object]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items()]


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, float):
        return repr(float(f"{value:.4g}"))
    return msgspec.json.encode(value).decode()
