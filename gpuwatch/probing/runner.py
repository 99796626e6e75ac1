"""Runs probes and returns what was observed of each."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from gpuwatch.model.events import Event
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.probing.hook import hooked
from gpuwatch.probing.interpreter import Interpreter
from gpuwatch.probing.locate import ProbeScript
from gpuwatch.probing.process import ProbeProcess, launch_fresh
from gpuwatch.probing.run_builder import RunBuilder, RunDraft
from gpuwatch.probing.template import Template, TemplateLost
from gpuwatch.probing.tiers import Choice, Tier, choose_tier
from gpuwatch.sim.environment import ENV_PLUGIN
from gpuwatch.sim.machine import SimMachine

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
            "DEVICE_MIN",
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
_EMPTY_MEANS = frozenset({"CUDA_VISIBLE_DEVICES"})
"""Variables of which the empty value means something: no GPU at all."""


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that bear on GPUs and frameworks; the others stay out of a run."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_KEPT_PREFIXES) and (value or name in _EMPTY_MEANS)
    }


class SnapshotSource(Protocol):
    """The part of a feed that a run needs."""

    def drain(self) -> list[Snapshot]:
        """Every snapshot since the last call."""
        ...


class ProbeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user chose for the runs."""

    interpreters: dict[str, Interpreter]
    """By framework."""
    seconds: float = 1.0
    """Time budget of the measurement; warm-up and start come on top."""
    size: int = 1024
    """Edge of the matrices of ``matmul``."""
    deadline: float = 180.0
    """Seconds after which a probe is killed."""
    visible: tuple[str, ...] = ()
    """UUIDs of the GPUs that the probe may see; empty leaves the environment as it is."""
    own: dict[str, Any] = {}
    """Options of single configurations: ``memory_limit``, ``fraction``, ``workload``."""
    fresh: bool = False
    """Start every probe from nothing, never from a template."""
    tier: Tier | None = None
    """The tier of simulated GPUs to insist on; None takes the one that can show the subject."""


class Runner:
    """Runs probes one after another; keeps the template processes between them. A context manager."""

    def __init__(self, options: ProbeOptions, source: SnapshotSource | None = None) -> None:
        """``source`` gives snapshots while a probe runs."""
        self._options = options
        self._source = source
        self._templates: dict[tuple[str, Tier | None], Template | None] = {}
        self._machine = SimMachine.from_environment(os.environ)
        self.notes: list[str] = []
        """Why templates were not used, one sentence each."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for template in self._templates.values():
            if template is not None:
                template.close()
        self._templates.clear()

    def run(
        self,
        script: ProbeScript,
        *,
        before: Snapshot | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> RunDraft:
        """Executes ``script`` and observes it until it ends; ``before`` is the machine as it was.

        Nothing that the probe started is left when this returns or raises (KeyboardInterrupt
        included).
        """
        choice = Choice()
        interpreter = self._options.interpreters[script.framework]
        if not interpreter.installed:
            choice = Choice(skipped=f"{script.framework} is not installed in {interpreter.path}")
        elif self._machine is not None:
            choice = choose_tier(script, interpreter, self._options.tier, self._own(script).get("workload"))
        if choice.skipped:
            now = datetime.datetime.now(datetime.UTC)
            return RunBuilder(time.monotonic(), before).skip(script, choice.skipped, now)
        environment = self._environment(script, choice.tier)
        # TensorFlow counts plug-in devices when it is imported; CUDA is asked at the first use.
        counted_at_import = choice.tier == "plugin" and "CUDA_VISIBLE_DEVICES" in script.environment
        fresh = self._options.fresh or script.fresh or counted_at_import
        template = None if fresh else self._template(script.framework, choice.tier, environment)
        if template is not None:
            try:
                return self._execute(script, environment, choice.tier, template, before, on_event)
            except TemplateLost as error:
                self.notes.append(f"{script.name} was started afresh: {error.message}")
                template.close()
                self._templates[script.framework, choice.tier] = None
        return self._execute(script, environment, choice.tier, None, before, on_event)

    def _execute(
        self,
        script: ProbeScript,
        environment: dict[str, str],
        tier: Tier | None,
        template: Template | None,
        before: Snapshot | None,
        on_event: Callable[[Event], None] | None,
    ) -> RunDraft:
        options = self._options
        started_at = datetime.datetime.now(datetime.UTC)
        started = time.monotonic()
        builder = RunBuilder(started, before)
        if template is None:
            python = options.interpreters[script.framework].path
            launch = launch_fresh([python, "-u", str(script.path)], environment)
        else:
            forked = {**environment, "GPUWATCH_IMPORT_SECONDS": repr(template.import_seconds)}
            for line in template.import_log:
                builder.log_line(line)
            launch = partial(template.spawn, script.path, forked)

        def take_event(line: bytes) -> None:
            event = builder.event_line(line)
            if tier == "plugin" and self._machine is not None and builder.pid is not None:
                builder.ordinals(self._machine.ordinals(builder.pid))
            if event is not None and on_event is not None:
                on_event(event)

        def look() -> None:
            if self._source is not None:
                for snapshot in self._source.drain():
                    builder.snapshot(snapshot, time.monotonic())

        with ProbeProcess(launch, on_event=take_event, on_log=builder.log_line) as process:
            builder.pid = process.pid
            outcome = process.pump(options.deadline, look)
            look()
        effective = {**environment, **script.environment}
        return builder.finish(
            script,
            outcome,
            started_at=started_at,
            total_seconds=time.monotonic() - started,
            fresh=template is None,
            environment=kept_environment(effective),
            simulation=tier,
        )

    def _own(self, script: ProbeScript) -> dict[str, Any]:
        """The options that mean something to this script: what it cannot do must not be its label."""
        own = self._options.own
        return {name: value for name, value in own.items() if not (name == "workload" and script.own_work)}

    def _environment(self, script: ProbeScript, tier: Tier | None) -> dict[str, str]:
        options = self._options
        environment = dict(os.environ)
        if self._machine is not None:
            if tier is None:
                # A CPU build of PyTorch finds no GPU, and half of one would be worse than none.
                environment = self._machine.stripped(environment)
            elif tier != "driver" or ENV_PLUGIN in environment:
                environment = self._machine.environment(environment, tier=tier)
            # Else it is on that tier already, and may lack libraries on purpose.
            if tier == "plugin":
                environment = hooked(environment)
        environment.update(LOG_ENVIRONMENT)
        if options.visible:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(options.visible)
        own = {**script.options, **self._own(script), "seconds": options.seconds, "size": options.size}
        environment["GPUWATCH_PROBE_OPTIONS"] = json.dumps(own)
        # A probe must not write beside the installed scripts.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        return environment

    def _pulse(self) -> None:
        """A source that wants no more raises when it is asked; nothing of the machine is the run's yet."""
        if self._source is not None:
            self._source.drain()

    def _template(self, framework: str, tier: Tier | None, environment: dict[str, str]) -> Template | None:
        key = (framework, tier)
        if key not in self._templates:
            self._templates[key] = None
            try:
                python = self._options.interpreters[framework].path
                template = Template(python, framework, environment, between=self._pulse)
            except TemplateLost as error:
                self.notes.append(f"probes start afresh: {error.message}")
                return None
            if template.unsafe:
                self.notes.append(f"probes start afresh: {template.unsafe}")
                template.close()
                return None
            self._templates[key] = template
        return self._templates[key]
