"""What a process gives up for good: the network, other processes and the machine's files (namespaces, or Landlock in their
place), its privileges, all use beyond its limits, and system calls.

The filter of calls refuses the network, new processes, a hand on another process and what administers the machine. It
names what is refused, and refuses all newer calls. Python and its libraries work as before, and a program that asks for the
forbidden gets "Operation not permitted". It needs no privileges and cannot be taken off again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import socket
import stat
import struct
from collections.abc import Iterable, Sequence
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_SECCOMP = 1, 4, 8, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
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
_SET_USER = 1 << 7


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
    group = user if os.geteuid() == 0 else os.getegid()
    leave(user, network=False)
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


def leave(user: int, network: bool) -> None:
    """Namespaces of its own for this process, with `network` but for that one; its children are in a process namespace."""
    kinds = _MOUNTS | _NAMES | _IPC | _PROCESSES | (0 if network else _NETWORK)
    if os.geteuid() == 0:
        call("unshare", kinds)
    else:
        group = os.getegid()
        call("unshare", _USER | kinds)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    _mount("none", "/", None, _RECURSIVE | _PRIVATE)


def furnish(stage: str, readable: Sequence[str], user: int, megabytes: int) -> None:
    """The whole world of a machine for programs: an empty root that `user` may fill, what is `readable` under its own path,
    devices, and its own processes. To be called in the first process of the namespaces."""
    group = user if os.geteuid() == 0 and user != 0 else os.getegid()
    owned = f"uid={user},gid={group}"
    _mount("tmpfs", stage, "tmpfs", _NO_SUID | _NO_DEVICES, f"size={megabytes}m,mode=755,{owned}")
    for path in (*readable, *DEVICES, "/dev/full", "/dev/random"):
        _show(path, stage)
    os.makedirs(f"{stage}/dev/shm")
    _mount("tmpfs", f"{stage}/dev/shm", "tmpfs", _NO_SUID | _NO_DEVICES, f"size={megabytes}m,mode=777,{owned}")
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{stage}/dev/{name}")
    os.makedirs(f"{stage}/proc", exist_ok=True)
    _mount("proc", f"{stage}/proc", "proc", _NO_SUID | _NO_DEVICES)
    os.chdir(stage)
    call("pivot_root", b".", b".")
    call("umount2", b".", _DETACH)
    os.chdir("/")


def raise_loopback() -> None:
    """Let this network namespace reach itself."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 1))  # set flags: up


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


def become(user: int, layers: Sequence[str] = ()) -> None:
    """Be that user, without any privilege, for good. Where Landlock and the filter of calls keep all but Python's library
    from being opened or changed, the files of root can be read: its Python may lie where nobody else can look."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        prctl(PR_SET_KEEPCAPS)
        os.setresuid(user, user, user)
        if {"landlock", "seccomp"} <= set(layers):
            _hold(_SET_USER)
            call("setfsuid", 0)
    _hold(0)


def _hold(privileges: int) -> None:
    """Give up all privileges of this process in its user namespace but these."""
    call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(privileges, privileges))


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


_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""By machine: the kernel's number for it, and the column of the tables below (- where it has no such call)."""
_REFUSED = """
ptrace 101 117              kcmp 312 272                process_vm_readv 310 270    process_vm_writev 311 271
migrate_pages 256 238       move_pages 279 239          mount 165 40                umount2 166 39
pivot_root 155 41           chroot 161 51               unshare 272 97              setns 308 268
bpf 321 280                 perf_event_open 298 241     userfaultfd 323 282         keyctl 250 219
add_key 248 217             request_key 249 218         kexec_load 246 104          init_module 175 105
kexec_file_load 320 294     finit_module 313 273        delete_module 176 106       reboot 169 142
swapon 167 224              swapoff 168 225             acct 163 89                 quotactl 179 60
settimeofday 164 170        clock_settime 227 112       adjtimex 159 171            clock_adjtime 305 266
sethostname 170 161         setdomainname 171 162       iopl 172 -                  ioperm 173 -
syslog 103 116              personality 135 92          name_to_handle_at 303 264   open_by_handle_at 304 265
fanotify_init 300 262       modify_ldt 154 -            vhangup 153 58
"""
_PROGRAMS = """
socket 41 198               connect 42 203              bind 49 200                 listen 50 201
accept 43 202               accept4 288 242             sendmsg 46 211              sendmmsg 307 269
fork 57 -                   vfork 58 -                  execve 59 221               execveat 322 281
setpriority 141 140         ioprio_set 251 30           sched_setscheduler 144 119  sched_setparam 142 118
sched_setattr 314 274       sched_setaffinity 203 122   rt_sigqueueinfo 129 138     rt_tgsigqueueinfo 297 240
tkill 200 130               memfd_create 319 279        shmget 29 194               shmat 30 196
msgget 68 186               semget 64 190               mq_open 240 180
msgsnd 69 189               msgrcv 70 188               msgctl 71 187               mq_unlink 241 181
semop 65 193                semtimedop 220 192          semctl 66 191               shmctl 31 195
"""
"""What only a machine for programs may do (box.py): the network, new processes and a hand on its own."""
_WRITING = """
creat 85 -            mkdir 83 -              mkdirat 258 34           rmdir 84 -             unlink 87 -
unlinkat 263 35       rename 82 -             renameat 264 38          renameat2 316 276      link 86 -
linkat 265 37         symlink 88 -            symlinkat 266 36         mknod 133 -            mknodat 259 33
chmod 90 -            fchmod 91 52            fchmodat 268 53          chown 92 -             fchown 93 55
lchown 94 -           fchownat 260 54         truncate 76 45           utime 132 -            utimes 235 -
futimesat 261 -       utimensat 280 88        setxattr 188 5           lsetxattr 189 6        fsetxattr 190 7
removexattr 197 14    lremovexattr 198 15     fremovexattr 199 16
"""
_CLONE, _KILL, _TGKILL, _PRLIMIT = (56, 220), (62, 129), (234, 131), (302, 261)
_SENDTO, _FCNTL, _IOCTL, _OPEN, _OPENAT = (44, 206), (72, 25), (16, 29), (2, None), (257, 56)
_FIRST_NEW = 424
_NEW_AND_HARMLESS = (436, 439, 441, 449)
"""close_range, faccessat2, epoll_pwait2, futex_waitv; the rest of what is new has an older way that Python falls back to."""
_CLONE_THREAD = 0x10000
_NEW_NAMESPACES = 0x7E020000
_OPEN_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_SET_OWNER = {_FCNTL: (8, 15), _IOCTL: (0x8901, 0x8902)}
"""Commands that choose a process to be sent signals."""

