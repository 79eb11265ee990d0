"""The configuration: what a user may set, what it means, and why a wrong one is refused.

Every knob is declared and documented here. Values come from TOML files, merged left to right, then from `--set`.
`load` either returns a `Config` that can run or raises `ConfigError` naming key, value and expectation.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from stream_rl.errors import ConfigError

Count = Annotated[int, Meta(ge=1)]
NonNegative = Annotated[int, Meta(ge=0)]
PositiveFloat = Annotated[float, Meta(gt=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every table."""


class Groups(_Section, frozen=True, kw_only=True):
    """`[groups]`: how many rollouts make a round."""

    per_update: Count = 16  # P, groups trained in one update
    candidates: Count = 16  # C, candidate groups in one round, C >= P
    size: Count = 8  # G, rollouts of one task
    min_valid: NonNegative = 0  # fewer valid members: the group is discarded and refilled; 0 means half of `size`
    deadline_s: PositiveFloat = 300.0  # a group is closed with what it has after this long
    buffer: NonNegative = 0  # groups that may wait, judged, before later rounds stop; 0: (async_depth + 1) * candidates


class Policy(_Section, frozen=True, kw_only=True):
    """`[policy]`: the model that learns."""

    model: str = "embedded"  # "embedded", "smollm2", a folder with a Hugging Face model, or a hub name
    init: Literal["pretrained", "random-tiny"] = "pretrained"  # "random-tiny": same architecture, made small
    dtype: Literal["float32", "bfloat16"] = "float32"  # parameters in learner and generator


class Generate(_Section, frozen=True, kw_only=True):
    """`[generate]`: sampling."""

    engine: Literal["auto", "vllm", "transformers", "scripted"] = "auto"  # "auto": vllm where installed
    producers: Count = 1  # producer processes, each with a generator of its own
    temperature: PositiveFloat = 1.0  # of training rollouts
    max_tokens: Count = 8  # limit of one turn
    max_turns: Count = 20  # limit of one episode
    max_model_len: Count = 512  # longest token sequence, prompt and answers together
    concurrency: Count = 256  # sequences one generator samples at once
    threads: Count = 1  # CPU threads of one generator


class EnvironmentConfig(_Section, frozen=True, kw_only=True):
    """One `[[environments]]` entry."""

    name: str = "household"  # which world
    share: PositiveFloat = 1.0  # relative share of the training tasks
    data: str = ""  # folder or file of the user's data, for worlds that need one
    split: Literal["train"] = "train"  # training split; validation always uses the held-out one
    workers: Count = 1  # worker processes
    step_deadline_s: PositiveFloat = 10.0  # a call that takes longer ends the episode and restarts the worker
    options: dict[str, Any] = {}  # the world's own settings, see `stream-rl envs list`


class JudgeEndpoint(_Section, frozen=True, kw_only=True):
    """One `[[judge.endpoints]]` entry."""

    url: str  # base address ending in /v1, or "embedded" for the rule judge this project starts
    model: str = "rules"  # model name sent to the endpoint
    key_env: str = ""  # name of the environment variable that holds the key; the key itself is never stored
    requests_per_minute: NonNegative = 0  # 0: no limit
    tokens_per_minute: NonNegative = 0  # 0: no limit
    concurrency: Count = 8  # requests in flight at once
    deadline_s: PositiveFloat = 30.0  # for one tagging, retries included
    price_in: NonNegativeFloat = 0.0  # per million prompt tokens
    price_out: NonNegativeFloat = 0.0  # per million completion tokens


class JudgeConfig(_Section, frozen=True, kw_only=True):
    """`[judge]`: the judging stage."""

    required: bool = True  # False: groups go on without verdicts when no endpoint answers
    vocabulary: str = "builtin"  # "builtin" or a TOML file of rubrics
    endpoints: tuple[JudgeEndpoint, ...] = ()  # none: no judging
    chunk: Count = 64  # rubrics asked in one request


