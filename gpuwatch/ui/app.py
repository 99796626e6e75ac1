"""The dashboard: draws its session's view of a machine, with every sample and once a second.

Everything here runs on one thread. The feed's thread only wakes it; all samples that have arrived are taken
then, so nothing needs a lock and a burst of samples is drawn once.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen

from gpuwatch.session.process_history import Identity
from gpuwatch.session.session import Session
from gpuwatch.ui.drawing.text_width import cut_to_width
from gpuwatch.ui.panes.key_line import HELP_AND_QUIT_CELLS
from gpuwatch.ui.screens.base_tab import ProbeRunsChanged, TabScreen
from gpuwatch.ui.screens.overview import OverviewScreen
from gpuwatch.ui.settings.actions import tab_actions
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.settings.settings_file import LoadedSettings
from gpuwatch.ui.settings.tabs import FLEET, TABS
from gpuwatch.ui.startup.terminal_driver import TerminalDriver
from gpuwatch.ui.widgets.preferences_app import PreferencesApp
from gpuwatch.ui.widgets.terminal_writes import TerminalWrites
from gpuwatch.ui.widgets.textual_internals import private_attribute

if TYPE_CHECKING:
    from gpuwatch.machine.history.machine_event import MachineEvent
    from gpuwatch.session.background_probes import ProbeRuns
    from gpuwatch.session.playhead import Playhead

_TICK_SECONDS = 1.0
_SETTLED_SECONDS = 8.0
"""Seconds after which all long-lived objects of the dashboard exist."""
_NOTICE_SECONDS = 15.0
"""Seconds for which a gap is told."""
_FIRST_PREPARE_SECONDS, _PREPARE_SECONDS = 0.7, 0.3
"""Seconds until the other tabs are imported, and between two of them."""
_FIRST_PAST_SECONDS, _PAST_SECONDS = 1.5, 10.0
"""Seconds until a recording of this machine is looked for, and between two looks."""
_MAX_FIRST_FRAME_SECONDS = 1.0
"""Maximum seconds that the first frame stays while Textual has no more to show."""
_SCREENS = "gpuwatch.ui.screens"
"""Package with a module for each tab, imported on first use, so that the first frame does not wait for it."""


def make_tab(tab_id: str) -> TabScreen:
    """A new screen for the tab with this id."""
    return cast("TabScreen", getattr(import_module(f"{_SCREENS}.{tab_id}"), f"{tab_id.capitalize()}Screen")())


class Palette(CommandPalette):
    """Textual's command palette, whose page keys do not fail while its list is being filled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page('page_up')", "Previous page", show=False),
        Binding("pagedown", "page('page_down')", "Next page", show=False),
    ]

    def action_page(self, where: str) -> None:
        with suppress(KeyError):  # of Textual 8.2, for options that were not laid out yet
            getattr(self.query_one(CommandList), f"action_{where}")()


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
        settings: LoadedSettings | None = None,
        ascii_only: bool = False,
        few_colors: bool = False,
        notice: str = "",
    ) -> None:
        """``notice``: is shown in the footer at the start."""
        super().__init__(settings, ascii_only=ascii_only, few_colors=few_colors)
        self._notice = notice
        self.session = session
        self.sessions = {session.host.name: session}
        """All sessions, by host name."""
        session.read_only = session.read_only or self.preferences.read_only
        self.overview = OverviewScreen()
        self.tab: TabScreen = self.overview
        """The visible tab; the others are not drawn."""
        self.tabs: dict[str, TabScreen] = {}
        self._opened_from: dict[str, str] = {}
        """For each tab, the tab it was opened from."""
        self.chosen_gpu: str | None = None
        """UUID of the device on the GPU tab."""
        self.chosen_process: Identity | None = None
        self.chosen_event: MachineEvent | None = None
        """The event that was gone to, until the Events tab has put its cursor there."""
        self.host_arguments: Sequence[str] = ()
        """The options that name the hosts of a list; empty for a single machine."""
        self.opens_probe_finder = False
        """Whether the Probes tab is to ask for the name of a probe when it is opened."""
        self.explained_keys: set[str] = set()
        """Keys that do something else than in htop, and have said so."""
        self.next_command: tuple[str, ...] = ()
        """What gpuwatch is to go on with once the dashboard has ended: a command, or options of another dashboard."""
        self._probe_runs = probe_runs
        self._watching = False
        self._last_sample_at = float("-inf")
        self._first_frame_until = float("inf")
        self._tick_timer: asyncio.TimerHandle | None = None
        self.terminal_writes = TerminalWrites(self)
        self.terminal: TerminalDriver | None = None
        """Its terminal; None in tests, and where Textual uses another driver."""
        if self.driver_class is LinuxDriver:
            self.driver_class = TerminalDriver
        self._loop_and_context: tuple[asyncio.AbstractEventLoop, contextvars.Context] | None = None
        self.animation_level = "none"
        self.overview.processes.restore(self.preferences)
        self.tabs[self.overview.TAB] = self.overview

    def get_default_screen(self) -> Screen[None]:
        return self.overview

    async def show_tab(self, tab_id: str, *, back: bool = False) -> None:
        """Opens a tab, creating its screen on first use; ``back``: returns to the tab another one was opened from.

        The overview is the app's first screen, which Textual cannot switch: the others are pushed over it.
        """
        here = self.tab
        if tab_id == here.TAB:
            return
        if tab_id not in self.tabs:
            self.tabs[tab_id] = make_tab(tab_id)
            # An installed screen keeps its state while another one is shown.
            self.install_screen(self.tabs[tab_id], tab_id)
        self.tab = self.tabs[tab_id]
        if not back:
            self._opened_from[tab_id] = here.TAB
        if here is self.overview:
            await self.push_screen(tab_id)
        elif self.tab is self.overview:
            await self.pop_screen()
        else:
            await self.switch_screen(tab_id)

    def _prepare(self, first: int = 0) -> None:
        wanted = [tab.id for tab in TABS if tab.prepared and tab.id not in self.tabs]
        if first < len(wanted):
            import_module(f"{_SCREENS}.{wanted[first]}")
            self.set_timer(_PREPARE_SECONDS, partial(self._prepare, first + 1))

    async def go_back(self) -> None:
        """Returns to the tab this one was opened from, finally to the overview."""
        await self.show_tab(self._opened_from.pop(self.tab.TAB, self.overview.TAB), back=True)

    async def leave_host(self) -> bool:
        """Returns to the list of hosts; False: a single machine is shown."""
        return False

    def exit_to_run(self, *arguments: str) -> None:
        """Ends the dashboard; gpuwatch goes on with these arguments."""
        self.next_command = arguments
        self.exit()

    @property
    def unavailable_actions(self) -> tuple[str, ...]:
        """Actions that the watched machine does not allow: their keys are not offered."""
        return ()

    @property
    def has_probe_runs(self) -> bool:
        """Whether :attr:`probe_runs` already exists, so that using it costs nothing."""
        return self._probe_runs is not None

    @property
    def probe_runs(self) -> ProbeRuns:
        """The probes and their runs; created on first use."""
        if self._probe_runs is None:
            from gpuwatch.session.background_probes import ProbeRuns

            self._probe_runs = ProbeRuns()
        return self._probe_runs

    def on_mount(self) -> None:
        """Starts the feeds, then draws the first frame with the data they already have."""
        self._loop_and_context = asyncio.get_running_loop(), contextvars.copy_context()
        self.app_resume_signal.subscribe(self, self._resumed, immediate=True)
        for session in self.sessions.values():
            session.start(self._wake)
        if not self._draw_samples():
            self.tab.show(self.session.view())
        self._schedule_tick(_TICK_SECONDS * 1.4)
        self.set_timer(_FIRST_PREPARE_SECONDS, self._prepare)
        if self.session.own_machine:
            self.set_timer(_FIRST_PAST_SECONDS, self._look_for_recording)
        self.set_timer(_SETTLED_SECONDS, gc.freeze)  # these objects stay: skip them in garbage collections
        self._first_frame_until = time.monotonic() + _MAX_FIRST_FRAME_SECONDS
        self.call_after_refresh(self._replace_first_frame)
        room = self.size.width - HELP_AND_QUIT_CELLS
        if self.settings_file.notice:
            self.tab.show_message(self.settings_file.fit_notice(room), "warning", 60)
        if self._notice:
            self.tab.show_message(cut_to_width(self._notice, room), "accent", _NOTICE_SECONDS)
        if self.tab is self.overview and self.preferences.tab != self.tab.TAB:
            self.call_after_refresh(self.show_tab, self.preferences.tab)

    @property
    def _holds_output(self) -> bool:
        return self.terminal is not None and self.terminal.holds_output

    def _replace_first_frame(self) -> None:
        """Replaces the first frame as soon as Textual has drawn at least as much."""
        if not self._holds_output:
            return
        drawn = self.session.snapshot is not None and bool(self.overview.processes.lines)
        if drawn or self.tab is not self.overview or time.monotonic() > self._first_frame_until:
            self.call_after_refresh(self._release_output)
        else:
            self.set_timer(0.005, self._replace_first_frame)

    def _release_output(self) -> None:
        if self.terminal is not None:
            self.terminal.release()
        # Importing the rules takes time: draw first.
        self.set_timer(0.02, self._diagnose_first)

    def watch_probe_runs(self) -> None:
        """Redraws the tabs that show runs when there are new ones."""
        if not self._watching:
            self._watching = True
            self.probe_runs.watch(lambda: self.post_message(ProbeRunsChanged()))

    def on_probe_runs_changed(self, message: ProbeRunsChanged) -> None:
        """Redraws the visible tab; the others are redrawn when they are opened."""
        self.tab.probe_runs_changed()

    def on_unmount(self) -> None:
        if self._probe_runs is not None:
            self._probe_runs.stop()
        self.stop_sessions()

    def stop_sessions(self) -> None:
        """Stops the feeds; may be called twice."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        for session in self.sessions.values():
            session.stop()

    # Data

    @property
    def failure(self) -> Exception | None:
        """The error that ended the dashboard."""
        return private_attribute(self, "_exception", Exception)

    def _fatal_error(self) -> None:
        if self.failure is None:
            super()._fatal_error()
        else:  # Textual would print a traceback with the values of variables, secrets too: the command reports it
            self.panic()

    def _wake(self) -> None:
        """Called from the feed's thread: :meth:`_samples_arrived` runs in the event loop.

        A message through the app's queue would take a tenth of the CPU time of a quiet second.
        """
        if self._loop_and_context is not None:
            loop, context = self._loop_and_context
            with suppress(RuntimeError):  # the loop is closed: the app has ended
                loop.call_soon_threadsafe(self._samples_arrived, context=context)

    def _samples_arrived(self) -> None:
        if not self.is_running:
            return
        try:
            self._draw_news()
        except Exception as error:  # noqa: BLE001
            self.call_next(self._raise_error, error)

    def _raise_error(self, error: Exception) -> None:
        """Raises an error where Textual handles it: in a callback of its own."""
        raise error

    def _draw_news(self) -> None:
        """Draws new samples; or the host alone, while the driver delays the first sample."""
        session = self.session
        if not self._draw_samples() and session.snapshot is None and session.feed.status().machine is not None:
            with self.terminal_writes:
                self._show()

    def _look_for_recording(self) -> None:
        """Looks for a recording that continues the past, in a thread: it may be large."""
        self.set_timer(_PAST_SECONDS, self._look_for_recording)
        threading.Thread(target=self._open_recording, args=(self.session,), name="gpuwatch-past", daemon=True).start()

    def _open_recording(self, session: Session) -> None:
        from gpuwatch.session.recorded_and_live_samples import open_past

        past = open_past(session.past_path)
        if past is not None and self._loop_and_context is not None:
            loop, context = self._loop_and_context
            try:
                loop.call_soon_threadsafe(session.look_back_into, past, context=context)
            except RuntimeError:  # the loop is closed: the app has ended
                past.recording.close()

    def _draw_samples(self) -> bool:
        """Draws new samples of the session on screen; False if there are none."""
        session, first = self.session, self.session.snapshot is None
        for other in self.sessions.values():
            if other is not session:
                other.take()
        if not session.take():
            return False
        self.report_gaps()
        if first and not self._holds_output:
            # The first diagnosis imports the rules: draw first.
            self.call_after_refresh(self._diagnose_first)
        self._last_sample_at = time.monotonic()
        self._schedule_tick(_TICK_SECONDS * 1.4)
        with self.terminal_writes:
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

    def _schedule_tick(self, seconds: float) -> None:
        """Schedules the next tick, unless data arrive first."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self._tick_timer = asyncio.get_running_loop().call_later(seconds, self._tick_next)

    def _tick_next(self) -> None:
        if self.is_running:
            self.call_next(self._tick)

    def _tick(self) -> None:
        """Draws what depends on the clock alone, once a second unless data arrive."""
        self._schedule_tick(_TICK_SECONDS)
        for session in self.sessions.values():
            session.look_at_feed()
        with self.terminal_writes:
            if self.session.paused:
                self.tab.show_status(self.session.view())
            elif time.monotonic() - self._last_sample_at > _TICK_SECONDS * 1.4:
                view = self.session.view()
                if view.stale:
                    self.tab.show(view)
                else:
                    self.tab.show_status(view)

    # Preferences

    def preferences_changed(self) -> None:
        self.tab.show(self.session.view())

    def current_preferences(self) -> Preferences:
        """The preferences as they would be saved now, with the state of the screen; not the tab that is open."""
        gathered = replace(super().current_preferences(), **self.overview.processes.order_preferences)
        if self.session.recorded:
            return gathered
        return replace(gathered, interval=self.session.feed.interval, read_only=self.session.read_only)

    # Called by actions

    def toggle_pause(self) -> None:
        """Pauses the display, or returns to now; sampling continues."""
        if self.session.paused:
            self.session.resume()
        else:
            self.session.pause()
        self.tab.show(self.session.view())

    def move_playhead(self, move: Callable[[Playhead], None]) -> None:
        """Moves to another moment; pauses first if needed."""
        if self.session.snapshot is not None:
            move(self.session.pause())
            self.report_gaps()
            self.tab.show(self.session.view())

    def report_gaps(self) -> None:
        """Says in the footer which gaps were passed over or gone to."""
        gaps = self.session.take_gaps()
        if gaps:
            from gpuwatch.ui.widgets.timeline import gap_text

            text = gap_text(gaps, self.session.clock(), self.session.timeline.events())
            self.tab.show_message(text, "warning", _NOTICE_SECONDS)

    def change_interval(self, step: int) -> None:
        """Samples at the next longer (1) or shorter (-1) interval."""
        self.session.change_interval(step)
        self.tab.show_status(self.session.view())

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())

    def action_suspend_process(self) -> None:
        """Suspends to the shell; ``fg`` resumes."""
        if self.terminal is None:
            super().action_suspend_process()
        elif self.terminal.has_shell:
            self.terminal.suspend(group=True)
        else:
            self.tab.say("no shell to suspend to: gpuwatch was started without one", "warning")

    def _resumed(self, _: App[object]) -> None:
        """Called after a suspension; does not count it as driver delay."""
        for session in self.sessions.values():
            session.feed.resumed()
        self._show()

    async def _run_on_tab(self, tab_id: str, action: str) -> None:
        await self.tab.go(tab_id)
        self.tab.call_after_refresh(self.tab.run_action, action)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette: every action of this tab and of the others, themes, ASCII mode."""
        if screen is self.tab:
            here, replay, offered = self.tab.TAB, self.session.recorded, {""}
            for action in tab_actions(here, replay=replay):
                if action.name:
                    offered.add(action.name)
                    run = f"screen.{action.run or action.id}"
                    yield SystemCommand(action.name, action.help, partial(self.run_action, run))
            for tab in TABS if here != FLEET.id else ():
                for action in tab_actions(tab.id, replay=replay):
                    if action.name not in offered:
                        offered.add(action.name)
                        run_there = partial(self._run_on_tab, tab.id, action.run or action.id)
                        yield SystemCommand(f"{tab.title}: {action.name}", action.help, run_there)
        yield SystemCommand("Theme", "Choose another theme", self.action_change_theme)
        name = "Unicode" if self.ascii else "ASCII only"
        yield SystemCommand(name, "Draw bars, frames, graphs and arrows in ASCII or Unicode", self.action_toggle_ascii)


def run(app: GpuwatchApp) -> int:
    """Runs a dashboard until it is closed; returns the exit code."""
    try:
        app.run()
    finally:
        app.stop_sessions()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0
