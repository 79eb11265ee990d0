from __future__ import annotations

import anyio

from stream_rl.config import from_dict
from stream_rl.observe.loop_lag import LoopLag
from stream_rl.orchestrator.accounts import HANDLING, LEDGER, Accounts, devices_of
from stream_rl.orchestrator.fleet import Fleet, ProducerState
from stream_rl.orchestrator.gate import Gate
from stream_rl.orchestrator.judging import Answer, JudgingStage, Question
from stream_rl.orchestrator.tally import Tally
from stream_rl.types import Scores, Trajectory, Verdict
from tests.unit.orchestrator.virtual import clock
from tests.unit.records import flight, trajectory, verdict


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def test_a_line_is_completed_with_time_levels_and_device_seconds() -> None:
    """2 s nobody, then for 4 s a producer of 3 workers and a learner of 2 ranks."""
    settings = from_dict({"environments": [{"name": "household", "workers": 3}], "learner": {"ranks": 2}})
    now, lag = Clock(), LoopLag()
    accounts = Accounts(devices_of(settings, embedded_judges=1), loop_lag=lag, cpu=lambda: {"judges": 0.25}, clock=now)
    gate, fleet = Gate(depth=0, candidates=2, last_round=5, version=0), Fleet()
    flights = {name: flight(name, (True,)) for name in ("a", "b")}
    accounts.observe(gate=gate, fleet=fleet, flights={}, learner=False, inbox=0, outbox=0)
    now.now += 2.0
    fleet.by_peer["p"] = ProducerState(peer="p", name="producer-0", capacity=8, leases={"a": 4})
    for name in flights:
        gate.admit(name)
    flights["b"].stage = "selected"
    accounts.observe(gate=gate, fleet=fleet, flights=flights, learner=True, inbox=3, outbox=1)
    with accounts.actor.during(HANDLING):
        now.now += 1.0
        with accounts.actor.during(LEDGER):
            now.now += 3.0
    lag.observe(0.25)
    given = {"step": 0, "roles": {"producer-0": {"generate": 1.0}}, "slots": {}, "cost": {"cpu_s": {"learner": 1.5}}}
    line = accounts.merged(given)
    assert line["cost"]["cpu_s"] == {"judges": 0.25, "learner": 1.5}
    assert line["roles"] == {
        "orchestrator": {"idle": 2.0, "handling": 1.0, "ledger": 3.0},
        "producer-0": {"generate": 1.0},
    }
    assert line["cost"]["device_s"] == {
        "orchestrator": 6.0,
        "generators": 4.0,
        "environments": 12.0,
        "learner": 8.0,
        "judges": 6.0,
    }
    assert line["levels"]["permits_taken"] == {"mean": 2 * 4 / 6, "max": 2}
    assert line["levels"]["groups_candidate"]["max"] == line["levels"]["groups_selected"]["max"] == 1
    assert line["levels"]["inbox"] == {"mean": 3 * 4 / 6, "max": 3}
    assert line["loop_lag"] == {"mean_s": 0.25, "max_s": 0.25}
    assert accounts.levels["rollouts"] == 4


class _Slow:
    """Answers after 3 s; the first time nobody is there, which it says after 1 s."""

    def __init__(self) -> None:
        self.asked = 0

    async def tag(self, t: Trajectory) -> Verdict:
        self.asked += 1
        if self.asked == 1:
            await anyio.sleep(1.0)
            return Verdict(trajectory_id=t.id, tags=())
        await anyio.sleep(3.0)
        return verdict(t.id, {"a.one": "positive"})

    async def score(self, t: Trajectory, criteria: tuple[str, ...]) -> Scores:
        raise AssertionError("no criteria are asked about")


def test_the_judging_stage_asks_waits_or_is_idle() -> None:
    """2 s idle; two questions for one worker: 1 s asked in vain, 0.5 s pause, then 3 s for each."""

    async def main() -> tuple[dict[str, float], dict[str, float]]:
        async def deliver(question: Question, answer: Answer) -> None:
            pass

        stage = JudgingStage(
            _Slow(), workers=1, required=True, deliver=deliver, trouble=lambda problem: None, clock=anyio.current_time
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.run)
            await anyio.sleep(2.0)
            for member in (0, 1):
                stage.submit(Question(trajectory=trajectory(member=member)))
            stage.close()
        return stage.laps()

    stage, questions = clock.run(main)
    assert stage == {"asking": 7.0, "waiting": 0.5, "idle": 2.0}
    assert (questions["queued"], questions["asking"], questions["waiting"]) == (4.5, 7.0, 0.5)


def test_cpu_seconds_of_all_producers_are_summed_a_restarted_one_included() -> None:
    tally = Tally()
    for used in (
        {"generators": 2.0, "producers": 0.5},
        {"generators": 1.0, "environments": 0.25},
        {"producers": 0.125},
    ):
        tally.cpu(used)  # of producer-0, producer-1, and of producer-0 again, which counts from its start
    line = tally.line(step=0, candidates=[], trained=[], learner={"cpu_s": {"learner": 4.0}})
    assert line["cost"]["cpu_s"] == {"environments": 0.25, "generators": 3.0, "learner": 4.0, "producers": 0.625}
    assert "cpu_s" not in line
    assert tally.line(step=1, candidates=[], trained=[], learner={})["cost"]["cpu_s"] == {}
