"""The real package on a small world of our own: its apps, its tests, its server, forked as episodes need it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.appworld import fleets
from envs.appworld.check import GoldReport, replay_gold
from envs.appworld.world import AppWorld
from envs.pool import WorkerPool
from envs.registry import create
from stream_rl.config import EnvironmentConfig
from stream_rl.errors import EnvironmentLost
from stream_rl.types import Split, Task
from tests.contract.envs.serving import interpreter
from tests.unit.envs.appworld.processes import children, ended

TOY = Path(__file__).with_name("appworld_toy.py")
LOGIN = """\
passwords = {x["account_name"]: x["password"] for x in apis.supervisor.show_account_passwords()}
token = apis.simple_note.login(username="ada.marsh@example.com", password=passwords["simple_note"])["access_token"]
for note in apis.simple_note.search_notes(access_token=token):
    print(note["note_id"], note["title"], note["tags"])
"""
DELETE = """\
for note in apis.simple_note.search_notes(access_token=token):
    if note["title"] in {titles}:
        apis.simple_note.delete_note(note_id=note["note_id"], access_token=token)
apis.supervisor.complete_task()
"""
ENDLESS, UNSTOPPABLE = "while True: pass", "sum(iter(int, 1))"

pytestmark = pytest.mark.timeout(300)  # AppWorld takes ten seconds to load, and a busy machine longer


@pytest.fixture(scope="module")
def python() -> str:
    return interpreter("appworld")


@pytest.fixture(scope="module")
def root(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("appworld") / "root"
    made = subprocess.run([python, "-P", TOY, folder], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="module")
def world(python: str, root: Path) -> Iterator[AppWorld]:
    options = {"data": str(root), "python": python, "score": "fraction", "execute_s": 3, "timeout_s": 15.0}
    made = create("appworld", options)
    assert isinstance(made, AppWorld)
    made.prepare()
    yield made
    made.close()
    fleets.close_all()


def task(index: int, split: Split = "train") -> Task:
    return Task(environment="appworld", split=split, index=index)


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def test_the_right_solution_succeeds(world: AppWorld) -> None:
    first = world.reset(task(1), 0).text
    assert first.endswith(
        "My name is Ada Marsh, my email address is ada.marsh@example.com and my phone number is 5550100001. "
        'It is 2023-05-18 12:00:00.\nTask: Delete my Simple Note note titled "Groceries".'
    )
    notes = world.step(block(LOGIN))
    assert (notes.done, notes.valid) == (False, True)
    assert "Groceries" in notes.text
    result = world.step(block(DELETE.format(titles=["Groceries"])))  # the token is still there
    assert (result.done, result.success, result.score, result.details) == (True, True, 1.0, ())


def test_a_wrong_one_fails_with_the_failed_tests_named(world: AppWorld) -> None:
    world.reset(task(1), 0)
    world.step(block(LOGIN))
    result = world.step(block(DELETE.format(titles=["Rome plan"])))
    assert (result.done, result.success) == (True, False)
    assert result.score == pytest.approx(1 / 3)
    assert result.details == ("the note is gone", "no other note changed")
    world.reset(task(0), 0)
    result = world.step("apis.supervisor.complete_task(answer=3)")
    assert (result.success, result.score, result.details) == (False, 0.5, ("answer matches",))
    world.reset(task(0), 0)  # what the episode before did to the notes is undone
    assert "Rome plan" in world.step(block(LOGIN)).text
    assert world.step("apis.supervisor.complete_task(answer=2)").success


def test_an_endless_loop_is_cut(world: AppWorld) -> None:
    world.reset(task(0), 0)
    world.step("x = 2")
    cut = world.step(block(ENDLESS))
    assert (cut.done, cut.valid) == (False, True)
    assert "Execution timed out after 3 seconds" in cut.text
    assert world.step(block("print(x)")).text == "2"
    over = world.step(block(UNSTOPPABLE))
    assert (over.done, over.success, over.score) == (True, False, 0.0)
    assert "could not be stopped" in over.text
    assert world.reset(task(0), 0).text
    assert world.step("apis.supervisor.complete_task(answer=2)").success


def test_what_appworld_does_not_run_is_invalid(world: AppWorld) -> None:
    world.reset(task(0), 0)
    for code in ("print(5", "import os\nos.system('ls')", "open('/etc/passwd')"):
        refused = world.step(block(code))
        assert refused.text.startswith("Execution failed.")
        assert not refused.valid
    assert "MemoryError" in world.step("x = [0] * 10**9").text
    assert world.step("print(apis.simple_note.show_note(note_id=1, access_token='no'))").valid
    world.close()


async def test_a_killed_server_is_replaced_and_its_episode_runs_again(python: str, root: Path) -> None:
    options = {"python": python, "servers": 2, "timeout_s": 25.0}
    config = EnvironmentConfig(name="appworld", data=str(root), step_deadline_s=30.0, options=options)
    async with WorkerPool([config]) as pool:
        first, other = await pool.open("appworld"), await pool.open("appworld")
        await first.reset(task(0), 0)
        await other.reset(task(0, "held_out"), 0)
        (zygote,) = children(pool.pids[0])
        servers = children(zygote)
        assert len(servers) == 2
        os.kill(servers[0], signal.SIGKILL)
        with pytest.raises(EnvironmentLost, match="killed by signal 9"):
            await first.step("print(1)")
        await first.aclose()
        again = await pool.open("appworld")
        await again.reset(task(0), 0)
        assert (await again.step("apis.supervisor.complete_task(answer=2)")).success
        assert (await other.step("apis.supervisor.complete_task(answer=1)")).success
        assert pool.restarts == 0
        await again.aclose()
        last = await pool.open("appworld")
        await last.reset(task(0), 0)
        with ended(zygote, *children(zygote)):
            os.kill(pool.pids[0], signal.SIGKILL)


def test_upstreams_solutions_are_proved(python: str, root: Path) -> None:
    assert replay_gold(root, python=python) == GoldReport(tasks=2, solved=2, failed=0, without_solution=0, failures={})


def test_envs_check_reports_as_json(python: str, root: Path) -> None:
    command = [sys.executable, "-m", "stream_rl.cli", "envs", "check", "appworld", "--json", "--data", str(root)]
    options = ["--option", f"python={python}", "--option", "timeout_s=25.0", "--deadline", "30"]
    done = subprocess.run(
        [*command, *options, "--tasks", "9", "--player", "scripted"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["tasks"], report["episodes"], report["solved"], report["faults"]) == (2, 2, 0, {})
    assert (report["steps"], report["invalid_share"]) == (8, 0.0)
