"""What `export` writes is a model folder to Hugging Face: it loads, and computes what the checkpoint computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from learner.checkpoint_state import STATE_FILE
from stream_rl.cli import main
from stream_rl.config import from_dict, to_toml
from stream_rl.observe.rundir import RunDirectory

pytestmark = pytest.mark.filterwarnings("default")


def test_the_exported_model_computes_what_the_checkpoint_computes(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.config.write_text(to_toml(from_dict({})), encoding="utf-8")
    torch.manual_seed(0)
    shape = Qwen3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
    )
    model = Qwen3ForCausalLM(shape).eval()
    checkpoint = run.checkpoints / "000003"
    model.save_pretrained(checkpoint)
    (checkpoint / STATE_FILE).write_text("{}", encoding="utf-8")
    assert main(["export", str(run.root), "--to", str(tmp_path / "out"), "--only", "model"]) == 0
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    ids = torch.arange(8)[None]
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids).logits)
