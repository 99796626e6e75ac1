"""The NVIDIA driver: missing, with mismatched versions, or failing to start.

"Could not find cuda drivers on your machine" is TensorFlow's wording for a missing **libcudart** and is
printed beside a perfect driver, so it never proves a missing driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuwatch.core.model.driver_advice import DRIVER_CAPABILITIES_ACTION, TRY_SIMULATED_GPUS, missing_driver_action
from gpuwatch.core.model.findings import Certainty, Finding, Severity
from gpuwatch.core.model.snapshot import Problem
from gpuwatch.core.model.visible_devices import read_visible
from gpuwatch.core.parsing import word_set
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.reference.advice_table import advice
from gpuwatch.explain.diagnosis.rule_registry import error_finding, finding, info_finding, likely_error, rule
from gpuwatch.explain.diagnosis.rules.error_evidence import raised_for
from gpuwatch.explain.diagnosis.rules.program_error_messages import section_rows
from gpuwatch.explain.diagnosis.rules.simulation_limits import is_of_simulated_driver
from gpuwatch.explain.logs import cuda_errors
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_frameworks import shows_only_tensorflow
from gpuwatch.explain.logs.message_topics import states_explicitly

_DRIVER_COMPLAINTS = word_set(
    "driver.bad-state driver.mismatch driver.too-old driver.not-running driver.no-device-node driver.other-module"
    " container.lost-devices hardware.fault"
)
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""
NO_LIBCUDA = 303
"""CUDA_ERROR_SHARED_OBJECT_INIT_FAILED: TensorFlow's code for a libcuda that it cannot load."""
MISMATCH_CODES = (803, 804)
"""CUDA_ERROR_SYSTEM_DRIVER_MISMATCH and CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE."""
MISSING_CODES = (NO_DEVICE, NO_LIBCUDA)
"""What cuInit answers where there is no driver or no device."""
_NVML_REFUSALS = ("container.lost-devices", "driver.bad-state")
"""Reasons why NVML fails although it was loaded (gpuwatch.machine.sources.nvidia.nvml_errors)."""
_MISSING_DRIVER_TITLES = (
    (
        re.compile(r"could not select device driver|(?:Unknown runtime specified|invalid runtime name:) nvidia"),
        "Docker cannot give a container GPUs: the NVIDIA Container Toolkit is not set up",
    ),
    (
        re.compile(
            r"/dkms/nvidia|DKMS module 'nvidia|unable to build the NVIDIA kernel module|kernel module was not created"
            r"|failed to build|modpost: ",
            re.IGNORECASE,
        ),
        "NVIDIA's kernel module could not be built for this kernel: there is no driver",
    ),
    (
        re.compile(r"Unable to load the kernel module 'nvidia"),
        "The kernel did not load NVIDIA's module, although the driver's installer had built it",
    ),
    (
        re.compile(r"nvidia-container-cli: initialization error|nvc\.c:\d+\]"),
        "The NVIDIA Container Toolkit found no driver on the host",
    ),
)
"""Titles for a missing driver, used if every line about it has one of these forms."""
_API_MISMATCH = re.compile(r"API mismatch: the client has the version (\d[\d.]{1,20}\d)")
_NVML_FAILED = "Failed to initialize NVML"
_WORKS_ELSEWHERE_ACTION = (
    "nvidia-smi works elsewhere in this log. If it fails only in a container or pod, remove the driver libraries "
    "installed in it (libnvidia-*, libcuda): it gets the host's. If both ran on one host, the driver was updated in "
    "between: reboot, or reload the nvidia kernel modules."
)
RECREATE_CONTAINER_ACTION = "Check that /dev/nvidia* exists and is accessible for this user; recreate the container."
CUDA_ERROR_ADVICE = {int(row.key): row.action for row in section_rows("state")}


def complains_about_driver(log: LogFacts) -> bool:
    """Whether the log complains about the driver itself, which then is why CUDA finds no GPU."""
    answered = log.cuinit_error is not None and log.cuinit_error.code not in (None, NO_DEVICE)
    return answered or not _DRIVER_COMPLAINTS.isdisjoint(log.topics)


def _driver_lines(evidence: Evidence) -> tuple[str, ...]:
    return evidence.log.lines_of("driver.cuinit", "driver.not-running", "driver.no-device-node", "driver.mismatch")


