"""One episode: what is recorded, token by token, and what ends it."""

from __future__ import annotations

import itertools

import anyio
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.errors import EnvironmentFailed, EnvironmentLost, GenerationFailed
from stream_rl.ports import GenerateRequest, GenerateResult
from stream_rl.producer.rollout import rollout, sampler_seed
from stream_rl.types import Message, StepResult, Trajectory, VersionSpan
from tests.unit.producer.twins import ASK, END, SYSTEM, USER, ScriptedGenerator, ToyWorld, lines, means, plan, sampled
from tests.unit.virtual_time import in_virtual_time


def ids(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def consistent(trajectory: Trajectory) -> None:
    """What every reader of a record relies on."""
    if not trajectory.samples:
        assert trajectory.turns == ()
        return
    (sample,) = trajectory.samples
    length = len(sample.token_ids)
    assert sample.token_ids.dtype == np.dtype(np.int32)
    assert sample.loss_mask.dtype == np.dtype(np.bool_)
    assert sample.behavior_logprobs.dtype == np.dtype(np.float32)
    assert len(sample.loss_mask) == len(sample.behavior_logprobs) == length
    mask = np.zeros(length, dtype=np.bool_)
    at = sample.head_tokens
    for turn in trajectory.turns:
        assert at <= turn.start <= turn.stop <= length
        assert sum(span.num_tokens for span in turn.spans) == turn.stop - turn.start
        mask[turn.start : turn.stop] = True
        at = turn.stop
    assert np.array_equal(mask, sample.loss_mask)
    assert not sample.behavior_logprobs[~mask].any()


async def test_an_episode_is_recorded_token_by_token() -> None:
    mixed = GenerateResult(
        token_ids=np.array(ids("xy"), dtype=np.int32),
        logprobs=np.array([-0.5, -0.25], dtype=np.float32),
        spans=(VersionSpan(version=3, num_tokens=1), VersionSpan(version=4, num_tokens=1)),
        cut=True,
    )
    generator = ScriptedGenerator(lines(sampled("go", version=3), mixed, sampled("z", version=4)))
    world = ToyWorld(
        [
            StepResult(text="ok", reward=0.25),
            StepResult(text="no", valid=False),
            StepResult(text="bye", reward=1.0, done=True, success=True, score=0.75),
        ]
    )
    record = await rollout(plan(max_tokens=3), means(generator, world), 10.0)
    consistent(record)
    (sample,) = record.samples
    assert sample.token_ids.tolist() == [
        USER, *ids("hi"), END, ASK,
        *ids("go"), END,
        USER, *ids("ok"), END, ASK,
        *ids("xy"),
        END, USER, *ids("no"), END, ASK,
        *ids("z"), END,
    ]  # fmt: skip
    assert np.flatnonzero(sample.loss_mask).tolist() == [5, 6, 7, 13, 14, 21, 22]
    assert sample.behavior_logprobs[sample.loss_mask].tolist() == [-1, -2, -3, -0.5, -0.25, -1, -2]
    assert sample.head == (Message(role="user", content="hi"),)
    assert sample.head_tokens == 5
    assert [(t.start, t.stop, t.action, t.observation, t.valid, t.cut, t.reward) for t in record.turns] == [
        (5, 8, "go", "ok", True, False, 0.25),
        (13, 15, "xy", "no", False, True, 0.0),
        (21, 23, "z", "bye", True, False, 1.0),
    ]
    assert record.turns[1].spans == mixed.spans
    assert (record.id, record.group_id, record.member, record.oldest_version) == ("g/2", "g", 2, 3)
    assert (record.reward, record.success, record.score, record.error) == (1.25, True, 0.75, None)
    assert record.first_prompt == "hi"
    assert world.actions == ["go", "xy", "z"]
    assert world.seeds == [9]
    assert (world.opened, world.closed) == (1, 1)


async def test_each_prompt_extends_the_one_before_by_what_was_sampled() -> None:
    generator = ScriptedGenerator()
    await rollout(plan(max_turns=4), means(generator, ToyWorld([StepResult(text="ok")])), 10.0)
    prompts = [request.prompt_ids.tolist() for request in generator.requests]
    assert len(prompts) == 4
    for before, after in itertools.pairwise(prompts):
        assert after == [*before, *ids("go"), END, USER, *ids("ok"), END, ASK]
    request = generator.requests[0]
    assert (request.max_tokens, request.temperature, request.stop_token_ids, request.seed, request.affinity) == (
        8, 0.7, (END,), None, "g"
    )  # fmt: skip


async def test_the_turn_limit_is_an_ordinary_end_without_success() -> None:
    world = ToyWorld([StepResult(text="ok")])
    record = await rollout(plan(max_turns=2), means(ScriptedGenerator(), world), 10.0)
    consistent(record)
    assert (len(record.turns), record.success, record.error) == (2, False, None)
    assert record.turns[1].observation == "ok"
    assert record.samples[0].token_ids.tolist()[-3:] == [*ids("go"), END]


async def test_the_token_limit_is_an_ordinary_end_within_the_limit() -> None:
    """Head 5; then 3 sampled and 5 between. With 14 tokens the second turn may sample 1, and no third one fits."""
    generator = ScriptedGenerator(lines(sampled("go"), sampled("g", ended=False)))
    record = await rollout(plan(), means(generator, ToyWorld([StepResult(text="ok")]), max_model_len=14), 10.0)
    consistent(record)
    assert [request.max_tokens for request in generator.requests] == [8, 1]
    assert (len(record.turns), record.success, record.error) == (2, False, None)
    assert len(record.samples[0].token_ids) == 14


async def test_a_first_prompt_without_room_for_an_answer_is_said() -> None:
    record = await rollout(plan(), means(ScriptedGenerator(), ToyWorld([]), max_model_len=5), 10.0)
    assert record.error is not None
    assert "toy/train/0 has 5 tokens" in record.error
    assert "max_model_len = 5" in record.error
    assert (record.samples, record.turns) == ((), ())


async def test_an_empty_answer_is_given_to_the_world() -> None:
    world = ToyWorld([StepResult(text="what?", valid=False), StepResult(text="", done=True)])
    record = await rollout(plan(), means(ScriptedGenerator(lines(sampled("", ended=False), sampled(""))), world), 10.0)
    consistent(record)
    assert world.actions == ["", ""]
    assert [turn.spans for turn in record.turns] == [(), (VersionSpan(version=0, num_tokens=1),)]


async def test_guidance_stands_in_the_system_turn_of_the_head() -> None:
    record = await rollout(
        plan(guidance=("search.once",)), means(ScriptedGenerator(), ToyWorld([StepResult(text="", done=True)])), 10.0
    )
    (sample,) = record.samples
    text = "guide : avoid searching twice ."
    assert sample.head == (Message(role="system", content=text), Message(role="user", content="hi"))
    assert sample.head_tokens == 1 + len(text) + 1 + 5
    assert sample.token_ids[0] == SYSTEM
    assert record.guidance == ("search.once",)
    assert record.first_prompt == "hi"


@pytest.mark.parametrize(
    ("world", "script", "turns", "tokens"),
    [
        (ToyWorld([], first=EnvironmentFailed("broken")), [], 0, 0),
        (ToyWorld([EnvironmentFailed("broken")]), [sampled("go")], 1, 8),
        (ToyWorld([StepResult(text="ok"), EnvironmentFailed("broken")]), [sampled("go"), sampled("x")], 2, 15),
    ],
)
async def test_a_failed_world_makes_an_invalid_record_of_what_there_was(
    world: ToyWorld, script: list[GenerateResult], turns: int, tokens: int
) -> None:
    record = await rollout(plan(), means(ScriptedGenerator(lines(*script)), world), 10.0)
    consistent(record)
    assert record.error == "EnvironmentFailed: broken"
    assert len(record.turns) == turns
    assert sum(len(sample.token_ids) for sample in record.samples) == tokens
    if turns:
        assert (record.turns[-1].observation, record.turns[-1].valid) == ("", False)
    assert world.opened == world.closed == 1


async def test_a_failed_generator_makes_an_invalid_record_of_what_there_was() -> None:
    async def script(request: GenerateRequest) -> GenerateResult:
        if len(request.prompt_ids) > 5:
            raise GenerationFailed("out of memory")
        return sampled("go")

    world = ToyWorld([StepResult(text="ok", reward=0.5)])
    record = await rollout(plan(), means(ScriptedGenerator(script), world), 10.0)
    consistent(record)
    assert record.error == "GenerationFailed: out of memory"
    assert (len(record.turns), record.reward, len(record.samples[0].token_ids)) == (1, 0.5, 13)
    assert world.closed == 1


async def test_a_bug_is_raised_and_the_episode_given_back() -> None:
    world = ToyWorld([ZeroDivisionError("a bug")])
    with pytest.raises(ZeroDivisionError):
        await rollout(plan(), means(ScriptedGenerator(), world), 10.0)
    assert world.closed == 1


@in_virtual_time
async def test_the_deadline_makes_an_invalid_record_of_what_there_was() -> None:
    async def script(request: GenerateRequest) -> GenerateResult:
        if len(request.prompt_ids) > 5:
            await anyio.Event().wait()
        return sampled("go")

    world = ToyWorld([StepResult(text="ok")])
    record = await rollout(plan(), means(ScriptedGenerator(script), world), 0.02)
    consistent(record)
    assert record.error == "deadline of 0.02 s passed in turn 1"
    assert len(record.turns) == 1
    assert world.closed == 1


async def test_time_is_split_between_generator_and_world() -> None:
    now = 0.0

    def spend(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def script(request: GenerateRequest) -> GenerateResult:
        spend(2.0)
        return sampled("go")

    world = ToyWorld([StepResult(text="ok"), StepResult(text="", done=True)], spend=lambda: spend(0.5))
    shared = means(ScriptedGenerator(script), world, clock=lambda: now)
    record = await rollout(plan(), shared, 10.0)
    # The first turn's world time holds the reset: 0.5 + 0.5.
    assert [(turn.generate_s, turn.environment_s) for turn in record.turns] == [(2.0, 1.0), (2.0, 0.5)]
    assert record.seconds == 5.5
    assert {name: s for name, s in shared.activities.snapshot().items() if s} == {"generate": 4.0, "environment": 1.5}


async def test_seeds_are_given_only_when_asked_for() -> None:
    generator = ScriptedGenerator()
    await rollout(plan(max_turns=3), means(generator, ToyWorld([StepResult(text="ok")]), deterministic=True), 10.0)
    assert [request.seed for request in generator.requests] == [sampler_seed(9, 2, turn) for turn in range(3)]


def test_seeds_differ_by_lease_member_and_turn() -> None:
    seeds = {sampler_seed(seed, member, turn) for seed in range(10) for member in range(10) for turn in range(10)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**31 for seed in seeds)


@settings(deadline=None, max_examples=60)
@given(
    actions=st.lists(st.tuples(st.text(alphabet="abc ", max_size=5), st.booleans()), min_size=1, max_size=8),
    answers=st.lists(
        st.one_of(
            st.builds(StepResult, text=st.text(alphabet="xyz", max_size=6), done=st.booleans(), valid=st.booleans()),
            st.just(EnvironmentFailed("broken")),
        ),
        min_size=1,
        max_size=8,
    ),
    max_model_len=st.integers(1, 60),
)
def test_records_are_consistent_whatever_happens(
    actions: list[tuple[str, bool]], answers: list[StepResult | Exception], max_model_len: int
) -> None:
    turn = iter([*actions, *[("end", True)] * 20])

    async def script(request: GenerateRequest) -> GenerateResult:
        text, ended = next(turn)
        assert request.max_tokens >= 1
        result = sampled(text, ended=ended)
        return (
            result if len(result.token_ids) <= request.max_tokens else sampled(text[: request.max_tokens], ended=False)
        )

    world = ToyWorld(answers)
    record = anyio.run(
        rollout, plan(max_turns=6), means(ScriptedGenerator(script), world, max_model_len=max_model_len), 5.0
    )
    consistent(record)
    assert len(record.turns) <= 6
    assert all(len(sample.token_ids) <= max_model_len for sample in record.samples)
    assert world.opened == world.closed


class Perishing(ToyWorld):
    """Its first episodes are lost after one answered turn; later ones are won in two."""

    def __init__(self, losses: int) -> None:
        super().__init__([])
        self._losses = losses

    def answer(self, turn: int, action: str) -> StepResult:
        self.actions.append(action)
        if turn == 0:
            return StepResult(text="on")
        if self.opened <= self._losses:
            raise EnvironmentLost("worker 1 was killed by signal 9")
        return StepResult(text="", done=True, success=True, reward=1.0)


@pytest.mark.parametrize("losses", [0, 1, 7])
async def test_an_episode_whose_world_went_away_is_played_again_whole(losses: int) -> None:
    world, dropped = Perishing(losses), list[Trajectory]()
    record = await rollout(plan(), means(ScriptedGenerator(), world), 10.0, dropped.append)
    consistent(record)
    assert (record.valid, record.success, record.reward, len(record.turns)) == (True, True, 1.0, 2)
    assert (world.opened, world.closed, world.seeds) == (losses + 1, losses + 1, [9] * (losses + 1))
    for lost in dropped:
        consistent(lost)
        assert (lost.id, lost.num_sampled_tokens) == (record.id, 6)  # "go" and its end, twice
        assert str(lost.error) == "EnvironmentLost: worker 1 was killed by signal 9"
    assert len(dropped) == losses


async def test_a_world_that_goes_away_eight_times_makes_the_rollout_invalid() -> None:
    world, dropped = Perishing(99), list[Trajectory]()
    record = await rollout(plan(), means(ScriptedGenerator(), world), 10.0, dropped.append)
    assert (world.opened, world.closed, len(dropped)) == (8, 8, 7)
    assert str(record.error).startswith("EnvironmentLost: ")


async def test_a_world_that_fails_by_itself_is_not_tried_again() -> None:
    world, dropped = ToyWorld([EnvironmentFailed("the roof fell in")]), list[Trajectory]()
    record = await rollout(plan(), means(ScriptedGenerator(), world), 10.0, dropped.append)
    assert (world.opened, dropped, record.valid) == (1, [], False)


async def test_the_deadline_holds_for_all_attempts_together() -> None:
    async def script(request: GenerateRequest) -> GenerateResult:
        if world.opened > 1:
            await anyio.sleep_forever()
        return sampled("go")

    world, dropped = Perishing(99), list[Trajectory]()
    record = await rollout(plan(), means(ScriptedGenerator(script), world), 0.05, dropped.append)
    assert (world.opened, len(dropped)) == (2, 1)
    assert record.error == "deadline of 0.05 s passed in turn 0"
