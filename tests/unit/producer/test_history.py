"""Windows: a prompt and a sample of its own for every turn, exact ids and masks, and what gives way when it is long."""

from __future__ import annotations

import anyio
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.rows import build_rows
from stream_rl.config import Algorithm
from stream_rl.messages import SelectedGroup
from stream_rl.ports import GenerateRequest, GenerateResult
from stream_rl.producer.history import Window
from stream_rl.producer.rollout import rollout
from stream_rl.producer.template import Moment, Step, parse_template
from stream_rl.types import Message, Sample, StepResult, Trajectory
from tests.unit.producer.twins import (
    ASK,
    END,
    SYSTEM,
    THINK,
    USER,
    LetterRenderer,
    ScriptedGenerator,
    ToyWorld,
    lines,
    means,
    plan,
    sampled,
)

FILE = """
=== system ===
play

=== first ===
{observation}

can {admissible}

{answer}

=== later ===
{task}

{shown} of {steps}: {history}

{step}: {observation}

can {admissible}

=== plain ===
act

=== thinking ===
<action></action>
"""
BARE = """
=== first ===
{observation}

=== later ===
{task}

{history}

{observation}

=== plain ===
act

=== thinking ===
<action></action>
"""
BEGAN = "Observation 1: (what you were told with the task)\n"


def window(turns: int, file: str = FILE, *, thinking: bool = False) -> Window:
    template = parse_template(file, "file", thinking=thinking, path="environments.0.template")
    return Window(template=template, turns=turns, thinking=thinking)


