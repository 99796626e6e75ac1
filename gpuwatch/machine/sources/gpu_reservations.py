"""Reservations of GPUs between gpuwatch's users of one machine.

A reservation is a Unix socket with an abstract name (unix(7)): only one process can bind a name, whoever the user is,
and the kernel frees it when the last process that has the socket ends, however it ends. The program for which GPUs were
reserved inherits the socket across execve. The kernel tells others whose the socket is; a second socket, whose name
has the pid, tells them the program, if it is one of that user.

Advisory: a program that does not ask can use the GPU all the same, and containers with a network of their own do not
see it (network_namespaces(7)).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.masking.mask_secrets import mask_text
from gpuwatch.core.model.snapshot import Reservation
from gpuwatch.core.safe_text import printable, shorten
from gpuwatch.machine.sources.process_table import ProcessTable
from gpuwatch.machine.sources.procfs import file_text, user_name
from gpuwatch.sim.environment import ENV_STATE

_LOCK_PREFIX = "gpuwatch-reserved:"
_HOLDER_PREFIX = "gpuwatch-holder:"
_PREFIX = "gpuwatch-"
_MAX_DIGITS = 10
_MAX_COMMAND_CHARS = 60
_NO_ACCOUNT_PREFIX = "uid "
ENV_MAX_PER_USER = "GPUWATCH_RESERVATIONS_PER_USER"
"""An administrator's limit: how many reservations of one user count."""


class HeldReservation:
    """GPUs that are reserved until the last process that inherits this is gone."""

    def __init__(self, sockets: Iterable[socket.socket], unreservable: Iterable[str] = ()) -> None:
        self._sockets = tuple(sockets)
        self.unreservable = frozenset(unreservable)
        """UUIDs of GPUs whose reservation by somebody else does not count, so that nobody can reserve them."""

    def keep_across_exec(self) -> None:
        """Lets the program that replaces this process inherit the reservation, and what it forks."""
        for connection in self._sockets:
            connection.set_inheritable(True)

    def release(self) -> None:
        """Closes this process's sockets, which ends the reservation unless another process has them too."""
        for connection in self._sockets:
            connection.close()


def reserve(uuids: Iterable[str]) -> HeldReservation | None:
    """Reserves all of these GPUs, or None if one of them is reserved already.

    OSError if the kernel refuses sockets, :class:`GpuwatchError` if this user would hold more than count.
    """
    wanted, limit = set(uuids), _max_per_user()
    unreservable: set[str] = set()
    if limit is not None:
        found = reservations()
        own_count = sum(reservation.user == _user_name(os.geteuid()) for reservation in found)
        if own_count + len(wanted) > limit:
            raise GpuwatchError(
                f"you hold {count_text(own_count, 'reservation')}; the limit is {limit} per user ({ENV_MAX_PER_USER})"
            )
        unreservable = wanted & {reservation.uuid for reservation in found if not reservation.counts}
    sockets: list[socket.socket] = []
    try:
        # In one order for everybody: of two that want the same GPUs, one gets all.
        for key in sorted(map(_lock_key, wanted - unreservable)):
            for name in (_LOCK_PREFIX + key, f"{_HOLDER_PREFIX}{key}:{os.getpid()}"):
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                sockets.append(connection)
                connection.bind("\0" + name)
    except OSError as error:
        for connection in sockets:
            connection.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return HeldReservation(sockets, unreservable)


def reservation_holders() -> dict[str, str]:
    """Who reserved which GPU: ``pid 4711 (alice, python train.py)`` by UUID; nobody where the kernel does not tell.

    Of each user as many as :data:`ENV_MAX_PER_USER` says; others count for nothing. UsageError if that is no number.
    """
    _max_per_user()
    return {reservation.uuid: _reservation_text(reservation) for reservation in reservations() if reservation.counts}


def _max_per_user() -> int | None:
    text = os.environ.get(ENV_MAX_PER_USER)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS):
        shown = shorten(printable(text), _MAX_COMMAND_CHARS)
        raise UsageError(f"{ENV_MAX_PER_USER}={shown} is not a number of reservations")
    return int(text)


