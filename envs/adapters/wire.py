"""What a remote world and its server say to each other: four calls, JSON bodies.

    POST /reset  {"session": "3f2a", "task": {"environment": "w", "split": "train", "index": 0}, "seed": 1}
                 -> {"text": "...", "admissible": []}
    POST /step   {"session": "3f2a", "action": "look"}
                 -> {"text": "...", "reward": 0.0, "done": false, "success": false, "score": 0.0, "valid": true, ...}
    POST /close  {"session": "3f2a"} -> {}
    GET  /health -> {"world": "w", "protocol": 1, "sessions": 0, "num_tasks": {"train": 3553, "held_out": null}}

The client chooses the session's id. A second /reset of one id begins that episode again, so /reset may be repeated when
an answer was lost; /step may not. A field that is missing has its default, one that is unknown is ignored. Errors are
{"error": "what, and why"}: 400 the request cannot be read, 401 the bearer token is missing or wrong, 404 no such
session, 500 the world failed and the session is gone, 503 no place is free now.
"""

from __future__ import annotations

import msgspec

from stream_rl.types import Split, Task

PROTOCOL = 1
LIMIT_BYTES = 16 << 20  # of one body, either way
SESSION_CHARACTERS = 128  # longest id


class ResetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of POST /reset."""

    session: str  # chosen by the client, not used by any other episode
    task: Task  # what to solve
    seed: int = 0  # world's seed


class StepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of POST /step."""

    session: str  # which episode
    action: str  # decoded text


class CloseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of POST /close. Closing what is not open is no error."""

    session: str  # which episode


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to GET /health."""

    world: str  # name of the world behind this address
    protocol: int = PROTOCOL  # version of these calls
    sessions: int = 0  # open episodes
    num_tasks: dict[Split, int | None] = {}  # tasks of each split; missing or None: not counted


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every answer that is not 200."""

    error: str  # what went wrong, and why
