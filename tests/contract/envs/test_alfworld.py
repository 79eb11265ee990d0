"""ALFWorld over the real package, in whatever venv it is: generated games, and a real one where it is at hand."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from envs.adapters.remote import Remote
from envs.registry import create
from stream_rl.types import Task
from tests.contract.envs.serving import ROOT, interpreter, served

REAL = ROOT.parent / "shared" / "data" / "alfworld"
KINDS = {
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
}

pytestmark = pytest.mark.timeout(240)  # a stock start takes a second, and is made on purpose


def run(*command: str) -> str:
    """What a module printed to standard output, nothing else may be there."""
    done = subprocess.run(
        [interpreter("alfworld"), *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def report(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("-m", "stream_rl.cli", "envs", *arguments, "--json"))
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve games: one of each kind for training, and to be held out."""
    folder = tmp_path_factory.mktemp("alfworld")
    told = report("make", "alfworld", str(folder), "--games", "12", "--seed", "5")
    assert told["kinds"] == dict.fromkeys(KINDS, 2)
    assert told["splits"] == {"train": 6, "valid_seen": 6}
    return folder


def test_generated_games_are_won_by_their_walkthroughs(made: Path) -> None:
    told = report("check", "alfworld", "--gold", "--data", str(made))
    assert (told["games"], told["won"], told["lost"], told["skipped"]) == (12, 12, [], {})
    assert told["accelerated"]


def test_upstreams_own_environment_says_the_same(made: Path) -> None:
    said = run("-m", "benchmarks.alfworld", str(made), "--same", "--games", "6", "--steps", "4")
    assert "6 games, 4 random steps each: the same observations, admissible commands and outcomes" in said


@pytest.mark.skipif(not REAL.is_dir(), reason="no game of upstream's beside the project, in ../shared/data/alfworld")
@pytest.mark.parametrize("by", ["walkthrough", "expert"])
def test_a_game_of_upstreams_is_won_by_upstreams_own_solution(by: str) -> None:
    told = report("check", "alfworld", "--gold", "--data", str(REAL), "--option", f"by={by}")
    assert (told["games"], told["won"]) == (1, 1)


def test_episodes_through_worker_processes(made: Path) -> None:
    with served(interpreter("alfworld"), "alfworld", "--data", str(made), "--workers", "2") as url:
        world = create("remote", {"url": url})
        assert isinstance(world, Remote)
        assert (world.num_tasks("train"), world.num_tasks("held_out")) == (6, 6)
        walkthroughs = [_walkthrough(file) for file in sorted(made.glob("json_2.1.1/train/*/*/game.tw-pddl"))]
        for index in range(2):
            task = Task(environment="alfworld", split="train", index=index)
            first = world.reset(task, seed=index)
            assert first.text.startswith("You are in the middle of a room.")
            assert "\n\nYour task is to: " in first.text
            assert world.reset(task, seed=7) == first
            refused = world.step("dance on the moon")
            assert (refused.text, refused.valid, refused.done) == ("Nothing happens.", False, False)
            assert refused.admissible == first.admissible
            assert any(_wins(world, task, commands) for commands in walkthroughs)
        world.close()


DOUBT = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from envs.alfworld import fast, grammar, package
from envs.alfworld.agreement import can_accelerate
from envs.alfworld.engine import Engine, read_game

game = read_game(sys.argv[1])
print("as it is:", can_accelerate(game))
fast._PROPOSITIONS = 10  # upstream's memory of facts is emptied while other games are being played
others = [Engine(fast=True), Engine(fast=True)]
for engine in others:
    engine.load(game)
print("emptied:", can_accelerate(game), others[0].reset() == others[1].reset())
known, package._KNOWN = package._KNOWN, {"textworld": ("0.1",)}
print("another release:", can_accelerate(game))
package._KNOWN = known
told, grammar.CompiledGrammar._enumerate = grammar.CompiledGrammar._enumerate, lambda self, items, moment: "things"
print("another answer:", can_accelerate(game))
grammar.CompiledGrammar._enumerate = told
engine = Engine(fast=True)
engine.load({**game, "grammar": game["grammar"].replace("r.name or r.id", "r.name.upper()")})
print("another grammar:", engine.accelerated, engine.reset().text)
"""


def test_what_is_in_doubt_is_played_by_upstreams_own_code(made: Path) -> None:
    game = min(made.glob("json_2.1.1/train/*/*/game.tw-pddl"), key=lambda file: file.stat().st_size)
    said = run("-c", DOUBT, str(game))
    assert "as it is: True" in said
    assert "emptied: True True" in said
    assert "another release: False" in said
    assert "textworld is 1." in said
    assert "another answer: False" in said
    assert "answer 0 differs from the stock one" in said
    assert "another grammar: False -= Welcome" in said
    assert "has a Call, which is not evaluated here" in said
    assert "you see a " in said.rpartition("another grammar")[2]


def _walkthrough(game: Path) -> list[str]:
    commands: list[str] = json.loads(game.read_text())["walkthrough"]
    return commands


def _wins(world: Remote, task: Task, commands: list[str]) -> bool:
    world.reset(task, 0)
    result = None
    for command in commands:
        result = world.step(command)
        if not result.valid:
            return False
    return result is not None and result.done and result.success and result.reward == 1.0
