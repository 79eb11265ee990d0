"""The passes of one update: prox, reference, teacher, then one optimiser step for each mini-batch.

Consumes: training rows. Waits for: nothing but the other ranks. Produces: changed parameters and sums for the metrics.
Unblocked by: its own end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from learner.batch import MiniBatch, plan, trajectory_numbers
from learner.logprobs import EntropyMode, TokenScores
from learner.metrics import Sums
from learner.objective import Objective
from learner.passes import Work, gap_statistics, prepare, run_prox, run_reference, run_teacher
from learner.ports import Engine, Scorer
from learner.rows import Row
from learner.token_loss import TokenLoss
from stream_rl.errors import StreamRLError


class TrainingDiverged(StreamRLError):
    """Loss or gradient is no longer a number. Nothing was published; resume from the last checkpoint."""


def run_update(
    engine: Engine,
    rows: Sequence[Row],
    objective: Objective,
    *,
    update: int,
    seed: tuple[int, ...],
    enter: Callable[[str], None],
    teacher: Scorer | None = None,
    reference: Scorer | None = None,
) -> tuple[Sums, list[float | None]]:
    """Train on `rows`. Returns this rank's sums and one gradient norm a mini-batch, None where no step was taken.

    update: number of the update, from 0
    seed: of the order of trajectories
    enter: told the state the time belongs to; the reference's pass counts as prox
    teacher: who reads the rows with a hint; None: the parameters at the start of the update
    reference: whose KL is added; needed where `kl_coef` > 0

    Rows without a signal (`Objective.has_signal`) are read by no pass, so the means over tokens are those of what is
    trained. Where no row has one, all are scored once, as part of the prox pass. A mini-batch without a signal takes no
    step: momentum and weight decay alone would move the parameters. Raises `TrainingDiverged` when loss or gradient is
    not finite.
    """
    enter("unpack")
    algorithm = objective.algorithm
    if (reference is None) != (algorithm.kl_coef == 0):
        raise ValueError(f"kl_coef = {algorithm.kl_coef} and {'no' if reference is None else 'a'} reference was given")
    sums = Sums(sorted({row.lag for row in rows}))
    minis = plan(
        rows,
        num_ranks=engine.num_ranks,
        token_budget=objective.token_budget,
        mini_batches=objective.mini_batches,
        seed=seed,
        has_signal=objective.has_signal,
        teacher_is_student=teacher is None,
    )
    numbers = trajectory_numbers(rows)
    parts = [
        prepare(
            rows,
            mini,
            rank=engine.rank,
            device=engine.device,
            trajectories=numbers,
            teacher_is_student=teacher is None,
        )
        for mini in minis
    ]
    everything = [work for part in parts for work in part]

    enter("prox")
    for place, (mini, part) in enumerate(zip(minis, parts, strict=True)):
        needs_prox = objective.needs_prox(mini, is_first=place == 0)
        for work in part:
            if needs_prox or not work.trains:
                run_prox(engine, work, kept_tokens=objective.kept_tokens if mini.has_teacher else 0)
    if reference is not None:
        for work in everything:
            run_reference(reference, work, sums)

    enter("teacher")
    for work in everything:
        run_teacher(engine if teacher is None else teacher, work, sums)
    statistics = None
    if objective.norms_gap and any(mini.has_teacher for mini in minis):
        statistics = gap_statistics(engine, everything, len(set(numbers)))

    enter("train")
    token_loss = TokenLoss(algorithm, sums, update=update, statistics=statistics)
    norms = [
        _train(engine, mini, part, objective, token_loss, sums, at_start=place == 0)
        for place, (mini, part) in enumerate(zip(minis, parts, strict=True))
    ]
    enter("other")
    return sums, norms


def _train(
    engine: Engine,
    mini: MiniBatch,
    part: Sequence[Work],
    objective: Objective,
    token_loss: TokenLoss,
    sums: Sums,
    *,
    at_start: bool,
) -> float | None:
    divisor = objective.divisor(mini)
    entropy: EntropyMode = "gradient" if objective.algorithm.entropy_coef else "value"
    for work in part:
        with torch.set_grad_enabled(work.trains):
            scores = _scores(engine, work, entropy, at_start=at_start)
            loss = token_loss(work, scores) / divisor
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingDiverged(f"rank {engine.rank}: the loss of a micro-batch is {value}")
        sums.add("loss", value)
        sums.add("real_tokens", work.student.num_tokens)
        sums.add("padded_tokens", work.student.token_ids.size if work.student.num_tokens else 0)
        if work.trains:
            engine.backward(loss)
    if not mini.has_signal:
        return None
    norm = engine.step()
    if not math.isfinite(norm):
        raise TrainingDiverged(f"the gradient norm is {norm}")
    return norm


def _scores(engine: Engine, work: Work, entropy: EntropyMode, *, at_start: bool) -> TokenScores:
    """Scores at the parameters of now; of what is not trained, those of the start, which only metrics read."""
    if not work.trains:
        return work.known_prox
    scores = engine.score(work.student, entropy=entropy, support=0 if work.prox is None else work.prox.support_ids)
    if at_start and work.prox is None:
        work.prox = TokenScores(*(values.detach() for values in scores))
    return scores
