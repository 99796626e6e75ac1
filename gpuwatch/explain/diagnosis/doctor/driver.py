"""Checks of the cards on the PCI bus, kernel module, libcuda with cuInit, and NVML, and of their versions.

Sources: NVIDIA driver README (chapter "/proc interface", nouveau), CUDA driver API (cuInit and its codes),
CUDA compatibility guide (one libcuda for one kernel module; cuda-compat only on data-center cards).
"""

from __future__ import annotations

from gpuwatch.core.formatting.durations import tenths_of_seconds
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.doctor import LoadedLibrary
from gpuwatch.core.model.driver_advice import (
    DRIVER_CAPABILITIES_ACTION,
    INSTALL_DRIVER,
    REINSTALL_LIBRARIES,
    REPLACE_CRASHING_LIBRARY,
    REPLACE_NOUVEAU,
    missing_driver_action,
    missing_half_action,
    says_not_installed,
)
from gpuwatch.core.model.snapshot import FAILED_ITSELF
from gpuwatch.explain.diagnosis.doctor.check import Answer, Facts, check, fail, ok, skip, warn
from gpuwatch.explain.diagnosis.rules.driver_failures import (
    CUDA_ERROR_ADVICE,
    RECREATE_CONTAINER_ACTION,
)
from gpuwatch.explain.logs import cuda_errors

CUDA_ERRORS = {
    **{error.numbers[0]: error.names[0].replace("_", " ") for error in cuda_errors.TABLE if error.numbers},
    303: "shared object initialization failed",
    802: "system not yet initialized",
    803: "the versions of library and kernel module differ",
    804: "forward compatibility is not supported on this card",
    805: "the connection to MPS failed",
    999: "unknown error",
}
"""CUresult in words (cuda.h)."""

REBOOT = "The driver was upgraded while it was in use: reboot, or unload and load the nvidia modules."
_SIMULATED = "simulated GPUs have no kernel driver"
_CUINIT_ERROR_ADVICE = CUDA_ERROR_ADVICE | {
    803: REBOOT,
    804: "Remove the cuda-compat folder from LD_LIBRARY_PATH: forward compatibility is for data-center cards.",
}


def missing_driver_advice(facts: Facts) -> str:
    """What to do about a missing driver (:mod:`gpuwatch.core.model.driver_advice`)."""
    nvml = facts.driver.nvml if facts.driver is not None else None
    return missing_driver_action(facts.system, library=nvml is not None and nvml.error is None)


def action_unless_no_card(facts: Facts, action: str) -> str:
    """``action``; if there is no card at all, a reference to the first check, whose advice is the only one needed."""
    system = facts.system
    no_card = system is not None and system.cards is not None and not system.cards and not (system.wsl or system.jetson)
    return "First see the check 'NVIDIA cards on the bus'." if no_card and not facts.nvml_answers else action


def is_broken(library: LoadedLibrary) -> bool:
    """Whether a library is there, but cannot be loaded or is not the driver's."""
    return library.error is not None and not says_not_installed(library.error, library.name)


def cuinit_error_advice(code: int) -> str:
    """What to do about an error code of cuInit."""
    return _CUINIT_ERROR_ADVICE.get(code, "Look for NVRM and Xid lines in dmesg, and reboot.")


def cuinit_error_text(code: int) -> str:
    """``cuInit returns 999: unknown error``."""
    return f"cuInit returns {code}: {CUDA_ERRORS.get(code, 'see CUresult in cuda.h')}"


def deadline_answer(facts: Facts) -> Answer:
    """The answer of a check whose facts missed the deadline."""
    return skip(f"no answer within {facts.deadline:g} s", "Check dmesg for a hung GPU or file system.")


def _not_looked_for(facts: Facts, library: str) -> Answer:
    """The answer of a check of a library that was not loaded: it crashed, or nobody tried."""
    answer = facts.driver
    if answer is None or not answer.problem:
        return deadline_answer(facts)
    if answer.ended_in == f"dlopen of {library}":
        return fail(answer.problem, REPLACE_CRASHING_LIBRARY)
    return skip(answer.problem, "See the message.")


