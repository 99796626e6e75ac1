"""Documents as they may leave this machine: secrets masked, with ``--redact`` also users, hosts, paths and ids."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gpuwatch.core.masking.mask_secrets import MASK, mask_lines, mask_text, mask_value

_Document = TypeVar("_Document", bound=msgspec.Struct)

NOTE = (
    "Redacted: users, hosts, paths, addresses and ids are replaced where a field or the form of the text identifies "
    "them. A name that nothing identifies may remain: read this before you send it."
)
"""What a redacted output says of itself, in its first lines."""


def masked(document: _Document) -> _Document:
    """A copy of the document with its secrets masked."""
    return msgspec.convert(_masked_copy(msgspec.to_builtins(document)), type(document))


def redacted(document: _Document) -> _Document:
    """A copy without secrets, users, hosts, paths, addresses and ids."""
    from gpuwatch.core.masking.redactor import Redactor  # most documents stay on this machine

    plain = msgspec.to_builtins(masked(document))
    redactor = Redactor()
    redactor.learn(plain)
    fields: dict[str, Any] = redactor.replaced(plain)
    if "redacted" in fields:
        fields["redacted"] = True
    return msgspec.convert(fields, type(document))


def masked_for_sending(document: _Document, *, redact: bool = False) -> _Document:
    """The document as it may leave this machine: :func:`masked`, or with ``redact`` :func:`redacted`."""
    return redacted(document) if redact else masked(document)


def _masked_copy(value: Any) -> Any:
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        hidden = {key: _masked_entry(key, item) for key, item in value.items()}
        name = value.get("name")
        if isinstance(name, str):  # a variable
            hidden |= {
                key: _masked_variable(name, value[key], hidden[key]) for key in ("value", "values") if key in value
            }
        return hidden
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, str) for item in value):
            return mask_lines(value)
        return [_masked_copy(item) for item in value]
    return value


def _masked_variable(name: str, value: Any, shown: Any) -> Any:
    """A variable's value: masked if the name is that of a secret, else ``shown``."""
    if isinstance(value, (list, tuple)):
        return [_masked_variable(name, item, other) for item, other in zip(value, shown, strict=True)]
    return MASK if isinstance(value, str) and mask_value(name, value) == MASK else shown


def _masked_entry(key: Any, item: Any) -> Any:
    if not isinstance(key, str) or item is None:
        return _masked_copy(item)
    if isinstance(item, str):
        return MASK if mask_value(key, item) == MASK else mask_text(item)
    if isinstance(item, dict) and "asked" in item:  # a setting
        shown = _masked_copy(item)
        return shown | {
            part: _masked_variable(key, item[part], shown[part]) for part in ("asked", "effective") if part in item
        }
    return _masked_copy(item)
