"""Commands of the command line, one after the other in the same processes.

Every process writes the exit code and the output of each command to a file. Two commands that fastslow does not have
change folders in between: `copy FOLDER COPY` and `remove FOLDER`.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from accelerate import PartialState

from fastslow.commands.app import main

CHANGES: dict[str, Callable[..., object]] = {"copy": shutil.copytree, "remove": shutil.rmtree}


def run(command: list[str]) -> dict[str, object]:
    if change := CHANGES.get(command[0]):
        state = PartialState()
        state.wait_for_everyone()
        if state.is_main_process:
            change(*command[1:])
        state.wait_for_everyone()
        return {"code": 0, "output": "", "error": ""}
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as error:
        try:
            main(command)
        except SystemExit as stopped:
            return {"code": stopped.code or 0, "output": output.getvalue(), "error": error.getvalue()}
    raise AssertionError("a command ends with an exit code")


def run_all(folder: Path, commands: list[list[str]]) -> None:
    ended = [run(command) for command in commands]
    (folder / f"process-{PartialState().process_index}.json").write_text(json.dumps(ended))
