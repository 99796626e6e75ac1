"""Runs a command of gpuwatch in a process of its own, and returns its document.

What takes long or reads what strangers wrote runs there: it can be ended at its deadline and when the client cancels,
and whatever it prints cannot reach the client.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec

from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.masking.mask_secrets import mask_text
from gpuwatch.core.safe_text import printable, shorten

MAX_PARALLEL_COMMANDS = 2
"""Commands that run at the same time."""
MAX_WAITING_CALLS = 8
"""Calls that may wait for their turn."""
_SIGTERM_SECONDS = 5.0
"""Seconds for a command to end what it started, after SIGTERM."""
_MAX_QUOTED_CHARS = 500
# Finds the package at its current place without putting the working directory on the path.
_START_CODE = "import sys; sys.path.append(sys.argv.pop(1)); from gpuwatch.cli.entry_point import main; main()"


class CommandRunner:
    """Runs commands, a few at a time."""

    def __init__(self, *, redact: bool) -> None:
        self._redact = redact
        self._parallel_slots = anyio.Semaphore(MAX_PARALLEL_COMMANDS)

    async def run(
        self,
        arguments: Sequence[str],
        deadline: float,
        *,
        program: Sequence[str] = (),
        stdin: int | bytes = subprocess.DEVNULL,
        folder: Path | None = None,
        inherited_fds: Sequence[int] = (),
    ) -> dict[str, Any]:
        """The document of ``gpuwatch ARGUMENTS --json -- PROGRAM``.

        ``stdin``: a descriptor, or what it reads. ``inherited_fds``: descriptors that it reads as /dev/fd/N.

        Raises:
            GpuwatchError: the command failed, or took longer than ``deadline`` seconds; with the command's own message.
        """
        if self._parallel_slots.statistics().tasks_waiting >= MAX_WAITING_CALLS:
            raise GpuwatchError("too many calls at once", hint="wait for their answers")
        redact = ["--redact"] if self._redact else []
        command = [*arguments, "--json", *redact, *(["--", *program] if program else [])]
        async with self._parallel_slots:
            return await self._run(command, deadline, stdin, folder, inherited_fds)

    async def _run(
        self, command: list[str], deadline: float, stdin: int | bytes, folder: Path | None, inherited_fds: Sequence[int]
    ) -> dict[str, Any]:
        package_parent = str(Path(__file__).resolve().parents[3])
        try:
            process = await anyio.open_process(
                [sys.executable, "-P", "-c", _START_CODE, package_parent, *command],
                stdin=subprocess.PIPE if isinstance(stdin, bytes) else stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                start_new_session=True,
                pass_fds=inherited_fds,
            )
        except ValueError as error:  # a NUL, or half a surrogate pair
            raise UsageError(f"gpuwatch {command[0]} cannot be given these arguments: {error}") from error
        except OSError as error:
            raise GpuwatchError(f"gpuwatch {command[0]} cannot be started: {error.strerror}") from error
        output, errors = bytearray(), bytearray()
        try:
            with anyio.move_on_after(deadline) as scope:
                async with anyio.create_task_group() as tasks:
                    assert process.stdout is not None
                    assert process.stderr is not None
                    if isinstance(stdin, bytes):
                        tasks.start_soon(_write, process, stdin)
                    tasks.start_soon(_read, process.stdout, output)
                    tasks.start_soon(_read, process.stderr, errors)
                code = await process.wait()
        finally:
            await _end_process(process)
        if scope.cancelled_caught:
            raise GpuwatchError(f"gpuwatch {command[0]} took longer than {deadline:g} s and was stopped")
        return _decode_document(bytes(output), bytes(errors), command[0], code)


def _decode_document(output: bytes, errors: bytes, name: str, code: int) -> dict[str, Any]:
    if len(output) > input_size_limits.MCP_DOCUMENT.bytes:
        raise GpuwatchError(f"the answer of gpuwatch {name} is larger than {input_size_limits.MCP_DOCUMENT.size_text}")
    with suppress(msgspec.DecodeError):
        document = msgspec.json.decode(output)
        if isinstance(document, dict):
            return document
    messages = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
    own_messages = [line for line in messages if line.startswith("gpuwatch: ")]
    last_message = (own_messages or messages or [""])[-1]
    message = shorten(printable(mask_text(last_message.removeprefix("gpuwatch: "))), _MAX_QUOTED_CHARS)
    raise GpuwatchError(message or f"gpuwatch {name} ended with {code}")


async def _read(stream: anyio.abc.ByteReceiveStream, output: bytearray) -> None:
    """Reads to the end; keeps what fits."""
    async for chunk in stream:
        if len(output) <= input_size_limits.MCP_DOCUMENT.bytes:
            output += chunk


async def _write(process: anyio.abc.Process, content: bytes) -> None:
    assert process.stdin is not None
    with suppress(anyio.BrokenResourceError, BrokenPipeError, ConnectionError):  # it did not read to the end
        await process.stdin.send(content)
    await process.stdin.aclose()


async def _end_process(process: anyio.abc.Process) -> None:
    """Ends the process if it still runs: SIGTERM, so that it ends what it started, then SIGKILL."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            with anyio.move_on_after(_SIGTERM_SECONDS):
                await process.wait()
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with anyio.move_on_after(1.0):
                await process.wait()
        await process.aclose()
