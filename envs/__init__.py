"""Worlds, the worker pool that runs them, and their registry."""
