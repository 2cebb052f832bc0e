"""Engines: they hold the policy, sample it and train it."""
