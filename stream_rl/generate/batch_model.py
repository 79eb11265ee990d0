"""A Hugging Face causal model that advances many sequences at once, with keys and values kept between turns.

Blocking torch code, one thread at a time. Axes: B rows, T cache columns, W new columns.

A batch is left-padded twice: the cached part of each row ends at one common column, and so do its new tokens. The
attention mask names the columns that are real, so padding may lie anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, DynamicCache

from stream_rl import adapters
from stream_rl.errors import ConfigError, WeightsRejected
from stream_rl.generate.merging import merged, read_factors
from stream_rl.generate.options import GeneratorOptions
from stream_rl.generate.prefix_store import PrefixStore
from stream_rl.generate.sampler import sample
from stream_rl.types import AdapterRecord

_JOIN_TOKENS = 16  # rows that lack more than this are brought up to date in batches of their own kind
_PREFILL_TOKENS = 8192  # of one such batch, padding included: bounds memory


class Row:
    """One sequence that is being sampled."""

    def __init__(
        self, prompt: list[int], limit: int, temperature: float, stop: frozenset[int], generator: torch.Generator | None
    ) -> None:
        self.ids = prompt
        self.num_prompt = len(prompt)
        self.limit = limit
        self.temperature = temperature
        self.stop = stop
        self.generator = generator
        self.logprobs: list[float] = []
        self.stopped = False

    @property
    def sampled(self) -> list[int]:
        """The tokens sampled so far."""
        return self.ids[self.num_prompt :]

    @property
    def done(self) -> bool:
        """A stop token was sampled, or the limit is reached."""
        return self.stopped or len(self.logprobs) == self.limit

    def push(self, token: int, logprob: float) -> None:
        """Take one sampled token."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.stopped = token in self.stop


