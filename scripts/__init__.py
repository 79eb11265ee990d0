"""What maintainers run by hand, from the repository's root: `python -m scripts.NAME`."""
