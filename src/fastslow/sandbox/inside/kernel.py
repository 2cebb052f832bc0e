"""The few calls of the Linux kernel that Python has no name for."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38
_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """The C library's function of that name; numbers are passed as longs, and a result of -1 is an OSError."""
    result = int(getattr(_libc, name)(*(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)))
    if result == -1:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def prctl(option: int, value: int = 1, pointer: object = 0) -> None:
    call("prctl", option, value, pointer, 0, 0)


def drop_capabilities() -> None:
    """Give up every privilege in this process's user namespace."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())
