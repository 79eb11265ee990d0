"""Which async depth? Real runs at several depths, what a simulation makes of them, and an answer with its reason."""
