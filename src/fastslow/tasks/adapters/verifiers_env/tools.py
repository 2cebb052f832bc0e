"""The tools of a taskset, called in this process; the library would serve them from another one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import verifiers.v1 as vf
from mcp.server.mcpserver import MCPServer
from verifiers.v1.harnesses.utils.mcp import mcp_content_to_chat_content

from fastslow.base.errors import TaskError

STATE: ContextVar[Any] = ContextVar("the state of the rollout that calls a tool")


class Tools:
    """The tools of one toolset. The library serves them from another process; here they are called where they are."""

    def __init__(self, toolset: Any) -> None:
        config = toolset.config
        if getattr(config, "url", None) or not isinstance(config.runtime, vf.SubprocessConfig):
            raise TaskError(
                f"its tools '{type(toolset).__name__}' run on another machine; expected tools that run on this one"
            )
        self.offered: list[Any] = []
        self._toolset = toolset
        with _logging_kept():
            self._server = MCPServer(toolset.server_name or type(toolset).__name__)

    async def open(self, data: Any = None) -> None:
        self._toolset._pull_state = _state
        await self._toolset.setup()
        if data is not None:
            await self._toolset.setup_task(data)
        self._toolset.register(self._server)
        for tool in await self._server.list_tools():
            name = self._prefix + tool.name
            self.offered.append(vf.Tool(name=name, description=tool.description or "", parameters=tool.input_schema))

    def has(self, name: str) -> bool:
        return any(tool.name == name for tool in self.offered)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        try:
            result = await self._server.call_tool(name.removeprefix(self._prefix), arguments)
        except Exception as error:  # a tool can fail in any way, and the policy may learn from it
            return f"error: {error}"
        return mcp_content_to_chat_content(result.content)

    async def close(self) -> None:
        await self._toolset._exit_stack.aclose()

    @property
    def _prefix(self) -> str:
        name = self._toolset.server_name
        return f"{name}_" if name else ""


async def _state() -> Any:
    return STATE.get()


@contextmanager
def _logging_kept() -> Iterator[None]:
    """A tool server sets up the logging of the whole process when it is made."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
