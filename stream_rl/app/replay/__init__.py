"""Judging a run's rollouts again, and what would have been different."""
