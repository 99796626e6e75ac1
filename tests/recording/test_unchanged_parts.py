"""What must stay true: parts of a snapshot that did not change are the objects of the snapshot before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.recording_player import RecordingPlayer
from gpuwatch.machine.history.last_hour import CHUNK_SAMPLES, LastHour
from gpuwatch.machine.history.sample_frames import FrameDecoder, FrameEncoder, split_frames
from gpuwatch.machine.recording.newest_samples import NewestSamples
from gpuwatch.machine.recording.reader import open_recording
from tests.recording.days import day
from tests.recording.recordings import Growing, later, recorded

SAMPLES = 3 * CHUNK_SAMPLES + 5
BLOCK = 20.0
"""Seconds of a recording's block: the samples are in several."""


def shots() -> list[Snapshot]:
    """Two GPUs and four processes; one row of each changes every tenth sample."""
    first, made = next(day(2, 4, 1)), []
    for place in range(SAMPLES):
        load = {"utilization.gpu_percent": float(place // 10)}
        devices = (replace(first.devices[0], readings=first.devices[0].readings | load), *first.devices[1:])
        rows = (replace(first.processes[0], readings={"cpu_percent": float(place // 10)}), *first.processes[1:])
        made.append(later(replace(first, devices=devices, processes=rows), place))
    return made


def through_wire(given: list[Snapshot], _: Path) -> Iterator[Snapshot]:
    sender, receiver = FrameEncoder(), FrameDecoder()
    for shot in given:
        yield from (receiver.receive(kind, body) for kind, body in split_frames(sender.frames(shot)))


def in_memory(given: list[Snapshot], _: Path) -> Iterator[Snapshot]:
    timeline = LastHour()
    for shot in given:
        timeline.add(shot)
    return (kept.snapshot for kept in timeline.snapshots())


def in_a_recording(given: list[Snapshot], folder: Path) -> Iterator[Snapshot]:
    with open_recording(recorded(folder / "a.gpuwatch", given, seal_seconds=BLOCK)) as recording:
        yield from (kept.snapshot for kept in recording.snapshots())


def replayed(given: list[Snapshot], folder: Path) -> Iterator[Snapshot]:
    seconds = iter(range(10_000))
    path = recorded(folder / "a.gpuwatch", given, seal_seconds=BLOCK)
    feed = RecordingPlayer(open_recording(path), speed=8, clock=lambda: next(seconds) / 10)
    feed.paused = False
    while not feed.ended:
        yield from feed.drain()
    feed.stop()


def of_a_recorder(given: list[Snapshot], folder: Path) -> Iterator[Snapshot]:
    """As a dashboard has them that runs beside it: through its own collector."""
    growing = Growing(folder / "a.gpuwatch", seal_seconds=BLOCK)
    growing.add(given[0])
    newest = NewestSamples(growing.path)
    taken = newest.take()
    for shot in given[1:]:
        growing.add(shot)
        taken += newest.take()
    growing.end()
    newest.close()
    return through_wire(taken, folder)


@pytest.mark.parametrize("way", [through_wire, in_memory, in_a_recording, replayed, of_a_recorder])
def test_unchanged_parts_are_the_same_objects(
    way: Callable[[list[Snapshot], Path], Iterator[Snapshot]], tmp_path: Path
) -> None:
    found = list(way(shots(), tmp_path))
    assert len(found) == SAMPLES
    for place, (before, now) in enumerate(pairwise(found), start=1):
        changed = place % 10 == 0
        assert (now.devices is before.devices, now.processes is before.processes) == (not changed, not changed), place
        same = [new is old for new, old in zip(now.processes, before.processes, strict=True)]
        assert same == [not changed, True, True, True], place
        assert now.devices[1] is before.devices[1], place
