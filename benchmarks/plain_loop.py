"""The yardstick: the embedded recipe as a plain sequential loop on one core. Generate, judge, select, train, repeat.

    python -m benchmarks.plain_loop --algorithm grpo|rised [--seed 0] [--seconds 200] [--until 0.6] --out FILE

Worlds, start policy, judge rules and losses are those of `stream-rl up`; the recipe is the prototype's
(`benchmarks.recipes.PLAIN_LOOP` over the shipped configuration); model, key-value cache and loop are lean torch.
Writes JSON lines: {"type": "eval", "update", "train_s", "success", "stderr"} at the start and about every 25 training
seconds, {"type": "update", ...} for each update. Training seconds leave evaluation out.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.lean_model import LeanQwen3
from benchmarks.lean_rollout import Player, Rollout
from benchmarks.recipes import PLAIN_LOOP, RECIPES
from judge.rules.engine import decide_all
from learner.advantages import ESTIMATORS
from learner.distill import rised_loss
from learner.logprobs import token_scores
from learner.losses import clipped_policy_loss
from stream_rl import config as configuration
from stream_rl.app.embedded_policy import ensure_policy
from stream_rl.config import Config
from stream_rl.errors import UsageError
from stream_rl.observe.rundir import append_json
from stream_rl.orchestrator.selection import Candidate, select_rised
from stream_rl.orchestrator.tasks import TaskStream, evaluation_tasks
from stream_rl.renderer import Renderer, load_renderer
from stream_rl.rubrics.guidance import avoid_text, hint_text, with_guidance
from stream_rl.rubrics.profile import GroupProfile, hint_rubrics, profile
from stream_rl.rubrics.steering import Steering
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.types import Tag, Task, Verdict

EVAL_EVERY_S = 25.0
WORLD = "household"


class Group(NamedTuple):
    """Rollouts of one task, and what the judge said of them."""

    rollouts: list[Rollout]
    profile: GroupProfile | None  # None without a judge


class Row(NamedTuple):
    """One rollout to be trained."""

    rollout: Rollout
    advantage: float
    hint: str  # told to the teacher; "" for no teacher


class Clock:
    """Training seconds, and the current update's seconds by part."""

    def __init__(self) -> None:
        self.train_s = 0.0
        self.parts: dict[str, float] = {}
        self._began = time.perf_counter()

    def lap(self, part: str | None) -> None:
        """Everything since the last lap was `part` of training; None: it does not count."""
        now = time.perf_counter()
        if part is not None:
            self.parts[part] = self.parts.get(part, 0.0) + now - self._began
            self.train_s += now - self._began
        self._began = now


