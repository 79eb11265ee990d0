from __future__ import annotations

from typing import Any

import pytest

from stream_rl.observe.compare import Comparison, Contender, compare, contender, mean_curve
from stream_rl.observe.compare_page import render_markdown, render_text
from stream_rl.observe.summary import summarise
from tests.unit.observe.samples import eval_record, metrics_line


def run(name: str, *, end: float, seed: int = 0, updates: int = 2, **config: Any) -> Contender:
    """Updates of 4 s, 12 device-seconds and 8000 generated tokens each, evaluated before and after all of them."""
    cost: dict[str, Any] = {"cost": {"device_s": {"learner": 8.0, "generators": 4.0}}}
    metrics = [metrics_line(i, train_s=4.0 * (i + 1), **cost) for i in range(updates)]
    evals = [
        eval_record(0, train_s=0.0, success=0.25),
        eval_record(updates, train_s=4.0 * updates, success=end),
    ]
    tree = {"seed": seed, "async_depth": 1, "learner": {"ranks": 1, "lr": 1e-4}, **config}
    events = [{"type": "finished", "complete": True}]
    summary = summarise(name, metrics=metrics, evals=evals, events=events, config=tree)
    return contender(name, tree, summary, metrics, evals)


def row(text: str, name: str) -> str:
    return " ".join(next(line for line in text.splitlines() if line.startswith(name)).split())


def test_seeds_of_one_setting_are_one_group() -> None:
    found = compare(
        [
            run("a-0", end=0.5, seed=0),
            run("b-0", end=0.6, seed=0, async_depth=2),
            run("a-1", end=0.7, seed=1, port=9, sinks=["prometheus"], page={"port": 8000}),
        ]
    )
    assert [(g.label, g.runs, g.seeds) for g in found.groups] == [
        ("async_depth = 1", ("a-0", "a-1"), (0, 1)),
        ("async_depth = 2", ("b-0",), (0,)),
    ]
    assert [g.setting for g in found.groups] == [{"async_depth": 1}, {"async_depth": 2}]


def test_numbers_by_hand() -> None:
    """Ends 0.5, 0.6, 0.7: mean 0.6, standard error 0.1 / sqrt(3), t of two degrees of freedom 4.303."""
    (group,) = compare([run(f"a-{i}", end=0.5 + 0.1 * i, seed=i) for i in range(3)]).groups
    final = group.cells["final"]
    assert group.label == "all"
    assert final.values == pytest.approx((0.5, 0.6, 0.7))
    assert final.mean == pytest.approx(0.6)
    assert final.interval is not None
    assert final.interval.high - final.mean == pytest.approx(4.303 * 0.1 / 3**0.5)
    assert group.cells["gain"].mean == pytest.approx(0.35)
    assert group.cells["tokens_generated"].mean == 16_000
    assert group.cells["rollout_wait"].mean == pytest.approx(0.25)
    assert group.device_s == {"learner": 16.0, "generators": 8.0}
    assert group.cells["device_s"].mean == 24.0


def test_one_run_has_the_interval_of_its_tasks_and_no_spread_of_seeds() -> None:
    (group,) = compare([run("a", end=0.5)]).groups
    final = group.cells["final"].interval
    assert final is not None
    assert (final.low, final.high) == pytest.approx((0.5 - 1.96 * 0.02, 0.5 + 1.96 * 0.02))
    assert group.cells["tokens_generated"].interval is None


def two(first: list[tuple[int, float]], second: list[tuple[int, float]]) -> Comparison:
    runs = [run(f"a-{i}-{seed}", end=end, seed=seed) for i, (seed, end) in enumerate(first)]
    return compare([*runs, *(run(f"b-{i}", end=end, seed=s, async_depth=0) for i, (s, end) in enumerate(second))])


def test_the_same_seeds_are_compared_in_pairs() -> None:
    (change,) = two([(0, 0.3), (1, 0.5)], [(1, 0.6), (0, 0.4)]).changes
    assert change.paired
    assert change.change is not None
    assert (change.change.value, change.change.low, change.change.high) == pytest.approx((0.1, 0.1, 0.1))


def test_other_seeds_are_not() -> None:
    (change,) = two([(0, 0.3), (1, 0.5)], [(2, 0.4), (3, 0.6)]).changes
    assert not change.paired
    assert change.change is not None
    assert change.change.low < 0.0 < change.change.high
    (repeated,) = two([(0, 0.3), (0, 0.5)], [(0, 0.4), (0, 0.6)]).changes
    assert not repeated.paired, "which of two runs of one seed belongs to which nobody knows"


def test_one_run_against_one_has_no_interval() -> None:
    (change,) = two([(0, 0.3)], [(0, 0.4)]).changes
    assert change.change is None
    assert "needs two runs" in render_text(two([(0, 0.3)], [(0, 0.4)]))


def test_curves_are_averaged_where_all_runs_were_evaluated() -> None:
    long, short = run("a", end=0.75, updates=4), run("b", end=0.5, updates=2)
    ((point, spread),) = mean_curve([long, short])
    assert (point.version, point.success) == (0, 0.25)
    assert spread is not None
    ((_, _), (last, _)) = mean_curve([long])
    assert (last.version, last.train_s, last.generated_tokens) == (4, 16.0, 32_000)
    assert mean_curve([]) == []


def test_the_table_says_what_was_not_reached() -> None:
    found = compare([run("a-0", end=0.5), run("a-1", end=0.4, seed=1), run("b-0", end=0.3, async_depth=0)])
    text = render_text(found)
    assert row(text, "seconds to 0.5") == "seconds to 0.5 8 (1 of 2 runs) -"
    assert row(text, "runs (seeds)") == "runs (seeds) 2 (0 1) 1 (0)"
    assert row(text, "async_depth") == "async_depth 1 0"
    assert row(text, "learner, device s") == "learner, device s 16 16"
    page = render_markdown(found, picture="p.png")
    assert "![curves](p.png)" in page
    assert "| final |" in page


def test_a_setting_that_is_too_long_for_a_label_gets_the_common_name() -> None:
    long: dict[str, Any] = {"environments": [{"name": "household", "options": {"a_very_long_option": list(range(30))}}]}
    runs = [run(f"deep-{i}", end=0.5, seed=i, **long) for i in range(2)]
    runs += [run(f"wide-{i}", end=0.5, seed=i) for i in range(2)]
    found = compare(runs)
    assert [g.label for g in found.groups] == ["deep", "wide"]
    assert found.groups[0].setting == long
    assert all(len(line) < 200 for line in render_text(found).splitlines())
