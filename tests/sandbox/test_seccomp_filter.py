"""The filter of system calls, run by a small machine of our own: it decides the same on both kinds of processor."""

import errno
import os
import struct
from types import SimpleNamespace

import pytest

from fastslow.sandbox.inside import isolation

ALLOW, KILL = "allow", "kill"
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# As the kernel's headers number them.
CALLS = {
    "x86_64": {
        "read": 0, "write": 1, "mmap": 9, "ioctl": 16, "getpid": 39, "socket": 41, "connect": 42, "sendto": 44,
        "socketpair": 53, "clone": 56, "msgctl": 71, "execve": 59, "kill": 62, "fcntl": 72, "ptrace": 101,
        "tgkill": 234, "openat": 257, "unlinkat": 263,
        "prlimit64": 302, "getrandom": 318, "clone3": 435, "close_range": 436, "openat2": 437,
    },
    "aarch64": {
        "read": 63, "write": 64, "mmap": 222, "ioctl": 29, "getpid": 172, "socket": 198, "connect": 203, "sendto": 206,
        "socketpair": 199, "clone": 220, "msgctl": 187, "execve": 221, "kill": 129, "fcntl": 25, "ptrace": 117,
        "tgkill": 131, "openat": 56, "unlinkat": 35, "prlimit64": 261, "getrandom": 278,
        "clone3": 435, "close_range": 436, "openat2": 437,
    },
}  # fmt: skip


def decide(program: bytes, architecture: int, call: int, arguments: tuple[int, ...]) -> str:
    """What the kernel would do: loads, jumps and returns are all that the filter is made of."""
    data = struct.pack("IIQ6Q", call, architecture, 0, *(value % 2**64 for value in (*arguments, 0, 0, 0, 0, 0, 0)[:6]))
    steps = list(struct.iter_unpack("HBBI", program))
    place = value = 0
    while True:
        code, if_so, if_not, number = steps[place]
        place += 1
        if code == 0x20:
            (value,) = struct.unpack_from("I", data, number)
        elif code == 0x06:
            refused = os.strerror(number & 0xFFFF)
            return {0x7FFF0000: ALLOW, 0x80000000: KILL}.get(number & 0xFFFF0000, refused)
        else:
            holds = {0x15: value == number, 0x35: value >= number, 0x45: bool(value & number)}[code]
            place += if_so if holds else if_not


NOT_PERMITTED, UNKNOWN = os.strerror(errno.EPERM), os.strerror(errno.ENOSYS)
OWN = os.getpid()
THREAD = 0x3D0F00
"""The flags that a thread is made with."""
DECISIONS = [
    *(
        (name, (), ALLOW, ALLOW)
        for name in ("read", "write", "mmap", "getpid", "getrandom", "socketpair", "close_range")
    ),
    *((name, (), NOT_PERMITTED, NOT_PERMITTED) for name in ("socket", "connect", "execve", "ptrace")),
    *((name, (), UNKNOWN, UNKNOWN) for name in ("clone3", "openat2")),
    ("clone", (THREAD,), ALLOW, ALLOW),
    ("clone", (17,), NOT_PERMITTED, NOT_PERMITTED),
    ("kill", (OWN, 15), ALLOW, ALLOW),
    ("kill", (OWN + 1, 9), NOT_PERMITTED, NOT_PERMITTED),
    ("kill", (0, 9), NOT_PERMITTED, NOT_PERMITTED),
    ("kill", (-1, 9), NOT_PERMITTED, NOT_PERMITTED),
    ("tgkill", (OWN, OWN, 6), ALLOW, ALLOW),
    ("tgkill", (OWN + 1, OWN, 6), NOT_PERMITTED, NOT_PERMITTED),
    ("prlimit64", (0, 7), ALLOW, ALLOW),
    ("prlimit64", (OWN + 1, 7), NOT_PERMITTED, NOT_PERMITTED),
    ("sendto", (5, 1, 1, 0, 0), ALLOW, ALLOW),
    ("sendto", (5, 1, 1, 0, 4096), NOT_PERMITTED, NOT_PERMITTED),
    ("sendto", (5, 1, 1, 0, 2**40), NOT_PERMITTED, NOT_PERMITTED),
    ("fcntl", (5, 3), ALLOW, ALLOW),
    ("fcntl", (5, 8), NOT_PERMITTED, NOT_PERMITTED),
    ("fcntl", (5, 15), NOT_PERMITTED, NOT_PERMITTED),
    ("ioctl", (5, 0x5401), ALLOW, ALLOW),
    ("ioctl", (5, 0x8901), NOT_PERMITTED, NOT_PERMITTED),
    ("ioctl", (5, 0x40086602), ALLOW, NOT_PERMITTED),  # flags of a file
    ("msgctl", (0, 0), NOT_PERMITTED, NOT_PERMITTED),
    ("openat", (-100, 4096, os.O_RDONLY | os.O_CLOEXEC), ALLOW, ALLOW),
    ("openat", (-100, 4096, os.O_RDWR), ALLOW, NOT_PERMITTED),
    ("openat", (-100, 4096, os.O_WRONLY | os.O_CREAT), ALLOW, NOT_PERMITTED),
    ("openat", (-100, 4096, os.O_TRUNC), ALLOW, NOT_PERMITTED),
    ("unlinkat", (-100, 4096), ALLOW, NOT_PERMITTED),
]


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(("name", "arguments", "writing", "reading"), DECISIONS)
def test_every_call_is_decided_the_same_way(
    monkeypatch: pytest.MonkeyPatch, machine: str, name: str, arguments: tuple[int, ...], writing: str, reading: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine))
    for expected, may_write in ((writing, True), (reading, False)):
        program = isolation._filter(may_write)
        assert decide(program, ARCHITECTURES[machine], CALLS[machine][name], arguments) == expected


def test_another_kind_of_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program = isolation._filter(writing=True)
    assert decide(program, 0x40000003, 4, ()) == KILL  # the 32-bit calls of x86, which have other numbers
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    with pytest.raises(OSError, match="system calls cannot be filtered on riscv64"):
        isolation._filter(writing=True)
