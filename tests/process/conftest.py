from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.runner import Up


@pytest.fixture(autouse=True)
def _no_run_outlives_its_test() -> Iterator[None]:
    """A failed test must not take the machine from the tests after it. The roles end with their supervisor."""
    yield
    while Up.started:
        up = Up.started.pop()
        if up.process.poll() is None:
            up.kill()
