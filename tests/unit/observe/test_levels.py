from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.observe.levels import Levels


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def test_means_are_weighted_with_time_and_laps_start_from_where_things_stand() -> None:
    clock = Clock()
    levels = Levels(clock)
    levels.set({"queue": 4.0})
    clock.now = 51.0
    levels.set({"queue": 1.0, "permits": 2.0})
    clock.now = 54.0
    lap = levels.lap()
    assert (lap["queue"].mean, lap["queue"].largest, lap["queue"].integral) == ((4 + 3) / 4, 4.0, 7.0)
    assert (lap["permits"].mean, lap["permits"].seconds) == (6 / 4, 4.0)  # before it was set it was 0
    clock.now = 56.0
    lap = levels.lap()
    assert (lap["queue"].mean, lap["queue"].largest) == (1.0, 1.0)
    assert levels.lap()["queue"].mean == 1.0  # over no time
    assert levels.now == {"queue": 1.0, "permits": 2.0}


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40), st.booleans()), min_size=1))
def test_laps_add_up_to_the_whole(steps: list[tuple[int, int, bool]]) -> None:
    clock = Clock()
    levels = Levels(clock)
    expected = total = 0.0
    for level, eighths, lap in steps:
        levels.set({"queue": level})
        clock.now += eighths / 8
        expected += level * eighths / 8
        if lap:
            total += levels.lap()["queue"].integral
    assert total + levels.lap()["queue"].integral == expected
