"""The child's side of worker.py, run as a script: `worker_child.py HANDLER SECONDS GIGABYTES`.

It reads a JSON line, replies with a JSON line, and imports nothing of this package. When a request takes too long the kernel
ends the process: SIGPROF after so many seconds of work, SIGALRM after four times as many on the clock (it may be asleep).
"""

import contextlib
import json
import os
import resource
import runpy
import signal
import sys
from typing import Any

_REFUSED = ("socket.", "subprocess.", "shutil.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.kill")
_CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")


def main(handler: str, seconds: float, gigabytes: float) -> None:
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    handle = runpy.run_path(handler)["handle"]
    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (int(gigabytes * 2**30),) * 2)
    # What the handler prints must not be taken for a reply, and what it reads must not be a request.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    sys.addaudithook(_refuse)
    replies.write("ready\n")
    for line in requests:
        _arm(seconds)
        reply = json.dumps(handle(json.loads(line)))
        _arm(0)
        replies.write(reply + "\n")


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Against accidents: no request has a reason to change files, reach the network or start a process."""
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event.startswith(_REFUSED + _CHANGES):
        raise PermissionError(f"{event} is refused here")


def _arm(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 4 * seconds)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))
