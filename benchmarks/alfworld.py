"""ALFWorld: speed against upstream's code as it is, the same answers as upstream's own AlfredTWEnv, steady memory.

python -m benchmarks.alfworld DIR [--speed] [--same] [--soak] [--games 60] [--steps 20] [--episodes 2000] [--workers 2]

DIR is a data folder in upstream's layout (`stream-rl envs make alfworld DIR`). Run it where alfworld is installed.
Without a choice the first two parts run.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio

from envs.alfworld.engine import Engine, read_game
from envs.alfworld.games import KINDS, Game, data_folder
from envs.alfworld.language import BANNER
from envs.alfworld.listing import list_games
from envs.alfworld.world import AlfWorld
from envs.players import RandomPlayer
from envs.pool import WorkerPool
from stream_rl.config import EnvironmentConfig
from stream_rl.types import Split, Task

_MIB = 1 << 20
_GROUP = 8  # episodes of one game, as a group has them
_UPSTREAM_SPLITS = {"train": "train", "valid_seen": "eval_in_distribution", "valid_unseen": "eval_out_of_distribution"}
UNKNOWN = "dance on the moon"


def speed(games: tuple[Game, ...], steps: int) -> float:
    """Both engines through the same commands, turn about, `_GROUP` episodes of each game; how many times faster."""
    spent: dict[bool, list[float]] = {False: [0.0] * 3, True: [0.0] * 3}  # loads, starts, steps
    count = 0
    for game in games:
        data = read_game(game.path)
        told = []
        for fast in (False, True):
            engine, rng = Engine(fast=fast), random.Random(game.path)
            with _added(spent[fast], 0):
                engine.load(data)
            answers = []
            for _ in range(_GROUP):
                with _added(spent[fast], 1):
                    seen = engine.reset()
                for _ in range(steps):
                    command = rng.choice(seen.commands)
                    with _added(spent[fast], 2):
                        seen = engine.step(command)
                    answers.append(seen)
                    if seen.won:
                        break
            told.append(answers)
        if told[0] != told[1]:
            raise SystemExit(f"{game.path}: the two engines differ")
        count += len(told[0])
    for fast, times in spent.items():
        load, start, step = times
        print(
            f"{'accelerated' if fast else 'stock':<11}  load {1000 * load / len(games):7.1f} ms   further start "
            f"{1000 * start / len(games) / _GROUP:6.1f} ms   step {1000 * step / count:6.2f} ms   "
            f"{count / sum(times):6.1f} steps/s, all included"
        )
    ratio = sum(spent[False]) / sum(spent[True])
    print(f"{ratio:.1f} times stock speed over groups of {_GROUP} ({spent[False][2] / spent[True][2]:.1f} a step)")
    return ratio


@contextlib.contextmanager
def _added(totals: list[float], place: int) -> Iterator[None]:
    began = time.process_time()
    yield
    totals[place] += time.process_time() - began


def same(base: Path, num_games: int, steps: int) -> int:
    """Games that upstream's AlfredTWEnv and our world told alike. Ends the program where they do not."""
    played = 0
    for split, name in _UPSTREAM_SPLITS.items():
        if (base / split).is_dir() and played < num_games:
            played += _same_split(base, split, name, num_games - played, steps)
    print(f"{played} games, {steps} random steps each: the same observations, admissible commands and outcomes")
    return played


def _same_split(base: Path, split: str, name: str, num_games: int, steps: int) -> int:
    from alfworld.agents.environment import get_environment

    config: dict[str, Any] = {
        "env": {
            "goal_desc_human_anns_prob": 0,
            "task_types": [1, 2, 3, 4, 5, 6],
            "domain_randomization": False,
            "expert_type": "handcoded",
        },
        "dataset": {
            "data_path": str(base / "train"),
            "eval_id_data_path": str(base / "valid_seen"),
            "eval_ood_data_path": str(base / "valid_unseen"),
            "num_train_games": -1,
            "num_eval_games": -1,
        },
        "general": {"training_method": "dqn"},
        "rl": {"training": {"max_nb_steps_per_episode": steps + 1}},
    }
    upstream = get_environment("AlfredTWEnv")(config, train_eval=name)
    theirs = upstream.init_env(batch_size=1)
    ours_split: Split = "train" if split == "train" else "held_out"
    ours = AlfWorld(data=str(base), held_out="valid_seen" if split == "train" else split, max_turns=0)
    index = {
        ours.game_of(Task(environment="alfworld", split=ours_split, index=i)).path: i
        for i in range(ours.num_tasks(ours_split))
    }
    if set(index) != set(map(str, upstream.game_files)):
        raise SystemExit(f"{split}: upstream finds other games")
    tried = min(num_games, len(index))
    for _ in range(tried):
        (text,), infos = theirs.reset()
        path = infos["extra.gamefile"][0]
        rng = random.Random(path)
        first = ours.reset(Task(environment="alfworld", split=ours_split, index=index[path]), 0)
        _expect(path, first.text, text.removeprefix(BANNER).strip())
        admissible = first.admissible
        for step in range(steps):
            _expect(path, list(admissible), infos["admissible_commands"][0])
            command = UNKNOWN if step == steps // 2 else rng.choice(admissible)
            (text,), _, (done,), infos = theirs.step([command])
            result = ours.step(command)
            _expect(path, result.text, text)
            _expect(path, result.success, infos["won"][0])
            _expect(path, result.valid, command != UNKNOWN)
            if done or result.done:
                _expect(path, result.success, bool(done))
                break
            admissible = result.admissible
    ours.close()
    theirs.close()
    return tried


