"""The lean model is Hugging Face's Qwen3, and its cache gives what a whole forward gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.lean_model import Cache, LeanQwen3
from benchmarks.lean_rollout import Player
from stream_rl.renderer import load_renderer
from stream_rl.types import Task


@pytest.fixture(scope="module")
def reference(policy_folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(policy_folder).eval()


def test_logits_equal_the_reference(policy_folder: Path, reference: Any) -> None:
    model = LeanQwen3.load(policy_folder)
    ids = torch.randint(0, 200, (3, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model.logits(model(ids)), reference(ids).logits, rtol=1e-4, atol=1e-4)


def test_chunks_of_unequal_length_give_the_logits_of_the_whole(policy_folder: Path) -> None:
    model = LeanQwen3.load(policy_folder)
    draw = torch.Generator().manual_seed(0)
    whole = [torch.randint(0, 200, (n,), generator=draw).tolist() for n in (90, 70, 81)]
    cache = Cache(model, 3)
    at = [0, 0, 0]
    rows = [0, 1, 2]
    # Row 1 gets nothing in the second chunk and leaves after the third.
    for counts in ([60, 3, 70], [5, 0, 1], [20, 67, 4], [5, 6]):
        width = max(counts)
        chunks = [whole[row][at[row] : at[row] + n] for row, n in zip(rows, counts, strict=True)]
        ids = torch.tensor([chunk + [7] * (width - len(chunk)) for chunk in chunks])
        logits = cache.feed(ids, torch.tensor(counts))
        for i, (row, n) in enumerate(zip(rows, counts, strict=True)):
            at[row] += n
            if n:
                with torch.no_grad():
                    expected = model.logits(model(torch.tensor([whole[row][: at[row]]])))[0, -1]
                torch.testing.assert_close(logits[i], expected, rtol=1e-4, atol=1e-4)
        if counts == [20, 67, 4]:
            cache.keep([0, 2])
            rows = [0, 2]
    assert at == [90, 70, 81]


def test_recorded_logprobs_are_those_of_the_recorded_ids(policy_folder: Path, reference: Any) -> None:
    renderer = load_renderer(str(policy_folder))
    player = Player(LeanQwen3.load(policy_folder), renderer, max_tokens=4, max_turns=5, temperature=0.7)
    tasks = [(Task(environment="household", split="train", index=i // 2), "guide : be brief ." * i) for i in range(6)]
    rollouts = player.play(tasks, torch.Generator().manual_seed(0))
    for rollout, (_, guidance) in zip(rollouts, tasks, strict=True):
        assert len(rollout.turns) == 5
        assert rollout.ids[: rollout.head_tokens] == renderer.head(rollout.head)
        assert (len(rollout.head) == 2) == bool(guidance)
        with torch.no_grad():
            scores = torch.log_softmax(reference(torch.tensor([rollout.ids])).logits[0] / 0.7, dim=-1)
        for position, sampled in enumerate(rollout.sampled):
            if sampled:
                expected = float(scores[position - 1, rollout.ids[position]])
                assert rollout.logprobs[position] == pytest.approx(expected, abs=1e-4)


def test_another_architecture_is_refused(policy_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((policy_folder / "config.json").read_text().replace('"qwen3"', '"llama"'))
    with pytest.raises(ValueError, match="llama"):
        LeanQwen3.load(tmp_path)
