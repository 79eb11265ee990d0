from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from judge.cache import CachedJudge, CacheStats
from judge.client import OpenAIJudge
from stream_rl.config import JudgeEndpoint
from stream_rl.ports import Judge
from stream_rl.rubrics.vocabulary import Vocabulary, builtin
from stream_rl.types import Scores, Tag, TagValue, Trajectory, Verdict
from tests.unit.judge.builders import CLEAN, trajectory, transcript

SMALL = Vocabulary(rubrics=builtin().rubrics[:2], digest="small")
OTHER = transcript("put some mug in desk", ("go to desk 1", "On the desk 1, you see mug 1."))


class ScriptedJudge:
    """Says `value` of every rubric and `share` of every criterion, and counts how often it was asked."""

    def __init__(self, value: TagValue = "positive", share: float | None = 0.5) -> None:
        self.value = value
        self.share = share
        self.asked: list[str] = []

    async def tag(self, trajectory: Trajectory) -> Verdict:
        self.asked.append(trajectory.id)
        return Verdict(
            trajectory_id=trajectory.id,
            tags=tuple(Tag(rubric=r, value=self.value, reason="turn 1") for r in SMALL.ids),
            endpoint="http://judge/v1",
            model="wise",
            prompt_tokens=100,
            completion_tokens=10,
            seconds=2.0,
        )

    async def score(self, trajectory: Trajectory, criteria: tuple[str, ...]) -> Scores:
        self.asked.append(trajectory.id)
        return Scores(
            trajectory_id=trajectory.id,
            scores=(1.0, *[self.share] * (len(criteria) - 1)),
            endpoint="http://judge/v1",
            model="wise",
            prompt_tokens=100,
            completion_tokens=10,
            seconds=2.0,
        )


def cached(
    inner: Judge,
    path: Path,
    *,
    vocabulary: Vocabulary = SMALL,
    models: Callable[[], Sequence[str]] = lambda: ["wise"],
    chunk: int = 64,
    max_rows: int = 100,
) -> CachedJudge:
    return CachedJudge(inner, path, vocabulary=vocabulary, models=models, chunk=chunk, max_rows=max_rows)


async def test_the_same_episode_is_judged_once(tmp_path: Path) -> None:
    inner = ScriptedJudge()
    async with cached(inner, tmp_path / "c.sqlite") as judge:
        first = await judge.tag(trajectory(CLEAN, "g/0"))
        second = await judge.tag(trajectory(CLEAN, "g/1"))
        await judge.tag(trajectory(OTHER, "g/2"))
        assert judge.stats == CacheStats(hits=1, misses=2)
    assert inner.asked == ["g/0", "g/2"]
    assert first == await inner.tag(trajectory(CLEAN, "g/0"))
    assert second == msgspec.structs.replace(
        first, trajectory_id="g/1", prompt_tokens=0, completion_tokens=0, seconds=0.0
    )


async def test_scores_are_kept_by_their_criteria(tmp_path: Path) -> None:
    inner = ScriptedJudge()
    async with cached(inner, tmp_path / "c.sqlite") as judge:
        await judge.score(trajectory(CLEAN, "g/0"), ("one", "two"))
        again = await judge.score(trajectory(CLEAN, "g/1"), ("one", "two"))
        await judge.score(trajectory(CLEAN, "g/2"), ("two", "one"))
        await judge.tag(trajectory(CLEAN, "g/3"))
    assert inner.asked == ["g/0", "g/2", "g/3"]
    assert again.scores == (1.0, 0.5)
    assert (again.trajectory_id, again.endpoint) == ("g/1", "http://judge/v1")
    assert (again.prompt_tokens, again.completion_tokens, again.seconds) == (0, 0, 0.0)


async def test_what_is_not_whole_is_asked_for_again(tmp_path: Path) -> None:
    inner = ScriptedJudge("abstained", share=None)
    async with cached(inner, tmp_path / "c.sqlite") as judge:
        for _ in range(2):
            assert (await judge.tag(trajectory(CLEAN))).abstained
            assert (await judge.score(trajectory(CLEAN), ("one", "two"))).scores == (1.0, None)
        assert len(inner.asked) == 4
        inner.value = "violation"
        assert (await judge.tag(trajectory(CLEAN))).tags[0].value == "violation"


