"""The dashboard on a recording: what it draws, its keys, its ends, and a file that grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from rich.segment import Segment
from textual.pilot import Pilot

from gpuwatch.history.machine_event import MachineEvent
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.monitor.recorded_feed import RecordedFeed, RecordedHost
from gpuwatch.recording.reader import open_recording
from gpuwatch.session.replay import open_replay
from gpuwatch.ui.app import GpuwatchApp
from gpuwatch.ui.screens import gpu
from gpuwatch.ui.settings.tabs import TABS
from gpuwatch.ui.widgets.paint import Painted
from tests.recording.recordings import BEGIN, Growing, recorded, troubled
from tests.ui.conftest import Stage

JUST = 0.0005
"""Seconds after a sample at which the screens are looked at: it has been played then."""


class Replayed:
    """An app on a recording, and the clock by which it plays."""

    def __init__(self, path: Path, *, speed: float = 1.0, at: float | None = None) -> None:
        self.seconds = 0.0
        self.feed = RecordedFeed(path, speed=speed, clock=lambda: self.seconds)
        self.session = open_replay(self.feed, open_recording(path), at, today=lambda: BEGIN)
        self.app = GpuwatchApp(self.session)

    @property
    def moment(self) -> float:
        """Seconds since the begin of the sample on screen."""
        return self.session.view().moment - BEGIN

    async def play(self, pilot: Pilot[None], seconds: float) -> None:
        """Lets so many seconds pass, in steps in which nothing is late."""
        while seconds > 0:
            step = min(seconds, 0.9)
            self.seconds += step
            seconds -= step
            with self.feed._turn:
                self.feed._turn.notify()
            until = time.monotonic() + 10
            while time.monotonic() < until and not self._caught_up():
                await pilot.pause(0.002)
        self.session.take()
        self.app.tab.show(self.session.view())
        await settle(pilot)

    def _caught_up(self) -> bool:
        """Whether the next sample is in the future, or there is none."""
        feed = self.feed
        with feed._turn:
            ahead = feed._until - (feed._at + (self.seconds - feed._since) * feed.speed)
            return feed.paused or feed.ended or (ahead > 0 and feed._until > feed._after)

    def text(self) -> str:
        return "\n".join(pane.plain for pane in self.app.screen.query(Painted) if pane.display)

    @property
    def footer(self) -> str:
        return self.app.tab.keys.plain

    @property
    def top(self) -> str:
        return self.app.tab.top_line.plain


async def settle(pilot: Pilot[None]) -> None:
    for _ in range(3):
        await pilot.pause()


@pytest.fixture
def replay(tmp_path: Path) -> Iterator[Callable[..., Replayed]]:
    made: list[Replayed] = []

    def make(shots: Sequence[Snapshot] | Path, **options: float) -> Replayed:
        path = shots if isinstance(shots, Path) else recorded(tmp_path / "a.gpuwatch", shots)
        made.append(Replayed(path, **options))
        return made[-1]

    yield make
    for one in made:
        one.feed.stop()


def cells(app: GpuwatchApp) -> list[list[tuple[str, str]]]:
    """Every cell of the screen with its style."""
    rows = []
    for strip in app.screen._compositor.render_strips():
        row: list[tuple[str, str]] = []
        for segment in strip:
            assert isinstance(segment, Segment)
            row += [(char, str(segment.style)) for char in segment.text]
        rows.append(row)
    return rows


def read(rows: list[list[tuple[str, str]]]) -> str:
    return "\n".join("".join(char for char, _ in row).rstrip() for row in rows)


@pytest.mark.parametrize(
    ("size", "jump"),
    [((80, 24), False), ((120, 40), False), ((200, 60), False), ((120, 40), True)],
    ids=["played-80", "played-120", "played-200", "jumped"],
)
async def test_a_replay_draws_what_the_dashboard_drew(
    tmp_path: Path,
    replay: Callable[..., Replayed],
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int],
    jump: bool,
) -> None:
    """Every tab at moments before, in and after faults, cell by cell, played from the beginning or jumped to.

    Not compared: the top line, which has the chip, and the footer, which has other keys.
    """
    # "since gpuwatch started" is another time of the same beginning.
    monkeypatch.setattr(gpu, "_since", lambda view, what: "12:04:31")
    if jump:  # energy is counted from the jump on, and says so
        monkeypatch.setattr(gpu.GpuScreen, "_energy", lambda self, device, view: ())
    shots = troubled(360)
    moments = [30, 75, 130, 200, 250, 330]
    live = Stage()
    live.feed.host = RecordedHost("node07")  # what is not in a sample can be asked of neither
    file = Growing(tmp_path / "live.gpuwatch")
    began = MachineEvent(at=BEGIN, kind="recording.began", text="recording began, every 1 s")
    drawn: dict[tuple[int, str], list[list[tuple[str, str]]]] = {}
    async with live.app.run_test(size=size) as pilot:
        timeline = live.app.session._kept
        assert timeline is not None
        timeline.add_events([began])  # the recorder's own event
        for place, shot in enumerate(shots):
            file.add(shot)
            live.push(shot)
            if place in (0, *moments):
                live.now += JUST
                await settle(pilot)
            if place in moments:
                if jump:  # no event is new there
                    live.app.session.see_events()
                await every_tab(pilot, live.app, drawn, place)
    file.end()
    assert {"events", "findings"} <= {tab for _, tab in drawn}
    again: dict[tuple[int, str], list[list[tuple[str, str]]]] = {}
    then = replay(file.path)
    async with then.app.run_test(size=size) as pilot:
        await settle(pilot)
        for place in moments:
            wanted = shots[place].taken_at.timestamp() + JUST
            if jump:
                then.session.go(wanted)
                then.app.tab.show(then.session.view())
            else:
                await then.play(pilot, wanted - then.feed.now())
            assert then.moment == pytest.approx(wanted - JUST - BEGIN, abs=1e-5)
            await every_tab(pilot, then.app, again, place)
    for key, before in drawn.items():
        differ = [
            (y, "".join(c for c, _ in row), "".join(c for c, _ in now))
            for y, (row, now) in enumerate(zip(before, again[key], strict=True))
            if 0 < y < len(before) - 1 and row != now
        ]
        assert not differ, (key, differ)


async def every_tab(
    pilot: Pilot[None],
    app: GpuwatchApp,
    drawn: dict[tuple[int, str], list[list[tuple[str, str]]]],
    place: int,
) -> None:
    for tab in TABS:
        await app.show_tab(tab.id)
        until = time.monotonic() + 10
        while time.monotonic() < until:
            await settle(pilot)
            if "◌" not in read(cells(app)):  # what is read from the disk
                break
        drawn[place, tab.id] = cells(app)
    await app.show_tab("overview")
    await settle(pilot)
