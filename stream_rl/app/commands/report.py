"""`report`: what happened in a run, where the time went, plots."""

from __future__ import annotations

import argparse
import json
import sys

from stream_rl.observe.report import report_json, write_report
from stream_rl.observe.rundir import RunDirectory


def run(arguments: argparse.Namespace) -> int:
    """Write report/ and print the same in words, or as JSON."""
    run_dir = RunDirectory.existing(arguments.run)
    text = write_report(run_dir)
    sys.stdout.write((json.dumps(report_json(run_dir)) if arguments.json else text) + "\n")
    return 0
