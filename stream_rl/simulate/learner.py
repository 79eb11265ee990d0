"""The learner of a simulation: rounds in, updates out, every second in one account."""

from __future__ import annotations

from stream_rl.simulate.work import UpdateWork


class Learner:
    """One update after the other. No clock: the model says when it is.

    A version is written beside the next update, one at a time: an update ends no sooner than the version before it is
    written. A learner that has nothing else to do but write is publishing, and does not wait.

    >>> work = UpdateWork(prox_s=1.0, teacher_s=0.0, train_s=2.0, publish_s=3.0, other_s=1.0)
    >>> learner = Learner(work)
    >>> learner.begin(5.0, produced_s=4.0, judged_s=5.0); learner.end_s
    9.0
    >>> learner.repace(7.0, 2.0); learner.end_s  # the second half takes twice as long
    11.0
    >>> learner.hold(11.0); learner.end(11.0)
    >>> learner.waited_s, learner.judge_waited_s, learner.version, learner.written_s
    (4.0, 1.0, 1, 14.0)
    >>> learner.begin(15.0, produced_s=15.0, judged_s=15.0); learner.waited_s, learner.published_s
    (5.0, 3.0)
    """

    def __init__(self, work: UpdateWork) -> None:
        self._work_s = work.computing_s
        self._publish_s = work.publish_s
        self._left_s = 0.0  # work left at `_since_s`
        self._since_s = 0.0
        self._slowdown = 1.0
        self._idle_since_s = 0.0
        self._began_s = 0.0
        self.version = 0  # of its parameters: updates done
        self._held_since_s = 0.0
        self.computing = False
        self.held = False  # done but for the version before, which is still being written
        self.waited_s = 0.0  # for rollouts
        self.judge_waited_s = 0.0  # for verdicts alone
        self.published_s = 0.0  # nothing else to do but write
        self.busy_s = 0.0  # computing
        self.written_s = 0.0  # when the newest version is written
        self.stamp = 0  # of the last end announced: earlier ones are void

    @property
    def end_s(self) -> float:
        """When the update that is under way ends, unless something changes."""
        return self._since_s + self._left_s * self._slowdown

    def begin(self, now_s: float, *, produced_s: float, judged_s: float) -> None:
        """The round is complete. `produced_s`, `judged_s`: when its last rollout and its last verdict came."""
        writing_s = min(now_s, max(self._idle_since_s, self.written_s)) - self._idle_since_s
        self.published_s += writing_s
        waited_s = now_s - self._idle_since_s - writing_s
        judge_s = min(waited_s, max(0.0, judged_s - max(produced_s, self._idle_since_s)))
        self.waited_s += waited_s - judge_s
        self.judge_waited_s += judge_s
        self._began_s = self._since_s = now_s
        self._left_s = self._work_s
        self.computing = True

    def repace(self, now_s: float, slowdown: float) -> None:
        """From now on everything takes `slowdown` times as long."""
        if self.computing:
            self._left_s -= (now_s - self._since_s) / self._slowdown
            self._since_s = now_s
        self._slowdown = slowdown

    def hold(self, now_s: float) -> None:
        """All is computed; the version before may still be in the way."""
        self.busy_s += now_s - self._began_s
        self._held_since_s = now_s
        self.computing = False
        self.held = True

    def end(self, now_s: float) -> None:
        """The update is done, and the version before it is out of the way: its own begins to be written."""
        self.published_s += now_s - self._held_since_s
        self.held = False
        self._idle_since_s = now_s
        self.written_s = now_s + self._publish_s
        self.version += 1
