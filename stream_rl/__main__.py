"""`python -m stream_rl`: the command line."""

from __future__ import annotations

import sys

from stream_rl.cli import main

if __name__ == "__main__":
    sys.exit(main())
