"""Whether a role that ended is started again, and after how long. Pure."""

from __future__ import annotations

BAD_CONFIGURATION = 2  # exit code of a role that would fail again
_RESTARTS = 5  # of one role without any update between them
_RETURNS = 20  # of a guest whose server is gone: ten minutes
_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 30.0


class Restarts:
    """Of one role.

    A guest samples at a server that somebody else runs: if it never could, it is not tried again; once it could, its
    server is given time to come back, whatever the run does meanwhile.
    """

    def __init__(self, *, guest: bool) -> None:
        self._guest = guest
        self._left = 0 if guest else _RESTARTS
        self._backoff_s = _FIRST_BACKOFF_S

    def served(self) -> None:
        """It is up and connected."""
        if self._guest:
            self._left, self._backoff_s = _RETURNS, _FIRST_BACKOFF_S

    def trained(self) -> None:
        """The run made an update."""
        if not self._guest:
            self._left = _RESTARTS

    def after(self, code: int) -> float | None:
        """Seconds to wait before the next start, now that it ended with `code`; None: it is given up."""
        if code == BAD_CONFIGURATION or self._left == 0:
            return None
        self._left -= 1
        wait_s = self._backoff_s
        self._backoff_s = min(_LONGEST_BACKOFF_S, 2 * wait_s)
        return wait_s
