"""Where a Harbor task is played: in the sandbox, or in a container of Docker or Podman."""

from __future__ import annotations

import asyncio
import hashlib
import io
import secrets
import shlex
import subprocess
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Literal

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.base.world import in_thread
from fastslow.sandbox.box import PATH, Box, Ran
from fastslow.tasks.adapters.harbor.folder import Folder, User, assignments, from_host, substituted

Engine = Literal["docker", "podman"]
LONGEST = 24 * 3600
"""Seconds after which a container ends by itself, if whoever started it was killed."""
_KEPT = 2**20
_OWN_PROGRAMS = "/opt/bin"


class Machine(ABC):
    """A machine that one rollout has for itself."""

    workdir: str

    async def run(
        self,
        command: str,
        *,
        seconds: float,
        environment: Mapping[str, str] | None = None,
        user: User = None,
        folder: str | None = None,
        given: bytes = b"",
    ) -> Ran:
        """Run a command of bash, by default in the task's working directory."""
        return await self._run(command, folder or self.workdir, environment or {}, seconds, user, given)

    @abstractmethod
    async def _run(
        self, command: str, folder: str, environment: Mapping[str, str], seconds: float, user: User, given: bytes
    ) -> Ran: ...

    @abstractmethod
    async def close(self) -> None:
        """End the machine and all that runs in it."""

    async def put(self, source: Path, target: str) -> None:
        """Copy a folder, or one file, to a folder of the machine."""
        packed = await in_thread(_packed, source)
        where = shlex.quote(target)
        ran = await self.run(f"mkdir -p {where} && tar -xf - -C {where}", seconds=120, folder="/", given=packed)
        if ran.code:
            raise TaskError(f"'{source.name}' cannot be copied to {target}: {one_line(ran.errors)}")


def _packed(source: Path) -> bytes:
    buffer = io.BytesIO()

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for each in sorted(source.iterdir()) if source.is_dir() else [source]:
            archive.add(each, each.name, filter=plain)
    return buffer.getvalue()


class SandboxMachine(Machine):
    """Its own files, processes and network in this machine's system, as an ordinary user (sandbox/box.py)."""

    def __init__(self, box: Box, workdir: str, environment: Mapping[str, str]) -> None:
        self.box, self.workdir, self._environment = box, workdir, dict(environment)

    @classmethod
    async def started(
        cls, folder: Folder, readable: Sequence[str], network: bool, port: int | None, first: Sequence[str] = ()
    ) -> SandboxMachine:
        """A machine as the task's environment describes it. `first` are folders of programs that are found first."""
        given = folder.config.environment
        sizes = {"disk": min(given.storage_mb or 1024, 1024), "memory": given.memory_mb or 4096}
        box = await in_thread(lambda: Box(readable=readable, network=network, port=port, **sizes))
        machine = cls(box, given.workdir or "/app", {"PATH": ":".join([*first, PATH, _OWN_PROGRAMS])})
        try:
            await machine._build(folder)
        except BaseException:
            await machine.close()
            raise
        return machine

    async def _build(self, folder: Folder) -> None:
        given = folder.config.environment
        workdir = "/app" if not folder.steps else "/"
        if any("python" in base for base in folder.bases):  # its image has the name that many a system lacks
            link = f"mkdir -p {_OWN_PROGRAMS} && ln -s $(command -v python3) {_OWN_PROGRAMS}/python"
            await self._must(f"command -v python || {{ {link}; }}", "/", folder, 60)
        for step in folder.to_build():
            if step.name in ("ENV", "ARG"):
                new = {name: substituted(value, self._environment) for name, value in assignments(step.rest).items()}
                self._environment |= new if step.name == "ENV" else {**new, **self._environment}
            elif step.name == "WORKDIR":
                workdir = str(PurePosixPath(workdir) / substituted(step.rest, self._environment).strip("\"'"))
                await self._must(f"mkdir -p {shlex.quote(workdir)}", "/", folder, given.build_timeout_sec)
            elif step.name == "RUN":
                await self._must(step.rest, workdir, folder, given.build_timeout_sec)
            elif step.name in ("COPY", "ADD"):
                await self._copy(folder, substituted(step.rest, self._environment), workdir)
            else:
                raise TaskError(
                    f"task '{folder.name}': its Dockerfile has '{step.name}', which the sandbox does not know"
                )
        self.workdir = given.workdir or workdir
        await self._must(f"mkdir -p {shlex.quote(self.workdir)}", "/", folder, 60)
        self._environment |= from_host(given.env, f"task '{folder.name}'")

    async def _must(self, command: str, workdir: str, folder: Folder, seconds: float) -> None:
        ran = await self.run(command, seconds=seconds, folder=workdir)
        if ran.code:
            last = one_line((ran.errors or ran.output).strip().rpartition("\n")[2])
            raise TaskError(
                f"task '{folder.name}' does not fit the sandbox: 'RUN {one_line(command, 60)}' ended with {ran.code}: {last}"
            )

    async def _copy(self, folder: Folder, rest: str, workdir: str) -> None:
        words = [word for word in shlex.split(rest.strip("[]").replace(",", " ")) if not word.startswith("--")]
        *sources, target = words
        root = folder.path / "environment"
        found = [each for source in sources for each in sorted(root.glob(source.strip("/") or "*"))]
        if sources in (["."], ["./"]):
            found = [root]
        if not found or any(not each.resolve().is_relative_to(root) for each in found):
            raise TaskError(f"task '{folder.name}': its environment has no {' '.join(sources)}, which it copies")
        place = str(PurePosixPath(workdir) / target)
        into = target.endswith(("/", ".")) or len(found) > 1 or found[0].is_dir()
        is_folder = await self.run(f"test -d {shlex.quote(place)}", seconds=60, folder="/")
        for each in found:
            if into or not is_folder.code:
                await self.put(each, place)
            else:
                above = str(PurePosixPath(place).parent)
                await self.put(each, above)
                if each.name != PurePosixPath(place).name:
                    move = f"mv {shlex.quote(f'{above}/{each.name}')} {shlex.quote(place)}"
                    await self._must(move, "/", folder, 60)

    async def _run(
        self, command: str, folder: str, environment: Mapping[str, str], seconds: float, user: User, given: bytes
    ) -> Ran:
        variables = {**self._environment, **environment}
        try:
            return await in_thread(
                lambda: self.box.run(command, folder=folder, environment=variables, seconds=seconds, given=given)
            )
        except asyncio.CancelledError:
            self.box.stop()
            raise

    async def close(self) -> None:
        await in_thread(self.box.close)


