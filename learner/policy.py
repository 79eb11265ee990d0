"""The trainable module: a Hugging Face causal model whose forward scores given tokens instead of returning logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from learner.batch import ForwardPass
from learner.logprobs import CHUNK_ELEMENTS, EntropyMode, TokenScores, chunks_for, token_scores
from stream_rl.errors import ConfigError


class PolicyModel(nn.Module):
    """Wraps `causal_lm` so that only hidden states of wanted positions meet the output head.

    Rows are right-padded and no attention mask is given: attention is causal and the padding comes last, so no token
    that is scored ever sees it, and the fast causal kernel can be used.
    """

    def __init__(self, causal_lm: nn.Module, *, temperature: float, chunk_elements: int = CHUNK_ELEMENTS) -> None:
        super().__init__()
        self.causal_lm: Any = causal_lm
        self.temperature = temperature
        self.chunk_elements = chunk_elements
        self.adapter: Any = None  # peft's configuration, where `learner.lora` added adapters

    def trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters that are not frozen, in the model's order; tied ones once."""
        for name, parameter in self.causal_lm.named_parameters():
            if parameter.requires_grad:
                yield name, parameter

    def save_config(self, folder: Path) -> None:
        """Describe what `trained` names: the model's `config.json`, or peft's `adapter_config.json`."""
        (self.causal_lm.config if self.adapter is None else self.adapter).save_pretrained(folder)

    def forward(
        self,
        token_ids_BT: Tensor,
        positions_N: Tensor,
        targets_N: Tensor,
        *,
        peak_targets: int,
        entropy: EntropyMode,
        support: int | Tensor = 0,
    ) -> TokenScores:
        """Score `targets` [N]; `positions` [N] index the flattened [B * T] hidden states that predict them.

        `peak_targets` is the largest N of any rank in this pass; from it all ranks find the same number of chunks.
        `support` as in `token_scores`.
        """
        decoder = self.causal_lm.get_decoder()
        hidden = decoder(input_ids=token_ids_BT, use_cache=False).last_hidden_state
        selected = hidden.flatten(0, 1).index_select(0, positions_N)
        return token_scores(
            selected,
            targets_N,
            self.causal_lm.get_output_embeddings(),
            temperature=self.temperature,
            entropy=entropy,
            support=support,
            num_chunks=chunks_for(peak_targets, self.causal_lm.config.vocab_size, self.chunk_elements),
        )


def run_forward(
    policy: Callable[..., TokenScores],
    forward: ForwardPass,
    device: torch.device,
    *,
    entropy: EntropyMode,
    support: int | Tensor = 0,
) -> TokenScores:
    """One pass of a `PolicyModel`, or of what wraps one, on `device`."""
    tensors = (torch.from_numpy(a).to(device) for a in (forward.token_ids, forward.positions, forward.targets))
    return policy(*tensors, peak_targets=forward.peak_targets, entropy=entropy, support=support)


def load_policy(model_dir: Path, *, dtype: str, temperature: float) -> PolicyModel:
    """The model of a Hugging Face folder, in evaluation mode for good: dropout would make two passes over one sequence
    disagree, and the ratio of policy to prox would not start at 1. Raises `ConfigError` if it cannot be loaded.
    """
    from transformers import AutoModelForCausalLM  # heavy: seconds
    from transformers.utils import logging

    logging.disable_progress_bar()  # logs are files
    try:
        model = AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=getattr(torch, dtype), attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise ConfigError("policy.model", f"{model_dir} holds no causal language model: {error}") from error
    return PolicyModel(model, temperature=temperature).eval()


def model_folder(model: str) -> Path:
    """The folder of `model`: a path, or a hub name that is in the local cache. Raises `ConfigError`."""
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, local_files_only=True))
    except (OSError, ValueError) as error:
        raise ConfigError(
            "policy.model", f"{model!r} is neither a folder nor a model in the local cache: {error}"
        ) from error
