"""Two ends and a network that may do anything: no loss, no duplicate, order, credit kept, and never a deadlock."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.link.flow import Action, Deliver, Ended, Flow, Progressed, Transmit, terms_of
from stream_rl.link.frames import Data, decode_frame, encode_frame
from stream_rl.link.limits import Limits

LIMITS = st.builds(
    lambda items, size, extra: Limits(
        window_items=items, window_bytes=size + extra, max_message_bytes=size, heartbeat_s=1.0, silence_s=1e6
    ),
    st.integers(1, 5),
    st.integers(8, 40),
    st.integers(0, 60),
)


class End:
    """A flow, the application on top of it, and the frames on their way to it."""

    def __init__(self, own: Limits, peer: Limits) -> None:
        self.limits = own
        self.flow = Flow(own, terms_of(peer), 0.0)
        self.under_way: deque[list[bytes]] = deque()  # to this end, oldest first
        self.waiting: deque[bytes] = deque()  # what the application wants to send and has no credit for
        self.sent: list[bytes] = []
        self.delivered: list[bytes] = []
        self.unacked: dict[int, int] = {}  # number -> bytes

    def held_bytes(self) -> int:
        return sum(self.unacked.values())


class Network:
    def __init__(self, limits: tuple[Limits, Limits]) -> None:
        self.ends = (End(*limits), End(*reversed(limits)))
        self.now = 0.0

    def do(self, side: int, actions: list[Action]) -> None:
        end, other = self.ends[side], self.ends[1 - side]
        for action in actions:
            match action:
                case Transmit(frame, payload):
                    if isinstance(frame, Data):
                        assert frame.seq <= other.flow.inbox.credit_items
                    other.under_way.append(encode_frame(frame, payload))
                case Deliver(seq, payload):
                    end.delivered.append(payload[0])
                    end.unacked[seq] = len(payload[0])
                    assert len(end.unacked) <= end.limits.window_items
                    assert end.held_bytes() <= end.limits.window_bytes
                case Progressed():
                    self.push(side)
                case Ended():
                    raise AssertionError("nobody said goodbye")

    def push(self, side: int) -> None:
        end = self.ends[side]
        while end.waiting and end.flow.outbox.has_room(len(end.waiting[0])):
            message = end.waiting.popleft()
            end.sent.append(message)
            self.do(side, [end.flow.send([message], self.now)])

    def arrive(self, side: int, position: int, *, keep: bool = False) -> None:
        end = self.ends[side]
        if end.under_way:
            position %= len(end.under_way)
            parts = end.under_way[position]
            if not keep:
                del end.under_way[position]
            self.do(side, end.flow.receive(*decode_frame(parts), self.now))

    def acknowledge(self, side: int, which: int) -> None:
        end = self.ends[side]
        if end.unacked:
            seq = sorted(end.unacked)[which % len(end.unacked)]
            del end.unacked[seq]
            end.flow.acknowledge(seq)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for side in (0, 1):
            self.do(side, self.ends[side].flow.tick(self.now))

    def settled(self) -> bool:
        return all(not end.waiting and end.flow.outbox.settled for end in self.ends)

    def get_well(self) -> None:
        """From here on nothing is lost and the applications acknowledge."""
        for _ in range(400):
            for side in (0, 1):
                self.push(side)
                while self.ends[side].under_way:
                    self.arrive(side, 0)
                while self.ends[side].unacked:
                    self.acknowledge(side, 0)
            if self.settled():
                return
            self.pass_time(0.5)
        raise AssertionError("not everything was delivered and acknowledged in 200 s of good network: a deadlock")


SIDE = st.integers(0, 1)
STEP = st.one_of(
    st.tuples(st.just("send"), SIDE, st.integers(0, 40)),
    st.tuples(st.just("send"), SIDE, st.integers(0, 8)),
    st.tuples(st.just("arrive"), SIDE, st.just(0)),
    st.tuples(st.just("arrive"), SIDE, st.just(0)),
    st.tuples(st.just("overtake"), SIDE, st.integers(0, 20)),
    st.tuples(st.just("repeat"), SIDE, st.integers(0, 20)),
    st.tuples(st.just("ack"), SIDE, st.integers(0, 20)),
    st.tuples(st.just("ack"), SIDE, st.integers(0, 20)),
    st.tuples(st.just("break"), SIDE, st.just(0)),
    st.tuples(st.just("time"), SIDE, st.integers(0, 12)),
)


@settings(deadline=None, max_examples=250)
@given(st.tuples(LIMITS, LIMITS), st.lists(STEP, max_size=120))
def test_everything_sent_arrives_once_and_in_order(
    limits: tuple[Limits, Limits], steps: list[tuple[str, int, int]]
) -> None:
    network = Network(limits)
    wanted: tuple[list[bytes], list[bytes]] = ([], [])
    for number, (what, side, amount) in enumerate(steps):
        end = network.ends[side]
        match what:
            case "send":
                size = min(amount, limits[1 - side].max_message_bytes)
                message = number.to_bytes(4, "big").ljust(size, b".")[: max(size, 4)]
                wanted[side].append(message)
                end.waiting.append(message)
                network.push(side)
            case "arrive" | "overtake":
                network.arrive(side, amount)
            case "repeat":
                network.arrive(side, amount, keep=True)
            case "ack":
                network.acknowledge(side, amount)
            case "break":
                for each in network.ends:
                    each.under_way.clear()
            case "time":
                network.pass_time(amount / 4)
    network.get_well()
    for side in (0, 1):
        assert network.ends[1 - side].delivered == wanted[side]
        assert network.ends[side].sent == wanted[side]


@settings(deadline=None, max_examples=100)
@given(LIMITS, st.lists(st.integers(4, 40), min_size=1, max_size=30), st.integers(0, 3))
def test_a_network_that_breaks_after_every_few_frames_still_makes_progress(
    limits: Limits, sizes: list[int], survivors: int
) -> None:
    network = Network((limits, limits))
    messages = [i.to_bytes(4, "big").ljust(min(n, limits.max_message_bytes), b".") for i, n in enumerate(sizes)]
    network.ends[0].waiting.extend(messages)
    for _ in range(60):
        network.push(0)
        network.pass_time(1.0)
        for side in (0, 1):
            for _ in range(survivors):
                network.arrive(side, 0)
            network.ends[side].under_way.clear()
        while network.ends[1].unacked:
            network.acknowledge(1, 0)
    network.get_well()
    assert network.ends[1].delivered == messages


@settings(deadline=None, max_examples=200)
@given(st.permutations(range(1, 9)))
def test_any_order_of_acknowledgement_returns_the_same_credit(order: list[int]) -> None:
    limits = Limits(window_items=8, window_bytes=80, max_message_bytes=10, heartbeat_s=1.0, silence_s=1e6)
    network = Network((limits, limits))
    network.ends[0].waiting.extend(bytes(10) for _ in range(8))
    network.push(0)
    for _ in range(8):
        network.arrive(1, 0)
    inbox = network.ends[1].flow.inbox
    done: set[int] = set()
    for seq in order:
        network.ends[1].flow.acknowledge(seq)
        done.add(seq)
        prefix = next(n for n in range(9) if n + 1 not in done)
        assert (inbox.acked, inbox.credit_items, inbox.credit_bytes) == (prefix, prefix + 8, 10 * prefix + 80)
