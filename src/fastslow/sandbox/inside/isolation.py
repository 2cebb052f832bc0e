"""What a process gives up for good: the network, other processes and the machine's files (namespaces, or Landlock in their
place), its privileges, and all use beyond its limits. See seccomp.py for its system calls."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import stat
import struct
from collections.abc import Iterable, Sequence
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38
_libc = ctypes.CDLL(None, use_errno=True)
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
HOME = "/home/program"
_MOUNTS, _NAMES, _IPC, _USER, _PROCESSES, _NETWORK = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_KEPT_FLAGS = 0b1111 | 1024 | 2048
"""Flags of a mount (read-only, no suid, no devices, no programs, no access times) that are numbered as statvfs does."""
_DETACH = 2
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # Landlock's calls, the same on every machine
_ALL_RIGHTS = 0x1FFF
"""What Landlock's first version knows: reading, writing, making and removing files and folders of every kind."""
_READ_FILE, _READ_FOLDER = 0x4, 0x8
_FIRST_UNUSED = 1_000_000_000
_NOBODY = 65534


def call(name: str, *arguments: object) -> int:
    """The C library's function of that name; numbers are passed as longs, and a result of -1 is an OSError."""
    result = int(getattr(_libc, name)(*(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)))
    if result == -1:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def prctl(option: int, value: int = 1, pointer: object = 0) -> None:
    call("prctl", option, value, pointer, 0, 0)


def enter(stage: str, readable: Sequence[str], user: int, megabytes: int, files: int) -> None:
    """Leave the old world for good: what is `readable` is seen under its own path, all the rest is an empty folder, HOME,
    for `user`. The children of this process come into a process namespace of their own. `stage` is an empty folder."""
    whole = _MOUNTS | _NAMES | _IPC | _PROCESSES | _NETWORK
    if os.geteuid() == 0:
        group = user
        call("unshare", whole)
    else:
        group = os.getegid()
        call("unshare", _USER | whole)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    _mount("none", "/", None, _RECURSIVE | _PRIVATE)
    _mount("tmpfs", stage, "tmpfs", _NO_SUID | _NO_DEVICES, "size=1m,nr_inodes=1000,mode=755")
    for path in (*readable, *DEVICES):
        _show(path, stage)
    home = stage + HOME
    os.makedirs(home)
    limits = f"size={megabytes}m,nr_inodes={files},mode=700,uid={user},gid={group}"
    _mount("tmpfs", home, "tmpfs", _NO_SUID | _NO_DEVICES, limits)
    _mount("none", stage, None, _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEVICES)
    os.chdir(stage)
    call("pivot_root", b".", b".")  # the old root now lies over the new one
    call("umount2", b".", _DETACH)
    os.chdir(HOME)


def _show(path: str, stage: str) -> None:
    """Make a file or folder appear in the new world, for reading; a symbolic link as one."""
    if not os.path.lexists(path) or os.path.lexists(stage + path):
        return
    os.makedirs(os.path.dirname(stage + path), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), stage + path)
        return
    if os.path.isdir(path):
        os.mkdir(stage + path)
    else:
        _write(stage + path, "")
    _mount(path, stage + path, None, _BIND)
    # A mount keeps the restrictions it has: a user namespace may add some, never lift one.
    kept = os.statvfs(path).f_flag & _KEPT_FLAGS
    devices = 0 if path in DEVICES else _NO_DEVICES
    _mount("none", stage + path, None, _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | devices | kept)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    try:
        call("mount", source.encode(), target.encode(), kind and kind.encode(), flags, options.encode())
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({source} on {target})") from None


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def read_only(paths: Iterable[str]) -> None:
    """Landlock (Linux 5.13, no privileges needed): only these paths can be opened, and they cannot be written."""
    rules = call("syscall", _CREATE, struct.pack("Q", _ALL_RIGHTS), 8, 0)
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            folder = stat.S_ISDIR(os.fstat(place).st_mode)
            rights = _READ_FILE | _READ_FOLDER if folder else _READ_FILE
            call("syscall", _ADD, rules, 1, struct.pack("=Qi", rights, place), 0)
            os.close(place)
    prctl(PR_SET_NO_NEW_PRIVS)
    call("syscall", _RESTRICT, rules, 0)
    os.close(rules)


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
    call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())  # every one in this user namespace


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
