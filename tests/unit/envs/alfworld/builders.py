"""Folders in upstream's layout, with as much in their files as the listing reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envs.alfworld.games import GAME_FILE, KINDS, TRIAL_FILE


def add_game(
    base: Path, place: str, *, kind: str = KINDS[0], solvable: Any = True, movable: str = "", sliced: bool = False
) -> Path:
    """A trial at `place` below `base`. `solvable` "missing": the game file does not say; "no file": there is none."""
    folder = base / place
    folder.mkdir(parents=True)
    trial = {
        "task_type": kind,
        "pddl_params": {"mrecep_target": movable, "object_sliced": sliced, "object_target": "Mug"},
        "images": [1, 2],
    }
    (folder / TRIAL_FILE).write_text(json.dumps(trial), encoding="utf-8")
    if solvable != "no file":
        game = {"grammar": "...", "walkthrough": ["look"]}
        if solvable != "missing":
            game["solvable"] = solvable
        (folder / GAME_FILE).write_text(json.dumps(game), encoding="utf-8")
    return folder
