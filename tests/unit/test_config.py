from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from stream_rl.config import Config, from_dict, load, to_toml
from stream_rl.errors import ConfigError

CONFIGS = [
    path
    for path in sorted((Path(__file__).parents[2] / "configs").rglob("*.toml"))
    if not path.name.endswith(".profile.toml")  # service times, for `simulate`
]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.name)
def test_every_shipped_configuration_loads_and_survives_writing(path: Path) -> None:
    config = load([path])
    assert from_dict(tomllib.loads(to_toml(config))) == config


def test_layers_go_left_to_right_and_set_comes_last(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text("seed = 1\n[groups]\nsize = 4\nmin_valid = 2\n")
    two.write_text("[groups]\nsize = 6\n")
    config = load([one, two], ["seed=9", 'policy.model="folder"', "learner.lr=1e-4"])
    assert (config.seed, config.groups.size, config.groups.min_valid) == (9, 6, 2)
    assert config.policy.model == "folder"
    assert config.learner.lr == 1e-4


def test_one_entry_of_an_array_can_be_set(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[[environments]]\nname = "a"\n[[environments]]\nname = "b"\n')
    config = load([path], ["environments.1.workers=3"])
    assert [(e.name, e.workers) for e in config.environments] == [("a", 1), ("b", 3)]
    with pytest.raises(ConfigError, match="only 2 entries"):
        load([path], ["environments.2.workers=3"])


WRONG = {
    "unknown table": ("gropus.size=3", "gropus", "groups"),
    "unknown key": ("groups.sise=3", "groups.sise", "groups.size"),
    "unknown key in an array": ("environments=[{nam='x'}]", "environments.0.nam", "environments.0.name"),
    "wrong type": ("groups.size='many'", "groups.size", None),
    "not an integer": ("groups.size=2.5", "groups.size", None),
    "negative": ("async_depth=-1", "async_depth", None),
    "not a choice": ("algorithm.selection='risd'", "algorithm.selection", "rised"),
    "fewer candidates than trained": ("groups.candidates=4", "groups.candidates", None),
    "all with unequal numbers": ("groups.candidates=32", "algorithm.selection", None),
    "buffer below a round": ("groups.buffer=3", "groups.buffer", None),
    "more valid than there are": ("groups.min_valid=9", "groups.min_valid", None),
    "no world": ("environments=[]", "environments", None),
    "a delay of a judge that is not ours": (
        "judge.endpoints=[{url='http://127.0.0.1:1/v1',delay_s=1.0}]",
        "judge.endpoints.0.delay_s",
        None,
    ),
    "a template without a window": ("environments=[{template='x.txt'}]", "environments.0.template", None),
    "thinking without a window": (
        "environments=[{name='a'},{name='b',thinking=true}]",
        "environments.1.thinking",
        None,
    ),
    "an answer without room for a prompt": ("generate.max_tokens=512", "generate.max_tokens", None),
    "an answer of one world without room": (
        "environments=[{name='a'},{name='b',max_tokens=600}]",
        "environments.1.max_tokens",
        None,
    ),
    "no turns": ("environments=[{max_turns=-1}]", "environments.0.max_turns", None),
    "world twice": ("environments=[{name='a'},{name='a'}]", "environments", None),
    "rised without a judge": ("algorithm.distillation='rised'", "judge.endpoints", None),
    "judge address": ("judge.endpoints=[{url='ftp://x'}]", "judge.endpoints.0.url", None),
    "judge port": ("judge.endpoints=[{url='http://localhost:abc/v1'}]", "judge.endpoints.0.url", None),
    "stall before the deadline": ("stall_s=10", "stall_s", None),
    "other split": ("environments=[{split='test'}]", "environments.0.split", None),
    "one member": ("groups.size=1", "groups.size", None),
    "window without rounds": ("groups.window=3", "groups.window", None),
    "betas": ("learner.betas=[0.9]", "learner.betas", None),
    "no value": ("groups.size", "--set groups.size", None),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused_with_its_path_and_the_nearest_name(name: str) -> None:
    override, path, nearest = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        load([], [override])
    assert caught.value.path == path
    assert caught.value.nearest == nearest
    assert caught.value.exit_code == 2
    assert path in str(caught.value)


def test_nccl_needs_an_engine_that_has_it() -> None:
    with pytest.raises(ConfigError, match=r"weights\.transport: 'nccl' .* generate\.engine = 'transformers'"):
        load([], ["weights.transport=nccl", "generate.engine=transformers"])
    assert load([], ["weights.transport=nccl", "generate.engine=vllm"]).weights.transport == "nccl"


def test_adapters_go_by_files_or_stream() -> None:
    with pytest.raises(ConfigError, match=r"weights\.transport: 'nccl' .* learner\.lora_rank = 4 publishes adapters"):
        load([], ["weights.transport=nccl", "learner.lora_rank=4"])
    assert load([], ["weights.transport=stream", "learner.lora_rank=4"]).learner.lora_rank == 4


def test_arithmetic_is_shown() -> None:
    with pytest.raises(ConfigError, match=r"buffer of 3 .* candidates = 16.* 32 = \(async_depth \+ 1\) \* candidates"):
        load([], ["groups.buffer=3"])


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "embedded.toml").write_text("")
    (tmp_path / "bad.toml").write_text("seed = = 3")
    with pytest.raises(ConfigError, match="no such configuration file") as caught:
        load([tmp_path / "embeded.toml"])
    assert caught.value.nearest == "embedded.toml"
    with pytest.raises(ConfigError, match="not valid TOML"):
        load([tmp_path / "bad.toml"])


def test_derived_numbers() -> None:
    config = from_dict({"async_depth": 2, "groups": {"size": 8}})
    assert config.permits == 48  # (2 + 1) * 16
    assert config.buffer == 48
    assert config.min_valid == 4
    assert config.lag_limit == 2
    assert from_dict({"async_depth": 2, "max_lag": 1}).lag_limit == 1
    assert from_dict({"async_depth": 2, "groups": {"window": 3}}).lag_limit == 4  # 2 + 3 - 1
    assert Config().needs_judge is False


def test_a_world_has_its_own_limits_or_those_of_all() -> None:
    tree = {
        "generate": {"max_turns": 20, "max_tokens": 8},
        "environments": [
            {"name": "a"},
            {"name": "b", "max_turns": 15},
            {"name": "c", "max_turns": 5, "max_tokens": 64},
        ],
    }
    config = from_dict(tree)
    limits = {name: (config.limits(name).max_turns, config.limits(name).max_tokens) for name in "abc"}
    assert limits == {"a": (20, 8), "b": (15, 8), "c": (5, 64)}
    assert config.episode_tokens == 320  # c: 5 turns of 64; a: 160, b: 120


def test_depth_zero_refuses_a_lag_limit() -> None:
    with pytest.raises(ConfigError, match="exactly on-policy"):
        from_dict({"async_depth": 0, "max_lag": 1})
