"""Fast-Slow Training of language models."""

import glob
import os

if not glob.glob("/dev/nvidia[0-9]*"):
    # On shared CPU cores, threads that spin while they wait slow torch down many times over. It must be said before torch
    # is imported, and never overrides what the user said.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
