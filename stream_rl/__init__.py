"""stream_rl: an event-driven, asynchronous, streaming RL trainer for LLM agents."""

__version__ = "0.1.0"
