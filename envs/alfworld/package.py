"""The upstream packages: are they here, and are they ones whose insides the acceleration knows?"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from stream_rl.errors import ConfigError

NEEDED = ("alfworld", "textworld", "fast_downward")

# Releases whose private parts `envs.alfworld.fast` was written against and checked with.
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "textworld": ("1.6.2", "1.7.0"),
    "fast-downward-textworld": ("20.6.4",),
    "mementos": ("1.3.1",),
}


def require() -> None:
    """Raises `ConfigError` where the packages are not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            "environments.options",
            f"alfworld needs the package{'s' * (len(missing) > 1)} {', '.join(missing)}, not installed here: "
            "pip install 'stream-rl[alfworld]' (it compiles for about 3 minutes), or serve the world from a venv that "
            "has them (`stream-rl envs serve alfworld`) and use the world remote.",
        )


def installed() -> dict[str, str]:
    """Releases of the packages the acceleration depends on; those that are missing are left out."""
    found = {}
    for name in _KNOWN:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def unknown_release(releases: Mapping[str, str]) -> str:
    """Why the acceleration does not know these releases; empty when it does.

    >>> unknown_release({"textworld": "1.7.0", "fast-downward-textworld": "20.6.4", "mementos": "1.3.1"})
    ''
    >>> unknown_release({"textworld": "2.0.0", "fast-downward-textworld": "20.6.4", "mementos": "1.3.1"})
    'textworld is 2.0.0, known are 1.6.2, 1.7.0'
    """
    return "; ".join(
        f"{name} is {releases.get(name, 'missing')}, known are {', '.join(known)}"
        for name, known in _KNOWN.items()
        if releases.get(name) not in known
    )
