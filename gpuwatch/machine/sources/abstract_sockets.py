"""Unix sockets with abstract names (unix(7)) and their owners: from the kernel's sock_diag(7), else from /proc."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.machine.sources.procfs import file_text

_SOCK_DIAG = 4
_BY_FAMILY, _DONE, _ERROR = 20, 3, 2
_DUMP_FLAGS = 0x301
_SHOW_NAME, _SHOW_UID = 1, 0x40
_NAME, _UID = 0, 7
_HEAD = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBHIIIII")
_SOCKET_BYTES = 16
"""``struct unix_diag_msg``, before the attributes."""
_ATTRIBUTE = struct.Struct("=HH")
_ANSWER_SECONDS = 2.0
_NAMES = Path("/proc/net/unix")


def abstract_names(prefix: str) -> list[tuple[str, int | None]]:
    """Names of sockets that begin so, without the leading zero byte, each with the user id of its owner.

    The kernel says whose they are (sock_diag(7)), not who bound them. The id is None where it does not give that
    (before 5.3, or a sandbox); nothing where it gives no names.
    """
    try:
        found = list(_sock_diag_rows())
    except OSError:
        found = []
    if not any(uid is not None for _, uid in found):
        found = [(name, None) for name in _proc_net_names()]
    return [(name, uid) for name, uid in found if name.startswith(prefix)]


def _sock_diag_rows() -> Iterator[tuple[str, int | None]]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_SECONDS)
        body = _REQUEST.pack(socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_NAME | _SHOW_UID, 0, 0)
        kernel.send(_HEAD.pack(_HEAD.size + len(body), _BY_FAMILY, _DUMP_FLAGS, 1, 0) + body)
        while True:
            answer = kernel.recv(1 << 16)
            at = 0
            while at + _HEAD.size <= len(answer):
                length, kind, _, _, _ = _HEAD.unpack_from(answer, at)
                if kind in (_DONE, _ERROR) or length < _HEAD.size:
                    return
                value = _attributes(answer[at + _HEAD.size + _SOCKET_BYTES : at + length])
                name = value.get(_NAME, b"")
                if name[:1] == b"\0":
                    uid = value.get(_UID)
                    yield name[1:].decode("utf-8", "replace"), None if uid is None else int.from_bytes(uid, "little")
                at += (length + 3) & ~3


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            break
        found[kind] = data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    return found


def _proc_net_names() -> list[str]:
    return [name for _, at, name in (line.rpartition(" @") for line in (file_text(_NAMES) or "").splitlines()) if at]
