"""Publishing weights to generators."""
