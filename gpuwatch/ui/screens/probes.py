"""The Probes tab: select configurations, run them, and compare what each of them did."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import events

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.path_text import file_url
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.run import Run
from gpuwatch.core.safe_text import printable
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.experiment.probing.step_times import UNRELIABLE_REASON
from gpuwatch.session.background_probes import ProbeParameters, ProbeRuns
from gpuwatch.session.free_gpus import unused_gpus
from gpuwatch.session.view import View
from gpuwatch.share.reports.comparison_report import NOT_COMPARABLE_MARK, UNSTEADY_MARK, speed_marks
from gpuwatch.share.reports.report_text import clean
from gpuwatch.share.reports.runs_side_by_side import compare
from gpuwatch.ui.details.probe_descriptions import (
    GROUP_WORDS,
    batch_problem_lines,
    conclusion_lines,
    configuration_lines,
    current_activity,
    next_run_facts,
    runs_progress,
    why_not_comparable,
)
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line, Span, spans_width, wrap_lines
from gpuwatch.ui.drawing.text_styles import link_style
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.screens.filterable_tab import FilterableScreen
from gpuwatch.ui.tables.filter_language import WordFilter
from gpuwatch.ui.widgets.filter_bar import ProbeFinder
from gpuwatch.ui.widgets.one_line_panes import OneLinePane
from gpuwatch.ui.widgets.painted_pane import PaintedPane
from gpuwatch.ui.widgets.probe_details import ProbeDetails, probe_bar_lines
from gpuwatch.ui.widgets.probe_table import ConfigRow, EarlierRunRow, GroupRow, ProbeTable, probe_rows

_BAR_CELLS = 12
_TALL_LINES = 30
"""Lines of a terminal from which there are bars, and a conclusion of several lines."""
_MAX_CONCLUSION_LINES = 3
"""Maximum lines of the conclusion."""
_KEYS_THAT_WRITE = {"r": "writes a report here", "w": "saves the settings"}
"""Keys that write files: typed as the first letter of a probe's name, they must be pressed twice."""
_MARKS = {
    UNSTEADY_MARK: f"{UNRELIABLE_REASON}: this speed is unreliable",
    NOT_COMPARABLE_MARK: "its speed is not comparable with the others: another workload, size or device",
}


