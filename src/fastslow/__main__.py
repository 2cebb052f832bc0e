"""`python -m fastslow`, which is what multi-process launchers start."""

from fastslow.commands.cli import main

main()
