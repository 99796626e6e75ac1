"""Causes that only the doctor's facts show: system files, the driver's answers, paths of libraries.

The rules on evidence judge the framework's run and the snapshot. Findings from here either add to one of theirs
(same id: the engine adds the evidence and replaces the action) or report a cause that they cannot see.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.causes import CAUSES, NO_GPU
from gpuwatch.core.model.doctor import DriverAnswer, FrameworkFacts, Library, System
from gpuwatch.core.model.driver_advice import (
    JOIN_DEVICE_GROUP,
    PASS_GPUS_TO_CONTAINER,
    REINSTALL_LIBRARIES,
    REPLACE_CRASHING_LIBRARY,
    missing_half_action,
)
from gpuwatch.core.model.findings import Finding, Severity
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.doctor import framework
from gpuwatch.explain.diagnosis.doctor.check import Facts
from gpuwatch.explain.diagnosis.doctor.devices import MOSTLY_HELD_SHARE
from gpuwatch.explain.diagnosis.doctor.driver import (
    CUDA_ERRORS,
    REBOOT,
    cuinit_error_advice,
    cuinit_error_text,
    driver_versions,
    is_broken,
    missing_driver_advice,
)
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.memory_holders import free_memory_advice, holder_text, holders
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.explain.diagnosis.rule_registry import (
    error_finding,
    finding,
    likely_error,
    likely_warning,
    rule,
    warning_finding,
)
from gpuwatch.explain.diagnosis.rules.driver_failures import (
    MISMATCH_CODES,
    MISSING_CODES,
    RECREATE_CONTAINER_ACTION,
)
from gpuwatch.explain.diagnosis.rules.simulation_limits import why_pytorch_has_no_gpu
from gpuwatch.explain.logs.log_parser import parse

_rule = partial(rule, takes="machine")
_CONTEXT_BYTES = 500 << 20
"""Free memory below which a CUDA context may not fit."""


@_rule("driver.missing", needs="system")
def no_driver(facts: Facts, system: System) -> Iterator[Finding]:
    """Why there is no driver: nouveau, a container without GPUs, no card, or nothing installed."""
    if facts.nvml_answers or facts.simulated or facts.cuda_starts:
        return
    if system.kernel_module is not None and facts.driver is not None and facts.driver.nvml_code:
        return  # it is installed but does not start
    lines, title = [], ""
    if system.cards and any(card.driver == "nouveau" for card in system.cards):
        lines.append(f"nouveau has claimed {system.cards[0].bus_id}")
    elif system.jetson:
        lines.append("this is a Jetson, and neither NVML nor libcuda starts")
    elif system.cards is not None and not system.cards and not system.wsl:
        lines.append("no NVIDIA card on the PCI bus")
        title = "No NVIDIA driver found, and no NVIDIA card on this machine's PCI bus"
    elif system.container is None and system.kernel_module is not None:
        return
    if system.container is not None:
        lines.append(f"this is a container ({system.container}); device files in it: {len(system.device_files)}")
    if system.kernel_module is None and not (system.wsl or system.jetson):
        lines.append("/proc/driver/nvidia/version does not exist: the kernel module is not loaded")
    if lines:
        yield error_finding("driver.missing", title=title, evidence=lines, action=missing_driver_advice(facts))


@_rule("driver.mismatch")
def versions_differ(facts: Facts) -> Iterator[Finding]:
    """Kernel module, libcuda and NVML have different releases, and CUDA does not start."""
    versions = driver_versions(facts)
    if len(set(versions.values())) > 1 and not facts.cuda_starts:
        lines = [f"{name}: {version}" for name, version in versions.items()]
        yield error_finding("driver.mismatch", evidence=lines, action=REBOOT)


@_rule("driver.mismatch", "driver.bad-state", "container.lost-devices", needs="driver")
def driver_does_not_start(facts: Facts, answer: DriverAnswer) -> Iterator[Finding]:
    """The result of cuInit, without a framework."""
    if not (code := answer.cuinit_code):
        return
    line = cuinit_error_text(code)
    if code in MISMATCH_CODES:
        yield error_finding("driver.mismatch", evidence=[line], action=cuinit_error_advice(code))
    elif code not in MISSING_CODES:
        yield error_finding(
            "driver.bad-state",
            title=f"The driver is installed but does not start: {CUDA_ERRORS.get(code, 'an error')} ({code})",
            evidence=[line],
            action=cuinit_error_advice(code),
        )
    elif code == 100 and facts.nvml_answers and not facts.hides_every_gpu:
        yield likely_error(
            "container.lost-devices",
            title="NVML answers, but CUDA finds no device",
            evidence=[line],
            action=RECREATE_CONTAINER_ACTION,
        )


@_rule("driver.missing", "driver.bad-state", needs="driver")
def driver_library_missing(facts: Facts, answer: DriverAnswer) -> Iterator[Finding]:
    """Only one of the driver's two libraries is usable: a container started with half of the driver, or a bad file."""
    if answer.libcuda is None or answer.nvml is None:
        return
    if broken := [library for library in (answer.libcuda, answer.nvml) if is_broken(library)]:
        yield error_finding(
            "driver.bad-state",
            title=f"{broken[0].name} is there but cannot be used",
            evidence=[library.error or "" for library in broken],
            action=REINSTALL_LIBRARIES,
        )
        return
    if answer.libcuda.error is None and answer.cuinit_code == 0 and answer.nvml.error is not None:
        yield finding(
            "driver.missing",
            "warning" if facts.gpu_usable else "error",
            title="CUDA starts but NVML is missing, so TensorFlow 2.21 and later have no GPU, without a message",
            evidence=[answer.nvml.error],
            action=missing_half_action(facts.system, answer.nvml.name, answer.libcuda.version),
        )
    elif answer.libcuda.error is not None and answer.nvml_code == 0:
        yield error_finding(
            "driver.missing",
            title="NVML answers but libcuda.so.1 is missing: no program can use CUDA",
            evidence=[answer.libcuda.error],
            action=missing_half_action(facts.system, answer.libcuda.name, answer.nvml_driver),
        )


