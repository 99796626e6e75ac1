"""Saved documents as the input of a command."""

from __future__ import annotations

import shlex
from pathlib import Path

from gpuwatch.cli.progress import progress
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.file_names import file_name
from gpuwatch.core.model.json_codec import Document, NotADocument, read


def read_document(path: Path) -> Document:
    """A saved document (JSON, or HTML that carries it); a one-line :class:`UsageError` for anything else."""
    name = file_name(path)
    progress(f"reading {name}")
    try:
        return read(path)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from error
    except NotADocument as error:
        reason, hint = (
            ("", f"for a log, use gpuwatch explain {shlex.quote(name)}") if error.is_text else (f": {error}", "")
        )
        raise UsageError(f"{name} is not a gpuwatch document{reason}", hint=hint) from error
    finally:
        progress("")
