"""The build of the framework against the driver's CUDA version and the card's compute capability.

A driver runs every CUDA version up to its own, and later minor versions of the same major version ("minor version
compatibility"), except that it cannot compile their PTX.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuwatch.core.formatting.safe_text import whole_number
from gpuwatch.core.model.findings import Certainty, Finding, Severity
from gpuwatch.core.model.run import Framework
from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.model.visible_devices import visible_devices
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.reference.compute_capability import built_for, capability, support
from gpuwatch.explain.diagnosis.reference.driver_releases import (
    FIRST_RELEASES,
    branch,
    cuda_of_tensorflow,
    update,
    update_from_log,
)
from gpuwatch.explain.diagnosis.rule_registry import finding, rule
from gpuwatch.explain.diagnosis.rules.program_errors import error_lines
from gpuwatch.explain.diagnosis.rules.simulation_limits import says_limit

_OTHER_LIBCUDA = (
    "Find out which libcuda.so.1 is loaded (gpuwatch doctor shows its file), and remove that copy (from cuda-compat "
    "or an image), or its folder from LD_LIBRARY_PATH: the driver has its own."
)
_ON_REAL = "On a real machine: find the older libcuda.so.1 (gpuwatch doctor shows its file), and remove it."
_VERSION = re.compile(r"^(\d+)\.(\d+)")
_FOUND = re.compile(r"too old \(found version (\d{1,2})0(\d)0\)")
_NEEDED = re.compile(r"unsatisfied condition: cuda ?>= ?(\d{1,2})\.(\d)")
_WHEEL = re.compile(r"\+cu(1\d)(\d)\b")


def _built_with_cuda(evidence: Evidence) -> Framework | None:
    framework = evidence.framework
    without = framework is None or framework.gpu_build is False or evidence.simulation == "plugin"
    return None if without else framework


def _cuda(match: re.Match[str] | None) -> tuple[int, int] | None:
    return (int(match[1]), int(match[2])) if match else None


def _visible(evidence: Evidence) -> tuple[Device, ...]:
    """The GPUs that the program can see; all of them if that is not known."""
    devices = evidence.gpus
    seen = visible_devices(evidence.visible_devices, evidence.variables.get("CUDA_DEVICE_ORDER"), devices)
    if seen.unsure:
        return devices
    uuids = {entry.uuid for entry in seen.map}
    return tuple(device for device in devices if device.uuid in uuids)


def _wants(framework: Framework, *, stated: bool) -> str | None:
    """The build's CUDA version as it reports it; if CUDA complained, also from the table of releases."""
    cuda = framework.build.get("cuda_version")
    if cuda is None and stated and framework.name == "tensorflow":
        cuda = cuda_of_tensorflow(framework.version)
    return str(cuda) if cuda is not None else None


def _by_log(evidence: Evidence, stated: list[str]) -> str:
    """Advice with the CUDA versions that the log names."""
    text = "\n".join((*stated, *evidence.log.lines_of("environment.setting")))
    return update_from_log(_cuda(_FOUND.search(text)), _cuda(_NEEDED.search(text) or _WHEEL.search(text)))


@rule("driver.too-old")
def driver_older_than_the_build(evidence: Evidence) -> Iterator[Finding]:
    """The driver does not support the build's major CUDA version: reported by CUDA, or known from both versions."""
    if says_limit(evidence):
        return  # a simulated driver, which reports itself what it lacks
    stated, expected = error_lines(evidence, "driver.too-old")
    framework = _built_with_cuda(evidence)
    driver = evidence.snapshot.driver if evidence.snapshot is not None else None
    has = _cuda(_VERSION.match(driver.cuda_version or "")) if driver is not None else None
    wanted = _wants(framework, stated=bool(stated)) if framework is not None else None
    needs = _cuda(_VERSION.match(wanted or ""))
    needs = needs or ((major, 0) if (major := whole_number(wanted or "")) is not None else None)
    older = has is not None and needs is not None and has[0] < needs[0]
    if not stated and not older:
        return
    severity: Severity = "info" if expected else "error" if stated or not evidence.gpu_usable else "warning"
    lines, title = [], ""
    name = framework.name if framework is not None else None
    action = update(needs[0] if needs else None, has[0] if has else None, name) if older or not has else update()
    if framework is None and has is None:
        action = _by_log(evidence, stated)
    if older and driver is not None and framework is not None and has is not None and needs is not None:
        lines.append(
            f"the driver ({driver.version}) supports CUDA up to {driver.cuda_version};"
            f" {framework.name} {framework.version} was built for CUDA {wanted}"
        )
        title = f"The driver supports CUDA up to {driver.cuda_version}, but the build needs CUDA {needs[0]}"
        release, first = branch(driver.version), FIRST_RELEASES.get(needs[0])
        if release is not None and first is not None and release >= first:
            lines.append(
                f"release {release} by itself is new enough (CUDA {needs[0]} needs {first} or later): the version of"
                " CUDA is libcuda.so.1's, so an older one was loaded in its place"
            )
            action = _OTHER_LIBCUDA
            if evidence.snapshot is not None and evidence.snapshot.simulated:
                action = f"The simulation imitates an older driver here: remove its fault cuda_version. {_ON_REAL}"
    certainty: Certainty = "fact" if stated else "likely"
    yield finding("driver.too-old", severity, certainty, title=title, evidence=(*lines, *stated), action=action)


@rule("build.gpu-unsupported")
def card_outside_the_build(evidence: Evidence) -> Iterator[Finding]:
    """The build has no native code for a GPU that the program can use, by its own list of capabilities."""
    framework = _built_with_cuda(evidence)
    if framework is None or {"build.gpu-unsupported", "build.gpu-jit"} & set(evidence.log.topics):
        return  # the log states it
    built = built_for(framework.build)
    for device in _visible(evidence) if built else ():
        card = capability(device.compute_capability)
        if card is None or (can := support(card, built)) == "native":
            continue
        listed = ", ".join(str(entry) for entry in framework.build["cuda_compute_capabilities"])
        lines = (
            f"GPU {device.index} {device.name}: compute capability {device.compute_capability}",
            f"{framework.name} {framework.version} was built for {listed}",
        )
        severity: Severity = "error" if can == "no" and not evidence.gpu_usable else "warning"
        title = f"No native code for GPU {device.index}: kernels are compiled on first use"
        action = "Use a newer build; until then raise CUDA_CACHE_MAXSIZE so that it compiles only once."
        if can == "no":
            title = f"{framework.name} {framework.version} has no code for GPU {device.index}"
            action = "Use a build for this GPU's compute capability, or another GPU."
        yield finding(
            "build.gpu-unsupported", severity, title=title, evidence=lines, action=action, device_uuid=device.uuid
        )
