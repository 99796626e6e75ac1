"""The document of doctor, made from the facts: checks, findings, primary cause, device map."""

from __future__ import annotations

import datetime

from gpuwatch.core.model.doctor import Doctor, System
from gpuwatch.core.model.run import DeviceMapping
from gpuwatch.core.model.visible_devices import visible_devices
from gpuwatch.explain.diagnosis.doctor import (  # noqa: F401 - doctor_only_causes declares rules
    container,
    devices,
    doctor_only_causes,
    driver,
    environment,
    framework,
)
from gpuwatch.explain.diagnosis.doctor.check import CHECKS, DeclaredCheck, Facts, run_checks
from gpuwatch.explain.diagnosis.evidence import Evidence, mapped_to
from gpuwatch.explain.diagnosis.rule_engine import diagnose, diagnose_machine, primary_cause

CHECK_MODULES = (driver, devices, container, environment, framework)
"""The modules with checks, in display order."""
_TAIL_LINES = 40


def checks_in_order() -> list[DeclaredCheck]:
    """The checks by topic; within a topic, in the order of its file."""
    topics = [module.__name__.rpartition(".")[2] for module in CHECK_MODULES]
    return sorted(CHECKS, key=lambda entry: topics.index(entry.id.partition(".")[0]))


def build_document(facts: Facts, taken_at: datetime.datetime, took_seconds: float) -> Doctor:
    """The doctor's document."""
    run, installation = facts.run, facts.installation
    run_findings = run.findings if run else diagnose(Evidence(snapshot=facts.snapshot, environment=facts.environment))
    if run is not None and run.framework is None:  # the rule failed_import reports them, if nothing says why
        run_findings = tuple(finding for finding in run_findings if finding.id != "unknown")
    found = diagnose_machine(facts, run_findings)
    return Doctor(
        taken_at=taken_at,
        took_seconds=round(took_seconds, 3),
        simulated=facts.simulated,
        host=facts.snapshot.host.hostname if facts.snapshot is not None else None,
        versions=_versions(facts),
        framework=facts.framework,
        checks=run_checks(facts, checks_in_order()),
        libraries=(installation.libraries or ()) if installation is not None else (),
        distributions=(installation.distributions or ()) if installation is not None else (),
        device_map=device_map(facts),
        tests=installation.tests if installation is not None else (),
        environment=dict(facts.environment),
        findings=found,
        primary=primary_cause(found),
        log_tail=run.log_tail[-_TAIL_LINES:] if run is not None else (),
    )


def _versions(facts: Facts) -> dict[str, str | None]:
    """Versions by part; None if unknown."""
    nvml = facts.snapshot.driver if facts.snapshot is not None else None
    answer, framework, system = facts.driver, facts.framework, facts.system or System()
    build = framework.build if framework is not None else {}
    return {
        "os": system.distribution,
        "kernel": system.kernel,
        "libc": system.libc,
        "processor": system.processor,
        "kernel_module": system.kernel_module,
        "driver": nvml.version if nvml is not None else None,
        "nvml": nvml.nvml_version if nvml is not None else None,
        "libcuda": answer.libcuda.version if answer is not None and answer.libcuda is not None else None,
        "driver_cuda": facts.cuda_version[0] or None,
        "framework": framework.version if framework is not None else None,
        "python": framework.python_version if framework is not None else None,
        "build_cuda": str(build["cuda_version"]) if "cuda_version" in build else None,
        "build_cudnn": str(build["cudnn_version"]) if "cudnn_version" in build else None,
    }


def device_map(facts: Facts) -> tuple[DeviceMapping, ...]:
    """Framework device, CUDA ordinal, NVML index, bus id, UUID and name, as far as known.

    GPUs that the framework does not use come last, without a framework device.
    """
    mapped = list(facts.run.device_map) if facts.run is not None else []
    known = {entry.uuid for entry in mapped}
    order = facts.environment.get("CUDA_DEVICE_ORDER")
    seen = visible_devices(facts.visible_devices, order, facts.gpus)
    ordinals = {entry.uuid: entry.ordinal for entry in seen.map}
    mapped += (
        mapped_to(DeviceMapping(framework_device="", cuda_ordinal=ordinals.get(device.uuid)), device)
        for device in facts.gpus
        if device.uuid not in known
    )
    return tuple(mapped)
