"""A simulated machine: its state file, its libraries, and control over both for tests and demonstrations.

Use::

    machine = SimMachine.open(SimShape.parse("2x24GiB"))
    subprocess.run(command, env=machine.environment(os.environ))   # a program on simulated GPUs
    machine.attach(pid, device=0, memory_bytes=2**30, sm_percent=40)
    machine.inject("nvmlDeviceGetPowerUsage", code=15, device=1)
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.sim import environment, library_cache
from gpuwatch.sim.environment import ENV_SHAPE, ENV_STATE
from gpuwatch.sim.gpu_models import DescribedGpu
from gpuwatch.sim.libraries import Tier
from gpuwatch.sim.machine_shape import MACHINE_NAME_PATTERN, MAX_DEVICES, SimShape
from gpuwatch.sim.mig_layout import MAX_INSTANCES, SimInstance, parse_layout
from gpuwatch.sim.state_bindings import FaultView, MigView, ProcessView, load_control, set_mig_instances
from gpuwatch.sim.state_files import check_state_is_trusted, ensure_machine, folder_lock, state_folder, state_name

ANY_DEVICE: Final = -1
FOR_EVER: Final = -1

# Bits of state.h.
_COMPUTES: Final = 1
_FOREIGN: Final = 4
_MAX_FAULTS: Final = 64
_MAX_PROCESSES: Final = 1024
_MIN_DESCRIPTOR: Final = 200
_PCI_VENDOR: Final = "0x10de"
"""NVIDIA's number on the PCI bus."""
_PCI_CLASS: Final = "0x030200"
"""PCI class of NVIDIA's 3D controllers, by which GPUs are found."""


@dataclass(frozen=True, slots=True)
class SimDevice:
    """One simulated GPU, as NVML and CUDA report it."""

    index: int
    uuid: str
    pci_bus_id: str
    name: str
    memory_bytes: int
    reserved_bytes: int


