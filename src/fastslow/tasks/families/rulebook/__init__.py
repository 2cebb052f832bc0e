"""The universe of `nano` and the task family over it."""
