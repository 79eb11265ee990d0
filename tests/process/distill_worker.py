"""One learner rank of `test_distill`: python -m tests.process.distill_worker FOLDER forms|average."""

from __future__ import annotations

import faulthandler
import sys
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file

from learner.batch import plan
from learner.distributed import TrainRound, World
from learner.engine import DeepSpeedEngine
from learner.hint_choice import choose_hints
from learner.objective import Objective
from learner.options import LearnerOptions
from learner.rows import Row, build_rows
from learner.shadow import Shadow
from learner.trainer import Trainer
from learner.update import run_update
from stream_rl.config import Algorithm, Learner
from tests import micro_models
from tests.process.rank import step
from tests.unit.learner.builders import PlainEngine, WordRenderer, group, tiny_policy
from tests.unit.learner.test_hint_choice import ALGORITHM as CHOOSING
from tests.unit.learner.test_hint_choice import open_group
from tests.unit.test_renderer import CHATML, tokenizer

LEARNER = Learner(lr=1e-3, weight_decay=0.01, token_budget=96, mini_batches=2, threads=1, checkpoint_every=2)
FORMS: dict[str, dict[str, Any]] = {
    "rised_jsd": {"distillation": "rised", "distill_coef": 0.5, "divergence": "jsd", "jsd_top_k": 7},
    "opsd_jsd": {"distillation": "opsd", "distill_coef": 1.0, "divergence": "jsd", "jsd_top_k": 7},
    "sdar": {"distillation": "sdar", "distill_coef": 0.1},
    "orsd": {"distillation": "orsd", "orsd_weight": 0.5},
    "rlsd": {"distillation": "rlsd"},
    "frozen": {"distillation": "rised", "distill_coef": 0.5, "teacher": "frozen", "kl_coef": 0.1},
}
NUM_UPDATES = 2


def rows_of(update: int) -> tuple[Row, ...]:
    """The longest two rows of group a are one trajectory; with two ranks they lie on different ones."""
    groups = [
        group("a", [1, 0, 0, 1], update=update, hint="search", version=update),
        group("b", [0, 1, 0], update=update, version=update),  # no teacher: a rank may have nothing to score
    ]
    made = build_rows(groups, version=update, algorithm=Algorithm(), renderer=WordRenderer(), max_model_len=256).rows
    longest = sorted((r for r in made if r.group_id == "a"), key=lambda r: -len(r.token_ids))[:2]
    return tuple(msgspec.structs.replace(r, trajectory_id="a/split") if r in longest else r for r in made)


def is_split() -> bool:
    """Whether the rows of that trajectory are on two ranks."""
    rows = rows_of(0)
    minis = plan(
        rows, num_ranks=2, token_budget=96, mini_batches=2, seed=(0, 0), has_signal=lambda _: True,
        teacher_is_student=True,
    )  # fmt: skip
    return any(
        all(any(rows[i].trajectory_id == "a/split" for micro in rank for i in micro) for rank in mini.ranks)
        for mini in minis
    )


def train(engine: PlainEngine | DeepSpeedEngine, algorithm: Algorithm) -> list[float | None]:
    start = Shadow(tiny_policy(), engine.device)
    objective = Objective(algorithm=algorithm, episode_tokens=1, token_budget=96, mini_batches=2)
    norms: list[float | None] = []
    for update in range(NUM_UPDATES):
        norms += run_update(
            engine,
            rows_of(update),
            objective,
            update=update,
            seed=(0, update),
            enter=lambda _: None,
            teacher=start if algorithm.teacher == "frozen" else None,
            reference=start if algorithm.kl_coef else None,
        )[1]
    return norms


def equals_plain_torch(world: World, options: dict[str, Any], stage: int) -> dict[str, Any]:
    algorithm = Algorithm(**options)
    plain = PlainEngine(tiny_policy(), lr=LEARNER.lr)
    wanted_norms = train(plain, algorithm)
    settings = msgspec.structs.replace(LEARNER, zero_stage=stage)
    engine = DeepSpeedEngine(tiny_policy(chunk_elements=64 * 5), settings, world, dtype="float32")
    norms = train(engine, algorithm)
    pairs = list(zip(plain.policy.causal_lm.parameters(), tiny_policy().causal_lm.parameters(), strict=True))
    out = {
        "difference": max(
            float((got - wanted.detach()).abs().max())
            for got, (wanted, _) in zip(engine.full_parameters(), pairs, strict=True)
        ),
        "moved": max(float((wanted - start).detach().abs().max()) for wanted, start in pairs),
        "norms": [norms, wanted_norms],
    }
    engine.close()
    return out


