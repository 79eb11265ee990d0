"""`stream-rl simulate`, and the published step times through it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stream_rl.app.defaults import SHIPPED
from stream_rl.cli import main
from stream_rl.simulate.profile import read_profile

PAPERS = SHIPPED / "papers"


def facts(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, float]:
    assert main(["simulate", *arguments, "--json"]) == 0
    found: dict[str, float] = json.loads(capsys.readouterr().out)
    return found


def test_the_embedded_default_needs_no_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("the embedded default: 78 updates, simulated\n")
    assert "service times" in text


def test_published_step_times(capsys: pytest.CaptureFixture[str]) -> None:
    """The first two are what the profile was fitted to. The third was not known to it."""
    few = ("--updates", "100", "--set", "eval.every=0")
    found = {
        name: facts(capsys, str(PAPERS / f"{name}-qwen2.5-3b.toml"), *few)["update_s"]
        for name in ("grpo-64", "grpo-128", "rised")
    }
    assert found["grpo-64"] == pytest.approx(155.5, rel=0.02)
    assert found["grpo-128"] == pytest.approx(249.6, rel=0.02)
    assert found["rised"] == pytest.approx(252.9, rel=0.1)


def test_options_reach_the_simulation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = tmp_path / "used.profile.toml"
    config = str(SHIPPED / "embedded-grpo.toml")
    shared = facts(capsys, config, "--updates", "5", "--seed", "3", "--save", str(saved))
    assert shared["updates"] == 5
    assert read_profile(saved).cores == 2
    again = facts(capsys, config, "--updates", "5", "--seed", "3", "--profile", str(saved))
    assert again["update_s"] == pytest.approx(shared["update_s"])
    apart = facts(capsys, config, "--updates", "5", "--seed", "3", "--cores", "0")
    assert apart["update_s"] < shared["update_s"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--set", "policy.model=org/model"], "how long org/model takes: measure a run"),
        (["--profile", "none.toml"], "none.toml: no such profile"),
        (["--set", "simulate.profile=none.toml"], "none.toml: no such profile"),
        (["--from", "no-such-run"], "no run 'no-such-run'"),
        (["--cores", "-1"], "--cores -1: expected 0 or more"),
        (["--seed", "-1"], "--seed -1: expected 0 or more"),
        (["--set", "environments=[{name=\"webshop\"}]"], "environments.0.name"),
    ],
)  # fmt: skip
def test_bad_usage_says_what_to_do(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_a_profile_lies_beside_the_configuration_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.profile.toml").write_bytes((SHIPPED / "embedded.profile.toml").read_bytes())
    config = tmp_path / "mine.toml"
    config.write_text('updates = 3\n[simulate]\nprofile = "mine.profile.toml"\n[eval]\nevery = 0\n', encoding="utf-8")
    assert facts(capsys, str(config))["updates"] == 3
