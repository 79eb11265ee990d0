"""What a test process must not waste: time of the garbage collector, and of threads that wait for each other.

torch and transformers leave about a million objects that stay for good. A collector that walks them again and again
doubles the time of the imports and makes a test that allocates much several times slower than its own work.
"""

from __future__ import annotations

import gc
import os

gc.disable()  # nearly all that is made while tests are imported stays
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read once, when torch is imported; as roles of a run have it


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
