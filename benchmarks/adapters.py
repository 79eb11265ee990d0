"""What a version of LoRA adapters costs against one of all parameters: bytes, and the time a generator takes to load.

    python -m benchmarks.adapters [--model FOLDER] [--dtype float32] [--rank 16] [--rounds 7]

Without `--model`, SmolLM2's shapes in bfloat16. Both loads are those of the transformers engine, with what comes before
the pause (`verify`) beside them; vLLM reads the whole base for either, so there the difference is the merge alone.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file

from benchmarks.publish import make_model
from learner.lora import linear_layers
from stream_rl import adapters, fingerprint, model_folder
from stream_rl.generate.base_weights import BaseWeights
from stream_rl.generate.batch_model import BatchModel
from stream_rl.generate.merging import merged, read_factors
from stream_rl.generate.options import GeneratorOptions
from stream_rl.types import AdapterRecord


def seconds(call: Callable[[], object], rounds: int) -> str:
    """Median and best of `rounds` calls; one more before them is not counted."""
    call()
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return f"{statistics.median(found) * 1e3:8.1f} ms, best {min(found) * 1e3:.1f}"


def measure(model_path: Path, work: Path, dtype: Literal["float32", "bfloat16"], rank: int, rounds: int) -> None:
    options = GeneratorOptions(model=str(model_path), dtype=dtype, max_model_len=256, concurrency=1, run_id="b")
    batch = BatchModel(options)
    kind = getattr(torch, dtype)
    full, small = work / "full.safetensors", work / "adapter.safetensors"
    save_file({name: p.detach().contiguous() for name, p in batch._model.named_parameters()}, full)
    factors = {}
    for name, layer in linear_layers(batch._model):
        pair = adapters.factors_of(f"{name}.weight")
        factors[pair.a] = torch.randn(rank, layer.in_features).to(kind)
        factors[pair.b] = torch.randn(layer.out_features, rank).to(kind) * 0.01
    save_file(factors, small)
    record = AdapterRecord(rank=rank, alpha=32.0, base=model_folder.fingerprint_of(model_path))
    whole = fingerprint.manifest_of(full, run_id="b", version=1)
    manifest = fingerprint.manifest_of(small, run_id="b", version=1, adapter=record)
    base = BaseWeights(str(model_path))
    print(f"{'bytes':>22} full {whole.num_bytes / 1e6:.2f} MB, adapter {manifest.num_bytes / 1e6:.2f} MB")
    print(f"{'verify, full':>22} {seconds(lambda: base.verify(whole), rounds)}")
    print(f"{'verify, adapter':>22} {seconds(lambda: base.verify(manifest), rounds)}")
    print(f"{'load, full':>22} {seconds(lambda: batch.load(whole.path), rounds)}")
    print(f"{'load, adapter':>22} {seconds(lambda: batch.load_adapter(manifest.path, record), rounds)}")
    read = read_factors(manifest.path)
    print(
        f"{'merge alone':>22} {seconds(lambda: [*merged(model_path, read, record, dtype=kind, whole=False)], rounds)}"
    )
    print(f"{'read base, merge':>22} {seconds(lambda: [*merged(model_path, read, record, dtype=kind)], rounds)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="folder of a policy")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", default="/dev/shm", help="a memory-backed folder")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="adapters-") as name:
        work = Path(name)
        if args.model is None:
            make_model(work / "model")
        measure(args.model or work / "model", work, args.dtype, args.rank, args.rounds)


if __name__ == "__main__":
    main()
