"""`check`: preflight of a configuration, fact by fact. Stops at the first thing that cannot work."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import anyio
import msgspec

from envs import registry
from stream_rl import config as configuration
from stream_rl.app import defaults, preflight
from stream_rl.app.draws import drawn_tasks
from stream_rl.app.one_off import answer_of
from stream_rl.app.windows import windows
from stream_rl.config import Config
from stream_rl.errors import ConfigError
from stream_rl.observe.rundir import RunDirectory
from stream_rl.producer.history import new_history
from stream_rl.types import Task


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was checked and holds."""

    name: str  # what
    value: str  # what was found


def run(arguments: argparse.Namespace) -> int:
    """Print each fact as it is found. A fault is printed by the command line, with exit code 2 or 1."""
    config = defaults.load(arguments.config, arguments.overrides)
    facts = []
    for fact in check(config, quick=arguments.quick):
        facts.append(fact)
        if not arguments.json:
            sys.stdout.write(f"ok  {fact.name:<12} {fact.value}\n")
            sys.stdout.flush()
    if arguments.json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(facts)) + "\n")
    return 0


def check(config: Config, *, quick: bool = False) -> Iterator[Fact]:
    """Facts in order of cost; `quick` leaves out what starts an engine.

    Raises `ConfigError`, `JudgeFailed` or `RoleDied` for what cannot work.
    """
    preflight.check_static(config)
    groups = config.groups
    yield Fact(
        name="rounds",
        value=f"C = {groups.candidates} candidates, P = {groups.per_update} trained, G = {groups.size}; "
        f"permits (S + 1) * C = {config.async_depth + 1} * {groups.candidates} = {config.permits}",
    )
    yield Fact(name="engine", value=preflight.engine(config))
    preflight.check_judges(config)
    external = [e.url for e in config.judge.endpoints if e.url != "embedded"]
    yield Fact(name="judges", value=", ".join(external) or ("embedded" if config.judge.endpoints else "none"))
    yield from _memory(config)
    folder = yield from _policy(config)
    if config.learner.lora_rank:
        yield _adapters(config, folder)
    if not quick:
        yield _parity(config, folder)


def _memory(config: Config) -> Iterator[Fact]:
    run_root = Path("runs")
    directory = preflight.weights_directory(config, "check", run_root)
    place = next(p for p in (directory, *directory.parents) if p.exists())
    yield Fact(name="weights", value=f"{place}: {shutil.disk_usage(place).free / 2**30:.1f} GiB free")


def _policy(config: Config) -> Generator[Fact, None, Path]:
    """Template prefix, tokenizer round trip, and whether a first prompt fits: with the model's own tokenizer.

    Returns the policy's folder.
    """
    from stream_rl.app.embedded_policy import ensure_policy
    from stream_rl.renderer import load_renderer

    def progress(what: str, step: int, total: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{what}: {step}/{total} ")

    folder = ensure_policy(config.policy.model, config.policy.init, None, progress)
    renderer = load_renderer(str(folder))
    yield Fact(name="template", value=f"prefix-preserving ({folder.name})")
    longest = 0
    limit = config.generate.max_model_len
    shown = windows(config)
    counts: dict[str, int | None] = {}
    for i, entry in enumerate(config.environments):
        options = {**entry.options, "data": entry.data} if entry.data else entry.options
        environment = registry.create(entry.name, options, path=f"environments.{i}")
        answer = config.limits(entry.name).max_tokens
        first_prompt = 0
        count = getattr(environment, "num_tasks", None)
        counts[entry.name] = count("train") if callable(count) else None
        try:
            for index in range(8):
                first = environment.reset(Task(environment=entry.name, split="train", index=index), 0)
                history = new_history(shown.get(entry.name), renderer, "", max_model_len=limit, max_tokens=answer)
                first_prompt = max(first_prompt, len(history.first(first).ids))
        finally:
            environment.close()
        if first_prompt + answer > limit:
            raise ConfigError(
                "generate.max_model_len",
                f"{limit} tokens cannot hold a first prompt of {entry.name} ({first_prompt} tokens) and an answer of "
                f"{answer}.",
            )
        longest = max(longest, first_prompt)
    yield Fact(name="prompts", value=f"first prompts take up to {longest} of {limit} tokens")
    yield Fact(name="tasks", value=drawn_tasks(config, counts))
    return folder


def _adapters(config: Config, model: Path) -> Fact:
    """What is trained and published of the policy, against all of it. Raises `ConfigError` if that saves nothing."""
    from learner.lora import size_of  # heavy: torch, transformers

    rank, size = config.learner.lora_rank, size_of(model, config.learner.lora_rank)
    if size.trained >= size.total:
        raise ConfigError(
            "learner.lora_rank",
            f"adapters of rank {rank} have {size.trained:,} parameters, and the whole model has {size.total:,}; "
            "choose a smaller rank, or 0 to train the model itself.",
        )
    item_bytes = 2 if "bfloat16" in (config.policy.dtype, config.weights.dtype) else 4
    return Fact(
        name="adapters",
        value=f"rank {rank} on {size.num_layers} layers: {size.trained:,} of {size.total:,} parameters trained "
        f"({size.trained / size.total:.1%}); a version has {size.trained * item_bytes / 1e6:.2f} MB, "
        f"all parameters {size.total * item_bytes / 1e6:.2f} MB",
    )


def _parity(config: Config, model: Path) -> Fact:
    """The engine's log-probabilities against a plain forward of the same weights: half a minute with vLLM on a CPU."""
    with tempfile.TemporaryDirectory(prefix="stream-rl-check-") as folder:
        run_dir = RunDirectory.create(Path(folder))
        run_dir.config.write_text(configuration.to_toml(config), encoding="utf-8")
        answer = anyio.run(answer_of, "parity", run_dir, str(model.resolve()))
    return Fact(name="parity", value=f"{answer['told']} between engine and plain forward")
