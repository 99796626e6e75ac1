"""Every NVML call that gpuwatch makes, with every kind of bad answer, through every front end that shows samples.

Run by ``test_faulted_calls.py`` in a process on simulated GPUs: ``python -m tests.safety.faulted_calls [SEED COUNT]``
prints what was tried and what did not hold, as JSON. With a seed, that many pairs of faults instead of single ones.
"""

from __future__ import annotations

import ctypes
import datetime
import itertools
import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pynvml

from gpuwatch.core.model.json_codec import to_json
from gpuwatch.core.model.metrics import BY_ID, METRICS, Lane
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.collector import Collector
from gpuwatch.machine.history.sample_frames import FrameDecoder, FrameEncoder, split_frames
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.writer import RecordingWriter
from gpuwatch.machine.sources.nvidia import nvml_source
from gpuwatch.session.snapshots import findings_of
from gpuwatch.share.exporter.metric_series import ExporterOptions, ScrapeContent
from gpuwatch.share.exporter.metrics_page import MetricsPage
from gpuwatch.share.reports.formats import text
from gpuwatch.sim.simulated_machine import SimMachine

Call = Callable[..., Any]
SESSION = ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlShutdown")
"""Calls without which there is no GPU."""
ACTIVITY = {spec.id for spec in METRICS if spec.lane is Lane.GPM}
NEEDS = {
    "nvmlDeviceGetMigMode": {"mig.instances"},
    **{f"nvmlGpm{name}": ACTIVITY for name in ("QueryDeviceSupport", "SampleAlloc", "SampleGet", "MetricsGet")},
    "nvmlDeviceGetNvLinkState": {spec.id for spec in METRICS if spec.per_link or spec.id.startswith("nvlink.")},
}
"""Metrics of other calls that cannot be read without this one."""
ASKED = ("version", "fieldId", "scopeId", "nvmlReturn", "valueType", "numMetrics", "metricId")
"""Members of structs that the caller writes, or that say whether there is an answer."""
FRONT_ENDS = ("dashboard", "recorder", "exporter", "snapshot")


def fails(code: int) -> Callable[[Call], Call]:
    def bad(_: Call) -> Call:
        def call(*__: object) -> object:
            raise pynvml.NVMLError(code)

        return call

    return bad


def bad_text(real: Call) -> Call:
    """A byte in a text that is no UTF-8, which the bindings raise."""

    def call(*arguments: object) -> object:
        answer = real(*arguments)
        if isinstance(answer, str):
            raise UnicodeDecodeError(
                "utf-8", answer[:-1].encode() + b"\xff", len(answer) - 1, len(answer), "start byte"
            )
        return answer

    return call


def odd_answer(_: Call) -> Call:
    def call(*__: object) -> object:
        raise ValueError("not what was expected")

    return call


def answers(change: Callable[[float, int], float]) -> Callable[[Call], Call]:
    """Each number of the answer is changed: ``change`` gets it, and the bits of its type."""

    def bad(real: Call) -> Call:
        def call(*arguments: object) -> object:
            answer = real(*arguments)
            for argument in arguments:  # structs that the caller provides
                if isinstance(argument, ctypes.Structure) and not isinstance(argument, ctypes._Pointer):
                    changed(argument, change)
            return changed(answer, change)

        return call

    return bad


def changed(answer: Any, change: Callable[[float, int], float]) -> Any:
    if isinstance(answer, bool) or answer is None or isinstance(answer, (str, bytes)):
        return answer
    if isinstance(answer, (int, float)):
        return whole(answer, change(answer, 32))
    if isinstance(answer, (list, tuple)):
        return type(answer)(changed(one, change) for one in answer)
    if isinstance(answer, ctypes.Array):
        for at, one in enumerate(answer):
            if isinstance(one, (int, float)):
                answer[at] = whole(one, change(one, 32))
            else:
                changed(one, change)
    elif isinstance(answer, (ctypes.Structure, ctypes.Union)):
        for name, kind in answer._fields_:
            one = getattr(answer, name)
            if name in ASKED:
                continue
            if isinstance(one, (int, float)):
                setattr(answer, name, whole(one, change(one, 8 * ctypes.sizeof(kind))))
            elif not isinstance(one, (str, bytes)):
                changed(one, change)
    return answer