class Algorithm(_Section, frozen=True, kw_only=True):
    """`[algorithm]`: how groups become gradients. The three RISED switches are selection, distillation, steering."""

    advantage: Literal["grpo", "dr_grpo", "rloo"] = "grpo"  # trajectory advantage within a group
    loss: Literal["clip"] = "clip"  # policy loss
    correction: Literal["decoupled", "none"] = "decoupled"  # off-policy weight
    selection: Literal["all", "random", "reward_variance", "rised"] = "all"  # which candidates are trained
    distillation: Literal["none", "rised"] = "none"  # self-teacher
    steering: bool = False  # dominant violations become "avoid" guidance of later training rollouts
    rubrics: Literal["vocabulary"] = "vocabulary"  # where rubrics come from
    clip_low: PositiveFloat = 0.2  # lower clip of the ratio is 1 - clip_low
    clip_high: PositiveFloat = 0.28  # upper clip of the ratio is 1 + clip_high
    dual_clip: PositiveFloat = 3.0  # floor on the loss of negative advantages, as a multiple
    behavior_cap: PositiveFloat = 5.0  # cap of the decoupled weight prox / behavior
    invalid_action_penalty: NonNegativeFloat = 0.0  # subtracted from the advantage of an invalid action's tokens
    entropy_coef: NonNegativeFloat = 0.0  # entropy bonus
    distill_coef: NonNegativeFloat = 0.01  # weight of the self-teacher's term
    distill_clip: PositiveFloat = 5.0  # bound of |logS - logT|
    redundancy: NonNegativeFloat = 0.5  # selection's weight of similarity to what is already selected
    hint_support: Count = 2  # rollouts of a group that must show a positive rubric before it enters the hint
    hint_top_k: Count = 4  # rubrics in a hint
    steering_share: Fraction = 1.0  # share of training groups whose prompts carry the "avoid" note
    steering_rate: Annotated[float, Meta(gt=0, le=1)] = 0.1  # moving-average rate of tag rates per environment
    steering_floor: Fraction = 0.1  # a violation rate below this never steers
    steering_top: Count = 3  # rubrics in an "avoid" note


class Learner(_Section, frozen=True, kw_only=True):
    """`[learner]`: the DeepSpeed engine."""

    lr: PositiveFloat = 1e-6  # constant learning rate
    weight_decay: NonNegativeFloat = 0.0  # AdamW
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)  # AdamW
    grad_clip: PositiveFloat = 1.0  # global gradient norm
    zero_stage: Annotated[int, Meta(ge=0, le=3)] = 1  # DeepSpeed ZeRO
    ranks: Count = 1  # processes
    threads: Count = 1  # CPU threads of one rank
    mini_batches: Count = 1  # optimiser steps in one update
    token_budget: Count = 8192  # padded tokens of one micro-batch
    checkpoint_every: NonNegative = 20  # updates between checkpoints; 0: only at the end


class Weights(_Section, frozen=True, kw_only=True):
    """`[weights]`: how versions reach the generators."""

    transport: Literal["files"] = "files"  # safetensors on a shared or memory-backed file system
    mode: Literal["in_flight", "drain"] = "in_flight"  # "drain": running groups finish before an update
    directory: str = ""  # where version files lie; empty: memory-backed where there is one
    deadline_s: PositiveFloat = 120.0  # a generator that takes longer is restarted


class Eval(_Section, frozen=True, kw_only=True):
    """`[eval]`: held-out validation, without guidance."""

    every: NonNegative = 10  # updates between evaluations (and one at start and end); 0: never
    tasks: Count = 200  # held-out tasks
    rollouts: Count = 2  # rollouts of each
    temperature: NonNegativeFloat = 1.0  # sampling temperature; 0 = greedy


class Alarms(_Section, frozen=True, kw_only=True):
    """`[alarms]`: limits past which an update is called a collapse."""

    entropy_floor: NonNegativeFloat = 0.05  # mean token entropy, nats
    all_fail_share: Fraction = 0.9  # share of groups whose members all fail
    cut_share: Fraction = 0.2  # share of actions cut at the token limit
    patience: Count = 3  # consecutive updates past a limit before the alarm is raised


