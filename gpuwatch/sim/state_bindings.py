"""Bindings of state.h for ctypes: the functions and structures with which Python controls simulated machines."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.sim import libraries
from gpuwatch.sim.gpu_models import DescribedGpu
from gpuwatch.sim.mig_layout import SimInstance


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


def describe_gpu(control: ctypes.CDLL, handle: int, device: int, gpu: DescribedGpu) -> None:
    """Gives a GPU of an open machine the name, memory and answers of ``gpu``. GpuwatchError if it cannot be."""
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
