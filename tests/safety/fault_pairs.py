"""Faults of GPUs alone, then in each order of pairs: each begins, is named with its GPU, and ends.

Run by ``test_faulted_calls.py`` in a process on simulated GPUs: ``python -m tests.safety.fault_pairs [N]`` prints what
was wrong and how many cases there were, as JSON; with N each fault alone and so many other cases, drawn by a seed. The
clock is turned on between samples instead of waiting.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.core.model.recorded_period import Period
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.collector import Collector
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.collector.protocol import note_seen_devices
from gpuwatch.machine.collector.recording_player import RecordingPlayer
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.metric_history import History
from gpuwatch.machine.history.saved_runs import RunStore
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.writer import Clock, RecordingWriter
from gpuwatch.machine.sources.device_source import SeenDevice
from gpuwatch.machine.sources.nvidia.decode_answers import FABRIC_CONFIGURATION_SHIFT, FABRIC_TROUBLES
from gpuwatch.session.current_findings import recorded_and_current_findings
from gpuwatch.session.recorded_period_document import period_document
from gpuwatch.session.session import replay_session
from gpuwatch.session.view import View, most_important_first
from gpuwatch.share.exporter.metrics_page import ExporterOptions, MetricsPage, ScrapeContent
from gpuwatch.sim import faults
from gpuwatch.sim.simulated_machine import FOR_EVER, SimMachine
from gpuwatch.ui.panes.overview_summary import main_problem, summary_items
from gpuwatch.ui.panes.verdict import verdict

SHAPE = "10x24GiB"
MACHINE: SimMachine
_FOREIGN = 4_100_000
SILENT: list[bool] = []
"""Not empty while the driver does not answer."""


@dataclass(frozen=True)
class Fault:
    gpu: int | None
    """None: of the driver, which hides all others."""
    cause: str
    """Empty: it is none, and nothing is told of it."""
    begin: Callable[[], object]
    end: Callable[[], object]
    stays: bool = False
    """Whether it is told after its end: results since then may be wrong."""
    noted: bool = False
    """Whether a note tells of it, so that not all is well."""


def _fails(label: str, gpu: int, function: str, code: str) -> Callable[[], object]:
    return lambda: MACHINE.inject(function, code=NvmlReturn[code], device=gpu, count=FOR_EVER, label=label)


def _throttled(gpu: int, cause: str, reasons: int) -> Fault:
    name = "clock_event_reasons"
    return Fault(gpu, cause, lambda: MACHINE.override(gpu, name, reasons), lambda: MACHINE.override(gpu, name, None))


def _no_session(cause: str, code: str) -> Fault:
    return Fault(
        None,
        cause,
        lambda: faults.fail_init(MACHINE, NvmlReturn[code], None),
        lambda: MACHINE.clear_faults(faults.INIT),
    )


_HEALTHY = sum(2 << bit for bit in FABRIC_TROUBLES) | 1 << FABRIC_CONFIGURATION_SHIFT
_UNHEALTHY = _HEALTHY - (1 << min(FABRIC_TROUBLES))
"""Masks of the fabric's health: of each trouble 1 for yes, 2 for no."""


def _fabric(mask: int) -> None:
    MACHINE.override(8, "fabric_state", 3)
    MACHINE.override(8, "fabric_health_mask", mask)
    MACHINE.override(8, "fabric_health_summary", 1 if mask == _HEALTHY else 2)


def _fresh() -> None:
    """The machine without faults, with NVLinks and a fabric."""
    MACHINE.heal()
    for name, value in {"nvlink_links": 4, "nvlink_version": 5, "nvlink_failed_recoveries": 0}.items():
        MACHINE.override(6, name, value)
    _fabric(_HEALTHY)


