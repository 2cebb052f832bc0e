"""The command line: one file per command, assembled in `app`. Commands parse, call and print; the work is done elsewhere."""
