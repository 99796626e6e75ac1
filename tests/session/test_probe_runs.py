"""Probes that run in the background: what a front end reads of them. No screen is needed."""

from __future__ import annotations

import threading
from pathlib import Path

from gpuwatch.core.model.probes import Event
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.session.background_probes import ProbeParameters, RunningBatch, _BatchProgress
from tests.ui import machines
from tests.ui.probe_bench import Bench, run_of


def test_the_live_graph_begins_anew_with_another_gpu(tmp_path: Path) -> None:
    probe_runs = Bench(tmp_path).probe_runs
    probe_runs.live = RunningBatch(configs=("default",), config="default")
    progress = _BatchProgress(probe_runs, "")
    progress.take(Event(0.0, "start", {"pid": 77}))

    def shot(*held: float | None) -> Snapshot:
        rows = tuple(
            machines.process(n, gpu=n, pid=77, readings={"gpu_memory_bytes": int(amount * machines.GIB)})
            for n, amount in enumerate(held)
            if amount is not None
        )
        devices = tuple(
            machines.device(n, readings={"memory.used_bytes": int((20 + n) * machines.GIB)}) for n in range(2)
        )
        return machines.snapshot(devices, rows)

    progress._show(shot())
    progress._show(shot())
    assert probe_runs.live.device_name == "GPU 0"
    assert len(probe_runs.live.times) == 2
    progress._show(shot(None, 5.0))
    assert probe_runs.live.device_name == "GPU 1"
    assert probe_runs.live.device_bytes == (21 * machines.GIB,), "nothing of the other one is drawn as this one's"
    progress._show(shot(5.1, 5.0))
    assert probe_runs.live.device_name == "GPU 1", "of two that hold as much, none takes turns"
    assert len(probe_runs.live.times) == len(probe_runs.live.process_bytes) == len(probe_runs.live.device_bytes) == 2


def test_long_measurements_have_a_later_deadline(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for seconds, least in ((1.0, 180.0), (600.0, 600.0)):
        bench.probe_runs.parameters = ProbeParameters(seconds=seconds)
        assert bench.probe_runs.start(["default"])
        bench.finish()
        assert bench.runners[-1].options.seconds == seconds
        assert bench.runners[-1].options.deadline >= least


def test_the_warning_about_unread_runs_goes_when_they_can_be_read(tmp_path: Path) -> None:
    probe_runs = Bench(tmp_path).probe_runs
    probe_runs.store.save(run_of(next(iter(probe_runs.scripts.values()))))
    folder = probe_runs.store.folder
    folder.chmod(0o777)
    woken = threading.Event()
    probe_runs.watch(woken.set)
    assert woken.wait(30)
    assert "not read" in probe_runs.why_earlier_unread
    assert not probe_runs.earlier
    woken.clear()
    folder.chmod(0o700)
    assert probe_runs.why_earlier_unread is not None
    assert woken.wait(30)
    assert probe_runs.why_earlier_unread == ""
    assert len(probe_runs.earlier) == 1
