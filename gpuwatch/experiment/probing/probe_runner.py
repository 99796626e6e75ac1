"""Runs probes; returns a draft run of each."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import msgspec

from gpuwatch.core.model.probes import Event
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.experiment.probing.environment_settings import stored_variables
from gpuwatch.experiment.probing.fork_server import ForkServer, ForkServerLost
from gpuwatch.experiment.probing.interpreter import Interpreter
from gpuwatch.experiment.probing.launch_program import with_watch_hook
from gpuwatch.experiment.probing.probe_process import ProbeProcess, launch_fresh
from gpuwatch.experiment.probing.probe_scripts import MEASUREMENT_SECONDS, ProbeScript
from gpuwatch.experiment.probing.run_draft import RunDraft, RunDraftBuilder, SnapshotSource
from gpuwatch.experiment.probing.simulation_tier import TierChoice, choose_tier
from gpuwatch.sim.environment import ENV_PLUGIN
from gpuwatch.sim.libraries import Tier
from gpuwatch.sim.simulated_machine import SimMachine

# Since 2.12 TensorFlow hides the names of missing libraries and its driver diagnosis unless these are set.
LOG_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "dso_loader=1,cuda_diagnostics=1",
    "PYTHONUNBUFFERED": "1",
}


class ProbeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user chose for the runs."""

    interpreters: dict[str, Interpreter]
    """By framework."""
    seconds: float = MEASUREMENT_SECONDS
    """Time budget of the measurement, without start and warm-up."""
    size: int = 1024
    """Matrix size of ``matmul``: size x size."""
    deadline: float
    """Seconds after which a probe is killed."""
    visible_uuids: tuple[str, ...] = ()
    """UUIDs of the GPUs that the probe may use; empty leaves the environment unchanged."""
    config_options: dict[str, Any] = {}
    """Options of single configurations: ``memory_limit``, ``fraction``, ``workload``."""
    always_fresh: bool = False
    """Start a new interpreter for every probe instead of forking."""
    tier: Tier | None = None
    """The tier of simulated GPUs; None chooses one for each probe."""


