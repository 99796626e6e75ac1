"""Names, paths and URLs of files as text."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import quote

from gpuwatch.core.safe_text import printable


def file_name(path: Path | str) -> str:
    """The name of a file on one line, with bytes that stderr cannot show as ``\\xc3``."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    return printable(os.fsencode(path).decode(encoding, "backslashreplace"))


def tilde_path(path: Path) -> str:
    """The path as a shell takes it, with ``~`` for the home folder."""
    whole, home = str(path.absolute()), str(Path.home())
    return whole.replace(home, "~", 1) if whole.startswith(home + os.sep) else whole


def file_url(path: Path) -> str:
    """``file://host/path``: with the host, a terminal at the other end of ssh does not open its own file."""
    return f"file://{quote(os.uname().nodename)}{quote(str(path.absolute()))}"
