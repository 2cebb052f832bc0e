"""The commands that look: at a recipe, the tasks and the machine, and at what is in runs."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from fastslow.base.errors import FastSlowError
from fastslow.base.text import printable
from fastslow.commands.shared import (
    Json,
    Overrides,
    RecipeFile,
    RunPath,
    console,
    loading,
    progress,
    results,
)


def check(
    recipe: RecipeFile,
    overrides: Overrides = None,
    feedback: Annotated[
        bool, Option("--feedback", help="Play about 128 rollouts: what could the grader's words teach the weights?")
    ] = False,
    probe: Annotated[
        bool, Option("--probe", help="Play the first steps: how long would the run take, and how much memory?")
    ] = False,
    card: Annotated[
        str | None,
        Option(metavar="CARD", help="Would one such GPU be large enough? Its memory in GB, or a name: h100."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a recipe would spend and what is missing, before anything is spent."""
    loading("the task and the tokenizer")
    from fastslow.launch.estimate import check as findings
    from fastslow.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or [])
    with results(as_json) as write:
        with progress("playing the first steps") if probe else nullcontext(print) as say:
            found = list(findings(loaded, play=probe, card=card, say=say))
        missing = [f"{finding.what}: {finding.found}" for finding in found if finding.missing]
        tried: dict[str, Any] = {}
        if feedback and not missing:
            from fastslow.launch.feedback import check_feedback

            with progress("loading the model") as say:
                played = check_feedback(loaded, say)
            found, tried = [*found, *played.findings()], {"feedback": asdict(played)}
        if as_json:
            write({"recipe": recipe, "ready": not missing, "findings": [asdict(finding) for finding in found], **tried})
        else:
            _print_rows([(finding.what, ""), (finding.found, "")] for finding in found if not finding.missing)
        if missing:
            raise FastSlowError("\n".join(missing))
        if not as_json:
            warned = any(finding.warning for finding in found)
            console().print("nothing is missing, but mind the warnings" if warned else "nothing is missing")


def show_recipe(recipe: RecipeFile, overrides: Overrides = None) -> None:
    """Print a recipe with all defaults and overrides applied."""
    from fastslow.recipe import dump_recipe, load_recipe
    from fastslow.tasks.registry import check_options

    loaded = load_recipe(recipe, overrides or [])
    check_options(loaded)
    console().print(dump_recipe(loaded), highlight=False, markup=False, soft_wrap=True, end="")


def tasks(
    name: Annotated[str | None, Argument(metavar="NAME", help="The task to show.")] = None,
    options: Annotated[list[str] | None, Argument(metavar="[KEY=VALUE]...", help="Options of the task.")] = None,
    count: Annotated[int, Option(min=0, max=10**6, help="Number of examples to show.")] = 2,
    as_json: Json = False,
) -> None:
    """List the tasks, or show one: its options, its seed text and rendered examples."""
    from fastslow.tasks.show import describe_task, list_tasks, show_task, show_tasks

    with results(as_json) as write:
        if name is None:
            listed = list_tasks()
            if as_json:
                write(listed)
            else:
                show_tasks(listed, console())
            return
        described = describe_task(name, options or [], count)
        if as_json:
            write(described)
        else:
            show_task(described, console())


MARKS = {"good": ("✓", "green"), "absent": ("–", "dim"), "wrong": ("✗", "bold red")}


def doctor(as_json: Json = False) -> None:
    """Check what is installed, what a run would use and what is missing; then train a small run as a test."""
    loading("torch")
    from fastslow.launch.doctor import findings, self_test

    with results(as_json) as write:
        found = list(findings())
        if not as_json:
            _print_rows([MARKS[each.state], (each.what, ""), (each.found, ""), (each.advice, "dim")] for each in found)
        wrong = [f"{each.what}: {each.found}; {each.advice}" for each in found if each.state == "wrong"]
        if not wrong:
            with console().status("a small run with nano"):
                tested = self_test()
            found.append(tested)
            if not as_json:
                from rich.text import Text

                console().print(Text.assemble(MARKS[tested.state], f" {tested.what}: {tested.found}"), soft_wrap=True)
            wrong = [f"{tested.what}: {tested.advice}"] if tested.state == "wrong" else []
        if as_json:
            write({"ready": not wrong, "findings": [asdict(finding) for finding in found]})
        if wrong:
            raise FastSlowError("\n".join(wrong))


def _print_rows(rows: Iterable[Sequence[tuple[str, str]]]) -> None:
    """Print cells, each a text and its style, in columns."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for row in rows:
        table.add_row(*(Text(text, style) for text, style in row))
    console().print(table)


def compare(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run folders, finished or not.")],
    out: Annotated[Path, Option(metavar="DIR", help="Folder for the tables and figures.")] = Path("comparison"),
    baseline: Annotated[
        str | None, Option(metavar="ARM", help="Arm or method that the others are compared with; rl by default.")
    ] = None,
    rollouts: Annotated[
        int | None, Option(min=0, metavar="N", help="Truncate every run at N rollouts before comparing.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs over methods and seeds: reward by steps, rollouts, tokens and time, cost of the baseline's gain, KL."""
    from fastslow.study.report import compare_runs

    with results(as_json) as write:
        found = compare_runs(runs, out, console(), baseline, rollouts)
        if as_json:
            write(found)


