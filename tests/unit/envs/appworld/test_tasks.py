"""Which tasks a data folder holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.appworld.tasks import data_folder, task_ids
from stream_rl.errors import ConfigError


def test_ids_in_upstreams_order_without_blank_lines_and_tags(root: Path) -> None:
    assert data_folder(str(root)) == data_folder(str(root / "data")) == root / "data"
    assert task_ids(root / "data", "train", "train") == ("a_1", "broken_1", "c_1")


def test_what_is_missing_is_named(root: Path) -> None:
    with pytest.raises(ConfigError, match="appworld download data"):
        data_folder("")
    with pytest.raises(ConfigError, match="neither data/datasets nor datasets"):
        data_folder(str(root / "data" / "datasets"))
    with pytest.raises(ConfigError, match=r"there are dev, train") as caught:
        task_ids(root / "data", "trains", "train")
    assert (caught.value.path, caught.value.nearest) == ("environments.options.train", "train")
    (root / "data" / "datasets" / "none.txt").write_text("\n")
    with pytest.raises(ConfigError, match="names no task"):
        task_ids(root / "data", "none", "held_out")
