"""`simulate`: predict a run without running it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import msgspec

from stream_rl.app.defaults import SHIPPED, load
from stream_rl.config import Config
from stream_rl.errors import UsageError
from stream_rl.observe.rundir import RunDirectory
from stream_rl.simulate.model import simulate
from stream_rl.simulate.prediction import as_json, in_words
from stream_rl.simulate.profile import Profile, read_profile, write_profile

_EMBEDDED = SHIPPED / "embedded.profile.toml"


def run(arguments: argparse.Namespace) -> int:
    """Print the prediction."""
    if arguments.cores is not None and arguments.cores < 0:
        raise UsageError(f"--cores {arguments.cores}: expected 0 or more")
    if arguments.seed is not None and arguments.seed < 0:
        raise UsageError(f"--seed {arguments.seed}: expected 0 or more")
    config = load(arguments.config, arguments.overrides)
    profile = _profile(arguments, config)
    if arguments.save:
        write_profile(profile, Path(arguments.save))
    prediction = simulate(config, profile, updates=arguments.updates, seed=arguments.seed)
    if arguments.json:
        sys.stdout.write(json.dumps(as_json(prediction)) + "\n")
        return 0
    title = Path(arguments.config[-1]).stem if arguments.config else "the embedded default"
    sys.stdout.write(in_words(prediction, title) + "\n")
    if profile.note:
        sys.stdout.write(f"  service times   {profile.note}\n")
    return 0


def _profile(arguments: argparse.Namespace, config: Config) -> Profile:
    """Where the service times come from: the run or file that was named, the configuration's file, the shipped one."""
    if arguments.run:
        from stream_rl.simulate.measured import profile_of_run  # reads and fits: not needed otherwise

        return profile_of_run(RunDirectory.existing(arguments.run), cores=arguments.cores)
    profile = read_profile(_file(arguments, config))
    return profile if arguments.cores is None else msgspec.structs.replace(profile, cores=arguments.cores)


def _file(arguments: argparse.Namespace, config: Config) -> Path:
    if arguments.profile:
        return Path(arguments.profile)
    if named := config.simulate.profile:
        beside = (Path(file).parent / named for file in reversed(arguments.config))
        return next((path for path in beside if path.is_file()), Path(named))
    if config.policy.model.startswith("embedded"):
        return _EMBEDDED
    raise UsageError(
        f"nothing is known of how long {config.policy.model} takes: measure a run and name it with --from RUN, "
        "or give a file of service times with --profile FILE (docs/planning.md)"
    )
