"""What of a document may leave: no secrets, ever; on request nobody's name either."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gpuwatch.formatting.masking import masked
from gpuwatch.formatting.redaction import redacted
from gpuwatch.formatting.secrets import MASK, mask_text, mask_value, secret_name

__all__ = ["MASK", "mask_text", "mask_value", "masked", "redacted", "secret_name", "sendable"]

_D = TypeVar("_D", bound=msgspec.Struct)


def sendable(document: _D, *, redact: bool = False) -> _D:
    """The document without secrets; with ``redact`` without users, hosts, paths, addresses and ids, too."""
    return redacted(document) if redact else masked(document)