class ProbeRunner:
    """Runs probes one after another; keeps the fork servers between them. A context manager."""

    def __init__(self, options: ProbeOptions, source: SnapshotSource | None = None) -> None:
        """``source`` gives snapshots while a probe runs."""
        self._options = options
        self._source = source
        self._fork_servers: dict[tuple[str, Tier | None], ForkServer | None] = {}
        self._simulated_machine = SimMachine.from_environment(os.environ)
        self.notes: list[str] = []
        """Why probes were not forked, one sentence each."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._fork_servers.values():
            if server is not None:
                server.close()
        self._fork_servers.clear()

    def run(
        self,
        script: ProbeScript,
        *,
        before: Snapshot | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> RunDraft:
        """Runs ``script`` to its end; ``before``: the snapshot before it.

        Everything that the probe started has ended when this returns or raises (KeyboardInterrupt included).
        """
        choice = TierChoice()
        interpreter = self._options.interpreters[script.framework]
        if not interpreter.installed:
            choice = TierChoice(skipped=f"{script.framework} is not installed in {interpreter.path}")
        elif self._simulated_machine is not None:
            choice = choose_tier(
                script, interpreter, self._options.tier, self._applicable_options(script).get("workload")
            )
        if choice.skipped:
            now = datetime.datetime.now(datetime.UTC)
            return RunDraftBuilder(time.monotonic(), before).build_skipped(script, choice.skipped, now)
        environment = self._environment(script, choice.tier)
        # TensorFlow counts plug-in devices at import, and CUDA devices at the first use.
        counted_at_import = choice.tier == "plugin" and "CUDA_VISIBLE_DEVICES" in script.environment
        fresh = self._options.always_fresh or script.fresh or counted_at_import
        server = None if fresh else self._fork_server(script.framework, choice.tier, environment)
        if server is not None:
            try:
                return self._execute(script, environment, choice.tier, server, before, on_event)
            except ForkServerLost as error:
                self.notes.append(f"{script.name} was started in a new interpreter: {error.message}")
                server.close()
                self._fork_servers[script.framework, choice.tier] = None
        return self._execute(script, environment, choice.tier, None, before, on_event)

    def _execute(
        self,
        script: ProbeScript,
        environment: dict[str, str],
        tier: Tier | None,
        server: ForkServer | None,
        before: Snapshot | None,
        on_event: Callable[[Event], None] | None,
    ) -> RunDraft:
        started_at = datetime.datetime.now(datetime.UTC)
        started = time.monotonic()
        builder = RunDraftBuilder(started, before)
        if server is None:
            python = self._options.interpreters[script.framework].path
            launch = launch_fresh([python, "-u", str(script.path)], environment)
        else:
            forked_environment = {**environment, "GPUWATCH_IMPORT_SECONDS": repr(server.import_seconds)}
            for line in server.import_log:
                builder.take_log_line(line)
            launch = partial(server.fork, script.path, forked_environment)

        def take_event(line: bytes) -> None:
            event = builder.take_event_line(line)
            if tier == "plugin" and self._simulated_machine is not None and builder.pid is not None:
                builder.set_device_uuids(self._simulated_machine.ordinals(builder.pid))
            if event is not None and on_event is not None:
                on_event(event)

        def take_snapshots() -> None:
            if self._source is not None:
                for snapshot in self._source.drain():
                    builder.take_snapshot(snapshot, time.monotonic())

        with ProbeProcess(launch, on_event=take_event, on_log=builder.take_log_line) as process:
            builder.pid = process.pid
            outcome = process.run_to_end(self._options.deadline, take_snapshots)
            take_snapshots()
        return builder.build(
            script,
            outcome,
            started_at=started_at,
            total_seconds=time.monotonic() - started,
            fresh=server is None,
            environment=stored_variables({**environment, **script.environment}),
            simulation=tier,
        )

    def _applicable_options(self, script: ProbeScript) -> dict[str, Any]:
        """The options that apply to this script: a run must not be labeled with a workload that it did not do."""
        own = self._options.config_options
        return {name: value for name, value in own.items() if not (name == "workload" and script.own_work)}

    def _environment(self, script: ProbeScript, tier: Tier | None) -> dict[str, str]:
        options = self._options
        environment = dict(os.environ)
        if self._simulated_machine is not None:
            if tier is None:
                # A CPU build of PyTorch finds no GPU anyway; hide the simulated ones completely.
                environment = self._simulated_machine.stripped(environment)
            elif tier != "driver" or ENV_PLUGIN in environment:
                environment = self._simulated_machine.environment(environment, tier=tier)
            # Otherwise it is on that tier already, perhaps with libraries missing on purpose.
            if tier == "plugin":
                environment = with_watch_hook(environment)
        environment.update(LOG_ENVIRONMENT)
        if options.visible_uuids:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(options.visible_uuids)
        probe_options = {
            **script.options,
            **self._applicable_options(script),
            "seconds": options.seconds,
            "size": options.size,
        }
        environment["GPUWATCH_PROBE_OPTIONS"] = json.dumps(probe_options)
        # A probe must not write next to the installed scripts.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        return environment

    def _drain_source(self) -> None:
        """Drains the source, which raises to cancel; samples before the run are dropped."""
        if self._source is not None:
            self._source.drain()

    def _fork_server(self, framework: str, tier: Tier | None, environment: dict[str, str]) -> ForkServer | None:
        key = (framework, tier)
        if key not in self._fork_servers:
            self._fork_servers[key] = None
            try:
                python = self._options.interpreters[framework].path
                server = ForkServer(python, framework, environment, while_waiting=self._drain_source)
            except ForkServerLost as error:
                self.notes.append(f"each probe starts a new interpreter: {error.message}")
                return None
            if server.unsafe_reason:
                self.notes.append(f"each probe starts a new interpreter: {server.unsafe_reason}")
                server.close()
                return None
            self._fork_servers[key] = server
        return self._fork_servers[key]
