"""What people change while a run goes on: the async depth, and whether anything new is started."""

from __future__ import annotations

from stream_rl.messages import Tune, TuneReply
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.orchestrator.state import RunState

_KEY = "async_depth"  # of the ledger: the depth people set


class Tuning:
    """Answers `Tune`. A depth outlives a restart; a pause does not, since whoever resumes a run wants it to go on."""

    def __init__(self, state: RunState) -> None:
        self._state = state

    @property
    def deepest(self) -> int:
        """The largest depth whose groups cannot be refused: the lag limit, less what a window adds."""
        config = self._state.config
        return max(0, config.lag_limit - (config.groups.window - 1))

    async def answer(self, message: Tune) -> TuneReply:
        """Do it and say how it stands; a refusal changes nothing and says why."""
        state, depth = self._state, message.async_depth
        if depth is not None and not 0 <= depth <= self.deepest:
            return self._reply(
                f"async_depth = {depth} is not between 0 and {self.deepest}: the learner refuses groups older than "
                f"max_lag = {state.config.lag_limit}. Start the run with a larger max_lag to leave room."
            )
        if depth is not None and depth != state.depth:
            await state.ledger.do(Ledger.put, _KEY, str(depth))
            state.gate.set_depth(depth)
            state.event("async_depth", depth=depth)
        if message.paused is not None and message.paused != state.paused:
            state.paused = message.paused
            state.event("paused" if message.paused else "unpaused")
        state.progress()
        return self._reply()

    async def restore(self) -> None:
        """Go on at the depth people had set. One that the configuration no longer allows is cut to what it does."""
        text = await self._state.ledger.do(Ledger.get, _KEY)
        if text is not None:
            self._state.gate.set_depth(min(int(text), self.deepest))

    def _reply(self, error: str | None = None) -> TuneReply:
        return TuneReply(async_depth=self._state.depth, paused=self._state.paused, error=error)
