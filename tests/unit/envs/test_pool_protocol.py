"""Frames survive any cutting of the byte stream."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.protocol import LIMIT_BYTES, Close, Deframer, Raised, Step, ToWorker, frame

STEPS = st.builds(
    Step,
    call=st.integers(0, 2**40),
    episode=st.integers(0, 9),
    action=st.text(st.characters(codec="utf-8"), max_size=40),
)


@settings(deadline=None, max_examples=60)
@given(messages=st.lists(st.one_of(STEPS, st.builds(Close, episode=st.integers(0, 9))), max_size=6), cuts=st.data())
def test_messages_arrive_whole_and_in_order(messages: list[Step | Close], cuts: st.DataObject) -> None:
    stream = b"".join(frame(message) for message in messages)
    deframer, arrived, at = Deframer(), [], 0
    while at < len(stream):
        size = cuts.draw(st.integers(1, 30))
        arrived += [msgspec.msgpack.decode(body, type=ToWorker) for body in deframer.feed(stream[at : at + size])]
        at += size
    assert arrived == messages


def test_a_length_nobody_would_announce_is_garbage() -> None:
    with pytest.raises(ValueError, match="announces a message of 4294967295 bytes"):
        list(Deframer().feed(b"\xff" * 8))


def test_a_message_past_the_limit_is_not_sent() -> None:
    with pytest.raises(ValueError, match="longer than"):
        frame(Raised(call=0, error="x" * (LIMIT_BYTES + 1)))
