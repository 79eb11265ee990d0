from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from stream_rl.config import from_dict
from stream_rl.errors import ConfigError
from stream_rl.sinks import registry


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As far as the registry can see, these packages are there and no others."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name in names else None)


def test_a_name_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict({"sinks": ["tensorbord"]})
    assert (caught.value.path, caught.value.nearest, caught.value.exit_code) == ("sinks.0", "tensorboard", 2)


def test_every_name_a_configuration_may_hold_has_an_entry() -> None:
    assert from_dict({"sinks": list(registry.ENTRIES)}).sinks == tuple(registry.ENTRIES)


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_a_missing_package_is_refused_with_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    with pytest.raises(ConfigError, match=rf"pip install 'stream-rl\[{name}\]'") as caught:
        registry.check(["prometheus", name])
    assert (caught.value.path, caught.value.exit_code) == ("sinks.1", 2)


def test_a_sink_stands_once() -> None:
    with pytest.raises(ConfigError, match="may stand once"):
        registry.check(["prometheus", "prometheus"])


def test_wandb_without_a_key_is_refused_instead_of_asking_for_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(monkeypatch, "wandb")
    with pytest.raises(ConfigError, match=r"no key for api\.wandb\.ai.*WANDB_MODE=offline"):
        registry.check(["wandb"])
    monkeypatch.setenv("WANDB_MODE", "offline")
    registry.check(["wandb"])
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    registry.check(["wandb"])
    monkeypatch.delenv("WANDB_API_KEY")
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password secret\n")
    registry.check(["wandb"])
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    with pytest.raises(ConfigError, match=r"no key for wandb\.example\.org"):
        registry.check(["wandb"])


def test_knowing_the_sinks_loads_none_of_their_packages() -> None:
    code = (
        "import sys, stream_rl.sinks.registry, stream_rl.sinks.board; "
        "print(*({'tensorboard', 'wandb', 'trackio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("", "", 0)
