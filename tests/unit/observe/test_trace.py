from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.observe.archive import ArchivedTransition
from stream_rl.observe.rundir import append_json
from stream_rl.observe.trace import Trace, write_trace
from stream_rl.observe.walks import walks
from tests.unit.ledgers import clean_and_lost, write_run
from tests.unit.observe.samples import eval_record, metrics_line
from tests.unit.observe.test_walks import steps

BEGAN = 1000.0  # seconds since 1970: the first lease
WHOLE = steps(
    (1000.0, "g0", "leased"),
    (1001.0, "g1", "leased"),
    (1003.0, "g0", "produced"),
    (1003.5, "g0", "judged"),
    (1003.5, "g0", "candidate"),
    (1004.0, "g0", "selected", "0"),
    (1006.0, "g0", "trained", "0"),
    (1006.5, "g1", "produced"),
)
# Update 0 of 4 s ends at 1006: wait 1002-1003, other 0.25, prox 0.5, train 1003.75-1005.75, publish 0.25.
TRAIN_US = 3_750_000


def made(
    transitions: Sequence[ArchivedTransition],
    lines: Sequence[Mapping[str, Any]] = (),
    evals: Sequence[Mapping[str, Any]] = (),
    events: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    return list(Trace("r", walks(transitions), {}, lines=lines, evals=evals, events=events).entries())


def roles(entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {e["args"]["name"]: e["pid"] for e in entries if e["name"] == "process_name"}


def slices(entries: Sequence[Mapping[str, Any]], pid: int, tid: int | None = None) -> list[tuple[str, int, int]]:
    return [
        (e["name"], e["ts"], e["ts"] + e["dur"])
        for e in entries
        if e["ph"] == "X" and e["pid"] == pid and tid in (None, e["tid"])
    ]


def arrows(entries: Sequence[Mapping[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        if entry["ph"] in "stf":
            found[entry["id"]].append(dict(entry))
    return found


def test_every_role_has_a_track_of_its_states() -> None:
    entries = made(WHOLE, [metrics_line(0, train_s=4.0)])
    tracks = roles(entries)
    assert list(tracks) == ["orchestrator", "producer-0", "judge", "learner"]
    assert slices(entries, tracks["learner"], 1) == [
        ("update 0", 2_000_000, 6_000_000),
        ("rollout_wait", 2_000_000, 3_000_000),
        ("other", 3_000_000, 3_250_000),
        ("prox", 3_250_000, 3_750_000),
        ("train", TRAIN_US, 5_750_000),
        ("publish", 5_750_000, 6_000_000),
    ]
    assert slices(entries, tracks["producer-0"], 1) == [
        ("generate", 2_000_000, 5_000_000),
        ("environment", 5_000_000, 5_500_000),
        ("paused for sync", 5_500_000, 5_750_000),
        ("wait for lease", 5_750_000, 6_000_000),
    ]


def test_parts_of_a_role_are_rows_of_its_track() -> None:
    line = metrics_line(
        0,
        train_s=4.0,
        roles={
            "orchestrator": {"handling": 1.0, "idle": 9.0},
            "judging": {"asking": 4.0},
            "producer-0": {"generate": 4.0},
            "producer-0/generator": {"generate": 3.0, "idle": 1.0},
            "weights": {"pause_s": 1.0},
        },
    )
    entries = made(WHOLE, [line])
    tracks = roles(entries)
    assert list(tracks) == ["orchestrator", "producer-0", "judge", "learner"]
    rows = {
        (e["pid"], e["args"]["name"]): e["tid"] for e in entries if e["name"] == "thread_name" and "group" not in str(e)
    }
    generator = rows[tracks["producer-0"], "generator"]
    # The orchestrator counts from 996 s on, so that is where the trace begins: 4 s before the first lease.
    assert slices(entries, tracks["producer-0"], generator) == [
        ("generate", 6_000_000, 9_000_000),
        ("idle", 9_000_000, 10_000_000),
    ]
    assert slices(entries, tracks["judge"], 1) == [("asking", 6_000_000, 10_000_000)]
    assert slices(entries, tracks["orchestrator"], 1) == [("handling", 0, 1_000_000), ("idle", 1_000_000, 10_000_000)]


def test_a_group_is_followed_from_its_lease_to_its_training() -> None:
    entries = made(WHOLE, [metrics_line(0, train_s=4.0)])
    tracks, found = roles(entries), arrows(entries)
    assert [(e["ph"], e["pid"], e["ts"]) for e in found[1]] == [
        ("s", tracks["orchestrator"], 0),  # leased
        ("t", tracks["producer-0"], 0),  # rolled out
        ("t", tracks["judge"], 3_000_000),  # produced
        ("t", tracks["orchestrator"], 3_500_000),  # judged
        ("f", tracks["learner"], 4_000_000),  # selected, in the time of training
    ]
    # The second group has got as far as the judge.
    assert [(e["ph"], e["pid"]) for e in found[2]] == [
        ("s", tracks["orchestrator"]),
        ("t", tracks["producer-0"]),
        ("f", tracks["judge"]),
    ]
    assert ("g0", 0, 3_000_000) in slices(entries, tracks["producer-0"])
    assert ("g0", 3_000_000, 3_500_000) in slices(entries, tracks["judge"])
    assert ("waits for its round", 3_500_000, 4_000_000) in slices(entries, tracks["orchestrator"])


def test_with_several_producers_nobody_claims_to_know_who_rolled_a_group_out() -> None:
    line = metrics_line(0, train_s=4.0, roles={"producer-0": {"generate": 4.0}, "producer-1": {"generate": 4.0}})
    entries = made(WHOLE, [line])
    tracks = roles(entries)
    assert {"producers", "producer-0", "producer-1"} < set(tracks)
    assert ("g0", 0, 3_000_000) in slices(entries, tracks["producers"])


def test_evaluations_and_events_stand_where_they_happened() -> None:
    """The run's clock was at 5 s when update 0 ended at 1006, so 3.5 s were at 1004.5."""
    entries = made(
        WHOLE,
        [metrics_line(0, train_s=4.0, wall_s=5.0)],
        [eval_record(0, train_s=0.0, success=0.5) | {"wall_s": 3.5}],
        [{"type": "producer_left", "at": 1002.0, "name": "producer-0", "reason": "gone", "leases": 2}],
    )
    told = {e["ts"]: e["name"] for e in entries if e["ph"] == "i"}
    assert sorted(told) == [2_000_000, 4_500_000]
    assert "success 0.500" in told[4_500_000]
    assert told[2_000_000].startswith("producer-0 left (gone)")


def test_groups_under_way_are_counted() -> None:
    counts = {e["ts"]: e["args"] for e in made(WHOLE) if e["ph"] == "C" and e["name"] == "groups"}
    assert counts[0]["rolled out"] == 1
    assert counts[1_000_000]["rolled out"] == 2
    assert counts[3_000_000] == {"rolled out": 1, "judged": 1, "waits for its round": 0, "at the learner": 0}
    assert counts[4_000_000]["at the learner"] == 1
    assert not any(counts[6_500_000].values())


def test_a_file_holds_what_a_run_left(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", clean_and_lost())
    append_json(run.metrics, metrics_line(0, train_s=4.0))
    facts = write_trace(run, tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert (facts.groups, facts.events) == (3, len(found["traceEvents"]))
    assert found["otherData"]["run"] == "run"
    names = {e["args"]["task"] for e in found["traceEvents"] if e["ph"] == "X" and "task" in e.get("args", {})}
    assert names == {"household/train/0", "household/train/1", "household/train/2"}
    write_trace(run, tmp_path / "trace.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes())) == found
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "trace.json", "trace.json.gz"]


WALK = ("leased", "produced", "judged", "candidate", "selected", "trained")
GROUP = st.tuples(
    st.floats(0.0, 30.0),
    st.lists(st.floats(0.0, 10.0), min_size=5, max_size=5),
    st.integers(1, 6),
    st.booleans(),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(GROUP, min_size=1, max_size=12), st.lists(st.floats(0.0, 20.0), max_size=6), st.integers(1, 3))
def test_slices_nest_and_arrows_end_in_slices(
    groups: list[tuple[float, list[float], int, bool]], totals: list[float], producers: int
) -> None:
    """Perfetto drops a slice that straddles another on its track, and an arrow that ends outside of any."""
    transitions: list[ArchivedTransition] = []
    for i, (begun, gaps, length, again) in enumerate(groups):
        at = BEGAN + begun
        for k, state in enumerate(WALK[:length]):
            at += gaps[k - 1] if k else 0.0
            detail = str(i) if state in ("selected", "trained") else None
            transitions.append(ArchivedTransition(group_id=f"g{i}", state=state, detail=detail, at=at))
            if k == 0 and again:
                transitions.append(ArchivedTransition(group_id=f"g{i}", state="leased", detail="again", at=at))
    transitions.sort(key=lambda t: t.at)
    names = [f"producer-{i}" for i in range(producers)]
    lines = [
        metrics_line(
            i,
            train_s=4.0,
            learner={"rollout_wait_s": total / 2, "train_s": total / 2, "total_s": total},
            roles={name: {"generate": total} for name in names},
        )
        for i, total in enumerate(totals)
    ]
    entries = made(transitions, sorted(lines, key=lambda line: line["step"]))
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for entry in entries:
        if entry["ph"] == "X":
            assert entry["ts"] >= 0
            assert entry["dur"] >= 0
            tracks[entry["pid"], entry["tid"]].append((entry["ts"], entry["ts"] + entry["dur"]))
    for spans in tracks.values():
        open_: list[int] = []
        for start, stop in sorted(spans, key=lambda s: (s[0], -s[1])):
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or stop <= open_[-1], "a slice straddles another"
            open_.append(stop)
    for points in arrows(entries).values():
        assert [p["ph"] for p in points] == ["s", *["t"] * (len(points) - 2), "f"]
        assert [p["ts"] for p in points] == sorted(p["ts"] for p in points)
        for point in points:
            assert any(start <= point["ts"] <= stop for start, stop in tracks[point["pid"], point["tid"]])
