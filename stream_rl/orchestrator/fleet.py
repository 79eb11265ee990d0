"""Which producers there are, what they hold, and which may take the next lease. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class ProducerState:
    """One connected producer."""

    peer: str
    name: str
    engine: str = ""
    capacity: int = 0  # rollouts it holds at once; 0 until it is ready
    num_held_out: dict[str, int] = field(default_factory=dict)  # held-out tasks, by environment that counts them
    version: int = -1  # version its generator samples from
    asked: int = -1  # newest version it was told to load
    probe: tuple[float, ...] = ()  # what it said of the fixed prompt after its last update
    leases: dict[str, int] = field(default_factory=dict)  # group id -> rollouts

    @property
    def ready(self) -> bool:
        """It said so; its generator is up."""
        return self.capacity > 0

    @property
    def free(self) -> int:
        """Rollouts it could still take."""
        return self.capacity - sum(self.leases.values())


class Fleet:
    """All producers."""

    def __init__(self) -> None:
        self.by_peer: dict[str, ProducerState] = {}

    @property
    def ready(self) -> list[ProducerState]:
        """Producers that take leases or weights."""
        return [p for p in self.by_peer.values() if p.ready]

    def choose(self, rollouts: int, *, version: int) -> ProducerState | None:
        """The producer with most room for `rollouts` whose weights are `version` or newer; None if there is none.

        A group larger than a producer's whole capacity goes to an idle one.
        """
        able = [p for p in self.ready if p.version >= version and (p.free >= rollouts or not p.leases)]
        return max(able, key=lambda p: p.free, default=None)

    @property
    def slowest(self) -> int | None:
        """The oldest version a ready producer samples from; None without one."""
        return min((p.version for p in self.ready), default=None)

    def all_at(self, version: int) -> bool:
        """Whether there is a producer and every ready one samples from `version` or newer."""
        return self.slowest is not None and self.slowest >= version

    @property
    def num_held_out(self) -> dict[str, int]:
        """Held-out tasks every ready producer has, by environment; those that no world counts are missing."""
        counts: dict[str, int] = {}
        for producer in self.ready:
            for name, count in producer.num_held_out.items():
                counts[name] = min(count, counts.get(name, count))
        return counts

    @property
    def running(self) -> int:
        """Rollouts leased out now."""
        return sum(sum(p.leases.values()) for p in self.by_peer.values())
