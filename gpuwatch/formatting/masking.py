"""Secrets out of whole documents, before any format or file sees them.

Masked are values of variables and settings whose name speaks of a secret, and what
:func:`gpuwatch.formatting.secrets.mask_text` finds in texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gpuwatch.formatting.secrets import MASK, mask_keys, mask_text, secret_name

_D = TypeVar("_D", bound=msgspec.Struct)


def masked(document: _D) -> _D:
    """The same document with its secrets masked; the original is not changed."""
    return changed(document, mask_text)


def changed(document: _D, text: Callable[[str], str]) -> _D:
    """The document with every text, keys apart, gone through ``text``; what is named a secret is masked."""
    plain = msgspec.to_builtins(document)
    return msgspec.convert(_walk(plain, text), type(document))


def _walk(value: Any, text: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        told = {key: _entry(key, item, text) for key, item in value.items()}
        name = value.get("name")
        if isinstance(name, str) and secret_name(name):  # a variable
            told |= {key: _hidden(value[key]) for key in ("value", "values") if key in value}
        return told
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, str) for item in value) and any("PRIVATE KEY-----" in item for item in value):
            value = mask_keys(value)
        return [_walk(item, text) for item in value]
    return value


def _hidden(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_hidden(item) for item in value]
    return MASK if isinstance(value, str) else value


def _entry(key: Any, item: Any, text: Callable[[str], str]) -> Any:
    if not isinstance(key, str) or not secret_name(key) or item is None:
        return _walk(item, text)
    if isinstance(item, str):
        return MASK
    if isinstance(item, dict) and "asked" in item:  # a setting
        hidden = {part: MASK for part in ("asked", "effective") if item.get(part) is not None}
        return {**item, **hidden}
    return _walk(item, text)
