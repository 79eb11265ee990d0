"""Slow parts of an update show in their own state: the real trainer on a clock that stands still but for them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from learner import trainer as trainer_module
from learner.batch import ForwardPass
from learner.distributed import TrainRound, World
from learner.logprobs import EntropyMode, TokenScores
from learner.metrics import STATES, time_metrics
from learner.options import LearnerOptions
from learner.policy import PolicyModel
from learner.trainer import Trainer
from learner.weights.port import TensorSpec
from stream_rl.config import Algorithm, Learner
from stream_rl.observe.states import StateClock
from tests.unit.learner.builders import PlainEngine, WordRenderer, group, save_tiny

SLOW_S = 8.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowEngine(PlainEngine):
    """Takes `SLOW_S` for one kind of call and no time for the others; counts those calls."""

    slow = ""  # "score", "grad_score", "backward", "step" or "parameters"
    calls = 0
    clock = Clock()

    def __init__(self, policy: PolicyModel, settings: Learner, world: World, *, dtype: str) -> None:
        super().__init__(policy, lr=settings.lr)

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        named = self.policy.causal_lm.named_parameters()
        return tuple(TensorSpec(name=name, dtype=p.dtype, shape=tuple(p.shape)) for name, p in named)

    def full_parameters(self) -> Iterator[Tensor]:
        self._take("parameters")
        yield from (p.detach() for p in self.policy.causal_lm.parameters())

    def score(self, forward: ForwardPass, *, entropy: EntropyMode, support: int | Tensor = 0) -> TokenScores:
        self._take("grad_score" if torch.is_grad_enabled() else "score")
        return super().score(forward, entropy=entropy, support=support)

    def backward(self, loss: Tensor) -> None:
        self._take("backward")
        super().backward(loss)

    def step(self) -> float:
        self._take("step")
        return super().step()

    def _take(self, what: str) -> None:
        if what == type(self).slow:
            type(self).calls += 1
            self.clock.now += SLOW_S


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    monkeypatch.setattr(trainer_module, "DeepSpeedEngine", SlowEngine)
    monkeypatch.setattr(trainer_module, "_renderer", lambda folder: WordRenderer())
    monkeypatch.setattr(SlowEngine, "calls", 0)
    options = LearnerOptions(
        run_id="r",
        run_dir=str(tmp_path),
        model=str(save_tiny(tmp_path / "model")),
        weights_dir=str(tmp_path / "weights"),
        seed=0,
        temperature=1.0,
        max_model_len=256,
        episode_tokens=10,
        max_lag=0,
        algorithm=Algorithm(distillation="rised", distill_coef=0.1),
        learner=Learner(token_budget=128, mini_batches=2),
    )
    return Trainer(options, World(0, 1, torch.device("cpu"), None))


def update(trainer: Trainer) -> dict[str, float]:
    clock = SlowEngine.clock
    states = StateClock(STATES, clock)
    began = clock.now
    groups = (group("a", [1, 0, 1, 0], hint="search"), group("b", [1, 0, 0, 0], hint="open"))
    trainer.update(TrainRound(update=0, groups=groups), states.enter)
    states.enter("publish")
    trainer.take()
    trainer.end_update(states.enter)
    parts: dict[str, float] = time_metrics(states.lap())["learner"]
    assert sum(s for name, s in parts.items() if name != "total_s") == parts["total_s"] == clock.now - began
    return {name: s for name, s in parts.items() if s and name != "total_s"}


@pytest.mark.parametrize(
    ("slow", "parts"),
    [
        ("score", ("prox_s", "teacher_s")),
        ("grad_score", ("train_s",)),
        ("backward", ("train_s",)),
        ("step", ("train_s",)),
        ("parameters", ("publish_s",)),
    ],
)
def test_a_slow_call_is_counted_to_its_part_and_to_no_other(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, slow: str, parts: Sequence[str]
) -> None:
    monkeypatch.setattr(SlowEngine, "slow", slow)
    found = update(trainer)
    assert SlowEngine.calls > 0
    assert set(found) == set(parts)
    assert sum(found.values()) == SlowEngine.calls * SLOW_S


def test_the_cpu_seconds_of_an_update_are_those_since_the_last_one(trainer: Trainer) -> None:
    began = time.process_time()
    while time.process_time() - began < 0.2:
        pass
    groups = (group("a", [1, 0, 1, 0], hint="search"),)
    used = []
    for k in (0, 1):
        trainer.update(TrainRound(update=k, groups=groups[: 1 - k]), lambda state: None)
        used.append(trainer.end_update(lambda state: None).cpu_s)
    assert used[0] >= 0.15
    assert 0.0 <= used[1] <= time.process_time() - began
    assert sum(used) == pytest.approx(time.process_time() - began, abs=0.1)
