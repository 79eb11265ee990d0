"""trackio: a local database that `trackio show` draws. `TRACKIO_PROJECT` and `TRACKIO_SPACE_ID` are honoured."""

from __future__ import annotations

import os

from stream_rl.sinks.port import Point, RunFacts

_PROJECT = "stream_rl"


class TrackioSink:
    """One trackio run for one run, under its name."""

    def __init__(self, facts: RunFacts) -> None:
        """Begin it, or go on with the one of that name."""
        import trackio

        self._run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", _PROJECT),
            name=facts.name,
            config=dict(facts.config),
            resume="never" if facts.resumed_at is None else "allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def write(self, point: Point) -> None:
        """Queue the numbers; trackio's own thread writes them."""
        self._run.log(dict(point.scalars), step=point.step)

    def close(self) -> None:
        """Wait until what was queued is written."""
        self._run.finish()
