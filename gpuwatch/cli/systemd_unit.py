"""What the systemd units have in common that commands print."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HARDENING = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
PrivateMounts=yes
KeyringMode=private
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""
"""Lines of [Service] for a program that reads the driver's devices and /proc."""


def command_line(*words: str) -> str:
    """gpuwatch with these arguments, as ExecStart takes it."""
    program = shutil.which("gpuwatch")
    command = [str(Path(program).absolute())] if program else [sys.executable, "-m", "gpuwatch"]
    return " ".join(map(quoted, (*command, *words)))


def quoted(word: str) -> str:
    """A word of ExecStart: systemd has its own rules of quoting, and expands % and $."""
    word = word.replace("%", "%%").replace("$", "$$")
    if word and all(text.isalnum() or text in "-_./=+:,@%$" for text in word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
