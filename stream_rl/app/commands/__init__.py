"""One file a command: what it prints and which exit code it returns."""
