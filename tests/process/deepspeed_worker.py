"""One learner rank of `test_deepspeed`: python -m tests.process.deepspeed_worker FOLDER. Writes FOLDER/result.json."""

from __future__ import annotations

import copy
import faulthandler
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import numpy as np
import torch
from safetensors.torch import load_file

from learner.batch import plan
from learner.checkpoint_state import CheckpointUnusable, latest
from learner.distributed import TrainRound, World
from learner.engine import DeepSpeedEngine
from learner.objective import Objective
from learner.policy import PolicyModel
from learner.rows import Row, build_rows
from learner.service import LearnerOptions, run_rank
from learner.trainer import Trainer
from learner.update import run_update
from stream_rl.config import Algorithm, Learner
from stream_rl.fingerprint import of_file
from stream_rl.messages import Finish, FromLearner, Published, RoundStart, SaveCheckpoint, SelectedGroup, ToLearner
from stream_rl.ports import Delivery
from tests.process.rank import step
from tests.unit.learner.builders import PlainEngine, WordRenderer, group, save_tiny, tiny_policy

ALGORITHM = Algorithm(distillation="rised", distill_coef=0.1, entropy_coef=0.01, invalid_action_penalty=0.1)
LEARNER = Learner(lr=1e-3, weight_decay=0.01, token_budget=96, mini_batches=2, threads=1, checkpoint_every=2)
NUM_UPDATES = 3


def groups_of(update: int, hint: str | None = "search") -> tuple[SelectedGroup, ...]:
    return (
        group("a", [1, 0, 0, 1], update=update, hint=hint, version=update),
        group("b", [0, 0, 0], update=update, hint=hint, version=update),
        group("c", [1, 0, 1, 1], update=update, version=update),
    )


def rows_of(update: int) -> tuple[Row, ...]:
    return build_rows(
        groups_of(update),
        version=update,
        algorithm=ALGORITHM,
        renderer=WordRenderer(),
        max_model_len=256,
    ).rows


def reference(policy: PolicyModel) -> list[float]:
    """The same three updates as plainly as they can be written: row by row, no padding, whole logits."""
    model = policy.causal_lm
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNER.lr, betas=LEARNER.betas, weight_decay=0.01)
    norms = []
    for update in range(NUM_UPDATES):
        rows = rows_of(update)
        start = copy.deepcopy(model)
        minis = plan(
            rows,
            num_ranks=1,
            token_budget=10**6,
            mini_batches=LEARNER.mini_batches,
            seed=(0, update),
            has_signal=lambda _: True,
            teacher_is_student=True,
        )
        for mini in minis:
            members = [rows[i] for micro in mini.ranks[0] for i in micro]
            divisor = sum(int(row.loss_mask.sum()) for row in members)
            for row in members:
                (row_loss(model, start, row) / divisor).backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), LEARNER.grad_clip)))
            optimizer.step()
            optimizer.zero_grad()
    return norms


def row_loss(model: Any, start: Any, row: Row) -> Any:
    where = torch.from_numpy(np.flatnonzero(row.loss_mask))
    pi, entropy = score(model, row.token_ids, where)
    with torch.no_grad():
        prox, _ = score(start, row.token_ids, where)
    a = torch.from_numpy(row.advantages.copy())[where]
    mu = torch.from_numpy(row.behavior_logprobs.copy())[where]
    rho = (pi - prox).exp()
    gain = torch.minimum(rho * a, rho.clamp(0.8, 1.28) * a)
    gain = torch.where(a < 0, torch.maximum(gain, 3 * a), gain)
    loss = -((prox - mu).exp().clamp(max=5) * gain).sum() - 0.01 * entropy.sum()
    if row.teacher_ids is not None:
        with torch.no_grad():
            teacher, _ = score(start, row.teacher_ids, where + len(row.teacher_ids) - len(row.token_ids))
        loss = loss + 0.1 * ((prox - teacher).clamp(-5, 5) * rho.detach().clamp(max=2) * pi).sum()
    return loss


