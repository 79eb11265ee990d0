from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from stream_rl import fingerprint
from stream_rl.errors import GenerationFailed
from stream_rl.generate.scripted import ScriptedGenerator
from stream_rl.ports import GenerateRequest


def ask(prompt: list[int], max_tokens: int = 9) -> GenerateRequest:
    ids = np.asarray(prompt, dtype=np.int32)
    return GenerateRequest(prompt_ids=ids, max_tokens=max_tokens, temperature=1.0, stop_token_ids=(0,))


async def test_says_the_script_up_to_the_stop_token() -> None:
    generator = ScriptedGenerator(lambda prompt: [*reversed(prompt), 0, 5], run_id="r")
    result = await generator.generate(ask([1, 2, 3]))
    assert result.token_ids.tolist() == [3, 2, 1, 0]
    assert not result.cut


async def test_an_answer_without_end_is_the_scripts_fault() -> None:
    generator = ScriptedGenerator(lambda prompt: [1, 1], run_id="r")
    with pytest.raises(GenerationFailed, match="ended after 2 tokens without a stop token; the limit was 9"):
        await generator.generate(ask([1]))


async def test_times_are_those_it_was_given(tmp_path: Path) -> None:
    asked: list[tuple[int, ...]] = []

    def token_s(prompt: tuple[int, ...]) -> float:
        asked.append(prompt)
        return 0.0

    generator = ScriptedGenerator(lambda prompt: [1, 1, 0], run_id="r", token_s=token_s, load_s=0.01)
    await generator.generate(ask([4, 5]))
    assert asked == [(4, 5)] * 3
    save_file({"w": np.ones(1, np.float32)}, tmp_path / "w")
    report = await generator.update(fingerprint.manifest_of(tmp_path / "w", run_id="r", version=1))
    assert (report.version, report.pause_s) == (1, 0.01)
