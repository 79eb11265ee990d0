from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.orchestrator.agreement import disagreeing

names = st.lists(st.text("abcdefgh", min_size=1), min_size=1, max_size=8, unique=True)


@given(names, st.floats(-20, 0))
@settings(deadline=None, max_examples=50)
def test_those_who_say_the_same_are_all_believed(producers: list[str], value: float) -> None:
    assert disagreeing({name: [value, value] for name in producers}, 1e-3) == ()


@given(names, st.data())
@settings(deadline=None, max_examples=50)
def test_a_minority_of_any_size_is_found_and_nobody_else(producers: list[str], data: st.DataObject) -> None:
    most = (len(producers) - 1) // 2
    odd = data.draw(st.lists(st.sampled_from(producers), max_size=most, unique=True))
    probes = {name: [-1.0, -9.0 - i if name in odd else -2.0] for i, name in enumerate(producers)}
    assert set(disagreeing(probes, 0.5)) == set(odd)


def test_of_two_that_disagree_neither_is_believed() -> None:
    assert disagreeing({"a": [-1.0], "b": [-1.5]}, 0.1) == ("a", "b")


def test_rounding_is_no_disagreement() -> None:
    assert disagreeing({"a": [-1.0], "b": [-1.0005], "c": [-0.9996]}, 1e-3) == ()


def test_a_probe_of_another_length_is_a_disagreement() -> None:
    assert disagreeing({"a": [-1.0], "b": [-1.0], "c": [-1.0, -1.0]}, 1e-3) == ("c",)


def test_nobody_disagrees_with_himself() -> None:
    assert disagreeing({"a": [-1.0]}, 1e-3) == ()
    assert disagreeing({}, 1e-3) == ()
