"""Where time goes, metrics, the board, plots and the report."""
