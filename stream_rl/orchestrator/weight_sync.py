"""New weights reach the generators, and a round is over once all of them sample from its version.

consumes: published manifests, the producers' reports. waits for: every ready producer; the end of an evaluation.
produces: weight updates, returned permits. unblocked by: a report, a producer leaving, an evaluation ending.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_rl.messages import ProducerReady, UpdateWeights, WeightsLive
from stream_rl.orchestrator.agreement import TOLERANCE, disagreeing
from stream_rl.orchestrator.fleet import ProducerState
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.orchestrator.state import RunState


class WeightSync:
    """`watch(peer, version)` is called for each update sent; `overdue` when it was not live in time."""

    def __init__(self, state: RunState, watch: Callable[[str, int], None]) -> None:
        self._state = state
        self._watch = watch

    def push(self) -> None:
        """Tell every producer that is behind about the newest weights, unless an evaluation holds them back."""
        state, manifest = self._state, self._state.manifest
        if manifest is None or (state.evaluating is not None and manifest.version > state.evaluating):
            return
        if state.config.weights.mode == "drain" and state.fleet.running and state.behind:
            return
        for producer in state.fleet.ready:
            # One at a time: a slow generator goes on with the newest version, whose file is sure to be there.
            if producer.asked == producer.version < manifest.version:
                producer.asked = manifest.version
                state.outboxes.post(producer.peer, UpdateWeights(manifest=manifest))
                self._watch(producer.peer, manifest.version)

    async def go_live(self) -> None:
        """Versions that every generator has reached: their rounds are over and the permits come back.

        A learner that is fast, or a generator that is slow, may skip versions: several rounds are over at once.
        """
        state, manifest = self._state, self._state.manifest
        slowest = state.fleet.slowest
        if manifest is None or slowest is None:
            return
        reached = min(slowest, manifest.version)
        if reached == manifest.version > state.gate.version:
            await state.ledger.do(Ledger.publish, manifest, live=True)
        for round_ in range(state.gate.version, reached):
            for group_id in state.gate.round_live(round_):
                del state.flights[group_id]

    def producer_ready(self, peer: str, message: ProducerReady) -> None:
        """A generator is up; one that is behind is brought up to date before its first lease."""
        state = self._state
        producer = state.fleet.by_peer[peer]
        producer.engine = message.engine
        producer.capacity = message.capacity
        producer.num_held_out = message.num_held_out
        producer.version = producer.asked = message.version
        state.progress()
        state.event("producer_ready", name=producer.name, engine=message.engine, capacity=message.capacity)

    def live(self, peer: str, message: WeightsLive) -> None:
        """A generator samples from the new version."""
        state = self._state
        if producer := state.fleet.by_peer.get(peer):
            report = message.report
            producer.version = report.version
            producer.probe = report.probe
            state.tally.role_states("weights", {"pause_s": report.pause_s, "load_s": report.load_s, "updates": 1})
            state.progress()
            self._compare(report.version)

    def overdue(self, peer: str, version: int) -> None:
        """Quarantine a generator that missed the deadline: no lease, no vote on what is live, a restart."""
        state = self._state
        producer = state.fleet.by_peer.get(peer)
        if producer is None or producer.version >= version or not producer.ready:
            return
        self._quarantine(producer, f"version {version} not live after {state.config.weights.deadline_s:g} s")

    def _compare(self, version: int) -> None:
        """Quarantine generators that load a version and do not compute what the others compute."""
        state = self._state
        said = {p.peer: p.probe for p in state.fleet.ready if p.version == version and p.probe}
        for peer in disagreeing(said, TOLERANCE[state.config.policy.dtype]):
            others = "; ".join(f"{state.fleet.by_peer[p].name}: {probe[-1]:.4f}" for p, probe in said.items())
            self._quarantine(
                state.fleet.by_peer[peer],
                f"the generators disagree about version {version} (log-probability of one fixed token, {others})",
            )

    def _quarantine(self, producer: ProducerState, reason: str) -> None:
        producer.capacity = 0
        self._state.event("producer_quarantined", name=producer.name, reason=reason)
        self._state.board({"type": "restart", "name": producer.name})
