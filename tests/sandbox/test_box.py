"""The machine for shell commands: what it holds, how it is limited, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastslow.sandbox.box import Box
from fastslow.sandbox.runner import SandboxError

try:
    Box().close()
except SandboxError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    box = Box(port=8123, memory=512, processes=64, disk=16)
    yield box
    box.close()


def test_commands_share_files_and_nothing_of_this_machine(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("sesame")
    monkeypatch.setenv("BOX_SECRET", "sesame")
    assert box.run("cat > /made; echo out; echo err >&2; exit 3", given=b"kept").code == 3
    ran = box.run(f"cat /made {tmp_path}/secret; env; ls /root /work {tmp_path}", environment={"GIVEN": "yes"})
    assert ran.output.startswith("kept")
    assert "GIVEN=yes" in ran.output
    assert "sesame" not in ran.output
    assert box.run("id -u").output.strip() not in ("0", str(os.getuid())) or os.getuid() != 0


@pytest.mark.parametrize(
    "attempt",
    [
        "touch /usr/made",
        "mount -t tmpfs none /mnt",
        "unshare --user --map-root-user true",
        "cat /proc/1/environ",
        "kill -9 1 && kill -0 1 && false",
        "cat < /dev/tcp/1.1.1.1/80",
        "cat < /dev/tcp/127.0.0.1/22",
        "head -c 64M /dev/zero > /full",
        "python3 -c 'x = bytearray(1 << 30)'",
    ],
)
def test_what_a_command_may_not(box: Box, attempt: str) -> None:
    assert box.run(f"({attempt}) 2>/dev/null; code=$?; rm -f /full; exit $code", seconds=30).code != 0
    assert box.run("echo still here").output == "still here\n"


def test_too_many_processes_and_too_much_output(box: Box) -> None:
    ran = box.run("for i in $(seq 200); do sleep 5 & done; wait", seconds=2)
    assert ran.timed_out or ran.code
    ran = box.run("head -c 5000000 /dev/zero | tr '\\0' a; echo end")
    assert ran.output.startswith("aaa")
    assert ran.output.endswith("end\n")
    assert " bytes …" in ran.output
    assert len(ran.output) < 3_000_000


def test_a_command_ends_with_its_time_or_when_it_is_stopped(box: Box) -> None:
    assert box.run("sleep 60; echo no", seconds=0.3).timed_out
    threading.Timer(0.5, box.stop).start()
    ran = box.run("sleep 60 & sleep 60; echo no", seconds=60)
    assert (ran.output, ran.code) == ("", -signal.SIGKILL)
    box.stop()  # there is nothing to stop
    assert box.run("echo yes").output == "yes\n"
    assert box.run("(setsid sleep 66 > /dev/null 2>&1 &)").left


def test_its_address_is_served_from_outside(box: Box) -> None:
    listening = box.listening
    assert listening is not None

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"hello from outside\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert box.run("cat < /dev/tcp/127.0.0.1/8123", seconds=30).output == "hello from outside\n"
    with socket.socket() as here:
        assert here.connect_ex(("127.0.0.1", 8123)) != 0  # it is not an address of this machine


def test_nothing_is_left_of_a_machine_that_is_closed_or_whose_owner_is_killed() -> None:
    box = Box()
    box.run("(setsid sleep 7171 > /dev/null 2>&1 &)")
    ended = threading.Timer(0.5, box.close)
    ended.start()
    with pytest.raises(SandboxError, match="has ended"):
        box.run("sleep 7171")
    ended.join()
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from fastslow.sandbox.box import Box; b = Box(); print(1, flush=True); b.run('sleep 7171')",
        ],
        stdout=subprocess.PIPE,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"1\n"
    for _ in range(200):
        if _sleepers():
            break
        time.sleep(0.05)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    for _ in range(200):
        if not _sleepers():
            break
        time.sleep(0.05)
    assert _sleepers() == []


def _sleepers() -> list[str]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and b"sleep\0" + b"7171" in Path("/proc", entry, "cmdline").read_bytes():
                found.append(entry)
        except OSError:
            continue
    return found
