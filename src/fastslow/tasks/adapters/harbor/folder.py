"""What a Harbor task folder says: `task.toml`, `instruction.md`, and the steps of a plain `environment/Dockerfile`."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line

User = str | int | None


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Agent(_Part):
    timeout_sec: float | None = Field(default=None, gt=0)
    user: User = None
    network_mode: str | None = None


class _Verifier(_Agent):
    timeout_sec: float | None = Field(default=600.0, gt=0)
    env: dict[str, str] = {}
    environment_mode: str | None = None
    environment: dict[str, Any] | None = None
    collect: list[Any] = []


class _Environment(_Part):
    docker_image: str | None = None
    workdir: str | None = None
    env: dict[str, str] = {}
    os: str = "linux"
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    build_timeout_sec: float = Field(default=600.0, gt=0)
    network_mode: Literal["public", "no-network", "allowlist"] = "public"
    allow_internet: bool | None = None
    mcp_servers: list[Any] = []
    healthcheck: Any = None


class _Config(_Part):
    agent: _Agent = _Agent()
    verifier: _Verifier = _Verifier()
    environment: _Environment = _Environment()
    steps: list[Any] = []


_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
_PLAIN_BASE = re.compile(
    r"((docker\.io|public\.ecr\.aws/docker|mirror\.gcr\.io)/)?(library/)?(ubuntu|debian|python|alpine|busybox)"
    r"(:[\w.-]+)?(@\S+)?"
)
"""Images with nothing in them but an everyday system, which the sandbox is too."""
_INSTALLS = re.compile(
    r"\b(apt-get|apt|apk|yum|dnf|pip3?|uvx?|npm|yarn|pnpm|conda|cargo|rustup|gem|curl|wget|git clone)\s"
)
_FETCHES = re.compile(
    r"\b((apt-get|apt|apk|yum|dnf|pip3?|npm|yarn|pnpm|conda|cargo|gem)\s.*\b(install|add|update|ci|fetch)\b|uvx\s|"
    r"uv\s+(pip|run|sync|tool|add)\b|git\s+clone\s|(curl|wget)\s.*https?://(?!localhost\b|127\.|0\.0\.0\.0))"
)
_TEMPLATE = re.compile(r"\$\{(\w+)(?::-(.*))?\}")
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")


@dataclass(frozen=True)
class Step:
    """An instruction of a Dockerfile."""

    name: str
    rest: str


@dataclass(frozen=True)
class Folder:
    """One task."""

    path: Path
    name: str

    @cached_property
    def config(self) -> _Config:
        try:
            return _Config.model_validate(tomllib.loads((self.path / "task.toml").read_text(encoding="utf-8")))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise TaskError(f"'{self.path}/task.toml': {where}: {one_line(first['msg'])}; correct it") from None
        except (OSError, ValueError) as error:
            raise TaskError(f"'{self.path}/task.toml' cannot be read: {one_line(error)}") from None

    @property
    def instruction(self) -> str:
        """What the agent reads: without the lines at its top that mark the file as part of a benchmark."""
        try:
            lines = (self.path / "instruction.md").read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError) as error:
            raise TaskError(f"'{self.path}/instruction.md' cannot be read: {one_line(error)}") from None
        while lines and _CANARY.fullmatch(lines[0].strip()):
            del lines[0]
        return "\n".join(lines).strip()

    @property
    def public(self) -> bool:
        """The task may use the network."""
        environment = self.config.environment
        return environment.network_mode == "public" and environment.allow_internet is not False

    def unsupported(self) -> str:
        """Why no runtime can play it; empty if one can."""
        config, environment = self.config, self.config.environment
        compose = [*self.path.glob("environment/docker-compose.y*ml"), *self.path.glob("environment/compose.y*ml")]
        verifier = config.verifier
        separate = verifier.environment_mode == "separate" or verifier.environment is not None
        for wrong, reason in (
            (not (self.path / "instruction.md").is_file() and not config.steps, "it has no instruction.md"),
            (bool(config.steps), "it has several steps"),
            (environment.os.lower() != "linux", f"its environment is {environment.os}"),
            (bool(compose), "its environment is a docker-compose file"),
            (bool(environment.mcp_servers), "it has MCP servers"),
            (environment.healthcheck is not None, "it has a health check"),
            (separate or bool(verifier.collect), "its tests run in an environment of their own"),
            (environment.network_mode == "allowlist", "it names the hosts that it may reach (network_mode: allowlist)"),
            (not (self.path / "tests" / "test.sh").is_file(), "it has no tests/test.sh"),
        ):
            if wrong:
                return reason
        return ""

    def needs_image(self, installed: bool, network: bool = False) -> str:
        """Why it does not fit the sandbox; empty if it does. With `installed`, this machine has what its environment and its
        tests install; with `network`, tests that may use the network have it."""
        return next(self._obstacles(installed, network and self.public), "")

    def _obstacles(self, installed: bool, network: bool) -> Iterator[str]:
        environment = self.config.environment
        fetching = next(filter(_FETCHES.search, _joined(self.path / "tests" / "test.sh")), "")
        if fetching and not installed and not network:
            yield f"its tests install programs ('{one_line(fetching.strip(), 60)}')"
        if environment.gpus:
            yield "it needs a GPU"
        for role, user in (("agent", self.config.agent.user), ("verifier", self.config.verifier.user)):
            if user not in (None, "root", 0, "0"):
                yield f"its {role} is the user {user}"
        if len(self.bases) > 1:
            yield "its Dockerfile has several stages"
        if self.bases and not _PLAIN_BASE.fullmatch(self.bases[0]):
            begins = "it needs" if environment.docker_image else "its Dockerfile begins with"
            yield f"{begins} the image {self.bases[0]}"
        for step in self.steps:
            shown = one_line(f"{step.name} {step.rest}", 60)
            if not step.rest:
                yield f"its Dockerfile has {step.name} and nothing behind it"
            if step.name == "RUN" and _installs(step) and not installed:
                yield f"its Dockerfile installs programs ('{shown}')"
            if step.name == "USER" and step.rest not in ("root", "0"):
                yield f"its Dockerfile names a user ('{shown}')"
            copies = step.name in ("COPY", "ADD")
            if copies and (
                re.search(r"--from=|https?://|git@|<<", step.rest) or step.rest.split(" ")[0].endswith(".tar.gz")
            ):
                yield f"its Dockerfile fetches files ('{shown}')"
            if step.name in ("ENTRYPOINT", "SHELL", "ONBUILD") or (step.name == "RUN" and "<<" in step.rest):
                yield f"its Dockerfile has '{shown}'"
        yield ""

    @cached_property
    def steps(self) -> list[Step]:
        """The Dockerfile's instructions, with their continued lines joined; none where an image is named instead."""
        file = self.path / "environment" / "Dockerfile"
        if self.config.environment.docker_image or not file.is_file():
            return []
        found = []
        for line in _joined(file):
            name, _, rest = line.strip().partition(" ")
            found.append(Step(name.upper(), rest.strip()))
        return found

    @property
    def bases(self) -> list[str]:
        """The images that its environment begins with."""
        image = self.config.environment.docker_image
        begun = [step.rest.split() for step in self.steps if step.name == "FROM"]
        return [image] if image else [next((word for word in words if word[:2] != "--"), "") for words in begun]

    def to_build(self) -> list[Step]:
        """What is left to do in the sandbox, whose system stands for the image that the Dockerfile begins with."""
        done = ("FROM", "LABEL", "CMD", "EXPOSE", "MAINTAINER", "VOLUME", "STOPSIGNAL", "HEALTHCHECK", "USER")
        return [step for step in self.steps if step.name not in done and not (step.name == "RUN" and _installs(step))]


