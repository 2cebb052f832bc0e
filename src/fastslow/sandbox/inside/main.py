"""The child process: isolates itself, starts the program, and cleans up when its time is over.

A fork server is started once and forks for every program, which is quicker than starting Python every time. A program has
three processes. The supervisor enforces the time limit. Its child runs the tests, if there are any. The grandchild runs the
model's code. The first two report to the caller through a socket that the third does not have; nor does it have the
tests, not even in its memory.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from . import calls, isolation, program, wire
from .judge import judge

_PATIENCE = 0.5
"""Seconds to wait for the end of a program that has hung up."""
_READABLE = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
"""Beside Python's own library: the C libraries it needs, and time zones."""


def main(connection: str) -> None:
    """Fork for every message until the caller hangs up. A message brings open files: what to run, what to test it with (not
    read before it is needed), input, output, errors and the socket for the report."""
    calls = socket.socket(fileno=int(connection))
    # Signals as in any Python: whether the caller ignores or blocks some (a job in the background ignores Ctrl-C) is neither
    # to decide how a program ends nor to keep this process from being ended.
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python ignores these two
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the supervisors here
    while (received := socket.recv_fds(calls, 1, 6))[0]:
        job, tests, *streams, report = received[1]
        if os.fork() == 0:
            calls.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for place, stream in enumerate(streams):
                os.dup2(stream, place)
                os.close(stream)
            with open(job, encoding="utf-8") as file:
                supervisor = _Supervisor(json.load(file), tests, report)
            supervisor.supervise()
            os._exit(0)
        for each in received[1]:
            os.close(each)


