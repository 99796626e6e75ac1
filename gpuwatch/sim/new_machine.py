"""Makes the state file of a simulated machine, and what its GPUs are like where they are those of a model or file."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.sim.copied_answers import DescribedGpu
from gpuwatch.sim.gpu_models import MODELS
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.mig_layout import SimInstance
from gpuwatch.sim.state_files import in_use, sweep
from gpuwatch.sim.state_structures import AnswerView


def create_if_needed(control: ctypes.CDLL, state: Path, shape: SimShape, described: Sequence[DescribedGpu]) -> None:
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
    fresh = state.with_suffix(f".new-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    label, memory = str(shape).encode(), shape.memory_label.encode()
    code = control.gws_create(os.fsencode(fresh), shape.count, shape.memory_bytes, label, memory)
    if code:
        fresh.unlink(missing_ok=True)
        raise GpuwatchError(f"cannot create the simulated GPUs in {fresh}: {os.strerror(code)}")
    if shape.model:
        described = (MODELS[shape.model].described(),) * shape.count
    if described:
        handle = control.gws_open(os.fsencode(fresh))  # before anybody else can
        for device, gpu in enumerate(described):
            _describe(control, handle, device, gpu)
        control.gws_close(handle)
    fresh.replace(state)
    sweep(state.parent)


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
        partition(control, handle, device, gpu.mig)


def partition(control: ctypes.CDLL, handle: int, device: int, instances: Sequence[SimInstance] | None) -> None:
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
