"""Comparing runs: their curves, runs at equal rollouts, figures."""
