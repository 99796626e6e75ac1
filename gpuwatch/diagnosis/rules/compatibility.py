"""The build of the framework against the driver's CUDA version and the card's compute capability.

A driver runs every CUDA 12.x that it is of or newer than; within one major version also later minor
ones ("minor version compatibility"), except that it cannot compile their PTX.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuwatch.diagnosis.capability import built_for, capability, support
from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.model.findings import Finding
from gpuwatch.model.run import Framework
from gpuwatch.model.snapshot import Device
from gpuwatch.model.visibility import visible_devices

_VERSION = re.compile(r"^(\d+)\.(\d+)")


def _built_with_cuda(evidence: Evidence) -> Framework | None:
    run = evidence.run
    if run is None or run.framework is None or run.simulation == "plugin" or run.framework.gpu_build is False:
        return None
    return run.framework


def _cuda(version: object) -> tuple[int, int] | None:
    match = _VERSION.match(str(version))
    return (int(match[1]), int(match[2])) if match else None


def _visible(evidence: Evidence) -> tuple[Device, ...]:
    """The GPUs that the work may see; all of them where that cannot be told."""
    if evidence.snapshot is None:
        return ()
    devices = evidence.snapshot.devices
    seen = visible_devices(evidence.visible_devices, evidence.variable("CUDA_DEVICE_ORDER"), devices)
    if seen.unsure:
        return devices
    uuids = {entry.uuid for entry in seen.map}
    return tuple(device for device in devices if device.uuid in uuids)


@rule("driver.too-old")
def driver_older_than_the_build(evidence: Evidence) -> Iterator[Finding]:
    """The driver's highest CUDA version is of an older major version than the build's."""
    framework = _built_with_cuda(evidence)
    driver = evidence.snapshot.driver if evidence.snapshot is not None else None
    if framework is None or driver is None:
        return
    has, needs = _cuda(driver.cuda_version), _cuda(framework.build.get("cuda_version"))
    if has is None or needs is None or has[0] >= needs[0]:
        return
    yield finding(
        "driver.too-old",
        "warning" if evidence.gpu_usable else "error",
        "likely",
        evidence=(
            f"driver {driver.version}: CUDA {driver.cuda_version} at most",
            f"{framework.name} {framework.version} was built with CUDA {framework.build.get('cuda_version')}",
        ),
        action=f"Update the NVIDIA driver to one for CUDA {needs[0]}, or use a build of the framework for an older"
        " CUDA.",
    )


@rule("build.gpu-unsupported")
def card_outside_the_build(evidence: Evidence) -> Iterator[Finding]:
    """The build has no native code for a card that the work may use, by its own list of capabilities."""
    framework = _built_with_cuda(evidence)
    log = evidence.log
    if framework is None or (log is not None and ({"build.gpu-unsupported", "build.gpu-jit"} & set(log.topics))):
        return  # the log says it itself
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
        if can == "no":
            yield finding(
                "build.gpu-unsupported",
                "warning" if evidence.gpu_usable else "error",
                "fact",
                title=f"{framework.name} {framework.version} has no code for GPU {device.index}",
                evidence=lines,
                action="Use a build that was made for this GPU's compute capability, or another GPU.",
                device_uuid=device.uuid,
            )
        else:
            yield finding(
                "build.gpu-unsupported",
                "warning",
                "fact",
                title=f"No native code for GPU {device.index}: kernels are compiled at the first start",
                evidence=lines,
                action="Use a newer build; until then raise CUDA_CACHE_MAXSIZE so that it compiles only once.",
                device_uuid=device.uuid,
            )