_HARMLESS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Commands of ioctl that Python gives: whether a file is a terminal, how much there is to read, and how to wait and close.
Others set flags of a file that can only be read."""
_SIGNALLING, _LOCKS = ((73, 32), (253, None), (294, 26)), (5, 6, 7, 36, 37, 38, 1024, 1026)
"""System calls (flock, inotify) and commands of fcntl for locks, leases and notices: what one process does with a file that
it may only read is seen by another."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_MODE_FILTER = 2


def refuse_calls(writing: bool, locking: bool = True, programs: bool = False) -> None:
    """From now on and for good, in this process. With `writing`, files may also be written as far as they can be reached;
    without `locking`, no lock can be put on those that can be read, nor their use be seen: processes could signal by it. With
    `programs`, others may be started, and sockets opened, in the namespaces that this process is in."""
    program = _filter(writing, locking, programs)
    instructions = ctypes.create_string_buffer(program, len(program))
    whole = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(instructions))
    prctl(PR_SET_NO_NEW_PRIVS)
    prctl(PR_SET_SECCOMP, _MODE_FILTER, ctypes.create_string_buffer(whole, len(whole)))


def _filter(writing: bool, locking: bool = True, programs: bool = False) -> bytes:
    """A program for the kernel's filter machine: rules one after another, each of which returns or falls through."""
    if os.uname().machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"system calls cannot be filtered on {os.uname().machine}")
    architecture, column = _ARCHITECTURES[os.uname().machine]
    steps = [_step(_LOAD, 4), _step(_EQUAL, architecture, 1, 0), _step(_RETURN, _KILL_PROCESS), _step(_LOAD, 0)]

    def rule(number: int | None, *then: bytes) -> None:
        if number is not None:
            steps.extend([_step(_EQUAL, number, 0, len(then)), *then])

    def argument(place: int, upper: bool = False) -> bytes:
        return _step(_LOAD, 16 + 8 * place + 4 * upper)

    allow, refuse = _step(_RETURN, _ALLOW), _step(_RETURN, _ERROR | errno.EPERM)
    for number in _NEW_AND_HARMLESS:
        rule(number, allow)
    steps += [_step(_AT_LEAST, _FIRST_NEW, 0, 1), _step(_RETURN, _ERROR | errno.ENOSYS)]
    refused = [_REFUSED, *([] if writing else [_WRITING]), *([] if programs else [_PROGRAMS])]
    for number in (number for table in refused for number in _numbers(table, column)):
        rule(number, refuse)
    if programs:
        rule(_CLONE[column], argument(0), _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1), refuse, allow)
        return b"".join([*steps, allow])
    rule(_CLONE[column], argument(0), _step(_ANY_BIT, _CLONE_THREAD, 0, 1), allow, refuse)
    for own in (_KILL, _TGKILL):
        rule(own[column], argument(0), _step(_EQUAL, os.getpid(), 0, 1), allow, refuse)
    rule(_PRLIMIT[column], argument(0), _step(_EQUAL, 0, 0, 1), allow, refuse)
    address = [argument(4), _step(_EQUAL, 0, 0, 3), argument(4, upper=True), _step(_EQUAL, 0, 0, 1), allow, refuse]
    rule(_SENDTO[column], *address)
    for signalling in () if locking else _SIGNALLING:
        rule(signalling[column], refuse)
    settings = {**_SET_OWNER, _FCNTL: (*_SET_OWNER[_FCNTL], *(() if locking else _LOCKS))}
    if not writing:
        del settings[_IOCTL]
    for setting, commands in settings.items():
        checks = [_step(_EQUAL, command, len(commands) - place, 0) for place, command in enumerate(commands)]
        rule(setting[column], argument(1), *checks, allow, refuse)
    if not writing:
        checks = [_step(_EQUAL, command, len(_HARMLESS) - place, 0) for place, command in enumerate(_HARMLESS)]
        rule(_IOCTL[column], argument(1), *checks, refuse, allow)
        for opening, place in ((_OPEN, 1), (_OPENAT, 2)):
            rule(opening[column], argument(place), _step(_ANY_BIT, _OPEN_TO_WRITE, 1, 0), allow, refuse)
    return b"".join([*steps, allow])


def _numbers(table: str, column: int) -> list[int]:
    words = table.split()
    return [int(number) for number in words[1 + column :: 3] if number != "-"]


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_so, if_not, value)