@_rule("driver.bad-state", needs="driver")
def nvml_hangs(facts: Facts, answer: DriverAnswer) -> Iterator[Finding]:
    """NVML was called and did not return, even if a framework got its GPUs anyway."""
    started = answer.nvml_code == 0 and facts.snapshot is None
    if answer.late != "nvmlInit" and not started:
        return
    what = "NVML started, but a later call did not return" if started else "nvmlInit did not return"
    yield finding(
        "driver.bad-state",
        "error",
        "likely" if started else "fact",
        title="NVML does not answer: the driver or a GPU hangs",
        evidence=[f"{what} within {facts.deadline:g} s"],
        action="Check dmesg for NVRM and Xid lines of a hung GPU; reset it (nvidia-smi -r), or reboot.",
    )


@_rule("driver.bad-state", needs="driver")
def library_crashes(facts: Facts, answer: DriverAnswer) -> Iterator[Finding]:
    """A call into one of the driver's libraries ended the process."""
    if answer.ended_in:
        title = f"The driver's library crashes in {answer.ended_in}"
        yield error_finding("driver.bad-state", title=title, evidence=[answer.problem], action=REPLACE_CRASHING_LIBRARY)


@_rule("driver.bad-state", "container.lost-devices", needs="system")
def unusable_device_files(facts: Facts, system: System) -> Iterator[Finding]:
    """Device files that this user may not use, or that are missing although the driver is loaded."""
    if facts.simulated or facts.gpu_usable or system.kernel_module is None:
        return
    unusable = [entry for entry in system.device_files if not entry.usable]
    if unusable:
        yield error_finding(
            "driver.bad-state",
            title="This user does not have permission to use the GPU's device files",
            evidence=[f"{entry.path}: {entry.mode}" for entry in unusable],
            action=JOIN_DEVICE_GROUP,
        )
    elif system.container and not system.device_files:
        yield error_finding(
            "container.lost-devices",
            evidence=["the kernel module is loaded, but this container has no /dev/nvidia*"],
            action=PASS_GPUS_TO_CONTAINER,
        )


