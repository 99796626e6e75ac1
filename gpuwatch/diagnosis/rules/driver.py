"""The NVIDIA driver: missing, of two versions at once, or not willing to start.

"Could not find cuda drivers on your machine" is TensorFlow's wording for a missing **libcudart** and is
printed beside a perfect driver, so it never proves a missing driver.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.diagnosis.rules.build import ended_the_work
from gpuwatch.diagnosis.visible import read_visible
from gpuwatch.model.findings import Finding, Severity
from gpuwatch.model.no_driver import SIMULATE, missing_driver_action
from gpuwatch.model.snapshot import Problem

_MISMATCH_CODES = (803, 804)
_MISSING_CODES = (100, 303)
_REFUSALS = ("container.lost-devices", "driver.bad-state")
"""What NVML's own failure may mean where it could be loaded (gpuwatch.sources.nvml)."""
_NO_TOOLKIT = (
    "could not select device driver",
    "Unknown runtime specified nvidia",
    "unknown or invalid runtime name: nvidia",
)
"""What Docker says where it was asked for GPUs and nothing taught it to give them."""
_NOT_SET_UP = "Docker cannot give GPUs to a container: the NVIDIA Container Toolkit is not set up"
_TOOLKIT = (
    "On the host, install the NVIDIA Container Toolkit (package nvidia-container-toolkit), run"
    " nvidia-ctk runtime configure --runtime=docker, and restart Docker; nvidia-smi must work on the host."
)
HALF_ACTION = "Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility (or all)."
"""For a driver of which one library is there and the other is not."""
_OTHER_ADVICE = {
    34: "The libcuda.so.1 that was loaded is the stub of the CUDA toolkit: take its folder out of LD_LIBRARY_PATH.",
    802: "Start the fabric manager (nvidia-fabricmanager), whose version must be the driver's.",
    805: "Restart the MPS control daemon, or unset CUDA_MPS_PIPE_DIRECTORY.",
    999: "Reload nvidia_uvm (modprobe -r nvidia_uvm && modprobe nvidia_uvm); it breaks after suspend.",
}


def _log_lines(evidence: Evidence) -> tuple[str, ...]:
    if evidence.log is None:
        return ()
    return evidence.log.lines_of("driver.cuinit", "driver.not-running", "driver.no-device-node", "driver.mismatch")


def _problem_lines(evidence: Evidence) -> list[str]:
    if evidence.snapshot is None:
        return []
    return [f"{p.source}: {p.detail}" for p in evidence.snapshot.problems if p.detail and p.source == "nvml"]


def says_mismatch(evidence: Evidence) -> bool:
    """Whether NVML, cuInit or TensorFlow named two versions of the driver."""
    if any("mismatch" in f"{problem.reason} {problem.detail}".lower() for problem in _problems(evidence)):
        return True
    log = evidence.log
    if log is None:
        return False
    code = log.cuinit_error.code if log.cuinit_error is not None else None
    return "driver.mismatch" in log.topics or code in _MISMATCH_CODES


def _problems(evidence: Evidence) -> tuple[Problem, ...]:
    return evidence.snapshot.problems if evidence.snapshot is not None else ()


def hidden(evidence: Evidence) -> bool:
    """Whether the environment leaves no GPU visible."""
    if evidence.log is not None and evidence.log.hidden_by_environment is not None:
        return True
    value = evidence.visible_devices
    devices = evidence.snapshot.devices if evidence.driver_answers and evidence.snapshot is not None else None
    return value is not None and read_visible(value, devices).hides_all


def blames_visibility(evidence: Evidence) -> bool:
    """Whether CUDA found no device, the kernel module is loaded, and CUDA_VISIBLE_DEVICES was set."""
    log = evidence.log
    if log is None or log.cuinit_error is None or log.cuinit_error.code != 100 or log.kernel_driver is None:
        return False
    return evidence.driver_answers is None and evidence.visible_devices is not None


def _advice(evidence: Evidence) -> str:
    """What the source that looked at this machine advises; of a log alone nothing is known of its machine."""
    said = next((problem.hint for problem in _problems(evidence) if problem.reason == "driver.missing"), "")
    return said.removesuffix(SIMULATE) or missing_driver_action(None)