def context_bytes(memory_bytes: int) -> int:
    """Size of a CUDA context on a simulated GPU of the driver tier with this much memory (init_device in state.c)."""
    return min(memory_bytes // 16, 320 << 20)


@dataclass(frozen=True, slots=True)
class SimFault:
    """An active fault."""

    function: str
    label: str
    device: int | None
    code: int
    delay_seconds: float
    calls_left: int | None
    """None: unlimited."""
    seconds_left: float | None
    """None: until it is cleared."""


class SimMachine:
    """The simulated GPUs of one shape, shared by all processes of this user that ask for it."""

    def __init__(self, shape: SimShape, library_dir: Path, state_path: Path) -> None:
        """Use `open`."""
        self.shape = shape
        self.library_dir = library_dir
        self.state_path = state_path
        self._control = load_control(library_dir)
        self._handle: int | None = None
        self.tier: Tier = "driver"
        self.name: str | None = None
        """The name that `open` was given."""

    @classmethod
    def open(
        cls,
        shape: SimShape,
        *,
        name: str | None = None,
        tier: Tier = "driver",
        described: Sequence[DescribedGpu] = (),
    ) -> Self:
        """Create the machine, or join it if it exists.

        Args:
            shape: The GPUs.
            name: A machine of that name instead of the one that is shared by all users of this shape.
            tier: How frameworks reach it: "driver" (NVIDIA's libraries) or "plugin" (a PluggableDevice of
                TensorFlow, which computes). Both show the same devices.
            described: What the GPUs are like, if the machine is new; as many as the shape has.

        Raises:
            GpuwatchError: it cannot be built, or its folder is not safe to use.
        """
        if name is not None and not MACHINE_NAME_PATTERN.fullmatch(name):
            raise GpuwatchError(f"not a name for a simulated machine: {name!r}")
        library_dir = library_cache.ensure_built()
        if tier == "plugin":
            library_cache.ensure_built(tier)  # so that errors show now
        folder = state_folder()
        machine = cls(shape, library_dir, folder / state_name(shape, name, library_dir))
        machine.tier, machine.name = tier, name
        with folder_lock(folder):
            ensure_machine(machine._control, machine.state_path, shape, described)
            machine._handle = machine._open_state()
            os.utime(machine.state_path)  # when it was last used: mapping the file does not change its time
        return machine

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """The machine named in `environment`, as in a child of a simulated run; None without one."""
        shape, state = environment.get(ENV_SHAPE), environment.get(ENV_STATE)
        if not shape or not state:
            return None
        check_state_is_trusted(Path(state))
        machine = cls(SimShape.parse(shape), library_cache.ensure_built(), Path(state))
        machine._handle = machine._open_state()
        return machine

    def environment(self, base: Mapping[str, str], *, tier: Tier | None = None) -> dict[str, str]:
        """`base` plus everything that makes a program see the simulated GPUs.

        Args:
            base: The environment to start from. Settings of another tier are replaced.
            tier: How frameworks reach the GPUs; None: as this machine was opened.
        """
        return environment.simulated_environment_of(
            base, str(self.shape), self.library_dir, self.state_path, tier=tier or self.tier
        )

    def stripped(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` without what `environment` adds: programs see no simulated GPU."""
        return environment.real_environment_of(base, self.library_dir)

    def devices(self) -> tuple[SimDevice, ...]:
        """The simulated GPUs in the order of their indices."""
        control, handle = self._control, self._open_handle()
        return tuple(
            SimDevice(
                index=index,
                uuid=control.gws_device_uuid(handle, index).decode(),
                pci_bus_id=control.gws_device_pci_bus_id(handle, index).decode(),
                name=control.gws_device_name(handle, index).decode(),
                memory_bytes=control.gws_device_total_bytes(handle, index),
                reserved_bytes=control.gws_device_reserved_bytes(handle, index),
            )
            for index in range(control.gws_device_count(handle))
        )

    def ordinals(self, pid: int) -> tuple[tuple[int, str], ...]:
        """TensorFlow's numbers of the devices that a process uses, with their UUIDs.

        Only for processes on the plug-in tier, whose log lines have no PCI address, from the time when TensorFlow has
        set up its devices to the end of the process. If several logical devices are on one GPU, the lowest number is
        CUDA's number of the GPU.
        """
        found = (ctypes.c_int32 * MAX_DEVICES)()
        count = self._control.gws_process_ordinals(self._open_handle(), pid, found)
        devices = self.devices()
        return tuple((ordinal, devices[found[ordinal]].uuid) for ordinal in range(count) if found[ordinal] >= 0)

    def used_bytes(self, device: int) -> int:
        """Bytes that processes hold on a device, without the driver's reserve."""
        self._check_device(device)
        return int(self._control.gws_used_bytes(self._open_handle(), device))

    def attach(
        self,
        pid: int,
        device: int,
        memory_bytes: int,
        sm_percent: float = 0.0,
        foreign: bool = False,
        mig: int | None = None,
    ) -> None:
        """Make a process that computes appear on a device with this memory and load, until it exits or is detached.

        A second call for the same process and device replaces the first.

        Args:
            pid: A live process of this user, or any number if `foreign`.
            device: Index of the GPU.
            memory_bytes: Memory it holds there, which must be free.
            sm_percent: Share of time in which its kernels run, 0-100.
            foreign: A pid of another PID namespace: it need not exist here, and stays until it is detached.
            mig: Index of its MIG instance; None: the first if MIG is on.

        Raises:
            GpuwatchError: no such process or device, or the memory does not fit.
        """
        self._check_device(device)
        code = self._control.gws_attach(
            *(self._open_handle(), pid, device, memory_bytes, sm_percent / 100, 0.0),
            *(_COMPUTES, _FOREIGN if foreign else 0, -1 if mig is None else mig),
        )
        if code:
            amounts = (memory_bytes, self.used_bytes(device), self.shape.memory_bytes)
            requested, used, total = (f"{amount / 2**30:.1f} GiB" for amount in amounts)
            reasons = {
                errno.EINVAL: f"simulated GPU {device} has no MIG instance {mig}",
                errno.ESRCH: f"no such process: {pid}",
                errno.ENOMEM: f"{requested} do not fit on simulated GPU {device}: {used} of {total} are in use",
                errno.ENOSPC: f"the simulated machine is limited to {_MAX_PROCESSES} processes",
            }
            raise GpuwatchError(reasons.get(code, os.strerror(code)))

    def detach(self, pid: int, device: int = ANY_DEVICE) -> int:
        """Remove an attached process from one device, or from all; returns the number of devices."""
        return int(self._control.gws_detach(self._open_handle(), pid, device))

    def inject(
        self,
        function: str,
        code: int = 0,
        device: int = ANY_DEVICE,
        delay_ms: int = 0,
        count: int = FOR_EVER,
        seconds: float | None = None,
        label: str = "",
    ) -> None:
        """Make calls of a function fail, or take long.

        Args:
            function: An NVML or CUDA driver function, including its _v2 and _v3; "nvmlDevice*" matches all functions
                with that prefix, "*" all of NVML.
            code: What the call returns (an NVML or CUDA error number); 0: it succeeds after the delay.
            device: Only calls about this GPU.
            delay_ms: Time before the call returns. `clear_faults` ends it early.
            count: Number of calls; FOR_EVER for no limit.
            seconds: When the fault ends, and calls that hang in it return; None: when it is cleared.
            label: A name for `clear_faults`.
        """
        if device != ANY_DEVICE:
            self._check_device(device)
        lasting = 0 if seconds is None else max(1, round(seconds * 1000))
        result = self._control.gws_inject_labelled(
            self._open_handle(), function.encode(), device, code, delay_ms, count, lasting, label.encode()
        )
        if result:
            raise GpuwatchError(f"cannot inject a fault into {function!r}: {os.strerror(result)}")

    def clear_faults(self, label: str | None = None, device: int = ANY_DEVICE) -> int:
        """Clear all faults, or those with a label (on one device); calls that hang in one return. Returns how many."""
        if label is not None:
            return int(self._control.gws_clear_labelled(self._open_handle(), label.encode(), device))
        count = len(self.faults())
        self._control.gws_clear_faults(self._open_handle())
        return count

    def faults(self) -> tuple[SimFault, ...]:
        found, view = [], FaultView()
        for index in range(_MAX_FAULTS):
            if self._control.gws_fault_at(self._open_handle(), index, ctypes.byref(view)):
                continue
            found.append(
                SimFault(
                    function=view.function.decode(),
                    label=view.label.decode(),
                    device=None if view.device == ANY_DEVICE else view.device,
                    code=view.code,
                    delay_seconds=view.delay_ms / 1000,
                    calls_left=None if view.remaining == FOR_EVER else view.remaining,
                    seconds_left=None if view.left_ms < 0 else view.left_ms / 1000,
                )
            )
        return tuple(found)

    def heal(self) -> None:
        """Undo everything that was done to the machine: faults, set values, MIG, sleep, foreign processes, removals."""
        self._control.gws_heal(self._open_handle())
        shutil.rmtree(environment.sysfs_folder(self.state_path), ignore_errors=True)

    def set_mig(self, device: int, layout: str) -> tuple[SimInstance, ...]:
        """Partition a GPU by a layout (:mod:`gpuwatch.sim.mig_layout`), at any time; ``off`` switches MIG off."""
        self._check_device(device)
        instances = parse_layout(layout)
        set_mig_instances(self._control, self._open_handle(), device, instances)
        return instances or ()

    def mig(self, device: int) -> tuple[SimInstance, ...] | None:
        """The MIG instances of a GPU; None if MIG is off."""
        self._check_device(device)
        if not self._control.gws_mig_is_on(self._open_handle(), device):
            return None
        view, found = MigView(), []
        for index in range(MAX_INSTANCES):
            if self._control.gws_get_mig(self._open_handle(), device, index, ctypes.byref(view)) == 0:
                found.append(
                    SimInstance(index, view.gpu_instance, view.compute_instance, view.gpu_slices, view.compute_slices)
                )
        return tuple(found)

    def pids(self) -> frozenset[int]:
        views = (ProcessView * _MAX_PROCESSES)()
        found: set[int] = set()
        for device in range(self.shape.count):
            count = self._control.gws_list_processes(self._open_handle(), device, 7, views, _MAX_PROCESSES)
            found.update(view.pid for view in views[:count])
        return frozenset(found)

    def show_device(self, device: int, shown: bool = True) -> None:
        """Remove a GPU from the machine, or put it back, for NVML and new CUDA programs."""
        self._check_device(device)
        self._control.gws_set_hidden(self._open_handle(), device, not shown)

    def is_shown(self, device: int) -> bool:
        self._check_device(device)
        return not self._control.gws_is_hidden(self._open_handle(), device)

    def set_asleep(self, device: int, asleep: bool) -> None:
        """Make the kernel report a GPU as suspended, as on laptops, or awake; calls do not wake it."""
        self._check_device(device)
        for other in self.devices():  # the kernel lists them all
            folder = environment.power_folder(environment.sysfs_folder(self.state_path), other.pci_bus_id)
            if other.index == device:
                contents = {"control": "auto", "runtime_status": "suspended" if asleep else "active"}
            elif folder.is_dir():
                continue
            else:
                contents = {"control": "on", "runtime_status": "active"}
            folder.mkdir(parents=True, exist_ok=True)
            _write_atomically(folder.parent / "vendor", _PCI_VENDOR)
            _write_atomically(folder.parent / "class", _PCI_CLASS)
            for name, text in contents.items():
                _write_atomically(folder / name, text)

    def is_asleep(self, device: int) -> bool:
        folder = environment.power_folder(environment.sysfs_folder(self.state_path), self.devices()[device].pci_bus_id)
        try:
            return (folder / "runtime_status").read_text(encoding="ascii").strip() == "suspended"
        except OSError:
            return False

    def overrides(self, device: int) -> dict[str, int]:
        self._check_device(device)
        value, found = ctypes.c_int64(), {}
        for key, name in enumerate(self.override_names()):
            if self._control.gws_get_override(self._open_handle(), device, key, ctypes.byref(value)) == 0:
                found[name] = value.value
        return found

    def override_names(self) -> tuple[str, ...]:
        names: list[str] = []
        while name := self._control.gws_override_name(len(names)):
            names.append(name.decode())
        return tuple(names)

    def override(self, device: int, name: str, value: int | None) -> None:
        """Make a device report this value instead of the simulated one; None: the simulated one again.

        Names are those of `override_names` (state_script.c): "temperature_celsius", "power_milliwatts",
        "clock_event_reasons" (NVML's bits), "ecc_corrected", "ecc_uncorrected" (either switches ECC on),
        "compute_mode" (NVML's number; exclusive and prohibited turn CUDA programs away), "compute_capability"
        (52 for 5.2), "multiprocessors", "cuda_version" (11040 for 11.4; of the driver, set on device 0), ...
        """
        self._check_device(device)
        code = self._control.gws_set_override(self._open_handle(), device, name.encode(), value or 0, value is not None)
        if code == errno.EPERM:
            raise GpuwatchError(
                "this machine was made from a file or model, whose values it reports: they cannot be set"
            )
        if code:
            raise GpuwatchError(f"simulated GPUs have no value {name!r} that can be set")

    def remove(self) -> None:
        """Delete the state file. Processes that use it keep it; new ones get a new machine."""
        self.close()
        self.state_path.unlink(missing_ok=True)
        shutil.rmtree(environment.sysfs_folder(self.state_path), ignore_errors=True)

    def close(self) -> None:
        if self._handle is not None:
            self._control.gws_close(self._handle)
            self._handle = None

    def hold(self) -> None:
        """Keep the machine in use by this process and the program that it becomes (execve).

        That program may not open a simulated library itself, such as a shell that starts others.
        """
        descriptor = os.open(self.state_path, os.O_RDWR | os.O_CLOEXEC)
        try:
            # A high number, if the limit allows: programs expect low ones to be free.
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            lowest = _MIN_DESCRIPTOR if most == resource.RLIM_INFINITY or most > _MIN_DESCRIPTOR else most // 2
            held_descriptor = fcntl.fcntl(descriptor, fcntl.F_DUPFD, lowest)
            fcntl.flock(held_descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)

    def _open_state(self) -> int:
        handle = self._control.gws_open(os.fsencode(self.state_path))
        if not handle:
            reason = os.strerror(ctypes.get_errno())
            raise GpuwatchError(f"cannot open the simulated GPUs in {self.state_path}: {reason}")
        return int(handle)

    def _open_handle(self) -> int:
        if self._handle is None:
            raise GpuwatchError("this simulated machine was removed")
        return self._handle

    def _check_device(self, device: int) -> None:
        if not 0 <= device < self.shape.count:
            raise GpuwatchError(f"no such simulated GPU: {device} (0 to {self.shape.count - 1})")


def _write_atomically(path: Path, text: str) -> None:
    """Writes a file atomically: readers see the old text or the new one."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(f"{text}\n", encoding="ascii")
    temporary.replace(path)
