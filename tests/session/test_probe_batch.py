"""The run loop that ``gpuwatch probe`` and the Probes tab share, over a runner and a collector that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.core.model.probes import Event
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.experiment.probing.interpreter import FrameworkMissing, Interpreter, find_interpreters
from gpuwatch.experiment.probing.probe_runner import ProbeOptions
from gpuwatch.experiment.probing.probe_scripts import find_probes
from gpuwatch.experiment.probing.run_draft import SnapshotSource
from gpuwatch.session.probe_batch import ProbeBatch
from tests.ui import machines
from tests.ui.probe_bench import TENSORFLOW, Bench, FakeCollector, FakeRunner

OPTIONS = ProbeOptions(interpreters={"tensorflow": TENSORFLOW}, deadline=180.0)


class Made:
    """A batch with its fakes in reach."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.collector = FakeCollector(snapshot or machines.pair())
        self.runner: FakeRunner | None = None
        self.seen: list[int] = []
        self.stop = False
        self.batch = ProbeBatch(
            self._watch,
            make_feed=lambda: self.collector,  # type: ignore[arg-type, return-value]
            make_runner=self._runner,
        )

    def _watch(self, taken: list[Snapshot]) -> None:
        self.seen.append(len(taken))
        if self.stop:
            raise InterruptedError

    def _runner(self, options: ProbeOptions, source: SnapshotSource) -> FakeRunner:
        self.runner = FakeRunner(options, source)
        return self.runner


def test_runs_are_completed_and_everything_is_closed() -> None:
    made, events = Made(), list[Event]()
    with made.batch as batch:
        batch.open(OPTIONS, machine=batch.machine())
        runs = [batch.run(find_probes()[name], events.append) for name in ("default", "growth")]
        assert made.runner is not None
        made.runner.notes += ["afresh", "afresh"]
    assert [run.config for run in runs] == ["default", "growth"]
    assert all(run.findings for run in runs), "the rules have judged them"
    assert [event.kind for event in events][:2] == ["start", "framework"]
    assert batch.notes == ("afresh",)
    assert made.runner.closed
    assert (made.collector.started, made.collector.stopped) == (1, 1)
    assert 1 in made.seen, "samples pass by whoever watches"


@pytest.mark.parametrize("when", ["before", "while"])
def test_whoever_watches_can_end_it(when: str) -> None:
    made = Made()

    def stop(event: Event) -> None:
        made.stop = True

    with made.batch as batch:
        batch.open(OPTIONS, machine=batch.machine())
        made.stop = when == "before"
        with pytest.raises(InterruptedError):
            batch.run(find_probes()["default"], stop)
    assert made.runner is not None
    assert made.runner.ran == ([] if when == "before" else ["default"])
    assert made.runner.closed
    assert made.collector.stopped == 1


@pytest.mark.parametrize(
    ("machine", "asked", "size"),
    [
        (machines.pair(), None, 4096),
        (machines.snapshot((machines.device(0),), simulated=True), None, 512),
        (machines.snapshot(()), None, 1024),
        (None, None, 1024),
        (machines.pair(), 64, 64),
    ],
)
def test_the_size_of_the_work_fits_the_machine(machine: Snapshot | None, asked: int | None, size: int) -> None:
    made = Made()
    with made.batch as batch:
        batch.open(OPTIONS, machine=machine, size=asked)
    assert made.runner is not None
    assert made.runner.options.size == size


def test_a_framework_that_is_missing_skips_its_probes_and_tensorflow_ends_the_batch() -> None:
    both = ["tensorflow", "torch"]

    def without(name: str, framework: str) -> Interpreter:
        if framework == name:
            raise FrameworkMissing("not there")
        return Interpreter("/usr/bin/python", framework)

    found = find_interpreters(both, "/venv/bin/python", lambda framework, asked: without("torch", framework))
    assert found["tensorflow"].installed
    assert found["torch"] == Interpreter("/venv/bin/python", "torch", installed=False)
    with pytest.raises(FrameworkMissing):
        find_interpreters(both, None, lambda framework, asked: without("tensorflow", framework))
    with pytest.raises(FrameworkMissing):
        find_interpreters(["torch"], None, lambda framework, asked: without("torch", framework))


def test_a_batch_in_the_background_keeps_events_and_runs(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.probe_runs.start(["default"])
    bench.finish()
    assert bench.probe_runs.live is None
    assert list(bench.probe_runs.runs) == ["default"]
    assert bench.probe_runs.problem is None
    assert bench.collector.stopped == 1


def test_runs_that_cannot_be_kept_are_noted_beside_what_the_runner_notes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bench = Bench(tmp_path / "file")
    bench.remarks = ["each probe starts a new interpreter: no fork server"]
    assert bench.probe_runs.start(["default", "growth"])
    bench.finish()
    assert list(bench.probe_runs.runs) == ["default", "growth"], "they are there until the end of the session"
    kept, afresh = sorted(bench.probe_runs.notes, reverse=True)
    assert kept.startswith(f"runs are not saved: {tmp_path / 'file'}: ")
    assert afresh == "each probe starts a new interpreter: no fork server"
