"""A `verifiers` environment, served from the venv that has the package, end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_rl.observe.rundir import read_json_lines
from tests.contract.envs.serving import interpreter, served
from tests.contract.envs.test_verifiers import SPELL, has
from tests.process.runner import Up, gone, overrides

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

GYM = ('env="verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv"', 'args={gym = "basic_arithmetic"}')


def test_two_updates(tmp_path: Path) -> None:
    """On the package's own ReasoningGymEnv where that is there; otherwise on a taskset of the current generation."""
    python = interpreter("verifiers")
    options = GYM if has(python, "import reasoning_gym, verifiers; verifiers.load_environment") else ('env="spell"',)
    (tmp_path / "spell.py").write_text(SPELL, encoding="utf-8")
    pairs = [part for option in options for part in ("--option", option)]
    with served(python, "verifiers", *pairs, "--deadline", "60", "--start", "200", path=tmp_path) as url:
        world = f'environments=[{{name="remote",step_deadline_s=60.0,options={{url="{url}",timeout_s=50.0}}}}]'
        up = Up(
            tmp_path,
            str(Path(__file__).resolve().parents[2] / "configs" / "embedded-grpo.toml"),
            "--name",
            "t",
            *overrides(
                "generate.engine=transformers", "updates=2", "groups.per_update=4", "generate.max_model_len=1024", world
            ),
        )
        up.succeed(within_s=250)
    assert gone(tmp_path) == []
    lines = list(read_json_lines(tmp_path / "runs" / "t" / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [0, 1]
    assert set(lines[-1]["success"]["by_env"]) == {"remote"}
    assert lines[-1]["tokens"]["trained"] > 0
