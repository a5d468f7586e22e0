"""What the campaign runs, a module each: ``run(machine)`` says its rows (``benchmarks.gpu.rows``)."""