def ids(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def prompts(generator: ScriptedGenerator) -> list[str]:
    """The user message of every request."""
    told = []
    for request in generator.requests:
        tokens = request.prompt_ids.tolist()
        start = tokens.index(USER) + 1
        told.append("".join(map(chr, tokens[start : tokens.index(END, start)])))
    return told


def consistent(trajectory: Trajectory) -> None:
    """One sample a turn, in order: its head, then what was sampled, and nothing else."""
    assert [turn.sample for turn in trajectory.turns] == list(range(len(trajectory.turns)))
    assert len(trajectory.samples) - len(trajectory.turns) in (0, 1)
    for turn, sample in zip(trajectory.turns, trajectory.samples, strict=False):
        length = len(sample.token_ids)
        assert (turn.start, turn.stop) == (sample.head_tokens, length)
        assert np.flatnonzero(sample.loss_mask).tolist() == list(range(turn.start, turn.stop))
        assert len(sample.behavior_logprobs) == length
        assert not sample.behavior_logprobs[: turn.start].any()
        assert sum(span.num_tokens for span in turn.spans) == turn.stop - turn.start
        head = LetterRenderer().head(sample.head, sample.thinking)
        assert sample.token_ids[: sample.head_tokens].tolist() == head


async def test_every_turn_is_a_sample_with_its_own_prompt() -> None:
    generator = ScriptedGenerator(lines(sampled("go"), sampled("xy", version=1, ended=False), sampled("z", version=2)))
    world = ToyWorld(
        [
            StepResult(text="ok", reward=0.25, admissible=("c",)),
            StepResult(text="no", valid=False),
            StepResult(text="bye", reward=1.0, done=True, success=True),
        ],
        admissible=("a", "b"),
    )
    record = await rollout(plan(), means(generator, world, window=window(1)), 10.0)
    consistent(record)
    system = Message(role="system", content="play")
    told = [
        "hi\n\ncan a\nb\n\nact",
        f"hi\n\n1 of 1: {BEGAN}Action 1: go\n\n2: ok\n\ncan c",
        "hi\n\n1 of 2: Observation 2: ok\nAction 2: xy\n\n3: no",
    ]
    answers = [[*ids("go"), END], ids("xy"), [*ids("z"), END]]
    for sample, text, answer in zip(record.samples, told, answers, strict=True):
        prompt = [SYSTEM, *ids("play"), END, USER, *ids(text), END, ASK]
        assert sample.token_ids.tolist() == [*prompt, *answer]
        assert sample.loss_mask.tolist() == [False] * len(prompt) + [True] * len(answer)
        assert sample.behavior_logprobs.tolist() == [0.0] * len(prompt) + [-1.0 - i for i in range(len(answer))]
        assert sample.head == (system, Message(role="user", content=text))
        assert (sample.head_tokens, sample.thinking) == (len(prompt), False)
    assert [(turn.sample, turn.action, turn.observation, turn.valid, turn.cut) for turn in record.turns] == [
        (0, "go", "ok", True, False),
        (1, "xy", "no", False, True),
        (2, "z", "bye", True, False),
    ]
    assert [turn.stop - turn.start for turn in record.turns] == [3, 2, 2]
    assert (record.first_prompt, record.reward, record.success, record.oldest_version) == ("hi", 1.25, True, 0)
    assert world.actions == ["go", "xy", "z"]


async def test_guidance_stands_in_the_system_turn_of_every_prompt() -> None:
    shared = means(ScriptedGenerator(), ToyWorld([StepResult(text="ok")]), window=window(2))
    record = await rollout(plan(guidance=("search.once",), max_turns=3), shared, 10.0)
    consistent(record)
    expected = Message(role="system", content="play\nguide : avoid searching twice .")
    assert [sample.head[0] for sample in record.samples] == [expected] * 3


async def test_with_thinking_the_world_and_the_history_get_the_tagged_action_only() -> None:
    answers = [sampled("hm<action> go </action>"), sampled("go"), sampled("<action>z</action>")]
    generator = ScriptedGenerator(lines(*answers))
    world = ToyWorld([StepResult(text="ok"), StepResult(text="what?", valid=False), StepResult(text="", done=True)])
    record = await rollout(plan(max_tokens=50), means(generator, world, window=window(9, thinking=True)), 10.0)
    consistent(record)
    assert world.actions == ["go", "go", "z"]
    assert [turn.action for turn in record.turns] == ["go", "go", "z"]
    assert all(request.prompt_ids[-1] == THINK for request in generator.requests)
    assert all(sample.thinking for sample in record.samples)
    assert "hm" not in prompts(generator)[1]
    sampled_ids = record.samples[0].token_ids[record.samples[0].loss_mask].tolist()
    assert sampled_ids == [*ids("hm<action> go </action>"), END]


async def long_episode(max_model_len: int) -> tuple[ScriptedGenerator, Trajectory]:
    """Task "T"; action "a" in each turn; observations o1, o2; answers of at most 4 tokens; all turns shown."""
    generator = ScriptedGenerator(lines(*[sampled("a")] * 3))
    world = ToyWorld([StepResult(text=f"o{i}") for i in (1, 2, 3)], first="T")
    shared = means(generator, world, window=window(9, BARE), max_model_len=max_model_len)
    return generator, await rollout(plan(max_tokens=4, max_turns=3), shared, 10.0)


async def test_the_oldest_turns_give_way_to_a_whole_answer() -> None:
    """A prompt is its text and 3 ids. Turn 2: T, 61 characters of step 1, o1, two blank lines: 72 - 1 = 71 ids with
    the step, 8 without. Turn 3: 101 ids with both steps, 39 with step 2 alone (29 characters), 8 without any.
    """
    second = "Observation 2: o1\nAction 2: a"
    for max_model_len, told in (
        (105, ["T", f"T\n\n{BEGAN}Action 1: a\n\no1", f"T\n\n{BEGAN}Action 1: a\n{second}\n\no2"]),
        (104, ["T", f"T\n\n{BEGAN}Action 1: a\n\no1", f"T\n\n{second}\n\no2"]),
        (43, ["T", "T\n\no1", f"T\n\n{second}\n\no2"]),
        (42, ["T", "T\n\no1", "T\n\no2"]),
        (9, ["T", "T\n\no1", "T\n\no2"]),
    ):
        generator, record = await long_episode(max_model_len)
        consistent(record)
        assert prompts(generator) == told
        assert (record.error, len(record.turns)) == (None, 3)
    assert [request.max_tokens for request in generator.requests] == [4, 1, 1]


async def test_a_task_and_observation_without_room_for_an_answer_end_the_episode() -> None:
    _, record = await long_episode(8)
    consistent(record)
    assert (record.error, record.success, len(record.turns), len(record.samples)) == (None, False, 1, 1)
    assert record.turns[0].observation == "o1"


async def test_a_first_prompt_without_room_for_an_answer_is_said() -> None:
    _, record = await long_episode(4)
    assert "toy/train/0 has 4 tokens" in str(record.error)
    assert (record.samples, record.turns) == ((), ())


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=6),
    turns=st.integers(1, 4),
    max_model_len=st.integers(10, 260),
    max_tokens=st.integers(1, 20),
)
def test_prompts_show_the_past_as_far_as_it_fits_and_never_the_future(
    sizes: list[tuple[int, int]], turns: int, max_model_len: int, max_tokens: int
) -> None:
    """Observation i is "<i" and some letters, action i ">i" and some, so that each can be found."""
    observations = [f"<{i}" + "o" * size for i, (size, _) in enumerate(sizes)]
    actions = [f">{i}" + "a" * size for i, (_, size) in enumerate(sizes)]
    given_out = iter(actions)

    async def script(request: GenerateRequest) -> GenerateResult:
        text = next(given_out)
        assert 1 <= request.max_tokens <= max_tokens
        assert len(request.prompt_ids) + request.max_tokens <= max_model_len
        whole = sampled(text)
        return whole if len(whole.token_ids) <= request.max_tokens else sampled(text[: request.max_tokens], ended=False)

    generator = ScriptedGenerator(script)
    world = ToyWorld([StepResult(text=text) for text in [*observations[1:], "<end"]], first=observations[0])
    shown = window(turns)
    shared = means(generator, world, window=shown, max_model_len=max_model_len)
    record = anyio.run(rollout, plan(max_turns=len(sizes), max_tokens=max_tokens), shared, 5.0)
    consistent(record)
    for i, told in enumerate(prompts(generator)):
        assert observations[0] in told
        assert observations[i] in told
        assert not any(f"<{later}" in told for later in [*range(i + 1, len(sizes)), "end"])
        assert not any(f">{later}" in told for later in range(i, len(sizes)))
        steps = tuple(Step(observation=observations[n], action=turn.action) for n, turn in enumerate(record.turns[:i]))
        moment = Moment(task=observations[0], steps=steps, observation=observations[i])
        fitting = [
            text
            for n in range(min(turns, i), -1, -1)
            for text in [shown.template.messages(moment, n)]
            if n == 0 or len(LetterRenderer().head(text)) + max_tokens <= max_model_len
        ]
        assert told == fitting[0][-1].content


