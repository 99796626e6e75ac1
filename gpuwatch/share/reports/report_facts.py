"""What is compared of a report: versions, device map, environment, libraries, distributions, checks."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.diagnostic import Diagnostic
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.share.reports.content import clean
from gpuwatch.share.reports.doctor_content import MARKS
from gpuwatch.share.reports.tables import short_device

PARTS = ("Versions", "Device map", "Environment variables", "Libraries", "Distributions", "Checks")
Fact = tuple[str, str, str, str]
"""Part, name, text, and key: keys are compared, since texts have times and sizes that always differ."""


def report_facts(document: Diagnostic | Doctor) -> Iterator[Fact]:
    """What is compared of a report, without its findings and GPUs."""
    doctor = document if isinstance(document, Doctor) else document.doctor
    if doctor is not None:
        yield from _versions(doctor)
    if doctor is None:
        return
    for mapping in doctor.device_map:
        if mapping.framework_device:
            which = f"GPU {clean(mapping.physical_index)} {clean(mapping.name)}, {size(mapping.granted_bytes)}"
            key = f"{mapping.physical_index} {mapping.name}"
            yield "Device map", short_device(mapping.framework_device), which, key
    for name, value in doctor.environment.items():
        yield from _same("Environment variables", clean(name), clean(value))
    for library in doctor.libraries:
        facts = (library.state, library.version, f"from {library.origin}" if library.origin else None)
        yield from _same("Libraries", clean(library.name), " ".join(clean(fact) for fact in facts if fact))
    for entry in doctor.distributions:
        yield from _same("Distributions", clean(entry.name), clean(entry.version))
    for check in doctor.checks:
        # Compared by state: details have times and free memory, which always differ.
        yield "Checks", clean(check.title or check.id), f"{MARKS[check.state]}: {clean(check.detail)}", check.state


def _versions(doctor: Doctor) -> Iterator[Fact]:
    for name, value in doctor.versions.items():
        yield from _same("Versions", name.replace("_", " "), clean(value))
    if doctor.framework is not None:
        yield from _same("Versions", "built with CUDA", clean(doctor.framework.gpu_build))
        yield from _same("Versions", "interpreter", clean(doctor.framework.interpreter))


def _same(part: str, name: str, shown: str) -> Iterator[Fact]:
    yield part, name, shown, shown
