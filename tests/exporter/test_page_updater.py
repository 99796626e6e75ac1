"""What the page says as samples come, and as they do not."""

from __future__ import annotations

import datetime
import threading
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.share import metric_families as families
from gpuwatch.share.exporter.metrics_page import STALE_SECONDS, PageUpdater
from gpuwatch.share.exporter.slurm_job_map import SlurmJobMap
from tests.exporter.machines import AT, OPTIONS, device, names_of, one, process, snapshot
from tests.ui.feed import FakeFeed


class Harness:
    """A updater and its feed, whose clocks are set by hand."""

    def __init__(self, job_map: SlurmJobMap | None = None) -> None:
        self.now = AT.timestamp()
        self.feed = FakeFeed()
        self.said: list[str] = []
        self.updater = PageUpdater(
            self.feed,
            OPTIONS,
            job_map=job_map,
            log=self.said.append,
            clock=lambda: self.now,
            monotonic=lambda: self.now - 1e6,
        )

    def give(self, sample: Snapshot) -> None:
        self.feed.push(replace(sample, taken_at=datetime.datetime.fromtimestamp(self.now, datetime.UTC)))
        self.updater.update()

    def wait(self, seconds: float, **status: object) -> None:
        """Time passes, with this status of the feed."""
        self.now += seconds
        self.feed.state = FeedStatus(**({"state": "ok"} | status))  # type: ignore[arg-type]
        self.updater.update()

    def samples(self) -> dict[str, str]:
        lines = self.updater.page.body("plain").decode().splitlines()
        return {key: number for line in lines if line[0] != "#" for key, _, number in [line.rpartition(" ")]}


def test_before_the_first_sample_nothing_is_claimed() -> None:
    harness = Harness()
    harness.updater.update()
    assert names_of(harness.samples()) == {
        families.EXPORTER_INFO.sample_name,
        families.COLLECTOR_REPLACEMENTS.sample_name,
    }


def test_one_page_for_one_sample() -> None:
    harness = Harness()
    harness.give(snapshot(device()))
    page = harness.updater.page
    harness.wait(1)
    assert harness.updater.page is page
    harness.give(snapshot(device()))
    assert harness.updater.page is not page


def test_a_hang_is_told_with_the_age_and_then_without_readings() -> None:
    harness = Harness()
    harness.give(snapshot(device()))
    harness.wait(5)
    calm = harness.samples()
    assert one(calm, families.DRIVER_ANSWERING) == 1
    assert one(calm, families.SNAPSHOT_AGE) == 5
    silent = {"state": "not-answering", "waiting_seconds": 10.0, "age_seconds": 15.0, "detail": "nvmlInit hangs"}
    harness.wait(10, **silent)
    hung = harness.samples()
    assert one(hung, families.DRIVER_ANSWERING) == 0
    assert one(hung, families.SNAPSHOT_AGE) == 15
    assert one(hung, "gpuwatch_gpu_utilization_ratio") == 0.87
    assert one(hung, families.FINDING, cause="driver.bad-state", severity="error") == 1
    harness.wait(STALE_SECONDS, **silent, replacements=2)
    old = harness.samples()
    assert one(old, families.SNAPSHOT_AGE) == 75
    assert one(old, families.COLLECTOR_REPLACEMENTS) == 2
    assert "gpuwatch_gpu_utilization_ratio" not in names_of(old)
    assert one(old, families.GPU_INFO) == 1
    harness.give(snapshot(device()))
    again = harness.samples()
    assert one(again, families.DRIVER_ANSWERING) == 1
    assert one(again, "gpuwatch_gpu_utilization_ratio") == 0.87
    assert one(again, families.FINDING, cause="driver.bad-state", severity="error") is None
    assert harness.said == [
        "gpuwatch: serving samples of its own collector",
        "gpuwatch: no samples: the driver does not answer; nvmlInit hangs",
        "gpuwatch: sampling again",
    ]


def test_whose_samples_are_served_is_logged() -> None:
    harness = Harness()
    harness.wait(1, state="starting")
    assert not harness.said
    for recording in ("", "", "/var/lib/gpuwatch/a.gpuwatch", "/var/lib/gpuwatch/a.gpuwatch", ""):
        harness.wait(1, recording=recording)
    own = "gpuwatch: serving samples of its own collector"
    assert harness.said == [own, "gpuwatch: serving samples of the recorder of /var/lib/gpuwatch/a.gpuwatch", own]


def test_without_a_driver_it_does_not_answer() -> None:
    harness = Harness()
    harness.give(snapshot(driver=None))
    assert one(harness.samples(), families.DRIVER_ANSWERING) == 0


def test_xids_are_counted_over_samples() -> None:
    harness = Harness()
    first, second = (Xid(harness.now + seconds, 79) for seconds in (1.0, 2.0))
    for xids in ((), (first,), (first, second)):
        harness.give(snapshot(device(xids=xids)))
        harness.now += 5
    assert one(harness.samples(), families.GPU_XID_ERRORS, xid="79") == 2


def test_a_job_map_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    harness = Harness(SlurmJobMap(folder))
    gpu = device()
    with_job = snapshot(gpu, processes=(process(1, gpu, container="slurm job 7"),))
    harness.give(with_job)
    assert (folder / "0").read_text() == "7\n"
    (folder / "0").unlink()
    folder.rmdir()
    for job in ("8", "9"):
        harness.give(snapshot(gpu, processes=(process(1, gpu, container=f"slurm job {job}"),)))
    assert [text.endswith("No such file or directory") for text in harness.said[1:]] == [True]


def test_it_runs_until_it_is_stopped(tmp_path: Path) -> None:
    harness = Harness(SlurmJobMap(tmp_path))
    ticks = threading.Event()
    runner = threading.Thread(target=harness.updater.run, args=(ticks.set,))
    runner.start()
    gpu = device()
    while not harness.feed.started:
        pass
    harness.feed.push(snapshot(gpu, processes=(process(1, gpu, container="slurm job 7"),)))
    assert ticks.wait(10)
    harness.updater.stop()
    runner.join(10)
    assert not runner.is_alive()
    assert harness.feed.stopped == 1
    assert list(tmp_path.iterdir()) == []
