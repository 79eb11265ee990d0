from __future__ import annotations

import math

import pytest

from stream_rl.errors import LinkError
from stream_rl.link.flow import Deliver, Ended, Flow, Progressed, Transmit, terms_of
from stream_rl.link.frames import Data, Goodbye, Hello, Resume, Standing, Status, Terms
from stream_rl.link.limits import Limits

LIMITS = Limits(window_items=4, window_bytes=100, max_message_bytes=50, heartbeat_s=1.0, silence_s=10.0)
NOTHING = Standing(0, 0, 0, 4, 100)


def flow(limits: Limits = LIMITS, peer: Limits = LIMITS) -> Flow:
    return Flow(limits, terms_of(peer), now=0.0)


def data(seq: int, text: bytes = b"x") -> tuple[Data, list[bytes]]:
    return Data(seq, Standing(seq, 0, 0, 4, 100)), [text]


def test_a_message_is_acknowledged_only_when_the_application_says_so() -> None:
    end = flow()
    assert end.receive(*data(1), now=0.1) == [Deliver(1, [b"x"])]
    assert end.tick(0.2) == []
    end.acknowledge(1)
    assert end.tick(0.3) == [Transmit(Status(Standing(0, 1, 1, 5, 101)))]
    assert end.tick(0.4) == []


def test_a_message_under_way_carries_the_acknowledgement() -> None:
    end = flow()
    end.receive(*data(1), now=0.1)
    end.acknowledge(1)
    assert end.send([b"abc"], 0.2) == Transmit(Data(1, Standing(1, 1, 1, 5, 101)), [b"abc"])
    assert end.tick(0.3) == []


def test_acknowledgement_and_credit_wake_senders() -> None:
    end = flow()
    end.send([b"abc"], 0.0)
    assert end.receive(Status(Standing(0, 1, 1, 5, 103)), [], 0.1) == [Progressed()]
    assert end.receive(Status(Standing(0, 1, 1, 5, 103)), [], 0.2) == []


def test_an_idle_end_says_how_it_stands_every_heartbeat() -> None:
    end = flow()
    assert end.deadline() == 1.0
    assert end.tick(0.99) == []
    assert end.tick(1.0) == [Transmit(Status(NOTHING))]
    assert end.deadline() == 2.0


def test_heartbeats_suit_an_impatient_peer() -> None:
    end = flow(peer=Limits(heartbeat_s=0.1, silence_s=0.3))
    assert end.deadline() == pytest.approx(0.1)


def test_silence_ends_the_session() -> None:
    end = flow()
    end.receive(Status(NOTHING), [], 3.0)
    assert not any(isinstance(action, Ended) for action in end.tick(12.9))
    assert end.tick(13.0) == [Ended("silent for 10.0 s", False)]
    assert end.deadline() == math.inf
    assert end.tick(99.0) == []
    with pytest.raises(LinkError, match="silent"):
        end.send([b"x"], 99.0)


def test_a_gap_is_asked_for_once_and_again_after_a_heartbeat() -> None:
    end = flow()
    assert end.receive(*data(2), now=0.1) == [Transmit(Resume(NOTHING))]
    assert end.receive(*data(3), now=0.2) == []
    assert end.receive(*data(3), now=1.1) == [Transmit(Resume(NOTHING))]


def test_the_loss_of_the_last_message_shows_in_a_heartbeat() -> None:
    end = flow()
    end.receive(*data(1), now=0.1)
    assert end.receive(Status(Standing(2, 0, 0, 4, 100)), [], 0.2) == [Transmit(Resume(Standing(0, 1, 0, 4, 100)))]


def test_a_resume_sends_again_what_is_missing_and_no_more() -> None:
    end = flow()
    for text in (b"a", b"b", b"c"):
        end.send([text], 0.0)
    again = end.receive(Resume(Standing(0, 1, 0, 4, 100)), [], 0.5)
    standing = Standing(3, 0, 0, 4, 100)
    assert again == [Transmit(Data(2, standing), [b"b"]), Transmit(Data(3, standing), [b"c"])]


def test_a_duplicate_is_not_delivered_but_answered() -> None:
    end = flow()
    end.receive(*data(1), now=0.1)
    assert end.receive(*data(1), now=0.2) == []
    assert end.tick(0.2) == [Transmit(Status(Standing(0, 1, 0, 4, 100)))]


def test_a_goodbye_is_answered_and_ends_it() -> None:
    end = flow()
    assert end.receive(Goodbye("closed"), [], 1.0) == [Transmit(Goodbye("closed")), Ended("closed", True)]
    assert end.receive(Goodbye("closed"), [], 1.1) == []
    end.acknowledge(5)  # late, of a session that is over


def test_our_goodbye_is_repeated_until_it_is_answered() -> None:
    end = flow()
    assert end.close("done", 1.0) == [Transmit(Goodbye("done"))]
    assert end.close("twice", 1.0) == []
    assert end.tick(1.05) == []
    assert end.tick(1.1) == [Transmit(Goodbye("done"))]
    assert end.receive(*data(1), now=1.15) == []
    assert end.receive(Goodbye("done"), [], 1.2) == [Ended("done", True)]


def test_two_goodbyes_that_cross_are_each_others_answers() -> None:
    one, two = flow(), flow()
    first, second = one.close("one", 0.0), two.close("two", 0.0)
    assert isinstance(first[0], Transmit)
    assert isinstance(second[0], Transmit)
    assert one.receive(second[0].frame, [], 0.1) == [Ended("two", True)]
    assert two.receive(first[0].frame, [], 0.1) == [Ended("one", True)]


def test_a_greeting_in_the_middle_breaks_the_protocol() -> None:
    with pytest.raises(LinkError, match="Hello"):
        flow().receive(Hello(1, "producer", "p", Terms(1, 1, 1, 1.0)), [], 0.0)
