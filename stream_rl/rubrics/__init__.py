"""Rubrics: vocabulary, profiles, guidance, steering. Pure."""