async def test_whatever_decides_an_answer_is_in_its_key(tmp_path: Path) -> None:
    path, inner = tmp_path / "c.sqlite", ScriptedJudge()
    renamed = Vocabulary(rubrics=SMALL.rubrics, digest="changed")
    judges = [
        cached(inner, path),
        cached(inner, path, models=lambda: ["wise", "quick"]),
        cached(inner, path, vocabulary=renamed),
        cached(inner, path, chunk=1),
    ]
    for judge in judges:
        async with judge:
            await judge.tag(trajectory(CLEAN))
    assert len(inner.asked) == 4
    async with cached(inner, path, models=lambda: ["quick", "wise", "wise"]) as same:  # neither order nor number count
        await same.tag(trajectory(CLEAN))
    assert len(inner.asked) == 4


async def test_an_answer_is_not_kept_when_endpoints_changed_meanwhile(tmp_path: Path) -> None:
    """It may come from a model that is not of the set it was asked of."""
    models = ["wise"]

    class Changing(ScriptedJudge):
        async def tag(self, trajectory: Trajectory) -> Verdict:
            models[:] = ["quick"]
            return await super().tag(trajectory)

    inner = Changing()
    async with cached(inner, tmp_path / "c.sqlite", models=lambda: models) as judge:
        await judge.tag(trajectory(CLEAN))
        models[:] = ["wise"]
        await judge.tag(trajectory(CLEAN))
    assert len(inner.asked) == 2


async def test_a_bounded_file_forgets_the_oldest(tmp_path: Path) -> None:
    inner = ScriptedJudge()
    async with cached(inner, tmp_path / "c.sqlite", max_rows=1) as judge:
        for source in (CLEAN, OTHER, OTHER, CLEAN):
            await judge.tag(trajectory(source))
    assert len(inner.asked) == 3


async def test_two_processes_share_a_file(tmp_path: Path) -> None:
    first, second = ScriptedJudge(), ScriptedJudge()
    async with cached(first, tmp_path / "c.sqlite") as a, cached(second, tmp_path / "c.sqlite") as b:
        await a.tag(trajectory(CLEAN))
        await b.tag(trajectory(CLEAN))
    assert (len(first.asked), len(second.asked)) == (1, 0)


@pytest.mark.parametrize("content", [b"not a database, certainly not" * 20, b"SQLite format 3\x00" + b"\xff" * 4000])
async def test_a_damaged_file_is_said_once_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path, inner = tmp_path / "c.sqlite", ScriptedJudge()
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        async with cached(inner, path) as judge:
            for _ in range(3):
                assert (await judge.tag(trajectory(CLEAN))).tags[0].value == "positive"
    assert len(inner.asked) == 3
    assert len([r for r in caplog.records if "goes on without it" in r.getMessage()]) == 1
    assert path.read_bytes() == content


async def test_a_folder_that_cannot_be_made_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    async with cached(ScriptedJudge(), tmp_path / "file" / "c.sqlite") as judge:
        assert (await judge.tag(trajectory(CLEAN))).tags[0].value == "positive"
    assert "goes on without it" in caplog.text


async def test_a_locked_file_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judge.answer_store._LOCKED_S", 0.05)
    inner = ScriptedJudge()
    async with cached(inner, tmp_path / "c.sqlite") as judge:
        other = sqlite3.connect(tmp_path / "c.sqlite", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        for _ in range(3):
            assert (await judge.tag(trajectory(CLEAN))).tags[0].value == "positive"
        other.close()
    assert len(inner.asked) == 3
    assert caplog.text.count("goes on without it") == 1


async def test_a_damaged_answer_is_asked_for_again_and_replaced(tmp_path: Path) -> None:
    path, inner = tmp_path / "c.sqlite", ScriptedJudge()
    async with cached(inner, path) as judge:
        await judge.tag(trajectory(CLEAN))
    for bad in (b"\x00", msgspec.msgpack.encode(Verdict(trajectory_id="", tags=()))):
        file = sqlite3.connect(path)
        file.execute("UPDATE answers SET record = ?", (bad,))
        file.commit()
        file.close()
        inner.asked.clear()
        async with cached(inner, path) as judge:
            for _ in range(2):
                assert (await judge.tag(trajectory(CLEAN))).tags[0].value == "positive"
        assert len(inner.asked) == 1


async def test_answers_are_the_same_with_and_without_it(tmp_path: Path, embedded: str) -> None:
    """The rule judge over HTTP, each episode asked for twice."""
    endpoint = JudgeEndpoint(url=embedded)
    async with (
        OpenAIJudge([endpoint], builtin(), chunk=64) as plain,
        cached(plain, tmp_path / "c.sqlite", vocabulary=builtin(), models=lambda: ["rules"]) as judge,
    ):
        for source in (CLEAN, OTHER, CLEAN, OTHER):
            asked = trajectory(source)
            assert (await judge.tag(asked)).tags == (await plain.tag(asked)).tags
        assert judge.stats == CacheStats(hits=2, misses=2)
