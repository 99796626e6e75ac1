"""Diagnostic reports for the tests: of a healthy machine, one without a driver, one where a program died."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from gpuwatch.core.model.diagnostic_report import Diagnostic, Gap
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.explain.diagnosis.diagnostic_report import diagnostic_report
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.share.reports.runs_side_by_side import compare
from tests.doctor import machines
from tests.reports.documents import GIB, STARTED, bare_run, bare_snapshot, full_run, full_snapshot, hostile_run

NOW = STARTED + datetime.timedelta(minutes=5)
replace = msgspec.structs.replace


def judged(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, findings=diagnose(Evidence(snapshot=snapshot)))


def gpu(index: int) -> Device:
    """One whose memory tells who holds it."""
    made = machines.gpu(index)
    held = {"memory.used_bytes": GIB, "memory.total_bytes": 24 * GIB, "memory.unexplained_bytes": GIB // 2}
    return replace(made, readings={**made.readings, **held})


def looks(**changes: Any) -> Diagnostic:
    """A healthy machine with two GPUs, its doctor, and two probes that ended well."""
    snapshot = machines.snapshot(gpu(0), gpu(1))
    fields: dict[str, Any] = {
        "taken_at": NOW,
        "took_seconds": 3.2,
        "gpuwatch_version": "1.2.3",
        "simulated": False,
        "snapshot": judged(snapshot),
        "doctor": machines.examined(machines.machine(snapshot=snapshot)),
        "probes": compare([probe("default", 400), probe("growth", 300)]),
    }
    return Diagnostic(**{**fields, **changes})


def probe(config: str, rate: float, **changes: Any) -> Run:
    run = full_run(config=config, verdict="ok", findings=(), ooms=(), fallbacks=(), errors=(), simulated=False)
    speed = replace(
        run.throughput,  # type: ignore[type-var]
        steps_per_second=rate,
        median_step_seconds=1 / rate,
        p10_step_seconds=0.99 / rate,
        p90_step_seconds=1.01 / rate,
    )
    return replace(run, throughput=speed, **changes)


def program(**changes: Any) -> Run:
    """The user's own training, out of memory because of somebody else."""
    fields: dict[str, Any] = {
        "config": "run",
        "title": "python train.py",
        "group": "run",
        "workload": "program",
        "simulated": False,
        "verdict": "oom",
        "verdict_reason": "Another process holds the GPU memory.",
        "ooms": tuple(replace(oom, expected=False) for oom in full_run().ooms),
        "findings": (
            Finding(
                id="memory.other-process",
                severity="error",
                certainty="fact",
                title="Another process holds 20.0 GiB of GPU 0",
                evidence=("pid 4711 of alice holds 20.0 GiB",),
                action="Ask alice, or use GPU 1: CUDA_VISIBLE_DEVICES=1.",
            ),
        ),
        "primary": "memory.other-process",
    }
    return full_run(**{**fields, **changes})


def healthy() -> Diagnostic:
    return diagnostic_report(looks())


def died() -> Diagnostic:
    return diagnostic_report(looks(programs=(program(),)))


def without_driver() -> Diagnostic:
    gaps = (Gap(part="probes", why="none was run here"),)
    doctor = machines.examined(machines.bare())
    return diagnostic_report(looks(snapshot=judged(bare_snapshot()), doctor=doctor, probes=None, missing=gaps))


def nothing() -> Diagnostic:
    """Nothing could be gathered."""
    gaps = (Gap(part="the machine now", why="the driver did not answer within 10 s"), Gap(part="doctor", why="broke"))
    return diagnostic_report(looks(snapshot=None, doctor=None, probes=None, missing=gaps))


def hostile() -> Diagnostic:
    snapshot = judged(full_snapshot())
    return diagnostic_report(
        looks(snapshot=snapshot, programs=(hostile_run(),), probes=compare([hostile_run(), bare_run(), full_run()]))
    )