def _expect(path: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise SystemExit(f"{path}: we say {ours!r}, upstream says {theirs!r}")


async def soak(data: str, workers: int, parallel: int, episodes: int, turns: int) -> bool:
    """Random episodes in groups of `_GROUP` through worker processes. Whether nothing failed and memory stayed flat.

    Flat: in the second half the largest worker holds at most a tenth more than it held in the first.
    """
    config = EnvironmentConfig(
        name="alfworld", data=data, workers=workers, step_deadline_s=60.0, options={"max_turns": turns}
    )
    waiting, steps, held = iter(range(episodes)), 0, dict[int, float]()

    async def play_all(pool: WorkerPool) -> None:
        nonlocal steps
        for number in waiting:
            task = Task(environment="alfworld", split="train", index=number // _GROUP)
            session = await pool.open("alfworld")
            try:
                first = await session.reset(task, 0)
                player, admissible, done = RandomPlayer(first.text, random.Random(number)), first.admissible, False
                while not done:
                    result = await session.step(player.act(admissible))
                    admissible, done = result.admissible, result.done
                    steps += 1
            finally:
                await session.aclose()
            if number % (episodes // 10) == 0:
                held[number] = max(pool.memory_bytes.values(), default=0) / _MIB
                print(f"  {number:5} episodes, largest worker {held[number]:.0f} MiB", flush=True)

    async with WorkerPool([config]) as pool:
        began = time.monotonic()
        async with anyio.create_task_group() as group:
            for _ in range(parallel):
                group.start_soon(play_all, pool)
        seconds = time.monotonic() - began
        held[episodes], restarts = max(pool.memory_bytes.values(), default=0) / _MIB, pool.restarts
    first = max(size for number, size in held.items() if number <= episodes // 2)
    second = max(size for number, size in held.items() if number > episodes // 2)
    print(
        f"{episodes} episodes, {parallel} at once over {workers} workers: {steps} steps in {seconds:.0f} s, "
        f"{steps / seconds:.0f} steps/s; largest worker at most {first:.0f} MiB in the first half, "
        f"{second:.0f} MiB in the second; {restarts} restarts"
    )
    return not restarts and second <= 1.1 * first


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DIR")
    parser.add_argument("--speed", action="store_true", help="against stock")
    parser.add_argument("--same", action="store_true", help="answers against AlfredTWEnv")
    parser.add_argument("--soak", action="store_true", help="memory over many episodes in worker processes")
    parser.add_argument("--games", type=int, default=60, help="for --same; --speed plays a tenth of them")
    parser.add_argument("--steps", type=int, default=20, help="of an episode")
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--parallel", type=int, default=16, help="episodes at once")
    arguments = parser.parse_args()
    default = not (arguments.speed or arguments.same or arguments.soak)
    base, failed = data_folder(arguments.data), False
    if arguments.same or default:
        same(base, arguments.games, arguments.steps)
    if arguments.speed or default:
        games = list_games(base).games
        by_kind = [
            next(game for game in games if game.kind == kind) for kind in KINDS if any(g.kind == kind for g in games)
        ]
        failed |= speed(tuple(by_kind[: max(1, arguments.games // 10)]), arguments.steps) < 10
    if arguments.soak:
        failed |= not anyio.run(
            soak, arguments.data, arguments.workers, arguments.parallel, arguments.episodes, arguments.steps
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
