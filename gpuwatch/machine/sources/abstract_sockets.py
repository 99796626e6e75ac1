"""Unix sockets with abstract names (unix(7)) and their owners: from the kernel's sock_diag(7), else from /proc."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.machine.sources.procfs import file_text

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY, _NLMSG_DONE, _NLMSG_ERROR = 20, 3, 2
_DUMP_FLAGS = 0x301
_UDIAG_SHOW_NAME, _UDIAG_SHOW_UID = 1, 0x40
_UNIX_DIAG_NAME, _UNIX_DIAG_UID = 0, 7
_MESSAGE_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBHIIIII")
_SOCKET_BYTES = 16
"""``struct unix_diag_msg``, before the attributes."""
_ATTRIBUTE = struct.Struct("=HH")
_ANSWER_SECONDS = 2.0
_PROC_NET_UNIX = Path("/proc/net/unix")


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
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_SECONDS)
        body = _REQUEST.pack(socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _UDIAG_SHOW_NAME | _UDIAG_SHOW_UID, 0, 0)
        kernel.send(
            _MESSAGE_HEADER.pack(_MESSAGE_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _DUMP_FLAGS, 1, 0) + body
        )
        while True:
            answer = kernel.recv(1 << 16)
            offset = 0
            while offset + _MESSAGE_HEADER.size <= len(answer):
                length, kind, _, _, _ = _MESSAGE_HEADER.unpack_from(answer, offset)
                if kind in (_NLMSG_DONE, _NLMSG_ERROR) or length < _MESSAGE_HEADER.size:
                    return
                value = _attributes(answer[offset + _MESSAGE_HEADER.size + _SOCKET_BYTES : offset + length])
                name = value.get(_UNIX_DIAG_NAME, b"")
                if name[:1] == b"\0":
                    uid = value.get(_UNIX_DIAG_UID)
                    yield name[1:].decode("utf-8", "replace"), None if uid is None else int.from_bytes(uid, "little")
                offset += (length + 3) & ~3


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    offset = 0
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size:
            break
        found[kind] = data[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3
    return found


def _proc_net_names() -> list[str]:
    return [
        name
        for _, offset, name in (line.rpartition(" @") for line in (file_text(_PROC_NET_UNIX) or "").splitlines())
        if offset
    ]
