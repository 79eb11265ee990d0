"""The policy's bundles about a group, whatever its answers are."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest

from stream_rl.errors import GenerationFailed, GeneratorBroken
from stream_rl.generate.scripted import ScriptedGenerator
from stream_rl.messages import TrainLease
from stream_rl.ports import GenerateRequest, GenerateResult
from stream_rl.producer.rollout import Means
from stream_rl.producer.writer import write
from stream_rl.rubrics.writing import WritingOptions, load_template
from stream_rl.types import Trajectory, Writing
from tests.unit.producer import twins
from tests.unit.producer.twins import END, TASK, USER, ToyWorld
from tests.unit.rubrics.episodes import episode, steps
from tests.unit.virtual_time import in_virtual_time

FIVE = tuple(f"criterion {letter}" for letter in "abcde")
GOOD = json.dumps(FIVE)
OPTIONS = WritingOptions(template=load_template("compact"), bundle_tokens=200)
GROUP = [episode(0, steps("a", "b")), episode(1, steps("c")), episode(2, steps("d"), error="its world crashed")]
PROMPT_TOKENS = len("1 : a . b .") + len("2 : c .") + len("guide :") + 2 + 3  # line ends; USER, END, ASK


def lease(bundles: int = 4, **fields: Any) -> TrainLease:
    defaults: dict[str, Any] = {
        "group_id": "g", "task": TASK, "size": 3, "seed": 9, "temperature": 0.7, "max_tokens": 8, "max_turns": 5,
        "deadline_s": 60.0,
    }  # fmt: skip
    return TrainLease(**{**defaults, **fields}, bundles=bundles)


def speaker(answers: Sequence[str], **options: Any) -> ScriptedGenerator:
    """Says one answer after another."""
    left = iter(answers)
    return ScriptedGenerator(lambda prompt: [*map(ord, next(left)), END], run_id="r", **options)


def means(generator: Any, *, max_model_len: int = 1000, **fields: Any) -> Means:
    made = twins.means(twins.ScriptedGenerator(), ToyWorld([]), max_model_len=max_model_len, **fields)
    return msgspec.structs.replace(made, generator=generator, writing=OPTIONS)


async def written(
    generator: Any, asked: TrainLease, group: Sequence[Trajectory] = GROUP, deadline_s: float = 10.0
) -> Writing:
    with anyio.fail_after(20):
        return await write(asked, group, means(generator), deadline_s)


async def test_every_bundle_is_asked_for_and_every_token_counted() -> None:
    other = tuple(f"rule {i}" for i in range(6))
    answers = [GOOD, "I cannot.", json.dumps(other), json.dumps(FIVE[:4])]
    writing = await written(speaker(answers), lease(4))
    assert writing == Writing(
        bundles=(FIVE, other),
        malformed=2,
        prompt_tokens=4 * PROMPT_TOKENS,
        sampled_tokens=sum(len(answer) + 1 for answer in answers),
        omitted_turns=0,
    )


async def test_requests_are_independent_and_about_valid_members_only() -> None:
    requests: list[GenerateRequest] = []

    async def script(request: GenerateRequest) -> GenerateResult:
        requests.append(request)
        return twins.sampled(GOOD)

    shared = means(twins.ScriptedGenerator(script), deterministic=True)
    writing = await write(lease(3), GROUP, shared, 10.0)
    assert writing.bundles == (FIVE, FIVE, FIVE)
    assert len({request.seed for request in requests}) == 3
    for request in requests:
        assert (request.temperature, request.max_tokens, request.stop_token_ids) == (0.7, 200, (END,))
        assert request.prompt_ids[0] == USER
        prompt = "".join(map(chr, request.prompt_ids[1:-2]))
        assert sorted(prompt[4:].replace("\n2 : ", "|").replace("\nguide :", "").split("|")) == ["a . b .", "c ."]


async def test_bundles_come_in_the_order_they_were_asked_for() -> None:
    """The first answer ends last."""
    first_may_end = anyio.Event()
    numbers = itertools.count()

    async def script(request: GenerateRequest) -> GenerateResult:
        number = next(numbers)
        if number == 0:
            await first_may_end.wait()
        first_may_end.set()
        return twins.sampled(json.dumps([f"criterion {number}{letter}" for letter in "abcde"]))

    writing = await written(twins.ScriptedGenerator(script), lease(2))
    assert [bundle[0] for bundle in writing.bundles] == ["criterion 0a", "criterion 1a"]


async def test_an_answer_at_its_limit_loses_what_it_broke_off_in() -> None:
    endless = "".join(f"- number {i:03}\n" for i in range(100))
    # 200 tokens are 14 lines of 13 characters and 18 more; 8 criteria are kept.
    writing = await written(speaker([endless]), lease(1))
    assert writing.sampled_tokens == 200
    assert writing.bundles == (tuple(f"number {i:03}" for i in range(8)),)


@pytest.mark.parametrize("num_valid", [0, 1])
async def test_too_few_valid_members_are_not_written_about(num_valid: int) -> None:
    group = [episode(i, steps("a"), error=None if i < num_valid else "crashed") for i in range(3)]
    writing = await written(speaker([]), lease(4), group)
    assert writing == Writing(
        bundles=(), error=f"{num_valid} of 3 trajectories are valid; it takes 2 to tell them apart"
    )


async def test_a_prompt_that_does_not_fit_is_not_asked() -> None:
    group = [episode(i, steps("x" * 300, "y" * 300)) for i in range(2)]
    writing = await write(lease(4), group, means(speaker([]), max_model_len=1000), 10.0)
    assert writing.bundles == ()
    assert "leaves 800" in str(writing.error)


async def test_a_long_group_is_summarised_and_the_turns_counted() -> None:
    group = [episode(i, steps(*["walk on"] * 50)) for i in range(2)]
    writing = await written(speaker([GOOD] * 4), lease(4), group)
    assert len(writing.bundles) == 4
    assert 0 < writing.omitted_turns < 100
    assert writing.prompt_tokens <= 4 * 800


@in_virtual_time
async def test_the_deadline_keeps_what_was_answered() -> None:
    numbers = itertools.count()

    async def script(request: GenerateRequest) -> GenerateResult:
        if next(numbers) == 1:
            await anyio.sleep_forever()
        return twins.sampled(GOOD)

    writing = await written(twins.ScriptedGenerator(script), lease(3), deadline_s=0.05)
    assert (writing.bundles, writing.malformed, writing.error) == ((FIVE, FIVE), 1, None)
    assert writing.sampled_tokens == 2 * (len(GOOD) + 1)


@pytest.mark.parametrize("left_s", [0.05, 0.0, -3.0])
async def test_a_deadline_without_any_answer_is_told(left_s: float) -> None:
    slow = speaker([GOOD] * 4, prefill_s=lambda prompt: 30.0)
    writing = await written(slow, lease(4), deadline_s=left_s)
    assert (writing.bundles, writing.malformed, writing.sampled_tokens) == ((), 0, 0)
    assert writing.error == "the deadline of 60 s passed"


async def test_a_failed_generation_costs_its_own_bundle_only() -> None:
    numbers = itertools.count()

    async def script(request: GenerateRequest) -> GenerateResult:
        if next(numbers) == 0:
            raise GenerationFailed("out of room")
        return twins.sampled(GOOD)

    writing = await written(twins.ScriptedGenerator(script), lease(4))
    assert (writing.bundles, writing.malformed, writing.error) == ((FIVE,) * 3, 1, None)


async def test_only_failed_generations_give_their_reason() -> None:
    mute = ScriptedGenerator(lambda prompt: [], run_id="r")
    writing = await written(mute, lease(2))
    assert writing.bundles == ()
    assert str(writing.error).startswith("GenerationFailed: the script's answer ended after 0 tokens")


async def test_a_broken_generator_ends_the_producer() -> None:
    generator = speaker([GOOD])
    await generator.aclose()
    with pytest.raises(ExceptionGroup) as caught:
        await written(generator, lease(2))
    assert caught.group_contains(GeneratorBroken)


@in_virtual_time
async def test_cancelling_the_producer_is_not_taken_for_a_deadline() -> None:
    slow = speaker([GOOD] * 4, prefill_s=lambda prompt: 30.0)
    ended = False
    with anyio.move_on_after(0.05):
        await write(lease(4), GROUP, means(slow), 10.0)
        ended = True
    assert not ended


async def test_writing_is_what_the_producer_does_meanwhile() -> None:
    now = 0.0

    async def script(request: GenerateRequest) -> GenerateResult:
        nonlocal now
        now += 1.5
        return twins.sampled(GOOD)

    shared = means(twins.ScriptedGenerator(script), clock=lambda: now)
    await write(lease(2), GROUP, shared, 10.0)
    assert {name: s for name, s in shared.activities.snapshot().items() if s} == {"write": 3.0}


async def test_a_producer_that_was_not_told_how_to_write_refuses() -> None:
    shared = msgspec.structs.replace(means(speaker([])), writing=None)
    with pytest.raises(ValueError, match="lease g asks for 4 bundles of a producer that writes none"):
        await write(lease(4), GROUP, shared, 10.0)
