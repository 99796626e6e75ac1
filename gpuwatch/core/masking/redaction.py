"""Documents as they may leave this machine: secrets masked, with ``--redact`` also users, hosts, paths and ids."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gpuwatch.core.masking.mask_secrets import masked
from gpuwatch.core.masking.redactor import Redactor

_Document = TypeVar("_Document", bound=msgspec.Struct)

NOTE = (
    "Redacted: users, hosts, paths, addresses and ids are replaced where a field or the form of the text identifies "
    "them. A name that nothing identifies may remain: read this before you send it."
)
"""What a redacted output says of itself, in its first lines."""


def redacted(document: _Document) -> _Document:
    """A copy without secrets, users, hosts, paths, addresses and ids."""
    plain = msgspec.to_builtins(masked(document))
    redactor = Redactor()
    redactor.learn(plain)
    fields: dict[str, Any] = redactor.replaced(plain)
    if "redacted" in fields:
        fields["redacted"] = True
    return msgspec.convert(fields, type(document))


def masked_for_sending(document: _Document, *, redact: bool = False) -> _Document:
    """The document as it may leave this machine: secrets masked; with ``redact`` also :func:`redacted`."""
    return redacted(document) if redact else masked(document)