def tag(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run folders, finished or not.")],
    add: Annotated[list[str] | None, Option("--add", metavar="TAG", help="A tag to add. Repeatable.")] = None,
    remove: Annotated[list[str] | None, Option("--remove", metavar="TAG", help="A tag to remove. Repeatable.")] = None,
) -> None:
    """Give runs tags, by which the board filters; without options, show them."""
    from fastslow.runs.folder import RunFolder

    for folder in [RunFolder.open(run) for run in runs]:
        tags = folder.tag(add or (), remove or ()) if add or remove else folder.tags
        console().print(f"{folder.path}: {', '.join(tags) or 'no tag'}", highlight=False, soft_wrap=True)


def contexts(
    run: RunPath,
    full: Annotated[bool, Option("--full", help="Show whole texts and all feedback.")] = False,
    best: Annotated[bool, Option("--best", help="Print the text of the best context and nothing else.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print the contexts, or with --best the best, as JSON.")] = False,
) -> None:
    """Show how the contexts of a run evolved: their lineage, scores and edits.

    `fastslow contexts RUN --best > prompt.txt` writes the prompt alone. With several components, each text follows its
    name in brackets.
    """
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.lineage import best_context, read_contexts
    from fastslow.runs.tree import show_contexts

    folder = RunFolder.open(run)
    if as_json:
        found: Any = best_context(folder).to_dict() if best else [each.to_dict() for each in read_contexts(folder)]
        _write(json.dumps(found, ensure_ascii=False, indent=2))
    elif best:
        texts = best_context(folder).texts
        named = [f"[{name}]\n{text}" for name, text in texts.items()]
        _write("\n\n".join(named if len(named) > 1 else texts.values()))
    else:
        show_contexts(folder, console(), full=full)


def _write(text: str) -> None:
    """Write the text exactly as it is to a file or a pipe; a terminal gets it without control characters."""
    shown = printable(text) if sys.stdout.isatty() else text
    encoding = sys.stdout.encoding or "utf-8"
    print(shown.encode(encoding, "backslashreplace").decode(encoding))


def rollouts(
    run: RunPath,
    worst: Annotated[bool, Option("--worst", help="The lowest scores first.")] = False,
    best: Annotated[bool, Option("--best", help="The highest scores first.")] = False,
    step: Annotated[int | None, Option(metavar="N", help="A step; the newest by default.")] = None,
    cycle: Annotated[int | None, Option(metavar="N", help="A cycle of the fast loop instead.")] = None,
    context: Annotated[str | None, Option(metavar="ID", help="Rollouts of the whole run under this context.")] = None,
    problem: Annotated[str | None, Option(metavar="ID", help="Rollouts of the whole run on this problem.")] = None,
    limit: Annotated[int, Option(min=1, metavar="N", help="Number of rollouts to show.")] = 8,
    as_json: Json = False,
) -> None:
    """Show what the policy answered: question, context, answer, score and the grader's words."""
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.rollouts import Choice, choose_rollouts, show_rollouts

    if worst and best:
        raise FastSlowError("--worst and --best are both given; give one of them")
    if step is not None and cycle is not None:
        raise FastSlowError("--step and --cycle are both given; give one of them")
    order: Literal["worst", "best"] | None = "worst" if worst else "best" if best else None
    chosen = choose_rollouts(RunFolder.open(run), Choice(step, cycle, context, problem, order, limit))
    with results(as_json) as write:
        if as_json:
            write(asdict(chosen))
        else:
            show_rollouts(chosen, console())


def ledger(
    run: RunPath, steps: Annotated[bool, Option("--steps", help="Also show every step.")] = False, as_json: Json = False
) -> None:
    """Show what a run spent: rollouts, tokens, seconds and cost, by purpose and by cycle."""
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.ledger import show_ledger, spending

    opened = RunFolder.open(run)
    with results(as_json) as write:
        if as_json:
            write(spending(opened, steps=steps))
        else:
            show_ledger(opened, console(), steps=steps)


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
        size = snapshot.stat().st_size / 1e6
        console().print(f"wrote {snapshot}: {count} run{'s' * (count > 1)}, {size:.1f} MB", soft_wrap=True)
        return
    if wait:  # beside a run
        os.nice(10)
    _serve(views, host, port)


def _serve(views: object, host: str, port: int) -> None:
    import uvicorn

    from fastslow.runs.board.server import is_local, make_app, warm_up

    listening = listen(host, port)
    port = listening.getsockname()[1]
    token = None if is_local(host) else secrets.token_urlsafe(16)
    local = ("127.0.0.1", "localhost", "[::1]")
    app = make_app(views, hosts=local if token is None else ("*",), token=token)  # type: ignore[arg-type]
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    console().print(
        f"board: http://{shown}:{port}/{f'?token={token}' if token else ''}", highlight=False, soft_wrap=True
    )
    if token is None:
        console().print("only this machine can reach it; Ctrl+C ends it", style="dim", highlight=False)
    threading.Thread(target=warm_up, daemon=True).start()
    config = uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=1, lifespan="off")
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([listening])


def listen(host: str, port: int) -> socket.socket:
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
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address, family=family, dualstack_ipv6=family == socket.AF_INET6)


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
