"""Which algorithm a run used: the main switches, and every other option that is not the default. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stream_rl.config import Algorithm
from stream_rl.observe.records import table

MAIN = ("advantage", "loss", "correction", "selection", "steering", "distillation", "teacher", "rubrics")


def switches(config: Mapping[str, Any]) -> dict[str, Any]:
    """`[algorithm]` of a resolved configuration, as plain values: `MAIN` first, then what differs, as declared.

    A run of another version may lack an option (it then had what is the default now) or hold one that is unknown here
    (it is shown). Empty for a run without a configuration.

    >>> found = switches({"algorithm": {"advantage": "rloo", "kl_coef": 0.01, "clip_low": 0.2}})
    >>> found["advantage"], found["loss"], found["kl_coef"], "clip_low" in found
    ('rloo', 'clip', 0.01, False)
    """
    if not config:
        return {}
    given = table(config, "algorithm")
    defaults = msgspec.json.decode(msgspec.json.encode(Algorithm()))
    found = {name: given.get(name, defaults[name]) for name in MAIN}
    order = [*defaults, *(name for name in given if name not in defaults)]
    changed = {name: given[name] for name in order if name in given and given[name] != defaults.get(name)}
    return found | changed