def _cuinit_code(log: LogFacts) -> int | None:
    return log.cuinit_error.code if log.cuinit_error is not None else None


def _problem_lines(evidence: Evidence) -> list[str]:
    return [f"{p.source}: {p.detail}" for p in _problems(evidence) if p.detail and p.source == "nvml"]


def reports_mismatch(evidence: Evidence) -> bool:
    """Whether NVML, cuInit or TensorFlow reported two driver versions."""
    if any("mismatch" in f"{problem.reason} {problem.detail}".lower() for problem in _problems(evidence)):
        return True
    if _cuinit_code(evidence.log) in MISMATCH_CODES:
        return True
    return "driver.mismatch" in evidence.log.topics and not _mismatch_is_over(evidence)


def _mismatch_is_over(evidence: Evidence) -> bool:
    """Whether all that the kernel logged is a mismatch with the version that answers now: nvidia-smi does not while its
    kernel module has another."""
    now = evidence.snapshot.driver.version if evidence.snapshot is not None and evidence.snapshot.driver else None
    clients = [_API_MISMATCH.search(line) for line in evidence.log.lines_of("driver.mismatch")]
    return now is not None and all(client is not None and client[1] == now for client in clients)


def _problems(evidence: Evidence) -> tuple[Problem, ...]:
    return evidence.snapshot.problems if evidence.snapshot is not None else ()


def visibility_may_explain_no_device(evidence: Evidence) -> bool:
    """Whether CUDA found no device, the kernel module is loaded, and CUDA_VISIBLE_DEVICES was set."""
    no_device = _cuinit_code(evidence.log) == NO_DEVICE and evidence.log.kernel_module_version is not None
    return no_device and evidence.driver_answers is None and evidence.visible_devices is not None


def assignment_may_explain_no_device(evidence: Evidence) -> bool:
    """Whether CUDA found no device, and the log shows that the program itself set CUDA_VISIBLE_DEVICES.

    Number 0 is there wherever a GPU is, so that such a value explains nothing.
    """
    log = evidence.log
    if log.assigned_devices is None or evidence.gpu_usable or complains_about_driver(log):
        return False
    if evidence.driver_answers is not None or evidence.visible_devices is not None:
        return False
    none = "visibility.none-available" in log.topics or _cuinit_code(log) == NO_DEVICE
    seen = read_visible(log.assigned_devices, None)
    return none and (seen.hides_all or "0" not in seen.entries)


def _missing_driver_advice(evidence: Evidence) -> str:
    """The advice of the source that read this machine; from a log alone its machine is unknown."""
    stated = next((problem.hint for problem in _problems(evidence) if problem.reason == "driver.missing"), "")
    return stated.removesuffix(TRY_SIMULATED_GPUS) or missing_driver_action(None)


