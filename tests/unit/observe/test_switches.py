from __future__ import annotations

import tomllib

from stream_rl.config import from_dict, to_toml
from stream_rl.observe.switches import MAIN, switches


def test_the_main_switches_come_first_then_what_differs_from_the_defaults() -> None:
    config = from_dict(
        {"algorithm": {"advantage": "gigpo", "kl_coef": 0.01, "clip_high": 0.3, "correction_limits": [2.0]}}
    )
    found = switches(tomllib.loads(to_toml(config)))
    assert tuple(found)[: len(MAIN)] == MAIN
    assert found["advantage"] == "gigpo"
    assert found["distillation"] == "none"
    rest = {name: value for name, value in found.items() if name not in MAIN}
    assert rest == {"clip_high": 0.3, "kl_coef": 0.01, "correction_limits": [2.0]}


def test_defaults_show_the_main_switches_alone() -> None:
    assert tuple(switches(tomllib.loads(to_toml(from_dict({}))))) == MAIN


def test_a_run_of_another_version_shows_what_it_has() -> None:
    found = switches({"seed": 1, "algorithm": {"loss": "clip", "behavior_cap": 5.0}})
    assert found["teacher"] == "current"
    assert found["behavior_cap"] == 5.0
    assert switches({"seed": 1})["advantage"] == "grpo"


def test_a_run_without_a_configuration_has_none() -> None:
    assert switches({}) == {}
