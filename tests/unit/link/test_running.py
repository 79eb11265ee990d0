"""What the other side hears of a block that failed."""

from __future__ import annotations

import anyio
import pytest

from stream_rl.errors import GeneratorBroken
from stream_rl.link.running import running


class SilentEnd:
    """An end that carries nothing and keeps what it was told to say."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def own_wire(self) -> None:
        await anyio.sleep_forever()

    async def aclose(self) -> None:
        self.said.append("closed")

    async def part(self, reason: str) -> None:
        self.said.append(reason)


async def test_a_block_that_fails_in_a_task_group_says_goodbye_with_what_happened() -> None:
    end = SilentEnd()
    wrapped = ExceptionGroup("unhandled errors in a TaskGroup", [GeneratorBroken("the engine died at version 7")])
    with pytest.raises(ExceptionGroup) as caught:
        async with running(end):
            raise wrapped
    assert caught.value is wrapped
    assert end.said == ["failed: the engine died at version 7"]


async def test_a_bug_is_told_with_its_kind() -> None:
    end = SilentEnd()
    with pytest.raises(KeyError):
        async with running(end):
            raise KeyError("rounds")
    assert end.said == ["failed: KeyError: 'rounds'"]
