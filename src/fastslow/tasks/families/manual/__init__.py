"""A small query language that is known by its error messages only."""
