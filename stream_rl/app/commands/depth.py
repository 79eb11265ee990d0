"""`depth`: run a configuration at several async depths, and say which to take."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stream_rl.app import defaults, preflight
from stream_rl.app.depth.comparison import Outcome, as_json, compare
from stream_rl.app.depth.figures import Figures
from stream_rl.app.depth.measured import measured
from stream_rl.app.depth.recommendation import recommend
from stream_rl.app.depth.simulated import simulated
from stream_rl.app.depth.table import notes, table
from stream_rl.app.depth.training import Progress, Trained, train
from stream_rl.app.depth.trials import Trial, Window, trials
from stream_rl.config import Config
from stream_rl.config.impossible import refuse_impossible
from stream_rl.errors import ConfigError, LedgerError, UsageError
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.simulate.measured import profile_of_run
from stream_rl.simulate.profile import Profile

_INTERRUPTED = 130
_RUNS = Path("runs")

Say = Callable[[str], None]


def run(arguments: argparse.Namespace) -> int:
    """Make all runs, one after the other; print what there is, also after Ctrl-C or a failure."""
    config = defaults.load(arguments.config, arguments.overrides)
    window = Window(warmup=_warmup(arguments), updates=arguments.updates)
    depths = _depths(arguments.depths)
    name = arguments.name or _name(arguments.config)
    planned = list(trials(config, depths, repeats=arguments.repeats, window=window, name=name))
    _check(planned)
    study = Study(planned, window, cores=_cores(arguments, config), say=_say)
    try:
        stopped = study.run()
    finally:
        study.tell(as_lines=arguments.json)
    return _INTERRUPTED if stopped else 0


class Study:
    """The runs that have been made, and what is known of them."""

    def __init__(self, planned: Sequence[Trial], window: Window, *, cores: int | None, say: Say) -> None:
        self._planned = planned
        self._window = window
        self._cores = cores
        self._say = say
        self._base = min(trial.depth for trial in planned)
        self._made: list[tuple[Trial, Figures]] = []
        self._profiles: dict[int, tuple[Profile, Figures]] = {}  # by repeat: of its run at the smallest depth

    def run(self) -> bool:
        """Make all runs. Returns whether somebody stopped it before its end."""
        try:
            for number, trial in enumerate(self._planned, start=1):
                title = f"{number}/{len(self._planned)}  depth {trial.depth}, seed {trial.config.seed}"
                trained = train(trial, _RUNS, self._progress(title, trial.config.updates))
                self._keep(trial, trained, title)
                if trained.stopped:
                    return True
        except KeyboardInterrupt:  # between two runs: a run itself hears the signal and ends in order
            return True
        return False

    def outcomes(self) -> list[Outcome]:
        """What is known now: each run beside what the model makes of it."""
        return [
            Outcome(depth=trial.depth, repeat=trial.repeat, measured=found, simulated=self._simulated(trial, found))
            for trial, found in self._made
        ]

    def tell(self, *, as_lines: bool) -> None:
        """Print the comparison and the recommendation."""
        rows = compare(self.outcomes())
        advice = recommend(rows)
        if as_lines:
            facts = as_json(rows, advice.depth if advice else None, advice.reason if advice else "")
            sys.stdout.write(json.dumps(facts) + "\n")
            return
        if not rows or advice is None:
            sys.stdout.write("nothing was measured: no run came past its warm-up\n")
            return
        lines = [
            f"{self._window.updates} updates of each run, after {self._window.warmup} of warm-up",
            table(rows),
            *notes(rows, self._window),
            f"simulated with the service times of depth {self._base} alone, for each seed its own",
            "",
            f"async_depth = {advice.depth}: {advice.reason}",
        ]
        sys.stdout.write("\n".join(lines) + "\n")

    def _keep(self, trial: Trial, trained: Trained, title: str) -> None:
        run_dir = trained.run
        found = measured(read_json_lines(run_dir.metrics), read_json_lines(run_dir.eval), self._window)
        if found is None:
            self._say(f"{title}: stopped before its warm-up was over")
            return
        self._made.append((trial, found))
        if trial.depth == self._base and (profile := self._profile(run_dir)) is not None:
            self._profiles[trial.repeat] = (profile, found)
        self._say(f"{title}: {found.update_s:.2f} s an update over {found.updates}, {run_dir.root}")

    def _profile(self, run_dir: RunDirectory) -> Profile | None:
        try:
            return profile_of_run(run_dir, cores=self._cores)
        except (LedgerError, UsageError) as error:
            self._say(f"no prediction from {run_dir.root}: {error}")
            return None

    def _simulated(self, trial: Trial, found: Figures) -> Figures | None:
        if trial.repeat not in self._profiles:
            return None
        profile, base = self._profiles[trial.repeat]
        window = Window(warmup=self._window.warmup, updates=found.updates)
        try:
            return simulated(trial.config, profile, window, base)
        except ConfigError as error:  # too short a run has not met every world
            self._say(f"no prediction for depth {trial.depth}: {error}")
            return None

    def _progress(self, title: str, updates: int) -> Progress:
        def show(done: int) -> None:
            if sys.stderr.isatty():
                sys.stderr.write(
                    f"\r{title}: update {done} of {updates}\x1b[K" + ("\r\x1b[K" if done == updates else "")
                )
                sys.stderr.flush()

        return show


def _check(planned: Sequence[Trial]) -> None:
    """Everything that can be known before hours of runs. Raises `StreamRLError`."""
    for trial in planned:
        if (_RUNS / trial.name / "config.toml").exists():
            raise UsageError(f"{_RUNS / trial.name} already holds a run; choose another --name")
    for config in {trial.depth: trial.config for trial in planned}.values():
        refuse_impossible(config)
    preflight.check_static(planned[0].config)
    preflight.check_judges(planned[0].config)


def _depths(text: str) -> list[int]:
    """Raises `UsageError` for what is no list of different whole numbers."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"--depths {text}: expected whole numbers with commas between them, as 0,1,2,4")
    depths = sorted({int(part) for part in parts})
    if len(depths) != len(parts):
        raise UsageError(f"--depths {text}: each depth may stand once; use --repeats to run it more often")
    return depths


def _warmup(arguments: argparse.Namespace) -> int:
    """As asked, or one more than the largest depth: before that the pipeline is not full."""
    warmup: int | None = arguments.warmup
    if warmup is None:
        return max(_depths(arguments.depths)) + 1
    if warmup < 0:
        raise UsageError(f"--warmup {warmup}: expected 0 or more")
    return warmup


def _cores(arguments: argparse.Namespace, config: Config) -> int | None:
    """Cores that the roles share: a generator that computes nothing takes none from the learner."""
    cores: int | None = arguments.cores
    if cores is not None and cores < 0:
        raise UsageError(f"--cores {cores}: expected 0 or more")
    return 0 if cores is None and config.generate.engine == "scripted" else cores


def _name(files: Sequence[str]) -> str:
    stem = Path(files[-1]).stem if files else "embedded"
    return f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
