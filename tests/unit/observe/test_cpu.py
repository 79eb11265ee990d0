"""CPU seconds of a role: hand-worked accounts of processes that come and go, and one real child that burns CPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.observe.cpu import CpuClock, ProcessTree, TreeSeconds, below

BURN_S = 0.2
TICKS_S = 0.05  # user and system time of a process are told in hundredths of a second
BURN = f"""
import time
while time.process_time() < {BURN_S}:
    pass
"""


class FakeTree:
    """This process, pid 1, with children whose account the test sets."""

    def __init__(self) -> None:
        self.own = 0.0
        self.left = 0.0  # by children that have ended
        self.children: dict[int, float] = {}

    def seconds(self, tops: Sequence[int] = ()) -> TreeSeconds | None:
        trees = {pid: self.children[pid] for pid in tops if pid in self.children}
        return TreeSeconds(self.own + self.left + sum(self.children.values()), self.own, trees)

    def end(self, pid: int) -> None:
        self.left += self.children.pop(pid)


class Producer:
    """A clock over a fake tree: two workers 11 and 12, an engine 20."""

    def __init__(self) -> None:
        self.tree = FakeTree()
        self.tree.own = 7.0  # before the clock began
        self.tree.children = {11: 1.0, 12: 2.0, 20: 30.0}
        self.workers = [11, 12]
        self.clock = CpuClock(
            "producers",
            children="generators",
            parts={"environments": lambda: self.workers},
            tree=lambda pid: self.tree,
        )


def test_what_was_used_before_is_not_counted_and_every_role_has_its_own() -> None:
    p = Producer()
    p.tree.own += 0.5
    p.tree.children = {11: 1.25, 12: 2.5, 20: 33.0}
    assert p.clock.lap() == {"producers": 0.5, "environments": 0.75, "generators": 3.0}
    assert p.clock.lap() == {"producers": 0.0, "environments": 0.0, "generators": 0.0}


def test_a_worker_that_is_started_again_counts_once() -> None:
    p = Producer()
    p.tree.children[12] += 1.0
    p.clock.lap()
    p.tree.children[12] += 0.25  # its last seconds, which nobody saw before it ended
    p.tree.end(12)
    p.tree.children[13] = 0.5  # who took its place has used this in its whole life
    p.workers = [11, 13]
    assert p.clock.lap() == {"producers": 0.0, "environments": 0.5, "generators": 0.25}


def test_children_without_a_name_of_their_own_count_to_the_role() -> None:
    tree = FakeTree()
    clock = CpuClock("learner", tree=lambda pid: tree)
    tree.own, tree.children = 1.0, {5: 0.5}
    assert clock.lap() == {"learner": 1.5}
    tree.children.pop(5)  # its parent ended first: what it used is in nobody's account any more
    tree.own = 1.25
    assert clock.lap() == {"learner": pytest.approx(0.25)}
    tree.own = 2.25
    assert clock.lap() == {"learner": 1.0}


def test_processes_beside_this_one_may_be_missing_and_come_again() -> None:
    own, judges = FakeTree(), {7: FakeTree()}
    judges[7].own = 4.0
    there = [7]
    clock = CpuClock("orchestrator", beside={"judges": lambda: there}, tree=lambda pid: judges[pid] if pid else own)
    judges[7].own = 4.5
    assert clock.lap() == {"orchestrator": 0.0, "judges": 0.5}
    there.clear()
    assert clock.lap()["judges"] == 0.0
    judges[8] = FakeTree()
    judges[8].own = 0.125
    there.append(8)
    assert clock.lap()["judges"] == 0.125


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("use"), st.sampled_from(["own", "engine", "worker"]), st.integers(0, 8)),
            st.tuples(st.just("restart"), st.just("worker"), st.integers(0, 8)),
            st.tuples(st.just("lap"), st.just(""), st.just(0)),
        ),
        max_size=30,
    )
)
def test_laps_add_up_to_all_that_was_used(events: list[tuple[str, str, int]]) -> None:
    p = Producer()
    used, newest, laps = 0.0, 12, []
    for what, who, amount in [*events, ("lap", "", 0)]:
        seconds = amount / 8
        if what == "lap":
            laps.append(p.clock.lap())
        elif what == "restart":
            p.tree.children[newest] += seconds
            p.tree.end(newest)
            newest += 100
            p.tree.children[newest] = 0.0
            p.workers = [11, newest]
            used += seconds
        else:
            used += seconds
            if who == "own":
                p.tree.own += seconds
            else:
                p.tree.children[20 if who == "engine" else newest] += seconds
    assert sum(sum(lap.values()) for lap in laps) == pytest.approx(used)
    assert all(seconds >= 0 for lap in laps for seconds in lap.values())


def test_a_process_counts_to_the_nearest_top_above_it() -> None:
    # 1 started 2 and 3; 3 started 4, and 4 started 5.
    used, parents = {1: 16.0, 2: 8.0, 3: 4.0, 4: 2.0, 5: 1.0}, {2: 1, 3: 1, 4: 3, 5: 4}
    assert below(used, parents, [3]) == {3: 7.0}
    assert below(used, parents, [3, 4, 9]) == {3: 4.0, 4: 3.0}


def test_a_child_that_burns_cpu_is_counted_while_it_lives_and_once_it_has_ended() -> None:
    clock = CpuClock("producers", children="generators")
    child = subprocess.Popen(
        [sys.executable, "-c", BURN + "print(flush=True)\ninput()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        assert child.stdout is not None
        child.stdout.readline()  # it has burnt its time
        tree = ProcessTree()
        alone = ProcessTree(child.pid)
        living = alone.seconds()
        assert living is not None
        assert BURN_S - TICKS_S <= living.whole < 5 * BURN_S + 1.0
        whole = tree.seconds([child.pid])
        assert whole is not None
        assert whole.below[child.pid] == pytest.approx(living.whole, abs=0.05)
        child.communicate("\n")
    ended = tree.seconds([child.pid])
    assert ended is not None
    assert ended.below == {}
    assert ended.whole >= whole.whole - TICKS_S  # this process has inherited the child's account
    assert alone.seconds() is None
    assert BURN_S - TICKS_S <= clock.lap()["generators"] < 5 * BURN_S + 1.0
    assert clock.lap()["generators"] == 0.0
