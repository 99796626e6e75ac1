"""Checks of variables that affect a framework's visible GPUs, memory use and log.

Sources: CUDA programming guide ("CUDA environment variables"), TensorFlow's gpu_device.cc and bfc allocator
(TF_FORCE_GPU_ALLOW_GROWTH, TF_GPU_ALLOCATOR), torch.cuda (``_parse_visible_devices``), ``ld.so(8)``.
"""

from __future__ import annotations

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.visible_devices import read_visible
from gpuwatch.explain.diagnosis.doctor.check import Answer, Facts, check, fail, ok, skip, warn
from gpuwatch.explain.diagnosis.rules.gpu_environment_variables import known_variable_meant
from gpuwatch.explain.diagnosis.rules.missing_gpus import valid_visible_devices_advice

_ORDERS = ("PCI_BUS_ID", "FASTEST_FIRST")
_ALLOCATORS = {
    "cuda_malloc_async": "uses CUDA's own pool: limits are thresholds, and an OOM has no report",
    "cuda_malloc": "a cudaMalloc per tensor, which is slow",
}
_EFFECTS = {
    "TF_PER_DEVICE_MEMORY_LIMIT_MB": "a limit for each device",
    "TF_MIN_GPU_MULTIPROCESSOR_COUNT": "cards with fewer multiprocessors are ignored",
    "TF_DEVICE_MIN_SYS_MEMORY_IN_MB": "memory that TensorFlow leaves free",
    "TF_XLA_FLAGS": "XLA's compilation",
    "XLA_FLAGS": "XLA's compilation",
    "TF_USE_LEGACY_KERAS": "Keras 2 instead of 3",
    "TF_GPU_THREAD_MODE": "threads that launch kernels",
    "CUDA_LAUNCH_BLOCKING": "every kernel launch is synchronous: slow, for debugging",
    "CUDA_MODULE_LOADING": "when kernels are loaded",
    "CUDA_CACHE_DISABLE": "kernels are recompiled on every start",
    "CUDA_MPS_PIPE_DIRECTORY": "programs use an MPS server",
    "PYTORCH_CUDA_ALLOC_CONF": "PyTorch's allocator",
    "PYTORCH_ALLOC_CONF": "PyTorch's allocator",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "availability is checked with NVML",
    "LD_PRELOAD": "libraries loaded before all others",
}


@check("environment.visible-devices", "CUDA_VISIBLE_DEVICES")
def visible_devices(facts: Facts) -> Answer | None:
    """As CUDA reads it: in order, up to the first invalid entry."""
    value = facts.visible_devices
    if value is None:
        return ok("not set: every GPU is visible")
    devices = facts.gpus if facts.nvml_answers else None
    seen = read_visible(value, devices)
    shown = f"CUDA_VISIBLE_DEVICES={value}"
    if seen.hides_all and seen.on_purpose:
        return fail(f"{shown} hides every GPU", "Unset it, or list the GPUs to use (0, or a UUID).")
    if seen.invalid_entry is not None:
        reason = "is not a GPU of this machine"
        if seen.repeated:
            reason = "is a duplicate, so CUDA shows no GPU at all"
        elif seen.invalid_entry.startswith("-"):
            reason = "ends the list"
        rest = f", {', '.join(seen.unread_entries)} is never read" if seen.unread_entries and not seen.repeated else ""
        read = f"; {seen.misread_text}" if seen.misread else ""
        state = warn if seen.entries else fail
        return state(
            f"{shown}: {seen.invalid_entry!r} {reason}{rest}{read}; visible: {', '.join(seen.entries) or 'none'}",
            valid_visible_devices_advice(value) or "List existing GPUs, each once, without -1; UUIDs are safest.",
        )
    if seen.misread:
        return warn(
            f"{shown}: {seen.misread_text}; visible: {', '.join(seen.entries)}",
            f"List plain numbers separated by commas: {seen.probable_value}, if that is what you meant.",
        )
    if devices is None:
        return skip(f"{shown}: without a driver the GPUs are unknown")
    numbers = {str(device.index): device for device in devices}
    uuids = {entry: next((d for d in devices if d.uuid.startswith(entry)), None) for entry in seen.entries}
    order = [numbers[entry] if entry.isdigit() else uuids[entry] for entry in seen.entries]
    moved = [f"GPU:{at} is GPU {device.index}" for at, device in enumerate(order) if device and device.index != at]
    hidden = len(devices) - len(seen.entries)
    summary = f"{shown}: {len(seen.entries)} of {count_text(len(devices), 'GPU')} visible"
    if moved:
        summary += f", renumbered: {', '.join(moved)} of nvidia-smi"
    elif hidden:
        summary += f", {hidden} hidden"
    return ok(summary)


@check("environment.device-order", "CUDA_DEVICE_ORDER")
def device_order(facts: Facts) -> Answer | None:
    """CUDA counts the fastest GPU first, nvidia-smi by PCI bus: with mixed cards the numbers differ."""
    value = facts.environment.get("CUDA_DEVICE_ORDER")
    if value is not None and value not in _ORDERS:
        return warn(f"CUDA_DEVICE_ORDER={value} is not a valid value", "Set it to PCI_BUS_ID.")
    # A GPU that did not answer when listed has no address, and no name to compare.
    models = sorted({device.name for device in facts.gpus if device.pci_bus_id})
    if not facts.gpus:
        return skip("without a driver the GPUs are unknown")
    if len(models) < 2 or value == "PCI_BUS_ID":
        return ok(f"CUDA_DEVICE_ORDER={value}" if value else "not set; all cards are the same model")
    by_number = any(entry.strip().isdigit() for entry in (facts.visible_devices or "").split(","))
    detail = f"cards differ ({', '.join(models)}), and the order is fastest first: numbers differ from nvidia-smi's"
    if by_number or facts.visible_devices is None:
        return warn(detail, "export CUDA_DEVICE_ORDER=PCI_BUS_ID, or use UUIDs.")
    return ok(detail + "; UUIDs are used")


