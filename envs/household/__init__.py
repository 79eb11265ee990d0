"""The embedded household world: ALFWorld's command language in pure Python, with generated tasks and players."""
