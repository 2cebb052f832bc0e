"""Programs that mean harm. Each prints ESCAPED when it got what it wanted; the rest of what it prints is for its own test.

Run as a script, `hostile.py HOST LAYERS NAME…`, all in JSON, it runs those within the given protections and prints how they
ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from fastslow.sandbox.runner import Outcome, run_code

TRY = """
import contextlib, ctypes, os, resource, signal, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)

@contextlib.contextmanager
def attempt(what):
    try:
        yield
        print("ESCAPED", what, flush=True)
    except (OSError, ValueError, RuntimeError) as error:
        print("refused", what, type(error).__name__, flush=True)

def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
"""

PROGRAMS = {
    "fork bomb": "while True:\n    os.fork()",
    "fork": "with attempt('fork'):\n    os.fork()\nwith attempt('vfork'):\n    checked(libc.syscall(58) or 1)",
    "clone3": "with attempt('clone3'):\n    checked(libc.syscall(435, ctypes.create_string_buffer(88), 88))",
    "daemon that outlives": """
with attempt('daemon'):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
""",
    "other programs": """
import subprocess
with attempt('subprocess'):
    subprocess.run(['/bin/true'], check=True)
with attempt('exec'):
    os.execv('/bin/sh', ['sh', '-c', 'echo ESCAPED'])
if os.system('true') == 0:
    print('ESCAPED system')
""",
    "thread bomb": """
count = 0
try:
    while count < 3000:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        count += 1
except (RuntimeError, MemoryError):
    pass
print(count)
""",
    "thread bomb of small stacks": """
threading.stack_size(max(32768, os.sysconf("SC_THREAD_STACK_MIN")))
count = 0
try:
    while count < 20000:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        count += 1
except (RuntimeError, MemoryError):
    pass
print(count)
""",
    "memory bomb": "hoard = []\nwhile True:\n    hoard.append(bytes(2**24))",
    "memory at once": "bytearray(2**40)",
    "shared memory": """
import mmap
hoard = []
try:
    while len(hoard) < 64:
        hoard.append(mmap.mmap(-1, 2**26))
except OSError:
    pass
print(len(hoard) * 64)
with attempt('memfd'):
    os.memfd_create('hoard')
with attempt('shmget'):
    checked(libc.shmget(0, 2**20, 0o1600))
with attempt('/dev/shm'):
    open('/dev/shm/hoard', 'w').write('x')
""",
    "disk filling": """
size = 0
try:
    for number in range(1000):
        with open(f'file{number}', 'wb', buffering=0) as file:
            while size < 2**30:
                size += file.write(bytes(2**20))
except OSError as error:
    print(type(error).__name__, size // 2**20)
""",
    "one large file": """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with attempt('large file'):
    os.truncate(os.open('large', os.O_CREAT | os.O_RDWR), 2**40)
""",
    "many files": """
count = 0
try:
    while count < 100_000:
        open(f'{count}', 'w').close()
        count += 1
except OSError:
    pass
print(count)
""",
    "many open files": """
hoard = []
try:
    while len(hoard) < 10_000:
        hoard.append(os.dup(1))
except OSError:
    pass
print(len(hoard))
""",
    "endless output": "while True:\n    print('x' * 1000)",
    "endless errors": "while True:\n    sys.stderr.write('x' * 1000)",
    "endless line": "while True:\n    os.write(1, b'x' * 64)",
    "connect": """
with attempt('connect'):
    socket.create_connection(('127.0.0.1', HOST['port']), timeout=2)
""",
    "listen": """
with attempt('listen'):
    socket.create_server(('127.0.0.1', 0))
""",
    "names and datagrams": """
with attempt('DNS'):
    socket.getaddrinfo('example.org', 80)
    socket.create_connection(('example.org', 80), timeout=2)
with attempt('UDP'):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', HOST['port']))
""",
    "local sockets": """
with attempt('abstract socket'):
    socket.socket(socket.AF_UNIX).connect(chr(0) + HOST['socket'])
with attempt('pair'):
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b'x', chr(0) + HOST['datagrams'])
with attempt('pair, message'):
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendmsg([b'x'], [], 0, chr(0) + HOST['datagrams'])
""",
    "environment": """
print(dict(os.environ))
for process in ('self', os.getppid(), HOST['pid']):
    try:
        print(open(f'/proc/{process}/environ').read())
    except OSError as error:
        print(type(error).__name__)
""",
    "home and repository": """
with contextlib.suppress(OSError):
    print('home', *os.listdir(HOST['home']))
for path in (HOST['repository'], HOST['folder']):
    with attempt(path):
        os.listdir(path)
for path in (HOST['secret'], HOST['repository'] + '/README.md'):
    with attempt(path):
        print(open(path).read())
with attempt('key'):
    open(HOST['home'] + '/.ssh/id_rsa', 'rb').read(10)
""",
    "passwords": """
for path in ('/etc/shadow', '/etc/sudoers', '/proc/1/environ', '/proc/kcore'):
    with attempt(path):
        open(path, 'rb').read(10)
""",
    "writing outside": """
for path in (HOST['canary'], HOST['folder'] + '/new', '/tmp/new', '/etc/new', '/usr/lib/new', os.__file__, '/new'):
    with attempt(path):
        open(path, 'a').write('harm')
for change in (os.remove, os.rmdir, lambda path: os.rename(path, path + '2'), lambda path: os.chmod(path, 0o777)):
    with attempt('change'):
        change(HOST['canary'])