class BatchModel:
    """The model, its weights and its prefix store."""

    def __init__(self, options: GeneratorOptions) -> None:
        torch.set_num_threads(options.threads)
        self._folder = Path(options.model)
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            options.model, dtype=getattr(torch, options.dtype), attn_implementation="sdpa", local_files_only=True
        ).eval()
        kinds = set(getattr(self._model.config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise ConfigError(
                "generate.engine",
                f"the transformers generator serves models of full attention only; {options.model} has {sorted(kinds)}",
            )
        self._generator = torch.Generator().manual_seed(options.seed)
        self._store = PrefixStore(options.concurrency * options.max_model_len)

    @staticmethod
    def seeded(seed: int | None) -> torch.Generator | None:
        """A stream of its own for a request with a seed."""
        return None if seed is None else torch.Generator().manual_seed(seed)

    @torch.inference_mode()
    def advance(self, rows: Sequence[Row], num_steps: int, interrupted: threading.Event) -> None:
        """Sample up to `num_steps` tokens for every row; ends early when all are done or `interrupted` is set."""
        cached = self._cached(rows)
        cache, mask = _join(cached)
        new = [row.ids[_length(entry) :] for row, entry in zip(rows, cached, strict=True)]
        live = torch.ones(len(rows), dtype=torch.bool)
        fed = torch.tensor([len(row.ids) for row in rows])
        temperatures = torch.tensor([row.temperature for row in rows])
        generators = [row.generator or self._generator for row in rows]
        for step in range(num_steps):
            logits, mask = self._forward(cache, mask, new, fed)
            token_ids, logprobs = sample(logits, temperatures, generators)
            for i, (row, token, logprob) in enumerate(zip(rows, token_ids.tolist(), logprobs.tolist(), strict=True)):
                if live[i]:
                    row.push(token, logprob)
                    live[i] = not row.done
            if step + 1 == num_steps or not live.any() or interrupted.is_set():
                break
            new = [[row.ids[-1]] if alive else [] for row, alive in zip(rows, live.tolist(), strict=True)]
            fed += live
        self._keep(rows, cache, mask)

    @torch.inference_mode()
    def probe(self, prompt: list[int]) -> list[float]:
        """Log-probabilities of `prompt[1:]` and of the greedy next token, at temperature 1. Touches no cache."""
        logits = self._model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0].float()
        table = torch.log_softmax(logits, dim=-1)
        greedy = int(logits[-1].argmax())
        said = table.gather(1, torch.tensor([*prompt[1:], greedy])[:, None])[:, 0]
        return [float(value) for value in said.tolist()]

    def load(self, path: str) -> None:
        """Copy every tensor of a file into the model. `WeightsRejected` before anything changed if they do not fit."""
        own = self._model.state_dict()
        tied = set(self._model.all_tied_weights_keys) if self._model.config.tie_word_embeddings else set()
        with safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            missing = sorted(set(own) - set(shapes) - tied)
            unknown = sorted(set(shapes) - set(own))
            if missing or unknown:
                raise WeightsRejected(f"{path} does not fit the model: missing {missing[:5]}, unknown {unknown[:5]}")
            for name, shape in shapes.items():
                if shape != tuple(own[name].shape):
                    raise WeightsRejected(f"{path}: `{name}` is {shape}, the model has {tuple(own[name].shape)}")
            self._store.clear()
            for name in shapes:
                own[name].copy_(file.get_tensor(name))

    def load_adapter(self, path: str, adapter: AdapterRecord) -> None:
        """Give every adapted matrix its base, from the folder the model came from, and its factors, from `path`.

        `WeightsRejected` before anything changed if they do not fit.
        """
        own = self._model.state_dict()
        factors = read_factors(path)
        shapes = {name: tuple(tensor.shape) for name, tensor in factors.items()}
        adapters.fit(shapes, {name: tuple(tensor.shape) for name, tensor in own.items()}, adapter.rank)
        self._store.clear()
        for name, tensor in merged(self._folder, factors, adapter, dtype=self._model.dtype, whole=False):
            own[name].copy_(tensor)

    def _cached(self, rows: Sequence[Row]) -> list[torch.Tensor | None]:
        """What is known of each row, after at most `_JOIN_TOKENS` of it are left to compute."""
        cached = [self._store.longest(row.ids) for row in rows]
        behind = [i for i, row in enumerate(rows) if len(row.ids) - _length(cached[i]) > _JOIN_TOKENS]
        behind.sort(key=lambda i: len(rows[i].ids) - _length(cached[i]))
        while behind:
            widest = len(rows[behind[-1]].ids)
            batch = behind[-max(1, _PREFILL_TOKENS // widest) :]
            del behind[-len(batch) :]
            cache, mask = _join([cached[i] for i in batch])
            new = [rows[i].ids[_length(cached[i]) : -1] for i in batch]
            _, mask = self._forward(cache, mask, new, torch.tensor([len(rows[i].ids) - 1 for i in batch]))
            for i, entry in zip(batch, _split(cache, mask), strict=True):
                cached[i] = entry
        return cached

    def _keep(self, rows: Sequence[Row], cache: DynamicCache, mask: torch.Tensor) -> None:
        for row, entry in zip(rows, _split(cache, mask), strict=True):
            self._store.put(row.ids[: _length(entry)], entry)

    def _forward(
        self, cache: DynamicCache, mask: torch.Tensor, new: list[list[int]], fed: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new ids (one list a row, maybe empty); `fed` [B] counts each row's ids with them.

        Returns the last column's logits [B, V] and the longer mask [B, T + W].
        """
        width = max(1, *(len(ids) for ids in new))
        input_ids = torch.tensor([[0] * (width - len(ids)) + ids for ids in new])
        real = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in new])
        positions = (fed[:, None] - width + torch.arange(width)).clamp(min=0)
        mask = torch.cat([mask, real], dim=1)
        output = self._model(
            input_ids=input_ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1], mask


def _length(entry: torch.Tensor | None) -> int:
    return 0 if entry is None else entry.shape[2]


def _join(entries: Sequence[torch.Tensor | None]) -> tuple[DynamicCache, torch.Tensor]:
    """One cache and its mask [B, T] of many entries, right-aligned."""
    columns = max(_length(entry) for entry in entries)
    mask = torch.zeros(len(entries), columns, dtype=torch.long)
    some = next((entry for entry in entries if entry is not None), None)
    if some is None:
        return DynamicCache(), mask
    parts, heads, _, size = some.shape
    joined = torch.zeros(parts, len(entries), heads, columns, size, dtype=some.dtype)
    for i, entry in enumerate(entries):
        if entry is not None:
            joined[:, i, :, columns - _length(entry) :] = entry
            mask[i, columns - _length(entry) :] = 1
    return DynamicCache([(joined[part], joined[part + 1]) for part in range(0, parts, 2)]), mask


def _split(cache: DynamicCache, mask: torch.Tensor) -> list[torch.Tensor]:
    """The entries of a cache: of each row, the columns its mask names."""
    parts = torch.stack([part for layer in cache.layers for part in (layer.keys, layer.values)])
    return [parts[:, i, :, columns.nonzero()[:, 0]] for i, columns in enumerate(mask.bool())]
