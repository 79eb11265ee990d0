"""One question to the orchestrator of a running run."""

from __future__ import annotations

import os

from stream_rl.errors import LinkError
from stream_rl.link.codec import Decoder
from stream_rl.messages import FromControl, ToControl
from stream_rl.observe.rundir import RunDirectory

_ANSWER_S = 5.0


async def ask(run: RunDirectory, question: FromControl) -> ToControl | None:
    """The answer; None when no orchestrator of this run answers any more."""
    from stream_rl.link.limits import Limits
    from stream_rl.link.zmq_link import open_link

    if not run.address.exists():
        return None
    limits = Limits(silence_s=_ANSWER_S, heartbeat_s=1.0)
    receive: Decoder[ToControl] = Decoder(ToControl)
    address = run.address.read_text(encoding="ascii")
    name = f"control-{os.getpid()}"
    try:
        async with open_link(address, role="control", name=name, receive=receive, limits=limits) as link:
            await link.send(question)
            async for delivery in link:
                delivery.ack()
                return delivery.message
    except LinkError:
        return None
    return None
