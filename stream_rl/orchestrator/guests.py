"""vLLM servers that people attach while a run goes on: which there are, and who samples at each.

A server gets a producer of its own, which the supervisor starts (and ends) when it is told to. The first producers are
those of the configuration; an attached one has the next number, and keeps it when the run is resumed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stream_rl.messages import AttachGenerator, DetachGenerator, GeneratorsReply, ListGenerators
from stream_rl.orchestrator.fleet import ProducerState
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.orchestrator.state import RunState

_KEY = "generators"  # of the ledger: servers attached while the run went on


class Guest(msgspec.Struct, frozen=True, kw_only=True):
    """One attached server."""

    url: str  # its base address
    key_env: str  # variable, of the run, that holds its key; empty: none
    index: int  # of its producer

    @property
    def name(self) -> str:
        """Of its producer."""
        return f"producer-{self.index}"


class Guests:
    """Answers control messages, and has attached servers started again after a restart."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._guests: list[Guest] = []
        self._next = state.config.generate.producers  # number of the next one; none is given twice

    async def answer(self, message: AttachGenerator | DetachGenerator | ListGenerators) -> GeneratorsReply:
        """Do it and say which generators there are; a refusal changes nothing and says why."""
        error = None
        match message:
            case AttachGenerator():
                error = await self._attach(message)
            case DetachGenerator():
                error = await self._detach(message.url)
            case ListGenerators():
                pass
        return GeneratorsReply(generators=self.standing(), error=error)

    def standing(self) -> list[dict[str, Any]]:
        """Every generator as plain data: the configuration's, then the attached, connected or not."""
        generate = self._state.config.generate
        urls = {f"producer-{i}": url for i, url in enumerate(generate.servers)}
        names = [f"producer-{i}" for i in range(generate.producers)]
        urls |= {guest.name: guest.url for guest in self._guests}
        names += [guest.name for guest in self._guests]
        by_name = {producer.name: producer for producer in self._state.fleet.by_peer.values()}
        standing = []
        for name in names:
            producer = by_name.get(name)
            standing.append(
                {
                    "name": name,
                    "url": urls.get(name, ""),
                    "state": state_of(producer, self._state.gate.version),
                    "engine": producer.engine if producer else "",
                    "version": producer.version if producer else -1,
                    "rollouts": sum(producer.leases.values()) if producer else 0,
                    "capacity": producer.capacity if producer else 0,
                }
            )
        return standing

    async def restore(self) -> None:
        """Have the servers that an earlier process of this run had been given started again."""
        text = await self._state.ledger.do(Ledger.get, _KEY)
        if text is None:
            return
        self._guests = msgspec.json.decode(text, type=list[Guest])
        for guest in self._guests:
            self._next = max(self._next, guest.index + 1)
            self._state.event("generator_attached", url=guest.url, name=guest.name)
            self._start(guest)

    async def _attach(self, message: AttachGenerator) -> str | None:
        state = self._state
        if state.config.weights.transport == "nccl":
            return "this run sends weights over NCCL, to engines it starts itself; a server reads files"
        if message.url in state.config.generate.servers:
            return f"{message.url} is one of the configuration's servers"
        if known := self._at(message.url):
            if any(producer.name == known.name for producer in state.fleet.by_peer.values()):
                return f"{message.url} is attached already, as {known.name}"
            self._dismiss(known)  # it waits for its server, or was dropped: tried again at once
        guest = Guest(url=message.url, key_env=message.key_env, index=self._next)
        self._next += 1
        self._guests.append(guest)
        await self._keep()
        state.event("generator_attached", url=guest.url, name=guest.name)
        self._start(guest)
        return None

    async def _detach(self, url: str) -> str | None:
        guest = self._at(url)
        if guest is None:
            known = ", ".join(guest.url for guest in self._guests) or "none"
            return f"{url} was not attached while the run went on; attached are: {known}"
        self._dismiss(guest)
        await self._keep()
        self._state.event("generator_detached", url=url, name=guest.name)
        return None

    def _at(self, url: str) -> Guest | None:
        return next((guest for guest in self._guests if guest.url == url), None)

    def _dismiss(self, guest: Guest) -> None:
        self._guests.remove(guest)
        for producer in self._state.fleet.by_peer.values():
            if producer.name == guest.name:
                producer.capacity = 0  # no lease any more; what it holds is leased again when it has left
        self._state.board({"type": "retire_producer", "name": guest.name})

    def _start(self, guest: Guest) -> None:
        self._state.board(
            {"type": "start_producer", "index": guest.index, "server": guest.url, "key_env": guest.key_env}
        )

    async def _keep(self) -> None:
        # Keys are named by environment variable, never held: there is no secret in what is written.
        await self._state.ledger.do(Ledger.put, _KEY, msgspec.json.encode(self._guests).decode())


def state_of(producer: ProducerState | None, live: int) -> str:
    """What a generator does, in a word or two, while version `live` is the one that all sample from."""
    if producer is None or not producer.engine:  # not there, or on its way
        return "not connected"
    if not producer.ready:
        return "held back"
    return "ready" if producer.version >= live else "catching up"
