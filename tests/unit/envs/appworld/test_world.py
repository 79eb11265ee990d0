"""Episodes on real server processes that speak AppWorld's calls."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envs.appworld.given import GivenFleet
from envs.appworld.private import PrivateFleet
from envs.appworld.world import OVER, AppWorld
from envs.registry import create
from stream_rl.errors import ConfigError, EnvironmentFailed, EnvironmentLost
from stream_rl.types import Split, Task
from tests.unit.envs.appworld.processes import children, ended

Serve = Callable[[], tuple[str, subprocess.Popen[str]]]
# Hangs deaf to the alarm that would interrupt it, and uses no processor meanwhile.
RUNAWAY = "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\ntime.sleep(600)"


def task(index: int = 0, split: Split = "train") -> Task:
    return Task(environment="appworld", split=split, index=index)


@pytest.fixture
def make(root: Path, python: Path) -> Callable[..., AppWorld]:
    def world(**options: Any) -> AppWorld:
        made = create("appworld", {"data": str(root), "python": str(python), **options})
        assert isinstance(made, AppWorld)
        return made

    return world


def test_the_first_message_has_the_person_the_date_and_the_task(make: Callable[..., AppWorld]) -> None:
    world = make()
    assert (world.num_tasks("train"), world.num_tasks("held_out"), world.prepare()) == (3, 1, 8)
    text = world.reset(task(), 0).text
    assert "apis.supervisor.complete_task()" in text
    assert text.endswith(
        "My name is Ada Marsh, my email address is ada@example.com and my phone number is 5550100001. "
        "It is 2023-05-18 12:00:00.\nTask: Do a_1."
    )
    plain = make(instructions=False)
    assert plain.reset(task(0, "held_out"), 0).text.startswith("My name is")
    assert plain.reset(task(5), 0).text.endswith("Do c_1.")  # begins again after the last
    world.close()
    plain.close()


def test_the_session_keeps_its_variables_and_the_tests_decide(make: Callable[..., AppWorld]) -> None:
    world = make()
    world.reset(task(), 0)
    assert world.step("```python\nx = 40\n```").text == "Execution successful."
    assert world.step("```python\nprint(x + 2)\n```").text == "42"
    result = world.step("complete(x + 2)")
    assert (result.done, result.success, result.reward, result.score) == (True, True, 1.0, 1.0)
    assert result.details == ()
    again = world.step("complete(0)")
    assert (again.text, again.done, again.success, again.reward, again.valid) == (OVER, True, True, 0.0, False)


@pytest.mark.parametrize(("score", "value"), [("success", 0.0), ("fraction", 0.5)])
def test_a_wrong_answer_fails_with_the_failed_tests_named(
    make: Callable[..., AppWorld], score: str, value: float
) -> None:
    world = make(score=score)
    world.reset(task(), 0)
    result = world.step("complete(41)")
    assert (result.done, result.success, result.reward, result.score) == (True, False, value, value)
    assert result.details == ("answer matches",)


def test_the_last_turn_is_graded_as_it_stands(make: Callable[..., AppWorld]) -> None:
    world = make(max_turns=2, score="fraction")
    world.reset(task(), 0)
    assert not world.step("Let me think.").done
    result = world.step("Let me think on.")
    assert (result.done, result.valid, result.success, result.score) == (True, False, False, 0.5)


def test_what_is_not_run_is_invalid_and_long_output_is_cut(make: Callable[..., AppWorld]) -> None:
    world = make(output_characters=10)
    world.reset(task(), 0)
    refused = world.step("I delete the note.")
    assert (refused.valid, refused.done, refused.text[:15]) == (False, False, "Invalid action:")
    assert not world.step("```python\nprint(5\n```").valid
    assert world.step("raise ValueError(1)").valid  # it ran
    assert world.step("print('y' * 3000)").text == "yyyyyyyyyy\n[cut: 3000 characters in all]"
    world.close()


def test_endless_code_is_cut_and_the_session_goes_on(make: Callable[..., AppWorld]) -> None:
    world = make(execute_s=1, timeout_s=9.0)
    world.reset(task(), 0)
    world.step("x = 42")
    result = world.step("while True: pass")
    assert (result.done, result.valid) == (False, True)
    assert "timed out after 1 seconds" in result.text
    assert world.step("complete(x)").success


def test_code_that_nothing_stops_ends_the_episode_as_a_failure(make: Callable[..., AppWorld]) -> None:
    world = make(execute_s=1, timeout_s=1.5, servers=1)
    world.reset(task(), 0)
    result = world.step(RUNAWAY)
    assert (result.done, result.success, result.score, result.valid) == (True, False, 0.0, True)
    assert "could not be stopped" in result.text
    world.reset(task(), 0)  # the only place is free again
    assert world.step("complete(42)").success


def test_memory_past_the_limit_is_an_error_of_the_code(make: Callable[..., AppWorld]) -> None:
    world = make(memory_mib=256)
    world.reset(task(), 0)
    assert "MemoryError" in world.step("x = bytearray(1 << 30)").text
    world.close()


def test_a_server_sees_nothing_of_our_environment(
    make: Callable[..., AppWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "secret")
    world = make()
    world.reset(task(), 0)
    assert (
        world.step("import os\nprint(os.environ.get('JUDGE_KEY'), os.environ['HOME'] != '/root')").text == "None True"
    )
    world.close()


def test_an_error_of_the_server_is_not_blamed_on_chance(make: Callable[..., AppWorld]) -> None:
    world = make()
    with pytest.raises(EnvironmentFailed, match=r"broken_1.*no such task") as caught:
        world.reset(task(1), 0)
    assert not isinstance(caught.value, EnvironmentLost)
    with pytest.raises(EnvironmentFailed, match="call reset first"):
        world.step("print(1)")


def test_a_server_that_dies_costs_its_episode_and_no_other(make: Callable[..., AppWorld]) -> None:
    first, second = make(), make()
    first.reset(task(), 0)
    second.reset(task(), 0)
    zygote = children(os.getpid())[-1]
    servers = children(zygote)
    os.kill(servers[0], signal.SIGKILL)
    with pytest.raises(EnvironmentLost, match=r"a_1.*killed by signal 9"):
        first.step("print(1)")
    assert second.step("complete(42)").success
    first.reset(task(), 0)
    assert first.step("complete(42)").success
    assert children(zygote) == []  # an episode's end is its server's


def test_the_process_that_servers_come_from_is_replaced(make: Callable[..., AppWorld]) -> None:
    world = make()
    world.reset(task(), 0)
    zygote = children(os.getpid())[-1]
    server = children(zygote)[0]
    with ended(server):
        os.kill(zygote, signal.SIGKILL)
    with pytest.raises(EnvironmentLost, match="a_1"):
        world.step("print(1)")
    world.reset(task(), 0)
    assert world.step("complete(42)").success


def test_places_are_counted(make: Callable[..., AppWorld]) -> None:
    first, second = make(servers=1), make(servers=1)
    assert first.prepare() == 1
    first.reset(task(), 0)
    with pytest.raises(EnvironmentFailed, match="all 1 servers of this process hold an episode"):
        second.reset(task(), 0)
    first.close()
    second.reset(task(), 0)
    second.close()


def test_what_cannot_start_says_why(root: Path, python: Path) -> None:
    fleet = PrivateFleet(python=python, data=root / "data", task="unusable_1", servers=1, memory_mib=0)
    with pytest.raises(EnvironmentFailed, match="ValueError: the task has no database"):
        fleet.prepare()
    no_program = PrivateFleet(python=root / "none", data=root / "data", task="a_1", servers=1, memory_mib=0)
    with pytest.raises(EnvironmentFailed, match="cannot be run"):
        no_program.prepare()


def test_servers_of_the_user_are_used_one_episode_each(root: Path, serve: Serve) -> None:
    (one, first), (two, _) = serve(), serve()
    worlds = [create("appworld", {"data": str(root), "urls": [one, two]}) for _ in range(3)]
    assert isinstance(worlds[0], AppWorld)
    assert worlds[0].prepare() == 2
    worlds[0].reset(task(0), 0)
    worlds[1].reset(task(2), 0)
    assert worlds[1].step("complete(42)").success
    assert worlds[0].step("print(7)").text == "7"  # nobody else's world has replaced it
    worlds[1].reset(task(2), 0)
    with pytest.raises(EnvironmentFailed, match="all 2 servers"):
        worlds[2].reset(task(2), 0)
    first.kill()
    first.wait()
    with pytest.raises(EnvironmentLost):
        worlds[0].step("print(1)")
    worlds[1].close()
    worlds[0].reset(task(0), 0)  # on the other one
    assert worlds[0].step("complete(42)").success
    assert worlds[1].reset(task(0), 0).text
    with pytest.raises(EnvironmentLost, match="no server is of use now"):
        worlds[0].reset(task(0), 0)
    worlds[1].close()


def test_a_server_of_the_user_belongs_to_one_process(serve: Serve) -> None:
    (one, _), (two, _) = serve(), serve()
    mine, theirs, nobody = GivenFleet([one, two], 1), GivenFleet([one, two], 8), GivenFleet([one, two], 1)
    assert (mine.prepare(), theirs.prepare()) == (1, 1)
    with pytest.raises(EnvironmentFailed, match="other processes hold all 2 addresses"):
        nobody.prepare()
    mine.close()
    assert nobody.prepare() == 1
    nobody.close()
    theirs.close()


def test_a_server_of_the_user_that_hangs_is_left_out(root: Path, serve: Serve) -> None:
    address, _ = serve()
    world = create("appworld", {"data": str(root), "urls": [address], "execute_s": 1, "timeout_s": 1.5})
    world.reset(task(), 0)
    assert world.step(RUNAWAY).done
    with pytest.raises(EnvironmentLost, match="no server is of use now"):
        world.reset(task(), 0)


@pytest.mark.parametrize(
    ("options", "path", "says"),
    [
        ({"timeout_s": 5.0, "execute_s": 5}, "environments.options.timeout_s", "is no more than execute_s"),
        ({"servers": 0}, "environments.options", "servers"),
        ({"score": "best"}, "environments.options", "best"),
        ({"held_out": "test"}, "environments.options.held_out", "there are dev, train"),
        ({"urls": ["localhost:9000"]}, "environments.options.urls", "expected http://host:port"),
        ({"python": "/nowhere/python"}, "environments.options.python", "stream-rl envs setup appworld"),
        ({"data": ""}, "environments.options.data", "appworld download data"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    make: Callable[..., AppWorld], options: dict[str, Any], path: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        make(**options)
    assert caught.value.path == path
