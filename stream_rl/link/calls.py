"""The conversation around one transfer over a collective: who sends drives the receiver's engine by remote calls.

receiver                     sender
Join(version) ───────────────>
             <─────────────── Call("start_weight_update")
Done() ──────────────────────>
                              ...
             <─────────────── Sent()
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from stream_rl.link.codec import Decoder

MAX_CALL_BYTES = 16 << 20  # names and shapes of all tensors fit, their bytes do not belong here

Method = Literal["init_weight_transfer_engine", "start_weight_update", "update_weights", "finish_weight_update"]


class Join(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Receiver to sender: my engine is paused; send me this version now."""

    run_id: str  # whose version
    version: int  # which
    num_workers: int  # processes of my engine that take part in the collective


class Call(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Sender to receiver: do this with your engine."""

    method: Method  # vLLM's name of it
    info: dict[str, Any] = {}  # its argument, plain data


class Done(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Receiver to sender: the call has returned."""

    error: str = ""  # why it failed


class Sent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Sender to receiver: the transfer is over."""

    error: str = ""  # why nothing, or not everything, was sent


to_sender: Decoder[Join | Done] = Decoder(Join | Done)
to_receiver: Decoder[Call | Sent] = Decoder(Call | Sent)
