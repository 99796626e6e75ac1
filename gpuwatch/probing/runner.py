"""Runs one probe and returns what was observed."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from gpuwatch.model.events import Event
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.probing.locate import ProbeScript
from gpuwatch.probing.observe import Observation, Observed
from gpuwatch.probing.process import ProbeProcess

# Brings back the names of missing libraries and the driver's diagnosis, which TensorFlow hides since 2.12.
LOG_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "dso_loader=1,cuda_diagnostics=1",
    "PYTHONUNBUFFERED": "1",
}
# TensorFlow's prefixes one by one: TF_VAR_, TF_TOKEN_ and others are Terraform's, and hold secrets.
_KEPT_PREFIXES = (
    "CUDA_",
    "GPUWATCH_SIM",
    "LD_LIBRARY_PATH",
    "NCCL_",
    "NVIDIA_",
    "PYTORCH_",
    "XLA_",
    *(
        f"TF_{rest}"
        for rest in (
            "AUTOTUNE",
            "CONFIG",
            "CPP_",
            "CUD",
            "DETERMINISTIC",
            "DISABLE_",
            "ENABLE_",
            "FORCE_",
            "GPU_",
            "MIN_GPU",
            "MKL_",
            "NUM_",
            "PER_",
            "USE_",
            "XLA_",
        )
    ),
)


class SnapshotSource(Protocol):
    """The part of a feed that a run needs."""

    def drain(self) -> list[Snapshot]:
        """Every snapshot since the last call."""
        ...


class ProbeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user chose for a run."""

    python: str
    seconds: float = 1.0
    """Time budget of the measurement; warm-up and start come on top."""
    size: int = 1024
    """Edge of the matrices of ``matmul``."""
    deadline: float = 180.0
    """Seconds after which the probe is killed."""
    visible: tuple[str, ...] = ()
    """UUIDs of the GPUs that the probe may see; empty leaves the environment as it is."""


def run_probe(
    script: ProbeScript,
    options: ProbeOptions,
    *,
    source: SnapshotSource | None = None,
    before: Snapshot | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Observed:
    """Executes ``script`` in a fresh interpreter and observes it until it ends.

    ``source`` gives snapshots meanwhile, ``before`` is the machine as it was. Nothing that the probe
    started is left when this returns or raises (KeyboardInterrupt included).
    """
    environment = dict(os.environ)
    environment.update(LOG_ENVIRONMENT)
    if options.visible:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(options.visible)
    environment["GPUWATCH_PROBE_OPTIONS"] = json.dumps({"seconds": options.seconds, "size": options.size})
    # A probe must not find the working directory's modules, nor write beside the installed scripts.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    started_at = datetime.datetime.now(datetime.UTC)
    started = time.monotonic()
    observation = Observation(started, before)

    def take_event(line: bytes) -> None:
        event = observation.event_line(line)
        if event is not None and on_event is not None:
            on_event(event)

    def look() -> None:
        if source is not None:
            for snapshot in source.drain():
                observation.snapshot(snapshot, time.monotonic())

    command = [options.python, "-u", str(script.path)]
    with ProbeProcess(command, environment, on_event=take_event, on_log=observation.log_line) as process:
        observation.pid = process.pid
        outcome = process.pump(options.deadline, look)
        look()
    effective = {**environment, **script.environment}
    return observation.finish(
        script,
        outcome,
        started_at=started_at,
        total_seconds=time.monotonic() - started,
        environment={
            key: value for key, value in sorted(effective.items()) if key.startswith(_KEPT_PREFIXES) and value
        },
        simulation=_simulation(environment),
    )


def _simulation(environment: dict[str, str]) -> str | None:
    """Which tier of simulated GPUs the probe was given, if any."""
    return "driver" if Path(environment.get("GPUWATCH_SIM_STATE", "")).is_file() else None
