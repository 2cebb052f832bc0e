"""What a process may use, and giving up what it may do."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Any

from . import kernel

_FIRST_UNUSED = 1_000_000_000
_NOBODY = 65534


def choose_user() -> int:
    """Whom the program runs as: this user; for root an account that nobody else has, so that its processes can be counted."""
    if os.geteuid() != 0:
        return os.geteuid()
    wanted = _FIRST_UNUSED + os.getpid()
    with open("/proc/self/uid_map") as lines:
        ranges = [(int(first), int(count)) for first, _, count in map(str.split, lines)]
    return wanted if any(first <= wanted < first + count for first, count in ranges) else _NOBODY


def count_threads(user: int) -> int:
    """How many threads a user's processes have: the kernel's limit counts them all."""
    count = 0
    for process in os.scandir("/proc"):
        with contextlib.suppress(OSError):  # processes come and go
            if process.name.isdigit() and process.stat().st_uid == user:
                count += len(os.listdir(f"{process.path}/task"))
    return count


def be_expendable() -> None:
    """When the machine runs out of memory, let it be this process and its children that go."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def become(user: int) -> None:
    """Be that user, without any privilege, for good."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.drop_capabilities()


def limit(seconds: int, megabytes: int, file_megabytes: int, open_files: int, threads: int) -> None:
    """The kernel ends a process that works longer than so many seconds, and refuses it more than the rest."""
    limits: dict[int, Any] = {
        resource.RLIMIT_CPU: (seconds, seconds + 1),  # a signal that can be ignored, and one that cannot
        resource.RLIMIT_AS: megabytes * 2**20,
        resource.RLIMIT_FSIZE: file_megabytes * 2**20,
        resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_NPROC: threads,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for kind, most in limits.items():
        soft, hard = most if isinstance(most, tuple) else (most, most)
        highest = resource.getrlimit(kind)[1]
        if highest != resource.RLIM_INFINITY:  # never above what this machine allows anyway
            soft, hard = min(soft, highest), min(hard, highest)
        resource.setrlimit(kind, (soft, hard))
