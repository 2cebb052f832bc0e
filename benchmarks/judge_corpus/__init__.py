"""Programs and tests for `benchmarks.judge`: problems written by hand, each tested in every style."""
