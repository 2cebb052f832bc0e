"""Programs that mean harm: all of them end, none of them gets out, the caller is unharmed and nothing is left."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostile
import pytest
from processes import descendants, gone

from fastslow.sandbox import Outcome, Protections, SandboxError, protections, run_code
from fastslow.sandbox.runner import DISK, FILES, OPEN_FILES, OUTPUT, THREADS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is for Linux")
ROOT = Path(__file__).parents[2]
SECRET = "hunter2"
ENDS = {
    "fork bomb": "error",
    "killing its group": "error",
    "inherited files": "error",
    "false report": "error",
    "memory bomb": "memory",
    "memory at once": "memory",
    "endless output": "output",
    "endless errors": "output",
    "endless line": "output",
    "ignoring signals": "time",
    "sleeping": "time",
    "sleeping without files": "time",
    "waiting for a thread": "time",
    "busy in C": "time memory",
    "deep recursion": "crash memory time error",
    "segmentation fault": "crash",
}
"""How a program ends, where it does not just come to its end."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What there is to be harmed: a secret, a file, a process, and sockets of every kind."""
    others = set(descendants(os.getpid()))  # of tests before these, if any
    folder = tmp_path_factory.mktemp("host")
    for parent in [folder, *folder.parents]:  # only the walls are to keep anybody out
        if parent.owner() == folder.owner() and parent != Path(tempfile.gettempdir()) and parent != Path("/"):
            parent.chmod(0o777 if parent == folder else 0o755)
    (folder / "secret").write_text(SECRET)
    (folder / "canary").write_text("alive")
    (folder / "canary").chmod(0o666)
    temporary = folder / "temporary"
    temporary.mkdir()
    name = f"fastslow-{os.getpid()}"
    with (
        pytest.MonkeyPatch.context() as patch,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
        subprocess.Popen(["sleep", "600"]) as victim,
    ):
        local.bind(f"\0{name}")
        local.listen()
        datagrams.bind(f"\0{name}-datagrams")
        for listening in (server, local, datagrams):
            listening.setblocking(False)
        patch.setenv("MY_TOKEN", SECRET)
        patch.setattr(tempfile, "tempdir", str(temporary))
        yield {
            "pid": os.getpid(),
            "others": sorted(others),
            "victim": victim.pid,
            "port": server.getsockname()[1],
            "socket": name,
            "datagrams": f"{name}-datagrams",
            "home": str(Path.home()),
            "repository": str(ROOT),
            "folder": str(folder),
            "secret": str(folder / "secret"),
            "canary": str(folder / "canary"),
        }
        assert victim.poll() is None
        for listening in (server, local):
            with pytest.raises(BlockingIOError):
                listening.accept()
        with pytest.raises(BlockingIOError):
            datagrams.recv(1)
        victim.kill()


@pytest.fixture(scope="module")
def outcomes(host: dict[str, Any]) -> dict[str, Outcome]:
    names = sorted(hostile.PROGRAMS, key=lambda name: name not in hostile.SLOW)
    return hostile.run_all(host, None, names)