@_rule("cuda.libraries-missing", "cuda.version-mismatch", needs="installation")
def unusable_libraries(facts: Facts, installation: FrameworkFacts) -> Iterator[Finding]:
    """Libraries that cannot be loaded, or that shadow the build's own."""
    found = installation.libraries or ()
    bad = [library for library in found if library.state != "loaded"]
    if bad and facts.has_driver_trace:
        yield finding(
            "cuda.libraries-missing",
            "warning" if facts.gpu_usable else "error",
            title=f"CUDA libraries cannot be loaded: {', '.join(library.name for library in bad)}",
            evidence=[_why_unusable(library) for library in bad],
            action=framework.library_install_advice(facts, [library.name for library in bad]),
        )
    shadowing = [library for library in found if library.shadows]
    if shadowing:
        yield finding(
            "cuda.version-mismatch",
            "info" if facts.gpu_usable else "warning",
            "likely",
            title="LD_LIBRARY_PATH shadows the framework's own CUDA libraries",
            evidence=[f"{library.name}: {library.path} instead of {library.shadows}" for library in shadowing],
            action="unset LD_LIBRARY_PATH, or remove the folder from it.",
        )


def _why_unusable(library: Library) -> str:
    text = library.detail or library.state
    return text if text.startswith(f"{library.name}:") else f"{library.name}: {text}"


@_rule("unknown", "build.cpu-only", needs="installation")
def not_installed(facts: Facts, installation: FrameworkFacts) -> Iterator[Finding]:
    """The framework is not installed, or two distributions overwrite each other."""
    if installation.missing:
        severity: Severity = "error" if facts.named_by_user else "warning"
        yield finding("unknown", severity, title=installation.missing, action=framework.INSTALL_FRAMEWORK)
        return
    builds = [entry for entry in installation.distributions or () if entry.name in ("tensorflow", "tensorflow-cpu")]
    if installation.name == "tensorflow" and len({entry.name for entry in builds}) == 2:
        yield likely_warning(
            "build.cpu-only",
            title="tensorflow and tensorflow-cpu are both installed: the later one has overwritten the other's files",
            evidence=[f"{entry.name} {entry.version}" for entry in builds],
            action='pip uninstall -y tensorflow tensorflow-cpu; pip install "tensorflow[and-cuda]".',
        )


@_rule("build.cpu-only", "unknown", needs="installed_framework")
def pytorch_build_or_simulation(facts: Facts, installation: FrameworkFacts) -> Iterator[Finding]:
    """Advice that differs from TensorFlow's; some builds have no simulated GPUs."""
    if installation.name != "torch":
        return
    if installation.gpu_build is False:
        yield finding(
            "build.cpu-only",
            "error" if facts.nvml_answers else "warning",
            action=framework.INSTALL_CUDA_BUILD_OF_PYTORCH,
        )
    elif facts.run is not None and (obstacle := why_pytorch_has_no_gpu(facts.run)):
        yield warning_finding(
            "unknown",
            title=f"{obstacle}; PyTorch's messages here describe the machine without simulated GPUs",
            action="Check PyTorch without --sim, or a newer version.",
        )