class Config(_Section, frozen=True, kw_only=True):
    """A whole run."""

    seed: NonNegative = 0  # seeds tasks, sampling and the learner
    updates: Count = 40  # optimiser updates of the run
    async_depth: NonNegative = 1  # S, updates generation may run ahead
    max_lag: NonNegative = 0  # groups older than this are refused by the learner; 0 means async_depth
    groups: Groups = Groups()
    policy: Policy = Policy()
    generate: Generate = Generate()
    environments: tuple[EnvironmentConfig, ...] = (EnvironmentConfig(),)
    judge: JudgeConfig = JudgeConfig()
    algorithm: Algorithm = Algorithm()
    learner: Learner = Learner()
    weights: Weights = Weights()
    eval: Eval = Eval()
    alarms: Alarms = Alarms()
    port: Annotated[int, Meta(ge=0, le=65535)] = 0  # the orchestrator's loopback port; 0: any free one
    stall_s: PositiveFloat = 600.0  # no progress for this long ends the run with an explanation

    @property
    def lag_limit(self) -> int:
        """The lag a trained group may have at most, in updates."""
        return self.max_lag or self.async_depth

    @property
    def min_valid(self) -> int:
        """Valid members a group needs."""
        return self.groups.min_valid or max(1, self.groups.size // 2)

    @property
    def permits(self) -> int:
        """(S + 1) * C: groups that may be between lease and live weights."""
        return (self.async_depth + 1) * self.groups.candidates

    @property
    def buffer(self) -> int:
        """Judged groups that may wait for selection."""
        return self.groups.buffer or self.permits

    @property
    def needs_judge(self) -> bool:
        """Whether any switch reads verdicts."""
        a = self.algorithm
        return a.selection == "rised" or a.distillation != "none" or a.steering


def load(files: Sequence[Path], overrides: Sequence[str] = ()) -> Config:
    """Merge TOML `files` left to right, then `overrides` ("a.b=c"), and check the result.

    Raises `ConfigError` for a missing file, bad TOML, an unknown key, a wrong type or an impossible combination.
    """
    tree: dict[str, Any] = {}
    for file in files:
        tree = _merge(tree, _read(file))
    for override in overrides:
        tree = _merge(tree, _parse_override(override))
    return from_dict(tree)


def from_dict(tree: Mapping[str, Any]) -> Config:
    """Check a plain tree of values and turn it into a `Config`. Raises `ConfigError`."""
    _refuse_unknown(tree, Config, "")
    try:
        config = msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        raise _explain(error, tree) from None
    _refuse_impossible(config)
    return config


def to_toml(config: Config) -> str:
    """The resolved configuration as TOML. Holds no secret: keys are named by environment variable only."""
    return "\n".join(_toml_table(msgspec.to_builtins(config), "")) + "\n"


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = _nearest(file.name, [p.name for p in file.parent.glob("*.toml")] if file.parent.is_dir() else [])
        raise ConfigError(str(file), "no such configuration file.", nearest=near) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), f"not valid TOML: {error}.") from None
    except OSError as error:
        raise ConfigError(str(file), f"cannot be read: {error.strerror}.") from None


