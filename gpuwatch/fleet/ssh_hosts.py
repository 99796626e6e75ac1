"""Lists of hosts, and the command line of ``ssh`` that runs a program on one of them without asking anything.

The user's own ``~/.ssh/config``, agent and known hosts apply, so jump hosts, users and keys are set where they always
are. A host that would ask for a password, or to trust a new key, fails instead of waiting.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import UsageError

CONNECT_SECONDS = 10
"""How long a host has to accept the connection and to identify itself."""

SSH_FAILED_EXIT_CODE = 255
"""Exit code of ``ssh`` where the connection failed; a program's own code is passed on."""

MAX_HOSTS = 4096
"""A longer list is a mistake, such as ``n[1-1000000]``."""

_MAX_BRACKETS = 8
"""In one name."""

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")

_NAME = re.compile(r"(?:[A-Za-z0-9_.][\w.\-+\\]*@)?[A-Za-z0-9_.:%][\w.:%\-]*", re.ASCII)
_PORT = re.compile(r"([^:]+):([0-9]{1,5})")


def ssh_hosts(text: str) -> list[str]:
    """The hosts of ``a,me@b,n[1-3],c:2222``: names, addresses or hosts of ``~/.ssh/config``, each once.

    Raises:
        UsageError: not a list of hosts or not a host; a name that begins with ``-`` would be an option of ``ssh``.
    """
    hosts = parse_hosts(text)
    for host in hosts:
        if not _NAME.fullmatch(host):
            raise UsageError(f"{host[:80]!r} is not a host", hint="for example node1, user@node1, node1:2222 or n[1-4]")
    return hosts


def ssh_command(host: str, command: Sequence[str], *, options: Sequence[str] = ()) -> list[str]:
    """The local command line that runs ``command`` on ``host``, one of :func:`ssh_hosts`.

    ``ssh`` joins its arguments with spaces and a shell over there splits them again, so they are quoted here. When
    this ``ssh`` ends, the stdin of the remote command ends: without a terminal, no signal reaches it.
    ``options``: further arguments of ``ssh``.
    """
    found = _PORT.fullmatch(host)
    name, port = (found[1], ["-p", found[2]]) if found else (host, [])
    return [
        "ssh",
        "-T",  # no terminal: output stays as it was written
        *("-o", "BatchMode=yes"),  # fails where it would ask
        *("-o", f"ConnectTimeout={CONNECT_SECONDS}"),
        *("-o", "ConnectionAttempts=1"),
        *("-o", "ControlMaster=no"),  # a connection that others share would stay open
        *("-o", "ControlPath=none"),
        # A host that is gone is noticed within about half a minute, also while it is silent.
        *("-o", "ServerAliveInterval=10"),
        *("-o", "ServerAliveCountMax=3"),
        *("-o", "ClearAllForwardings=yes"),
        *("-o", "ForwardAgent=no"),
        *("-o", "ForwardX11=no"),
        *("-o", "PermitLocalCommand=no"),
        *("-o", "LogLevel=ERROR"),  # banners are not errors
        *port,
        *options,
        "--",
        name,
        shlex.join(command),
    ]


_REASONS = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key changed: compare it before you trust it"),
    (r"Host key verification failed|No \S+ host key is known", "its host key is not known: log in once manually"),
    (r"Permission denied \(|Too many authentication failures", "ssh was refused: it accepts none of your keys"),
    (r"Could not resolve hostname|Name or service not known", "host not found"),
    (r"Connection timed out|Operation timed out|timed out during banner exchange", "no answer to ssh"),
    (r"Connection refused", "refuses ssh connections"),
    (r"No route to host|Network is unreachable", "no route to this host"),
    (r"Timeout, server .* not responding", "stopped answering"),
    (r"Connection (?:to \S+ )?(?:closed|reset)|Broken pipe", "the connection was closed"),
)


def ssh_failure(stderr: str) -> str:
    """Why ``ssh`` ended with :data:`SSH_FAILED_EXIT_CODE`; its last line if unknown, empty without one."""
    for pattern, reason in _REASONS:
        if re.search(pattern, stderr):
            return reason
    return last_line(stderr)


def last_line(text: str) -> str:
    """The last line that is not blank, without the space around it; empty if there is none."""
    return text.rstrip().rpartition("\n")[2].strip()


def split_words(text: str, option: str) -> list[str]:
    """The words of an option's value, as a shell splits them; UsageError for unbalanced quotes, or no word at all."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} {text[:80]!r}: {str(error).lower()}", hint="quote it as for a shell") from None
    if not words:
        raise UsageError(f"{option} is empty", hint="omit it")
    return words


def parse_hosts(text: str) -> list[str]:
    """The hosts in their order, each once.

    ``01-10`` keeps its leading zeros. Names are not looked at: what a launcher accepts as one, it checks itself.

    Raises:
        UsageError: an empty list or name, brackets that are not ranges, or more than :data:`MAX_HOSTS` hosts.
    """
    if len(text) > input_size_limits.HOSTS.bytes:
        raise UsageError(f"the list of hosts is longer than {input_size_limits.HOSTS.most}")
    hosts: dict[str, None] = {}
    made = 0
    for pattern in _parts(text):
        if not pattern:
            empty = not text.strip(" ,")
            problem = "the list of hosts is empty" if empty else f"an empty name in the hosts {text[:80]!r}"
            raise UsageError(problem, hint="for example a,b,c or n[1-4]")
        if pattern.count("[") > _MAX_BRACKETS:
            raise UsageError(f"too many brackets in {pattern[:80]!r}", hint="for example rack[1-2]-n[1-16]")
        for host in _expanded(pattern):
            hosts[host] = None
            made += 1  # repeated ones, too: n[1,1,1]n[1,1,1] makes nine
            if made > MAX_HOSTS:
                raise UsageError(f"{pattern[:80]!r} expands to more than {MAX_HOSTS} hosts", hint="for example n[1-64]")
    return list(hosts)


def _parts(text: str) -> list[str]:
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
    found = _BRACKETS.search(pattern)
    if found is None:
        yield pattern
        return
    head, tail = pattern[: found.start()], pattern[found.end() :]
    for number in _numbers(found[1], pattern):
        for rest in _expanded(tail):
            yield f"{head}{number}{rest}"


def _numbers(ranges: str, pattern: str) -> Iterator[str]:
    for text in ranges.split(","):
        found = _RANGE.fullmatch(text.strip())
        if found is None or (found[2] is not None and int(found[2]) < int(found[1])):
            raise UsageError(
                f"{ranges[:40]!r} in {pattern[:80]!r} is not a number or range", hint="for example n[1-4,7]"
            )
        first, last = found[1], found[2] or found[1]
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
