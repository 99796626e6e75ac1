"""Any machine, second by second: no rule over time may fail, and what it tells is whole."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.metrics import METRICS
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device, Problem, Process, Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.explain.diagnosis.conditions.gpu_faults import unreadable_metrics
from gpuwatch.machine.history.machine_event import MachineEvent
from tests.diagnosis.watching import GIB, gpu, program, sample, watched

_REASONS = ("not_supported", "permission_denied", "failed", "no_sample", "unknown")
_WORDS = ("none", "idle", "sw-power-cap", "sw-thermal+sw-power-cap", "hw-slowdown", "nonsense", "")
_VALUES = (0, 1, 3, 50, 97, 100, 1e-9, 1e18, 12 * GIB, 24 * GIB, -1)
_LISTS = (None, "", "-1", "0", "0,0", "7", "GPU-", "MIG-1", "0,-1", "\x1b[31m")


def any_device(rng: random.Random, index: int) -> Device:
    device = gpu(index, busy=rng.choice([0, 30, 97, None]), used=rng.choice([0, 1, 20, 24]))
    for spec in rng.sample(METRICS, 25):
        device.readings.pop(spec.id, None)
        if rng.random() < 0.5:
            device.missing[spec.id] = Missing(rng.choice(_REASONS))
        else:
            device.readings[spec.id] = rng.choice(_WORDS) if spec.names or spec.flags else rng.choice(_VALUES)
    state = rng.choice(["ok", "ok", "ok", "lost", "failed", "asleep", "reset-required"])
    return msgspec.structs.replace(device, state=state)


def any_process(rng: random.Random, gpus: int, *, aside: bool = False) -> Process:
    changes: dict[str, Any] = {
        "user": rng.choice([None, "alice", "\x07"]),
        "command": rng.choice([None, "python train.py --token=secret", ""]),
        "name": rng.choice([None, "python"]),
        "cuda_visible_devices": rng.choice(_LISTS),
        "state": rng.choice([None, "D", "Z"]),
        "note": rng.choice(["", "zombie: its parent has not waited for it", "in another PID namespace, or exited"]),
        "workers_cpu_percent": rng.choice([None, 0.0, 400.0]),
        "cuda_loaded": rng.choice([None, True, False]),
    }
    return program(
        rng.randrange(1, 6),
        held=rng.choice([0, 0.5, 8, 24]),
        age=rng.choice([None, 0, 100, 1e6]),
        sm=rng.choice([None, 0, 50, 100]),
        cpu=rng.choice([None, 0, 100, 1600]),
        gpu=None if aside else rng.randrange(max(gpus, 1) + 1),
        framework=rng.choice([None, "tensorflow 2.21.0", "torch 2.11.0+cpu", "torch", "jaxlib"]),
        **changes,
    )


def any_snapshots(seed: int, count: int) -> list[Snapshot]:
    rng = random.Random(seed)
    at, found = 0.0, []
    gpus = rng.randrange(0, 4)
    steady = rng.random() < 0.7
    devices = [any_device(rng, index) for index in range(gpus)]
    rows = [any_process(rng, gpus) for _ in range(rng.randrange(0, 6))]
    beside = [any_process(rng, gpus, aside=True) for _ in range(rng.randrange(0, 3))]
    for _ in range(count):
        at += rng.choice([1, 1, 1, 1, 5, 30, 0, -2, -100] if rng.random() < 0.1 else [1])
        if not steady and rng.random() < 0.3:
            devices = [any_device(rng, index) for index in range(gpus) if rng.random() < 0.9]
            rows = [any_process(rng, gpus) for _ in range(rng.randrange(0, 6))]
        dead = rng.random() < 0.02
        problems = (Problem(source="nvml", reason="failed", detail="Unknown Error"),) if dead else ()
        container = rng.choice([None, "docker"])
        found.append(
            sample(at, [] if dead else devices, rows, bystanders=beside, problems=problems, container=container)
        )
    return found


def check_events(watch: ConditionEngine) -> None:
    """An occurrence has one onset, at most one end, and one severity: of its events and of its finding."""
    occurrences: dict[int, list[MachineEvent]] = {}
    for event in watch.events:
        if event.occurrence:
            occurrences.setdefault(event.occurrence, []).append(event)
    ended = set()
    for number, events in occurrences.items():
        phases = [event.kind.rpartition(".")[2] for event in events]
        assert phases[0] == "began", events
        assert set(phases[1:-1]) <= {"changed"}, events
        assert phases.count("began") == 1, events
        assert len({(event.cause, event.device_uuid) for event in events}) == 1, events
        if phases[-1] == "ended":
            ended.add(number)
            assert events[-1].severity in ("good", "info")
    entries = [entry for entry in watch._entries.values() if entry.announced and entry.is_listed]
    held = {entry.number: entry.finding for entry in entries if entry.finding is not None}
    for number, found in held.items():
        assert number not in ended, "what has ended does not hold"
        event = occurrences[number][-1]
        assert (event.cause, event.device_uuid, event.severity) == (found.id, found.device_uuid, found.severity)
        assert (event.certainty, event.at >= found.since.timestamp()) == (found.certainty, True)  # type: ignore[union-attr]
    shown = [one for one in watch.findings if one.id != "healthy"]
    assert all(one in held.values() for one in shown), "each finding has an onset"


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 30))
@example(10377335)  # after the clock is set back, samples that are older than the latest
def test_no_rule_fails_and_every_finding_is_whole(seed: int) -> None:
    watch = ConditionEngine(capacity=100_000)
    snapshots = any_snapshots(seed, 250)
    unread = False
    for snapshot in snapshots:
        watch.observe(snapshot)
        told = watch.findings
        if watch._snapshot is snapshot:  # an older one changes nothing
            unread = any(map(unreadable_metrics, snapshot.devices))
        assert told or unread, "that nothing is wrong is said, too, unless too little is known"
        for found in told:
            assert "own rule" not in found.title, found
            assert found.id in CAUSES
            assert found.since is not None
            assert found.until is None
            assert found.evidence or found.id == "mode.exclusive"
            assert found.action or found.id == "healthy"
            assert "secret" not in "".join(found.evidence)
    for past in watch.past:
        assert past.since is not None
        assert past.until is not None
        assert past.since <= past.until
    check_events(watch)
    again = watched(snapshots)
    assert (again.findings, again.past) == (watch.findings, watch.past)
