"""What a replay judges with: endpoints and vocabulary, from the run's configuration and the command line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from stream_rl.config import Algorithm, Config, JudgeEndpoint, from_dict
from stream_rl.errors import ConfigError, UsageError
from stream_rl.observe.rundir import RunDirectory
from stream_rl.rubrics import vocabulary
from stream_rl.rubrics.vocabulary import Vocabulary

_READ = ("seed", "groups", "judge", "algorithm")  # what a replay needs of a configuration
_LONGEST_NAME = 80


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One replay."""

    name: str  # of its files: models and vocabulary
    endpoints: tuple[JudgeEndpoint, ...]  # asked; url "embedded" stands for the rule judge
    vocabulary: Vocabulary  # what is tagged
    source: str  # where the vocabulary comes from
    chunk: int  # rubrics asked in one request
    algorithm: Algorithm  # the run's own selection and hints

    @property
    def models(self) -> tuple[str, ...]:
        """All that may answer, sorted."""
        return tuple(sorted({endpoint.model for endpoint in self.endpoints}))


def plan_replay(
    run: RunDirectory,
    *,
    url: str | None = None,
    model: str | None = None,
    key_env: str | None = None,
    vocabulary_file: str | None = None,
) -> ReplayPlan:
    """The judge named by `url`, else the run's own endpoints, else the rule judge; the run's vocabulary, or a file.

    Raises `UsageError` or `ConfigError` for what cannot be used.
    """
    config = recorded(run.config)
    endpoints = _endpoints(config, url, model, key_env)
    source = vocabulary_file or config.judge.vocabulary
    words = vocabulary.load(source, chunk=config.judge.chunk)
    models = "+".join(sorted({endpoint.model for endpoint in endpoints}))
    return ReplayPlan(
        name=re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{models[:_LONGEST_NAME]}-{words.digest[:8]}"),
        endpoints=endpoints,
        vocabulary=words,
        source=source,
        chunk=config.judge.chunk,
        algorithm=config.algorithm,
    )


def recorded(file: Path) -> Config:
    """What a replay needs of a run's configuration, the rest at its defaults.

    Options that this version does not know are left out: the run may be of another one. Raises `ConfigError`.
    """
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), f"cannot be read: {error}; restore it from the file the run began with.") from None
    needed = {key: tree[key] for key in _READ if key in tree}
    return from_dict(_known(needed, Config))


def _known(tree: Any, kind: Any) -> Any:
    """`tree` without the keys that structs of `kind` do not have."""
    if get_origin(kind) is tuple and isinstance(tree, list):
        return [_known(item, get_args(kind)[0]) for item in tree]
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(tree, Mapping)):
        return tree
    kinds = get_type_hints(kind)
    return {key: _known(value, kinds[key]) for key, value in tree.items() if key in kinds}


def _endpoints(config: Config, url: str | None, model: str | None, key_env: str | None) -> tuple[JudgeEndpoint, ...]:
    configured = config.judge.endpoints
    if url is None:
        if model is not None or key_env is not None:
            raise UsageError("--model and --key-env say how to ask an --endpoint; name its address, too")
        return configured or (JudgeEndpoint(url="embedded"),)
    if url != "embedded" and not url.startswith(("http://", "https://")):
        raise UsageError(f'--endpoint {url}: expected "embedded", or an address like http://host:8000/v1')
    # One the run knows keeps its limits and prices.
    endpoint = next((e for e in configured if e.url == url), JudgeEndpoint(url=url))
    changes = {"model": model, "key_env": key_env}
    return (msgspec.structs.replace(endpoint, **{k: v for k, v in changes.items() if v is not None}),)
