"""The dashboard: takes snapshots from a feed, keeps their history, draws the newest.

Everything here runs on one thread. The feed's thread only wakes it; what has come is drained then, so
nothing needs a lock and a burst of samples is drawn once.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen

from gpuwatch.history.events import FeedSeen, Watcher
from gpuwatch.history.ring import History
from gpuwatch.history.timeline import Timeline
from gpuwatch.model.findings import Finding
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.monitor.feed import Feed
from gpuwatch.monitor.wire import Calm, Quiet, aged
from gpuwatch.ui.actions import of_tab
from gpuwatch.ui.choices import ChoosingApp
from gpuwatch.ui.messages import LabChanged
from gpuwatch.ui.preferences import Loaded, Preferences
from gpuwatch.ui.screens.overview import OverviewScreen
from gpuwatch.ui.screens.tab import TabScreen
from gpuwatch.ui.standing import merged
from gpuwatch.ui.terminal import TerminalDriver
from gpuwatch.ui.trail import Identity, Trail, Trails
from gpuwatch.ui.view import View, ranked
from gpuwatch.ui.widgets.direct import Direct
from gpuwatch.ui.widgets.keys import KEYS_BESIDE

if TYPE_CHECKING:
    from gpuwatch.sources.host import Details
    from gpuwatch.ui.lab import Lab
    from gpuwatch.ui.past import Past

Diagnose = Callable[[Snapshot, History], tuple[Finding, ...]]

INTERVALS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""What + and - step through, in seconds."""
_TICK = 1.0
_SETTLED = 8.0
"""Seconds after which everything that the dashboard needs has been made."""
_HELD = 1.0
"""Seconds for which a first picture may stay while there is nothing better."""
_DIAGNOSE_QUIET = 5.0
"""Seconds between two looks for causes while nothing changes: only durations grow then."""