class _Supervisor:
    def __init__(self, job: dict[str, Any], tests: int, report: int) -> None:
        self._job, self._tests, self._report = job, tests, report
        self._tell({"supervisor": os.getpid()})
        isolation.be_expendable()
        isolation.prctl(isolation.PR_SET_CHILD_SUBREAPER)
        self._layers: list[str] = job["layers"]
        self._user = isolation.choose_user()
        self._threads = isolation.count_threads(self._user) + 2 + job["threads"]
        if not {"namespaces", "seccomp"} & set(self._layers):
            self._threads = 0  # nothing else would keep the program from leaving processes behind
        sys.path[:] = [os.path.realpath(folder) for folder in sys.path if os.path.isdir(folder)] + job["packages"]
        sys.dont_write_bytecode = True
        library = os.path.dirname(os.path.realpath(os.path.dirname(os.__file__)))
        self._readable = [*job["readable"], library, *job["packages"], *_READABLE]

    def supervise(self) -> None:
        lives, living = os.pipe()  # ends when the child does
        above, name = os.path.split(self._job["folder"])
        outside = os.open(above, os.O_PATH)
        folder = self._job["folder"]
        try:
            if "namespaces" in self._layers:  # the isolation that only this process has the privileges for
                isolation.enter(folder, self._readable, self._user, self._job["disk"], self._job["files"])
            else:
                os.chmod(folder, 0o755)
                os.chdir(folder)
            os.environ.update(dict.fromkeys(("HOME", "TMPDIR"), os.getcwd()))
            child = os.fork()
        except OSError as error:
            self._tell({"refused": str(error.strerror or error)})
            return
        if child == 0:
            os.close(lives)
            os.close(outside)
            self._stay_beside(living)
        os.close(living)
        events = select.poll()
        events.register(lives, select.POLLIN)
        events.register(self._report, select.POLLIN)
        ready = {place for place, _ in events.poll(1000 * self._job["wall"])}  # or the caller wants no more
        how = "done" if lives in ready else "stopped" if ready else "time"
        _end_all(child)
        with contextlib.suppress(OSError):  # the caller may have been quicker; it may also be dead
            os.rmdir(name, dir_fd=outside)
        self._tell({"ended": how})

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # nobody may be listening any more
            wire.send(self._report, message)

    def _stay_beside(self, living: int) -> NoReturn:
        """The process beside the program. In a process namespace it is the first: when it ends, all others end with it."""
        try:
            os.setsid()
            isolation.become(self._user, self._layers)
            isolation.prctl(isolation.PR_SET_PDEATHSIG, signal.SIGKILL)
            isolation.prctl(isolation.PR_SET_DUMPABLE, 0)  # others of the same user may not look into this process
            try:  # the program's user must be able to read what every program needs
                os.close(os.open(os.__file__, os.O_RDONLY))
            except PermissionError:
                raise PermissionError(
                    errno.EACCES,
                    f"Python's library {os.path.dirname(os.__file__)} can be read by root alone, and model-written code is "
                    "not run as root; use a Python that every user can read, or be another user than root",
                ) from None
            if "landlock" in self._layers:
                isolation.read_only([*self._readable, *isolation.DEVICES])
            requests, replies = os.pipe(), os.pipe()
            child = os.fork()
            if child == 0:
                for other in (living, self._tests, self._report, requests[1], replies[0]):
                    os.close(other)
                self._run(requests[0], replies[1])
            os.close(requests[0])
            os.close(replies[1])
            self._confine(self._job["seconds"] + 5, max(self._job["megabytes"], 1024))
        except OSError as error:
            self._tell({"refused": str(error.strerror or error)})
            os._exit(1)
        with contextlib.suppress(BaseException):
            self._tell({"started": True})
            self._report_on(child, requests[1], replies[0])
        os._exit(0)

    def _report_on(self, child: int, requests: int, replies: int) -> None:
        patience = None
        if self._job["judged"]:
            with open(self._tests, encoding="utf-8") as file:
                given = json.load(file)
            verdict = judge(requests, replies, self._tell, given)
            self._tell(verdict)
            patience = _PATIENCE if verdict["verdict"] == "ended" else 0
        else:
            os.close(requests)
            os.close(replies)
        self._tell(_ending(child, patience))

    def _run(self, requests: int, replies: int) -> NoReturn:
        """The program's process. It ends as every Python does, with its threads waited for and its output written."""
        os.setsid()  # signals to its group reach nobody else
        isolation.prctl(isolation.PR_SET_PDEATHSIG, signal.SIGKILL)
        self._confine(self._job["seconds"], self._job["megabytes"])
        source, setup = self._job["source"], self._job["setup"]
        if self._job["judged"]:
            program.Program(requests, replies).serve(setup, source)
        else:
            os.close(requests)
            os.close(replies)
            if self._job["file"]:
                calls.serve(source, self._job["file"], self._job["folders"])
            program.run_script(source)
        sys.exit(0)

    def _confine(self, seconds: int, megabytes: int) -> None:
        isolation.limit(seconds, megabytes, self._job["disk"], self._job["open_files"], self._threads)
        if "seccomp" in self._layers:
            isolation.refuse_calls(writing="namespaces" in self._layers)


def _end_all(child: int) -> None:
    """End the child and whatever has come to be a child of this process since: orphans of all generations do."""
    ended = 0
    while True:
        for process in {child, *_children()} - {ended}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        try:
            process, _ = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        if process == child:
            ended = child


def _children() -> list[int]:
    """This process's children; none can be seen, nor are there others than the first, in namespaces."""
    children = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError):
            if name.isdigit():
                with open(f"/proc/{name}/stat") as file:
                    parent = file.read().rpartition(")")[2].split()[1]
                if int(parent) == os.getpid():
                    children.append(int(name))
    return children


def _ending(child: int, patience: float | None) -> dict[str, Any]:
    """How the program ended: its exit code, or the signal that ended it below zero, and the seconds it worked."""
    end = time.monotonic() + (patience or 0)
    while True:
        ended, status, used = os.wait4(child, 0 if patience is None else os.WNOHANG)
        if ended or time.monotonic() >= end:
            break
        time.sleep(0.01)
    return {"status": os.waitstatus_to_exitcode(status) if ended else None, "worked": used.ru_utime + used.ru_stime}
