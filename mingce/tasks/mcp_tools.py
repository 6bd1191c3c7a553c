"""The tools of MCP servers, by the official SDK: `agent.mcp=["python server.py"]`, or an address on this machine.

A server is started once and serves all conversations, so what it remembers is shared by them, and no seed reaches it.
An error that a tool reports is told to the policy; a server that dies costs the conversations that were calling it, and
is started anew by the next call. What servers log is left out. They see the few variables of the environment that the
SDK hands on, no keys.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from mingce.base.errors import EnvironmentFault, SettingError
from mingce.base.user_files import last_line
from mingce.tasks.waiting import awaited

LOOPBACK = ("localhost", "127.0.0.1", "::1")
LONGEST_RESULT = 20_000
START_SECONDS = 60.0
MOST_TOOLS = 1000
_UNSAID = logging.NullHandler()
"""Takes what the SDK logs of servers that write no protocol, where nobody has asked for it."""


class Server:
    """One MCP server, kept running by a task of the loop that lasts."""

    def __init__(self, spec: str):
        self.spec, self.target = spec, _target(spec)
        self.client: Any = None
        self.over: asyncio.Event | None = None
        self.running: asyncio.Task[None] | None = None
        self.starting = asyncio.Lock()

    async def started(self) -> Any:
        """The client of the running server, which is started if it does not run."""
        async with self.starting:
            if self.running is None or self.running.done():
                ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self.over = asyncio.Event()
                self.running = asyncio.create_task(self._serve(ready, self.over))
                try:
                    self.client = await asyncio.wait_for(ready, START_SECONDS)
                except TimeoutError as error:
                    self.running.cancel()
                    raise EnvironmentFault(
                        f"the MCP server '{self.spec}' has not answered within {START_SECONDS:g} s"
                    ) from error
            return self.client

    async def _serve(self, ready: asyncio.Future[Any], over: asyncio.Event) -> None:
        """Holds the connection open; one task enters it and leaves it, as the SDK asks."""
        from mcp import Client, StdioServerParameters, stdio_client

        quiet = open(os.devnull, "w")  # noqa: SIM115 - servers write their log to it, as long as they run
        target = self.target
        try:
            if isinstance(target, StdioServerParameters):
                target = stdio_client(target, errlog=quiet)
            async with Client(target) as client:
                ready.set_result(client)
                await over.wait()
        except BaseException as error:
            if ready.done():
                return  # the calls that wait are told
            ready.set_exception(EnvironmentFault(f"the MCP server '{self.spec}' does not start: {last_line(error)}"))
        finally:
            quiet.close()

    async def tools(self) -> list[McpTool]:
        """Everything that it offers, page by page."""
        client = await self.started()
        try:
            return await asyncio.wait_for(self._listed(client), START_SECONDS)
        except TimeoutError as error:
            raise EnvironmentFault(f"it does not list them within {START_SECONDS:g} s") from error

    async def _listed(self, client: Any) -> list[McpTool]:
        found: list[McpTool] = []
        cursor = None
        while True:
            page = await client.list_tools(cursor=cursor)
            found += [McpTool(self, tool.name, tool.description or "", tool.input_schema) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                return found
            if len(found) > MOST_TOOLS:
                raise EnvironmentFault(f"it lists more than {MOST_TOOLS:,} of them")

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """A call's result; an error of the connection ends it, so that the next call begins a new one."""
        from mcp.shared.exceptions import MCPError

        client = await self.started()
        try:
            return await client.call_tool(name, dict(arguments))
        except MCPError as error:
            if not _is_gone(error):
                raise
            await self.closed()
            raise EnvironmentFault(f"the MCP server '{self.spec}' is gone: {last_line(error)}") from error
        except Exception as error:
            await self.closed()
            raise EnvironmentFault(f"the MCP server '{self.spec}' failed: {last_line(error)}") from error

    async def closed(self) -> None:
        """Ends the server."""
        running, self.running = self.running, None
        if running is not None and self.over is not None:
            self.over.set()
            with suppress(Exception):
                await asyncio.wait_for(asyncio.shield(running), 10.0)


def _is_gone(error: Any) -> bool:
    from mcp.types import CONNECTION_CLOSED

    return getattr(getattr(error, "error", error), "code", None) == CONNECTION_CLOSED


class McpTool:
    """One tool of a server."""

    def __init__(self, server: Server, name: str, description: str, parameters: Mapping[str, Any]):
        self.server, self.name = server, name
        function = {"name": name, "description": description, "parameters": dict(parameters)}
        self.schema: dict[str, Any] = {"type": "function", "function": function}

    def call(self, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """What the tool said, and whether it worked."""
        from mcp.shared.exceptions import MCPError

        if "" in arguments:  # written between tags, which name no parameter
            names = self.schema["function"]["parameters"].get("properties", {})
            arguments = {next(iter(names), ""): arguments[""]}
        try:
            result = awaited(self.server.call(self.name, arguments))
        except MCPError as error:  # the server says that the call is wrong
            return f"Error: {last_line(error)}", False
        said = "\n".join(_text(part) for part in result.content)
        if not result.content and result.structured_content is not None:
            said = json.dumps(result.structured_content, ensure_ascii=False)
        said = said[:LONGEST_RESULT]
        return (f"Error: {said}", False) if result.is_error else (said, True)

    def close(self) -> None:
        """Ends its server."""
        awaited(self.server.closed())


def load_mcp(specs: Sequence[str]) -> list[McpTool]:
    """The tools of all the servers named."""
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        raise SettingError("agent.mcp needs the MCP SDK; install it with pip install 'mingce[mcp]'.") from error
    logging.getLogger("mcp").addHandler(_UNSAID)
    tools: list[McpTool] = []
    for spec in specs:
        server = Server(spec)
        try:
            tools += awaited(server.tools())
        except Exception as error:
            raise SettingError(
                f"agent.mcp names '{spec}', which cannot be asked for its tools ({last_line(error)}); try the command."
            ) from error
    return tools


def _target(spec: str) -> Any:
    """What the SDK's client connects to: an address on this machine, or a command over stdin and stdout."""
    from mcp import StdioServerParameters

    if spec.startswith(("http://", "https://")):
        if urlsplit(spec).hostname not in LOOPBACK:
            raise SettingError(f"agent.mcp names {spec}; only servers on this machine are called (http://127.0.0.1:…).")
        return spec
    try:
        command, *arguments = shlex.split(spec)
    except ValueError as error:
        raise SettingError(f"agent.mcp names '{spec}', which is no command ({error or 'it is empty'}).") from error
    return StdioServerParameters(command=command, args=arguments)


def _text(part: Any) -> str:
    """A part of a result as text; what is none is named by its kind."""
    text = getattr(part, "text", None)
    if isinstance(text, str):
        return text
    resource = getattr(getattr(part, "resource", None), "text", None)
    return resource if isinstance(resource, str) else json.dumps({"type": getattr(part, "type", "unknown")})
