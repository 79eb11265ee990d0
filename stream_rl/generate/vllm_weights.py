"""Placeholder."""


def register() -> None:
    """Register nothing yet."""