@check("driver.cards", "NVIDIA cards on the bus")
def cards_on_bus(facts: Facts) -> Answer | None:
    """The installed cards, with any kernel driver."""
    if facts.simulated:
        return skip(_SIMULATED)
    if facts.system is None:
        return deadline_answer(facts)
    if facts.system.wsl:
        return skip("under WSL the bus belongs to Windows")
    if facts.system.jetson:
        return skip("a Jetson's GPU is not on the PCI bus")
    found = facts.system.cards
    if found is None:
        return skip("/sys does not show the PCI bus here")
    if not found:
        if facts.nvml_answers:
            return ok("none in /sys, but NVML answers")
        return fail("no NVIDIA card on the PCI bus", missing_driver_advice(facts))
    listed = ", ".join(f"{card.bus_id} ({card.driver or 'no driver'})" for card in found[:16])
    return ok(f"{count_text(len(found), 'card')}: {listed}")


@check("driver.nouveau", "Kernel driver of the cards")
def kernel_driver_of_cards(facts: Facts) -> Answer | None:
    """nouveau and vfio-pci keep a card from NVIDIA's driver, which CUDA needs."""
    system = facts.system
    if facts.simulated or system is None or system.wsl or not system.cards:
        return None
    taken = [card for card in system.cards if card.driver not in ("nvidia", None)]
    if any(card.driver == "nouveau" for card in taken):
        return fail(f"nouveau has claimed {taken[0].bus_id}: CUDA needs NVIDIA's driver", REPLACE_NOUVEAU)
    if taken:
        action = "Return the card to the nvidia driver to use it here."
        return warn(f"{taken[0].bus_id} belongs to {taken[0].driver}", action)
    if all(card.driver is None for card in system.cards):
        return fail("the card has no kernel driver", INSTALL_DRIVER)
    return ok("nvidia")


@check("driver.kernel-module", "Kernel module")
def kernel_module(facts: Facts) -> Answer | None:
    """/proc/driver/nvidia/version exists while the module is loaded."""
    if facts.simulated:
        return skip(_SIMULATED)
    if facts.system is None:
        return deadline_answer(facts)
    if facts.system.kernel_module is not None:
        return ok(f"nvidia {facts.system.kernel_module}")
    if facts.system.wsl:
        return skip("under WSL the kernel driver belongs to Windows")
    if facts.system.jetson:
        return skip("a Jetson's GPU has a kernel module of its own, nvgpu")
    if facts.nvml_answers:
        return ok("/proc/driver/nvidia is not visible here, but NVML answers")
    if facts.system.modules is not None and "nvidia" in facts.system.modules:
        return warn("the module nvidia is loaded, but /proc/driver/nvidia/version does not exist", REBOOT)
    return fail(
        "the kernel module nvidia is not loaded (/proc/driver/nvidia/version does not exist)",
        action_unless_no_card(facts, missing_driver_advice(facts)),
    )


@check("driver.libcuda", "libcuda.so.1")
def libcuda(facts: Facts) -> Answer | None:
    """The driver's CUDA library, which never comes with the framework."""
    answer = facts.driver
    if answer is None or answer.libcuda is None:
        return _not_looked_for(facts, "libcuda.so.1")
    library = answer.libcuda
    if library.error is not None:
        if is_broken(library):
            return fail(library.error, action_unless_no_card(facts, REINSTALL_LIBRARIES))
        if facts.system is not None and facts.system.wsl:
            return fail(library.error, "Add /usr/lib/wsl/lib to LD_LIBRARY_PATH, or run ldconfig with it.")
        action = missing_driver_advice(facts)
        if answer.nvml_code == 0:
            action = missing_half_action(facts.system, library.name, answer.nvml_driver)
        elif facts.system is not None and facts.system.container:
            action += " NVIDIA_DRIVER_CAPABILITIES must include compute."
        return fail(library.error, action_unless_no_card(facts, action))
    where = library.path or "unknown file"
    for part in ("/stubs/", "/compat/"):
        if part in where:
            return warn(
                f"{where}: the toolkit's {part.strip('/')} library, not the driver's own",
                "Remove that folder from LD_LIBRARY_PATH, unless this data-center card needs cuda-compat.",
            )
    return ok(where + (f", version {library.version}" if library.version else ""))


@check("driver.pynvml", "gpuwatch's Python module for NVML")
def pynvml(facts: Facts) -> Answer | None:
    """Only if it is at fault: the framework does not need it."""
    if facts.snapshot is None:
        return None
    found = next((problem for problem in facts.snapshot.problems if problem.reason == FAILED_ITSELF), None)
    return None if found is None else warn(found.detail, found.hint)


