"""Opens the files that an assistant may read: logs and gpuwatch's own documents, checked by their real paths.

An assistant can be talked into naming any file, by the very text that it was given to look at. So a file must be
regular, be named like a log or a document, and have no hidden folder in its path once links are followed; and of what
it contains only messages that gpuwatch recognizes are quoted.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.input_size_limits import Limit

_LOG_NAME = re.compile(
    r"(?i)(?:.+\.(?:log|out|err|txt|stdout|stderr|[oe]\d+)|nohup\.out|stdout|stderr)(?:[.-]\d{1,10})?"
)
_DOCUMENT_NAME = re.compile(r"(?i).+\.json")


def open_log(path: str, folders: Sequence[Path]) -> int:
    """A descriptor of a log; :class:`UsageError` for anything else. ``folders``: only below one of these, if any."""
    return _open(
        path, folders, _LOG_NAME, "a log (*.log, *.out, *.err, *.txt)", input_size_limits.MCP_LOG, "gpuwatch explain"
    )


def open_document(path: str, folders: Sequence[Path]) -> int:
    """A descriptor of a document that gpuwatch saved, as :func:`open_log`."""
    return _open(
        path, folders, _DOCUMENT_NAME, "a document (*.json)", input_size_limits.MCP_DOCUMENT, "gpuwatch compare"
    )


def _open(
    path: str, folders: Sequence[Path], name_pattern: re.Pattern[str], expected: str, limit: Limit, command: str
) -> int:
    name = printable_path(Path(path))
    try:
        # A pipe must not be waited for; what it is shows only once it is open.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{name} is not a regular file")
        real = Path(f"/proc/self/fd/{descriptor}").readlink()
        hint = f"{command} reads any file in a terminal"
        if any(part.startswith(".") for part in real.parts):
            raise UsageError(f"{name} is hidden, or in a hidden folder", hint=hint)
        if not name_pattern.fullmatch(real.name) or real.is_relative_to("/proc") or real.is_relative_to("/sys"):
            raise UsageError(f"{name} does not have a name like {expected}", hint=hint)
        if folders and not any(real.is_relative_to(folder) for folder in folders):
            raise UsageError(f"{name} is outside the folders that --logs allows")
        if status.st_size > limit.bytes:
            raise UsageError(f"{name} is larger than {limit.size_text}", hint=f"{command} reads it in a terminal")
        if status.st_size == 0:
            raise UsageError(f"{name} is empty")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