class ProbesScreen(FilterableScreen):
    """The catalog as a table that fills with results."""

    AUTO_FOCUS = "#probes"
    TAB = "probes"
    PANES: ClassVar[dict[str, str]] = {"probes": "probes"}

    def __init__(self) -> None:
        super().__init__()
        self.head = OneLinePane(self._draw_head, id="probe-head")
        self.table = ProbeTable(id="probes")
        self.details = ProbeDetails(id="below")
        self.with_earlier = False
        self._compared: frozenset[str] = frozenset()
        """The only configurations shown, side by side; empty: all."""
        self.folded: set[str] = set()
        """Groups that show only their heading."""
        self._message: Span = ("", "text")
        self._key_before = ""
        self._followed = ""
        self.conclusion = PaintedPane(id="conclusion")
        """What the runs on screen show, in words."""
        self.bars = PaintedPane(id="probe-bars")
        self.panes = (self.head, self.conclusion, self.table, self.bars, self.details)

    @property
    def probe_runs(self) -> ProbeRuns:
        return self.gpuwatch.probe_runs

    def on_mount(self) -> None:
        """Subscribes to runs; earlier ones appear when they have been read."""
        self.gpuwatch.watch_probe_runs()

    # Showing

    def draw(self, view: View) -> None:
        height = self.app.size.height
        self.table.framed = self.details.framed = self.framed
        self.details.styles.height = min(max(height // 4, 5), 16)
        self.head.show(view)
        self._draw_conclusion()
        self._draw_table(view)
        self._draw_bars()
        self._draw_details()

    def _draw_head(self, builder: LineBuilder, view: View) -> None:
        """The subject of the next runs, and the progress of the current ones."""
        live, done = self.probe_runs.live, runs_progress(self.probe_runs)
        reserve = spans_width(done) + (_BAR_CELLS + 3 if live is not None else 0)
        for number, text in enumerate(next_run_facts(self.probe_runs, view)):
            if builder.cells_left - reserve < width_of(text) + 5:
                break
            builder.add(" · " if number else " ", "faint").add(text, "strong" if not number else "dim")
        builder.fill_to(builder.width - reserve).add_spans(done)
        if live is not None:
            builder.bar(live.done / max(len(live.configs), 1), _BAR_CELLS, "accent")

    def _draw_conclusion(self) -> None:
        width, height = self.app.size
        lines = conclusion_lines(self.comparison(), width, _MAX_CONCLUSION_LINES if height >= _TALL_LINES else 1)
        self.conclusion.display = bool(lines)
        self.conclusion.styles.height = max(len(lines), 1)
        self.conclusion.paint([Line(tuple(line)) for line in lines])

    def _draw_bars(self) -> None:
        """Bars below the table, where it keeps most of the height."""
        comparison = self.comparison()
        width, height = self.app.size
        row = self.table.item_under_cursor
        run_index = _run_index(row.run, comparison) if isinstance(row, (ConfigRow, EarlierRunRow)) else None
        lines = probe_bar_lines(comparison, width, height // 5, run_index) if height >= _TALL_LINES else []
        self.bars.display = bool(lines)
        self.bars.styles.height = max(len(lines), 1)
        self.bars.paint(lines)

    def _draw_table(self, view: View) -> None:
        probe_runs, live = self.probe_runs, self.probe_runs.live
        shown = self._compared or probe_runs.scripts.keys()
        rows = probe_rows(
            {name: script for name, script in probe_runs.scripts.items() if name in shown},
            probe_runs.runs,
            probe_runs.earlier,
            selected=probe_runs.selected,
            running=live.config if live is not None else "",
            waiting=live.waiting if live is not None else frozenset(),
            with_earlier=self.with_earlier and not self._compared,
            folded=self.folded,
            wanted=self.filter,
        )
        self.table.title, self.table.total = self.filter_title("Probes"), len(probe_runs.scripts)
        if not self.with_earlier and probe_runs.earlier:
            self.table.note = f" {len(probe_runs.earlier)} earlier: c "
        else:
            self.table.note = f" {len(probe_runs.scripts)} configurations "
        what = current_activity(live) if live is not None else ""
        self.table.show(rows, self.comparison(), doing=what, now=view.now)
        if live is not None and live.config != self._followed:
            self._followed = live.config
            self.table.follow(live.config)
            self.table.redraw()

    def _draw_details(self) -> None:
        probe_runs = self.probe_runs
        if probe_runs.live is not None:
            self.details.show_live(probe_runs.live)
            return
        lines = batch_problem_lines(probe_runs)
        if self._message[0]:
            lines.append([self._message])
        replay = self.gpuwatch.session.recorded
        if replay:
            lines.append([("Probe runs are not part of a recording: these are the ones saved on this machine.", "dim")])
        if self._compared:
            lines += [
                [("Δ ", "accent"), (clean(difference.text), "text")] for difference in self.comparison().differences
            ]
        row = self.table.item_under_cursor
        title = "About"
        if isinstance(row, GroupRow):
            title = printable(row.name)
            lines.append([("", "text"), (GROUP_WORDS.get(row.name, ""), "text")])
            names = ", ".join(script.name for script in self._scripts_of(row))
            lines.append([("", "text"), (printable(names), "dim")])
            fold = " unfolds, " if row.folded else " folds, "
            enter = self.gpuwatch.key_name("↵")
            keys = [("space", " selects all, "), (enter, fold), ("x", " runs them")]
            if replay:
                keys = [(enter, fold.removesuffix(", "))]
            lines.append([span for key, does in keys for span in ((key, "key"), (does, "dim"))])
        elif row is not None:
            config = row.script.name if isinstance(row, ConfigRow) else row.run.config
            run = row.run
            title = printable(config)
            lines += configuration_lines(self.probe_runs.scripts.get(config), run)
            lines += self._mark_lines(run)
        width = max(self.app.size.width - 4, 20)
        self.details.show_text(title, wrap_lines(lines, width))

    def _mark_lines(self, run: Run | None) -> list[list[Span]]:
        comparison = self.comparison()
        place = _run_index(run, comparison)
        marks = speed_marks(comparison, place) if place is not None else ()
        return [[(f"{mark} ", "warning"), (_MARKS[mark], "text")] for mark in marks]

    def titles(self) -> dict[str, str]:
        own_titles = {"run_probes": "stop"} if self.probe_runs.live is not None else {}
        if self._compared:
            own_titles["compare"] = "show all"
        elif self._to_compare:
            own_titles["compare"] = f"compare {len(self._to_compare)}"
        elif self.with_earlier:
            own_titles["compare"] = "hide earlier"
        return super().titles() | own_titles

    @property
    def _to_compare(self) -> frozenset[str]:
        """The selected configurations that have run; all that have run if fewer than two are selected and no earlier
        runs could be meant; empty if there are not two.
        """
        probe_runs = self.probe_runs
        to_compare = frozenset(probe_runs.selected & probe_runs.runs.keys())
        if len(probe_runs.selected) < 2 and not probe_runs.earlier:
            to_compare = frozenset(probe_runs.runs)
        return to_compare if len(to_compare) > 1 else frozenset()

    def probe_runs_changed(self) -> None:
        self.draw(self.view)
        self.show_keys()

    @property
    def filtered(self) -> ProbeTable:
        return self.table

    def set_filter(self, word_filter: WordFilter | None) -> None:
        """Also goes to what was found, so that it can be run."""
        super().set_filter(word_filter)
        if word_filter is not None:
            self.table.go_to_name(word_filter.text.lower())

    def say(self, text: str, style: str = "text") -> None:
        """Shows a message below the table until the cursor moves."""
        self._message = (text, style)
        self._draw_details()

    def comparison(self) -> Comparison:
        shown = self._compared or self.probe_runs.scripts.keys()
        runs = [run for name in self.probe_runs.scripts if name in shown and (run := self.probe_runs.runs.get(name))]
        if self.with_earlier and not self._compared:
            runs += self.probe_runs.earlier
        return compare(runs)

    # Actions

    def action_move(self, where: str) -> None:
        self._message = ("", "text")
        self.table.move(where)

    def on_item_list_cursor_moved(self) -> None:
        self._draw_bars()
        self._draw_details()

    def _scripts_of(self, group: GroupRow) -> list[ProbeScript]:
        return [script for script in self.probe_runs.scripts.values() if script.group == group.name]

    def action_toggle_choice(self) -> None:
        """Toggles a configuration or a whole group; the cursor stays, as it does on any list of boxes."""
        row, selected = self.table.item_under_cursor, self.probe_runs.selected
        if isinstance(row, ConfigRow):
            selected ^= {row.script.name}
        elif isinstance(row, GroupRow):
            names = {script.name for script in self._scripts_of(row)}
            selected.difference_update(names) if names <= selected else selected.update(names)
        self.probe_runs_changed()

    def action_toggle_all(self) -> None:
        everything = set(self.probe_runs.scripts)
        self.probe_runs.selected = set() if self.probe_runs.selected >= everything else everything
        self.probe_runs_changed()

    def action_run_probes(self) -> None:
        """Asks, then runs the selection or the row under the cursor; stops probes that are running."""
        if self.probe_runs.live is not None:
            self._stop()
            return
        if self.gpuwatch.session.recorded:
            self.say("no probes in a recording: they need the machine as it is now; start gpuwatch there", "warning")
            return
        names = [name for name in self.probe_runs.scripts if name in self.probe_runs.selected] or self._under_cursor()
        if names:
            self._run_or_ask(names, asks=True)

    def _run_or_ask(self, names: list[str], *, asks: bool) -> None:
        """Runs configurations; unless it ``asks`` anyway, only where somebody may be on the GPUs that they take."""
        from gpuwatch.session.probe_batch import plan_preflight
        from gpuwatch.ui.screens.probe_sheets import PreflightSheet

        self._message = ("", "text")
        scripts = [self.probe_runs.scripts[name] for name in names]
        preflight = plan_preflight(scripts, self._live_view.snapshot, self.probe_runs.parameters.gpu)

        def answered(run: bool | None) -> None:
            if run and self.probe_runs.start(names, preflight.visible):
                self.probe_runs_changed()

        taken = [device.uuid for device in preflight.devices] or [self.probe_runs.parameters.gpu]
        if not asks and self._are_free(taken):
            answered(run=True)
            return
        self.app.push_screen(
            PreflightSheet(preflight, self.probe_runs.parameters.seconds, self.app.size.width), answered
        )

    def command(self) -> list[str]:
        """The selected configurations, or the one under the cursor, with their parameters."""
        from gpuwatch.ui.details.equivalent_commands import probe_command, sim_option

        probe_runs = self.probe_runs
        names = probe_runs.selected or set(self._under_cursor())
        return probe_command(probe_runs.scripts, names, probe_runs.parameters) + sim_option()

    def _under_cursor(self) -> list[str]:
        row = self.table.item_under_cursor
        if isinstance(row, GroupRow):
            return [script.name for script in self._scripts_of(row)]
        return [row.script.name] if isinstance(row, ConfigRow) else []

    async def action_cancel(self) -> None:
        """Stops the running probes; if none is running, goes back."""
        if not self._stop():
            await self.action_back()

    def _stop(self) -> bool:
        stopped = self.probe_runs.cancel()
        if stopped:
            self.probe_runs_changed()
        return stopped

    def action_open_run(self) -> None:
        """Opens the run under the cursor, or the settings of a configuration without one; folds a group."""
        row = self.table.item_under_cursor
        if isinstance(row, GroupRow):
            self.folded ^= {row.name}
            self.probe_runs_changed()
            return
        run = row.run if isinstance(row, (ConfigRow, EarlierRunRow)) else None
        if run is None:
            self.action_code()
            return
        from gpuwatch.ui.screens.probe_sheets import RunSheet

        opened: Run = run

        def answered(answer: str | None) -> None:
            if answer == "code":
                self._show_code(opened.config, dict(opened.workload_parameters))
            elif answer == "report":
                self._write_report_of(opened, opened.config)
            elif answer == "command":
                self.copy_command(["report", str(self.probe_runs.store.path_of(opened))])

        self.app.push_screen(RunSheet(opened, max(min(self.app.size.width * 9 // 10 - 4, 150), 40)), answered)

    def action_options(self) -> None:
        from gpuwatch.ui.screens.probe_sheets import ParametersSheet

        self.app.push_screen(ParametersSheet(self.probe_runs.parameters, self.view.devices), self._parameters_taken)

    def _parameters_taken(self, parameters: ProbeParameters | None) -> None:
        if parameters is not None:
            self.probe_runs.parameters = parameters
            self.probe_runs.interpreter = None
            self.probe_runs_changed()

    def action_code(self) -> None:
        names = self._under_cursor()
        row = self.table.item_under_cursor
        if isinstance(row, EarlierRunRow):
            names = [row.run.config]
        if names:
            self._show_code(names[0], self.probe_runs.parameters.config_options)

    def _show_code(self, config: str, options: dict[str, object]) -> None:
        script = self.probe_runs.scripts.get(config)
        if script is None:
            self.say(f"{printable(config)} is no longer in the catalog", "warning")
            return
        from gpuwatch.experiment.probing.probe_scripts import example_code
        from gpuwatch.ui.screens.probe_sheets import CodeSheet

        self.app.push_screen(CodeSheet(config, example_code(script, options)))

    @property
    def _live_view(self) -> View:
        return self.view.live or self.view

    def _are_free(self, uuids: Iterable[str]) -> bool:
        """Whether nobody uses these GPUs, as far as that is known now."""
        return not self.probe_runs.parameters.visible and unused_gpus(self._live_view).issuperset(uuids)

    def on_screen_resume(self) -> None:
        """Asks for the name of a probe, if that was wanted, once there is something to see."""
        self.call_next(self._open_finder)

    async def typed(self, event: events.Key) -> None:
        """A name may be typed before its field is on the screen, or where none is: letters of it write no files."""
        await self._open_finder()
        before, self._key_before = self._key_before, event.key
        if self.filter_bar is None and event.key in _KEYS_THAT_WRITE and event.key != before:
            event.stop()
            super().say(f"{event.key} again {_KEYS_THAT_WRITE[event.key]}; / finds a probe by its name", "accent")
        else:
            await super().typed(event)

    async def _open_finder(self) -> None:
        app = self.gpuwatch
        if not app.opens_probe_finder:
            return
        app.opens_probe_finder = False
        uuid = self.probe_runs.parameters.gpu
        device = self._live_view.device(uuid)
        use = "free" if self._are_free([uuid]) else "in use: asks first"
        where = f" on GPU {device.index} ({use})" if device else ""
        enter = app.key_name("↵")
        await self.open_bar(ProbeFinder("", f"type a name · {enter} runs it{where} · Esc: the list"))

    @property
    def found_name(self) -> str:
        """The configuration under the cursor; empty for none."""
        row = self.table.item_under_cursor
        return row.script.name if isinstance(row, ConfigRow) else ""

    def next_found_probe(self, key: str) -> None:
        """Moves the cursor to the next configuration, past headings; ``key``: ``up`` or ``down``."""
        before = self.table.cursor
        self.action_move(key)
        while not self.found_name and self.table.cursor != before:
            before = self.table.cursor
            self.action_move(key)

    async def run_found(self, name: str) -> None:
        """Closes the field and runs the probe that was found in it."""
        await self.filter_done(keep=False)
        self._run_or_ask([name], asks=False)

    def action_compare(self) -> None:
        """Shows the runs to compare, and no others, side by side; else the earlier runs below the latest."""
        if self._compared or self._to_compare:
            self._compared = frozenset() if self._compared else self._to_compare
            self._message = ("", "text")
        elif self.with_earlier:
            self.with_earlier = False
        else:
            self.with_earlier = bool(self.probe_runs.earlier) and len(self.probe_runs.selected) < 2
            if not self.with_earlier or len(self.comparison().runs) < 2:
                self.say(why_not_comparable(self.probe_runs), "accent")
        self.probe_runs_changed()
        places = [place for place, row in enumerate(self.table.items) if isinstance(row, EarlierRunRow)]
        if places and not any(self.table.top <= place < self.table.top + self.table.room for place in places):
            self.table.put_cursor(places[0])
            self.table.redraw()

    def action_report(self) -> None:
        comparison = self.comparison()
        if comparison.runs:
            self._write_report_of(comparison, "probes")
        else:
            self.say("no runs to report yet: x runs the selection", "warning")

    def _write_report_of(self, comparison: Comparison | Run, name: str) -> None:
        from gpuwatch.share.reports.report_formats import write

        moment = datetime.datetime.fromtimestamp(self.gpuwatch.session.clock()).strftime("%Y%m%d-%H%M%S")
        safe = "".join(char if char.isalnum() or char in "-_" else "_" for char in name)
        path = Path.cwd() / f"gpuwatch-{safe}-{moment}.html"
        try:
            write(comparison, path)
        except GpuwatchError as error:
            self.say(f"✖ {printable(error.message)}", "error")
        else:
            self.say(f"● report written: {printable(str(path))}", link_style(file_url(path), "ok"))


def _run_index(run: Run | None, comparison: Comparison) -> int | None:
    return next((number for number, other in enumerate(comparison.runs) if other is run), None)
