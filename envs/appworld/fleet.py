"""Where episodes get their server from: the edge that `private` and `given` implement."""

from __future__ import annotations

from typing import Protocol

from envs.appworld.client import Client


class Lease(Protocol):
    """A server that is one episode's alone."""

    @property
    def client(self) -> Client:
        """Its calls."""
        ...

    @property
    def experiment(self) -> str:
        """Name that no other server at work has, of the folder for its outputs."""
        ...

    def end(self) -> str:
        """Give it up, whatever it does now. Says how it ended, where that is known. May be called twice."""
        ...


class Fleet(Protocol):
    """The servers of one process."""

    def prepare(self) -> int:
        """Have them ready. Returns how many episodes may hold one at once. Raises `EnvironmentFailed`."""
        ...

    def lease(self, timeout_s: float) -> Lease:
        """A server for an episode, waiting at most so long. Raises `EnvironmentFailed`."""
        ...

    def close(self) -> None:
        """End what was started, give up what was taken."""
        ...