class GpuwatchApp(ChoosingApp):
    """gpuwatch on a terminal."""

    CSS_PATH = "app.tcss"
    TITLE = "gpuwatch"
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", "quit", show=False, priority=True, system=True),
        Binding("ctrl+z", "suspend_process", "suspend", show=False, priority=True, system=True),
    ]

    def __init__(
        self,
        feed: Feed,
        *,
        read_only: bool = False,
        clock: Callable[[], float] = time.time,
        diagnose: Diagnose | None = None,
        lab: Lab | None = None,
        read_process: Callable[[Identity], Details] | None = None,
        settings: Loaded | None = None,
        ascii_only: bool = False,
        few_colors: bool = False,
    ) -> None:
        super().__init__(settings, ascii_only=ascii_only, few_colors=few_colors)
        self.feed = feed
        self.read_only = read_only or self.preferences.read_only
        self.clock = clock
        self.diagnose = diagnose
        self.history = History()
        self.timeline = Timeline()
        self._kept: Snapshot | None = None
        self._newest: Snapshot | None = None
        self._ageless = False
        """Whether the rows of the newest snapshot still have the run times of an earlier one."""
        self.findings: tuple[Finding, ...] = ()
        self.overview = OverviewScreen()
        self.tab: TabScreen = self.overview
        """The tab that is looked at; the others are not drawn."""
        self.tabs: dict[str, TabScreen] = {}
        self._came_from: dict[str, str] = {}
        """Tab by tab the one from which it was opened."""
        self.chosen_gpu: str | None = None
        """UUID of the device that the GPU tab shows."""
        self.trails = Trails()
        self.watcher = Watcher()
        self._seen_events = 0
        self._standing: tuple[tuple[object, ...], tuple[Finding, ...], tuple[Finding, ...]] | None = None
        self._troubled = float("-inf")
        self.chosen_process: Identity | None = None
        """The process that the Process tab shows."""
        self._read_process = read_process
        self._lab = lab
        self._watching = False
        self._past: Past | None = None
        """What a paused display shows."""
        self._last_data = float("-inf")
        self._diagnosed_at = float("-inf")
        self._show_from = float("inf")
        self._waiting: asyncio.TimerHandle | None = None
        self.direct = Direct(self)
        if self.driver_class is LinuxDriver:
            self.driver_class = TerminalDriver
        self._feed_running = False
        self._home: tuple[asyncio.AbstractEventLoop, contextvars.Context] | None = None
        self.animation_level = "none"
        self.overview.processes.restore(self.preferences)
        self.tabs[self.overview.TAB] = self.overview

    def get_default_screen(self) -> Screen[None]:
        """The first tab."""
        return self.overview

    async def show_tab(self, tab_id: str, *, back: bool = False) -> None:
        """Goes to a tab, making it when it is the first time; ``back``: to one from which another was opened.

        The overview is the app's first screen, which Textual cannot switch: the others lie over it.
        """
        here = self.tab
        if tab_id == here.TAB:
            return
        if tab_id not in self.tabs:
            from gpuwatch.ui.tabs import make

            self.tabs[tab_id] = make(tab_id)
            # An installed screen keeps its state while another one is shown.
            self.install_screen(self.tabs[tab_id], tab_id)
        self.tab = self.tabs[tab_id]
        if not back:
            self._came_from[tab_id] = here.TAB
        if here is self.overview:
            await self.push_screen(tab_id)
        elif self.tab is self.overview:
            await self.pop_screen()
        else:
            await self.switch_screen(tab_id)

    async def go_back(self) -> None:
        """To the tab from which this one was opened, in the end to the overview."""
        await self.show_tab(self._came_from.pop(self.tab.TAB, self.overview.TAB), back=True)

    @property
    def has_lab(self) -> bool:
        """Whether :attr:`lab` has been made, and so costs nothing."""
        return self._lab is not None

    @property
    def lab(self) -> Lab:
        """Probes and their runs, from the first time that somebody asks for them."""
        if self._lab is None:
            from gpuwatch.ui.lab import Lab

            self._lab = Lab()
        return self._lab

    def on_mount(self) -> None:
        """Lets the feed begin, then draws the first frame with what it may have already."""
        self._feed_running = True
        self._home = asyncio.get_running_loop(), contextvars.copy_context()
        self.app_resume_signal.subscribe(self, self._resumed, immediate=True)
        self.feed.start(self._wake)
        if not self._take():
            self.tab.show(self.view())
        self._wait(_TICK * 1.4)
        self.set_timer(_SETTLED, gc.freeze)  # what is there by then stays: no garbage is looked for in it
        self._show_from = time.monotonic() + _HELD
        self.call_after_refresh(self._take_over)
        if self.settings_file is not None and self.settings_file.notice:
            self.overview.tell(self.settings_file.fitted(self.size.width - KEYS_BESIDE), "warning", 60)
        if self.preferences.tab != self.tab.TAB:
            self.call_after_refresh(self.show_tab, self.preferences.tab)

    @property
    def _holds(self) -> bool:
        """Whether the first picture is still on the terminal."""
        return isinstance(self._driver, TerminalDriver) and self._driver.holds

    def _take_over(self) -> None:
        """Shows what was drawn over a first picture as soon as it says as much as that one does."""
        if not self._holds:
            return
        drawn = self.snapshot is not None and bool(self.overview.processes.lines)
        if drawn or self.tab is not self.overview or time.monotonic() > self._show_from:
            self.call_after_refresh(self._release)
        else:
            self.set_timer(0.005, self._take_over)

    def _release(self) -> None:
        if isinstance(self._driver, TerminalDriver):
            self._driver.release()
        # The rules, which have to be imported, come after what there is to see.
        self.set_timer(0.02, self._diagnose_first)

    def watch_lab(self) -> None:
        """From now on tabs that show runs are told when there are new ones."""
        if not self._watching:
            self._watching = True
            self.lab.watch(lambda: self.post_message(LabChanged()))

    def on_lab_changed(self, message: LabChanged) -> None:
        """Only the tab that is looked at; the others look when they return."""
        self.tab.lab_changed(message)

    def on_unmount(self) -> None:
        """Nothing that was started stays behind."""
        if self._lab is not None:
            self._lab.stop()
        self.stop_feed()

    def stop_feed(self) -> None:
        """Ends the feed, once."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self._feed_running:
            self._feed_running = False
            self.feed.stop()

    # Data

    @property
    def failure(self) -> Exception | None:
        """The error of gpuwatch itself that ended the screens."""
        return self._exception

    def _fatal_error(self) -> None:
        # Textual would print screens of traceback with the values in it, secrets too: the command line says it.
        self._close_messages_no_wait()

    def _wake(self) -> None:
        """Called from the feed's thread: :meth:`_arrived` comes between two tasks.

        A message that finds its way through the app's queue would cost a tenth of what a quiet second does.
        """
        if self._home is not None:
            loop, context = self._home
            with suppress(RuntimeError):  # it is closed: the app has ended
                loop.call_soon_threadsafe(self._arrived, context=context)

    def _arrived(self) -> None:
        if not self._running:
            return
        try:
            self._look()
        except Exception as error:  # noqa: BLE001  # as Textual has it for every handler
            self._handle_exception(error)

    def _look(self) -> None:
        """A sample came, or several; or the host alone, while the driver keeps the first one waiting."""
        if not self._take() and self.snapshot is None and self.feed.status().machine is not None:
            with self.direct:
                self._show()

    def _take(self) -> bool:
        """Keeps all that came, draws the last; False when nothing did."""
        arrived = self.feed.drain()
        if not arrived:
            return False
        for snapshot in arrived:
            self.history.add(snapshot)
            self.trails.add(snapshot)
            self.watcher.look(snapshot, same=isinstance(snapshot, Quiet), calm=isinstance(snapshot, Calm))
        self._watch_feed()
        first, self._newest = self._newest is None, arrived[-1]
        self._ageless = isinstance(self._newest, Calm)
        calm = not first and all(isinstance(one, Calm) for one in arrived)
        quiet = calm and all(isinstance(one, Quiet) for one in arrived)
        if first:
            # The rules are imported when they are first asked: the first frame does not wait for that.
            self.findings = self._newest.findings
            if not self._holds:
                self.call_after_refresh(self._diagnose_first)
        elif not quiet or time.monotonic() - self._diagnosed_at > _DIAGNOSE_QUIET:
            self._diagnose()
        self._keep(arrived)
        self._last_data = time.monotonic()
        self._wait(_TICK * 1.4)
        with self.direct:
            if calm and self._past is None:
                self.tab.age(self.view(ageless=True))
            else:
                self._show()
        return True

    def _keep(self, arrived: list[Snapshot]) -> None:
        """Into the hour that can be looked back at."""
        for snapshot in arrived:
            # A burst is diagnosed once: what was found before it holds for all but its last.
            findings = None if self.diagnose is not None else snapshot.findings
            if snapshot is arrived[-1]:
                findings = self.standing()[0]
            same = isinstance(snapshot, Quiet) and self._kept is not None and snapshot.devices is self._kept.devices
            self.timeline.add(snapshot, findings, same=same, calm=isinstance(snapshot, Calm))
            self._kept = snapshot

    def trail(self, who: Identity) -> Trail:
        """The last minutes of a process; of those before the moment that is looked back at, while one is."""
        end = self._past.moment if self._past is not None else None
        if end is not None:
            return self.trails.then(who, end, self.timeline)
        return self.trails.follow(who, self.timeline)

    def _watch_feed(self) -> None:
        """The collector and the driver, also while no snapshot comes."""
        status = self.feed.status()
        seen = FeedSeen(status.state, status.waiting_seconds, status.replaced, status.detail, status.blame)
        self.watcher.feed(seen, self.clock())

    @property
    def unseen(self) -> int:
        """Events since the Events tab was looked at."""
        return self.watcher.count - self._seen_events

    def see_events(self) -> None:
        """The Events tab is looked at."""
        self._seen_events = self.watcher.count

    def read_process(self, who: Identity) -> Details:
        """Details of one process; may take long, so never on this thread."""
        if self._read_process is not None:
            return self._read_process(who)
        from gpuwatch.sources.host import details

        return details(*who)

    def _diagnose_first(self) -> None:
        if self.snapshot is not None:
            self._diagnose()
            self._show()

    def _diagnose(self) -> None:
        assert self.snapshot is not None
        self.findings = self.snapshot.findings
        if self.diagnose is not None:
            self.findings += self.diagnose(self.snapshot, self.history)
        self._diagnosed_at = time.monotonic()

    def _show(self) -> None:
        if self._past is None:
            self.tab.show(self.view())
        else:
            self.tab.show_status(self.current())

    def current(self) -> View:
        """What a tab is to show when it comes: what is now, or what was frozen."""
        if self._past is None:
            return self.view()
        status, asked = self.feed.status(), self.feed.interval
        return self._past.view(status=status, now=self.clock(), unseen=self.unseen, asked=asked, live=self.view())

    def standing(self) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
        """The findings with what was only just seen, and those of them that are errors and warnings."""
        now, status = self.clock(), self.feed.status()
        signs = self.watcher.standing(now)
        devices = self._newest.devices if self._newest is not None else ()
        asked = (self.findings, signs, tuple(device.state for device in devices), status.blame, status.replaced)
        if self._standing is None or self._standing[0] != asked:
            found = merged(self.findings, signs, self._newest or status.machine, status)
            self._standing = (asked, found, ranked(found))
        if self._standing[2] or status.state == "not-answering":
            self._troubled = now
        return self._standing[1:]

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest, with all run times as they were when it was taken."""
        if self._ageless and self._newest is not None:
            self._newest, self._ageless = aged(self._newest), False
        return self._newest

    def view(self, *, ageless: bool = False) -> View:
        """What the panes are to show now; ``ageless``: :meth:`View.whole` is still to be asked for run times."""
        snapshot = self._newest if ageless else self.snapshot
        findings, wrong = self.standing()
        status = self.feed.status()
        return View(
            snapshot=snapshot or status.machine,
            ageless=self._ageless,
            history=self.history,
            status=status,
            now=self.clock(),
            interval=self.feed.interval,
            findings=findings,
            read_only=self.read_only,
            until=snapshot.taken_at.timestamp() if snapshot is not None else None,
            wrong=wrong,
            troubled=self._troubled,
            events=self.watcher.events,
            unseen=self.unseen,
        )

    def _wait(self, seconds: float) -> None:
        """The clock is looked at in so many seconds, unless data come first."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = asyncio.get_running_loop().call_later(seconds, self._tick_next)

    def _tick_next(self) -> None:
        if self._running:
            self.call_next(self._tick)

    def _tick(self) -> None:
        """Once a second: what only the clock changes, and only when no data do it."""
        self._wait(_TICK)
        self._watch_feed()
        with self.direct:
            if self._past is not None:
                self.tab.show_status(self.current())
            elif time.monotonic() - self._last_data > _TICK * 1.4:
                view = self.view()
                if view.stale:
                    self.tab.show(view)
                else:
                    self.tab.show_status(view)

    # Preferences

    def preferred(self) -> None:
        """Draws what the choices changed."""
        self.tab.show(self.current())

    def gathered(self) -> Preferences:
        """Everything that would be saved now: what is on screen."""
        return replace(
            super().gathered(),
            interval=self.feed.interval,
            read_only=self.read_only,
            tab=self.tab.TAB,
            **self.overview.processes.chosen_order,
        )

    # What actions need

    @property
    def paused(self) -> bool:
        """Whether the display stands still, or looks back."""
        return self._past is not None

    def toggle_pause(self) -> None:
        """Freezes the display; sampling goes on, and resuming shows now."""
        if self._past is None:
            self.look_back()
        else:
            self._past = None
        self.tab.show(self.current())

    def look_at(self, move: Callable[[Past], None]) -> None:
        """Goes to another moment, pausing where nothing is paused yet."""
        if self.snapshot is not None:
            move(self.look_back())
            self.tab.show(self.current())

    def look_back(self) -> Past:
        """The pause that is on, or one that begins now."""
        if self._past is None:
            from gpuwatch.ui.past import Past

            self._past = Past(self.view(), self.timeline, self.history, self.watcher.events)
        return self._past

    def change_interval(self, step: int) -> None:
        """To the next longer or shorter interval."""
        nearest = min(range(len(INTERVALS)), key=lambda n: abs(INTERVALS[n] - self.feed.interval))
        self.feed.interval = INTERVALS[min(max(nearest + step, 0), len(INTERVALS) - 1)]
        self.tab.show_status(self.current())

    def action_suspend_process(self) -> None:
        """To the shell, as Ctrl+Z does everywhere; ``fg`` comes back."""
        if not isinstance(self._driver, TerminalDriver):
            return
        if self._driver.has_shell:
            self._driver.suspend(group=True)
        else:
            self.tab.say("there is no shell to go back to: gpuwatch was started without one", "warning")

    def _resumed(self, _: App[object]) -> None:
        """The clock went on while nothing here did: a feed that was not read is not one that did not answer."""
        self.feed.resumed()
        self._show()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every action, and Textual's choice of themes."""
        if screen is self.tab:
            for action in of_tab(self.tab.TAB):
                if action.palette:
                    run = f"screen.{action.run or action.id}"
                    yield SystemCommand(action.name or action.title, action.help, self._later(run))
        yield SystemCommand("Theme", "Choose another look", self.action_change_theme)
        name = "Signs beyond ASCII" if self.ascii else "ASCII only"
        yield SystemCommand(name, "Bars, frames, graphs and arrows out of ASCII, or not", self.action_toggle_ascii)

    def _later(self, action: str) -> Callable[[], object]:
        async def run() -> None:
            await self.run_action(action)

        return run


def run_dashboard(
    feed: Feed,
    *,
    read_only: bool = False,
    clock: Callable[[], float] = time.time,
    diagnose: Diagnose | None = None,
    settings: Loaded | None = None,
    ascii_only: bool = False,
    few_colors: bool = False,
) -> int:
    """Runs the dashboard until it is left; the exit code."""
    app = GpuwatchApp(
        feed,
        read_only=read_only,
        clock=clock,
        diagnose=diagnose,
        settings=settings,
        ascii_only=ascii_only,
        few_colors=few_colors,
    )
    try:
        app.run()
    finally:
        app.stop_feed()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0
