"""Masks secrets in whole documents, before any format or file sees them.

Masks the values of variables and settings with a secret's name, and what
:func:`gpuwatch.core.formatting.secrets.mask_text` finds in texts.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gpuwatch.core.formatting.secrets import MASK, mask_lines, mask_text, mask_value

_D = TypeVar("_D", bound=msgspec.Struct)


def masked(document: _D) -> _D:
    """A copy of the document with its secrets masked."""
    return msgspec.convert(_walk(msgspec.to_builtins(document)), type(document))


def _walk(value: Any) -> Any:
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        hidden = {key: _entry(key, item) for key, item in value.items()}
        name = value.get("name")
        if isinstance(name, str):  # a variable
            hidden |= {key: _hidden(name, value[key], hidden[key]) for key in ("value", "values") if key in value}
        return hidden
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, str) for item in value):
            return mask_lines(value)
        return [_walk(item) for item in value]
    return value


def _hidden(name: str, value: Any, shown: Any) -> Any:
    """A variable's value: masked if the name is that of a secret, else ``shown``."""
    if isinstance(value, (list, tuple)):
        return [_hidden(name, item, other) for item, other in zip(value, shown, strict=True)]
    return MASK if isinstance(value, str) and mask_value(name, value) == MASK else shown


def _entry(key: Any, item: Any) -> Any:
    if not isinstance(key, str) or item is None:
        return _walk(item)
    if isinstance(item, str):
        return MASK if mask_value(key, item) == MASK else mask_text(item)
    if isinstance(item, dict) and "asked" in item:  # a setting
        shown = _walk(item)
        return shown | {part: _hidden(key, item[part], shown[part]) for part in ("asked", "effective") if part in item}
    return _walk(item)
