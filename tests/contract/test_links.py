"""What every implementation of `Hub` and `Link` does."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import anyio
import anyio.lowlevel
import numpy as np
import pytest
from anyio.abc import TaskGroup

from stream_rl.errors import LinkError
from stream_rl.link.codec import Decoder
from stream_rl.link.limits import Limits
from stream_rl.link.zmq_hub import open_hub
from stream_rl.link.zmq_link import open_link
from stream_rl.messages import (
    Finish,
    GroupClosed,
    ProducerReady,
    ToOrchestrator,
    ToProducer,
    TrainLease,
    TrajectoryDone,
)
from stream_rl.ports import Delivery, PeerJoined, PeerLeft, Received
from stream_rl.types import Sample, Task, Trajectory
from tests.contract.link_networks import PATIENT, SHORT, Network, memory_network, zmq_network

Open = Callable[..., AbstractAsyncContextManager[Network]]
Event = PeerJoined | PeerLeft | Received[ToOrchestrator]
TASK = Task(environment="household", split="train", index=0)


@pytest.fixture(params=[memory_network, zmq_network], ids=["memory", "zmq"])
def network(request: pytest.FixtureRequest) -> Open:
    return request.param  # type: ignore[no-any-return]


def closed(number: int) -> GroupClosed:
    return GroupClosed(group_id=f"group-{number}")


def lease(number: int) -> TrainLease:
    return TrainLease(
        group_id=f"lease-{number}",
        task=TASK,
        size=8,
        seed=number,
        temperature=1.0,
        max_tokens=8,
        max_turns=20,
        deadline_s=60.0,
    )


def trajectory(num_tokens: int) -> TrajectoryDone:
    rng = np.random.default_rng(0)
    sample = Sample(
        token_ids=rng.integers(0, 1 << 30, num_tokens, dtype=np.int32),
        loss_mask=rng.random(num_tokens) < 0.5,
        behavior_logprobs=rng.standard_normal(num_tokens).astype(np.float32),
        head=(),
        head_tokens=0,
    )
    return TrajectoryDone(
        trajectory=Trajectory(
            id="g/0",
            group_id="g",
            member=0,
            task=TASK,
            samples=(sample,),
            turns=(),
            reward=1.0,
            success=True,
            score=1.0,
        )
    )


async def let_others_run() -> None:
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def joined(events: AsyncIterator[Event]) -> PeerJoined:
    event = await anext(events)
    assert isinstance(event, PeerJoined)
    return event


async def received(events: AsyncIterator[Event]) -> Received[ToOrchestrator]:
    event = await anext(events)
    assert isinstance(event, Received)
    return event


async def left(events: AsyncIterator[Event]) -> PeerLeft:
    event = await anext(events)
    assert isinstance(event, PeerLeft)
    return event


async def test_messages_arrive_in_order_in_both_directions(network: Open) -> None:
    async with network() as net, net.connect("producer-0") as link:
        events = aiter(net.hub)
        peer = await joined(events)
        assert (peer.role, peer.name) == ("producer", "producer-0")

        async def answer() -> None:
            for number in range(100):
                event = await received(events)
                assert event.peer == peer.peer
                assert event.message == closed(number)
                event.ack()
                await net.hub.send(peer.peer, lease(number))

        async def listen() -> None:
            numbers = []
            async for delivery in link:
                assert isinstance(delivery.message, TrainLease)
                numbers.append(delivery.message.seed)
                delivery.ack()
                if len(numbers) == 100:
                    break
            assert numbers == list(range(100))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            tasks.start_soon(listen)
            for number in range(100):
                await link.send(closed(number))


async def test_a_sender_without_credit_waits_for_an_acknowledgement(network: Open) -> None:
    async with network() as net, net.connect("producer-0") as link:
        events = aiter(net.hub)
        await joined(events)
        for number in range(4):  # the window
            await link.send(closed(number))
        with anyio.move_on_after(0.3) as blocked:
            await link.send(closed(99))
        assert blocked.cancelled_caught
        held = [await received(events) for _ in range(4)]
        held[1].ack()  # not the first: credit comes back with the contiguous prefix
        with anyio.move_on_after(0.3) as blocked:
            await link.send(closed(99))
        assert blocked.cancelled_caught
        held[0].ack()
        with anyio.fail_after(30):
            await link.send(closed(4))
            await link.send(closed(5))
            for number in (4, 5):  # what was cancelled while it waited was never sent
                held.append(await received(events))
                assert held[-1].message == closed(number)
        for event in held[2:]:
            event.ack()


async def test_credit_counts_bytes(network: Open) -> None:
    limits = Limits(window_bytes=3_000, max_message_bytes=2_000, heartbeat_s=0.1, silence_s=30.0, goodbye_s=0.2)
    async with network(limits) as net, net.connect("producer-0") as link:
        events = aiter(net.hub)
        await joined(events)
        await link.send(trajectory(150))  # about 1,650 bytes: 9 for each token, and a header
        with anyio.move_on_after(0.2) as blocked:
            await link.send(trajectory(160))
        assert blocked.cancelled_caught
        with pytest.raises(LinkError, match="2000 bytes"):
            await link.send(trajectory(400))
        (await received(events)).ack()
        with anyio.fail_after(30):
            await link.send(trajectory(160))
            (await received(events)).ack()


async def test_a_large_message_that_waits_is_not_overtaken_by_a_small_one(network: Open) -> None:
    limits = Limits(window_bytes=3_000, max_message_bytes=2_500, heartbeat_s=0.1, silence_s=30.0, goodbye_s=0.2)
    async with network(limits) as net, net.connect("producer-0") as link:
        events = aiter(net.hub)
        await joined(events)
        await link.send(trajectory(150))
        first = await received(events)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.send, trajectory(200))
            await let_others_run()
            tasks.start_soon(link.send, closed(0))  # there is room for it, and it comes second
            await let_others_run()
            first.ack()
            kinds = []
            for _ in range(2):
                event = await received(events)
                event.ack()
                kinds.append(type(event.message))
        assert kinds == [TrajectoryDone, GroupClosed]


async def test_the_hub_waits_for_credit_of_one_peer_without_holding_up_another(network: Open) -> None:
    async with network() as net, net.connect("slow") as slow, net.connect("quick") as quick:
        events = aiter(net.hub)
        peers = {(await joined(events)).name, (await joined(events)).name}
        assert peers == {"slow", "quick"}
        keys = {name: next(k for k in net.hub.peers if k.startswith(name)) for name in peers}
        for number in range(4):
            await net.hub.send(keys["slow"], lease(number))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(net.hub.send, keys["slow"], lease(4))
            for number in range(20):
                await net.hub.send(keys["quick"], lease(number))
                delivery = await anext(aiter(quick))
                assert delivery.message == lease(number)
                delivery.ack()
            deliveries = [await anext(aiter(slow)) for _ in range(4)]
            for delivery in deliveries:
                delivery.ack()
        delivery = await anext(aiter(slow))
        assert delivery.message == lease(4)
        delivery.ack()


async def test_large_arrays_arrive_equal(network: Open) -> None:
    message = trajectory(1_000_000)
    async with network() as net, net.connect("producer-0") as link:
        events = aiter(net.hub)
        await joined(events)
        await link.send(message)
        event = await received(events)
        assert isinstance(event.message, TrajectoryDone)
        (got,), (want,) = event.message.trajectory.samples, message.trajectory.samples
        for array, expected in (
            (got.token_ids, want.token_ids),
            (got.loss_mask, want.loss_mask),
            (got.behavior_logprobs, want.behavior_logprobs),
        ):
            np.testing.assert_array_equal(array, expected)
            assert array.dtype == expected.dtype
        event.ack()


async def test_a_client_that_ends_in_order_flushes_and_says_goodbye(network: Open) -> None:
    async with network() as net:
        events = aiter(net.hub)
        got: list[ToOrchestrator] = []

        async def consume() -> None:
            async for event in events:
                match event:
                    case Received(message=message, ack=ack):
                        got.append(message)
                        ack()
                    case PeerLeft(reason=reason):
                        assert reason == "closed"
                        return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            async with net.connect("producer-0") as link:
                for number in range(10):
                    await link.send(closed(number))
        assert got == [closed(number) for number in range(10)]


async def test_a_client_that_fails_says_so_and_its_error_is_not_wrapped(network: Open) -> None:
    async with network() as net:
        events = aiter(net.hub)

        async def fail() -> None:
            async with net.connect("producer-0"):
                await joined(events)
                raise KeyError("a bug")

        with pytest.raises(KeyError, match="a bug"):
            await fail()
        assert "KeyError" in (await left(events)).reason


async def test_a_cancelled_client_still_says_goodbye(network: Open) -> None:
    async with network() as net:
        events = aiter(net.hub)
        with anyio.CancelScope() as scope:
            async with net.connect("producer-0") as link:
                await joined(events)
                scope.cancel()
                async for _ in link:
                    pass
        with anyio.fail_after(0.5 * PATIENT.silence_s):  # it is told, and not missed
            assert (await left(events)).reason == "cancelled"


async def test_a_hub_that_closes_ends_its_peers_iteration_after_what_it_sent(network: Open) -> None:
    async with network() as net, net.connect("producer-0") as link:
        peer = await joined(aiter(net.hub))
        await net.hub.send(peer.peer, lease(0))
        await net.hub.send(peer.peer, Finish(reason="done"))
        got: list[ToProducer] = []

        async def consume() -> None:
            async for delivery in link:
                got.append(delivery.message)
                delivery.ack()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            await net.hub.aclose()
        assert got == [lease(0), Finish(reason="done")]
        with pytest.raises(LinkError, match="the hub closed"):
            await link.send(closed(0))
        rest = [event async for event in net.hub]
        assert [type(event) for event in rest] == [PeerLeft]


async def test_sending_to_a_peer_that_left_is_an_error_also_for_who_waits(network: Open) -> None:
    async with network() as net:
        events = aiter(net.hub)
        async with anyio.create_task_group() as tasks, net.connect("producer-0", msg_limits(goodbye_s=0.1)):
            peer = await joined(events)
            for number in range(4):
                await net.hub.send(peer.peer, lease(number))

            async def wait_for_credit() -> None:
                with pytest.raises(LinkError, match="closed"):
                    await net.hub.send(peer.peer, lease(4))

            tasks.start_soon(wait_for_credit)
            await let_others_run()
        with pytest.raises(LinkError, match="has left"):
            await net.hub.send(peer.peer, lease(5))


def msg_limits(goodbye_s: float) -> Limits:
    return Limits(window_items=4, heartbeat_s=0.1, silence_s=30.0, goodbye_s=goodbye_s)


async def test_an_acknowledgement_after_the_end_does_nothing(network: Open) -> None:
    async with network() as net:
        events = aiter(net.hub)
        async with net.connect("producer-0", msg_limits(goodbye_s=0.1)) as link:
            await joined(events)
            await link.send(closed(0))
            event = await received(events)
        await left(events)
        event.ack()


async def test_acknowledging_twice_is_an_error(network: Open) -> None:
    async with network() as net, net.connect("producer-0") as link:
        events = aiter(net.hub)
        await joined(events)
        await link.send(closed(0))
        event = await received(events)
        event.ack()
        with pytest.raises(LinkError, match="already"):
            event.ack()


async def test_a_cancelled_reader_loses_nothing(network: Open) -> None:
    async with network() as net, net.connect("producer-0") as link:
        events = aiter(net.hub)
        await joined(events)
        got: list[ToOrchestrator] = []
        for number in range(50):
            await link.send(closed(number))
            while len(got) <= number:
                with anyio.move_on_after(0.0005):
                    event = await received(events)
                    event.ack()
                    got.append(event.message)
        assert got == [closed(number) for number in range(50)]


async def test_a_broken_connection_loses_repeats_and_reorders_nothing(network: Open) -> None:
    limits = Limits(window_items=64, heartbeat_s=0.05, silence_s=20.0, goodbye_s=5.0)
    async with network(limits) as net, net.connect("producer-0", limits) as link:
        events = aiter(net.hub)
        peer = await joined(events)
        total = 200
        from_link: list[ToOrchestrator] = []
        from_hub: list[ToProducer] = []

        async def hub_reads() -> None:
            while len(from_link) < total:
                event = await received(events)  # and never a PeerLeft
                from_link.append(event.message)
                event.ack()

        async def link_reads() -> None:
            while len(from_hub) < total:
                delivery: Delivery[ToProducer] = await anext(aiter(link))
                from_hub.append(delivery.message)
                delivery.ack()

        async def hub_writes() -> None:
            for number in range(total):
                await net.hub.send(peer.peer, lease(number))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hub_reads)
                tasks.start_soon(link_reads)
                tasks.start_soon(hub_writes)
                for number in range(total):
                    await link.send(closed(number))
                    if number % 60 == 30:
                        await net.cut("producer-0")
                        net.restore("producer-0")
        assert from_link == [closed(number) for number in range(total)]
        assert from_hub == [lease(number) for number in range(total)]


async def test_a_peer_out_of_reach_is_dead_on_both_sides_and_may_not_come_back(network: Open) -> None:
    async with network(SHORT) as net:
        events = aiter(net.hub)

        async def lose_touch() -> None:
            async with net.connect("producer-0", SHORT) as link:
                peer = await joined(events)
                await net.cut("producer-0")
                with anyio.fail_after(30):
                    gone = await left(events)
                assert gone.peer == peer.peer
                assert "silent" in gone.reason
                net.restore("producer-0")
                with anyio.fail_after(30):
                    await anext(aiter(link))

        with pytest.raises(LinkError, match=r"silent|refused"):
            await lose_touch()


async def test_a_new_process_of_the_same_name_replaces_the_old_one(network: Open) -> None:
    async with network() as net:
        events = aiter(net.hub)

        async def replace() -> None:
            async with net.connect("producer-0") as old:
                first = await joined(events)
                async with net.connect("producer-0") as new:
                    gone = await left(events)
                    second = await joined(events)
                    assert gone.peer == first.peer
                    assert "replaced" in gone.reason
                    assert second.peer != first.peer
                    await new.send(closed(0))
                    event = await received(events)
                    assert event.peer == second.peer
                    event.ack()
                await anext(aiter(old))

        with pytest.raises(LinkError, match="replaced"):
            await replace()


async def test_a_failing_hub_says_goodbye_and_its_error_is_not_wrapped(network: Open) -> None:
    ended = anyio.Event()

    async def client(net: Network) -> None:
        async with net.connect("producer-0") as link:
            async for _ in link:
                pass
            ended.set()

    async def fail(tasks: TaskGroup) -> None:
        async with network() as net:
            tasks.start_soon(client, net)
            await joined(aiter(net.hub))
            raise KeyError("a bug")

    async with anyio.create_task_group() as tasks:
        with pytest.raises(KeyError, match="a bug"):
            await fail(tasks)
        with anyio.fail_after(30):
            await ended.wait()


# with real processes and sockets only

VICTIM = """
import sys, anyio
from stream_rl.link.codec import Decoder
from stream_rl.link.zmq_link import open_link
from stream_rl.messages import ProducerReady, ToProducer