def score(model: Any, ids: Any, where: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.from_numpy(ids.astype(np.int64))[None]
    logits = model(input_ids=tokens, use_cache=False).logits[0, where - 1]
    log_p = torch.log_softmax(logits, -1)
    return log_p[torch.arange(len(where)), tokens[0, where]], -(log_p.exp() * log_p).sum(-1)


def equal_to_reference(world: World, stage: int, wanted: PolicyModel, wanted_norms: Sequence[float]) -> dict[str, Any]:
    settings = msgspec.structs.replace(LEARNER, zero_stage=stage)
    # Small logits chunks: the checkpointed head is exercised under every stage.
    engine = DeepSpeedEngine(tiny_policy(chunk_elements=64 * 5), settings, world, dtype="float32")
    objective = Objective(algorithm=ALGORITHM, episode_tokens=1, token_budget=96, mini_batches=LEARNER.mini_batches)
    norms: list[float | None] = []
    for update in range(NUM_UPDATES):
        norms += run_update(engine, rows_of(update), objective, update=update, seed=(0, update), enter=lambda _: None)[
            1
        ]
    names = [spec.name for spec in engine.specs]
    got = {name: t.clone() for name, t in zip(names, engine.full_parameters(), strict=True)}
    engine.close()
    expected = dict(wanted.causal_lm.named_parameters())
    start = dict(tiny_policy().causal_lm.named_parameters())
    return {
        "names": names == list(expected),
        "difference": max(float((got[n] - p.detach()).abs().max()) for n, p in expected.items()),
        "moved": max(float((start[n] - p).detach().abs().max()) for n, p in expected.items()),
        "norm_difference": max(abs(a - b) for a, b in zip(wanted_norms, norms, strict=True) if b is not None),
        "steps": sum(norm is not None for norm in norms),
    }


def trains_in_bfloat16(world: World, stage: int) -> dict[str, Any]:
    policy = tiny_policy()
    policy.causal_lm.to(torch.bfloat16)
    engine = DeepSpeedEngine(policy, msgspec.structs.replace(LEARNER, zero_stage=stage), world, dtype="bfloat16")
    start = [t.clone() for t in engine.full_parameters()]
    objective = Objective(algorithm=ALGORITHM, episode_tokens=1, token_budget=96, mini_batches=1)
    _, norms = run_update(engine, rows_of(0), objective, update=0, seed=(0, 0), enter=lambda _: None)
    moved = [float((a - b).abs().max()) for a, b in zip(start, engine.full_parameters(), strict=True)]
    dtypes = sorted({str(spec.dtype) for spec in engine.specs})
    engine.close()
    return {"norm": norms[0], "moved": max(moved), "dtypes": dtypes}


def options_for(folder: Path, name: str, stage: int, resume_from: Path | None = None) -> LearnerOptions:
    return LearnerOptions(
        run_id="run",
        run_dir=str(folder / name),
        model=str(folder / "model"),
        weights_dir=str(folder / name / "weights"),
        seed=0,
        temperature=1.0,
        max_model_len=256,
        episode_tokens=20,
        max_lag=0,
        algorithm=msgspec.structs.replace(ALGORITHM, distillation="none"),
        learner=msgspec.structs.replace(LEARNER, zero_stage=stage),
        resume_from=str(resume_from) if resume_from else None,
    )


def resumes_bit_identically(world: World, folder: Path, stage: int) -> dict[str, Any]:
    name = f"resume{stage}"
    whole = Trainer(options_for(folder, name, stage), world)
    rounds = [TrainRound(update=k, groups=groups_of(k, None)) for k in range(NUM_UPDATES + 1)]
    done = [step(whole, command) for command in rounds]
    saved = folder / name / "checkpoints" / "000002"
    resumed = Trainer(options_for(folder, name, stage, saved), world)
    version = resumed.version
    again = [step(resumed, command) for command in rounds[2:]]
    try:
        Trainer(options_for(folder, name, (stage + 1) % 4, saved), world)
        refusal = ""
    except CheckpointUnusable as error:
        refusal = str(error)
    out: dict[str, Any] = {"version": version, "refusal": refusal}
    if world.rank == 0:
        manifests = [done[-1].manifest, again[-1].manifest]
        assert all(manifests)
        out["fingerprints"] = [m.fingerprint for m in manifests if m]
        out["export"] = of_file(saved / "model.safetensors")
        out["published"] = done[1].manifest and done[1].manifest.fingerprint
        out["files"] = sorted(p.name for p in saved.iterdir())
        newest = latest(folder / name)
        out["latest"] = newest and newest.name
    return out


class ScriptedLink:
    """The orchestrator's side of a short run, in memory."""

    def __init__(self, script: Sequence[ToLearner], last: ToLearner) -> None:
        """`last` is said when the newest version is published."""
        self.script = script
        self.last = last
        self.sent: list[FromLearner] = []
        self.published = anyio.Event()
        self.acked = 0

    async def send(self, message: FromLearner) -> None:
        self.sent.append(message)
        if isinstance(message, Published) and message.manifest.version == 2:
            self.published.set()

    async def __aiter__(self) -> AsyncIterator[Delivery[ToLearner]]:
        for message in self.script:
            await anyio.lowlevel.checkpoint()
            yield Delivery(message=message, ack=self._ack)
        await self.published.wait()
        yield Delivery(message=self.last, ack=self._ack)

    def _ack(self) -> None:
        self.acked += 1


def serves(folder: Path, rank: int) -> dict[str, Any]:
    first, second, third = groups_of(1, None)
    stale = group("old", [1, 0], update=1, version=0)
    script: list[ToLearner] = [RoundStart(update=0, num_groups=3), *groups_of(0, None)]
    script += [RoundStart(update=1, num_groups=3), first, second, stale, third, SaveCheckpoint()]
    link = ScriptedLink(script, Finish())
    options = options_for(folder, "serve", 2)
    main: Callable[[], Any] = partial(run_rank, options, link if rank == 0 else None)
    anyio.run(main)
    if rank:
        return {}
    ready = link.sent[0]
    newest = max((folder / "serve" / "weights" / "run").glob("*.safetensors"))
    return {
        "sent": msgspec.to_builtins(link.sent),
        "acked": [link.acked, len(script) + 1],
        "ready": msgspec.to_builtins(ready),
        "published_names": sorted(load_file(newest)),
    }


def main(folder: Path) -> None:
    faulthandler.dump_traceback_later(250, exit=True)  # a hang shows where, and ends
    torch.set_num_threads(1)
    world = World.join()
    wanted = tiny_policy()
    norms = reference(wanted)
    result: dict[str, Any] = {
        "equal": {stage: equal_to_reference(world, stage, wanted, norms) for stage in range(4)},
        "bfloat16": {stage: trains_in_bfloat16(world, stage) for stage in (0, 1, 3)},
    }
    plain = PlainEngine(tiny_policy())
    one_step = Objective(algorithm=ALGORITHM, episode_tokens=1, token_budget=96, mini_batches=1)
    _, wanted_norms = run_update(plain, rows_of(0), one_step, update=0, seed=(0, 0), enter=lambda _: None)
    result["bfloat16"]["reference_norm"] = wanted_norms[0]
    if world.rank == 0:
        save_tiny(folder / "model")
    world.barrier()
    result["resume"] = {stage: resumes_bit_identically(world, folder, stage) for stage in (0, 1, 3)}
    result["serve"] = serves(folder, world.rank)  # leaves the process group, so it comes last
    if world.rank == 0:
        (folder / "result.json").write_bytes(msgspec.json.encode(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
