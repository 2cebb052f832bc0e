"""Records that are written by conventions that only the grader knows."""
