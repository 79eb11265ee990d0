"""How far `stream-rl simulate` can be believed: against runs of this machine, and against a published table.

    python -m benchmarks.simulate embedded [--updates 12] [--save FILE] [--json]
    python -m benchmarks.simulate depths [--configs embedded-grpo.toml,embedded-rised.toml] [--depths 0,1,2]
    python -m benchmarks.simulate papers [--save FILE] [--json]
    python -m benchmarks.simulate speed [--json]

`embedded`: two real runs of `up`, embedded GRPO and RISED at depth 1, give service times. From those alone other
configurations are predicted, which are then run, too. Runs share this machine's cores; anything else that computes
meanwhile spoils them.

`depths`: one run of each configuration at each depth. Each gives service times, from which all depths are predicted.

`papers`: fixed time and generation time of a rollout are fitted to the published step times of GRPO-64 and GRPO-128,
155.5 and 249.6 s. Two rows cannot tell generation from training, so the division is an assumption: `learner_share` of
what a rollout costs is training. It follows from counting (see `flops_share`); the table shows what other assumptions
would give. RISED, published at 252.9 s, is predicted; nothing is fitted to it.

`speed`: 1,000 producers, 1,000 groups a round, 1,000 updates.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.measured_runs import Row, compare, render
from benchmarks.recipes import CONFIGS
from benchmarks.training_run import train
from stream_rl.config import Config, load
from stream_rl.observe.rundir import RunDirectory
from stream_rl.simulate.measured import profile_of_run
from stream_rl.simulate.model import simulate
from stream_rl.simulate.profile import (
    EnvironmentTimes,
    GeneratorTimes,
    JudgeTimes,
    LearnerTimes,
    Profile,
    read_profile,
    write_profile,
)

PAPERS = CONFIGS / "papers"
GRPO_64, GRPO_128, RISED = (PAPERS / f"{name}-qwen2.5-3b.toml" for name in ("grpo-64", "grpo-128", "rised"))
PUBLISHED = {GRPO_64: 155.5, GRPO_128: 249.6, RISED: 252.9}  # seconds an update, over the first 300
PAPER_UPDATES = 300
ROLLOUTS = 512  # what GRPO-128 generates and trains more than GRPO-64

MEASURED = {"grpo": "embedded-grpo.toml", "rised": "embedded-rised.toml"}  # at depth 1, as shipped
PREDICTED: tuple[tuple[str, str, tuple[str, ...]], ...] = (  # what from, configuration, overrides
    ("grpo", "embedded-grpo.toml", ("async_depth=0",)),
    ("rised", "embedded-rised.toml", ("async_depth=0",)),
    ("grpo", "embedded-grpo.toml", ("async_depth=2", "groups.candidates=24", "groups.per_update=24")),
)


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """How long one simulation of 1,000 producers and 1,000 updates takes."""

    rollouts: int  # that were simulated
    wall_s: float
    cpu_s: float


# runs of this machine


def embedded(updates: int, save: Path | None) -> list[Row]:
    """All runs, one after the other."""
    common = (f"updates={updates}", "eval.every=0", "learner.checkpoint_every=0")
    rows: list[Row] = []
    profiles: dict[str, Profile] = {}
    with tempfile.TemporaryDirectory(prefix="simulate_") as name:
        folder = Path(name)
        for kind, config in MEASURED.items():
            run = train(folder, f"measured-{kind}", CONFIGS / config, common)
            profiles[kind] = profile_of_run(run)
            rows.append(compare(run, profiles[kind], f"{config} (the run that was measured)", "not a prediction"))
        for number, (kind, config, overrides) in enumerate(PREDICTED):
            run = train(folder, f"predicted-{number}", CONFIGS / config, (*common, *overrides))
            rows.append(compare(run, profiles[kind], " ".join((config, *overrides)), f"from {MEASURED[kind]}"))
    if save:
        write_profile(profiles["rised"], save)
    return rows


def depths(configs: list[str], at: list[int], updates: int, keep: Path | None) -> list[Row]:
    """Every depth from every depth; of equal depths it is no prediction. Runs that `keep` holds are not made again."""
    common = (f"updates={updates}", "eval.every=0", "learner.checkpoint_every=0")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="simulate_") as name:
        folder = keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for config in configs:
            runs: dict[int, RunDirectory] = {}
            for depth in at:
                run = RunDirectory(folder / "runs" / f"{Path(config).stem}-depth{depth}")
                if not run.metrics.is_file():
                    train(folder, run.root.name, CONFIGS / config, (*common, f"async_depth={depth}"))
                runs[depth] = run
            for source, measured in runs.items():
                profile = profile_of_run(measured)
                for depth, run in runs.items():
                    note = f"from depth {source}" + (", no prediction" if source == depth else "")
                    rows.append(compare(run, profile, f"{config} depth {depth}", note))
    return rows


# the published table


def flops_share(profile: Profile) -> float:
    """Share of what a rollout costs that is training, by counting.

    A turn is a training row of its own: about 500 tokens of prompt and 130 of answer on ALFWorld (this family's logs),
    taken for all worlds. A forward pass is 2 operations a parameter and token, forward and backward 6; 3.09e9
    parameters; 16 H100 of 989e12 dense bfloat16 operations a second each, of which training uses 30 %.
    """
    turns = sum(sum(world.turns) / len(world.turns) for world in profile.environments) / len(profile.environments)
    operations = 6 * 3.09e9 * turns * (500 + 130)
    seconds = operations / (profile.learner.ranks * 989e12 * 0.3)
    return seconds * ROLLOUTS / (PUBLISHED[GRPO_128] - PUBLISHED[GRPO_64])


def assumed() -> Profile:
    """What is known or assumed before anything is fitted."""
    return Profile(
        note="32 H100 (16 generate, 16 train), Qwen2.5-3B; fitted to the published step times of GRPO-64 and GRPO-128",
        generator=GeneratorTimes(turn_s=1.0, rollout_s=0.2, turn_tokens=130.0, pause_s=3.0),
        # Turns within the limits of 50, 15 and 15, around what policies of this size need.
        environments=(
            EnvironmentTimes(name="alfworld", turns=(10, 14, 18, 22, 28, 36, 50, 50)),
            EnvironmentTimes(name="webshop", turns=(4, 5, 5, 6, 7, 8, 10, 15)),
            EnvironmentTimes(name="dbbench", turns=(2, 3, 3, 4, 4, 5, 7, 12)),
        ),
        learner=LearnerTimes(ranks=16, forward_s=0.0, train_s=0.0),
        # 59 verdicts of 20 tokens each at 100 tokens a second; 8 GPUs answer 256 at once.
        judge=JudgeTimes(answer_s=12.0),
    )


def with_training(profile: Profile, share: float) -> Profile:
    """Training takes `share` of what 512 rollouts more cost; a pass without gradient takes a third of it."""
    train_s = share * (PUBLISHED[GRPO_128] - PUBLISHED[GRPO_64]) / ROLLOUTS
    learner = msgspec.structs.replace(profile.learner, train_s=train_s, forward_s=train_s / 3)
    return msgspec.structs.replace(profile, learner=learner)


def calibrate(profile: Profile, overrides: tuple[str, ...]) -> Profile:
    """Fit `turn_s` and `rollout_s` to the two GRPO rows, by Newton's method with measured slopes."""
    rows = [(config(path, overrides), PUBLISHED[path]) for path in (GRPO_64, GRPO_128)]

    def missing(turn_s: float, rollout_s: float) -> tuple[float, float]:
        tried = with_turns(profile, turn_s, rollout_s)
        first, second = (simulate(c, tried, updates=PAPER_UPDATES).update_s - wanted for c, wanted in rows)
        return first, second

    x, y = profile.generator.turn_s, profile.generator.rollout_s
    for _ in range(20):
        first, second = missing(x, y)
        if max(abs(first), abs(second)) < 0.05:
            break
        dx, dy = 0.02 * x, 0.02 * y
        a, c = ((moved - old) / dx for moved, old in zip(missing(x + dx, y), (first, second), strict=True))
        b, d = ((moved - old) / dy for moved, old in zip(missing(x, y + dy), (first, second), strict=True))
        det = a * d - b * c
        x = max(1e-3, x - (d * first - b * second) / det)
        y = max(1e-4, y - (a * second - c * first) / det)
    return with_turns(profile, x, y)


def with_turns(profile: Profile, turn_s: float, rollout_s: float) -> Profile:
    """Another generator."""
    generator = msgspec.structs.replace(profile.generator, turn_s=turn_s, rollout_s=rollout_s)
    return msgspec.structs.replace(profile, generator=generator)


def config(path: Path, overrides: tuple[str, ...]) -> Config:
    """A configuration as published, without validation, which the step times do not hold."""
    return load([path], ["eval.every=0", *overrides])


def papers(save: Path | None) -> list[Row]:
    """RISED from GRPO, under several assumptions."""
    start = assumed()
    counted = flops_share(start)
    rows: list[Row] = []
    for depth, share, answer_s in (
        (1, counted, 12.0), (1, counted, 0.0), (1, counted, 30.0), (1, 0.35, 12.0), (2, counted, 12.0),
        (0, counted, 12.0), (0, counted, 0.0), (0, 0.35, 0.0),
    ):  # fmt: skip
        overrides = (f"async_depth={depth}",)
        judge = JudgeTimes(answer_s=answer_s)
        fitted = calibrate(with_training(msgspec.structs.replace(start, judge=judge), share), overrides)
        if not rows and save:
            write_profile(fitted, save)
        found = {path: simulate(config(path, overrides), fitted, updates=PAPER_UPDATES) for path in PUBLISHED}
        rows.append(
            Row(
                name=f"RISED: depth {depth}, training {share:.0%} of a rollout, verdict {answer_s:g} s",
                measured_s=PUBLISHED[RISED],
                predicted_s=found[RISED].update_s,
                note=f"fitted: {found[GRPO_64].update_s:.1f} and {found[GRPO_128].update_s:.1f} s",
            )
        )
    return rows


def speed() -> Speed:
    """The largest thing that was promised."""
    overrides = (
        "generate.producers=1000", "groups.candidates=1000", "groups.per_update=500", "updates=1000", "eval.every=0",
    )  # fmt: skip
    large = load([CONFIGS / "embedded-rised.toml"], overrides)
    profile = msgspec.structs.replace(read_profile(CONFIGS / "embedded.profile.toml"), cores=0)
    began, began_cpu = time.perf_counter(), time.process_time()
    simulate(large, profile)
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    return Speed(rollouts=1000 * 1000 * 8, wall_s=wall_s, cpu_s=cpu_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["embedded", "depths", "papers", "speed"])
    parser.add_argument("--updates", type=int, default=12, help="of each embedded run; default 12")
    parser.add_argument("--configs", default="embedded-grpo.toml", help="of `depths`, separated by commas")
    parser.add_argument("--depths", default="0,1,2", help="of `depths`, separated by commas")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="of `depths`: keep the runs, read those there are")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the (first) profile that was found")
    parser.add_argument("--json", action="store_true", help="print facts as JSON")
    arguments = parser.parse_args()
    match arguments.what:
        case "embedded":
            rows = embedded(arguments.updates, arguments.save)
        case "depths":
            at = [int(depth) for depth in arguments.depths.split(",")]
            rows = depths(arguments.configs.split(","), at, arguments.updates, arguments.keep)
        case "papers":
            rows = papers(arguments.save)
        case _:
            took = speed()
            text = f"{took.rollouts:,} rollouts in {took.wall_s:.1f} s, {took.cpu_s:.1f} s of one core"
            print(json.dumps(msgspec.to_builtins(took)) if arguments.json else text)
            return
    facts = [{**msgspec.to_builtins(row), "error": row.error} for row in rows]
    print(json.dumps(facts) if arguments.json else render(rows))


if __name__ == "__main__":
    main()
