"""Scripts run as they would anywhere, their ends are told apart, and a machine says what it can do."""

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from fastslow.base.errors import FastSlowWarning
from fastslow.sandbox import Outcome, Protections, SandboxError, protections, run_code, runner


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print('hello')", Outcome(True, "hello\n", "", "")),
        ("", Outcome(True, "", "", "")),
        ("import sys\nprint('ü', file=sys.stderr)", Outcome(True, "", "ü\n", "")),
        ("import sys\nsys.exit(0)", Outcome(True, "", "", "")),
        ("exit()", Outcome(True, "", "", "")),
        ("import sys\nsys.exit(3)", Outcome(False, "", "", "error")),
        ("import sys\nsys.exit('no')", Outcome(False, "", "no\n", "error")),
        ("import os\nos._exit(0)", Outcome(True, "", "", "")),
        ("import os\nos.abort()", Outcome(False, "", "", "crash")),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", Outcome(False, "", "", "crash")),
        ("import sys\nprint(__name__, sys.argv)", Outcome(True, "__main__ ['answer.py']\n", "", "")),
        ("import atexit\natexit.register(print, 'bye')\nprint('hi', end=' ')", Outcome(True, "hi bye\n", "", "")),
        ("import os\nos.write(1, b'\\xff')", Outcome(True, "\ufffd", "", "")),
        ("print({'b', 'a', 'c'} == {'a', 'b', 'c'}, hash('a') == hash('a'))", Outcome(True, "True True\n", "", "")),
        ("import pickle\nclass A:\n    pass\nprint(pickle.dumps(A())[:1])", Outcome(True, "b'\\x80'\n", "", "")),
    ],
)  # fmt: skip
def test_a_script_runs_as_it_would_anywhere(source: str, expected: Outcome) -> None:
    assert run_code(source) == expected


def test_a_traceback_shows_the_script_and_nothing_else() -> None:
    outcome = run_code("def f():\n    return 1 / 0\n\nf()")
    assert outcome.reason == "error"
    lines = [line for line in outcome.stderr.splitlines() if "^" not in line]
    assert lines == [
        "Traceback (most recent call last):",
        '  File "answer.py", line 4, in <module>',
        "    f()",
        '  File "answer.py", line 2, in f',
        "    return 1 / 0",
        "ZeroDivisionError: division by zero",
    ]
    assert 'File "answer.py", line 1' in run_code("f(").stderr


def test_input_of_any_size_is_read_or_left() -> None:
    text = "line é\n" * 200_000
    assert run_code("import sys\nprint(len(sys.stdin.read()))", stdin=text).stdout == f"{len(text)}\n"
    assert run_code("print(input())", stdin=text).stdout == "line é\n"
    assert run_code("print(1)", stdin=text).ok
    assert run_code("print(input())").stderr.endswith("EOFError: EOF when reading a line\n")


def test_every_run_is_a_new_world() -> None:
    if runner.NAMESPACES not in protections().layers:
        pytest.skip("no files can be written on this machine")
    outcome = run_code("open('x', 'w').write('y')\nprint(open('x').read())\nimport builtins\nbuiltins.x = 1")
    assert outcome == Outcome(True, "y\n", "", "")
    assert run_code("import tempfile\ntempfile.TemporaryFile().write(b'1')").ok
    outcome = run_code("import os\nprint(os.listdir('.'), 'x' in dir(__builtins__))")
    assert outcome.stdout == "[] False\n"


def test_the_order_of_sets_is_the_same_every_time() -> None:
    source = "print({str(n) for n in range(100)})"
    assert run_code(source) == run_code(source)


def test_output_is_cut_at_its_limit_and_not_before() -> None:
    assert run_code(f"print('x' * {runner.OUTPUT - 1})").ok
    outcome = run_code(f"print('x' * {runner.OUTPUT})")
    assert (outcome.ok, outcome.reason, len(outcome.stdout)) == (False, "output", runner.OUTPUT)


def test_memory_is_what_was_asked_for() -> None:
    assert run_code("x = bytearray(150 * 2**20)", megabytes=256).ok
    assert run_code("x = bytearray(300 * 2**20)", megabytes=256).reason == "memory"


def test_it_runs_from_any_thread() -> None:
    outputs: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: outputs.append(run_code(f"print({n})").stdout))  # type: ignore[misc]
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outputs) == [f"{n}\n" for n in range(6)]


SIGNALS = """
import signal
print(*sorted(each.name for each in signal.Signals if signal.getsignal(each) is signal.SIG_IGN))
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""
DEAF_CALLER = """
import atexit, os, signal, sys, time
from fastslow.sandbox import run_code
signals = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1}
for each in signals:
    signal.signal(each, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
atexit.register(lambda: os.kill(child, signal.SIGKILL))  # after the fork server's end
print(run_code(sys.argv[1]).stdout, end="")
child = os.fork()
if child == 0:  # it holds the connection to the fork server, which therefore has to be ended by a signal
    time.sleep(30)
    os._exit(0)
"""


def test_signals_that_the_caller_ignores_are_not_ignored_in_the_sandbox() -> None:
    """A shell has its jobs in the background ignore Ctrl-C. A program is none of them, and the fork server is to end."""
    command = [sys.executable, "-c", DEAF_CALLER, SIGNALS]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout.splitlines() == ["SIGPIPE SIGXFSZ", "True set()"]


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((runner.NAMESPACES, runner.SECCOMP), []),
        ((runner.NAMESPACES,), []),
        ((runner.LANDLOCK, runner.SECCOMP), []),
        ((runner.SECCOMP,), ["read all files"]),
        ((runner.LANDLOCK,), ["network", "signals", "empty files"]),
        ((), ["network", "signals", "empty files", "read all files", "fill the disk"]),
    ],
)
def test_what_is_missing_is_said(layers: tuple[str, ...], words: list[str]) -> None:
    missing = Protections(layers).missing
    assert len(missing) == len(words)
    assert all(word in sentence for word, sentence in zip(words, missing, strict=True))


def test_one_warning_where_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_possible", lambda: protections().layers)
    monkeypatch.setattr(runner, "protections", lambda: Protections((runner.SECCOMP,)))
    runner._warn.cache_clear()
    with pytest.warns(FastSlowWarning, match=r"not fully isolated here. It can read all files of the user"):
        runner._warn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runner._warn()
    runner._warn.cache_clear()


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxError, match=r"on Linux only, and this is darwin.*use a Linux machine"):
        run_code("print(1)")


def test_a_python_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_FORK_SERVER", runner._ForkServer())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(
        SandboxError, match=r"model-written code cannot be run here: the process for it .* does not start"
    ):
        run_code("print(1)")


def test_a_wall_that_cannot_be_put_up_is_an_error() -> None:
    """Root's own Python, where nobody else can read it, is of no use without namespaces."""
    library = os.path.dirname(os.__file__)
    if os.geteuid() or all(os.stat(path).st_mode & 0o005 == 0o005 for path in (library, *Path(library).parents)):
        pytest.skip("everybody can read this Python")
    with pytest.raises(
        SandboxError, match="can be read by root alone, and model-written code is not run as root; use a"
    ):
        run_code("print(1)", layers=["seccomp"])