class PlainLoop:
    """One run. `evaluate` and `update` in turn; times go to `clock`."""

    def __init__(self, config: Config, policy: Path, clock: Clock) -> None:
        self.clock = clock
        self._config = config
        self._model = LeanQwen3.load(policy)
        self._renderer: Renderer = load_renderer(str(policy))
        generate = config.generate
        self._player, self._examinee = (
            Player(
                self._model,
                self._renderer,
                max_tokens=generate.max_tokens,
                max_turns=generate.max_turns,
                temperature=temperature,
            )
            for temperature in (generate.temperature, config.eval.temperature)
        )
        learner = config.learner
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(), lr=learner.lr, betas=learner.betas, weight_decay=learner.weight_decay
        )
        self._tickets = TaskStream({WORLD: 1.0}, config.seed)
        self._rng = torch.Generator().manual_seed(config.seed)
        self._shuffle = random.Random(config.seed)
        a = config.algorithm
        self._steering = Steering(len(builtin().ids), rate=a.steering_rate, floor=a.steering_floor, top=a.steering_top)
        self._updates = 0

    def evaluate(self) -> dict[str, Any]:
        """Held-out success without guidance; the standard error takes the rollouts of a task as one cluster."""
        self.clock.lap(None)
        settings = self._config.eval
        tasks = [task for task in evaluation_tasks((WORLD,), settings.tasks) for _ in range(settings.rollouts)]
        rng = torch.Generator().manual_seed(1_000_003 * (self._config.seed + 1) + self._updates)
        rollouts = self._examinee.play([(task, "") for task in tasks], rng)
        outcomes = torch.tensor([float(r.success) for r in rollouts]).view(-1, settings.rollouts)
        self.clock.lap(None)
        return {
            "type": "eval",
            "update": self._updates,
            "train_s": self.clock.train_s,
            "success": float(outcomes.mean()),
            "stderr": float(outcomes.mean(1).std() / len(outcomes) ** 0.5),
            "turns_mean": sum(len(r.turns) for r in rollouts) / len(rollouts),
        }

    def update(self) -> dict[str, Any]:
        """One round: generate, judge, select, teach, train."""
        config, clock = self._config, self.clock
        clock.parts = {}
        rollouts = self._generate()
        clock.lap("generate_s")
        size = config.groups.size
        groups = [self._judge(rollouts[i : i + size]) for i in range(0, len(rollouts), size)]
        chosen = self._select(groups)
        clock.lap("judge_s")
        rows = [row for group in chosen for row in self._rows(group)]
        teacher = self._teach(rows)
        clock.lap("teacher_s")
        self._train(rows, teacher)
        clock.lap("train_s")
        line = {
            "type": "update",
            "update": self._updates,
            "success": sum(r.success for r in rollouts) / len(rollouts),
            "turns": sum(len(r.turns) for r in rollouts),
            "tokens": {
                "generated": sum(sum(r.sampled) for r in rollouts),
                "trained": sum(sum(row.rollout.sampled) for row in rows),
            },
            "parts": {part: round(seconds, 4) for part, seconds in clock.parts.items()},
            "update_s": sum(clock.parts.values()),
            "train_s": clock.train_s,
        }
        self._updates += 1
        return line

    def _generate(self) -> list[Rollout]:
        config = self._config
        avoid = self._steering.avoid(builtin().ids) if config.algorithm.steering else ()
        guidance = avoid_text(builtin(), avoid)
        tasks = [self._tickets.take().task for _ in range(config.groups.candidates)]
        members: list[tuple[Task, str]] = [(task, guidance) for task in tasks for _ in range(config.groups.size)]
        return self._player.play(members, self._rng)

    def _judge(self, rollouts: list[Rollout]) -> Group:
        if not self._config.needs_judge:
            return Group(rollouts, None)
        ids = builtin().ids
        verdicts = []
        for rollout in rollouts:
            found = decide_all(rollout.transcript(), ids)
            tags = tuple(Tag(rubric=rubric, value=finding.value) for rubric, finding in found.items())
            verdicts.append(Verdict(trajectory_id="", tags=tags))
        found_profile = profile(verdicts, ids)
        self._steering.observe(found_profile)
        return Group(rollouts, found_profile)

    def _select(self, groups: list[Group]) -> list[Group]:
        config = self._config
        if config.algorithm.selection == "all":
            return groups
        candidates = [
            Candidate(group_id=f"{i:04d}", environment=WORLD, vector=group.profile.vector, reward_std=0.0)
            for i, group in enumerate(groups)
            if group.profile is not None
        ]
        names = select_rised(
            candidates, config.groups.per_update, redundancy=config.algorithm.redundancy, rotation=self._updates
        )
        return [groups[int(name)] for name in names]

    def _rows(self, group: Group) -> Iterator[Row]:
        a = self._config.algorithm
        outcomes = [float(r.success) for r in group.rollouts]
        advantages = ESTIMATORS[a.advantage](outcomes, [True] * len(outcomes))
        hint = ""
        if a.distillation == "rised" and group.profile is not None:
            ids = hint_rubrics(group.profile, builtin().ids, support=a.hint_support, top_k=a.hint_top_k)
            hint = hint_text(builtin(), ids)
        for rollout, advantage in zip(group.rollouts, advantages, strict=True):
            yield Row(rollout, float(advantage), hint)

    def _teach(self, rows: list[Row]) -> dict[int, Tensor]:
        """Teacher log-probabilities of the sampled tokens, by row number, where a row has a hint."""
        taught = [i for i, row in enumerate(rows) if row.hint]
        prompts = {i: self._hinted(rows[i]) for i in taught}
        found: dict[int, Tensor] = {}
        with torch.no_grad():
            for batch in buckets(taught, lambda i: len(prompts[i][0]), self._config.learner.token_budget):
                scores = self._score([prompts[i] for i in batch])
                found |= zip(batch, torch.split(scores, [sum(prompts[i][1]) for i in batch]), strict=True)
        return found

    def _hinted(self, row: Row) -> tuple[list[int], list[bool]]:
        rollout = row.rollout
        head = self._renderer.head(with_guidance(rollout.head, row.hint))
        rest = slice(rollout.head_tokens, None)
        return head + rollout.ids[rest], [False] * len(head) + rollout.sampled[rest]

    def _train(self, rows: list[Row], teacher: dict[int, Tensor]) -> None:
        settings = self._config.learner
        order = list(range(len(rows)))
        self._shuffle.shuffle(order)
        size = -(-len(order) // settings.mini_batches)
        for start in range(0, len(order), size):
            part = order[start : start + size]
            num_tokens = sum(sum(rows[i].rollout.sampled) for i in part)
            for batch in buckets(part, lambda i: len(rows[i].rollout.ids), settings.token_budget):
                loss = self._loss([rows[i] for i in batch], [teacher.get(i) for i in batch])
                (loss / num_tokens).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), settings.grad_clip)
            self._optimizer.step()
            self._optimizer.zero_grad()

    def _loss(self, rows: Sequence[Row], teacher: Sequence[Tensor | None]) -> Tensor:
        """Sum over the sampled tokens of `rows`. Sampling and training share one model, so behaviour is the anchor."""
        a = self._config.algorithm
        policy = self._score([(row.rollout.ids, row.rollout.sampled) for row in rows])
        behavior = [
            torch.tensor([x for x, own in zip(r.logprobs, r.sampled, strict=True) if own])
            for r in (row.rollout for row in rows)
        ]
        anchor = torch.cat(behavior)
        everywhere = torch.ones(len(anchor), dtype=torch.bool)
        loss = clipped_policy_loss(
            policy,
            anchor,
            torch.cat([torch.full((len(b),), row.advantage) for b, row in zip(behavior, rows, strict=True)]),
            torch.ones(len(anchor)),
            everywhere,
            clip_low=a.clip_low,
            clip_high=a.clip_high,
            dual_clip=a.dual_clip,
        ).loss
        if any(t is not None for t in teacher):
            # A row without a teacher gets its own log-probabilities, which contribute exactly nothing.
            taught = torch.cat([b if t is None else t for b, t in zip(behavior, teacher, strict=True)])
            loss = loss + a.distill_coef * rised_loss(policy, anchor, taught, everywhere, clip=a.distill_clip)
        return loss

    def _score(self, sequences: Sequence[tuple[list[int], list[bool]]]) -> Tensor:
        """Log-probabilities of the sampled tokens of all sequences, one after the other."""
        width = max(len(ids) for ids, _ in sequences)
        ids = torch.tensor([row + [0] * (width - len(row)) for row, _ in sequences])
        wanted = torch.tensor([mask + [False] * (width - len(mask)) for _, mask in sequences])[:, 1:]
        hidden = self._model(ids)[:, :-1][wanted]
        return token_scores(
            hidden,
            ids[:, 1:][wanted],
            self._model.logits,
            temperature=self._config.generate.temperature,
            entropy="none",
        ).logprobs


