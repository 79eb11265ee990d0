"""Games made by the real package, in whatever venv it is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from envs.adapters.remote import Remote
from envs.registry import create
from stream_rl.ports import Environment
from stream_rl.types import Task
from tests.contract.envs.serving import interpreter, served

MAKE = """
import json, sys
from pathlib import Path
import textworld
from textworld.generator import make_game

folder, walkthroughs = Path(sys.argv[1]), {}
for seed in range(8):
    options = textworld.GameOptions()
    options.seeds, options.nb_rooms, options.nb_objects = seed, 3, 6
    options.quest_length, options.quest_breadth = 3, 1
    game = make_game(options)
    game.save(str(folder / f"game{seed}.json"))
    walkthroughs[f"game{seed}"] = [str(command) for command in game.metadata["walkthrough"]]
print(json.dumps(walkthroughs))
"""


@pytest.mark.timeout(120)
def test_games_are_won_by_their_walkthroughs(tmp_path: Path) -> None:
    python = interpreter("textworld")
    made = subprocess.run([python, "-c", MAKE, str(tmp_path)], capture_output=True, text=True, check=True)
    walkthroughs: dict[str, list[str]] = json.loads(made.stdout.splitlines()[-1])
    with served(python, "textworld", "--option", f'games="{tmp_path}"') as url:
        world = create("remote", {"url": url})
        assert isinstance(world, Remote)
        trained, held = world.num_tasks("train"), world.num_tasks("held_out")
        assert trained is not None
        assert held is not None
        assert trained + held == len(walkthroughs)
        for index in range(trained):
            task = Task(environment="textworld", split="train", index=index)
            assert "You are in the" in world.reset(task, 0).text
            assert any(_wins(world, task, commands) for commands in walkthroughs.values())
        world.reset(Task(environment="textworld", split="train", index=0), 0)
        refused = world.step("dance on the moon")
        assert (refused.valid, refused.text, refused.reward) == (False, "Nothing happens.", 0.0)
        world.close()


def _wins(world: Environment, task: Task, commands: list[str]) -> bool:
    world.reset(task, 0)
    results = [world.step(command) for command in commands]
    return results[-1].success and sum(result.reward for result in results) == pytest.approx(1.0)
