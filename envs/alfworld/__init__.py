"""ALFWorld's text games over the upstream package: catalogue of games, engine and its acceleration, generator."""