def whole(before: float, value: float) -> float:
    """NVML answers with a fraction in few places only."""
    return before if isinstance(before, int) and not math.isfinite(value) else value


BEHAVIOURS: dict[str, Callable[[Call], Call]] = {
    "unknown error": fails(999),
    "uninitialized": fails(1),
    "not supported": fails(3),
    "no permission": fails(4),
    "timeout": fails(10),
    "bad text": bad_text,
    "odd answer": odd_answer,
    "zero": answers(lambda *_: 0),
    "all ones": answers(lambda _, bits: (1 << bits) - 1),
    "huge": answers(lambda _, bits: 4_000_000_000 if bits == 32 else (1 << (bits - 1)) - 1),
    "not a number": answers(lambda *_: float("nan")),
    "infinite": answers(lambda *_: float("inf")),
    "negative": answers(lambda *_: -5),
}
LIES = ("all ones", "huge", "not a number", "infinite", "negative")


class Fire:
    """A collector whose calls are made to fail, and the front ends that show what it sees."""

    def __init__(self, folder: Path) -> None:
        self.ahead = 0.0
        real = time.monotonic
        time.monotonic = lambda: real() + self.ahead  # type: ignore[assignment]
        self.collector = Collector(on_demand=False, gpm=True)
        self.encoder, self.receiver, self.shown = FrameEncoder(), FrameDecoder(), ConditionEngine()
        self.path = folder / "fire.gwrec"
        self.writer = RecordingWriter(self.path)
        self.wrong: list[str] = []
        self.tried = self.recorded = 0
        for _ in range(3):
            self.sample()
        self.whole = self.sample()
        self.normal = {one.title for one in findings_of(self.whole)}
        (self.connection,) = self.collector._connections
        self.functions = sorted(nvml_source._LIB._guarded)

    def sample(self) -> Snapshot:
        """One more, with slow readings."""
        self.ahead += 61.0  # also what was not supported is asked again
        return self.collector.sample()

    def show(self, what: str, snapshot: Snapshot) -> None:
        """Every front end; what it publishes of numbers is finite."""
        for front_end in FRONT_ENDS:
            self.tried += 1
            try:
                getattr(self, f"_{front_end}")(snapshot)
            except Exception as error:  # noqa: BLE001
                self.wrong.append(f"{what}: {front_end}: {type(error).__name__}: {error}")

    def _dashboard(self, snapshot: Snapshot) -> None:
        frame = self.encoder.frames(snapshot)
        received = self.receiver.receive(*next(split_frames(frame)))
        assert received.devices == snapshot.devices
        self.shown.observe(received)

    def _recorder(self, snapshot: Snapshot) -> None:
        self.writer.add(snapshot)
        self.recorded += 1

    def _exporter(self, snapshot: Snapshot) -> None:
        content = ScrapeContent(snapshot, findings_of(snapshot), True, 0, True)
        page = (
            MetricsPage(content, ExporterOptions("host", 5.0, "all", True, processes=9), None)
            .body("openmetrics")
            .decode()
        )
        bad = [line for line in page.splitlines() if line.rpartition(" ")[2].lower().lstrip("+-") in ("nan", "inf")]
        assert not bad, bad[:2]

    def _snapshot(self, snapshot: Snapshot) -> None:
        document = msgspec.structs.replace(snapshot, findings=findings_of(snapshot))
        json.loads(to_json(document), parse_constant=lambda name: 1 / 0)
        assert text.render(document)

    def run(self, faults: tuple[tuple[str, str], ...]) -> None:
        """With these faults, functions and behaviours; afterwards all is as before."""
        what = " + ".join(f"{function}: {behaviour}" for function, behaviour in faults)
        kept = [(function, getattr(pynvml, function)) for function, _ in faults]
        try:
            for function, behaviour in faults:
                setattr(pynvml, function, BEHAVIOURS[behaviour](getattr(pynvml, function)))
            for _ in range(2):
                snapshot = self.sample()
            self.show(what, snapshot)
            self.judge(what, faults, snapshot)
        except Exception as error:  # noqa: BLE001
            self.wrong.append(f"{what}: {type(error).__name__}: {error}")
        finally:
            for function, real in reversed(kept):
                setattr(pynvml, function, real)
        for device in cast("Any", self.connection.source.devices):
            device.permanent.pop("gpm", None)  # what a GPU does not have is not asked again, by design
        for _ in range(3):  # what needs a sample before it comes back with the second
            lacks = self.lacks(self.sample(), set())
            if not lacks:
                break
        self.wrong += [f"after {what}: {one}" for one in lacks]

    def judge(self, what: str, faults: tuple[tuple[str, str], ...], snapshot: Snapshot) -> None:
        """No other reading is lost, no value is a guess, no finding comes from a value that no GPU has."""
        functions = {function for function, _ in faults}
        if functions & set(SESSION) or any(behaviour == "uninitialized" for _, behaviour in faults):
            if len(snapshot.devices) < len(self.whole.devices) and not snapshot.problems:
                self.wrong.append(f"{what}: GPUs are gone and nothing is said")
            return
        asked = {spec.id for spec in METRICS if functions & {spec.call, spec.fallback}}
        derived = {spec.id for spec in METRICS if not spec.call and (not spec.rate_of or spec.rate_of in asked)}
        lost = set().union(asked, derived, *(NEEDS.get(function, set()) for function in functions))
        self.wrong += [f"{what}: {one}" for one in self.lacks(snapshot, lost)]
        for device in snapshot.devices:
            for name, value in device.readings.items():
                low, high = BY_ID[name].bounds
                if isinstance(value, (int, float)) and not low <= value <= high:
                    self.wrong.append(f"{what}: {name} is {value}")
        if all(behaviour in LIES for _, behaviour in faults):
            for one in findings_of(snapshot):
                if one.title not in self.normal and "cannot be read" not in one.title:
                    self.wrong.append(f"{what}: finding {one.title!r}")

    def lacks(self, snapshot: Snapshot, lost: set[str]) -> list[str]:
        """What is not as before, where all readings should be there but ``lost``."""
        if [device.index for device in snapshot.devices] != [device.index for device in self.whole.devices]:
            said = [problem.detail for problem in snapshot.problems]
            return [f"GPUs {[device.index for device in snapshot.devices]} {said}"]
        found = []
        for device, before in zip(snapshot.devices, self.whole.devices, strict=True):
            if gone := before.readings.keys() - device.readings.keys() - lost:
                found.append(f"GPU {device.index} lost {sorted(gone)[:4]} of {len(gone)}")
            if not lost and device.uuid != before.uuid:
                found.append(f"GPU {device.index} is {device.uuid}")
        return found

    def close(self) -> None:
        """The recording holds every sample."""
        self.writer.close()
        kept = len(list(Recording(self.path).snapshots()))
        if kept != self.recorded:
            self.wrong.append(f"{self.recorded} samples were recorded, {kept} are read")


