"""Judges: prompts, reply parsing, the endpoint client, the embedded rule judge."""