async def test_the_learner_trains_every_turn_and_its_teacher_reads_the_hint_in_each() -> None:
    """Members with rewards 1 and 0: every sampled token of the first has advantage > 0, of the second < 0."""
    records = []
    for member, reward in enumerate((1.0, 0.0)):
        world = ToyWorld([StepResult(text="ok"), StepResult(text="bye", done=True, reward=reward)])
        answers = lines(sampled("<action>go</action>"), sampled("<action>z</action>"))
        shared = means(ScriptedGenerator(answers), world, window=window(2, thinking=True))
        records.append(await rollout(plan(member=member, max_tokens=50), shared, 10.0))
    group = SelectedGroup(update=0, group_id="g", trajectories=tuple(records), hint="guide : look .")
    rows = build_rows([group], version=0, algorithm=Algorithm(), renderer=LetterRenderer(), max_model_len=1000).rows
    samples: list[Sample] = [sample for record in records for sample in record.samples]
    assert len(rows) == len(samples) == 4
    hint = ids("\nguide : look .")
    for i, (row, sample) in enumerate(zip(rows, samples, strict=True)):
        assert np.array_equal(row.token_ids, sample.token_ids)
        assert np.all(row.advantages[sample.loss_mask] * (1 if i < 2 else -1) > 0)
        assert not row.advantages[~sample.loss_mask].any()
        after_play = 1 + len("play")
        expected = [*sample.token_ids[:after_play].tolist(), *hint, *sample.token_ids[after_play:].tolist()]
        assert row.teacher_ids is not None
        assert row.teacher_ids.tolist() == expected
