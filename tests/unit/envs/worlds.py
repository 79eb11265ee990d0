"""Worlds that behave, and that misbehave on command. They run inside real workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import ClassVar

from stream_rl.errors import EnvironmentLost
from stream_rl.types import Observation, Split, StepResult, Task


class Counter:
    """Counts steps; an action may ask for trouble."""

    def __init__(self, limit: int = 3) -> None:
        self._limit = limit
        self._steps = 0

    def reset(self, task: Task, seed: int) -> Observation:
        self._steps = 0
        return Observation(text=f"{task.id} seed {seed}")

    def step(self, action: str) -> StepResult:
        if action == "raise":
            raise RuntimeError("the roof fell in")
        if action == "lose":
            raise EnvironmentLost("the server is gone")
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "exit":
            sys.exit(7)
        if action == "stall":
            threading.Event().wait()
        if action == "garbage":
            os.write(int(sys.argv[1]), b"\xff" * 64)
        if action == "wrong type":
            return "not a result"  # type: ignore[return-value]
        if action == "wrong field":
            return StepResult(text="x", reward="much")  # type: ignore[arg-type]
        if action == "print":
            os.write(1, b"to standard output\n")
        self._steps += 1
        done = self._steps >= self._limit
        return StepResult(text=f"{self._steps} in {os.getpid()}", done=done, success=done, reward=float(done))

    def close(self) -> None:
        pass


class Unfinished(Counter):
    def __init__(self) -> None:
        super().__init__()
        raise FileNotFoundError("games.zip is missing")


class Silent(Counter):
    def __init__(self) -> None:
        super().__init__()
        threading.Event().wait()


class Dead(Counter):
    def __init__(self) -> None:
        super().__init__()
        os._exit(3)


class Noisy(Counter):
    def __init__(self) -> None:
        super().__init__()
        os.write(int(sys.argv[1]), b"\xff" * 64)


class DiesOnce(Counter):
    """Can be made once for each file name; the next worker that tries finds the mark and cannot start."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        with open(mark, "x", encoding="utf-8"):
            pass


class Slow(Counter):
    """Takes its time for a step and says what it was told."""

    def __init__(self, step_s: float = 0.03) -> None:
        super().__init__()
        self._step_s = step_s

    def step(self, action: str) -> StepResult:
        time.sleep(self._step_s)
        return StepResult(text=action)


class Printer(Counter):
    """Writes to standard output in every way a library may, itself and through a child."""

    def step(self, action: str) -> StepResult:
        print("progress: 50 %", flush=True)
        sys.stdout.buffer.write(b"\xff\x00" * 40_000)
        sys.stdout.flush()
        os.write(1, b"\x08\x00\x00\x00garbage!")
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        return super().step(action)


class Hungry(Counter):
    """Takes, and keeps, as many MiB as it is told."""

    kept: ClassVar[list[bytearray]] = []

    def step(self, action: str) -> StepResult:
        self.kept.append(bytearray(b"\x01") * (int(action) << 20))
        return StepResult(text=str(os.getpid()))


class Counted(Counter):
    """Knows how many tasks it has."""

    def num_tasks(self, split: Split) -> int | None:
        return {"train": 12, "held_out": 3}[split]


class Uncountable(Counter):
    def num_tasks(self, split: Split) -> int | None:
        raise FileNotFoundError(f"{split}.txt is missing")


class TwoMethods:
    """A world that holds nothing."""

    def reset(self, task: Task, seed: int) -> Observation:
        return Observation(text=task.id)

    def step(self, action: str) -> StepResult:
        return StepResult(text=action, done=True)


class OneMethod:
    def reset(self, task: Task, seed: int) -> Observation:
        return Observation(text=task.id)