def buckets(rows: Sequence[int], length: Callable[[int], int], budget: int) -> Iterator[list[int]]:
    """Rows of similar length together, at most `budget` padded tokens each (one row may be longer)."""
    batch: list[int] = []
    for row in sorted(rows, key=length):
        if batch and (len(batch) + 1) * length(row) > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def load_recipe(algorithm: str, seed: int, overrides: Sequence[str] = ()) -> Config:
    """The prototype's recipe of an algorithm. Raises `UsageError` for what this loop does not do."""
    config = configuration.load([RECIPES[algorithm]], [f"seed={seed}", *PLAIN_LOOP[algorithm], *overrides])
    a = config.algorithm
    if a.selection not in ("all", "rised") or a.invalid_action_penalty or a.entropy_coef:
        raise UsageError(
            "the plain loop knows selection 'all' and 'rised', no invalid_action_penalty and no entropy_coef; "
            f"{RECIPES[algorithm].name} asks for more"
        )
    return config


def run(config: Config, *, seconds: float, until: float | None, emit: Callable[[dict[str, Any]], None]) -> None:
    """Train for `seconds` of training time, or until held-out success is at least `until`."""
    policy = ensure_policy(config.policy.model, config.policy.init, None, lambda *_: None)
    torch.manual_seed(config.seed)
    clock = Clock()
    loop = PlainLoop(config, policy, clock)
    due = 0.0
    while True:
        over = clock.train_s >= seconds
        if over or clock.train_s >= due:
            record = loop.evaluate()
            emit(record)
            due += EVAL_EVERY_S
            if over or (until is not None and record["success"] >= until):
                return
        emit(loop.update())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", choices=sorted(RECIPES), required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=200.0, help="training seconds")
    parser.add_argument("--until", type=float, help="stop at this held-out success")
    parser.add_argument("--core", type=int, default=0, help="which of the allowed cores to use")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines; an existing file is replaced")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    options = parser.parse_args()
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[options.core]})
    torch.set_num_threads(1)
    options.out.unlink(missing_ok=True)

    def emit(record: dict[str, Any]) -> None:
        append_json(options.out, record)
        what = "held-out" if record["type"] == "eval" else "train"
        print(f"{record['train_s']:7.1f} s  update {record['update']:4d}  {what} {record['success']:.3f}", flush=True)

    config = load_recipe(options.algorithm, options.seed, options.overrides)
    run(config, seconds=options.seconds, until=options.until, emit=emit)


if __name__ == "__main__":
    main()
