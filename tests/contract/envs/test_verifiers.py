"""Environments of the real package, in whatever venv it is: both generations, one turn and many."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from envs.adapters.remote import Remote
from envs.registry import create
from stream_rl.ports import Environment
from stream_rl.types import Split, Task
from tests.contract.envs.serving import interpreter, served

SPELL = """
import verifiers.v1 as vf


class SpellData(vf.TaskData):
    word: str


class SpellTask(vf.Task[SpellData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def backwards(self, trace: vf.Trace) -> float:
        return float((trace.branches[-1].messages[-1].content or "").strip() == self.data.word[::-1])


class SpellTaskset(vf.Taskset[SpellTask, vf.TasksetConfig]):
    def load(self):
        for word in ("apple", "pear", "plum", "fig", "lime"):
            data = SpellData(name=word, word=word, prompt=f"Write {word} backwards.", system_prompt="One word.")
            yield SpellTask(data, self.config.task)


__all__ = ["SpellTaskset"]
"""
NUMBERS = """
import itertools

import verifiers.v1 as vf


class NumberData(vf.TaskData):
    number: int


class NumberTask(vf.Task[NumberData, vf.State, vf.TaskConfig]):
    pass


class NumberConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class NumberEnv(vf.Env[NumberConfig]):
    async def run(self, task, agents):
        won = 0.0
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            for _ in range(4):
                if segment.last_reply == str(task.data.number):
                    won = 1.0
                    break
                low = segment.last_reply.isdigit() and int(segment.last_reply) < task.data.number
                segment = await interaction.turn("higher" if low else "lower")
        interaction.trace.record_reward("won", won, 1.0)


class NumberTaskset(vf.Taskset[NumberTask, vf.TasksetConfig]):
    INFINITE = True

    def load(self):
        for i in itertools.count():
            yield NumberTask(NumberData(number=i % 8, prompt="Guess a number from 0 to 7."), self.config.task)


__all__ = ["NumberEnv", "NumberTaskset"]
"""
ECHO = """
import verifiers as vf
from datasets import Dataset


def load_environment(words: int = 6):
    rows = [{"question": f"Say word {i} twice.", "answer": f"{i} {i}"} for i in range(words)]

    def exact(completion, answer, **_):
        return float(completion[-1]["content"] == answer)

    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[exact]), system_prompt="Obey.")
"""
Open = Callable[..., Environment]


def has(python: str, expression: str) -> bool:
    """Whether a Python can evaluate something without failing."""
    return subprocess.run([python, "-c", expression], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def python() -> str:
    return interpreter("verifiers")


@pytest.fixture
def current(python: str, tmp_path: Path) -> Iterator[Open]:
    if not has(python, "import verifiers.v1 as vf; vf.resolve_env_config"):
        pytest.skip("the verifiers that is installed is older than 0.3")
    yield from _opener(python, tmp_path)


@pytest.fixture
def classic(python: str, tmp_path: Path) -> Iterator[Open]:
    if not has(python, "import verifiers; verifiers.load_environment"):
        pytest.skip("the verifiers that is installed is 0.4 or later, which has no load_environment")
    yield from _opener(python, tmp_path)


def _opener(python: str, folder: Path) -> Iterator[Open]:
    for name, text in (("spell", SPELL), ("numbers_", NUMBERS), ("echo", ECHO)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    with ExitStack() as stack:

        def open_world(env: str, *options: str) -> Environment:
            pairs = [part for option in (f'env="{env}"', *options) for part in ("--option", option)]
            url = stack.enter_context(
                served(python, "verifiers", *pairs, "--deadline", "60", "--start", "400", path=folder)
            )
            world = create("remote", {"url": url, "timeout_s": 55.0})
            stack.callback(world.close)
            return world

        yield open_world


def task(index: int, split: Split = "train") -> Task:
    return Task(environment="verifiers", split=split, index=index)


def test_one_turn(current: Open) -> None:
    world = current("spell")
    assert isinstance(world, Remote)
    assert (world.num_tasks("held_out"), world.num_tasks("train")) == (2, 3)  # at most half is held out
    first = world.reset(task(0, "held_out"), 0)
    assert first.text == "One word.\n\nWrite apple backwards."
    result = world.step("elppa")
    assert (result.done, result.success, result.reward, result.score) == (True, True, 1.0, 1.0)
    assert world.reset(task(0), 0).text.endswith("Write plum backwards.")
    result = world.step("plum")
    assert (result.done, result.success, result.reward) == (True, False, 0.0)


def test_many_turns_of_an_endless_taskset(current: Open) -> None:
    world = current("numbers_", "limit=50", "held_out=8")
    assert isinstance(world, Remote)
    assert (world.num_tasks("held_out"), world.num_tasks("train")) == (8, 42)
    assert world.reset(task(5), 0).text == "Guess a number from 0 to 7."
    answers = [world.step(guess) for guess in ("1", "7", "5")]
    assert [answer.text for answer in answers[:2]] == ["higher", "lower"]
    assert [answer.done for answer in answers] == [False, False, True]
    assert answers[-1].success
    world.reset(task(0), 0)
    for _ in range(4):
        result = world.step("7")
    assert not result.done  # it answers a fifth guess before it gives up
    assert world.step("7").reward == 0.0


def test_the_classic_generation(classic: Open) -> None:
    world = classic("echo", "args={words = 8}", "held_out=3")
    assert isinstance(world, Remote)
    assert (world.num_tasks("held_out"), world.num_tasks("train")) == (3, 5)
    assert world.reset(task(1), 0).text == "Obey.\n\nSay word 4 twice."
    assert world.step("4 4").success
    world.reset(task(1), 0)
    assert not world.step("4").success


def test_an_environment_that_the_package_ships(classic: Open, python: str) -> None:
    if not has(python, "import reasoning_gym"):
        pytest.skip("reasoning-gym is not installed beside verifiers")
    world = classic(
        "verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv",
        'args={gym = "basic_arithmetic", num_train_examples = 20, num_eval_examples = 5}',
    )
    assert isinstance(world, Remote)
    assert (world.num_tasks("train"), world.num_tasks("held_out")) == (20, 5)
    assert world.reset(task(0), 0).text
    assert world.step("<answer>certainly not</answer>").success is False