""",
    "changing what exists": """
for change in (lambda path: os.truncate(path, 0), lambda path: os.utime(path, (1, 1)), lambda path: os.chmod(path, 0o666),
               lambda path: os.chown(path, -1, -1), lambda path: os.setxattr(path, 'user.x', b'x')):
    for path in (HOST['secret'], HOST['canary'], os.__file__):
        with attempt(path):
            change(path)
""",
    "links out of the folder": """
with attempt('symbolic link'):
    os.symlink(HOST['canary'], 'link')
    open('link', 'a').write('harm')
with attempt('hard link'):
    os.link(HOST['canary'], 'link2')
    open('link2', 'a').write('harm')
with attempt('dots'):
    open('../' * 20 + HOST['canary'].lstrip('/'), 'a').write('harm')
""",
    "signals": """
for victim in (HOST['pid'], HOST['victim'], os.getppid(), -HOST['pid']):
    with attempt(f'kill {victim}'):
        os.kill(victim, signal.SIGKILL)
with attempt('owner'):
    import fcntl
    one, other = os.pipe()
    fcntl.fcntl(one, fcntl.F_SETOWN, HOST['victim'])
    fcntl.fcntl(one, 10, signal.SIGKILL)
    fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
    os.write(other, b'x')
""",
    "killing its group": "os.killpg(0, signal.SIGKILL)",
    "ignoring signals": """
libc.prctl(1, 0, 0, 0, 0)  # nor the end of its parent
for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGXCPU, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
while True:
    pass
""",
    "sleeping": "time.sleep(600)",
    "sleeping without files": "os.closerange(0, 100)\nwhile True:\n    time.sleep(600)",
    "waiting for a thread": "threading.Thread(target=time.sleep, args=(600,)).start()",
    "busy in C": "10 ** 10 ** 10",
    "deep recursion": "sys.setrecursionlimit(10**8)\nclass A:\n    def __repr__(self):\n        return repr(self)\nrepr(A())",
    "segmentation fault": "ctypes.string_at(1)",
    "inherited files": """
for number in range(3, 1000):
    with contextlib.suppress(OSError):
        os.fstat(number)
        print('ESCAPED', number)
    with contextlib.suppress(OSError):
        os.write(number, b'{"started": true, "verdict": "passed", "status": 0}')
sys.exit(3)
""",
    "false report": """
for number in (1, 2):
    os.write(number, b'\\n{"started": true, "verdict": "passed", "status": 0, "ended": "done"}\\n')
sys.exit(3)
""",
    "raising limits": """
for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
    with attempt(kind):
        resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
with attempt('limits of another'):
    resource.prlimit(HOST['victim'], resource.RLIMIT_CPU, (1, 1))
with attempt('priority of another'):
    os.setpriority(os.PRIO_PROCESS, HOST['victim'], 19)
""",
    "looking into others": """
for victim in (HOST['victim'], HOST['pid'], os.getppid()):
    with attempt(f'ptrace {victim}'):
        checked(libc.ptrace(16, victim, 0, 0))
    with attempt(f'memory {victim}'):
        open(f'/proc/{victim}/mem', 'rb')
    with attempt(f'files {victim}'):
        print(os.listdir(f'/proc/{victim}/fd'))
""",
    "administration": """
with attempt('setuid'):
    os.setuid(0)
with attempt('unshare'):
    checked(libc.unshare(0x10000000))
with attempt('mount'):
    checked(libc.mount(b'tmpfs', b'/', b'tmpfs', 0, None))
with attempt('chroot'):
    os.chroot('.')
with attempt('host name'):
    socket.sethostname('harm')
for name, number in {'io_uring': 425, 'bpf': 321, 'keyctl': 250, 'perf': 298, 'userfaultfd': 323}.items():
    with attempt(name):
        checked(libc.syscall(number, 0, 0, 0, 0, 0))
""",
    "deleting its folder": """
import shutil
shutil.rmtree(os.getcwd(), ignore_errors=True)
with contextlib.suppress(OSError):
    os.rmdir(os.getcwd())
print(os.path.exists('.'))
""",
    "a folder that cannot be removed": """
for _ in range(100):
    os.mkdir('deep')
    os.chmod('.', 0o700)
    os.chdir('deep')
os.chmod('.', 0)
""",
}

SLOW = ("ignoring signals", "sleeping", "sleeping without files", "waiting for a thread", "busy in C", "deep recursion")
"""Those that only the clock ends, or may end."""
LIMITED = (
    "memory bomb",
    "memory at once",
    "endless output",
    "endless errors",
    "endless line",
    "many open files",
    "segmentation fault",
    "false report",
)
"""Those that the limits stop, whatever walls there are."""


def run_all(host: dict[str, object], layers: Sequence[str] | None, names: Sequence[str]) -> dict[str, Outcome]:
    """Several at once, as the sleepers take no work."""

    def one(name: str) -> Outcome:
        seconds = 1 if name in SLOW else 5  # the others end by themselves, on a busy machine later
        return run_code(f"HOST = {host!r}\n{TRY}\n{PROGRAMS[name]}", seconds=seconds, megabytes=256, layers=layers)

    with ThreadPoolExecutor(8) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


if __name__ == "__main__":
    given, walls, *chosen = map(json.loads, sys.argv[1:])
    ended = run_all(given | {"pid": os.getpid()}, walls, chosen)
    print(json.dumps({name: vars(outcome) for name, outcome in ended.items()}))