def _parse_override(text: str) -> dict[str, Any]:
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(f"--set {text}", "expected KEY=VALUE, for example --set learner.lr=1e-4.")
    try:
        value: Any = tomllib.loads(f"v = {raw.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        value = raw.strip()
    for part in reversed(key.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            out[key] = _merge(old, value)
        elif isinstance(value, Mapping) and isinstance(old, list) and all(k.isdigit() for k in value):
            out[key] = _merge_items(old, value, key)
        else:
            out[key] = value
    return out


def _merge_items(old: list[Any], over: Mapping[str, Any], key: str) -> list[Any]:
    """`environments.0.workers=2` changes one entry of an array of tables."""
    items = list(old)
    for number, value in over.items():
        i = int(number)
        if i >= len(items):
            raise ConfigError(f"{key}.{number}", f"there are only {len(items)} entries.")
        items[i] = _merge(items[i], value) if isinstance(value, Mapping) else value
    return items


def _refuse_unknown(tree: object, kind: Any, path: str) -> None:
    """Walk values and struct types together and name the first key that no field has."""
    if get_origin(kind) is tuple and isinstance(tree, list | tuple):
        for i, item in enumerate(tree):
            _refuse_unknown(item, get_args(kind)[0], f"{path}.{i}")
        return
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) or not isinstance(tree, Mapping):
        return
    fields = get_type_hints(kind)
    for key, value in tree.items():
        full = f"{path}.{key}" if path else str(key)
        if key not in fields:
            near = _nearest(str(key), fields)
            near = f"{path}.{near}" if near and path else near
            table = f"[{path}]" if path else "the top level"
            raise ConfigError(
                full, f"unknown key in {table}; known keys are {', '.join(sorted(fields))}.", nearest=near
            )
        _refuse_unknown(value, fields[key], full)


def _explain(error: msgspec.ValidationError, tree: Mapping[str, Any]) -> ConfigError:
    text = str(error)
    match = re.search(r" - at `\$\.?(.*)`$", text)
    path = re.sub(r"\[(\d+)\]", r".\1", match.group(1)) if match else ""
    problem = text[: match.start()] if match else text
    value: Any = tree
    for part in path.split(".") if path else ():
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
    near = None
    allowed = _allowed_values(path)
    if allowed:
        problem = f"{value!r} is not one of {', '.join(map(repr, allowed))}"
        near = _nearest(str(value), allowed)
    else:
        problem = f"{value!r} cannot be used: {problem[0].lower()}{problem[1:]}"
    return ConfigError(path or "configuration", problem + ".", nearest=near)


def _allowed_values(path: str) -> list[str]:
    kind: Any = Config
    for part in path.split("."):
        if part.isdigit():
            kind = get_args(kind)[0]
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kind = get_type_hints(kind).get(part)
        else:
            return []
    return [str(v) for v in get_args(kind)] if get_origin(kind) is Literal else []


def _nearest(name: str, known: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return found[0] if found else None


def _refuse_impossible(config: Config) -> None:
    """Combinations that would hang, starve or silently do something else, with the arithmetic shown."""
    g, a = config.groups, config.algorithm
    if g.candidates < g.per_update:
        raise ConfigError(
            "groups.candidates",
            f"{g.candidates} candidates cannot fill an update of per_update = {g.per_update} groups; "
            f"need candidates >= {g.per_update}.",
        )
    if a.selection == "all" and g.candidates != g.per_update:
        raise ConfigError(
            "algorithm.selection",
            f"'all' trains every candidate, so candidates ({g.candidates}) must equal per_update ({g.per_update}); "
            "choose another selection or equal numbers.",
        )
    if config.buffer < g.candidates:
        raise ConfigError(
            "groups.buffer",
            f"a buffer of {config.buffer} groups never holds a round of candidates = {g.candidates}; "
            f"need buffer >= {g.candidates}, or 0 for {config.permits} = (async_depth + 1) * candidates.",
        )
    if g.min_valid > g.size:
        raise ConfigError("groups.min_valid", f"{g.min_valid} valid members cannot come from size = {g.size} rollouts.")
    if not config.environments:
        raise ConfigError("environments", "no world to train in; add an [[environments]] entry.")
    names = [e.name for e in config.environments]
    if len(set(names)) != len(names):
        raise ConfigError("environments", f"each name may stand once; got {', '.join(names)}.")
    if config.needs_judge and not config.judge.endpoints:
        raise ConfigError(
            "judge.endpoints",
            "selection 'rised', distillation and steering read verdicts, but no endpoint is given; "
            'add a [[judge.endpoints]] entry (url = "embedded" starts the rule judge).',
        )
    for i, endpoint in enumerate(config.judge.endpoints):
        if endpoint.url != "embedded" and not _is_http(endpoint.url):
            raise ConfigError(
                f"judge.endpoints.{i}.url", f'{endpoint.url!r} is neither "embedded" nor an http(s) address.'
            )
    if config.async_depth == 0 and config.max_lag:
        raise ConfigError(
            "max_lag",
            f"async_depth = 0 is exactly on-policy: no token is ever old, so max_lag = {config.max_lag} says nothing.",
        )
    if config.stall_s <= g.deadline_s:
        raise ConfigError(
            "stall_s",
            f"{config.stall_s:g} s would end a run whose groups may take deadline_s = {g.deadline_s:g} s; "
            "need stall_s > groups.deadline_s.",
        )
    if g.size < 2 and a.advantage in ("grpo", "rloo", "dr_grpo"):
        raise ConfigError("groups.size", f"{a.advantage} compares members of a group; need size >= 2, got {g.size}.")


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or too large
        return False


def _toml_table(table: Mapping[str, Any], prefix: str) -> list[str]:
    lines: list[str] = []
    tables: list[str] = []
    for key, value in table.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, Mapping):
            tables += ["", f"[{name}]", *_toml_table(value, name)]
        elif isinstance(value, list | tuple) and value and all(isinstance(v, Mapping) for v in value):
            for item in value:
                tables += ["", f"[[{name}]]", *_toml_table(item, name)]
        else:
            lines.append(f"{key} = {_toml_value(value)}")
    return lines + tables


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    return msgspec.json.encode(str(value)).decode()
