from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from stream_rl.errors import LinkError
from stream_rl.link.mailbox import Mailbox


async def let_it_wait() -> None:
    for _ in range(5):
        await anyio.lowlevel.checkpoint()


async def test_what_is_left_is_read_before_the_end() -> None:
    box: Mailbox[int] = Mailbox()
    box.put(1)
    box.put(2)
    box.close()
    box.put(3)
    assert [item async for item in box] == [1, 2]
    assert [item async for item in box] == []


async def test_an_error_comes_after_what_is_left_and_every_time() -> None:
    box: Mailbox[int] = Mailbox()
    box.put(1)
    box.close(LinkError("gone"))
    box.close()
    assert await anext(box) == 1
    for _ in range(2):
        with pytest.raises(LinkError, match="gone"):
            await anext(box)


async def test_closing_wakes_a_reader() -> None:
    box: Mailbox[int] = Mailbox()

    async def read() -> None:
        assert [item async for item in box] == []

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await let_it_wait()
            box.close()


async def test_a_cancelled_reader_takes_nothing_even_when_an_item_came_in_the_same_moment() -> None:
    box: Mailbox[int] = Mailbox()
    got: list[int] = []

    async def read() -> None:
        got.append(await anext(box))

    for number in range(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await let_it_wait()
            box.put(number)
            tasks.cancel_scope.cancel()
    box.close()
    assert got + [item async for item in box] == list(range(20))
