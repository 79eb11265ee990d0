"""LoRA: trained factors beside the policy's linear layers, which themselves stand still. Layers are wrapped by peft.

Hu et al. 2021, https://arxiv.org/abs/2106.09685: W = W0 + alpha / rank * B A, with A random and B zero at first. All
linear layers of attention and MLP get factors; embeddings and the output head get none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from learner.policy import PolicyModel
from stream_rl import adapters, model_folder
from stream_rl.errors import ConfigError

_ADAPTER = "default"  # peft's name for the one adapter; no part of the names in files
_KEY = "learner.lora_rank"


class AdapterSize(msgspec.Struct, frozen=True, kw_only=True):
    """What adapters of a model come to."""

    num_layers: int  # linear layers that get factors
    trained: int  # parameters of all factors
    total: int  # parameters of the model, tied ones once


def add_adapters(policy: PolicyModel, *, rank: int, alpha: float, seed: int, base: Path) -> None:
    """Freeze the policy's parameters and give its linear layers factors, the same for one seed on every rank.

    Raises `ConfigError` without peft, and for a model in which no linear layer is called as its file calls it.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model  # heavy
    except ImportError as error:
        raise ConfigError(_KEY, f"adapters need the package peft (pip install 'stream-rl[lora]'): {error}") from error
    layers = dict(linear_layers(policy.causal_lm))
    missing = sorted({f"{name}.weight" for name in layers} - model_folder.shapes_of(base).keys())
    if missing or not layers:
        raise ConfigError(
            _KEY,
            f"the linear layers of {base} cannot get adapters, for its files have no {missing[:3]}; set it to 0."
            if missing
            else f"{base} has no linear layers that could get adapters; set it to 0.",
        )
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=sorted(layers),
        task_type="CAUSAL_LM",
        base_model_name_or_path=str(base),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, policy.causal_lm, adapter_name=_ADAPTER)
    policy.register_state_dict_post_hook(_without_frozen)  # type: ignore[no-untyped-call]
    policy.eval()  # what was wrapped starts in training mode
    policy.adapter = config


def linear_layers(causal_lm: Any) -> Iterator[tuple[str, nn.Linear]]:
    """Linear layers and their names; not the output head."""
    head = causal_lm.get_output_embeddings()
    for name, module in causal_lm.named_modules():
        if isinstance(module, nn.Linear) and module is not head:
            yield name, module


def name_in_files(name: str) -> str:
    """What a parameter of the policy is called in files: a factor as peft does, any other as Hugging Face does.

    >>> name_in_files("model.layers.0.mlp.up_proj.lora_A.default.weight")
    'base_model.model.model.layers.0.mlp.up_proj.lora_A.weight'
    >>> name_in_files("model.norm.weight")
    'model.norm.weight'
    """
    for factor in (".lora_A", ".lora_B"):
        if name.endswith(f"{factor}.{_ADAPTER}.weight"):
            return adapters.PREFIX + name.replace(f"{factor}.{_ADAPTER}.weight", f"{factor}.weight")
    return name


def _without_frozen(policy: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Keep the base out of checkpoints. DeepSpeed's own switch overlooks the second name of tied parameters."""
    for name, parameter in policy.named_parameters(remove_duplicate=False):
        if not parameter.requires_grad:
            state.pop(prefix + name, None)


def size_of(folder: Path, rank: int) -> AdapterSize:
    """How large adapters of the model in `folder` are, from its configuration alone. Raises `ConfigError`."""
    from transformers import AutoConfig, AutoModelForCausalLM  # heavy: seconds

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    except (OSError, ValueError) as error:
        raise ConfigError("policy.model", f"{folder} describes no causal language model: {error}") from error
    layers = [module for _, module in linear_layers(model)]
    return AdapterSize(
        num_layers=len(layers),
        trained=sum(rank * (layer.in_features + layer.out_features) for layer in layers),
        total=sum(math.prod(parameter.shape) for parameter in model.parameters()),
    )
