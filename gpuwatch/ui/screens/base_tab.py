"""The base of the tabs' screens: top line, footer, and the actions that work on each of them."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.safe_text import printable
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.overview_layout import MIN_HEIGHT, MIN_WIDTH
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.panes.key_line import HELP_AND_QUIT_CELLS, gpu_number_range, gpu_number_title, key_line
from gpuwatch.ui.panes.small_terminal import small_terminal_lines
from gpuwatch.ui.settings.actions import REPLAY_ACTIONS, bindings
from gpuwatch.ui.settings.tabs import number_of
from gpuwatch.ui.widgets.one_line_panes import KeyLine, OneLinePane, TopLine
from gpuwatch.ui.widgets.scroll_list import ScrollList, is_sheet_open

if TYPE_CHECKING:
    from gpuwatch.machine.history.machine_event import MachineEvent
    from gpuwatch.session.playhead import Playhead
    from gpuwatch.ui.app import GpuwatchApp
    from gpuwatch.ui.widgets.timeline import Timeline

_MESSAGE_SECONDS = 4.0
"""Short: it stands where the keys are."""
_REPORTED_SECONDS = 1800.0
"""Seconds of a recording that a report is on."""
_DOCTOR = "the doctor's checks"
_REPLAY_ACTIONS = frozenset(action.id.partition("(")[0] for action in REPLAY_ACTIONS)
_PAST_ACTIONS = frozenset({"go_to_time", "go_to_event", "go_to_trouble"})
_HTOP_KEY_HINTS = {"T": " until P pauses; s and then “time” sorts by run time"}
"""For keys of htop that do nothing here: what comes closest to what they do there."""
_MIN_TIMELINE_LINES = 24
"""Lines of a terminal from which a timeline is shown that nobody asked for."""
_COMMAND_SECONDS = 15.0
"""Seconds that a command line stays in the footer: long enough to copy it by hand."""


class ProbeRunsChanged(Message, bubble=False):
    """Sent to the app by the probe thread after a new run, event or memory sample."""

    def can_replace(self, message: Message) -> bool:
        """Merges consecutive pending messages into one."""
        return isinstance(message, ProbeRunsChanged)


class SmallTerminalPane(OneLinePane):
    """Drawn instead of everything else on a terminal that is too small: GPUs, what is wrong, the required size."""

    def _draw(self, width: int, height: int) -> None:
        if self._view is not None:
            self.paint(small_terminal_lines(self._view, width, height), stale=self._view.stale)


class TabScreen(Screen[None]):
    """One tab. Only the visible tab gets views; a tab that is opened gets the latest one."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("everywhere"), *bindings("replay")]
    TAB: ClassVar[str] = ""
    PANES: ClassVar[dict[str, str]] = {}
    """Widget ids with their pane's name in the table of actions."""

    def __init__(self) -> None:
        super().__init__(id=self.TAB)
        self._view: View | None = None
        self._footer_message = ("", "text", 0.0)
        self.top_line = TopLine(self.TAB, id="top")
        self.keys = KeyLine(id="keys")
        self.small_terminal = SmallTerminalPane(id="too-small")
        self.timeline: Timeline | None = None
        """The timeline; created when it is first shown."""
        self._before_pause: Widget | None = None
        self.panes: tuple[Widget, ...] = ()
        """The tab's own panes, from top to bottom."""

    def compose(self) -> ComposeResult:
        yield self.top_line
        yield from self.panes
        yield self.keys
        yield self.small_terminal

    @property
    def gpuwatch(self) -> GpuwatchApp:
        return cast("GpuwatchApp", self.app)

    @property
    def view(self) -> View:
        """What is shown, or will be."""
        return self._view or self.gpuwatch.session.view()

    @property
    def framed(self) -> bool:
        """Whether the terminal is large enough for frames around the panes."""
        width, height = self.app.size
        return width >= 100 and height >= 30

    @property
    def wide(self) -> bool:
        """Whether what belongs to the selected line stands beside a list, else below it or in a sheet."""
        return self.app.size.width >= 160

    # Showing

    def show_again(self) -> None:
        if self._view is not None:
            self.show(self._view)

    def show(self, view: View) -> None:
        width, height = self.app.size
        self.set_class(width < MIN_WIDTH or height < MIN_HEIGHT, "-too-small")
        TabScreen.show_status(self, view)
        self.draw(view)
        self.show_keys()

    def show_sample(self, view: View) -> None:
        """Draws a new sample; unchanged parts may be skipped."""
        self.show(view)

    def show_status(self, view: View) -> None:
        """Draws only what depends on the clock."""
        self._view = view
        self.top_line.show(view)
        self.small_terminal.show(view)
        self._show_timeline(view)

    def _show_timeline(self, view: View) -> None:
        paused = view.paused_since is not None
        position = view.position
        if position is None and not paused and self.timeline_uuid is not None:
            position = self.gpuwatch.session.position()
        if (paused or position is not None) and self.timeline is None and self.top_line.is_mounted:
            from gpuwatch.ui.widgets.timeline import Timeline

            self.timeline = Timeline(id="timeline")
            self.mount(self.timeline, after=self.top_line)
        if self.timeline is not None:
            if not paused:  # perhaps ended on another tab
                self._leave_timeline()
            shown = paused or (position is not None and self.app.size.height >= _MIN_TIMELINE_LINES)
            self.timeline.display = shown and not self.has_class("-too-small")
            self.timeline.can_focus = paused
            if shown:
                self.timeline.show_position(view, position, self.timeline_uuid, framed=self.framed)

    @property
    def device(self) -> Device | None:
        """The selected GPU; None in tabs where none can be selected."""
        return None

    @property
    def timeline_uuid(self) -> str | None:
        """UUID of the GPU that the tab is about: its timeline is shown live, too; None: of the whole machine."""
        return None

    @abstractmethod
    def draw(self, view: View) -> None:
        """Draws the tab's own panes."""

    def on_screen_resume(self) -> None:
        """Draws the latest view, unless the dashboard has ended before this was handled."""
        if self.is_attached:
            self.show(self.gpuwatch.session.view())
            self._redraw_lists()

    def on_screen_suspend(self) -> None:
        """The keys of what a sheet covers do nothing."""
        if self.is_attached:
            self.show_keys()
            self._redraw_lists()

    def _redraw_lists(self) -> None:
        """Hides the marks of cursors under a sheet, or shows them again."""
        for pane in self.query(ScrollList):
            pane.redraw()

    def on_resize(self, event: events.Resize) -> None:
        self.show_again()

    async def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self.show_keys()

    def show_keys(self, note: tuple[str, bool] = ("", False)) -> None:
        self.keys.show(
            partial(
                key_line,
                pane=self.focused_pane,
                tab=self.TAB,
                titles=self.titles(),
                note=note,
                message=self.footer_message,
                replay=self.gpuwatch.session.recorded,
                covered=is_sheet_open(self.app),
                name=self.gpuwatch.key_name,
            )
        )

    @property
    def footer_message(self) -> tuple[str, str]:
        """The result of the last action and its style; empty after some seconds."""
        text, style, until = self._footer_message
        return (text, style) if text and time.monotonic() < until else ("", "text")

    def say(self, text: str, style: str) -> None:
        self.show_message(text, style, _MESSAGE_SECONDS)

    def show_message(self, text: str, style: str, seconds: float) -> None:
        self._footer_message = (text, style, time.monotonic() + seconds)
        self.show_keys()
        self.set_timer(seconds + 0.1, self.show_keys)

    def titles(self) -> dict[str, str]:
        """Current titles of actions, by id, if they differ from the table of actions."""
        titles = gpu_number_title(self.view)
        titles |= {} if self.gpuwatch.session.recorded else {"past_end(True)": ""}  # P has the same effect
        titles |= {"pause": "back to now", "play": "play", "signal": ""} if self.view.paused_since is not None else {}
        return titles | dict.fromkeys(self.gpuwatch.unavailable_actions, "")

    @property
    def focused_pane(self) -> str:
        """Name of the focused pane in the table of actions."""
        focused = self.focused
        if focused is not None and focused is self.timeline:
            return "timeline"
        return self.PANES.get(focused.id or "", "") if focused is not None else ""

    def probe_runs_changed(self) -> None:
        """Called after a change of the probes or their runs."""

    # Actions of every tab

    async def action_show_tab(self, tab_id: str) -> None:
        if tab_id == self.TAB:
            self.say(f"{number_of(tab_id)} is this tab{self._gpu_number_hint}", "text")
        await self.go(tab_id)
        number, device = number_of(tab_id), self.view.device(self.gpuwatch.tab.timeline_uuid)
        if tab_id != self.TAB and device is not None and device.index != number and len(self.view.devices) > 1:
            self.gpuwatch.tab.explain(str(number), f"this is GPU {device.index}{self._gpu_number_hint}")

    @property
    def _gpu_number_hint(self) -> str:
        return f"; # opens a GPU by its number, {numbers}" if (numbers := gpu_number_range(self.view)) else ""

    def unknown_key(self, event: events.Key) -> None:
        """Says of a typed letter or digit that does nothing here that it is no key."""
        char = event.character if event.is_printable else None
        if char and char.isalnum() and event.key not in self.active_bindings:
            more = self._gpu_number_hint if char.isdecimal() else _HTOP_KEY_HINTS.get(char, "")
            self.say(f"{char} is no key here{more or '; ? shows all keys'}", "text")

    async def action_back(self) -> None:
        await self.gpuwatch.go_back()

    async def go(self, tab_id: str) -> None:
        """Opens another tab; subclasses may select something there first."""
        await self.gpuwatch.show_tab(tab_id)

    def action_move(self, where: str) -> None:
        """Moves in the focused pane."""

    @property
    def moves_left(self) -> bool:
        """Whether there is anything at the left, so that ``h`` is not for help."""
        return self.TAB in ("gpu", "process")

    def action_left_or_help(self) -> None:
        """``h``: as in vi, else as in top."""
        if self.moves_left:
            self.action_move("left")
        else:
            self.action_help()

    def command(self) -> list[str]:
        """The arguments of ``gpuwatch`` that show this, or repeat it."""
        from dataclasses import replace

        from gpuwatch.ui.details.equivalent_commands import dashboard_command, replay_command, sim_option

        if self.gpuwatch.host_arguments:  # a host of a list is opened from the list
            return list(self.gpuwatch.host_arguments)
        preferences = replace(self.gpuwatch.current_preferences(), tab=self.TAB)
        past = self.gpuwatch.session.view().position
        if past is not None and past.played is not None:
            return replay_command(past.played.path, past.moment, past.played.speed, preferences)
        return dashboard_command(preferences) + sim_option()

    def action_copy_command(self) -> None:
        """Copies the command line, and shows it: some terminals do not let a program copy."""
        self.copy_command(self.command())

    def copy_command(self, arguments: list[str]) -> None:
        """Copies ``gpuwatch`` with arguments; shows it in the footer, or as a sheet if it is too long for that."""
        import shlex

        command = shlex.join(["gpuwatch", *arguments])
        self.app.copy_to_clipboard(command)
        shown = f"copied: {printable(command)}"
        if width_of(shown) <= self.app.size.width - HELP_AND_QUIT_CELLS - 1:
            self.show_message(shown, "accent", _COMMAND_SECONDS)
        else:
            self.open_sheet("Copied", [[(printable(command), "text")]])

    def action_diagnostic(self) -> None:
        host = self.gpuwatch.session.host
        if host.unreachable:
            self.say(f"a report is written on {host.name or 'the host'} itself: log in there", "warning")
            return
        if recording := self.view.status.recording:  # which knows since when, as a single sample does not
            last = f"{_REPORTED_SECONDS / 60:.0f}"
            past = [recording, f"--since=-{last}min"]
            self._write_report(f"the last {last} min recorded here", past, f"{_DOCTOR} and probe runs")
        else:
            self._write_report("this machine", ["--no-doctor"], _DOCTOR)  # which would use GPUs without asking

    def action_report_stretch(self) -> None:
        """Writes a report on the recorded time before the moment that is played."""
        past = self.gpuwatch.session.view().position
        if past is not None and past.played is not None:
            end = past.moment
            begin = max(end - _REPORTED_SECONDS, past.begin)
            span = [f"--{name}=@{at:.3f}" for name, at in (("since", begin), ("until", end))]
            self._write_report(f"{clock_text(begin, end)} to {clock_text(end, end)}", [str(past.played.path), *span])

    def _write_report(self, what: str, arguments: list[str], without: str = "") -> None:
        from gpuwatch.ui.screens.write_report_sheet import ask_report

        ask_report(self, what, arguments, without)

    def action_jump(self) -> None:
        from gpuwatch.ui.screens.jump_mode import JumpScreen, targets_of

        self.app.push_screen(JumpScreen(targets_of(self)))

    async def action_gpu_number(self) -> None:
        """Asks for the number of a GPU and opens its tab."""
        devices = self.view.devices
        if len(devices) > 1:
            from gpuwatch.ui.screens.jump_mode import gpu_number_prompt

            self.app.push_screen(gpu_number_prompt(self, devices))
        elif devices:
            await self.go_to_gpu(devices[0].uuid)
        else:
            self.say("there is no GPU here", "warning")

    async def go_to_gpu(self, uuid: str) -> None:
        """Opens the tab of a GPU."""
        self.gpuwatch.chosen_gpu = uuid
        await self.gpuwatch.show_tab("gpu")
        self.gpuwatch.tab.show(self.gpuwatch.session.view())

    def action_refuse_signal(self) -> None:
        """For K and F9 in a recording, whose processes cannot be signaled, or while paused: says so."""
        self.refuse_while_paused()

    def refuse_while_paused(self) -> bool:
        """Reports that signals are disabled while paused and in a replay; False if the display is live."""
        session, past = self.gpuwatch.session, self.gpuwatch.session.view().position
        if session.recorded:
            self.say("no signals: this is a recording", "warning")
        elif past is not None:
            then = clock_text(past.moment)
            self.say(f"no signals while paused: this is {then}, not now; P goes back to now", "warning")
        return session.recorded or past is not None

    def action_up_by_k(self) -> None:
        """``k`` moves up; the first time, the footer says that signals have another key."""
        self.action_move("up")
        self.explain("k", "k moves up; K or F9 sends a signal")

    def explain(self, key: str, text: str) -> None:
        """The first time, says what a key does that does something else in htop."""
        if key not in self.gpuwatch.explained_keys:
            self.gpuwatch.explained_keys.add(key)
            self.say(text, "accent")

    def action_help(self) -> None:
        from gpuwatch.ui.screens.help_sheet import HelpSheet

        self.app.push_screen(HelpSheet(self.TAB, self.gpuwatch.key_name, replay=self.gpuwatch.session.recorded))

    def action_save_settings(self) -> None:
        from gpuwatch.ui.screens.save_preferences import save_preferences

        save_preferences(self.gpuwatch, self.say)

    def action_missing_device(self) -> None:
        from gpuwatch.ui.details.missing_readings import missing_of_device

        if self.device is not None:
            self.open_sheet(*missing_of_device(self.device, self.view))

    def open_sheet(self, title: str, lines: list[list[tuple[str, str]]]) -> None:
        from gpuwatch.ui.screens.sheet_bases import LinesSheet

        self.app.push_screen(LinesSheet(title, lines))

    def action_pause(self) -> None:
        self.gpuwatch.toggle_pause()
        self._focus_timeline()

    def action_past(self, samples: int) -> None:
        self._move_playhead(lambda past: past.move_samples(samples))

    def action_past_seconds(self, seconds: int) -> None:
        self._move_playhead(lambda past: past.move_seconds(seconds))

    def action_past_end(self, newest: bool) -> None:
        """To the oldest or newest sample, which on a live display is now."""
        if not newest or self.gpuwatch.session.recorded:
            self._move_playhead(lambda past: past.move_to_last() if newest else past.move_to_first())
        elif self.gpuwatch.session.paused:
            self.action_pause()

    def on_timeline_clicked(self, event: Timeline.Clicked) -> None:
        self._move_playhead(lambda past: past.move_to(event.moment))

    def _move_playhead(self, move: Callable[[Playhead], None]) -> None:
        began = not self.gpuwatch.session.paused
        self.gpuwatch.move_playhead(move)
        if began and self.gpuwatch.session.paused:
            self._focus_timeline()

    def _focus_timeline(self) -> None:
        """Arrows move in time while paused."""
        strip = self.timeline
        if strip is not None and self.gpuwatch.session.paused:
            self._before_pause = self.focused if self.focused is not strip else self._before_pause
            strip.focus()

    def _leave_timeline(self) -> None:
        """Restores the focus before Textual moves it to the next pane."""
        before, self._before_pause = self._before_pause, None
        if before is not None and (self.focused is self.timeline or self.focused is None):
            before.focus()

    # Actions of a replay

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys of a replay do nothing while live, and are text while something is typed.

        Those that move in time also work in the past of a live display. Keys typed after the one that ended the
        dashboard do nothing.
        """
        if not self.is_attached:
            return False
        if action in _REPLAY_ACTIONS:
            typing = self.focused is not None and self.focused.check_consume_key("n", "n")
            session = self.gpuwatch.session
            past = session.paused or session.past_path is not None
            here = session.recorded or (action in _PAST_ACTIONS and past)
            return here and not typing
        return super().check_action(action, parameters)

    def action_play(self) -> None:
        self.action_pause()

    def action_go_to_trouble(self, way: int) -> None:
        """Goes to the next (1) or previous (-1) warning or error."""
        self._go_to_event(way, bad=True)

    def action_go_to_event(self, way: int) -> None:
        """Goes to the next (1) or previous (-1) event."""
        self._go_to_event(way, bad=False)

    def _go_to_event(self, way: int, *, bad: bool) -> None:
        session = self.gpuwatch.session
        live = not session.paused
        found: MachineEvent | None = None

        def move(past: Playhead) -> None:
            nonlocal found
            self.gpuwatch.chosen_event = found = past.move_to_event(way, only_problems=bad, uuid=self.timeline_uuid)

        self._move_playhead(move)
        if found is None and live and session.paused:
            self.gpuwatch.toggle_pause()
        if found is not None:
            self.say(f"{clock_text(found.at, session.clock())}  {printable(found.text)}", "accent")
        else:
            what = f"{'later' if way > 0 else 'earlier'} {'warning or error' if bad else 'event'}"
            self.say(f"no {what}{' in this recording' if session.recorded else ''}", "warning")

    def action_go_to_time(self) -> None:
        from gpuwatch.ui.screens.time_prompt import TimePrompt

        times = self.gpuwatch.session.timeline.times

        def answered(moment: float | None) -> None:
            if moment is not None:
                self._move_playhead(lambda past: past.move_to(moment))

        if times:
            self.app.push_screen(TimePrompt(times[0], times[-1]), answered)

    def action_change_speed(self, step: int) -> None:
        """Plays faster (1) or slower (-1)."""
        self.gpuwatch.change_interval(-step)

    def action_change_interval(self, step: int) -> None:
        """Samples more often (-1) or less often (1)."""
        self.gpuwatch.change_interval(step)

    def action_quit(self) -> None:
        self.app.exit()
