"""The problems of the package, one file each: what is looked for, a first candidate, and a scorer that is exact."""