def drawn(functions: list[str], seed: int, count: int) -> Iterator[tuple[tuple[str, str], ...]]:
    """Pairs of faults."""
    draw = random.Random(seed)
    singles = list(itertools.product(functions, BEHAVIOURS))
    for _ in range(count):
        yield tuple(draw.sample(singles, 2))


def main() -> None:
    machine = SimMachine.from_environment(os.environ)
    for name, value in (("gpm", 1), ("nvlink_links", 4)):
        machine.override(0, name, value)
    machine.attach(4_100_000, 0, 1 << 30, sm_percent=20, foreign=True)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        fire = Fire(Path(folder))
        singles = ((one,) for one in itertools.product(fire.functions, BEHAVIOURS))
        cases = list(drawn(fire.functions, *map(int, sys.argv[1:3])) if len(sys.argv) > 2 else singles)
        for faults in cases:
            fire.run(faults)
        fire.close()
    print(
        json.dumps(
            {
                "functions": len(fire.functions),
                "behaviours": len(BEHAVIOURS),
                "cases": len(cases),
                "shown": fire.tried,
                "cpu_seconds": round(time.process_time() - began, 1),
                "wrong": fire.wrong,
                "at": datetime.datetime.now(datetime.UTC).isoformat(),
            }
        )
    )


if __name__ == "__main__":
    main()
