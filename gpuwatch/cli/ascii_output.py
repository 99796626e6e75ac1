"""Output for locales and terminals that show only ASCII: symbols are replaced, as on the dashboard."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys

from gpuwatch.core.formatting.terminal_support import needs_ascii

_ERRORS = "gpuwatch.signs"
_ASCII = "gpuwatch-ascii"
"""Another name of ASCII: click replaces streams with the encoding "ascii" by its own UTF-8 streams."""
_BYTE = re.compile("[\udc80-\udcff]")
"""An undecodable byte of a file name (PEP 383)."""


def prepare_output() -> None:
    """Make stdout and stderr accept any text, replacing what their locale or terminal cannot show.

    Documents for programs (JSON, CSV, HTML) are not written this way: they are always UTF-8.
    """
    codecs.register(_codec)
    codecs.register_error(_ERRORS, _replacement)
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        encoding = stream.encoding or "ascii"
        if needs_ascii(os.environ, encoding, terminal=stream.isatty()):
            # The letters of another 8-bit locale stay; only symbols are replaced.
            kept = _ASCII if encoding.lower().startswith(("utf", "ascii", "us-ascii", "ansi")) else encoding
            stream.reconfigure(encoding=kept, errors=_ERRORS)


def _codec(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != _ASCII:
        return None
    own = codecs.lookup("ascii")
    return codecs.CodecInfo(
        *own, incrementalencoder=own.incrementalencoder, incrementaldecoder=own.incrementaldecoder, name=_ASCII
    )


def _replacement(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    from gpuwatch.ui.drawing.glyphs import to_ascii

    text = error.object[error.start : error.end]
    return to_ascii(_BYTE.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", text)), error.end
