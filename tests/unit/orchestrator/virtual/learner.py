"""A scripted learner: refuses as the real one does, trains nothing, and writes checkpoints."""

from __future__ import annotations

import random
from collections.abc import Callable

import anyio

from learner.rounds import refusal
from stream_rl.errors import LinkError
from stream_rl.link.codec import Decoder
from stream_rl.link.limits import Limits
from stream_rl.link.memory import MemoryHub
from stream_rl.messages import (
    CheckpointSaved,
    Finish,
    FromLearner,
    GroupRefused,
    LearnerReady,
    Published,
    RoundStart,
    SaveCheckpoint,
    SelectedGroup,
    ToLearner,
    Trained,
)
from stream_rl.ports import Link
from stream_rl.types import WeightsManifest
from tests.unit.orchestrator.virtual.history import History, Update
from tests.unit.orchestrator.virtual.schedule import Schedule, about


class ScriptedLearner:
    """Trains what it is sent, refuses now and then, and writes checkpoints."""

    def __init__(
        self,
        hub: MemoryHub,
        limits: Limits,
        schedule: Schedule,
        life: int,
        log: History,
        receives: Callable[[SelectedGroup], None],
    ) -> None:
        """`receives` looks at every group that comes, before it is trained or refused."""
        self._hub = hub
        self._limits = limits
        self._config = schedule.config
        self._weather = schedule.weather
        self._rng = random.Random(f"learner/{life}/{schedule.seed}")
        self._log = log
        self._receives = receives
        self._version = log.newest
        self._groups: list[SelectedGroup] = []
        self._written = anyio.Event()
        self._written.set()

    async def live(self, until_s: float) -> None:
        """Serve until told to finish; die after `until_s`."""
        try:
            with anyio.move_on_after(until_s):
                await self._serve()
        except* LinkError:
            pass  # the orchestrator is gone, or took the learner for dead: the run ends and is resumed

    async def _serve(self) -> None:
        receive: Decoder[ToLearner] = Decoder(ToLearner)
        async with (
            self._hub.connect(role="learner", name="learner", receive=receive, limits=self._limits) as link,
            anyio.create_task_group() as tasks,
        ):
            await anyio.sleep(about(self._rng, 1.0))
            await link.send(LearnerReady(version=self._version, manifest=_manifest(self._version)))
            expected = 0
            async for delivery in link:
                match delivery.message:
                    case RoundStart(update=update, num_groups=expected):
                        assert update == self._version, f"round {update} came to a learner at {self._version}"
                        self._groups = []
                    case SelectedGroup() as group:
                        assert group.update == self._version, f"{group.group_id} came to the wrong round"
                        self._receives(group)
                        if reason := self._refusal(group):
                            await link.send(GroupRefused(update=group.update, group_id=group.group_id, reason=reason))
                        else:
                            self._groups.append(group)
                    case SaveCheckpoint():
                        self._log.checkpoints.add(self._version)
                        await link.send(CheckpointSaved(version=self._version, path=_folder(self._version)))
                    case Finish():
                        delivery.ack()
                        break
                delivery.ack()
                if expected and len(self._groups) == expected:
                    expected = 0
                    await link.send(await self._train())
                    tasks.start_soon(self._publish, link, self._version)
            tasks.cancel_scope.cancel()
            self._log.finished.append("learner")

    def _refusal(self, group: SelectedGroup) -> str | None:
        if self._rng.random() < self._weather.refused_p:
            return "the script says so"
        return refusal(group, version=self._version, max_lag=self._config.lag_limit)

    async def _train(self) -> Trained:
        update = self._version
        names = [group.group_id for group in self._groups]
        assert len(names) == len(set(names)), f"round {update} holds a group twice: {names}"
        await anyio.sleep(about(self._rng, self._weather.train_s))
        await self._written.wait()
        self._written = anyio.Event()
        self._version += 1
        self._log.updates.append(Update(update=update, trained=tuple(self._groups)))
        every = self._config.learner.checkpoint_every
        saved = every > 0 and self._version % every == 0
        if saved:
            self._log.checkpoints.add(self._version)
        return Trained(
            update=update,
            version=self._version,
            group_ids=tuple(names),
            metrics={"learner": {"rollout_wait_s": 0.1, "total_s": 0.1}},
            checkpoint=_folder(self._version) if saved else None,
        )

    async def _publish(self, link: Link[FromLearner, ToLearner], version: int) -> None:
        """Beside the next update."""
        await anyio.sleep(about(self._rng, self._weather.publish_s))
        self._written.set()
        await link.send(Published(manifest=_manifest(version), write_s=0.0))


def _manifest(version: int) -> WeightsManifest:
    """Where a version would lie."""
    return WeightsManifest(run_id="r", version=version, path=f"v{version}", fingerprint=f"f{version}", num_bytes=1)


def _folder(version: int) -> str:
    return f"checkpoints/{version:06d}"
