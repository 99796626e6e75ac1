"""Text for a locale or a terminal that shows only ASCII: gpuwatch's signs by their stand-ins, as on the dashboard."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys

from gpuwatch.formatting.terminal import needs_ascii

_ERRORS = "gpuwatch.signs"
_ASCII = "gpuwatch-ascii"
"""ASCII by another name: click replaces streams that call themselves ASCII by UTF-8 of its own."""
_BYTE = re.compile("[\udc80-\udcff]")
"""A byte of a file name that is no text (PEP 383)."""


def prepare() -> None:
    """From now on stdout and stderr take every text, each as what it goes to can show it.

    Documents for programs (JSON, CSV, HTML) do not go this way: they are UTF-8 everywhere.
    """
    codecs.register(_codec)
    codecs.register_error(_ERRORS, _stand_in)
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        encoding = stream.encoding or "ascii"
        if needs_ascii(os.environ, encoding, terminal=stream.isatty()):
            # Letters of another 8-bit locale stay: signs alone are what it has not.
            kept = _ASCII if encoding.lower().startswith(("utf", "ascii", "us-ascii", "ansi")) else encoding
            stream.reconfigure(encoding=kept, errors=_ERRORS)


def _codec(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != _ASCII:
        return None
    own = codecs.lookup("ascii")
    return codecs.CodecInfo(
        own.encode,
        own.decode,
        own.streamreader,
        own.streamwriter,
        own.incrementalencoder,
        own.incrementaldecoder,
        name=_ASCII,
    )


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    from gpuwatch.ui.glyphs import to_ascii

    text = error.object[error.start : error.end]
    return to_ascii(_BYTE.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", text)), error.end
