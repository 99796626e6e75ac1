"""The server: tools over stdin and stdout, by the MCP SDK. The only importer of the SDK."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import select
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
from anyio.abc import TaskStatus
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from gpuwatch import __version__
from gpuwatch.core import input_size_limits
from gpuwatch.core.crash_files import describe_error
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.safe_text import printable
from gpuwatch.share.assistant.long_lived_collector import LongLivedCollector
from gpuwatch.share.assistant.mcp_tools import BY_NAME, INSTRUCTIONS, Tool, Tools
from gpuwatch.share.assistant.run_commands import Commands
from gpuwatch.share.assistant.tool_arguments import input_schema
from gpuwatch.share.assistant.tool_results import output_schema

_READ_BYTES = 1 << 16
_HEARTBEAT_SECONDS = 5.0
"""Seconds between notes of progress, for clients that give up on silent calls."""
_LAST_ANSWERS_SECONDS = 3.0
"""Seconds for the last answers, once the client has left."""
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TOO_LONG = "gpuwatch/message-too-long"
"""The method of what stands in for a message that is too long."""
_ID = re.compile(rb'"id"\s{0,9}:\s{0,9}(-?\d{1,15}|"[A-Za-z0-9._:-]{1,100}")')


def serve(*, allow_work: bool, redact: bool, folders: tuple[Path, ...], python: str | None) -> int | None:
    """Serves one client until its end of stdin, or a signal, of which it returns the number."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="gpuwatch: %(message)s")
    return anyio.run(_serve, allow_work, redact, folders, python)


async def _serve(allow_work: bool, redact: bool, folders: tuple[Path, ...], python: str | None) -> int | None:
    machine = LongLivedCollector()
    received: list[int] = []
    tools = Tools(machine, Commands(redact=redact), redact, folders, python)
    try:
        source, target = _take_standard_streams()
        server = make_server(tools, allow_work=allow_work)
        lines = _Lines(source)
        async with anyio.create_task_group() as around:
            around.start_soon(_end_after, lines.ended, around.cancel_scope)
            await around.start(_end_by_signal, received, around.cancel_scope)
            async with stdio_server(stdin=lines, stdout=_Output(target)) as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())
            around.cancel_scope.cancel()
    finally:
        machine.stop()
    return received[0] if received else None


