"""The command line, assembled in `app`. Commands parse, call and print; the work is done elsewhere."""
