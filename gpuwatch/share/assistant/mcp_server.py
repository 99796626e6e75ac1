"""The MCP server: tools over stdin and stdout, by the MCP SDK. The only importer of the SDK."""

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
from gpuwatch.share.assistant.mcp_tools import INSTRUCTIONS, TOOLS, Tool, ToolContext
from gpuwatch.share.assistant.run_commands import CommandRunner
from gpuwatch.share.assistant.tool_arguments import input_schema
from gpuwatch.share.assistant.tool_results import output_schema

_READ_BYTES = 1 << 16
_HEARTBEAT_SECONDS = 5.0
"""Seconds between notes of progress, for clients that give up on silent calls."""
_LAST_ANSWERS_SECONDS = 3.0
"""Seconds for the last answers, once the client has left."""
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TOO_LONG_METHOD = "gpuwatch/message-too-long"
"""The method of what stands in for a message that is too long."""
_REQUEST_ID = re.compile(rb'"id"\s{0,9}:\s{0,9}(-?\d{1,15}|"[A-Za-z0-9._:-]{1,100}")')


def serve(*, allow_work: bool, redact: bool, folders: tuple[Path, ...], python: str | None) -> int | None:
    """Serves one client until its end of stdin, or a signal, of which it returns the number."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="gpuwatch: %(message)s")
    return anyio.run(_serve, allow_work, redact, folders, python)


async def _serve(allow_work: bool, redact: bool, folders: tuple[Path, ...], python: str | None) -> int | None:
    collector = LongLivedCollector()
    received_signals: list[int] = []
    tool_context = ToolContext(collector, CommandRunner(redact=redact), redact, folders, python)
    try:
        stdin_descriptor, stdout_descriptor = _take_standard_streams()
        server = make_server(tool_context, allow_work=allow_work)
        stdin_lines = _StdinLines(stdin_descriptor)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_after, stdin_lines.ended, tasks.cancel_scope)
            await tasks.start(_end_by_signal, received_signals, tasks.cancel_scope)
            async with stdio_server(stdin=stdin_lines, stdout=_StdoutWriter(stdout_descriptor)) as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())
            tasks.cancel_scope.cancel()
    finally:
        collector.stop()
    return received_signals[0] if received_signals else None


async def _end_by_signal(
    received_signals: list[int], scope: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Ends all by cancelling: an exception out of a signal's handler could be raised in any task, or get lost."""
    numbers = [number for number in _END_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    with anyio.open_signal_receiver(*numbers) as signals:
        task_status.started()
        async for number in signals:
            received_signals.append(number)
            scope.cancel()
            return


async def _end_after(ended: anyio.Event, scope: anyio.CancelScope) -> None:
    """Gives up answers that nobody reads, some seconds after the client has left."""
    await ended.wait()
    await anyio.sleep(_LAST_ANSWERS_SECONDS)
    scope.cancel()


def _take_standard_streams() -> tuple[int, int]:
    """Descriptors of stdin and stdout; whatever else is printed goes to stderr, and nobody else reads."""
    stdin_descriptor, stdout_descriptor = os.dup(0), os.dup(1)
    null_input = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_input, 0)
    os.dup2(2, 1)
    os.close(null_input)
    return stdin_descriptor, stdout_descriptor


class _StdinLines(anyio.AsyncFile[str]):
    """The lines of stdin. Waits without a thread, which could not be ended, and keeps no more than a message."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(io.StringIO())
        self._descriptor = descriptor
        self.ended = anyio.Event()

    async def __aiter__(self) -> AsyncIterator[str]:
        buffer = bytearray()
        tail = b""
        """The end of a message that is too long."""
        skipping = False
        while chunk := await self._read_chunk():
            while chunk:
                line, newline, chunk = chunk.partition(b"\n")
                if not skipping and len(buffer) + len(line) > input_size_limits.MCP_MESSAGE.bytes:
                    skipping, buffer[_READ_BYTES:], tail = True, b"", b""
                if skipping:
                    tail = (tail + line)[-_READ_BYTES:]
                else:
                    buffer += line
                if newline:
                    yield (_replacement_request(bytes(buffer), tail) if skipping else buffer.decode(errors="replace"))
                    buffer.clear()
                    skipping = False
        if buffer and not skipping:
            yield buffer.decode(errors="replace")
        self.ended.set()

    async def _read_chunk(self) -> bytes:
        try:
            await anyio.wait_readable(self._descriptor)
        except PermissionError:  # a file is always readable, and cannot be waited for
            await anyio.lowlevel.checkpoint()
        return os.read(self._descriptor, _READ_BYTES)


class _StdoutWriter(anyio.AsyncFile[str]):
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
    # What is in its params is not looked at.
    before, after = start.partition(b'"params"')[0], end.rpartition(b"}")[0].rpartition(b"}")[2]
    request_id = _REQUEST_ID.search(before) or _REQUEST_ID.search(after)
    return f'{{"jsonrpc":"2.0","id":{request_id[1].decode()},"method":"{_TOO_LONG_METHOD}"}}' if request_id else ""


def make_server(tool_context: ToolContext, *, allow_work: bool) -> Server[dict[str, Any]]:
    """The server with its tools; ``allow_work``: also those that run programs."""
    offered = [tool for tool in TOOLS.values() if allow_work or not tool.runs_programs]
    tool_entries = [_tool_entry(tool) for tool in offered]

    async def list_tools(
        context: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tool_entries)

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            names = ", ".join(tool.name for tool in offered)
            return _error_result(f"no such tool: {printable(params.name[:100])} (there are {names})")
        if tool not in offered:
            return _error_result(f"{tool.name} is not allowed (start the server with gpuwatch mcp --allow-work)")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_report_progress, context, tool.name)
            result = await _call_tool(tool_context, tool, params.arguments)
            tasks.cancel_scope.cancel()
        return result

    async def refuse(context: ServerRequestContext[Any, Any], params: types.RequestParams) -> types.EmptyResult:
        raise MCPError(types.INVALID_REQUEST, f"the message is longer than {input_size_limits.MCP_MESSAGE.size_text}")

    server: Server[dict[str, Any]] = Server(
        "gpuwatch",
        title="gpuwatch",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.add_request_handler(_TOO_LONG_METHOD, types.RequestParams, refuse)
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


async def _call_tool(tool_context: ToolContext, tool: Tool, arguments: object) -> types.CallToolResult:
    try:
        answer = await tool_context.call(tool, arguments)
    except GpuwatchError as error:
        return _error_result(tool_context.message(error.message + (f" ({error.hint})" if error.hint else "")))
    except Exception as error:  # noqa: BLE001  # one line for the client, the traceback in a file
        return _error_result(tool_context.message("; ".join(describe_error(error))))
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