async def _end_by_signal(
    received: list[int], scope: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Ends all by cancelling: an exception out of a signal's handler could be raised in any task, or get lost."""
    with anyio.open_signal_receiver(
        *(number for number in _END_SIGNALS if signal.getsignal(number) != signal.SIG_IGN)
    ) as signals:
        task_status.started()
        async for number in signals:
            received.append(number)
            scope.cancel()
            return


async def _end_after(ended: anyio.Event, scope: anyio.CancelScope) -> None:
    """Gives up answers that nobody reads, some seconds after the client has left."""
    await ended.wait()
    await anyio.sleep(_LAST_ANSWERS_SECONDS)
    scope.cancel()


def _take_standard_streams() -> tuple[int, int]:
    """Descriptors of stdin and stdout; whatever else is printed goes to stderr, and nobody else reads."""
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return source, target


class _Lines(anyio.AsyncFile[str]):
    """The lines of stdin. Waits without a thread, which could not be ended, and keeps no more than a message."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(io.StringIO())
        self._descriptor = descriptor
        self.ended = anyio.Event()

    async def __aiter__(self) -> AsyncIterator[str]:
        kept = bytearray()
        tail = b""
        """The end of a message that is too long."""
        dropping = False
        while chunk := await self._chunk():
            while chunk:
                line, newline, chunk = chunk.partition(b"\n")
                if not dropping and len(kept) + len(line) > input_size_limits.MCP_MESSAGE.bytes:
                    dropping, kept[_READ_BYTES:], tail = True, b"", b""
                if dropping:
                    tail = (tail + line)[-_READ_BYTES:]
                else:
                    kept += line
                if newline:
                    yield _replacement_request(bytes(kept), tail) if dropping else kept.decode(errors="replace")
                    kept.clear()
                    dropping = False
        if kept and not dropping:
            yield kept.decode(errors="replace")
        self.ended.set()

    async def _chunk(self) -> bytes:
        try:
            await anyio.wait_readable(self._descriptor)
        except PermissionError:  # a file is always readable, and cannot be waited for
            await anyio.lowlevel.checkpoint()
        return os.read(self._descriptor, _READ_BYTES)


class _Output(anyio.AsyncFile[str]):
    """stdout. Waits without a thread, so that a client which does not read cannot keep the server from ending."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(io.StringIO())
        self._descriptor = descriptor

    async def write(self, b: Any) -> int:
        data = memoryview(b.encode("utf-8", "backslashreplace"))
        while data:
            with suppress(PermissionError):  # a file can always be written, and cannot be waited for
                await anyio.wait_writable(self._descriptor)
            # A pipe that is writable takes so many bytes at once (pipe(7)).
            data = data[os.write(self._descriptor, data[: select.PIPE_BUF]) :]
        return len(b)

    async def flush(self) -> None:
        """Nothing is kept."""


def _replacement_request(start: bytes, end: bytes) -> str:
    """A request with the id of one that is too long, so that its client learns why it has no answer."""
    # Before its params, or after them: what is in between is not looked at.
    found = _ID.search(start.partition(b'"params"')[0]) or _ID.search(end.rpartition(b"}")[0].rpartition(b"}")[2])
    return f'{{"jsonrpc":"2.0","id":{found[1].decode()},"method":"{_TOO_LONG}"}}' if found else ""


def make_server(tools: Tools, *, allow_work: bool) -> Server[dict[str, Any]]:
    """The server with its tools; ``allow_work``: also those that run programs."""
    offered = [tool for tool in BY_NAME.values() if allow_work or not tool.runs_programs]
    listed = [_tool_entry(tool) for tool in offered]

    async def list_tools(
        context: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = BY_NAME.get(params.name)
        if tool is None:
            there_are = ", ".join(tool.name for tool in offered)
            return _error_result(f"no such tool: {printable(params.name[:100])} (there are {there_are})")
        if tool not in offered:
            return _error_result(f"{tool.name} is not allowed (start the server with gpuwatch mcp --allow-work)")
        async with anyio.create_task_group() as beside:
            beside.start_soon(_report_progress, context, tool.name)
            result = await _result(tools, tool, params.arguments)
            beside.cancel_scope.cancel()
        return result

    async def refuse(context: ServerRequestContext[Any, Any], params: types.RequestParams) -> types.EmptyResult:
        raise MCPError(types.INVALID_REQUEST, f"the message is longer than {input_size_limits.MCP_MESSAGE.most}")

    server: Server[dict[str, Any]] = Server(
        "gpuwatch",
        title="gpuwatch",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.add_request_handler(_TOO_LONG, types.RequestParams, refuse)
    return server


def _tool_entry(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=input_schema(tool.arguments),
        output_schema=output_schema(*tool.documents),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=not tool.runs_programs,
            destructive_hint=tool.runs_programs,
            idempotent_hint=not tool.runs_programs,
            open_world_hint=tool.runs_programs,
        ),
    )


async def _result(tools: Tools, tool: Tool, given: object) -> types.CallToolResult:
    try:
        answer = await tools.call(tool, given)
    except GpuwatchError as error:
        return _error_result(tools.message(error.message + (f" ({error.hint})" if error.hint else "")))
    except Exception as error:  # noqa: BLE001  # one line for the client, the traceback in a file
        return _error_result(tools.message("; ".join(describe_error(error))))
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=answer)


def _error_result(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)


async def _report_progress(context: ServerRequestContext[Any, Any], name: str) -> None:
    """Reports progress, if the client asked for it."""
    seconds = 0.0
    while True:
        await anyio.sleep(_HEARTBEAT_SECONDS)
        seconds += _HEARTBEAT_SECONDS
        await context.session.report_progress(seconds, message=f"{name}: {seconds:.0f} s")
