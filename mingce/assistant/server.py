"""The Model Context Protocol over the official SDK: tools, resources and prompts on stdio or on loopback HTTP.

What a client can cause is answered in one sentence; a traceback never reaches it. Tools run in threads, two at a time,
so that a long audit does not keep the protocol from answering. On stdio nothing but the protocol goes to stdout: the
SDK turns the process's own stdout to stderr while it serves.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, BinaryIO, TypeVar, cast

import anyio
import anyio.to_thread
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from mcp.types import Prompt as OfferedPrompt
from mcp.types import Resource as OfferedResource
from mcp.types import Tool as OfferedTool

import mingce
from mingce.assistant.prompts import PROMPTS, find_prompt
from mingce.assistant.resources import TOPIC_TEMPLATE, read_resource, resources
from mingce.assistant.subject import Desk
from mingce.assistant.toolbox import TOOLS, find_tool
from mingce.base.errors import MingceError
from mingce.base.texts import named, sentence, texts

AT_ONCE = 2
LONGEST_MESSAGE = 32 << 20
"""Bytes of one message on stdio; the tools themselves take far less."""
LONGEST_BODY = 4 << 20
"""Bytes of one message over HTTP."""
LONGEST_SENTENCE = 2000
MARKDOWN = "text/markdown"
T = TypeVar("T")
Context = Any
Page = PaginatedRequestParams | None


class Handlers:
    """The answers to a client's requests."""

    def __init__(self, desk: Desk):
        self.desk, self.lang = desk, desk.lang
        self._limiter = anyio.CapacityLimiter(AT_ONCE)

    async def list_tools(self, _: Context, __: Page) -> ListToolsResult:
        """Every tool with its schemas."""
        return ListToolsResult(
            tools=[
                OfferedTool(
                    name=tool.name,
                    description=tool.description(self.lang),
                    input_schema=tool.input_schema(self.lang),
                    output_schema=tool.output_schema(),
                    annotations=ToolAnnotations(
                        read_only_hint=not tool.writes, destructive_hint=False, open_world_hint=False
                    ),
                )
                for tool in TOOLS.values()
            ]
        )

    async def call_tool(self, _: Context, params: CallToolRequestParams) -> CallToolResult:
        """A tool's result, as structure and as the same JSON in text; a mistake is its sentence."""
        try:
            tool = find_tool(params.name)
            result = await self._aside(lambda: tool.call(params.arguments or {}, self.desk))
        except MingceError as error:
            return _tool_error(str(error))
        except Exception as error:  # our mistake; the client learns which tool, the terminal what it was
            return _tool_error(self._defect(params.name, error))
        text = json.dumps(result, ensure_ascii=False, allow_nan=False)
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=result)

    async def list_resources(self, _: Context, __: Page) -> ListResourcesResult:
        """Every page."""
        return ListResourcesResult(
            resources=[
                OfferedResource(
                    uri=one.uri,
                    name=one.uri.partition("://")[2],
                    title=one.title,
                    description=one.description,
                    mime_type=MARKDOWN,
                )
                for one in resources()
            ]
        )

    async def list_templates(self, _: Context, __: Page) -> ListResourceTemplatesResult:
        """How the address of a topic is made."""
        meaning = named(texts("assistant", self.lang)["resources"])["topic"]
        template = ResourceTemplate(uri_template=TOPIC_TEMPLATE, name="topic", description=meaning, mime_type=MARKDOWN)
        return ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(self, _: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """A page's Markdown."""
        uri = str(params.uri)
        text = await self._answered(lambda: read_resource(uri), "resources/read")
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, text=text, mime_type=MARKDOWN)])

    async def list_prompts(self, _: Context, __: Page) -> ListPromptsResult:
        """Every prompt with its arguments."""
        return ListPromptsResult(
            prompts=[
                OfferedPrompt(
                    name=prompt.name,
                    title=prompt.title(self.lang),
                    description=prompt.title(self.lang),
                    arguments=[
                        PromptArgument(name=name, description=prompt.meaning(name, self.lang), required=default is None)
                        for name, default in prompt.arguments.items()
                    ],
                )
                for prompt in PROMPTS.values()
            ]
        )

    async def get_prompt(self, _: Context, params: GetPromptRequestParams) -> GetPromptResult:
        """What a prompt says."""
        text = await self._answered(
            lambda: find_prompt(params.name).text(params.arguments or {}, self.lang), "prompts/get"
        )
        message = PromptMessage(role="user", content=TextContent(type="text", text=text))
        return GetPromptResult(messages=[message])

    async def _answered(self, make: Callable[[], str], what: str) -> str:
        """A text; what is wrong with the request is the protocol's error with one sentence."""
        try:
            return await self._aside(make)
        except MingceError as error:
            raise MCPError(code=INVALID_PARAMS, message=_cut(str(error))) from None
        except Exception as error:
            raise MCPError(code=INVALID_PARAMS, message=self._defect(what, error)) from None

    async def _aside(self, make: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(make, limiter=self._limiter, abandon_on_cancel=True)

    def _defect(self, name: str, error: Exception) -> str:
        said = sentence("assistant.failed", tool=name[:100], kind=type(error).__name__)
        print(f"mingce mcp: {said}: {str(error)[:500]!r}", file=sys.stderr, flush=True)
        return said


def _tool_error(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=_cut(text))], is_error=True)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SENTENCE else f"{text[: LONGEST_SENTENCE - 1]}…"


def make_server(desk: Desk) -> Server[Any]:
    """The server with every handler."""
    handlers = Handlers(desk)
    return Server(
        "mingce",
        version=mingce.__version__,
        title="mingce 明策",
        instructions=texts("assistant", desk.lang)["instructions"],
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )


# ── transports ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Lines:
    """Lines of standard input, each of a limited length; a longer one ends the connection."""

    def __init__(self, file: BinaryIO):
        self._file = file

    async def __aiter__(self) -> AsyncIterator[str]:
        while line := await anyio.to_thread.run_sync(self._file.readline, LONGEST_MESSAGE, abandon_on_cancel=True):
            if len(line) == LONGEST_MESSAGE:
                said = sentence("assistant.long_message", most=LONGEST_MESSAGE >> 20)
                print(f"mingce mcp: {said}", file=sys.stderr, flush=True)
                return
            yield line.decode("utf-8", "replace")


def serve_stdio(desk: Desk) -> None:
    """Serves the program that started this one until it closes standard input."""
    server = make_server(desk)
    private = os.fdopen(os.dup(0), "rb")
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)  # what a tool starts reads nothing of the protocol
    os.close(devnull)

    async def serve() -> None:
        async with stdio_server(stdin=cast(Any, Lines(private))) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(serve)


def serve_http(desk: Desk, port: int, started: Callable[[str], None]) -> None:
    """Serves over streamable HTTP on the loopback interface until Ctrl-C; `started` receives the address."""
    import uvicorn

    from mingce.view.serve import MAX_CONNECTIONS, listen

    listener, address = listen("127.0.0.1", port)
    app = make_server(desk).streamable_http_app(host="127.0.0.1", max_request_body_size=LONGEST_BODY)
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, lifespan="on", timeout_graceful_shutdown=1,
        ws="none", limit_concurrency=MAX_CONNECTIONS,
    )  # fmt: skip
    started(f"{address.url}mcp")
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
