"""Figures of comparisons, studies and suites."""
