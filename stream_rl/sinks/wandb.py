"""Weights & Biases, online or offline. `WANDB_MODE`, `WANDB_PROJECT`, `WANDB_ENTITY`, `WANDB_API_KEY` are its own."""

from __future__ import annotations

import netrc
import os
from urllib.parse import urlsplit

from stream_rl.sinks.port import Point, RunFacts

AXIS = "update"  # name of the horizontal axis
_PROJECT = "stream_rl"
_CLOUD = "https://api.wandb.ai"
_WITHOUT_KEY = frozenset({"offline", "dryrun", "disabled"})


def missing_key() -> str | None:
    """Why a run could not be sent, in words, or None. Without a key wandb would ask for one, and nobody answers."""
    if os.environ.get("WANDB_MODE", "").lower() in _WITHOUT_KEY or os.environ.get("WANDB_API_KEY"):
        return None
    host = urlsplit(os.environ.get("WANDB_BASE_URL", _CLOUD)).hostname or ""
    try:
        known = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, netrc.NetrcParseError):  # no such file, or one that wandb cannot read either
        known = None
    if known:
        return None
    return f"'wandb' has no key for {host}; run `wandb login`, set WANDB_API_KEY, or set WANDB_MODE=offline."


class WandbSink:
    """One W&B run for one run, under `runs/NAME/wandb`; offline ones are sent later with `wandb sync`."""

    def __init__(self, facts: RunFacts) -> None:
        """Begin it, or go on with it: its id is the run's id, so a resumed run is one run there, too."""
        import wandb

        self._package = wandb
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=facts.name,
            id=facts.run_id,
            resume="allow",
            dir=str(facts.folder),
            config=dict(facts.config),
            settings=wandb.Settings(console="off", silent=True),  # its prints are no lines of the board
        )
        # W&B's own step may only grow, while a resumed run trains some updates again.
        self._run.define_metric(AXIS)
        self._run.define_metric("*", step_metric=AXIS)

    def write(self, point: Point) -> None:
        """Queue the numbers; wandb's own process sends them."""
        self._run.log({AXIS: point.step, **point.scalars})

    def close(self) -> None:
        """Wait until what was queued is sent or written: the latter is sure only once wandb's own process is gone."""
        self._run.finish()
        self._package.teardown()