FAULTS = {
    # The first one leaves the list, so that all others have another index meanwhile.
    "removed": Fault(0, "hardware.fault", lambda: MACHINE.show_device(0, False), lambda: MACHINE.show_device(0)),
    "lost": Fault(1, "hardware.fault", lambda: faults.lose(MACHINE, 1), lambda: faults.bring_back(MACHINE, 1)),
    "needs a reset": Fault(
        2, "hardware.fault", _fails("reset", 2, "*", "RESET_REQUIRED"), lambda: MACHINE.clear_faults("reset")
    ),
    "no memory reading": Fault(
        3,
        "driver.bad-state",
        _fails("memory", 3, "nvmlDeviceGetMemoryInfo*", "UNKNOWN"),
        lambda: MACHINE.clear_faults("memory"),
    ),
    "uncorrected errors": Fault(
        4,
        "hardware.fault",
        lambda: MACHINE.override(4, "ecc_uncorrected", 3),
        lambda: MACHINE.override(4, "ecc_uncorrected", None),
        stays=True,
    ),
    "Xid": Fault(
        5,
        "hardware.fault",
        lambda: MACHINE.override(5, "xid", 79),
        lambda: MACHINE.override(5, "xid", None),
        stays=True,
    ),
    "throttled": _throttled(3, "throttle.thermal", 0x20),
    "power brake": _throttled(4, "throttle.power", 0x80),
    "NVLink errors": Fault(
        6,
        "hardware.fault",
        lambda: MACHINE.override(6, "nvlink_failed_recoveries", 3),
        lambda: MACHINE.override(6, "nvlink_failed_recoveries", 0),
    ),
    "SRAM errors": Fault(
        7,
        "hardware.fault",
        lambda: MACHINE.override(7, "sram_threshold_exceeded", 1),
        lambda: MACHINE.override(7, "sram_threshold_exceeded", 0),
    ),
    "fabric": Fault(8, "hardware.fault", lambda: _fabric(_UNHEALTHY), lambda: _fabric(_HEALTHY)),
    # No faults: nothing is told of them, and what is told of others stays right.
    "partitioned": Fault(9, "", lambda: MACHINE.set_mig(9, "1g,1g,-,2g"), lambda: MACHINE.set_mig(9, "off")),
    "foreign process": Fault(
        6,
        "",
        lambda: MACHINE.attach(_FOREIGN, 6, 2**31, sm_percent=50, foreign=True),
        lambda: MACHINE.detach(_FOREIGN),
        noted=True,
    ),
    "asleep": Fault(9, "", lambda: MACHINE.set_asleep(9, True), lambda: MACHINE.set_asleep(9, False)),
    "no driver": _no_session("driver.missing", "DRIVER_NOT_LOADED"),
    "mismatch": _no_session("driver.mismatch", "LIB_RM_VERSION_MISMATCH"),
    # The feed says that the driver is silent: a call that hangs would stop this process.
    "hang": Fault(None, "driver.bad-state", lambda: SILENT.append(True), SILENT.clear),
    # Slow calls alone are no fault.
    "slow": Fault(
        9,
        "",
        lambda: MACHINE.inject("*", delay_ms=1, device=9, count=FOR_EVER, label=faults.SLOW),
        lambda: MACHINE.clear_faults(faults.SLOW),
    ),
}


def _called_free(view: View) -> set[int]:
    """The GPUs that the answer line names: ``Free: 0-3, 5, 9 MIG 1/0``."""
    free = next((part.forms[1:2] for part in summary_items(view) if part.id == "free"), ())
    runs = [re.findall(r"\d+", run.partition(" MIG")[0]) for names in free for run in names.split(", ")]
    return {index for run in runs if run for index in range(int(run[0]), int(run[-1]) + 1)}