@rule("driver.missing", "container.lost-devices", "driver.bad-state")
def driver_missing(evidence: Evidence) -> Iterator[Finding]:
    """No driver: NVML cannot be used, or cuInit finds no libcuda or no device."""
    if evidence.driver_answers or evidence.gpu_usable or reports_mismatch(evidence):
        return
    if is_of_simulated_driver(evidence):
        return  # the messages are about a simulated driver, which reports itself what it lacks
    log, code = evidence.log, _cuinit_code(evidence.log)
    lines = [*_problem_lines(evidence), *_driver_lines(evidence)]
    certainty: Certainty = "fact"
    stated = log.lines_of("driver.not-running") if evidence.driver_answers is None else ()
    if evidence.driver_answers is None:
        if log.libraries_skipped or log.seen_pci_addresses or log.found_device_lines:
            return
        if code in MISSING_CODES:
            if code == NO_DEVICE and (
                evidence.hides_every_gpu
                or log.kernel_module_version is not None
                or assignment_may_explain_no_device(evidence)
            ):
                return
            if code == NO_DEVICE and "driver.bad-state" in log.topics:
                return  # it is installed, and its own rule says what is wrong with it
            certainty = "fact" if code == NO_LIBCUDA else "likely"
        elif code is not None:
            return  # libcuda answered, with another complaint
        elif "driver.not-running" in log.topics or "driver.no-device-node" in log.topics:
            of_linux = stated and all("libcuda.so not found" in text for text in stated)
            if of_linux and "environment.windows" in log.topics:
                return  # the driver has no file of that name in Windows
            if stated and not any(states_explicitly(line, "driver.not-running") for line in stated):
                certainty = "likely"
        elif log.cudart_missing and log.cuinit_error is None and not log.device_map and shows_only_tensorflow(log):
            # 2.12 to 2.15 print no cuInit line when libcuda.so.1 is absent: this is all they say. But programs of
            # other frameworks import TensorFlow, too, and work on their GPU all the same.
            certainty = "likely"
            lines += log.lines_of("cuda.cudart-missing")
        else:
            return
    elif log.cuinit_error is not None and code not in MISSING_CODES:
        return
    refused = next((problem for problem in _problems(evidence) if problem.reason in _NVML_REFUSALS), None)
    if refused is not None and not evidence.visibility_set_by_probe:
        # The library is there and says no: that is not a missing driver.
        cause, action = refused.reason, refused.hint
        yield error_finding(cause, certainty="likely", title=refused.detail, evidence=lines, action=action)
        return
    value = evidence.visible_devices
    on_purpose = evidence.visibility_set_by_probe and value is not None and read_visible(value, None).on_purpose
    # A build without CUDA asks no driver for anything, so that is not why it ended.
    severity: Severity = "info" if on_purpose else "warning" if raised_for(evidence, "build.cpu-only") else "error"
    lines += log.lines_of("cuda.missing-library")
    title = next((title for form, title in _MISSING_DRIVER_TITLES if any(map(form.search, stated))), "")
    action = advice("driver.missing", "", stated, evidence, "line") or _missing_driver_advice(evidence)
    if (claim := _other_module_claim(evidence)) is not None:
        title, action, claimed = claim
        certainty, lines = "likely", [*claimed, *lines]
    evidence_lines = lines or ["NVML does not answer"]
    yield finding("driver.missing", severity, certainty, title=title, evidence=evidence_lines, action=action)


@rule("driver.missing", needs="log")
def driver_library_missing(evidence: Evidence, log: LogFacts) -> Iterator[Finding]:
    """libcuda or NVML cannot be loaded: a container got only a part of the driver, or there is no driver."""
    if evidence.gpu_usable or evidence.driver_answers is False:
        return
    error, lines = log.cuinit_error, log.lines_of("cuda.missing-library")
    certainty: Certainty = "likely"
    title, action = "", DRIVER_CAPABILITIES_ACTION
    of_cuda = [name.startswith("libcuda.so") for name in log.missing_libraries]
    of_nvml = any(name.startswith("libnvidia-ml.so") for name in log.missing_libraries)
    if evidence.driver_answers and error is not None and error.code == NO_LIBCUDA:
        title = "NVML answers but libcuda.so.1 is missing: no program can use CUDA"
        certainty, lines = "fact", (*_driver_lines(evidence), *lines)
    elif error is None and not evidence.driver_answers and of_cuda and all(of_cuda):
        title, action = "libcuda.so.1, which comes with the driver, cannot be loaded", _missing_driver_advice(evidence)
    elif "driver.not-running" in log.topics:
        return  # nvidia-smi or another program says more of the driver than that NVML is missing
    elif error is None and not log.libraries_skipped and of_nvml and not any(of_cuda):
        title = "libnvidia-ml.so.1 (NVML) cannot be loaded, so TensorFlow 2.21 and later have no GPU, without a message"
    if title:
        yield error_finding("driver.missing", certainty=certainty, title=title, evidence=lines, action=action)


@rule("driver.missing")
def other_kernel_module(evidence: Evidence) -> Iterator[Finding]:
    """Another kernel module has claimed the GPU, and the log says nothing else of the driver."""
    if (claim := _other_module_claim(evidence)) is not None and not any(driver_missing(evidence)):
        title, action, lines = claim
        yield error_finding("driver.missing", certainty="likely", title=title, evidence=lines, action=action)


