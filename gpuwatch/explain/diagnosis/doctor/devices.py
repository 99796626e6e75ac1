"""Checks of device files, and of the GPUs by NVML: state, mode, MIG, persistence, free memory.

Sources: NVIDIA driver README (device nodes), NVML API reference (compute modes, persistence),
NVIDIA MIG user guide (one instance a process, addressed by UUID).
"""

from __future__ import annotations

import re

from gpuwatch.core.formatting import units
from gpuwatch.core.formatting.sentences import count_text, gpu_list_text
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.driver_advice import JOIN_DEVICE_GROUP, PASS_GPUS_TO_CONTAINER
from gpuwatch.core.model.snapshot import Process
from gpuwatch.core.model.visible_devices import MIG_PREFIX
from gpuwatch.explain.diagnosis.doctor.check import Answer, Facts, check, fail, ok, skip, warn
from gpuwatch.explain.diagnosis.doctor.driver import action_unless_no_card, deadline_answer
from gpuwatch.explain.diagnosis.memory.memory_holders import free_memory_advice, holders

_GPU_FILE = re.compile(r"^/dev/nvidia\d+$")
_CREATE_FILES = "nvidia-modprobe -c 0 -u creates them; in a container, recreate it with its GPUs."
_TIGHT_SHARE, _TIGHT_BYTES = 0.1, 1 << 30
"""Free memory below both of which hardly a program fits: a share of the GPU, and bytes."""
MOSTLY_HELD_SHARE = 0.5
"""Share of a GPU from which memory held by others is reported."""
_NO_DRIVER = "NVML does not answer"


@check("devices.files", "Device files")
def device_files(facts: Facts) -> Answer | None:
    """/dev/nvidiactl, one file per GPU, and nvidia-uvm, without which cuInit returns 999."""
    if facts.simulated:
        return skip("simulated GPUs have no device files")
    system = facts.system
    if system is None:
        return deadline_answer(facts)
    present = [entry.path for entry in system.device_files]
    if system.wsl:
        if "/dev/dxg" in present:
            return ok("/dev/dxg (WSL)")
        return fail("/dev/dxg does not exist", "Update WSL (wsl --update) and the card's Windows driver.")
    if system.jetson:
        return skip("a Jetson's GPU has other device files (/dev/nvhost-*, /dev/nvmap)")
    gpus = [path for path in present if _GPU_FILE.match(path)]
    if not present:
        action = PASS_GPUS_TO_CONTAINER if system.container else "Load the driver, which creates them: modprobe nvidia."
        return fail("/dev/nvidia* does not exist", action_unless_no_card(facts, action))
    lacking = [path for path in ("/dev/nvidiactl", "/dev/nvidia-uvm") if path not in present]
    if not gpus:
        lacking.append("/dev/nvidia0")
    if lacking:
        return fail(f"missing: {', '.join(lacking)}; present: {', '.join(present)}", _CREATE_FILES)
    return ok(", ".join(present))


@check("devices.permissions", "Permissions for this user")
def permissions(facts: Facts) -> Answer | None:
    """Each file must be readable and writable."""
    system = facts.system
    if facts.simulated or system is None or not system.device_files:
        return None
    unusable = [entry for entry in system.device_files if not entry.usable]
    if unusable:
        listed = ", ".join(f"{entry.path} ({entry.mode})" for entry in unusable)
        return fail(f"this user does not have permission to use {listed}", JOIN_DEVICE_GROUP)
    return ok(f"{count_text(len(system.device_files), 'file')}, readable and writable")


@check("devices.present", "GPUs listed by NVML")
def listed_gpus(facts: Facts) -> Answer | None:
    """Checks that NVML lists GPUs, all in a good state."""
    if facts.snapshot is None:
        answer = deadline_answer(facts)
        started = facts.driver is not None and facts.driver.nvml_code == 0
        return fail(answer.detail, answer.action) if started else answer
    if not facts.nvml_answers:
        problem = next(iter(facts.snapshot.problems), None)
        return skip(_NO_DRIVER + (f": {problem.detail}" if problem is not None else ""))
    bad = [device for device in facts.gpus if device.state not in ("ok", "asleep")]
    if bad:
        return fail(
            "; ".join(f"GPU {device.index} is {device.state} {device.state_detail}".rstrip() for device in bad),
            "Look for Xid lines in dmesg; drain the node, then reset the GPU (nvidia-smi -r) or reboot.",
        )
    if not facts.gpus:
        action = "Check lspci and dmesg; in a container, check which GPUs it was given."
        return fail("the driver answers but lists no GPU", action)
    listed = "; ".join(f"{device.index} {device.name}" for device in facts.gpus[:16])
    simulated = " (simulated)" if facts.simulated else ""
    return ok(f"{count_text(len(facts.gpus), 'GPU')}{simulated}: {listed}")


@check("devices.mode", "Compute mode")
def compute_mode(facts: Facts) -> Answer | None:
    """Exclusive: one process at a time. Prohibited: none."""
    if not facts.gpus:
        return skip(_NO_DRIVER)
    modes = [(device, device.readings.get("mode.compute", "default")) for device in facts.gpus]
    closed = [(device, mode) for device, mode in modes if isinstance(mode, str) and mode != "default"]
    if not closed:
        unread = [device.index for device in facts.gpus if "mode.compute" not in device.readings]
        return skip(f"NVML does not report it for GPU {unread[0]}") if unread else ok("default on all")
    listed = ", ".join(f"GPU {device.index} {value}" for device, value in closed)
    action = "nvidia-smi -c 0 lets several processes share the GPU."
    held = {process.device_uuid for process in facts.snapshot.processes} if facts.snapshot is not None else set()
    if any(value == "prohibited" or device.uuid in held for device, value in closed):
        return fail(f"{listed}: any further process is refused", action)
    return warn(f"{listed}: one process at a time", action)


