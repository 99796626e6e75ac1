"""Lists of hosts as a user writes them: ``a,b,n[1-4]``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import UsageError

MAX_HOSTS = 4096
"""A longer list is a mistake, such as ``n[1-1000000]``."""

_MAX_BRACKETS = 8
"""In one name."""

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")

_NAME = re.compile(r"(?:[A-Za-z0-9_.][\w.\-+\\]*@)?[A-Za-z0-9_.:%][\w.:%\-]*", re.ASCII)


def parse_ssh_hosts(text: str) -> list[str]:
    """The hosts of ``a,me@b,n[1-3],c:2222``: names, addresses or hosts of ``~/.ssh/config``, each once.

    Raises:
        UsageError: not a list of hosts or not a host; a name that begins with ``-`` would be an option of ``ssh``.
    """
    hosts = parse_hosts(text)
    for host in hosts:
        if not _NAME.fullmatch(host):
            raise UsageError(f"{host[:80]!r} is not a host", hint="for example node1, user@node1, node1:2222 or n[1-4]")
    return hosts


def parse_hosts(text: str) -> list[str]:
    """The hosts in their order, each once.

    ``01-10`` keeps its leading zeros. Names are not looked at: what a launcher accepts as one, it checks itself.

    Raises:
        UsageError: an empty list or name, brackets that are not ranges, or more than :data:`MAX_HOSTS` hosts.
    """
    if len(text) > input_size_limits.HOSTS.bytes:
        raise UsageError(f"the list of hosts is longer than {input_size_limits.HOSTS.size_text}")
    hosts: dict[str, None] = {}
    expanded_count = 0
    for pattern in _split_patterns(text):
        if not pattern:
            empty = not text.strip(" ,")
            problem = "the list of hosts is empty" if empty else f"an empty name in the hosts {text[:80]!r}"
            raise UsageError(problem, hint="for example a,b,c or n[1-4]")
        if pattern.count("[") > _MAX_BRACKETS:
            raise UsageError(f"too many brackets in {pattern[:80]!r}", hint="for example rack[1-2]-n[1-16]")
        for host in _expanded(pattern):
            hosts[host] = None
            expanded_count += 1  # repeated ones, too: n[1,1,1]n[1,1,1] makes nine
            if expanded_count > MAX_HOSTS:
                raise UsageError(f"{pattern[:80]!r} expands to more than {MAX_HOSTS} hosts", hint="for example n[1-64]")
    return list(hosts)


def _split_patterns(text: str) -> list[str]:
    """The patterns between commas that are not in brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            break
        if character == "," and not depth:
            parts.append(text[start:position].strip())
            start = position + 1
    if depth:
        raise UsageError(f"brackets do not match in the hosts {text[:80]!r}", hint="for example n[1-4]")
    return [*parts, text[start:].strip()]


def _expanded(pattern: str) -> Iterator[str]:
    match = _BRACKETS.search(pattern)
    if match is None:
        yield pattern
        return
    head, tail = pattern[: match.start()], pattern[match.end() :]
    for number in _numbers(match[1], pattern):
        for suffix in _expanded(tail):
            yield f"{head}{number}{suffix}"


def _numbers(ranges: str, pattern: str) -> Iterator[str]:
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text.strip())
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise UsageError(
                f"{ranges[:40]!r} in {pattern[:80]!r} is not a number or range", hint="for example n[1-4,7]"
            )
        first, last = match[1], match[2] or match[1]
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