@pytest.mark.parametrize("name", hostile.PROGRAMS)
def test_it_is_contained(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert outcome.reason in ENDS.get(name, "").split() + [""] * (name not in ENDS), outcome.stderr
    assert "ESCAPED" not in outcome.stdout
    assert SECRET not in outcome.stdout + outcome.stderr


def test_what_it_may_use_is_limited(outcomes: dict[str, Outcome]) -> None:
    def number(name: str) -> int:
        return int(outcomes[name].stdout.split()[0])

    assert 2 < number("thread bomb") <= THREADS + len(descendants(1))
    assert 2 < number("thread bomb of small stacks") <= THREADS + 2000
    assert number("shared memory") <= 256
    assert number("many files") < FILES
    assert number("many open files") < OPEN_FILES
    assert outcomes["disk filling"].stdout.split() in (["OSError", str(DISK)], ["PermissionError", "0"])
    for name in ("endless output", "endless line"):
        assert len(outcomes[name].stdout) == OUTPUT
    assert len(outcomes["endless errors"].stderr) == OUTPUT


def test_it_sees_an_empty_world(outcomes: dict[str, Outcome], host: dict[str, Any]) -> None:
    if "namespaces" not in protections().layers:
        pytest.skip("no namespaces on this machine")
    shown, *rest = outcomes["environment"].stdout.splitlines()
    assert not {"MY_TOKEN", "USER", "SSH_AUTH_SOCK"} & set(eval(shown))
    assert rest == ["FileNotFoundError"] * 3
    _, *home = outcomes["home and repository"].stdout.splitlines()[0].split()
    library = Path(os.__file__)  # where it lies in somebody's home, that much of the path can be seen
    ancestors = library.relative_to(Path.home()).parts[:1] if library.is_relative_to(Path.home()) else ()
    assert not ancestors or home == list(ancestors)


def test_nothing_is_left_and_nobody_is_hurt(outcomes: dict[str, Outcome], host: dict[str, Any]) -> None:
    assert outcomes
    folder = Path(host["folder"])
    assert sorted(path.name for path in folder.iterdir()) == ["canary", "secret", "temporary"]
    assert list((folder / "temporary").iterdir()) == []
    assert Path(host["canary"]).read_text() == "alive"
    family = descendants(os.getpid())
    assert host["victim"] in family
    left = set(family) - {host["victim"], *host["others"]}
    assert len(left) <= 1  # the small process that forks, unless a test before these has started it
    assert all("inside.main" in Path(f"/proc/{process}/cmdline").read_text() for process in left)
    assert not Path("/dev/shm/hoard").exists()


def _python_of_everyone() -> str:
    """A Python that an ordinary user can start too."""
    same_version = f"import sys; sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"
    for python in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        with contextlib.suppress(OSError):
            if python and subprocess.run([python, "-c", same_version], check=False, **_ORDINARY).returncode == 0:
                return python
    pytest.skip("no Python here can be started by an ordinary user")


_ORDINARY: dict[str, Any] = {"capture_output": True, "text": True, "cwd": "/", "env": {"MY_TOKEN": SECRET}}
if os.geteuid() == 0:
    _ORDINARY |= {"user": 65534, "group": 65534, "extra_groups": []}
WALLED = [name for name in hostile.PROGRAMS if name not in (*hostile.SLOW, *hostile.LIMITED)]
PROCESSES = ["fork bomb", "fork", "clone3", "daemon that outlives", "thread bomb", "inherited files", "raising limits"]


@pytest.mark.parametrize(
    ("layers", "names", "leaks"),
    [
        (["namespaces", "seccomp"], WALLED, ()),
        (["landlock", "seccomp"], [*WALLED, "ignoring signals"], ()),
        (["seccomp"], WALLED, ("environment", "home and repository", "looking into others")),
        ([], PROCESSES, ("raising limits",)),
    ],
    ids=["namespaces", "landlock", "seccomp", "limits alone"],
)
def test_an_ordinary_user_is_protected_by_what_there_is(
    host: dict[str, Any], layers: list[str], names: list[str], leaks: tuple[str, ...]
) -> None:
    """The same attacks, with the walls of machines that have fewer of them. What gets through is what `missing` says."""
    python = _python_of_everyone()
    packages = [path for path in sys.path if path.endswith("site-packages")]
    environment = {"MY_TOKEN": SECRET, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *packages])}
    program = [python, "-B", str(Path(hostile.__file__)), *map(json.dumps, [host, layers, *names])]
    ran = subprocess.run(program, check=False, **(_ORDINARY | {"env": environment}))
    outcomes = json.loads(ran.stdout)
    assert set(outcomes) == set(names)
    for name, outcome in outcomes.items():
        escaped = "ESCAPED" in outcome["stdout"] or SECRET in outcome["stdout"]
        assert not escaped or name in leaks, (name, outcome)
        if name in ENDS:
            assert outcome["reason"] in ENDS[name].split()
    assert any(name in leaks for name in outcomes) == bool(Protections(tuple(layers)).missing)
    assert Path(host["canary"]).read_text() == "alive"


@pytest.mark.skipif(os.geteuid() != 0, reason="for root")
def test_landlock_protects_what_root_owns(host: dict[str, Any]) -> None:
    """Without namespaces, a program of root's reads Python's library with root's eyes, wherever it lies, and nothing else."""
    try:
        outcomes = hostile.run_all(host, ["landlock", "seccomp"], WALLED)
    except SandboxError as error:
        pytest.skip(f"no landlock on this machine: {error}")
    for name, outcome in outcomes.items():
        assert "ESCAPED" not in outcome.stdout, (name, outcome)
        assert SECRET not in outcome.stdout
        assert name not in ENDS or outcome.reason in ENDS[name].split()


@pytest.mark.parametrize("name", ["fork bomb", "daemon that outlives"])
def test_without_seccomp_all_generations_end_with_the_first(host: dict[str, Any], name: str) -> None:
    """In a process namespace of its own a program may fork; whoever leaves the session is still in the namespace."""
    if "namespaces" not in protections().layers:
        pytest.skip("no namespaces on this machine")
    before = descendants(os.getpid())
    hostile.run_all(host, ["namespaces"], [name])
    assert gone({each: began for each, began in descendants(os.getpid()).items() if each not in before})
    assert set(descendants(os.getpid())) <= set(before)


CALLER = """
import signal
from fastslow.sandbox import run_code
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its jobs in the background ignore it
print("ready", flush=True)
run_code("import time; time.sleep(600)", seconds=300)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_when_the_caller_ends_everything_ends(tmp_path: Path, ending: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", CALLER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as caller:
        assert caller.stdout is not None
        try:
            caller.stdout.readline()
            family, end = {}, time.monotonic() + 120
            while len(family) < 4:  # the fork server, the supervisor, the judge's place, the program
                assert time.monotonic() < end, family
                family = descendants(caller.pid)
            caller.send_signal(ending)
            caller.wait(60)
        finally:
            caller.kill()  # else a caller that does not end would be waited for
    assert gone(family)
    assert not list(tmp_path.iterdir())


def command_of(process: int) -> str:
    """What a process runs; nothing where it has ended meanwhile."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def test_a_fork_server_that_was_killed_is_replaced() -> None:
    assert run_code("print(1)").stdout == "1\n"
    family = descendants(os.getpid())
    (server,) = (each for each in family if "inside.main" in command_of(each))
    os.kill(server, signal.SIGKILL)
    assert run_code("print(2)").stdout == "2\n"
    assert gone({server: family[server]})
