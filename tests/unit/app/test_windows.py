"""Prompt files of the configured environments: the shipped ones, a user's own, and a real world played through one."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs import prompts
from envs.pool import WorkerPool
from stream_rl.app.windows import windows
from stream_rl.config import Config, from_dict
from stream_rl.errors import ConfigError
from stream_rl.ports import GenerateRequest, GenerateResult
from stream_rl.producer.rollout import Means, rollout
from stream_rl.producer.service import producer_activities
from stream_rl.producer.template import Moment, Step
from stream_rl.types import Message, Task
from tests.unit.producer.twins import LetterRenderer, ScriptedGenerator, plan, sampled, vocabulary

OWN = "=== first ===\n{observation}\n=== later ===\n{task}{history}{observation}\n=== plain ===\n=== thinking ===\n"


def config(*entries: dict[str, object]) -> Config:
    return from_dict({"environments": list(entries)})


def head(content: Config, name: str) -> str:
    """The first prompt of an environment."""
    messages: tuple[Message, ...] = windows(content)[name].template.messages(Moment(task="X", observation="X"), 0)
    return "\n".join(message.content for message in messages)


def test_only_environments_with_a_history_have_a_window() -> None:
    assert windows(config({"name": "household"})) == {}
    found = windows(config({"name": "household"}, {"name": "webshop", "history": 3, "thinking": True}))
    assert [(name, w.turns, w.thinking, w.template.tagged) for name, w in found.items()] == [("webshop", 3, True, True)]


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("name", prompts.names())
def test_every_shipped_file_tells_what_it_is_given(name: str, thinking: bool) -> None:
    (window,) = windows(config({"name": name, "history": 2, "thinking": thinking})).values()
    assert window.template.tagged == thinking
    moment = Moment(
        task="the task",
        steps=(Step(observation="the task", action="first act"), Step(observation="seen one", action="second act")),
        observation="seen two",
        admissible=("may do",),
    )
    told = window.template.messages(moment, 2)[-1].content
    places = [told.index(part) for part in ("the task", "first act", "seen one", "second act", "seen two")]
    assert places == sorted(places)
    assert ("<action>" in told) == thinking
    assert "{" not in told
    first = window.template.messages(Moment(task="the task", observation="the task"), 0)[-1].content
    assert first.startswith("the task")


def test_a_world_without_a_file_of_its_own_gets_the_generic_one(tmp_path: Path) -> None:
    assert {"alfworld", "appworld", "dbbench", "generic", "household", "webshop"} <= set(prompts.names())
    generic = head(config({"name": "generic", "history": 1}), "generic")
    assert head(config({"name": "mine:World", "history": 1}), "mine:World") == generic
    assert head(config({"name": "household", "history": 1}), "household") != generic
    borrowed = config({"name": "mine:World", "history": 1, "template": "webshop"})
    assert head(borrowed, "mine:World") == head(config({"name": "webshop", "history": 1}), "webshop")
    file = tmp_path / "own.txt"
    file.write_text(OWN)
    assert head(config({"name": "household", "history": 1, "template": str(file)}), "household") == "X"


def test_a_file_that_cannot_be_used_is_refused_with_its_key(tmp_path: Path) -> None:
    entry = {"name": "b", "history": 1, "template": str(tmp_path / "none.txt")}
    with pytest.raises(
        ConfigError, match=r"cannot be read: No such file.*neither one of alfworld, .* nor a file"
    ) as no:
        windows(config({"name": "a"}, entry))
    assert no.value.path == "environments.1.template"
    (tmp_path / "none.txt").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        windows(config({"name": "a"}, entry))
    (tmp_path / "none.txt").write_text(OWN)
    with pytest.raises(ConfigError, match="must ask for the action between") as tagless:
        windows(config({"name": "a"}, {**entry, "thinking": True}))
    assert tagless.value.path == "environments.1.template"


async def test_a_real_world_is_played_through_its_own_window() -> None:
    """The household in a worker process: commands it offers are offered in the prompt, and the tagged one is obeyed."""
    entry = {"name": "household", "history": 2, "thinking": True, "options": {"level": "easy", "admissible": True}}
    used = config(entry)

    async def script(request: GenerateRequest) -> GenerateResult:
        told = "".join(chr(i) for i in request.prompt_ids.tolist() if i > 5)
        offered = told.split("Commands that do something now:\n")[1].split("\n\n")[0].split("\n")
        return sampled(f"<think>why not</think><action>{offered[0]}</action>")

    async with WorkerPool(used.environments) as pool:
        means = Means(
            generator=ScriptedGenerator(script),
            environments=pool,
            renderer=LetterRenderer(),
            vocabulary=vocabulary(),
            activities=producer_activities(),
            max_model_len=8000,
            windows=windows(used),
        )
        task = Task(environment="household", split="train", index=0)
        record = await rollout(plan(task=task, max_turns=4, max_tokens=200), means, 30.0)
    assert record.error is None
    assert len(record.samples) == len(record.turns) == 4
    assert all(turn.valid and "<" not in turn.action for turn in record.turns)
    assert record.first_prompt in record.samples[-1].head[-1].content
