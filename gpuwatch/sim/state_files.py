"""The state files of simulated machines, one each in a folder of this user, and the functions of state.h for ctypes."""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from gpuwatch.core import private_folders
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.units import exact_size
from gpuwatch.sim import environment, libraries
from gpuwatch.sim.gpu_models import MODELS, DescribedGpu
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.mig_layout import SimInstance

SHARED: Final = "shared"
"""Begins the name of the state file of the machine that all users of a shape share."""
PRIVATE: Final = "private"
"""Begins the name of a machine that belongs to one command."""
STATE_SUFFIX: Final = ".state"
_SHARED_UNUSED_SECONDS: Final = 3600.0
"""A shared machine is kept this long after its last use: what was done to it waits for the next user."""
_PRIVATE_UNUSED_SECONDS: Final = 60.0
"""Nobody but its maker knows the name of a private machine."""


def private_name() -> str:
    """A new name for a machine of this process alone."""
    return f"{PRIVATE}-{os.getpid()}-{secrets.token_hex(4)}"


def state_name(shape: SimShape, name: str | None, library_dir: Path) -> str:
    """The name of a machine's state file: ``shared-2x24GiB.v3.419496.state``.

    It contains the layout of the state (version and size in bytes), so that versions of gpuwatch with different layouts
    never replace each other's files; of a model with what that reports.
    """
    layout = load_control(library_dir).gws_layout().decode()
    reports = zlib.crc32(repr(MODELS[shape.model].described()).encode()) if shape.model else ""
    return f"{name or SHARED}-{shape}.v{layout}{reports}{STATE_SUFFIX}"


