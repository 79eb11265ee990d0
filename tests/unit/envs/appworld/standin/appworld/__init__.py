"""Speaks AppWorld's calls without AppWorld: Python code in a session, `complete(answer)`, two tests."""