def _joined(file: Path) -> list[str]:
    """The lines of a file that say something, continued ones as one."""
    text = file.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return "\n".join(lines).replace("\\\n", " ").split("\n")


def _installs(step: Step) -> bool:
    return bool(_INSTALLS.search(f"{step.rest} "))


def substituted(text: str, environment: Mapping[str, str]) -> str:
    """A text with `$NAME` and `${NAME}` replaced, as in a Dockerfile."""
    return _VARIABLE.sub(lambda found: environment.get(found[1] or found[2], ""), text)


def assignments(rest: str) -> dict[str, str]:
    """The variables of an ENV or ARG instruction."""
    words = shlex.split(rest)
    if words and "=" not in words[0]:  # the old form: ENV NAME the rest of the line
        return {words[0]: " ".join(words[1:])}
    return dict(word.split("=", 1) for word in words if "=" in word)


def from_host(given: Mapping[str, str], where: str) -> dict[str, str]:
    """Variables of a task.toml, whose templates are filled from this process's environment."""
    filled = {}
    for name, value in given.items():
        template = _TEMPLATE.fullmatch(value)
        found = os.environ.get(template[1], template[2]) if template else value
        if found is None:
            assert template is not None
            raise TaskError(f"{where} needs the environment variable {template[1]}, which is not set; set it")
        filled[name] = found
    return filled


def find_folders(path: str) -> list[Folder]:
    """The task in a folder, or all that are below it, named by where they are."""
    root = Path(path).expanduser()
    if not root.is_dir():
        raise TaskError(
            f"there is no folder '{path}' (looked in {Path.cwd()}); give a Harbor task, or a folder of them"
        )
    if (root / "task.toml").is_file():
        return [Folder(root.resolve(), root.resolve().name)]
    files = sorted(root.rglob("task.toml"))
    if not files:
        raise TaskError(f"'{path}' holds no task.toml; give a Harbor task, or a folder of them")
    return [Folder(file.parent.resolve(), file.parent.relative_to(root).as_posix()) for file in files]
