"""Comparing runs: arms, curves, conclusions, figures."""
