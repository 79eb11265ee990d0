"""Prompt texts, one file a version."""