@_rule("memory.other-process", needs="snapshot")
def mostly_held_gpus(facts: Facts, snapshot: Snapshot) -> Iterator[Finding]:
    """A GPU whose memory others mostly hold, perhaps so much that not even a context fits.

    A note if a program can start there and another one has room: that others work on a GPU is as it should be.
    """
    full_gpus = []
    for device in facts.gpus:
        free, total = device.number("memory.free_bytes"), device.number("memory.total_bytes") or 0
        held = any(row.device_uuid == device.uuid for row in snapshot.processes)
        if free is not None and (free < _CONTEXT_BYTES or (held and free < MOSTLY_HELD_SHARE * total)):
            full_gpus.append((device, free))
    for device, free in full_gpus:
        no_context = free < _CONTEXT_BYTES
        what = "a program may not even start there" if no_context else "others hold the rest"
        yield finding(
            "memory.other-process",
            "warning" if no_context or len(full_gpus) == len(facts.gpus) else "info",
            "likely",
            title=f"GPU {device.index} has only {size(int(free))} free: {what}",
            evidence=[holder_text(amount, process) for amount, process in holders(snapshot, device)],
            action=free_memory_advice(snapshot, device),
            device_uuid=device.uuid,
        )


@_rule("hardware.fault", needs="installation")
def wrong_matrix_product(facts: Facts, installation: FrameworkFacts) -> Iterator[Finding]:
    """A device whose matrix product is wrong."""
    for test in installation.tests:
        if test.correct is False:
            yield likely_error(
                "hardware.fault",
                title=f"{test.device} computes a wrong result",
                evidence=[f"the product of two matrices of ones on {test.ran_on} is wrong"],
                action="Check dmesg for Xid and ECC errors; test the card; run the same program on another one.",
            )


@_rule("unknown", needs="installation")
def framework_timed_out(facts: Facts, installation: FrameworkFacts) -> Iterator[Finding]:
    """The framework did not finish before its deadline."""
    if installation.late and facts.run is not None:
        yield error_finding(
            "unknown",
            title=f"{installation.late} did not finish before its deadline",
            action="Check dmesg for a hung GPU, and look for a slow file system.",
        )


@_rule("unknown", needs="system")
def shadowing_files(facts: Facts, system: System) -> Iterator[Finding]:
    """The user's own file or folder with the framework's name, which Python imports instead."""
    for path, in_python_path in system.shadowing_files:
        name = path.removesuffix("/").rpartition("/")[2].removesuffix(".py")
        programs = "every program, because its folder is in PYTHONPATH" if in_python_path else "programs in its folder"
        yield finding(
            "unknown",
            "error" if in_python_path else "warning",
            title=f"{path} shadows the package {name}: import {name} loads it in {programs}",
            evidence=[path],
            action=f"Rename it (and remove __pycache__/{name}.*.pyc), or start programs in another folder.",
        )


@_rule(*CAUSES, needs="run")
def broken_import(facts: Facts, run: Run) -> Iterator[Finding]:
    """The import failed with a message that ``explain`` recognizes."""
    if run.framework is not None or not run.errors:
        return
    log = parse("\n".join((*run.log_tail, *(f"{error.type}: {error.message}" for error in run.errors))))
    for found in diagnose(Evidence(log=log)):
        if found.severity != "error" or found.id == "unknown":
            continue
        libraries_missing = found.id == "cuda.libraries-missing" and log.missing_libraries
        action = framework.library_install_advice(facts, log.missing_libraries) if libraries_missing else found.action
        yield finding(
            found.id,
            found.severity,
            found.certainty,
            title=f"{facts.framework_text} cannot be imported: {found.title}",
            evidence=found.evidence,
            action=action,
        )


@_rule("unknown", needs="run", unless=())
def failed_import(facts: Facts, run: Run) -> Iterator[Finding]:
    """How the import ended, where nothing says why."""
    if run.framework is None:
        yield from (found for found in run.findings if found.id == "unknown")


@_rule("unknown", unless=NO_GPU)
def no_gpu_without_reason(facts: Facts) -> Iterator[Finding]:
    """The framework was imported and has no GPU, although there are some."""
    if facts.framework is None or facts.gpu_usable or not facts.gpus:
        return
    if facts.run and why_pytorch_has_no_gpu(facts.run):
        return
    yield error_finding(
        "unknown",
        title=f"{facts.framework_text} has no GPU, and nothing says why",
        evidence=(f"NVML lists {len(facts.gpus)}",),
        action="Send this report to someone who knows the machine: gpuwatch doctor -o doctor.md",
    )
