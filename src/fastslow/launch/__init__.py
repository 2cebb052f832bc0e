"""Everything that begins with a recipe or a run folder: start, resume, check, evaluate, export, internalize."""
