"""Office policies that only the grader knows."""
