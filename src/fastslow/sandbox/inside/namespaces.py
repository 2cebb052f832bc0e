"""A world of its own for a process: no network, no other processes, and of all files Python's library and one folder."""

from __future__ import annotations

import os
from collections.abc import Sequence

from . import kernel

_MOUNTS, _NAMES, _IPC, _USER, _PROCESSES, _NETWORK = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_KEPT_FLAGS = 0b1111 | 1024 | 2048
"""Flags of a mount (read-only, no suid, no devices, no programs, no access times) that are numbered as statvfs does."""
_DETACH = 2
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
HOME = "/home/program"


def enter(stage: str, readable: Sequence[str], user: int, megabytes: int, files: int) -> None:
    """Leave the old world for good: what is `readable` is seen under its own path, all the rest is an empty folder, HOME,
    for `user`. The children of this process come into a process namespace of their own. `stage` is an empty folder."""
    whole = _MOUNTS | _NAMES | _IPC | _PROCESSES | _NETWORK
    if os.geteuid() == 0:
        group = user
        kernel.call("unshare", whole)
    else:
        group = os.getegid()
        kernel.call("unshare", _USER | whole)
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
    kernel.call("pivot_root", b".", b".")  # the old root now lies over the new one
    kernel.call("umount2", b".", _DETACH)
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
        kernel.call("mount", source.encode(), target.encode(), kind and kind.encode(), flags, options.encode())
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({source} on {target})") from None


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
