"""`python -m fastslow`, which is what multi-process launchers start."""

from fastslow.cli import main

main()
