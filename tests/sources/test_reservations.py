"""Whose a reservation is: the kernel decides, nothing that the other side says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.model.snapshot import Reservation
from gpuwatch.machine.sources import gpu_reservations

# Another user binds names as gpuwatch does, with pid 1, which is root's.
_FORGER = """
import os, socket, sys
os.setuid(65534)
kept = []
for name in sys.argv[1:]:
    kept.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    kept[-1].bind("\\0" + name)
print("bound", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def uuid() -> str:
    return f"GPU-{os.getpid()}-test"


@pytest.fixture
def forger(uuid: str) -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    names = [f"gpuwatch-reserved:{uuid}-b@", f"gpuwatch-holder:{uuid}-b@:1", f"gpuwatch-holder:{uuid}-a@:1"]
    with subprocess.Popen(
        [sys.executable, "-c", _FORGER, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "bound\n"
        yield
        process.kill()


def test_nobody_reserves_in_the_name_of_root(uuid: str, forger: None) -> None:
    held = gpu_reservations.reserve([f"{uuid}-a"])
    assert held is not None
    try:
        found = {one.uuid: (one.user, one.pid) for one in gpu_reservations.reservations()}
        assert found[f"{uuid}-a"] == ("root", os.getpid()), "another user adds no holder to it"
        assert found[f"{uuid}-b"] == ("nobody", None), "pid 1 is not nobody's"
        assert gpu_reservations.reservation_holders()[f"{uuid}-b"] == "user nobody, who names no process"
    finally:
        held.release()
    assert f"{uuid}-a" not in gpu_reservations.reservation_holders()


def test_what_one_user_blocks_has_a_limit(uuid: str, forger: None, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = f"{uuid}-a", f"{uuid}-b"
    monkeypatch.setenv(gpu_reservations.ENV_MAX_PER_USER, "1")
    assert gpu_reservations.reservation_holders()[b].startswith("user nobody")
    assert gpu_reservations.reserve([b]) is None
    with pytest.raises(GpuwatchError, match=r"you hold 0 reservations; the limit is 1 per user"):
        gpu_reservations.reserve([a, f"{uuid}-c"])
    first = gpu_reservations.reserve([a])
    assert first is not None
    with pytest.raises(GpuwatchError, match=r"you hold 1 reservation;"):
        gpu_reservations.reserve([f"{uuid}-c"])
    first.release()
    monkeypatch.setenv(gpu_reservations.ENV_MAX_PER_USER, "0")
    assert b not in gpu_reservations.reservation_holders()
    assert {one.uuid: one.counts for one in gpu_reservations.reservations()}[b] is False, "it is shown"
    monkeypatch.setenv(gpu_reservations.ENV_MAX_PER_USER, "many")
    with pytest.raises(UsageError, match="=many is not a number"):
        gpu_reservations.reservation_holders()
    assert {one.uuid: one.counts for one in gpu_reservations.reservations()}[b] is True, "a typing error frees nothing"


def test_reservations_beyond_the_limit_count_for_nothing() -> None:
    users = ("eve", "eve", "eve", "bob", "uid 100001", "uid 100002", None, None)
    found = [Reservation(uuid=f"GPU-{place}", pid=None, user=user) for place, user in enumerate(users)]
    for most, counted in ((0, "67"), (1, "03467"), (2, "0134567"), (9, "01234567")):
        assert (
            "".join(one.uuid[-1] for one in gpu_reservations._counted_reservations(found, most) if one.counts)
            == counted
        )


def test_a_kernel_that_does_not_say_whose_a_socket_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uuid: str
) -> None:
    def refuse() -> Iterator[tuple[str, int | None]]:
        raise PermissionError
        yield

    names = tmp_path / "unix"
    own = os.getpid()
    names.write_text(f"0: 2 0 0 2 1 7 @gpuwatch-reserved:{uuid}@\n0: 2 0 0 2 1 8 @gpuwatch-holder:{uuid}@:{own}\n")
    monkeypatch.setattr(gpu_reservations, "_sock_diag_rows", refuse)
    monkeypatch.setattr(gpu_reservations, "_PROC_NET_UNIX", names)
    (one,) = gpu_reservations.reservations()
    assert (one.uuid, one.pid) == (uuid, own)
    names.unlink()
    assert gpu_reservations.reservations() == ()