@check("devices.mig", "MIG")
def mig(facts: Facts) -> Answer | None:
    """A GPU in MIG mode is selected by the UUID of an instance, never by a number."""
    if not facts.gpus:
        return skip(_NO_DRIVER)
    on = [device for device in facts.gpus if device.has_mig]
    asked = [entry.strip() for entry in (facts.visible_devices or "").split(",") if entry.strip()]
    instances = [entry for entry in asked if entry.startswith(MIG_PREFIX)]
    if len(instances) > 1:
        listed = f"CUDA_VISIBLE_DEVICES lists {len(instances)} instances"
        return fail(f"{listed}, but a process gets only the first one", "Start one process per instance.")
    if instances and not on:
        return fail("an instance is requested, but no GPU has MIG on", "Name a GPU, or create the instance.")
    if not on:
        return ok("off")
    listed = ", ".join(f"GPU {device.index}" for device in on)
    numbers = [entry for entry in asked if entry.isdigit() and entry in {str(device.index) for device in on}]
    if numbers:
        action = "Use the UUID of an instance instead (MIG-…, from nvidia-smi -L)."
        return warn(f"on for {listed}, but CUDA_VISIBLE_DEVICES lists {', '.join(numbers)}", action)
    return ok(f"on: {listed}")


@check("devices.mps", "MPS")
def mps(facts: Facts) -> Answer | None:
    """A server through which programs share a GPU; tools see the server instead of them."""
    pipe = facts.environment.get("CUDA_MPS_PIPE_DIRECTORY")
    rows = facts.snapshot.processes if facts.snapshot is not None else ()
    servers = [row for row in rows if (row.name or "").startswith("nvidia-cuda-mps") or "M" in (row.type or "")]
    if not servers and pipe is None:
        return None
    if not servers:
        return warn(
            f"CUDA_MPS_PIPE_DIRECTORY={pipe}, but no MPS server is on a GPU",
            "Start the daemon (nvidia-cuda-mps-control -d), or unset CUDA_MPS_PIPE_DIRECTORY.",
        )
    index = {device.uuid: device.index for device in facts.gpus}
    gpus = gpu_list_text(index[row.device_uuid] for row in servers if row.device_uuid in index)
    summary = f"the server (pid {servers[0].pid}) serves {gpus}: its clients' memory is shown as its own"
    listed = (facts.visible_devices or "").replace(" ", "").split(",")
    if len([entry for entry in listed if entry.isdigit()]) > 1:
        summary += f"; it renumbers the GPUs, so CUDA_VISIBLE_DEVICES={facts.visible_devices} may select others"
        return warn(summary, "Select GPUs by UUID in MPS clients.")
    return ok(summary)


@check("devices.persistence", "Persistence")
def persistence(facts: Facts) -> Answer | None:
    """Without it the driver is unloaded between programs, and the next one starts slowly."""
    if not facts.gpus:
        return skip(_NO_DRIVER)
    off = [device.index for device in facts.gpus if device.readings.get("mode.persistence") == "disabled"]
    known = [device for device in facts.gpus if "mode.persistence" in device.readings]
    if not known:
        return skip("NVML does not report it")
    if not off:
        return ok("on")
    seconds = facts.driver.cuinit_seconds if facts.driver is not None else None
    where = "off on GPU " + ", ".join(map(str, off))
    if seconds is not None and seconds > 1:
        return warn(f"{where}, and starting CUDA took {seconds:.1f} s", "Run nvidia-smi -pm 1, or nvidia-persistenced.")
    return ok(f"{where}: the first program starts more slowly")


@check("devices.memory", "Free memory")
def free_memory(facts: Facts) -> Answer | None:
    """TensorFlow allocates nearly all free memory; a context alone needs some hundred MiB."""
    if not facts.gpus:
        return skip(_NO_DRIVER)
    tight_texts, summary, tight_gpus = [], [], []
    for device in facts.gpus:
        free, total = device.number("memory.free_bytes"), device.number("memory.total_bytes")
        if free is None or total is None:
            summary.append(f"GPU {device.index}: unknown")
            continue
        reserved = device.number("memory.reserved_bytes")
        of_driver = f" (driver: {size(int(reserved))})" if reserved else ""
        summary.append(f"GPU {device.index}: {size(int(free))} of {size(int(total))}{of_driver}")
        held = holders(facts.snapshot, device) if facts.snapshot is not None else []
        if free < min(_TIGHT_BYTES, total * _TIGHT_SHARE) or (held and free < MOSTLY_HELD_SHARE * total):
            by = ", ".join(_holder_name(*holder) for holder in held[:3]) or "no process that NVML lists"
            tight_texts.append(f"GPU {device.index}: {size(int(free))} free of {size(int(total))}, held by {by}")
            tight_gpus.append(device)
    if tight_texts:
        return warn("; ".join(tight_texts), free_memory_advice(facts.snapshot, tight_gpus[0]))
    return ok(", ".join(summary))


def _holder_name(amount: int, process: Process) -> str:
    name = process.name or ("a process not visible here" if process.note else "a process")
    owner = f", {process.user}" if process.user else ""
    return f"{name} (pid {process.pid}{owner}): {units.memory(amount)}"
