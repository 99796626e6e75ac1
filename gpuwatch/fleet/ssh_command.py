"""The command line of ``ssh`` that runs a program on a host without asking anything, and why ``ssh`` failed.

The user's own ``~/.ssh/config``, agent and known hosts apply, so jump hosts, users and keys are set where they always
are. A host that would ask for a password, or to trust a new key, fails instead of waiting.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from gpuwatch.core.safe_text import last_line

CONNECT_SECONDS = 10
"""How long a host has to accept the connection and to identify itself."""

SSH_FAILED_EXIT_CODE = 255
"""Exit code of ``ssh`` where the connection failed; a program's own code is passed on."""

_PORT = re.compile(r"([^:]+):([0-9]{1,5})")


def ssh_command(host: str, command: Sequence[str], *, options: Sequence[str] = ()) -> list[str]:
    """The local command line that runs ``command`` on ``host`` (from :func:`.host_list.parse_ssh_hosts`).

    ``ssh`` joins its arguments with spaces and a shell over there splits them again, so they are quoted here. When
    this ``ssh`` ends, the stdin of the remote command ends: without a terminal, no signal reaches it.
    ``options``: further arguments of ``ssh``.
    """
    match = _PORT.fullmatch(host)
    name, port = (match[1], ["-p", match[2]]) if match else (host, [])
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
