"""Judge endpoints that come and go while a run goes on: what people ask, and what the ledger keeps of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from stream_rl.config import JudgeEndpoint
from stream_rl.errors import ConfigError
from stream_rl.messages import AttachJudge, DetachJudge, JudgesReply, ListJudges
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.orchestrator.state import RunState

_KEY = "judges"  # of the ledger: endpoints attached while the run went on


class Judges(Protocol):
    """The judge's side: who is asked. `attach` and `detach` raise `ConfigError`."""

    def attach(self, config: JudgeEndpoint) -> None:
        """Ask this endpoint too."""
        ...

    def detach(self, url: str) -> None:
        """Send it nothing more; what is in flight ends in order."""
        ...

    def standing(self) -> Sequence[msgspec.Struct]:
        """How each endpoint is doing."""
        ...


class Roster:
    """Answers control messages, and attaches again after a restart what people had attached."""

    def __init__(self, state: RunState, judges: Judges | None) -> None:
        """`judges` None: the run was started without any judging."""
        self._state = state
        self._judges = judges
        self._added: list[JudgeEndpoint] = []

    async def answer(self, message: AttachJudge | DetachJudge | ListJudges) -> JudgesReply:
        """Do it and say how the endpoints stand; a refusal changes nothing and says why."""
        if self._judges is None:
            return JudgesReply(
                endpoints=[], error="this run judges nothing: start it with a [[judge.endpoints]] entry to attach more"
            )
        try:
            match message:
                case AttachJudge():
                    await self._attach(self._judges, message.endpoint)
                case DetachJudge():
                    await self._detach(self._judges, message.url)
                case ListJudges():
                    pass
        except ConfigError as error:
            return JudgesReply(endpoints=self.standing(), error=str(error))
        return JudgesReply(endpoints=self.standing())

    def standing(self) -> list[dict[str, Any]]:
        """Every endpoint as plain data."""
        return [msgspec.to_builtins(s) for s in self._judges.standing()] if self._judges else []

    async def restore(self) -> None:
        """Attach what an earlier process of this run had been given. One that cannot be is an event, not the end."""
        text = await self._state.ledger.do(Ledger.get, _KEY)
        if text is None or self._judges is None:
            return
        for endpoint in msgspec.json.decode(text, type=list[JudgeEndpoint]):
            try:
                self._judges.attach(endpoint)
            except ConfigError as error:
                self._state.event("judge", problem=f"{endpoint.url} was not attached again: {error}")
            else:
                self._added.append(endpoint)

    async def _attach(self, judges: Judges, values: dict[str, Any]) -> None:
        try:
            endpoint = msgspec.convert(values, JudgeEndpoint)
        except msgspec.ValidationError as error:
            raise ConfigError("judge.endpoints", f"not an endpoint: {error}.") from None
        judges.attach(endpoint)
        self._added.append(endpoint)
        await self._keep()
        self._state.event("judge_attached", url=endpoint.url, model=endpoint.model)

    async def _detach(self, judges: Judges, url: str) -> None:
        judges.detach(url)
        self._added = [endpoint for endpoint in self._added if endpoint.url != url]
        await self._keep()
        self._state.event("judge_detached", url=url)

    async def _keep(self) -> None:
        # Keys are named by environment variable, never held: there is no secret in what is written.
        await self._state.ledger.do(Ledger.put, _KEY, msgspec.json.encode(self._added).decode())