@check("environment.misspelt", "Misspelled variables")
def misspelled_variables(facts: Facts) -> Answer | None:
    """Names similar to a known variable."""
    names = (name for name in sorted(facts.environment) if name not in _EFFECTS)
    found = [(name, meant) for name in names if (meant := known_variable_meant(name)) is not None]
    if not found:
        return ok("none")
    listed = "; ".join(f"nothing reads {name}, {meant} was probably meant" for name, meant in found)
    return warn(listed, "; ".join(f"Write {meant}={facts.environment[name]}" for name, meant in found))


@check("environment.growth", "TF_FORCE_GPU_ALLOW_GROWTH")
def memory_growth(facts: Facts) -> Answer | None:
    """Overrides the program's own setting; only read by TensorFlow."""
    if facts.checks_pytorch:
        return None
    value = facts.environment.get("TF_FORCE_GPU_ALLOW_GROWTH")
    if value is None:
        return ok("not set: TensorFlow allocates nearly all memory of each visible GPU, unless the program changes it")
    if value == "true":
        return ok("true: memory grows as needed; set_memory_growth in the program has no effect")
    if value == "false":
        return warn(
            "false: TensorFlow allocates nearly all memory, even if the program calls set_memory_growth",
            "Unset it, or set it to true.",
        )
    return warn(f"{value!r} is neither true nor false: TensorFlow ignores it", "Write true, in lowercase.")


@check("environment.allocator", "TF_GPU_ALLOCATOR")
def gpu_allocator(facts: Facts) -> Answer | None:
    """An allocator other than TensorFlow's default."""
    value = facts.environment.get("TF_GPU_ALLOCATOR")
    if value is None or facts.checks_pytorch:
        return None
    if value not in _ALLOCATORS:
        return warn(f"TF_GPU_ALLOCATOR={value} is not a TensorFlow allocator", "Use cuda_malloc_async, or unset it.")
    return ok(f"{value}: {_ALLOCATORS[value]}")


@check("environment.library-path", "LD_LIBRARY_PATH")
def library_path(facts: Facts) -> Answer | None:
    """Searched before the framework's own folders."""
    if facts.system is None:
        return skip("not checked in time")
    entries = facts.system.library_path
    if not entries:
        return ok("not set")
    if facts.simulated:
        return ok("holds the libraries of the simulated driver")
    for entry in entries:
        drivers = [name for name in entry.libraries if name.startswith(("libcuda.so", "libnvidia-ml.so"))]
        kind = next((kind for kind in ("stubs", "compat") if f"/{kind}" in f"{entry.folder}/"), None)
        if drivers and kind is not None:
            shadows = f"contains {', '.join(drivers)}: the {kind} library shadows the driver's"
            return fail(f"{entry.folder} {shadows}", f"Remove {entry.folder} from LD_LIBRARY_PATH.")
    libraries = (facts.installation.libraries if facts.installation else None) or ()
    shadowing = [library for library in libraries if library.shadows]
    if shadowing:
        listed = ", ".join(f"{library.name} from {library.path}" for library in shadowing[:4])
        return warn(f"it shadows the wheel's own CUDA libraries: {listed}", "unset LD_LIBRARY_PATH")
    missing = [entry.folder for entry in entries if not entry.exists]
    folders = ", ".join(entry.folder for entry in entries)
    return ok(folders + (f" (missing: {', '.join(missing)})" if missing else ""))


@check("environment.log-level", "TF_CPP_MIN_LOG_LEVEL")
def log_level(facts: Facts) -> Answer | None:
    """Hides log lines with the device map, or the reason why there is no GPU."""
    if facts.checks_pytorch:
        return None
    value = facts.environment.get("TF_CPP_MIN_LOG_LEVEL")
    if value in (None, "0"):
        return ok("every line is shown (names of missing libraries, since 2.12: with TF_CPP_VMODULE=dso_loader=1)")
    hides = {"1": "the device map", "2": "the device map and warnings", "3": "all but fatal errors"}.get(str(value))
    action = "Unset it to look for a problem; the doctor's own run showed all lines."
    return warn(f"{value} hides {hides or 'lines'} in your own programs' logs", action)


@check("environment.others", "Other variables with an effect")
def other_variables(facts: Facts) -> Answer | None:
    """Each with its effect."""
    if facts.simulated and "LD_PRELOAD" in facts.environment:
        return None
    set_variables = {name: facts.environment[name] for name in _EFFECTS if name in facts.environment}
    found = [f"{name}={value} ({_EFFECTS[name]})" for name, value in set_variables.items()]
    if not found:
        return None
    if facts.environment.get("CUDA_LAUNCH_BLOCKING") not in (None, "", "0"):
        return warn("; ".join(found), "Unset CUDA_LAUNCH_BLOCKING after debugging.")
    return ok("; ".join(found))
