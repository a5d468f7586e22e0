"""The built-in engine: one driver, one process per rank, TP and PP changed under running requests."""