def in_use(state_path: Path) -> bool:
    """Whether a process has the machine open, and so holds a shared lock on the file (state.c)."""
    try:
        descriptor = os.open(state_path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def state_folder() -> Path:
    """The folder of this user's machines, in memory if the system has such a place.

    The libraries trust what they map, so nobody else may write there (:mod:`gpuwatch.core.private_folders`). Another
    user's XDG_RUNTIME_DIR, which ``sudo -E`` keeps, is not used.
    """
    for folder in possible_state_folders():
        try:
            return private_folders.private_folder(folder, "XDG_RUNTIME_DIR", "machines")
        except OSError as error:
            raise GpuwatchError(
                f"cannot write the simulated GPUs' state to {folder}: {error.strerror or error}",
                hint="set XDG_RUNTIME_DIR to a folder that you own",
            ) from error
    raise GpuwatchError(
        "no safe folder for the simulated GPUs' state: others can write to all candidates",
        hint="set XDG_RUNTIME_DIR to a folder that you own",
    )


def possible_state_folders() -> Iterator[Path]:
    """Where this user's machines may be, whether the folder exists or not; :func:`state_folder` takes the first."""
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm", tempfile.gettempdir()):  # noqa: S108  # the folder in it is checked
        if not base or not os.access(base, os.W_OK | os.X_OK) or not Path(base).is_dir():
            continue
        if not private_folders.why_untrusted(Path(base)):
            yield Path(base) / f"gpuwatch-sim-{os.geteuid()}"


def check_state(path: Path) -> None:
    """GpuwatchError if somebody else can write to the state that the environment names, as under ``sudo -E``."""
    reason = private_folders.why_untrusted(path)
    if not reason and path.exists():
        reason = private_folders.why_file_untrusted(path)
    if reason:
        raise GpuwatchError(
            f"refusing to use the simulated GPUs in {path}: {reason}",
            hint="unset GPUWATCH_SIM and GPUWATCH_SIM_STATE, or run gpuwatch sim as this user",
        )


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, so that no other process creates or removes machines."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def ensure_machine(control: ctypes.CDLL, state: Path, shape: SimShape, described: Sequence[DescribedGpu]) -> None:
    """Creates the file, or one that fits in its place; called with the lock of its folder held.

    Raises:
        GpuwatchError: it cannot be made, or one that does not fit is in use.
    """
    if control.gws_check(os.fsencode(state), shape.count, shape.memory_bytes) == 0:
        return
    if in_use(state):
        raise GpuwatchError(
            f"the simulated GPUs in {state} are in use by an incompatible version of gpuwatch",
            hint="end the programs that use them, or choose another shape",
        )
    temporary = state.with_suffix(f".new-{os.getpid()}")
    temporary.unlink(missing_ok=True)
    label, memory = str(shape).encode(), exact_size(shape.memory_bytes).encode()
    code = control.gws_create(os.fsencode(temporary), shape.count, shape.memory_bytes, label, memory)
    if code:
        temporary.unlink(missing_ok=True)
        raise GpuwatchError(f"cannot create the simulated GPUs in {temporary}: {os.strerror(code)}")
    if shape.model:
        described = (MODELS[shape.model].described(),) * shape.count
    if described:
        handle = control.gws_open(os.fsencode(temporary))  # before anybody else can
        for device, gpu in enumerate(described):
            _describe(control, handle, device, gpu)
        control.gws_close(handle)
    temporary.replace(state)
    remove_old_machines(state.parent)


def _describe(control: ctypes.CDLL, handle: int, device: int, gpu: DescribedGpu) -> None:
    code = control.gws_describe(handle, device, gpu.name.encode()[:63], gpu.memory_bytes, gpu.taken_bytes)
    if gpu.card is not None:
        code = code or control.gws_set_card(handle, device, *gpu.card)
    for answer in gpu.answers:
        view = AnswerView(answer.function.encode(), answer.argument, answer.code, answer.until_used)
        view.number[: len(answer.numbers)] = answer.numbers
        view.text = answer.text.encode()
        code = code or control.gws_add_answer(handle, device, ctypes.byref(view))
    if code:
        raise GpuwatchError(f"simulated GPU {device} cannot be described: {os.strerror(code)}")
    if gpu.mig is not None:
        set_mig_instances(control, handle, device, gpu.mig)


def set_mig_instances(control: ctypes.CDLL, handle: int, device: int, instances: Sequence[SimInstance] | None) -> None:
    """Partitions a GPU into these MIG instances; None switches MIG off. GpuwatchError if it cannot be."""
    numbers = [
        number
        for i in instances or ()
        for number in (i.index, i.gpu_instance, i.compute_instance, i.gpu_slices, i.compute_slices)
    ]
    array = (ctypes.c_uint32 * len(numbers))(*numbers)
    code = control.gws_set_mig(handle, device, instances is not None, len(numbers) // 5, array)
    if code:
        raise GpuwatchError(f"simulated GPU {device} cannot be partitioned: {os.strerror(code)}")


def remove_old_machines(folder: Path) -> None:
    """Removes machines in ``folder`` that are not in use and were last opened long ago.

    Users of a machine hold a shared lock on its file for as long as they live (state.c). So a file whose exclusive
    lock can be had is not in use, by any version of gpuwatch. The lock is only tried on old files, and is held until
    the file is gone. The caller holds the folder's lock, under which machines are opened.
    """
    for path in folder.iterdir():
        if path.suffix != STATE_SUFFIX and not path.suffix.startswith(".new-"):
            continue
        private = path.suffix == STATE_SUFFIX and not path.name.startswith(f"{SHARED}-")
        with suppress(OSError):  # another process removed it, or it is not ours: the next sweep will see
            if time.time() - path.stat().st_mtime > (_PRIVATE_UNUSED_SECONDS if private else _SHARED_UNUSED_SECONDS):
                remove_machine(path)


def remove_machine(path: Path) -> None:
    """Removes a machine; OSError if it is in use. The caller holds the folder's lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError if it is in use
        path.unlink()
    finally:
        os.close(descriptor)
    shutil.rmtree(environment.sysfs_folder(path), ignore_errors=True)


class FaultView(ctypes.Structure):
    """gws_fault_view of state.h."""

    _fields_ = (
        ("function", ctypes.c_char * 64),
        ("label", ctypes.c_char * 24),
        ("device", ctypes.c_int32),
        ("code", ctypes.c_int32),
        ("delay_ms", ctypes.c_uint32),
        ("remaining", ctypes.c_int32),
        ("left_ms", ctypes.c_int64),
    )


class MigView(ctypes.Structure):
    """gws_mig of state.h."""

    _fields_ = (
        ("present", ctypes.c_uint32),
        ("gpu_instance", ctypes.c_uint32),
        ("compute_instance", ctypes.c_uint32),
        ("gpu_slices", ctypes.c_uint32),
        ("compute_slices", ctypes.c_uint32),
        ("multiprocessors", ctypes.c_uint32),
        ("memory_bytes", ctypes.c_uint64),
        ("uuid", ctypes.c_char * 48),
    )


class AnswerView(ctypes.Structure):
    """gws_answer of state.h."""

    _fields_ = (
        ("function", ctypes.c_char * 64),
        ("argument", ctypes.c_uint64),
        ("code", ctypes.c_int32),
        ("until_used", ctypes.c_uint32),
        ("number", ctypes.c_int64 * 4),
        ("text", ctypes.c_char * 64),
    )


class ProcessView(ctypes.Structure):
    """gws_process_view of state.h."""

    _fields_ = (
        ("pid", ctypes.c_int32),
        ("kind", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
        ("sm_share", ctypes.c_double),
        ("memory_share", ctypes.c_double),
        ("last_busy_ns", ctypes.c_uint64),
        ("mig", ctypes.c_int32),
    )


def load_control(library_dir: Path) -> ctypes.CDLL:
    """The library for a machine's state, with its functions' types (state.h)."""
    control = ctypes.CDLL(str(library_dir / libraries.CONTROL_LIBRARY), use_errno=True)
    state, text, uint = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32
    int32, size, real = ctypes.c_int32, ctypes.c_uint64, ctypes.c_double
    signatures: dict[str, tuple[object, list[object]]] = {
        "gws_create": (int32, [text, uint, size, text, text]),
        "gws_check": (int32, [text, uint, size]),
        "gws_layout": (text, []),
        "gws_open": (state, [text]),
        "gws_close": (None, [state]),
        "gws_device_count": (uint, [state]),
        "gws_device_name": (text, [state, uint]),
        "gws_device_uuid": (text, [state, uint]),
        "gws_device_pci_bus_id": (text, [state, uint]),
        "gws_device_total_bytes": (size, [state, uint]),
        "gws_device_reserved_bytes": (size, [state, uint]),
        "gws_process_ordinals": (int32, [state, int32, ctypes.POINTER(int32)]),
        "gws_used_bytes": (size, [state, uint]),
        "gws_attach": (int32, [state, int32, uint, size, real, real, uint, uint, int32]),
        "gws_list_processes": (uint, [state, uint, uint, ctypes.POINTER(ProcessView), uint]),
        "gws_detach": (int32, [state, int32, int32]),
        "gws_inject_labelled": (int32, [state, text, int32, int32, uint, int32, uint, text]),
        "gws_clear_labelled": (int32, [state, text, int32]),
        "gws_fault_at": (int32, [state, uint, ctypes.POINTER(FaultView)]),
        "gws_heal": (None, [state]),
        "gws_set_mig": (int32, [state, uint, int32, uint, ctypes.POINTER(uint)]),
        "gws_mig_is_on": (int32, [state, uint]),
        "gws_get_mig": (int32, [state, uint, uint, ctypes.POINTER(MigView)]),
        "gws_describe": (int32, [state, uint, text, size, size]),
        "gws_set_card": (int32, [state, uint, int32, int32, uint, uint, uint]),
        "gws_add_answer": (int32, [state, uint, ctypes.POINTER(AnswerView)]),
        "gws_set_hidden": (int32, [state, uint, int32]),
        "gws_is_hidden": (int32, [state, uint]),
        "gws_override_name": (text, [uint]),
        "gws_get_override": (int32, [state, uint, uint, ctypes.POINTER(ctypes.c_int64)]),
        "gws_clear_faults": (None, [state]),
        "gws_set_override": (int32, [state, uint, text, ctypes.c_int64, int32]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(control, name)  # control[name] would be a new object every time
        function.restype = result
        function.argtypes = arguments
    return control