async def main():
    async with open_link(sys.argv[1], role="producer", name="victim", receive=Decoder(ToProducer)) as link:
        await link.send(ProducerReady(engine="scripted", version=0, capacity=1))
        async for _ in link:
            pass

anyio.run(main)
"""


async def test_a_killed_process_leaves_within_the_silence_limit() -> None:
    async with open_hub(receive=Decoder(ToOrchestrator), limits=SHORT) as hub:
        events = aiter(hub)
        process = await anyio.to_thread.run_sync(subprocess.Popen, [sys.executable, "-c", VICTIM, hub.address])
        try:
            with anyio.fail_after(30):
                peer = await joined(events)
                event = await received(events)
            assert event.message == ProducerReady(engine="scripted", version=0, capacity=1)
            event.ack()
            process.send_signal(signal.SIGKILL)
            with anyio.fail_after(30):
                gone = await left(events)
            assert gone.peer == peer.peer
            assert gone.reason.startswith("silent for")
        finally:
            process.kill()
            await anyio.to_thread.run_sync(process.wait)


async def test_a_hub_that_never_answers_is_reported_with_its_address() -> None:
    with pytest.raises(LinkError, match=r"no answer from the hub at tcp://127\.0\.0\.1:1 within 0\.3 s"):
        async with open_link(
            "tcp://127.0.0.1:1",
            role="producer",
            name="p",
            receive=Decoder[ToProducer](ToProducer),
            limits=Limits(heartbeat_s=0.1, silence_s=0.3),
        ):
            pass


async def test_a_client_may_be_started_before_the_hub(tmp_path_factory: pytest.TempPathFactory) -> None:
    address = f"ipc://{tmp_path_factory.mktemp('link')}/hub"

    async def client() -> None:
        receive = Decoder[ToProducer](ToProducer)
        async with open_link(address, role="producer", name="p", receive=receive, limits=PATIENT) as link:
            await link.send(closed(0))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client)
        await let_others_run()
        async with open_hub(address, receive=Decoder(ToOrchestrator), limits=PATIENT) as hub:
            events = aiter(hub)
            await joined(events)
            (await received(events)).ack()
            await left(events)


DOOMED_HUB = """
import sys, anyio
from stream_rl.link.zmq_hub import open_hub

async def main():
    async with open_hub(sys.argv[1]) as hub:
        async for _ in hub:
            pass

anyio.run(main)
"""


async def test_a_restarted_hub_does_not_take_up_sessions_of_the_old_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    address = f"ipc://{tmp_path_factory.mktemp('link')}/hub"
    receive = Decoder[ToProducer](ToProducer)
    lasting = Limits(heartbeat_s=0.1, silence_s=60.0, goodbye_s=0.1)
    process = await anyio.to_thread.run_sync(subprocess.Popen, [sys.executable, "-c", DOOMED_HUB, address])

    async def outlive_the_hub() -> None:
        async with open_link(address, role="producer", name="p", receive=receive, limits=lasting) as link:
            process.kill()
            await anyio.to_thread.run_sync(process.wait)
            async with open_hub(address, receive=Decoder(ToOrchestrator), limits=PATIENT):
                with anyio.fail_after(30):
                    await anext(aiter(link))

    try:
        with pytest.raises(LinkError, match="does not know this session"):
            await outlive_the_hub()
    finally:
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
