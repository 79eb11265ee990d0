"""Combinations that would hang, starve or silently do something else."""

from __future__ import annotations

from urllib.parse import urlsplit

from stream_rl.config.cancelling import refuse_cancelling
from stream_rl.config.schema import Config
from stream_rl.errors import ConfigError

_LEAST_WRITING_PROMPT = 64  # tokens that show anything of a group at all


def refuse_impossible(config: Config) -> None:
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
    for i, entry in enumerate(config.environments):
        for key in ("template", "thinking"):
            if getattr(entry, key) and not entry.history:
                raise ConfigError(
                    f"environments.{i}.{key}",
                    "with history = 0 a conversation holds the world's own words and nothing else; "
                    "set history to the number of past turns a prompt shall show.",
                )
        answer, length = config.limits(entry.name).max_tokens, config.generate.max_model_len
        if answer >= length:
            raise ConfigError(
                f"environments.{i}.max_tokens" if entry.max_tokens else "generate.max_tokens",
                f"an answer of {answer} tokens leaves no room for a prompt in generate.max_model_len = {length}; "
                f"need at most {length - 1}.",
            )
    _refuse_servers(config)
    if config.needs_judge and not config.judge.endpoints:
        raise ConfigError(
            "judge.endpoints",
            "selection 'rised' or 'mmr', distillation and steering read a judge's answers, but no endpoint is given; "
            'add a [[judge.endpoints]] entry (url = "embedded" starts the rule judge).',
        )
    for i, endpoint in enumerate(config.judge.endpoints):
        if endpoint.url != "embedded" and not _is_http(endpoint.url):
            raise ConfigError(
                f"judge.endpoints.{i}.url", f'{endpoint.url!r} is neither "embedded" nor an http(s) address.'
            )
        if endpoint.url != "embedded" and endpoint.delay_s:
            raise ConfigError(
                f"judge.endpoints.{i}.delay_s",
                f'only the judge that is started here can be made slow (url = "embedded"), not {endpoint.url!r}.',
            )
    if g.window > config.async_depth + 1:
        raise ConfigError(
            "groups.window",
            f"a window of {g.window} rounds needs as many open at once, and async_depth = {config.async_depth} opens "
            f"{config.async_depth + 1}; need window <= {config.async_depth + 1}.",
        )
    if config.weights.transport == "nccl" and config.learner.lora_rank:
        raise ConfigError(
            "weights.transport",
            f"'nccl' carries whole models between GPUs, and learner.lora_rank = {config.learner.lora_rank} publishes "
            "adapters alone; they are small, use 'files' or 'stream'.",
        )
    if config.weights.transport == "nccl" and config.generate.engine not in ("auto", "vllm"):
        raise ConfigError(
            "weights.transport",
            f"'nccl' is a transport between GPUs of vLLM; generate.engine = {config.generate.engine!r} has none.",
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
    if g.size < 2 and a.distillation != "opsd":
        raise ConfigError("groups.size", f"{a.advantage} compares members of a group; need size >= 2, got {g.size}.")
    refuse_cancelling(a)
    room = config.generate.max_model_len - a.bundle_tokens
    if config.needs_bundles and room < _LEAST_WRITING_PROMPT:
        raise ConfigError(
            "algorithm.bundle_tokens",
            f"generate.max_model_len = {config.generate.max_model_len} less bundle_tokens = {a.bundle_tokens} leaves "
            f"{room} tokens to show a group in; need at least {_LEAST_WRITING_PROMPT}.",
        )


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or too large
        return False


def _refuse_servers(config: Config) -> None:
    generate = config.generate
    if generate.engine != "vllm-http":
        if generate.servers:
            raise ConfigError(
                "generate.servers",
                f'addresses of servers are used with generate.engine = "vllm-http" only, not {generate.engine!r}.',
            )
        return
    if len(generate.servers) != generate.producers:
        raise ConfigError(
            "generate.producers",
            f"each producer has one server of its own: {generate.producers} producers for "
            f"{len(generate.servers)} addresses in generate.servers.",
        )
    if len(set(generate.servers)) != len(generate.servers):
        raise ConfigError("generate.servers", f"each server may stand once; got {', '.join(generate.servers)}.")
