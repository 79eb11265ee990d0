"""Worlds that others made: `verifiers` environments, TextWorld games, anything behind HTTP."""
