"""What the zygote warms up with."""

from __future__ import annotations

import os


class AppWorld:
    def __init__(self, task_id: str, experiment_name: str) -> None:
        if not os.path.isfile(os.path.join(os.environ["APPWORLD_ROOT"], "data", "datasets", "train.txt")):
            raise FileNotFoundError("no data")
        if task_id == "unusable_1":
            raise ValueError("the task has\nno database")
        print("AppWorld may print")  # noqa: T201

    def execute(self, code: str) -> str:
        return ""

    def close(self) -> None:
        pass