def without_spread(world: World, algorithm: Algorithm, reward: float) -> dict[str, Any]:
    groups = [group("g", [reward] * 3, hint="search")]
    rows = build_rows(groups, version=0, algorithm=algorithm, renderer=WordRenderer(), max_model_len=256).rows
    engine = DeepSpeedEngine(tiny_policy(), LEARNER, world, dtype="float32")
    before = [p.clone() for p in engine.full_parameters()]
    objective = Objective(algorithm=algorithm, episode_tokens=1, token_budget=96, mini_batches=1)
    norms = run_update(engine, rows, objective, update=0, seed=(0,), enter=lambda _: None)[1]
    moved = [float((a - b).abs().max()) for a, b in zip(before, engine.full_parameters(), strict=True)]
    engine.close()
    return {"norm": norms[0], "moved": max(moved)}


def choices(world: World) -> dict[str, Any]:
    """Which hint is chosen, by the ranks of ZeRO 3 and by plain torch."""
    objective = Objective(algorithm=CHOOSING, episode_tokens=1, token_budget=96, mini_batches=1)
    settings = msgspec.structs.replace(LEARNER, zero_stage=3)
    engine = DeepSpeedEngine(tiny_policy(chunk_elements=64 * 5), settings, world, dtype="float32")
    found, wanted = (
        choose_hints(e, None, [open_group()], objective, renderer=WordRenderer(), max_model_len=256)
        for e in (engine, PlainEngine(tiny_policy()))
    )
    num_tokens = engine.sum_over_ranks([found.num_tokens])
    engine.close()
    return {"choices": [found.choices, wanted.choices], "num_tokens": [num_tokens[0], wanted.num_tokens]}


def forms(world: World, folder: Path) -> dict[str, Any]:
    return {
        "is_split": is_split(),
        "choices": choices(world),
        "equal": {
            **{name: equals_plain_torch(world, options, 3) for name, options in FORMS.items()},
            "orsd_zero1": equals_plain_torch(world, FORMS["orsd"], 1),
        },
        "without_spread": {
            form: [without_spread(world, Algorithm(distillation=form), reward) for reward in (0.0, 1.0)]
            for form in ("none", "rised")
        },
    }


def options_for(folder: Path, name: str, stage: int, resume_from: Path | None = None) -> LearnerOptions:
    return LearnerOptions(
        run_id="run",
        run_dir=str(folder / name),
        model=str(folder / "model"),
        weights_dir=str(folder / name / "weights"),
        seed=0,
        temperature=1.0,
        max_model_len=512,
        episode_tokens=20,
        max_lag=0,
        keep_versions=9,
        algorithm=Algorithm(distillation="rised", distill_coef=0.5, teacher="ema", teacher_decay=0.9),
        learner=msgspec.structs.replace(LEARNER, zero_stage=stage, token_budget=512),
        resume_from=str(resume_from) if resume_from else None,
    )


def averages(world: World, folder: Path, stage: int) -> dict[str, Any]:
    name = f"average{stage}"
    rounds = [
        TrainRound(update=k, groups=(group("a", [1, 0, 0], update=k, hint="search", version=k),)) for k in range(4)
    ]
    whole = Trainer(options_for(folder, name, stage), world)
    whole.publish()
    done = [step(whole, command) for command in rounds]
    if world.rank == 0:
        versions = [load_file(folder / name / "weights" / "run" / f"v{v:05d}.safetensors") for v in range(3)]
        teacher = load_file(folder / name / "checkpoints" / "000002" / "teacher.safetensors")
        final = (folder / name / "checkpoints" / "000004" / "teacher.safetensors").read_bytes()
    world.barrier()
    resumed = Trainer(options_for(folder, name, stage, folder / name / "checkpoints" / "000002"), world)
    again = [step(resumed, command) for command in rounds[2:]]
    if world.rank:
        return {}
    # decay 0.9: after update 1 0.9 * v0 + 0.1 * v1, after update 2 0.9 of that + 0.1 * v2
    wanted = {key: 0.81 * versions[0][key] + 0.09 * versions[1][key] + 0.1 * versions[2][key] for key in versions[0]}
    manifests = [done[-1].manifest, again[-1].manifest]
    return {
        "names": sorted(teacher) == sorted(versions[0]),
        "difference": max(float((teacher[key] - value).abs().max()) for key, value in wanted.items()),
        "moved": max(float((teacher[key] - value).abs().max()) for key, value in versions[0].items()),
        "fingerprints": [m.fingerprint for m in manifests if m],
        "teacher_again": (folder / name / "checkpoints" / "000004" / "teacher.safetensors").read_bytes() == final,
        "distill": [update.metrics["distill"]["d_std"] for update in done],
    }


def average(world: World, folder: Path) -> dict[str, Any]:
    if world.rank == 0:
        micro_models.make(0, spread=1.0).save_pretrained(folder / "model")
        tokenizer(CHATML).save_pretrained(folder / "model")
    world.barrier()
    return {str(stage): averages(world, folder, stage) for stage in (1, 3)}


def main(folder: Path, part: str) -> None:
    faulthandler.dump_traceback_later(250, exit=True)  # a hang shows where, and ends
    torch.set_num_threads(1)
    world = World.join()
    result = {"forms": forms, "average": average}[part](world, folder)
    if world.rank == 0:
        (folder / "result.json").write_bytes(msgspec.json.encode(result))
    world.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
