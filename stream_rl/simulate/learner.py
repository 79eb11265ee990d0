"""The learner of a simulation: rounds in, updates out, every second in one account."""

from __future__ import annotations

from stream_rl.simulate.work import UpdateWork


class Learner:
    """One update after the other. No clock: the model says when it is.

    >>> work = UpdateWork(prox_s=1.0, teacher_s=0.0, train_s=2.0, publish_s=0.0, other_s=1.0)
    >>> learner = Learner(work)
    >>> learner.begin(5.0, produced_s=4.0, judged_s=5.0); learner.end_s
    9.0
    >>> learner.repace(7.0, 2.0); learner.end_s  # the second half takes twice as long
    11.0
    >>> learner.end(11.0); learner.waited_s, learner.judge_waited_s, learner.version
    (4.0, 1.0, 1)
    """

    def __init__(self, work: UpdateWork) -> None:
        self._work_s = work.total_s
        self._left_s = 0.0  # work left at `_since_s`
        self._since_s = 0.0
        self._slowdown = 1.0
        self._idle_since_s = 0.0
        self._began_s = 0.0
        self.version = 0  # of its parameters: updates done
        self.computing = False
        self.waited_s = 0.0  # for rollouts
        self.judge_waited_s = 0.0  # for verdicts alone
        self.busy_s = 0.0
        self.stamp = 0  # of the last end announced: earlier ones are void

    @property
    def end_s(self) -> float:
        """When the update that is under way ends, unless something changes."""
        return self._since_s + self._left_s * self._slowdown

    def begin(self, now_s: float, *, produced_s: float, judged_s: float) -> None:
        """The round is complete. `produced_s`, `judged_s`: when its last rollout and its last verdict came."""
        waited_s = now_s - self._idle_since_s
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

    def end(self, now_s: float) -> None:
        """The update is done and its version written."""
        self.busy_s += now_s - self._began_s
        self._idle_since_s = now_s
        self.computing = False
        self.version += 1