@check("driver.nvml", "NVML (libnvidia-ml.so.1)")
def nvml(facts: Facts) -> Answer | None:
    """Needed by nvidia-smi, and by TensorFlow 2.21 and later."""
    answer = facts.driver
    if answer is None or answer.nvml is None:
        return _not_looked_for(facts, "libnvidia-ml.so.1")
    if answer.nvml.error is not None:
        if is_broken(answer.nvml):
            return fail(answer.nvml.error, action_unless_no_card(facts, REINSTALL_LIBRARIES))
        if facts.cuda_starts:
            release = answer.libcuda.version if answer.libcuda is not None else None
            action = missing_half_action(facts.system, answer.nvml.name, release)
            return fail(f"{answer.nvml.error}; TensorFlow 2.21 and later need it", action)
        in_container = facts.system is not None and facts.system.container
        action = DRIVER_CAPABILITIES_ACTION if in_container else missing_driver_advice(facts)
        return fail(answer.nvml.error, action_unless_no_card(facts, action))
    if answer.ended_in == "nvmlInit":
        return fail(answer.problem, REPLACE_CRASHING_LIBRARY)
    if answer.late == "nvmlInit":
        return fail(f"nvmlInit did not return within {facts.deadline:g} s", "Check dmesg for a hung GPU; reboot.")
    if answer.nvml_code:
        problem = next((p for p in facts.snapshot.problems if p.source == "nvml"), None) if facts.snapshot else None
        reason = f": {problem.detail}" if problem is not None else ""
        hint = problem.hint if problem is not None else "Look for NVRM lines in dmesg."
        return fail(f"nvmlInit returns {answer.nvml_code}{reason}", hint[:1].upper() + hint[1:])
    version = f", driver {answer.nvml_driver}" if answer.nvml_driver else ""
    return ok(f"{answer.nvml.path}{version}")


@check("driver.start", "CUDA starts (cuInit)")
def cuda_start(facts: Facts) -> Answer | None:
    """The first call of every CUDA program, in this environment."""
    answer = facts.driver
    if answer is None or answer.libcuda is None or answer.libcuda.error is not None:
        return skip("libcuda.so.1 is not loaded")
    if answer.late == "cuInit":
        return warn(
            f"cuInit did not return within {facts.deadline:g} s",
            "Enable persistence (nvidia-smi -pm 1) to keep the driver loaded; check dmesg for a hung GPU.",
        )
    if answer.ended_in == "cuInit":
        return fail(answer.problem, REPLACE_CRASHING_LIBRARY)
    code = answer.cuinit_code
    if code is None:
        return skip(answer.problem or "not reached")
    if code == 0:
        count = "" if answer.cuda_devices is None else f": {count_text(answer.cuda_devices, 'device')} visible"
        if answer.cuda_devices == 0:
            return fail("cuInit succeeds, but CUDA finds no device", "See the device and environment checks.")
        return ok(f"cuInit succeeds in {tenths_of_seconds(answer.cuinit_seconds)}{count}")
    reason = cuinit_error_text(code)
    if code == 100 and facts.hides_every_gpu:
        return fail(
            f"{reason}; CUDA_VISIBLE_DEVICES={facts.visible_devices} hides every GPU", "Unset CUDA_VISIBLE_DEVICES."
        )
    return fail(reason, RECREATE_CONTAINER_ACTION if code == 100 else cuinit_error_advice(code))


@check("driver.versions", "Driver versions")
def versions(facts: Facts) -> Answer | None:
    """Kernel module, libcuda and NVML must be of the same release."""
    if facts.simulated:
        return skip(_SIMULATED)
    known = driver_versions(facts)
    if len(known) < 2:
        return skip("fewer than two are known")
    listed = ", ".join(f"{name} {version}" for name, version in known.items())
    if len(set(known.values())) == 1:
        return ok(listed)
    if facts.cuda_starts:
        return warn(listed, "Works now (cuda-compat); otherwise keep library and driver at the same release.")
    return fail(listed, REBOOT)


def driver_versions(facts: Facts) -> dict[str, str]:
    """The driver's release by each of its parts."""
    answer = facts.driver
    found = {
        "kernel module": facts.system.kernel_module if facts.system is not None else None,
        "libcuda": answer.libcuda.version if answer is not None and answer.libcuda is not None else None,
        "NVML": answer.nvml.version if answer is not None and answer.nvml is not None else None,
    }
    return {name: version for name, version in found.items() if version}


@check("driver.cuda-version", "Supported CUDA")
def supported_cuda(facts: Facts) -> Answer | None:
    """The highest CUDA version that the driver supports."""
    version, whose = facts.cuda_version
    by = ", by libcuda" if whose == "libcuda" else f" ({whose})"
    return ok(f"up to CUDA {version}{by}") if version else skip("unknown without a driver")
