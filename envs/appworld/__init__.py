"""AppWorld: programming tasks over the apps of simulated people, run by the real package in a venv of its own."""
