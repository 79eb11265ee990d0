"""Generators behind one port: vLLM, transformers, scripted."""