class ContainerMachine(Machine):
    """A container of the task's image."""

    def __init__(self, engine: Engine, name: str, workdir: str) -> None:
        self.engine, self.name, self.workdir = engine, name, workdir

    @classmethod
    async def started(cls, engine: Engine, folder: Folder, *, network: Literal["none", "host", ""]) -> ContainerMachine:
        """Build the image, where none is named, and start a container of it. Images are built once."""
        given = folder.config.environment
        image = given.docker_image or await _image(engine, folder)
        machine = cls(engine, f"fastslow-{secrets.token_hex(6)}", given.workdir or "")
        limits = {"--cpus": given.cpus, "--memory": given.memory_mb and f"{given.memory_mb}m", "--network": network}
        options = [word for name, value in limits.items() if value for word in (name, f"{value}")]
        if given.gpus:
            options += ["--gpus", str(given.gpus)]
        for name, value in from_host(given.env, f"task '{folder.name}'").items():
            options += ["--env", f"{name}={value}"]
        start = [engine, "run", "--detach", "--rm", "--init", "--label", "fastslow", "--name", machine.name]
        await _called([*start, *options, image, "sh", "-c", f"sleep {LONGEST}"], given.build_timeout_sec)
        try:
            made = await machine.run("mkdir -p /logs/agent /logs/verifier /logs/artifacts", seconds=60, user="root")
            if made.code:
                raise TaskError(f"task '{folder.name}': its container cannot be used: {one_line(made.errors)}")
        except BaseException:
            await machine.close()
            raise
        return machine

    async def _run(
        self, command: str, folder: str, environment: Mapping[str, str], seconds: float, user: User, given: bytes
    ) -> Ran:
        options = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        if user is not None:
            options += ["--user", str(user)]
        if folder:
            options += ["--workdir", folder]
        words = [self.engine, "exec", "--interactive", *options, self.name, "bash", "-c", command]
        return await _run(words, seconds, given)

    async def close(self) -> None:
        with suppress(TaskError):
            await _called([self.engine, "rm", "--force", self.name], 60)


_building: dict[str, asyncio.Lock] = {}


async def _image(engine: Engine, folder: Folder) -> str:
    """The image of the task's environment, by a hash of its files."""
    root, digest = folder.path / "environment", hashlib.sha256()
    for file in sorted(each for each in root.rglob("*") if each.is_file()):
        digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    name = f"fastslow-harbor:{digest.hexdigest()[:16]}"
    async with _building.setdefault(name, asyncio.Lock()):
        known = await _run([engine, "image", "inspect", name], 60)
        if known.code:
            seconds = folder.config.environment.build_timeout_sec
            await _called([engine, "build", "--quiet", "--tag", name, str(root)], seconds)
    return name


async def _called(words: Sequence[str], seconds: float) -> Ran:
    ran = await _run(words, seconds)
    if ran.timed_out or ran.code:
        why = f"took more than {seconds:g} seconds" if ran.timed_out else one_line(ran.errors or ran.output)
        raise TaskError(f"`{' '.join(words[:2])}` failed: {why}")
    return ran


async def _run(words: Sequence[str], seconds: float, given: bytes = b"") -> Ran:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe)
    talking, ends = talk(process, given)
    try:
        await asyncio.wait_for(asyncio.gather(*talking, process.wait()), seconds)
    except TimeoutError:
        return Ran(-9, "", "", timed_out=True)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    said, wrong = (each.decode("utf-8", "replace") for each in ends)
    return Ran(process.returncode or 0, said, wrong)


def talk(
    process: asyncio.subprocess.Process, given: bytes
) -> tuple[list[asyncio.Future[None]], tuple[bytearray, bytearray]]:
    """Write to a process what it is given, and read its output and errors, of which the last are kept."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    ends = bytearray(), bytearray()

    async def write(stream: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # it need not read it
            stream.write(given)
            await stream.drain()
        stream.close()

    async def read(stream: asyncio.StreamReader, end: bytearray) -> None:
        while piece := await stream.read(2**16):
            end += piece
            del end[:-_KEPT]

    work = (write(process.stdin), read(process.stdout, ends[0]), read(process.stderr, ends[1]))
    return [asyncio.ensure_future(each) for each in work], ends


@cache
def find_engine() -> Engine | None:
    """Docker or Podman, where one of them answers."""
    engines: tuple[Engine, ...] = ("docker", "podman")
    for engine in engines:
        with suppress(OSError, subprocess.TimeoutExpired):
            if subprocess.run([engine, "info"], capture_output=True, timeout=20, check=False).returncode == 0:
                return engine
    return None
