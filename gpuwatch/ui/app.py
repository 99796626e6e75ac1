"""The dashboard: draws what its session knows of a machine, when something comes and once a second.

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
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen

from gpuwatch.session.process_history import Identity
from gpuwatch.session.session import Session
from gpuwatch.ui import tab_screens
from gpuwatch.ui.panes.key_line import KEYS_BESIDE
from gpuwatch.ui.screens.overview import OverviewScreen
from gpuwatch.ui.screens.tab import TabScreen
from gpuwatch.ui.settings.actions import of_tab
from gpuwatch.ui.settings.preferences import Loaded, Preferences
from gpuwatch.ui.settings.tabs import TABS
from gpuwatch.ui.startup.terminal_driver import TerminalDriver
from gpuwatch.ui.widgets.direct import Direct
from gpuwatch.ui.widgets.messages import ProbeRunsChanged
from gpuwatch.ui.widgets.preferences_app import PreferencesApp

if TYPE_CHECKING:
    from gpuwatch.session.playhead import Playhead
    from gpuwatch.session.probe_runs import ProbeRuns

_TICK = 1.0
_SETTLED = 8.0
"""Seconds after which everything that the dashboard needs has been made."""
_PREPARE_AFTER, _PREPARE_EVERY = 0.7, 0.3
"""Seconds until the other tabs are imported, one after the other, while there is nothing else to do."""
_HELD = 1.0
"""Seconds for which a first picture may stay while there is nothing better."""


class GpuwatchApp(PreferencesApp):
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
        session: Session,
        *,
        probe_runs: ProbeRuns | None = None,
        settings: Loaded | None = None,
        ascii_only: bool = False,
        few_colors: bool = False,
    ) -> None:
        super().__init__(settings, ascii_only=ascii_only, few_colors=few_colors)
        self.session = session
        """The machine that is shown."""
        self.sessions = {session.host.name: session}
        """Every machine that is watched, by the name of its host."""
        session.read_only = session.read_only or self.preferences.read_only
        self.overview = OverviewScreen()
        self.tab: TabScreen = self.overview
        """The tab that is looked at; the others are not drawn."""
        self.tabs: dict[str, TabScreen] = {}
        self._came_from: dict[str, str] = {}
        """Tab by tab the one from which it was opened."""
        self.chosen_gpu: str | None = None
        """UUID of the device that the GPU tab shows."""
        self.chosen_process: Identity | None = None
        """The process that the Process tab shows."""
        self._probe_runs = probe_runs
        self._watching = False
        self._last_data = float("-inf")
        self._show_from = float("inf")
        self._waiting: asyncio.TimerHandle | None = None
        self.direct = Direct(self)
        if self.driver_class is LinuxDriver:
            self.driver_class = TerminalDriver
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
            self.tabs[tab_id] = tab_screens.make(tab_id)
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

    def _prepare(self, first: int = 0) -> None:
        wanted = [tab.id for tab in TABS if tab.prepared and tab.id not in self.tabs]
        if first < len(wanted):
            tab_screens.prepare(wanted[first])
            self.set_timer(_PREPARE_EVERY, partial(self._prepare, first + 1))

    async def go_back(self) -> None:
        """To the tab from which this one was opened, in the end to the overview."""
        await self.show_tab(self._came_from.pop(self.tab.TAB, self.overview.TAB), back=True)

    @property
    def has_probe_runs(self) -> bool:
        """Whether :attr:`probe_runs` has been made, and so costs nothing."""
        return self._probe_runs is not None

    @property
    def probe_runs(self) -> ProbeRuns:
        """Probes and their runs, from the first time that somebody asks for them."""
        if self._probe_runs is None:
            from gpuwatch.session.probe_runs import ProbeRuns

            self._probe_runs = ProbeRuns()
        return self._probe_runs

    def on_mount(self) -> None:
        """Lets the feed begin, then draws the first frame with what it may have already."""
        self._home = asyncio.get_running_loop(), contextvars.copy_context()
        self.app_resume_signal.subscribe(self, self._resumed, immediate=True)
        for session in self.sessions.values():
            session.start(self._wake)
        if not self._take():
            self.tab.show(self.session.view())
        self._wait(_TICK * 1.4)
        self.set_timer(_PREPARE_AFTER, self._prepare)
        self.set_timer(_SETTLED, gc.freeze)  # what is there by then stays: no garbage is looked for in it
        self._show_from = time.monotonic() + _HELD
        self.call_after_refresh(self._take_over)
        if self.settings_file is not None and self.settings_file.notice:
            self.overview.show_message(self.settings_file.fitted(self.size.width - KEYS_BESIDE), "warning", 60)
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
        drawn = self.session.snapshot is not None and bool(self.overview.processes.lines)
        if drawn or self.tab is not self.overview or time.monotonic() > self._show_from:
            self.call_after_refresh(self._release)
        else:
            self.set_timer(0.005, self._take_over)

    def _release(self) -> None:
        if isinstance(self._driver, TerminalDriver):
            self._driver.release()
        # The rules, which have to be imported, come after what there is to see.
        self.set_timer(0.02, self._diagnose_first)

    def watch_probe_runs(self) -> None:
        """Redraws the tabs that show runs when there are new ones."""
        if not self._watching:
            self._watching = True
            self.probe_runs.watch(lambda: self.post_message(ProbeRunsChanged()))

    def on_probe_runs_changed(self, message: ProbeRunsChanged) -> None:
        """Only the tab that is looked at; the others look when they return."""
        self.tab.probe_runs_changed(message)

    def on_unmount(self) -> None:
        """Nothing that was started stays behind."""
        if self._probe_runs is not None:
            self._probe_runs.stop()
        self.stop_sessions()

    def stop_sessions(self) -> None:
        """Ends the feeds, once."""
        if self._waiting is not None:
            self._waiting.cancel()
        for session in self.sessions.values():
            session.stop()

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
        session = self.session
        if not self._take() and session.snapshot is None and session.feed.status().machine is not None:
            with self.direct:
                self._show()

    def _take(self) -> bool:
        """Draws what has come to the session that is shown; False when nothing has."""
        session, first = self.session, self.session.snapshot is None
        for other in self.sessions.values():
            if other is not session:
                other.take()
        if not session.take():
            return False
        if first and not self._holds:
            # The rules are imported when they are first asked: the first frame does not wait for that.
            self.call_after_refresh(self._diagnose_first)
        self._last_data = time.monotonic()
        self._wait(_TICK * 1.4)
        with self.direct:
            if session.paused:
                self.tab.show_status(session.view())
            else:
                self.tab.show_sample(session.view())
        return True

    def _diagnose_first(self) -> None:
        if self.session.snapshot is not None:
            self.session.diagnose()
            self._show()

    def _show(self) -> None:
        view = self.session.view()
        if self.session.paused:
            self.tab.show_status(view)
        else:
            self.tab.show(view)

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
        for session in self.sessions.values():
            session.look_at_feed()
        with self.direct:
            if self.session.paused:
                self.tab.show_status(self.session.view())
            elif time.monotonic() - self._last_data > _TICK * 1.4:
                view = self.session.view()
                if view.stale:
                    self.tab.show(view)
                else:
                    self.tab.show_status(view)

    # Preferences

    def preferred(self) -> None:
        """Draws what the choices changed."""
        self.tab.show(self.session.view())

    def gathered(self) -> Preferences:
        """Everything that would be saved now: what is on screen."""
        return replace(
            super().gathered(),
            interval=self.session.feed.interval,
            read_only=self.session.read_only,
            tab=self.tab.TAB,
            **self.overview.processes.chosen_order,
        )

    # What actions need

    def toggle_pause(self) -> None:
        """Freezes the display; sampling goes on, and resuming shows now."""
        if self.session.paused:
            self.session.resume()
        else:
            self.session.pause()
        self.tab.show(self.session.view())

    def look_at(self, move: Callable[[Playhead], None]) -> None:
        """Goes to another moment, pausing where nothing is paused yet."""
        if self.session.snapshot is not None:
            move(self.session.pause())
            self.tab.show(self.session.view())

    def change_interval(self, step: int) -> None:
        """To the next longer or shorter interval."""
        self.session.change_interval(step)
        self.tab.show_status(self.session.view())

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
        for session in self.sessions.values():
            session.resumed()
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
    session: Session,
    *,
    settings: Loaded | None = None,
    ascii_only: bool = False,
    few_colors: bool = False,
) -> int:
    """Runs the dashboard until it is left; the exit code."""
    app = GpuwatchApp(session, settings=settings, ascii_only=ascii_only, few_colors=few_colors)
    try:
        app.run()
    finally:
        app.stop_sessions()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0