def _other_module_claim(evidence: Evidence) -> tuple[str, str, tuple[str, ...]] | None:
    """Title, action and lines if another kernel module has claimed the GPU, so that NVIDIA's cannot use it."""
    log = evidence.log
    if evidence.driver_answers or evidence.gpu_usable or log.kernel_module_version is not None:
        return None
    lines = log.lines_of("driver.other-module")
    if not lines or (all(line.startswith("nouveau 0000:") for line in lines) and not _wants_nvidia(log)):
        return None
    module = "vfio-pci" if all("vfio" in line.lower() for line in lines) else "nouveau"
    action = (
        "If this machine should use the GPU itself, return it to the nvidia module (driverctl unset-override, or the"
        " virtual machine's settings)."
        if module == "vfio-pci"
        else "Install NVIDIA's driver if it is missing; otherwise disable nouveau (blacklist nouveau in "
        "/etc/modprobe.d, rebuild the initramfs, reboot)."
    )
    return f"The kernel module {module} has claimed the GPU, so NVIDIA's driver cannot use it", action, lines


def _wants_nvidia(log: LogFacts) -> bool:
    """Whether a log with nouveau at work is of more than a kernel: of a program, or of a part of NVIDIA's driver."""
    other = log.topics.keys() - {"driver.other-module"}
    return bool(log.frameworks or log.errors) or any(topic.startswith(("driver.", "gpu.")) for topic in other)


@rule("driver.mismatch", "unknown")
def driver_mismatch(evidence: Evidence) -> Iterator[Finding]:
    """Library and kernel module have different versions: an upgrade without a reboot, or a cuda-compat library."""
    if not reports_mismatch(evidence):
        if "driver.mismatch" in evidence.log.topics:
            title = (
                "The driver was updated before its kernel module was reloaded: that is over, since nvidia-smi answers"
            )
            yield info_finding("unknown", title=title, evidence=evidence.log.lines_of("driver.mismatch"))
        return
    log, nvml_lines = evidence.log, _problem_lines(evidence)
    lines = [*nvml_lines, *log.lines_of("driver.mismatch"), *_driver_lines(evidence)]
    action = advice("driver.mismatch", "", lines, evidence, "line")
    if not action:
        action = "Reboot, or reload the nvidia kernel modules, so that both have the same version."
        if evidence.run is None and log.kernel_module_version is not None and _NVML_FAILED in " ".join(lines):
            action = _WORKS_ELSEWHERE_ACTION
        hints = (problem.hint for problem in _problems(evidence) if problem.reason == "driver.mismatch")
        hint = next(filter(None, hints), "")
        if hint and evidence.snapshot is not None and evidence.snapshot.simulated:
            action = hint[0].upper() + hint[1:]
    stated = log.lines_of("driver.mismatch")
    certain = bool(nvml_lines) or _cuinit_code(log) in MISMATCH_CODES
    certain = certain or any(states_explicitly(line, "driver.mismatch") or cuda_errors.number(line) for line in stated)
    yield finding("driver.mismatch", "error", "fact" if certain else "likely", evidence=lines, action=action)


@rule("driver.bad-state", "container.lost-devices", needs="log")
def driver_bad_state(evidence: Evidence, log: LogFacts) -> Iterator[Finding]:
    """cuInit failed with an error that means neither a missing nor a mismatched driver."""
    if log.cuinit_error is None or evidence.gpu_usable:
        return
    error = log.cuinit_error
    if error.code in MISMATCH_CODES or reports_mismatch(evidence):
        return
    if error.code in MISSING_CODES:
        loaded = evidence.driver_answers is None and log.kernel_module_version is not None
        if error.code == NO_DEVICE and (evidence.driver_answers or loaded) and not evidence.hides_every_gpu:
            if visibility_may_explain_no_device(evidence):
                return
            yield likely_error(
                "container.lost-devices",
                title="The kernel module is loaded, but CUDA finds no device"
                if loaded
                else "NVML answers, but CUDA finds no device",
                evidence=[*_driver_lines(evidence), *log.lines_of("driver.loaded")],
                action=RECREATE_CONTAINER_ACTION,
            )
        return
    name = error.name or "an error"
    yield error_finding(
        "driver.bad-state",
        title=f"The driver is installed but does not start: {name}" + (f" ({error.code})" if error.code else ""),
        evidence=_driver_lines(evidence),
        action=CUDA_ERROR_ADVICE.get(
            error.code or 0, "Look for NVRM and Xid lines in the kernel's log (dmesg), and reboot."
        ),
    )
