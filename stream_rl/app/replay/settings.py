"""What a replay changes: `--set` over a run's own configuration, where the ledger can tell the difference."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from stream_rl.app.replay.plan import recorded
from stream_rl.config import Config, from_dict
from stream_rl.errors import ConfigError, UsageError

Reads = Literal["selection", "hints", "advantages"]

# Key -> what it decides. Everything else concerns what was rolled out, or needs the model.
KEYS: dict[str, Reads] = {
    "seed": "selection",
    "groups.per_update": "selection",
    "algorithm.selection": "selection",
    "algorithm.redundancy": "selection",
    "algorithm.distillation": "hints",
    "algorithm.rubrics": "hints",
    "algorithm.hint_support": "hints",
    "algorithm.hint_top_k": "hints",
    "algorithm.bundle_choice": "hints",
    "algorithm.min_rho": "hints",
    "algorithm.advantage": "advantages",
    "algorithm.stats_over": "advantages",
    "algorithm.invalid_action_penalty": "advantages",
    "algorithm.penalty_before_stats": "advantages",
    "algorithm.gigpo_weight": "advantages",
    "algorithm.gigpo_gamma": "advantages",
    "algorithm.gigpo_norm": "advantages",
}
_LONGEST_NAME = 80


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One option."""

    key: str  # path in the configuration
    was: Any  # the run's own value
    now: Any  # in the replay


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The run's own configuration beside the changed one."""

    run: Config  # as recorded, as far as this version knows its options
    changed: Config  # with the changes
    changes: tuple[Change, ...]  # in the order given; empty: the run is only checked

    def changes_any(self, what: Reads) -> bool:
        """Whether a change decides `what`. The seed also draws among written bundles."""
        return any(KEYS[c.key] == what or (c.key == "seed" and what == "hints") for c in self.changes)

    @property
    def name(self) -> str:
        """Of the file with the findings."""
        if not self.changes:
            return "recorded"
        said = "-".join(f"{change.key.rpartition('.')[2]}={change.now}" for change in self.changes)
        return "set-" + re.sub(r"[^A-Za-z0-9.=+-]+", "_", said)[:_LONGEST_NAME]


def read_settings(file: Path, overrides: Sequence[str]) -> Settings:
    """The run's `file`, and `overrides` ("a.b=c") over it.

    `selection = "all"` alone also takes every candidate. Raises `ConfigError` for a value that cannot be used,
    `UsageError` for a key that a replay cannot decide.
    """
    run = recorded(file)
    tree = msgspec.to_builtins(run)
    given = [_parsed(text) for text in overrides]
    keys = [key for key, _ in given]
    if ("algorithm.selection", "all") in given and "groups.per_update" not in keys:
        given.append(("groups.per_update", run.groups.candidates))
    changes: dict[str, Change] = {}
    for key, value in given:
        was = _put(tree, key, value)
        changes[key] = Change(key=key, was=changes[key].was if key in changes else was, now=value)
    # Nobody is asked here: whether the ledger holds the answers is seen there.
    tree["judge"]["endpoints"] = tree["judge"]["endpoints"] or [{"url": "embedded"}]
    changed = from_dict(tree)
    return Settings(run=run, changed=changed, changes=tuple(changes.values()))


def _parsed(text: str) -> tuple[str, Any]:
    key, equals, raw = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise ConfigError(f"--set {text}", "expected KEY=VALUE, for example --set algorithm.selection=mmr.")
    if key not in KEYS:
        near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.8)
        raise UsageError(
            f"--set {key}: the ledger cannot tell what this would have changed; a replay decides "
            f"{', '.join(KEYS)}." + (f" Did you mean `{near[0]}`?" if near else "")
        )
    try:
        return key, tomllib.loads(f"v = {raw}")["v"]
    except tomllib.TOMLDecodeError:
        return key, raw


def _put(tree: dict[str, Any], key: str, value: Any) -> Any:
    """Set one value; returns the one before."""
    *path, last = key.split(".")
    for part in path:
        tree = tree[part]
    before = tree[last]
    tree[last] = value
    return before
