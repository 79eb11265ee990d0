from __future__ import annotations

import importlib.util

import pytest

from envs.alfworld import package
from envs.registry import create
from stream_rl.errors import ConfigError

KNOWN = {"textworld": "1.7.0", "fast-downward-textworld": "20.6.4", "mementos": "1.3.1"}


@pytest.mark.skipif(importlib.util.find_spec("alfworld") is not None, reason="alfworld is installed here")
def test_without_the_packages_the_world_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"pip install 'stream-rl\[alfworld\]'") as caught:
        create("alfworld", {}, "environments.1")
    assert caught.value.path == "environments.1.options"


def test_releases_whose_insides_are_known() -> None:
    assert package.unknown_release(KNOWN) == ""


@pytest.mark.parametrize("name", KNOWN)
def test_another_release_is_named(name: str) -> None:
    assert package.unknown_release({**KNOWN, name: "99.0"}).startswith(f"{name} is 99.0, known are ")
    missing = {key: value for key, value in KNOWN.items() if key != name}
    assert package.unknown_release(missing).startswith(f"{name} is missing")
