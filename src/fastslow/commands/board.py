"""`fastslow board`."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from rich.markup import escape
from typer import Argument, Option

from fastslow.base.errors import FastSlowError
from fastslow.commands.shared import console

PORT = 8765


def board(
    runs: Annotated[
        list[Path] | None,
        Argument(metavar="[RUN or FOLDER]...", help="Run folders, or folders of runs; runs by default."),
    ] = None,
    host: Annotated[str, Option(help="Address to listen on; any but this machine's own needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 takes a free one.")] = PORT,
    snapshot: Annotated[Path | None, Option(metavar="FILE", help="Write one self-contained page instead.")] = None,
    wait: Annotated[bool, Option("--wait", hidden=True)] = False,
) -> None:
    """Show runs in a browser, live while they train: curves, texts, rollouts, spending."""
    folders = runs or [Path("runs")]
    for folder in folders:
        if not folder.is_dir() and not wait:
            raise FastSlowError(
                f"no folder '{folder}'; give a run folder made by `fastslow train`, or a folder of runs"
            )
    from fastslow.runs.board.views import Views

    views = Views(folders)
    if snapshot is not None:
        from fastslow.runs.board.page import write_snapshot

        count = write_snapshot(views, snapshot)
        console.print(
            f"wrote {escape(str(snapshot))}: {count} run{'s' * (count > 1)}, {snapshot.stat().st_size / 1e6:.1f} MB"
        )
        return
    if wait:  # beside a run
        os.nice(10)
    _serve(views, host, port)


def _serve(views: object, host: str, port: int) -> None:
    try:
        import uvicorn

        from fastslow.runs.board.server import is_local, make_app, warm_up
    except ModuleNotFoundError as error:
        raise FastSlowError(f'the board needs {error.name}; install it with pip install "fastslow[board]"') from error
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    token = None if is_local(host) else secrets.token_urlsafe(16)
    local = ("127.0.0.1", "localhost", "[::1]")
    app = make_app(views, hosts=local if token is None else ("*",), token=token)  # type: ignore[arg-type]
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    console.print(f"board: http://{shown}:{port}/{f'?token={token}' if token else ''}", highlight=False, soft_wrap=True)
    if token is None:
        console.print("[dim]only this machine can reach it; Ctrl+C ends it[/]", highlight=False)
    threading.Thread(target=warm_up, daemon=True).start()
    config = uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=1, lifespan="off")
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([listening])


def _listen(host: str, port: int) -> socket.socket:
    """A socket on the address; where the usual port is taken, another one."""
    try:
        return _bound(host, port)
    except OSError as error:
        if port == PORT:
            with suppress(OSError):
                return _bound(host, 0)
        raise FastSlowError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; give another --host or --port"
        ) from error


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening


@contextmanager
def beside(folder: Path) -> Iterator[None]:
    """A board over a run folder, which need not exist yet, in a process of its own that gives way to the run."""
    command = [sys.executable, "-m", "fastslow", "board", str(folder), "--wait"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()
