"""Secrets out of documents, before any format sees them.

Masked are values of variables, settings and options whose name speaks of a secret, and credentials in URLs.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

MASK = "•••"

_SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|PRIVATE", re.IGNORECASE)
_URL = re.compile(r"(\b[a-zA-Z][\w+.-]*://)[^\s/@:]*(?::[^\s/@]*)?@")
_ASSIGNED = re.compile(
    r"(?<![\w-])((?:--?)?[\w-]*(?:token|secret|passw|passphrase|credential|api[-_]?key|_key\b|access[-_]?key)[\w-]*"
    r"(?:=|\s+(?=[^\s-])))(\"[^\"]*\"|'[^']*'|\S+)",
    re.IGNORECASE,
)
_OPTION = re.compile(r"^(?:--?[\w-]+[= ]|[A-Z][A-Z0-9_]*=|[\w-]+=)")
_BEARER = re.compile(r"(\b[Bb]earer\s+)\S+")

_D = TypeVar("_D", bound=msgspec.Struct)


def secret_name(name: str) -> bool:
    """Whether values under this name are not shown."""
    return _SECRET_NAME.search(name) is not None


def mask_text(text: str) -> str:
    """``text`` without credentials: in URLs, behind ``--token`` and ``API_KEY=``, after ``Bearer``."""
    if "@" in text:
        text = _URL.sub(rf"\1{MASK}@", text)
    if "earer" in text:
        text = _BEARER.sub(rf"\1{MASK}", text)
    return _ASSIGNED.sub(_assigned, text)


def _assigned(match: re.Match[str]) -> str:
    # "the key error" is prose; an option or an assignment is not.
    return f"{match[1]}{MASK}" if _OPTION.match(match[1]) else match[0]


def masked(document: _D) -> _D:
    """The same document with its secrets masked; the original is not changed."""
    plain = msgspec.to_builtins(document)
    return msgspec.convert(_walk(plain), type(document))


def _walk(value: Any) -> Any:
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        return {key: _entry(key, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walk(item) for item in value]
    return value


def _entry(key: Any, item: Any) -> Any:
    if not isinstance(key, str) or not secret_name(key) or item is None:
        return _walk(item)
    if isinstance(item, str):
        return MASK
    if isinstance(item, dict) and "asked" in item:  # a setting
        hidden = {part: MASK for part in ("asked", "effective") if item.get(part) is not None}
        return {**item, **hidden}
    return _walk(item)