class Watched:
    """A machine from its first sample on, as the dashboard, the recorder and the exporter see it."""

    def __init__(self, what: str, path: Path) -> None:
        self.what, self.path = what, path
        self.wrong: list[str] = []
        self.at = datetime.datetime(2026, 5, 11, tzinfo=datetime.UTC)
        self.ahead = 0.0
        self.status = FeedStatus("ok", 0.0)
        self.moments: list[tuple[float, str, set[tuple[str, str | None]], bool]] = []
        """Each check: when, what was the case, what was to be told, and whether a note was to be."""
        self.told: set[tuple[str, str | None]] = set()
        self.seen: dict[str, SeenDevice] = {}
        self.collector, self.conditions = Collector(), ConditionEngine()
        clock = Clock(*[lambda: self.at.timestamp()] * 3, lambda: "boot")
        self.writer = RecordingWriter(path, interval=10.0, seal_seconds=60.0, clock=clock, max_age=1e9)
        self.events: Counter[tuple[str, str | None]] = Counter()
        self.sample(4)
        self.uuids = [device.uuid for device in self.snapshot.devices]

    def sample(self, count: int = 6) -> None:
        for _ in range(count):
            AHEAD[0] += 61.0  # slow readings, too
            self.at += datetime.timedelta(seconds=10)
            self.status = FeedStatus("not-answering", 10.0, 9.0) if SILENT else FeedStatus("ok", 0.0)
            if SILENT:
                self._keep_event(self.conditions.feed(self.status, self.at.timestamp()))
                continue
            self.snapshot = replace(self.collector.sample(), taken_at=self.at)
            note_seen_devices(self.seen, self.snapshot.devices)
            events = self.conditions.observe(self.snapshot)
            self.writer.add(
                self.snapshot, recorded_and_current_findings(self.snapshot.findings, self.conditions), events
            )
            self._count(events)
            self._keep_event(self.conditions.feed(self.status, self.at.timestamp()))

    def _keep_event(self, events: Sequence[MachineEvent]) -> None:
        self.writer.add_events(events)
        self._count(events)

    def _count(self, events: Sequence[MachineEvent]) -> None:
        self.events.update((event.kind, event.device_uuid) for event in events)

    def replace_collector(self) -> None:
        """As after a crash or a hang."""
        self.collector.close()
        self.collector = Collector(seen=tuple(self.seen.values()))

    def check(self, when: str, active: list[Fault]) -> None:
        """Each is told, of its GPU, and nothing else."""
        active = [FAULTS["hang"]] if SILENT else active  # nothing else is asked meanwhile
        hidden = any(fault.gpu is None for fault in active)
        found = {(one.id, one.device_uuid) for one in self.conditions.findings if one.severity != "info"}
        wanted = {
            (fault.cause, None if fault.gpu is None else self.uuids[fault.gpu])
            for fault in active
            if fault.cause and (fault.gpu is None or not hidden)
        }
        if not wanted <= found <= (wanted | self.told if SILENT else wanted):  # nothing is judged meanwhile
            self.wrong.append(f"{self.what}, {when}: {sorted(found, key=str)} instead of {sorted(wanted, key=str)}")
        self.told = found
        noted = any(fault.noted for fault in active) and not hidden
        self.moments.append((self.at.timestamp(), when, wanted, noted))
        self._check_words(when, bool(wanted), noted)
        listed = [device.uuid for device in self.snapshot.devices]
        if unknown := [uuid for uuid in listed if uuid not in self.uuids]:
            self.wrong.append(f"{self.what}, {when}: {unknown} is listed")
        content = ScrapeContent(self.snapshot, self.conditions.findings, True, 0, True)
        page = (
            MetricsPage(content, ExporterOptions("host", 5.0, "all", True, processes=9), None)
            .body("openmetrics")
            .decode()
        )
        for cause, uuid in wanted:
            if not any(f'cause="{cause}"' in line and (uuid or "") in line for line in page.splitlines()):
                self.wrong.append(f"{self.what}, {when}: the exporter does not tell {cause} of {uuid}")

    def _check_words(self, when: str, trouble: bool, noted: bool) -> None:
        """The top line is not well meanwhile, and a title has the GPU's number of now."""
        findings, now = self.conditions.findings, self.at.timestamp()
        view = View(
            self.snapshot,
            History(),
            self.status,
            now,
            1.0,
            findings,
            errors_and_warnings=most_important_first(findings),
        )
        self._check_view(when, view, trouble, noted)
        for one in findings:
            device = self.snapshot.device(one.device_uuid or "")
            if device is not None and f"GPU {device.index}" not in one.title:
                self.wrong.append(f"{self.what}, {when}: {one.title} is of GPU {device.index}")

    def _check_view(self, when: str, view: View, trouble: bool, noted: bool) -> None:
        """Both lines at the top of the dashboard: the verdict, and the answer, which names the GPU."""
        words, told = verdict(view)[0], main_problem(view)
        if words.startswith("● all well") == (trouble or noted) or (told is None or told.severity == "info") == trouble:
            self.wrong.append(f"{self.what}, {when}: {words}; {told}")
        elif told is not None and trouble and "GPU" not in told.lead + told.text and "driver" not in told.text.lower():
            self.wrong.append(f"{self.what}, {when}: of no GPU: {told.text}")
        failed = {one.device_uuid for one in view.errors_and_warnings if one.severity == "error"}
        for device in view.devices:
            if device.index in _called_free(view) and failed & {device.uuid, None}:
                self.wrong.append(f"{self.what}, {when}: GPU {device.index} is called free")

    def close(self, expected: list[Fault], runs: RunStore) -> None:
        """What began has ended, and the report tells each."""
        self.writer.close("by a test")
        self.collector.close()
        with Recording(self.path) as recording:
            document: Period = period_document(recording, *recording.extent(), runs=runs)
            self._replay(recording)
        told = {(one.finding.id, one.finding.device_uuid): one.active for one in document.findings}
        for fault in filter(lambda fault: fault.cause, expected):
            whose = (fault.cause, None if fault.gpu is None else self.uuids[fault.gpu])
            if told.get(whose) is not fault.stays:
                self.wrong.append(f"{self.what}: the report has {told.get(whose)} for {whose}")
        for (kind, uuid), count in self.events.items():
            name, _, phase = kind.rpartition(".")
            ends = phase == "began" and name != "finding" and not any(fault.stays for fault in expected)
            if ends and self.events[f"{name}.ended", uuid] != count:
                self.wrong.append(f"{self.what}: {kind} of {uuid} without an end")
            if kind == "device.new":
                self.wrong.append(f"{self.what}: {uuid} is called new")

    def _replay(self, recording: Recording) -> None:
        """What was told then is told when it is looked at again."""
        session = replay_session(RecordingPlayer(recording))
        for at, when, wanted, noted in self.moments:
            session.pause().move_to(at, inside_gaps=True)
            view = session.view()
            found = {(one.id, one.device_uuid) for one in view.findings if one.until is None}
            self._check_view(f"{when}, replayed", view, bool(wanted), noted)
            if not wanted <= found:
                self.wrong.append(f"{self.what}, {when}, replayed: {sorted(found, key=str)}")


