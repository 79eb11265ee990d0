from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.orchestrator.staleness import ORIGINS, Stamps, histograms, origins


def test_each_update_counts_to_the_phase_it_was_made_in() -> None:
    """Version 5 was made, and not loaded yet, when the group was leased to a generator at 4; then 6, 7 and 8."""
    found = origins(4, Stamps(leased=5, produced=6, judged=6, selected=7), 8)
    assert found == {"sync": 1, "generation": 1, "judge": 0, "buffer": 1, "learner": 1}


def test_a_token_younger_than_the_lease_leaves_nothing_to_sync() -> None:
    """The weights arrived before the first token: of the versions made while it was rolled out only 6 aged it."""
    found = origins(5, Stamps(leased=4, produced=6, judged=6, selected=6), 6)
    assert found == {"sync": 0, "generation": 1, "judge": 0, "buffer": 0, "learner": 0}


def test_what_nobody_saw_counts_to_the_next_phase_that_was_seen() -> None:
    assert origins(1, Stamps(selected=3), 4) == {"sync": 0, "generation": 0, "judge": 0, "buffer": 2, "learner": 1}


STAMP = st.none() | st.integers(0, 12)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 9), STAMP, STAMP, STAMP, STAMP, st.integers(0, 4))
def test_origins_add_up_to_the_lag(
    oldest: int, leased: int | None, produced: int | None, judged: int | None, selected: int | None, lag: int
) -> None:
    """Also for stamps that no run should give, as after a fall back to an older checkpoint."""
    stamps = Stamps(leased=leased, produced=produced, judged=judged, selected=selected)
    found = origins(oldest, stamps, oldest + lag)
    assert tuple(found) == ORIGINS
    assert sum(found.values()) == lag
    assert min(found.values()) >= 0


def test_histograms_count_groups() -> None:
    groups = [origins(0, Stamps(judged=1), 1), origins(0, Stamps(), 2), origins(2, Stamps(), 2)]
    found = histograms(groups)
    assert found["judge"] == {"0": 2, "1": 1}
    assert found["learner"] == {"0": 2, "2": 1}
    assert found["sync"] == {"0": 3}
    assert histograms([]) == {}
    assert sum(int(lag) * n for counts in found.values() for lag, n in counts.items()) == pytest.approx(1 + 2 + 0)
