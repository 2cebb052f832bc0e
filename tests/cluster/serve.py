"""SkyRL's server on a CPU, run by the Python of its own environment: `serve.py MODEL PORT FOLDER BACKEND`.

SkyRL starts the process that computes with `uv run`, and reads uv's arguments off its own command line; here both are this
Python. Everything is kept in the folder, so that a server that was killed can be started again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import uvicorn
from skyrl.tinker import api
from skyrl.tinker.config import EngineConfig, config_to_argv


def main(model: str, port: str, folder: str, backend: str) -> None:
    def command(_: list[str], config: EngineConfig) -> list[str]:
        return [sys.executable, "-m", "skyrl.tinker.engine", *config_to_argv(config)]

    api._build_uv_run_cmd_engine = command
    api.app.state.engine_config = EngineConfig(
        base_model=model,
        backend="jax",
        backend_config=json.loads(backend),
        checkpoints_base=Path(folder) / "checkpoints",
        database_url=f"sqlite:///{folder}/tinker.db",
    )
    uvicorn.run(api.app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
