"""Secrets out of one text: a command line, a line of a log.

Masked are values behind options and assignments whose name speaks of a secret, credentials in URLs, and
words that have the shape of a well-known token.
"""

from __future__ import annotations

import re

MASK = "•••"

_SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|PRIVATE", re.IGNORECASE)
_URL = re.compile(r"(\b[a-zA-Z][\w+.-]*://)[^\s/@:]*(?::[^\s/@]*)?@")
_ASSIGNED = re.compile(
    r"(?<![\w-])((?:--?)?[\w-]*(?:token|secret|passw|passphrase|credential|api[-_]?key|_key\b|access[-_]?key)[\w-]*"
    r"(?:=|\s+(?=[^\s-])))(\"[^\"]*\"|'[^']*'|\S+)",
    re.IGNORECASE,
)
_OPTION = re.compile(r"^(?:--?[\w-]+[= ]|[A-Z][A-Z0-9_]*=|[\w-]+=)")
_PASSWORD = re.compile(
    r"(?<![\w-])(-p\s+(?!\d{1,7}(?![^\s:/,])|-|/|\./|no:)|--(?:pass|pwd|pw)(?:=|\s+)|--passw\w*\s+(?!--))"
    r"(\"[^\"]*\"|'[^']*'|\S+)"
)
# "-p 8080:80" is a port, "-p 4711" a process, "-p /x" a path, "-p no:x" a plugin.
_SHAPED = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|sk-[\w-]{20,}|xox[abeprs]-[\w-]{8,}|A[KS]IA[A-Z0-9]{16})(?![A-Za-z0-9])"
)
_BEARER = re.compile(r"(\b[Bb]earer\s+)\S+")


def secret_name(name: str) -> bool:
    """Whether values under this name are not shown."""
    return _SECRET_NAME.search(name) is not None


def mask_text(text: str) -> str:
    """``text`` without credentials: in URLs, after ``--token``, ``API_KEY=``, ``Bearer``; tokens by their shape."""
    if "@" in text:
        text = _URL.sub(rf"\1{MASK}@", text)
    if "earer" in text:
        text = _BEARER.sub(rf"\1{MASK}", text)
    text = _ASSIGNED.sub(_assigned, text)
    if "-p" in text:
        text = _PASSWORD.sub(rf"\1{MASK}", text)
    return _SHAPED.sub(MASK, text)


def _assigned(match: re.Match[str]) -> str:
    # "the key error" is prose; an option or an assignment is not.
    return f"{match[1]}{MASK}" if _OPTION.match(match[1]) else match[0]
