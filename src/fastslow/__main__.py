"""`python -m fastslow`, which is what multi-process launchers start."""

from fastslow.commands.app import main

main()
