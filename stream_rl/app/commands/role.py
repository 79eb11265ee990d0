"""`role`: one process of a run. `up` starts it with a board pipe on stdout and a lifeline on stdin."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial

from stream_rl.app.child import run_role
from stream_rl.app.roles import ROLES


def run(arguments: argparse.Namespace) -> int:
    """Run until the role ends. The interpreter's slow teardown of large libraries is skipped."""
    code = run_role(partial(ROLES[arguments.role], arguments))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
