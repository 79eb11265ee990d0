from __future__ import annotations

from pathlib import Path

from stream_rl.config import from_dict, to_toml
from stream_rl.observe.rundir import RunDirectory, append_json, read_json_lines
from stream_rl.page.columns import Columns
from stream_rl.page.depths import DepthPoint, Depths


def write(root: Path, wait_s: float, **keys: object) -> RunDirectory:
    run = RunDirectory.create(root)
    run.config.write_text(to_toml(from_dict(dict(keys))), encoding="utf-8")
    for step in range(2):
        parts = {"rollout_wait_s": wait_s, "train_s": 10.0 - wait_s, "total_s": 10.0}
        append_json(run.metrics, {"step": step, "learner": parts, "train_s": 10.0 * (step + 1)})
    return run


def read(depths: Depths, run: RunDirectory) -> list[DepthPoint]:
    columns = Columns()
    for line in read_json_lines(run.metrics):
        columns.add(line)
    return depths.read(columns.by_depth())


def test_runs_that_differ_in_depth_alone_share_an_axis(tmp_path: Path) -> None:
    run = write(tmp_path / "a", 4.0, async_depth=0)
    write(tmp_path / "b", 1.0, async_depth=2, seed=5, updates=7)
    write(tmp_path / "c", 3.0, async_depth=2, groups={"size": 4})
    points = read(Depths(run), run)
    assert [(p.run, p.depth, p.wait_share, p.update_s, p.updates, p.this) for p in points] == [
        ("a", 0, 0.4, 10.0, 2, True),
        ("b", 2, 0.1, 10.0, 2, False),
    ]


def test_a_run_whose_depth_was_changed_stands_at_both(tmp_path: Path) -> None:
    run = write(tmp_path / "a", 4.0, async_depth=1)
    run.metrics.unlink()
    for step, (depth, wait_s) in enumerate(((1, 5.0), (2, 1.0))):
        parts = {"rollout_wait_s": wait_s, "train_s": 10.0 - wait_s, "total_s": 10.0}
        line = {"step": step, "async_depth": depth, "learner": parts, "train_s": 10.0 * (step + 1)}
        append_json(run.metrics, line)
    assert [(p.depth, p.wait_share, p.updates) for p in read(Depths(run), run)] == [(1, 0.5, 1), (2, 0.1, 1)]


def test_what_is_no_run_beside_it_is_passed_over(tmp_path: Path) -> None:
    run = write(tmp_path / "a", 4.0)
    for name, text in (("old", "updates = 3\n"), ("broken", "= nonsense")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(text, encoding="utf-8")
    assert [p.run for p in read(Depths(run), run)] == ["a"]
