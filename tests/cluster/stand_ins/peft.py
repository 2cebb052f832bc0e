"""In place of peft, of which SkyRL's JAX backend needs one file: the config of a saved adapter, as peft 0.18 writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class LoraConfig:
    def __init__(self, **settings: Any) -> None:
        self.settings = {"peft_type": "LORA", "target_modules": None, "task_type": None, **settings}

    def save_pretrained(self, folder: Path) -> None:
        (folder / "adapter_config.json").write_text(json.dumps(self.settings))