AHEAD = [0.0]


def case(names: tuple[str, ...], folder: Path, *, replaced: bool) -> list[str]:
    """These faults one after the other, then ended in the same order."""
    what = " + ".join(names) + (", collector replaced" if replaced else "")
    _fresh()
    watched = Watched(what, folder / f"{len(list(folder.iterdir()))}.gpuwatch")
    chosen = [FAULTS[name] for name in names]
    active: list[Fault] = []
    for name, fault in zip(names, chosen, strict=True):
        fault.begin()
        active.append(fault)
        watched.sample(1)
        if replaced:
            watched.replace_collector()
        watched.sample()
        watched.check(f"with {name}", active)
    for name, fault in zip(names, chosen, strict=True):
        fault.end()
        if not fault.stays:
            active.remove(fault)
        watched.sample()
        watched.check(f"after {name}", active)
    watched.close(chosen, RunStore(folder / "runs"))
    return watched.wrong


def main() -> None:
    global MACHINE
    found = SimMachine.from_environment(os.environ)
    assert found is not None
    MACHINE = found
    real = time.monotonic
    time.monotonic = lambda: real() + AHEAD[0]  # type: ignore[assignment]
    alone = [(name,) for name in FAULTS]
    # Nobody hears of an Xid that comes while the driver is away.
    unheard = [(first, second) for first in ("no driver", "mismatch") for second in ("Xid", "no driver", "mismatch")]
    pairs = [pair for pair in itertools.permutations(FAULTS, 2) if pair not in unheard]
    slow = {"throttled", "power brake"}
    pairs = [pair for pair in pairs if not slow & set(pair) or set(pair) - slow <= {"removed"}]
    away = {"removed", "lost", "needs a reset", "no driver"}
    cases = [(names, False) for names in (*alone, *pairs)]
    cases += [(names, True) for names in (*alone, *pairs) if away >= set(names) or len(names) == 1]
    if len(sys.argv) > 1:
        cases = [*cases[: len(alone)], *random.Random(20261123).sample(cases[len(alone) :], int(sys.argv[1]))]
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for names, replaced in cases:
            wrong += case(names, Path(folder), replaced=replaced)
    json.dump({"cases": len(cases), "wrong": wrong, "cpu_seconds": round(time.process_time(), 1)}, sys.stdout)


if __name__ == "__main__":
    main()
