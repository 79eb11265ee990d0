from __future__ import annotations

import msgspec
import pytest

from learner.rounds import Round, refusal
from stream_rl.errors import LinkError
from stream_rl.messages import RoundStart, SelectedGroup
from stream_rl.types import VersionSpan
from tests.unit.learner.builders import group, trajectory


def test_a_round_is_complete_with_its_groups_in_any_order_and_twice() -> None:
    a, b = group("a", [1, 0]), group("b", [1, 0])
    round_ = Round(RoundStart(update=0, num_groups=2), max_lag=0)
    for sent in (b, b, a):
        assert not round_.complete
        round_.add(sent)
    assert round_.complete
    assert round_.groups == (a, b)
    with pytest.raises(LinkError, match="announced with 2"):
        round_.add(group("c", [1, 0]))


def test_an_empty_round_is_complete() -> None:
    assert Round(RoundStart(update=4, num_groups=0), max_lag=0).complete


def test_a_group_of_another_round_is_refused() -> None:
    with pytest.raises(LinkError, match="of round 1; round 0"):
        Round(RoundStart(update=0, num_groups=2), max_lag=0).add(group("a", [1, 0], update=1))


@pytest.mark.parametrize(("version", "refused"), [(3, True), (4, False), (5, False), (6, True)])
def test_lag_bound(version: int, refused: bool) -> None:
    found = refusal(group("a", [1, 0], version=version), version=5, max_lag=1)
    assert (found is not None) == refused


def test_the_oldest_token_of_a_mixed_turn_counts() -> None:
    member = trajectory("a", 0, 1.0, version=5)
    spans = (VersionSpan(version=3, num_tokens=1), VersionSpan(version=5, num_tokens=1))
    mixed = msgspec.structs.replace(member, turns=(msgspec.structs.replace(member.turns[0], spans=spans),))
    made = SelectedGroup(update=5, group_id="a", trajectories=(mixed,), hint=None)
    assert "lag 2" in str(refusal(made, version=5, max_lag=1))
    assert refusal(made, version=5, max_lag=2) is None


def test_a_group_without_valid_members_is_refused() -> None:
    made = SelectedGroup(update=0, group_id="a", trajectories=(trajectory("a", 0, 0.0, error="x"),), hint=None)
    assert "no valid member" in str(refusal(made, version=0, max_lag=0))


def test_a_refused_group_leaves_its_place_to_another_and_its_reason_is_given_once() -> None:
    """Two groups are announced; one is four updates old where two are allowed, and is sent twice."""
    old, a, b = (group(name, [1, 0], update=5, version=version) for name, version in (("old", 1), ("a", 5), ("b", 3)))
    round_ = Round(RoundStart(update=5, num_groups=2), max_lag=2)
    told = [(round_.add(sent), round_.complete) for sent in (a, old, old, b)]
    reason = "stale: lag 4 (tokens of version 1) exceeds 2"
    assert told == [(None, False), (reason, False), (None, False), (None, True)]
    assert round_.groups == (a, b)
