"""`depth`: runs side by side, and which of them is recommended."""

from __future__ import annotations

import json

import pytest

from stream_rl.app.depth.comparison import Outcome, Row, as_json, compare
from stream_rl.app.depth.figures import Figures
from stream_rl.app.depth.recommendation import recommend
from stream_rl.app.depth.table import notes, table
from stream_rl.app.depth.trials import Window
from stream_rl.cli import main


def figures(update_s: float, *, wait: float = 0.0, judge: float = 0.0, lag: int = 0, updates: int = 24) -> Figures:
    """`wait`, `judge`: shares of the learner's time."""
    return Figures(
        updates=updates, update_s=update_s, updates_per_min=60 / update_s, rollout_wait_s=wait * update_s,
        rollout_wait_share=wait, judge_wait_s=judge * update_s, judge_wait_share=judge, lag_mean=lag, lag_max=lag,
        device_s=10.0 * update_s,
    )  # fmt: skip


def rows(*pairs: tuple[int, Figures]) -> list[Row]:
    return compare([Outcome(depth=d, repeat=0, measured=f, simulated=None) for d, f in pairs])


def test_each_run_is_compared_with_the_one_that_has_its_seed() -> None:
    """Seed 1 makes everything twice as slow: that is no difference between depths."""
    found = compare(
        [
            Outcome(depth=0, repeat=0, measured=figures(3.0), simulated=figures(3.0)),
            Outcome(depth=2, repeat=0, measured=figures(1.5), simulated=figures(1.0)),
            Outcome(depth=2, repeat=1, measured=figures(2.4), simulated=figures(2.0)),
            Outcome(depth=0, repeat=1, measured=figures(6.0), simulated=figures(6.0)),
        ]
    )
    first, second = found
    assert (first.depth, first.repeats, first.measured.speed_up) == (0, 2, 1.0)
    assert second.measured.speed_up == pytest.approx((2.0 + 2.5) / 2)
    assert [second.measured.speed_up_low, second.measured.speed_up_high] == pytest.approx([2.0, 2.5])
    assert second.simulated is not None
    assert second.simulated.speed_up == pytest.approx(3.0)
    assert second.of_predicted == pytest.approx(0.75)
    assert second.measured.updates == 48
    assert second.measured.device_s == pytest.approx(39.0)


def test_one_repeat_has_no_spread_and_a_lone_depth_nothing_to_compare_with() -> None:
    (row,) = rows((2, figures(1.0)))
    assert (row.measured.speed_up, row.measured.speed_up_low) == (1.0, None)
    only_later = compare(
        [
            Outcome(depth=0, repeat=0, measured=figures(2.0), simulated=None),
            Outcome(depth=1, repeat=1, measured=figures(1.0), simulated=None),
        ]
    )
    assert only_later[1].measured.speed_up is None
    assert only_later[1].of_predicted is None


def test_the_smallest_depth_that_is_nearly_the_fastest() -> None:
    found = recommend(rows((0, figures(2.0, wait=0.5)), (1, figures(1.03, wait=0.02, lag=1)), (2, figures(1.0, lag=2))))
    assert found is not None
    assert found.depth == 1
    assert "smallest within 5% of the fastest, which is depth 2" in found.reason
    assert "1.0 updates old on average, 1 at most" in found.reason
    assert "The learner is busy 98% of its time there" in found.reason


def test_a_deepest_run_that_still_waits_asks_for_a_deeper_one() -> None:
    found = recommend(rows((0, figures(2.0, wait=0.8)), (2, figures(1.0, wait=0.4, lag=2))))
    assert found is not None
    assert (found.depth, "--depths 2,4" in found.reason) == (2, True)


def test_what_depth_cannot_help_is_named() -> None:
    generators = recommend(rows((0, figures(2.0, wait=0.6)), (1, figures(2.0, wait=0.6)), (2, figures(2.0, wait=0.6))))
    assert generators is not None
    assert generators.depth == 0
    assert "waits 60% of its time for rollouts" in generators.reason
    assert "generate.producers" in generators.reason
    judges = recommend(rows((0, figures(2.0, judge=0.3)), (1, figures(1.99, judge=0.3, lag=1))))
    assert judges is not None
    assert "waits 30% of its time for verdicts alone" in judges.reason
    assert "for rollouts" not in judges.reason


def test_a_gain_that_not_every_repeat_shows_is_doubted() -> None:
    found = recommend(
        compare(
            [
                Outcome(depth=d, repeat=r, measured=figures(s, wait=0.2), simulated=None)
                for d, r, s in ((0, 0, 2.0), (0, 1, 2.0), (1, 0, 1.0), (1, 1, 2.1))
            ]
        )
    )
    assert found is not None
    assert found.depth == 1
    assert "Not every repeat was faster" in found.reason


def test_nothing_measured_recommends_nothing() -> None:
    assert recommend([]) is None


def test_json_has_the_same_names_in_both_halves() -> None:
    found = compare(
        [
            Outcome(depth=0, repeat=0, measured=figures(2.0), simulated=figures(2.0)),
            Outcome(depth=1, repeat=0, measured=figures(1.0), simulated=figures(1.0)),
        ]
    )
    facts = json.loads(json.dumps(as_json(found, 1, "because")))
    assert [entry["depth"] for entry in facts] == [0, 1]
    assert all(set(entry["measured"]) == set(entry["simulated"]) for entry in facts)
    assert [(entry["recommended"], entry.get("reason")) for entry in facts] == [(False, None), (True, "because")]


def test_the_table_shows_both_and_says_what_was_stopped() -> None:
    window = Window(warmup=3, updates=24)
    found = compare(
        [
            Outcome(depth=0, repeat=0, measured=figures(2.0, wait=0.5), simulated=figures(2.0)),
            Outcome(depth=2, repeat=0, measured=figures(0.8, lag=2, updates=7), simulated=figures(0.5, lag=2)),
        ]
    )
    lines = table(found).splitlines()
    assert len({line.index("measured") for line in lines if "measured" in line}) == 1
    assert [line.split()[:3] for line in lines[1:]] == [
        ["0", "measured", "30.00"],
        ["simulated", "30.00", "-"],
        ["2", "measured", "75.00"],
        ["simulated", "120.00", "-"],
    ]
    told = notes(found, window)
    assert "speed-up over depth 0" in told
    assert "measured speed-up, of the predicted one: depth 2: 62%" in told
    assert "depth 2 was stopped: 7 updates of 24" in told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--depths", "0,x"], "--depths 0,x: expected whole numbers"),
        (["--depths", "1,1"], "--depths 1,1: each depth may stand once"),
        (["--warmup", "-1"], "--warmup -1: expected 0 or more"),
        (["--cores", "-1"], "--cores -1: expected 0 or more"),
        (["--set", "generate.engine=scripted"], "generate.engine: 'scripted' samples at random"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["depth", *arguments]) == 2
    assert says in capsys.readouterr().err
