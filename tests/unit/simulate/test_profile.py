from __future__ import annotations

from pathlib import Path

import pytest

from stream_rl.app.defaults import SHIPPED
from stream_rl.errors import ConfigError
from stream_rl.simulate.profile import Profile, read_profile, write_profile
from tests.unit.simulate.profiles import profile

SMALL = """
[generator]
turn_s = 0.1
rollout_s = 0.01

[learner]
forward_s = 0.1
train_s = 0.3

[[environments]]
name = "household"
turns = [5, 10]
"""


def test_a_profile_needs_few_numbers(tmp_path: Path) -> None:
    file = tmp_path / "small.profile.toml"
    file.write_text(SMALL, encoding="utf-8")
    found = read_profile(file)
    assert found.cores == 0
    assert found.environments[0].turns == (5.0, 10.0)
    assert found.learner.teacher_s == 0.0


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "p.profile.toml"
    made: Profile = profile(turns=(2.0, 4.5), cores=2, answer_s=1.25, note='says "so"', invalid_share=0.125)
    write_profile(made, file)
    assert read_profile(file) == made


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[generator", "not valid TOML"),
        (SMALL.replace("train_s = 0.3\n", ""), "missing required field `train_s`.*learner"),
        (SMALL + "wrong = 1\n", "unknown field `wrong`"),
        (SMALL.replace("[5, 10]", "[]"), "length >= 1.*turns"),
        (SMALL.replace("0.01", "-0.01"), "rollout_s"),
    ],
)
def test_what_is_no_profile_is_refused_with_its_name(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "bad.profile.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=problem) as caught:
        read_profile(file)
    assert caught.value.path == str(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such profile"):
        read_profile(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_profile(profile(), tmp_path / "none" / "p.toml")


@pytest.mark.parametrize("file", sorted(SHIPPED.rglob("*.profile.toml")), ids=lambda file: file.name)
def test_shipped_profiles_say_where_they_come_from(file: Path) -> None:
    assert read_profile(file).note
