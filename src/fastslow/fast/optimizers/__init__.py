"""Fast optimizers: how new texts are found. Each is a file that says what it keeps of the published method."""
