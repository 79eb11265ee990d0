"""Errors with one meaning each.

A failed rollout is data, a bug is a crash, a failed verdict is never a reward. Code that meets the outside world
(environment, judge, generator, configuration) turns what it sees into one of these once, at the boundary.
"""

from __future__ import annotations


class StreamRLError(Exception):
    """Base of every error this project raises on purpose.

    `exit_code` is what the command line returns when the error reaches it: 2 for bad usage or configuration, 1 for
    what only fails at run time.
    """

    exit_code = 1


class ConfigError(StreamRLError):
    """The configuration cannot be used. The message names the key's path, the value and what was expected."""

    exit_code = 2

    def __init__(self, path: str, problem: str, *, nearest: str | None = None) -> None:
        self.path = path
        self.problem = problem
        self.nearest = nearest
        hint = f" Did you mean `{nearest}`?" if nearest else ""
        super().__init__(f"{path}: {problem}{hint}")


class UsageError(StreamRLError):
    """The command line was used wrongly: no such run, no such file, arguments that do not go together."""

    exit_code = 2


class EnvironmentFailed(StreamRLError):
    """An environment crashed, stalled or could not be reset. The trajectory is invalid; the run goes on."""


class EnvironmentLost(EnvironmentFailed):
    """What held the episode is gone: a worker was killed, a server died. Elsewhere the episode may go well."""


class GenerationFailed(StreamRLError):
    """The generator could not finish a request. The trajectory is invalid; the run goes on."""


class GeneratorBroken(GenerationFailed):
    """The engine is gone, or holds weights of no version: no request will succeed. The producer's process ends."""


class JudgeFailed(StreamRLError):
    """No endpoint gave a usable answer in time. The caller abstains; it never turns this into a reward."""


class WeightsRejected(StreamRLError):
    """A weight update was not applied: wrong fingerprint, wrong run, missing file, or a missed deadline."""


class LinkError(StreamRLError):
    """A peer broke the link protocol, or sent more than it was allowed to."""


class MessageTooLarge(LinkError):
    """A message that the peer would never take, however long one waited. The peer lives."""


class LedgerError(StreamRLError):
    """The ledger refused a transition: it would skip a state, repeat one, or belong to another run."""


class RoleDied(StreamRLError):
    """A process of the run ended when it should not have. The message names the role and its log file."""
