"""The dashboard on a recording: what it draws, its keys, its ends, and a file that grows."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path

import pytest
from rich.segment import Segment
from textual.pilot import Pilot

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.collector.host_processes import HostProcesses
from gpuwatch.machine.collector.recording_player import RecordingPlayer
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.recording.reader import open_recording
from gpuwatch.session.current_findings import recorded_and_current_findings
from gpuwatch.session.session import replay_session
from gpuwatch.ui.app import GpuwatchApp
from gpuwatch.ui.screens import gpu
from gpuwatch.ui.screens.base_tab import TabScreen
from gpuwatch.ui.settings.actions import REPLAY_ACTIONS
from gpuwatch.ui.settings.tabs import TABS
from gpuwatch.ui.widgets.painted_pane import PaintedPane
from tests.recording.days import day
from tests.recording.recordings import BEGIN, Growing, later, recorded, troubled, with_gap
from tests.ui.conftest import Stage
from tests.ui.waiting import opened, press, settle

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
JUST = 0.0005
"""Seconds after a sample at which the screens are looked at: it has been played then."""


class Replayed:
    """An app on a recording, and the clock by which it plays."""

    def __init__(self, path: Path, *, speed: float = 1.0, at: float | None = None) -> None:
        self.path, self.seconds = path, 0.0
        self.feed = RecordingPlayer(open_recording(path), speed=speed, clock=lambda: self.seconds)
        self.feed.wall_clock = lambda: BEGIN + 7200
        self.session = replay_session(self.feed, at)
        self.app = GpuwatchApp(self.session)

    @property
    def moment(self) -> float:
        """Seconds since the begin of the sample on screen."""
        return self.session.view().moment - BEGIN

    def go(self, moment: float) -> None:
        self.session.pause().move_to(moment)
        self.session.resume()

    async def play(self, pilot: Pilot[None], seconds: float) -> None:
        """Lets so many seconds pass, in steps in which nothing is late."""
        self.app._draw_news()
        while seconds > 0:
            step = min(seconds, 0.9)
            self.seconds += step
            seconds -= step
            self.app._draw_news()
        self.app.tab.show(self.session.view())
        await settle(pilot)

    def text(self) -> str:
        return "\n".join(pane.plain for pane in self.app.screen.query(PaintedPane) if pane.display)

    @property
    def footer(self) -> str:
        return self.app.tab.keys.plain

    @property
    def top(self) -> str:
        return self.app.tab.top_line.plain


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
            row += zip(segment.text, repeat(str(segment.style)))
        rows.append(row)
    return rows


def read(rows: list[list[tuple[str, str]]]) -> str:
    return "\n".join("".join(char for char, _ in row).rstrip() for row in rows)


@pytest.mark.parametrize(
    ("size", "jump"),
    [((200, 60), False), ((80, 24), True)],
    ids=["played-200", "jumped-80"],
)
async def test_a_replay_draws_what_the_dashboard_drew(
    tmp_path: Path,
    replay: Callable[..., Replayed],
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int],
    jump: bool,
) -> None:
    """Every tab at moments before, in and after faults, cell by cell, played from the beginning or jumped to.

    Not compared: the top line, which has the chip, the footer, which has other keys, and the timeline, which has the
    whole recording. On the Probes tab, the pane below the list says that probe runs are not part of a recording.
    """
    monkeypatch.setattr(TabScreen, "_show_timeline", lambda self, view: None)
    # "since gpuwatch started" is another time of the same beginning.
    monkeypatch.setattr(gpu, "_since_text", lambda at, now: "12:04:31")
    if jump:  # energy is counted from the jump on, and says so
        monkeypatch.setattr(gpu.GpuScreen, "_energy", lambda self, device, view: ())
    shots = troubled(360)
    moments = [30, 75, 130, 200, 250, 330]
    live = Stage()
    live.feed.host = HostProcesses(
        "node07", unreachable="not part of a recording"
    )  # what is not in a sample can be asked of neither
    file = Growing(tmp_path / "live.gpuwatch")
    began = MachineEvent(at=BEGIN, kind="recording.began", text="recording began, every 1 s")
    drawn: dict[tuple[int, str], list[list[tuple[str, str]]]] = {}
    async with live.app.run_test(size=size) as pilot:
        timeline = live.app.session._own_timeline
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
    async with opened(then.app, size) as pilot:
        for place in moments:
            wanted = shots[place].taken_at.timestamp() + JUST
            if jump:
                then.go(wanted)
                then.app.tab.show(then.session.view())
            else:
                await then.play(pilot, wanted - then.feed.now())
            assert then.moment == pytest.approx(wanted - JUST - BEGIN, abs=1e-5)
            await every_tab(pilot, then.app, again, place)
        below = then.app.tabs["probes"].query_one("#below").region.y
    for key, before in drawn.items():
        differ = [
            (y, "".join(c for c, _ in row), "".join(c for c, _ in now))
            for y, (row, now) in enumerate(zip(before, again[key], strict=True))
            if 0 < y < (len(before) - 1 if key[1] != "probes" else below) and row != now
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


def test_a_picture_of_a_replay(snap_compare: Callable[..., bool], replay: Callable[..., Replayed]) -> None:
    """Paused where a GPU is throttled: the chip, the track with its marks, the keys."""
    one = replay(troubled(360))

    async def before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        await pilot.press("n", "space")
        one.app.tab._footer_message = ("", "text", 0.0)
        one.app.tab.show_keys()
        await settle(pilot)

    assert snap_compare(one.app, terminal_size=(120, 40), run_before=before)


async def test_which_recording_is_said_at_the_start(replay: Callable[..., Replayed]) -> None:
    one = replay(list(day(1, 2, 10)))
    one.app._notice = "replaying node07.gpuwatch"
    async with opened(one.app, (80, 24)):
        assert "replaying node07.gpuwatch" in one.footer


async def test_space_plays_and_pauses(replay: Callable[..., Replayed]) -> None:
    one = replay(list(day(1, 2, 60)))
    async with opened(one.app) as pilot:
        await one.play(pilot, 5.01)
        assert round(one.moment) == 5
        assert "▶ REPLAY 8 %" in one.top
        await press(pilot, "space")
        assert "‖ REPLAY 8 %" in one.top
        assert one.app.tab.timeline is not None
        strip = one.app.tab.timeline.plain
        assert "PAUSED · 12:04:36" in strip
        assert "12:04:31 ─" in strip
        assert "─ 12:05:30" in strip
        assert "space play" in one.footer
        await one.play(pilot, 20)
        assert round(one.moment) == 5
        await pilot.press("space")
        await one.play(pilot, 3)
        assert round(one.moment) == 8
        assert "PAUSED" not in one.app.tab.timeline.plain
        assert "12:04:31 ─" in one.app.tab.timeline.plain, "where it is while it plays, too"
        await pilot.press("P")  # as in the live dashboard
        await settle(pilot)
        assert one.session.paused
        await press(pilot, "escape")
        assert not one.session.paused


async def test_steps_minutes_and_ends(replay: Callable[..., Replayed]) -> None:
    one = replay(list(day(1, 2, 300)), at=BEGIN + 100.5)
    async with opened(one.app) as pilot:
        await press(pilot, "right_square_bracket")
        assert one.session.paused
        for key, moment in (
            ("left_square_bracket", 100),
            ("right", 101),
            ("left", 100),
            ("right_curly_bracket", 160),
            ("left_curly_bracket", 100),
            ("pagedown", 161),
            ("home", 0),
            ("end", 299),
        ):
            await press(pilot, key)
            assert one.moment == pytest.approx(moment, abs=1.1), key
        graph = list(one.session.view().history.times)
        assert len(graph) == 300
        assert graph[-1] == one.session.view().moment
        await pilot.press("space")
        await one.play(pilot, 2)
        assert round(one.moment) == 299
        assert "■ REPLAY end" in one.top


async def test_speed(replay: Callable[..., Replayed]) -> None:
    one = replay(list(day(1, 2, 300)))
    async with opened(one.app) as pilot:
        await pilot.press("plus", "plus", "plus")
        assert one.feed.speed == 8
        assert "REPLAY 8x" in one.top
        await one.play(pilot, 5)
        assert round(one.moment) == pytest.approx(40, abs=1)
        await pilot.press(*["minus"] * 20)
        assert one.feed.speed == 0.25
        assert "REPLAY 1/4x" in one.top
        before = one.moment
        await one.play(pilot, 8)
        assert one.moment - before == pytest.approx(2, abs=1.1)
        await pilot.press(*["plus"] * 20)
        assert one.feed.speed == 64


async def test_problems_and_events_can_be_gone_to(replay: Callable[..., Replayed]) -> None:
    one = replay(troubled())
    async with opened(one.app) as pilot:
        found = []
        for _ in range(6):
            await press(pilot, "n")
            found.append((round(one.moment), one.footer.strip()[:60]))
        marks = {event.at: event for event in one.session.timeline.events() if event.severity in ("warning", "error")}
        times = sorted(marks)  # some at the same time
        assert [moment for moment, _ in found[: len(times)]] == [round(at - BEGIN) for at in times]
        assert "throttled" in found[0][1]
        assert "no later warning or error" in found[-1][1]
        assert one.session.paused, "to be looked at"
        await press(pilot, "N")
        assert round(one.moment) == round(times[-2] - BEGIN)
        await press(pilot, "full_stop", "comma", "comma")
        kinds = {event.kind for event in one.session.timeline.events()}
        assert "process.exited" in kinds
        assert one.moment < times[-1] - BEGIN


async def test_a_time_is_typed(replay: Callable[..., Replayed]) -> None:
    one = replay(list(day(1, 2, 300)))
    async with opened(one.app) as pilot:
        for typed, moment in (("12:06", 88), ("1 min ago", 238), ("2026-05-11T12:05:01", 29)):
            await press(pilot, "T", *("space" if char == " " else char for char in typed), "enter")
            assert moment <= one.moment <= moment + 1.1, typed
        await pilot.press("T", *"13:00", "enter")  # yesterday's, seen from its end
        await settle(pilot)
        assert "12:04:31 to 2026-05-11 12:09:30" in one.text()
        await press(pilot, *["backspace"] * 5, *"lunch", "enter")
        assert "not a time: 'lunch'" in one.text()
        await press(pilot, "escape")
        assert one.app.screen is one.app.tab
        assert one.moment < 31


async def test_keys_typed_into_a_filter_are_text(replay: Callable[..., Replayed]) -> None:
    one = replay(list(day(1, 2, 60)))
    async with opened(one.app) as pilot:
        await press(pilot, "slash", *"a", "space", *"nNT+-.,")
        bar = one.app.overview.filter_bar
        assert bar is not None
        assert bar._input.value == "a nNT+-.,"
        assert not one.session.paused
        assert one.feed.speed == 1


async def test_nothing_is_done_to_this_machine(
    replay: Callable[..., Replayed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = replay(list(day(1, 2, 60)))
    async with opened(one.app, (160, 40)) as pilot:
        for key in ("K", "f9"):
            await press(pilot, key)
            assert "this is a recording" in one.footer
        await press(pilot, "4")
        await press(pilot, "x")
        assert "no probes in a recording" in one.text()
        assert one.app.screen is one.app.tab
        await press(pilot, "3")
        screen = one.app.tab
        for _ in range(100):
            await pilot.pause(0.01)
            if not screen.reading:  # type: ignore[attr-defined]
                break
        await settle(pilot)
        assert "not part of a recording" in one.text()
        await press(pilot, "space", "K")
        assert "no signals" in one.footer


@pytest.mark.slow
async def test_a_report_is_of_the_recording(
    replay: Callable[..., Replayed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = replay(troubled(200), at=BEGIN + 100.5)
    async with opened(one.app, (160, 40)) as pilot:
        await press(pilot, "r")
        await press(pilot, "enter")
        assert "about 12:04:31 to 12:06:11" in one.footer
        for _ in range(600):
            await pilot.pause(0.05)
            if "● report" in one.footer or "no report" in one.footer:
                break
        assert "● report: gpuwatch-report-" in one.footer
    (page,) = (path.read_text() for path in tmp_path.glob("*.html"))
    assert "throttled (thermal)" in page
    assert "node07" in page


async def test_settings_of_the_live_dashboard_stay(
    replay: Callable[..., Replayed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replay(recorded(tmp_path / "slow.gpuwatch", day(1, 2, 30, apart=5.0), interval=5.0))
    async with opened(one.app) as pilot:
        kept = one.app.current_preferences()
        assert (kept.interval, kept.read_only) == (1.0, False)
        await pilot.press("plus")
        await press(pilot, "T", *"12:05", "enter")
        await press(pilot, "space", "y")
        wanted = f"gpuwatch replay {one.path} -t 2026-05-11T12:05:00 --speed 2"
        assert " ".join(one.app.tab.command()) == wanted.removeprefix("gpuwatch ")


async def test_gaps_are_passed_over_and_told(replay: Callable[..., Replayed]) -> None:
    one = replay(with_gap(120, at=60, seconds=3600), at=BEGIN + 57.5)
    async with opened(one.app) as pilot:
        await one.play(pilot, 4)
        assert one.moment == pytest.approx(3661, abs=2)
        assert "12:05:30–13:05:31 (60 min)" in one.footer
        await press(pilot, "T", *"12:30", "enter")
        assert round(one.moment) == 59
        assert "12:05:30–13:05:31 (60 min)" in one.footer
        await press(pilot, "space")
        assert one.app.tab.timeline is not None
        track = one.app.tab.timeline.plain.partition("12:04 ")[2].partition(" 13:06")[0]
        assert "●" in track
        assert 20 < track.count(" ") == len(track) - len(track.replace(" ", ""))
        assert track[-1] == "─"


@pytest.mark.parametrize(
    ("keys", "at", "seconds"),
    [
        (("n",), None, 62.0),
        (("T", *"12:05:45", "enter"), None, 74.0),
        (("T", *"12:05:35", "enter"), None, 64.0),
        ((), BEGIN + 74.0, 74.0),
    ],
    ids=["event", "time", "early", "begun-there"],
)
async def test_a_hang_is_stopped_at_and_is_not_well(
    tmp_path: Path, replay: Callable[..., Replayed], keys: tuple[str, ...], at: float | None, seconds: float
) -> None:
    """``n``, ``T`` and ``-t`` stand still in the gap; what held then is said, though no sample has it."""
    file, shots = Growing(tmp_path / "hang.gpuwatch"), with_gap(120, at=60, seconds=30.0)
    file.add(*shots[:60])
    silent = FeedStatus("not-answering", 3.0, 2.1)
    file.now += 3.0
    file.writer.add_events(file.conditions.feed(silent, file.now))
    file.writer.add(shots[60], recorded_and_current_findings((), file.conditions))  # the recorder writes what it finds
    file.conditions.feed(FeedStatus("ok", 0.0), file.now + 27.0)
    file.add(*shots[61:])
    file.end()
    one = replay(file.path, at=at)
    async with opened(one.app) as pilot:
        await pilot.press(*keys)
        await one.play(pilot, 2)
        assert one.session.paused
        assert one.session.clock() == pytest.approx(BEGIN + seconds, abs=0.1)
        assert "✖ 1 error" in one.top
        assert one.app.tab.timeline is not None
        assert "✖ The driver does not answer" in one.app.tab.timeline.plain.splitlines()[0]


async def test_why_nothing_was_recorded(tmp_path: Path, replay: Callable[..., Replayed]) -> None:
    path, shots = tmp_path / "two.gpuwatch", with_gap(120, at=60, seconds=3600)
    recorded(path, shots[:60])
    recorded(path, shots[60:], begin=shots[60].taken_at.timestamp())
    one = replay(path, at=BEGIN + 58.5)
    async with opened(one.app) as pilot:
        await one.play(pilot, 3)
        assert "the recorder was off" in one.footer


async def test_damage_is_told(tmp_path: Path, replay: Callable[..., Replayed]) -> None:
    path = recorded(tmp_path / "a.gpuwatch", day(1, 2, 60), seal_seconds=10.0)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE data SET block = x'00' WHERE id = 3")
    one = replay(path, at=BEGIN + 15)
    async with opened(one.app) as pilot:
        for _ in range(20):
            await one.play(pilot, 1)
            if "damaged" in one.footer:
                break
        assert "be read: 12:04:49–12:05:00" in one.footer
        await press(pilot, "T", *"12:04:55", "enter")
        assert round(one.moment) == 18
        assert "damaged, cannot be read" in one.footer


async def test_a_damaged_end_is_told(tmp_path: Path, replay: Callable[..., Replayed]) -> None:
    path = recorded(tmp_path / "a.gpuwatch", day(1, 2, 30), seal_seconds=10.0)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE data SET block = x'00' WHERE id = (SELECT max(id) FROM data)")
    one = replay(path, at=BEGIN + 25)
    async with opened(one.app) as pilot:
        for _ in range(20):
            await one.play(pilot, 1)
            if "damaged" in one.footer:
                break
        assert "damaged, cannot be read" in one.footer
        assert "■ REPLAY end" in one.top


async def test_a_growing_file_is_followed(tmp_path: Path, replay: Callable[..., Replayed]) -> None:
    """At its end a replay is the live dashboard of the recorder."""
    file, shots = Growing(tmp_path / "growing.gpuwatch", seal_seconds=5.0), troubled(90)
    file.add(*shots[:55])
    one = replay(file.path, at=BEGIN + 53)
    one.feed.wall_clock = lambda: file.now
    async with opened(one.app) as pilot:
        await one.play(pilot, 3)
        assert round(one.moment) == 54
        for place in range(55, 70):
            file.add(shots[place])
            await one.play(pilot, 1.1)
        assert round(one.moment) == 69
        assert "▶ REPLAY now" in one.top
        assert "throttled" in one.text()
        assert "throttle.began" in {event.kind for event in one.session.events}
    file.end()


async def test_a_clock_set_back_while_it_grows(tmp_path: Path, replay: Callable[..., Replayed]) -> None:
    file, shots = Growing(tmp_path / "growing.gpuwatch"), list(day(1, 2, 100))
    file.add(*(later(shot, 3600) for shot in shots[:20]))
    one = replay(file.path, at=BEGIN + 3618)
    async with opened(one.app) as pilot:
        await one.play(pilot, 3)
        assert round(one.moment) == 3619
        file.add(*shots[:30])
        await one.play(pilot, 0)
        assert one.moment < 100
        assert one.feed.recording.end == pytest.approx(BEGIN + 29, abs=1)
    file.end()


async def test_gpus_that_come_and_go(replay: Callable[..., Replayed]) -> None:
    """The set of GPUs changes in the middle of a recording."""
    shots = []
    for tick, (one, four) in enumerate(zip(day(1, 2, 90), day(4, 6, 90), strict=True)):
        shots.append(one if tick < 30 or tick >= 60 else four)
    played = replay(shots)
    async with opened(played.app) as pilot:
        for moment, count in ((10, 1), (45, 4), (80, 1), (45, 4), (10, 1)):
            played.go(BEGIN + moment + 0.5)
            for tab in TABS:
                await played.app.show_tab(tab.id)
                await settle(pilot)
            await played.app.show_tab("overview")
            await settle(pilot)
            assert len(played.session.view().devices) == count
        await played.play(pilot, 25)
        assert len(played.session.view().devices) == 4


@pytest.mark.parametrize("old", sorted(FIXTURES.glob("recording-*.gpuwatch")), ids=lambda path: path.stem)
async def test_recordings_of_every_schema_are_played(
    tmp_path: Path, replay: Callable[..., Replayed], old: Path
) -> None:
    path = Path(shutil.copy(old, tmp_path / old.name))
    one = replay(path, speed=8)
    async with one.app.run_test(size=(120, 40)) as pilot:
        for tab in TABS:
            await one.app.show_tab(tab.id)
            await one.play(pilot, 2)
            assert one.session.view().devices
        await press(pilot, "n", "N", "full_stop", "space", "home", "end")


async def test_findings_judged_again_are_the_recorded_ones(replay: Callable[..., Replayed]) -> None:
    """While it plays, over faults: what is shown is what the rules find in the played samples."""
    one = replay(troubled())
    again, seen = ConditionEngine(), set()
    feed = RecordingPlayer(open_recording(one.path), speed=64, clock=lambda: one.seconds)
    feed.paused = False
    count = 0
    while not feed.ended:
        one.seconds += 0.5
        for kept in feed.take():
            again.observe(kept.snapshot)
            assert kept.findings == recorded_and_current_findings(kept.snapshot.findings, again)
            seen |= {found.id for found in kept.findings}
            count += 1
    feed.stop()
    assert count == 400
    assert {"healthy", "throttle.thermal", "hardware.fault"} <= seen


async def test_help_and_palette_have_the_keys(replay: Callable[..., Replayed]) -> None:
    one = replay(list(day(1, 2, 10)))
    async with opened(one.app, (120, 50)) as pilot:
        await press(pilot, "question_mark")
        words = one.text()
        assert "Replay of a recording" in words
        for words_of in (action.pair or action.help for action in REPLAY_ACTIONS if action.pair or action.help):
            assert words_of in words or any(
                other.pair for other in REPLAY_ACTIONS if other.help == words_of or other.help
            )
        assert "Next or previous warning" in words
        assert "Signal it" not in words
        assert "Sample more" not in words
        await press(pilot, "escape")
        offered = {command.title for command in one.app.get_system_commands(one.app.tab)}
        assert {action.name for action in REPLAY_ACTIONS if action.name} <= offered
        assert not offered & {"Send a signal", "Run probes", "Sample more often", "Probe this GPU"}
        assert not any(title.endswith(("Run probes", "Send a signal")) for title in offered)


async def test_the_date_is_shown_on_another_day(replay: Callable[..., Replayed]) -> None:
    one = replay(list(day(1, 2, 30)))
    one.feed.wall_clock = lambda: BEGIN + 5 * 86_400
    async with opened(one.app) as pilot:
        await one.play(pilot, 1.01)
        assert "05-11 12:04:32" in one.top
        one.feed.wall_clock = lambda: BEGIN
        await one.play(pilot, 1)
        assert "05-11" not in one.top
        assert "12:04:33" in one.top


async def test_the_chip_is_never_cut(replay: Callable[..., Replayed]) -> None:
    one = replay(troubled(300), at=BEGIN + 290)
    async with opened(one.app, (60, 15)) as pilot:
        for size in ((60, 15), (80, 24), (100, 30), (120, 40), (200, 60)):
            await pilot.resize_terminal(*size)
            for tab in TABS:
                await one.app.show_tab(tab.id)
                await settle(pilot)
                assert len(one.top) == size[0]
                assert "▶ REPLAY" in one.top, one.top
                assert "✖ 1" in one.top, one.top


async def test_a_damaged_page_of_the_file_is_passed_over(tmp_path: Path, replay: Callable[..., Replayed]) -> None:
    """What the database itself cannot read, of one block."""
    path = recorded(tmp_path / "a.gpuwatch", day(8, 50, 200))
    with sqlite3.connect(path) as db:
        size = db.execute("PRAGMA page_size").fetchone()[0]
        block = db.execute("SELECT block FROM data WHERE id = 2").fetchone()[0]
    raw = bytearray(path.read_bytes())
    place = raw.find(block[6000:6040]) // size * size  # a page that continues the block
    assert place > 0
    raw[place : place + size] = b"\xff" * size
    path.write_bytes(raw)
    one = replay(path, at=BEGIN + 28)
    async with opened(one.app) as pilot:
        for _ in range(10):
            await one.play(pilot, 1)
            if "damaged" in one.footer:
                break
        assert "be read: 12:04:59–12:06:00" in one.footer
        assert one.moment == pytest.approx(90, abs=5)
