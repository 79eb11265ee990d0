"""Names of worlds, and refusals that name the key."""

from __future__ import annotations

import pytest

from envs.registry import create, known
from stream_rl.errors import ConfigError
from stream_rl.types import Task
from tests.unit.envs.worlds import Counter


def test_known_worlds_have_a_one_line_description() -> None:
    worlds = known()
    assert "household" in [world.name for world in worlds]
    for world in worlds:
        assert world.description
        assert "\n" not in world.description


def test_a_world_is_made_by_name_or_by_module_and_class() -> None:
    counter = create("tests.unit.envs.worlds:Counter", {"limit": 1})
    assert isinstance(counter, Counter)
    counter.reset(Task(environment="x", split="train", index=0), 0)
    assert counter.step("a").done
    assert create("household", {}).reset(Task(environment="household", split="train", index=0), 0).text


@pytest.mark.parametrize(
    ("name", "path", "nearest"),
    [
        ("houshold", "environments.2.name", "household"),
        ("qqq", "environments.2.name", None),
        ("tests.unit.envs.worlds:Countess", "environments.2.name", None),
        ("tests.unit.envs.wrlds:Counter", "environments.2.name", None),
        (":", "environments.2.name", None),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(name: str, path: str, nearest: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        create(name, {}, "environments.2")
    assert (caught.value.path, caught.value.nearest) == (path, nearest)
    assert name in str(caught.value)


def test_options_a_world_does_not_take_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        create("tests.unit.envs.worlds:Counter", {"limmit": 2}, "environments.1")
    assert (caught.value.path, caught.value.nearest) == ("environments.1.options", "limit")
    assert "limmit" in str(caught.value)
