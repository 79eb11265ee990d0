"""What `export` writes is a model folder to Hugging Face: it loads, and computes what the checkpoint computes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from learner.checkpoint_state import STATE_FILE, CheckpointState
from stream_rl import model_folder
from stream_rl.cli import main
from stream_rl.config import from_dict, to_toml
from stream_rl.observe.rundir import RunDirectory
from stream_rl.types import AdapterRecord
from tests import micro_models

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


def test_exported_adapters_are_added_to_their_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.config.write_text(to_toml(from_dict({})), encoding="utf-8")
    model, base, checkpoint = micro_models.make(0), tmp_path / "base", run.checkpoints / "000003"
    micro_models.save(model, base)
    checkpoint.mkdir()
    expected = micro_models.save_adapter(model, checkpoint / "adapter_model.safetensors", rank=2, scale=4.0, seed=0)
    (checkpoint / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    state = CheckpointState(
        version=3,
        run_id="r",
        num_ranks=1,
        zero_stage=1,
        model_digest="",
        config_digest="",
        torch_rng="",
        adapter=AdapterRecord(rank=2, alpha=8.0, base=model_folder.fingerprint_of(base)),
    )
    (checkpoint / STATE_FILE).write_bytes(msgspec.json.encode(state))
    assert main(["export", str(run.root), "--to", str(tmp_path / "out"), "--only", "model"]) == 0
    found = sorted(str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert found == [
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
        "config.json",
        "model.safetensors",
    ]
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    ids = torch.arange(8)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, expected(ids).logits, atol=1e-4, rtol=1e-5)
    micro_models.save(micro_models.make(1), base)
    assert main(["export", str(run.root), "--to", str(tmp_path / "again"), "--only", "model"]) == 2
    assert "is not the model they were trained on, or was changed since" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()