@rule("driver.missing", "container.lost-devices", "driver.bad-state")
def driver_missing(evidence: Evidence) -> Iterator[Finding]:
    """No driver: NVML cannot be used, or cuInit finds no libcuda or no device."""
    if evidence.driver_answers or evidence.gpu_usable or says_mismatch(evidence):
        return
    log = evidence.log
    lines = [*_problem_lines(evidence), *_log_lines(evidence)]
    certainty = "fact"
    if evidence.driver_answers is None:
        if log is None or log.libraries_skipped or log.seen_pci or log.found_device_lines:
            return
        code = log.cuinit_error.code if log.cuinit_error is not None else None
        if code in _MISSING_CODES:
            if code == 100 and (hidden(evidence) or log.kernel_driver is not None):
                return
            certainty = "fact" if code == 303 else "likely"
        elif code is not None:
            return  # libcuda answered, with another complaint
        elif "driver.not-running" in log.topics or "driver.no-device-node" in log.topics:
            pass
        elif log.cudart_missing and log.cuinit_error is None and not log.device_map:
            # 2.12 to 2.15 print no cuInit line when libcuda.so.1 is absent: this is all they say.
            certainty = "likely"
            lines += log.lines_of("cuda.cudart-missing")
        else:
            return
    elif log is not None and log.cuinit_error is not None and log.cuinit_error.code not in _MISSING_CODES:
        return
    refused = next((problem for problem in _problems(evidence) if problem.reason in _REFUSALS), None)
    if refused is not None and not evidence.visibility_on_purpose:
        # The library is there and says no: that is not a missing driver.
        cause, action = refused.reason, refused.hint
        yield finding(cause, "error", "likely", title=refused.detail, evidence=lines, action=action)
        return
    value = evidence.visible_devices
    on_purpose = evidence.visibility_on_purpose and value is not None and read_visible(value, None).on_purpose
    # A build without CUDA asks no driver for anything, so that is not why it ended.
    severity: Severity = "info" if on_purpose else "warning" if ended_the_work(evidence) else "error"
    if log is not None:
        lines += log.lines_of("cuda.missing-library")
    said = log.lines_of("driver.not-running") if log is not None and evidence.driver_answers is None else ()
    no_toolkit = bool(said) and all(any(text in line for text in _NO_TOOLKIT) for line in said)
    yield finding(
        "driver.missing",
        severity,
        "fact" if certainty == "fact" else "likely",
        title="Docker cannot give GPUs to a container: the NVIDIA Container Toolkit is not set up"
        if no_toolkit
        else "",
        evidence=lines or ["NVML does not answer"],
        action=_TOOLKIT if no_toolkit else _advice(evidence),
    )


@rule("driver.missing")
def half_a_driver(evidence: Evidence) -> Iterator[Finding]:
    """One of the driver's two libraries is there and the other is not: a container that was given half of them."""
    log = evidence.log
    if log is None or evidence.gpu_usable or evidence.driver_answers is False:
        return
    error = log.cuinit_error
    if evidence.driver_answers and error is not None and error.code == 303:
        yield finding(
            "driver.missing",
            "error",
            "fact",
            title="NVML answers and libcuda.so.1 is missing: no program can use CUDA",
            evidence=[*_log_lines(evidence), *log.lines_of("cuda.missing-library")],
            action=HALF_ACTION,
        )
    elif error is None and not evidence.driver_answers and _only(log.missing_libraries, "libcuda.so"):
        yield finding(
            "driver.missing",
            "error",
            "likely",
            title="libcuda.so.1, which comes with the driver, cannot be loaded",
            evidence=log.lines_of("cuda.missing-library"),
            action=_advice(evidence),
        )
    elif error is None and not log.libraries_skipped and _only_nvml_missing(log.missing_libraries):
        yield finding(
            "driver.missing",
            "error",
            "likely",
            title="NVML (libnvidia-ml.so.1) cannot be loaded: TensorFlow from 2.21 on then has no GPU and says nothing",
            evidence=log.lines_of("cuda.missing-library"),
            action=HALF_ACTION,
        )


def _only(names: list[str], start: str) -> bool:
    return bool(names) and all(name.startswith(start) for name in names)


def _only_nvml_missing(names: list[str]) -> bool:
    return any(name.startswith("libnvidia-ml.so") for name in names) and not any(
        name.startswith("libcuda.so") for name in names
    )


@rule("driver.mismatch")
def driver_mismatch(evidence: Evidence) -> Iterator[Finding]:
    """User library and kernel module differ: an upgrade without a reboot, or a cuda-compat library."""
    if not says_mismatch(evidence):
        return
    code = evidence.log.cuinit_error.code if evidence.log is not None and evidence.log.cuinit_error else None
    if code == 804:
        action = (
            "Take the cuda-compat libcuda.so.1 out of LD_LIBRARY_PATH: forward compatibility is for data-centre GPUs."
        )
    else:
        action = "Reboot, or unload and load the nvidia kernel modules, so that both are of one version."
        hints = [problem.hint for problem in _problems(evidence) if problem.reason == "driver.mismatch"]
        if evidence.snapshot is not None and evidence.snapshot.simulated and any(hints):
            action = next(filter(None, hints))
            action = action[0].upper() + action[1:]
    yield finding(
        "driver.mismatch", "error", "fact", evidence=[*_problem_lines(evidence), *_log_lines(evidence)], action=action
    )


@rule("driver.bad-state", "container.lost-devices")
def driver_bad_state(evidence: Evidence) -> Iterator[Finding]:
    """cuInit failed with something that means neither "no driver" nor "two versions"."""
    log = evidence.log
    if log is None or log.cuinit_error is None or evidence.gpu_usable:
        return
    error = log.cuinit_error
    if error.code in _MISMATCH_CODES or says_mismatch(evidence):
        return
    if error.code in _MISSING_CODES:
        loaded = evidence.driver_answers is None and log.kernel_driver is not None
        if error.code == 100 and (evidence.driver_answers or loaded) and not hidden(evidence):
            if blames_visibility(evidence):
                return
            yield finding(
                "container.lost-devices",
                "error",
                "likely",
                title="The kernel module is loaded, but CUDA finds no device"
                if loaded
                else "NVML answers, but CUDA finds no device",
                evidence=[*_log_lines(evidence), *log.lines_of("driver.loaded")],
                action="Check that /dev/nvidia* is there and accessible for this user; recreate the container.",
            )
        return
    name = error.name or "an error"
    yield finding(
        "driver.bad-state",
        "error",
        "fact",
        title=f"The driver is there but does not start: {name}" + (f" ({error.code})" if error.code else ""),
        evidence=_log_lines(evidence),
        action=_OTHER_ADVICE.get(
            error.code or 0, "Look in the kernel's log (dmesg) for NVRM and Xid lines, and reboot."
        ),
    )