def _counted_reservations(found: Iterable[Reservation], limit: int) -> tuple[Reservation, ...]:
    """Only the first reservations of each user count; all of a user whom the kernel does not tell.

    Users without an account are one: whoever has subordinate ids (subuid(5)) can be thousands of them.
    """
    held: Counter[str] = Counter()
    counted = []
    for reservation in found:
        who = "" if reservation.user is None or reservation.user.startswith(_NO_ACCOUNT_PREFIX) else reservation.user
        held[who] += 1
        counted.append(replace(reservation, counts=reservation.user is None or held[who] <= limit))
    return tuple(counted)


def reservations() -> tuple[Reservation, ...]:
    """The GPUs that are reserved, in the order of their UUIDs; none where the kernel does not tell.

    All count where :data:`ENV_MAX_PER_USER` is no number: :func:`reservation_holders` raises an error then.
    """
    table = ProcessTable()
    found = tuple(_reservation_of(uuid, uid, pid, table) for uuid, (uid, pid) in sorted(_lock_holders().items()))
    try:
        limit = _max_per_user()
    except UsageError:
        limit = None
    return found if limit is None else _counted_reservations(found, limit)


def _lock_holders() -> dict[str, tuple[int | None, int | None]]:
    """By UUID, who holds the lock: user id, as the kernel has it, and pid.

    A pid is what the other side says: it counts if it comes from the same user and is a process of that user.
    """
    machine_suffix = _lock_key("")
    locks: dict[str, int | None] = {}
    holders: dict[str, list[tuple[int | None, int]]] = {}
    for name, uid in abstract_names(_PREFIX):
        if name.startswith(_LOCK_PREFIX) and name.endswith(machine_suffix):
            locks[name[len(_LOCK_PREFIX) : len(name) - len(machine_suffix)]] = uid
        elif name.startswith(_HOLDER_PREFIX):
            key, _, pid = name[len(_HOLDER_PREFIX) :].rpartition(":")
            if key.endswith(machine_suffix) and pid.isdecimal() and len(pid) < _MAX_DIGITS:
                holders.setdefault(key[: len(key) - len(machine_suffix)], []).append((uid, int(pid)))
    return {
        uuid: (uid, next((pid for owner, pid in holders.get(uuid, ()) if owner == uid and _belongs_to(pid, uid)), None))
        for uuid, uid in locks.items()
    }


def _belongs_to(pid: int, uid: int | None) -> bool:
    """Whether a process is a user's; True where the kernel does not say whose the socket is."""
    try:
        return uid is None or Path(f"/proc/{pid}").stat().st_uid == uid
    except OSError:
        return True  # it has exited: what it started holds the reservation


def _lock_key(uuid: str) -> str:
    """The GPU; simulated machines have the same UUIDs, hence also which machine."""
    state = os.environ.get(ENV_STATE)
    return f"{uuid}@{zlib.crc32(os.fsencode(os.path.realpath(state))):08x}" if state else f"{uuid}@"


def _reservation_of(uuid: str, uid: int | None, pid: int | None, table: ProcessTable) -> Reservation:
    facts = None if pid is None else table.facts_of(pid, time.time())
    user = _user_name(uid) if uid is not None else facts.user if facts is not None else None
    if facts is None:
        return Reservation(uuid=uuid, pid=pid, user=user)
    # Masked already here: snapshots are recorded.
    command = mask_text(facts.command) if facts.command else facts.name
    return Reservation(uuid=uuid, pid=pid, user=user, command=command)


def _user_name(uid: int) -> str:
    return user_name(uid) or f"{_NO_ACCOUNT_PREFIX}{uid}"


def _reservation_text(found: Reservation) -> str:
    if found.pid is None:
        return f"user {found.user}, who names no process" if found.user else "another gpuwatch pick"
    command = shorten(found.command, _MAX_COMMAND_CHARS) if found.command else ""
    details = ", ".join(filter(None, (found.user, command)))
    return f"pid {found.pid} ({details})" if details else f"pid {found.pid}"


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
        rows = (line.rpartition(" @") for line in (file_text(_PROC_NET_UNIX) or "").splitlines())
        found = [(name, None) for _, is_abstract, name in rows if is_abstract]
    return [(name, uid) for name, uid in found if name.startswith(prefix)]


def _sock_diag_rows() -> Iterator[tuple[str, int | None]]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_SECONDS)
        body = _REQUEST.pack(socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _UDIAG_SHOW_NAME | _UDIAG_SHOW_UID, 0, 0)
        size = _MESSAGE_HEADER.size + len(body)
        kernel.send(_MESSAGE_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _DUMP_FLAGS, 1, 0) + body)
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
