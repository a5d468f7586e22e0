"""What a switch costs, measured at the client of a real engine. Run by hand: ``python -m benchmarks.cutover``."""
