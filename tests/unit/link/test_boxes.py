"""Numbers worked by hand for the two halves of a link."""

from __future__ import annotations

import pytest

from stream_rl.errors import LinkError
from stream_rl.link.frames import MAX_PARTS, Standing, Terms
from stream_rl.link.inbox import Inbox
from stream_rl.link.limits import Limits
from stream_rl.link.outbox import Outbox

LIMITS = Limits(window_items=3, window_bytes=100, max_message_bytes=80)
TERMS = Terms(3, 100, 80, 20.0)


def test_out_of_order_acknowledgements_release_the_contiguous_prefix() -> None:
    box = Inbox(LIMITS)
    for seq, size in ((1, 10), (2, 20), (3, 30)):
        assert box.accept(seq, size) == "new"
    assert (box.credit_items, box.credit_bytes) == (3, 100)
    assert not box.acknowledge(3)
    assert not box.acknowledge(2)
    assert (box.acked, box.credit_items, box.credit_bytes) == (0, 3, 100)
    assert box.acknowledge(1)
    assert (box.acked, box.credit_items, box.credit_bytes) == (3, 6, 160)


def test_duplicates_and_gaps_are_recognised_by_number() -> None:
    box = Inbox(LIMITS)
    assert box.accept(2, 10) == "gap"
    assert box.accept(1, 10) == "new"
    assert box.accept(1, 10) == "duplicate"
    box.acknowledge(1)
    assert box.accept(1, 10) == "duplicate"
    assert box.received == 1


def test_a_peer_that_exceeds_its_credit_or_the_message_size_is_caught() -> None:
    box = Inbox(LIMITS)
    with pytest.raises(LinkError, match="at most 80"):
        box.accept(1, 81)
    box.accept(1, 60)
    with pytest.raises(LinkError, match="40 bytes left"):
        box.accept(2, 41)
    box.accept(2, 20)
    box.accept(3, 20)
    with pytest.raises(LinkError, match="exceeds the credit"):
        box.accept(4, 0)


@pytest.mark.parametrize("seq", [0, 1, 2, 3])
def test_acknowledging_twice_or_too_early_is_an_error(seq: int) -> None:
    box = Inbox(LIMITS)
    box.accept(1, 1)
    box.accept(2, 1)
    box.acknowledge(1)
    box.acknowledge(2)
    with pytest.raises(LinkError, match="already" if seq < 3 else "not been received"):
        box.acknowledge(seq)


def test_acknowledging_twice_out_of_order_is_an_error() -> None:
    box = Inbox(LIMITS)
    box.accept(1, 1)
    box.accept(2, 1)
    box.acknowledge(2)
    with pytest.raises(LinkError, match="already"):
        box.acknowledge(2)


def test_credit_runs_out_in_items() -> None:
    box = Outbox(TERMS)
    assert [box.push([b"x"]) for _ in range(3)] == [1, 2, 3]
    assert not box.has_room(0)
    with pytest.raises(LinkError, match="credit"):
        box.push([b"x"])
    assert box.learn(Standing(0, 3, 1, 4, 101))
    assert box.has_room(1)
    assert not box.settled


def test_credit_runs_out_in_bytes() -> None:
    box = Outbox(TERMS)
    box.push([b"x" * 50, b"y" * 30])
    assert box.has_room(20)
    assert not box.has_room(21)
    assert box.learn(Standing(0, 1, 1, 4, 180))
    assert box.has_room(80)
    assert box.settled


def test_a_message_that_never_fits_is_refused_where_it_is_sent() -> None:
    with pytest.raises(LinkError, match=r"81 bytes.*80 bytes"):
        Outbox(TERMS).measure([b"x" * 81])
    with pytest.raises(LinkError, match="10 bytes"):  # the window is the smaller of the peer's two numbers
        Outbox(Terms(3, 10, 80, 20.0)).measure([b"x" * 11])
    with pytest.raises(LinkError, match="arrays"):
        Outbox(TERMS).measure([b""] * MAX_PARTS)


def test_messages_are_kept_until_they_are_acknowledged() -> None:
    box = Outbox(TERMS)
    for text in (b"one", b"two", b"three"):
        box.push([text])
    assert [seq for seq, _ in box.after(0)] == [1, 2, 3]
    assert list(box.after(1)) == [(2, [b"two"]), (3, [b"three"])]
    box.learn(Standing(0, 3, 2, 5, 106))
    assert list(box.after(0)) == [(3, [b"three"])]
    assert list(box.after(3)) == []


def test_news_of_the_past_changes_nothing() -> None:
    box = Outbox(TERMS)
    box.push([b"x"])
    box.learn(Standing(0, 1, 1, 4, 101))
    assert not box.learn(Standing(0, 1, 0, 3, 100))
    assert box.settled


@pytest.mark.parametrize("standing", [Standing(0, 2, 0, 3, 100), Standing(0, 0, 1, 3, 100)])
def test_a_peer_that_claims_what_was_never_sent_is_caught(standing: Standing) -> None:
    box = Outbox(TERMS)
    box.push([b"x"])
    with pytest.raises(LinkError, match="claims"):
        box.learn(standing)
