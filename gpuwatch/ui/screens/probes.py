"""The Probes tab: choose configurations, run them, and compare what each really did."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult

from gpuwatch.errors import GpuwatchError
from gpuwatch.formatting.text import printable
from gpuwatch.model.run import Comparison, Run
from gpuwatch.probing.locate import ProbeScript
from gpuwatch.reports.compare import compare
from gpuwatch.ui.cells import cut, width_of
from gpuwatch.ui.lab import Lab, Parameters
from gpuwatch.ui.messages import LabChanged
from gpuwatch.ui.probe_rows import GROUP_WORDS, Config, Earlier, Group, rows_of
from gpuwatch.ui.screens.tab import TabScreen
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.listed import Listed
from gpuwatch.ui.widgets.paint import Painted, Span
from gpuwatch.ui.widgets.pen import Pen
from gpuwatch.ui.widgets.probe_live import Below
from gpuwatch.ui.widgets.probe_table import ProbeTable
from gpuwatch.ui.widgets.too_small import TooSmall

_BAR = 12


class ProbeHead(Painted):
    """On what the probes run, and how far they are."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: tuple[Lab, View] | None = None

    def show(self, lab: Lab, view: View) -> None:
        """One line."""
        self._shown = (lab, view)
        self._redraw()

    def on_resize(self, event: events.Resize) -> None:
        """Folds with the width."""
        self._redraw()

    def _redraw(self) -> None:
        width = self.size.width
        if self._shown is None or not width:
            return
        lab, view = self._shown
        pen = Pen(width)
        progress = self._progress(lab)
        reserve = sum(width_of(text) for text, _ in progress) + (_BAR + 3 if lab.live is not None else 0)
        parts = _subject(lab, view)
        for number, text in enumerate(parts):
            if pen.left - reserve < width_of(text) + 5:
                break
            pen.add(" · " if number else " ", "faint").add(text, "strong" if not number else "dim")
        pen.to(width - reserve)
        for text, ink in progress:
            pen.add(text, ink)
        if lab.live is not None:
            pen.bar(lab.live.done / max(len(lab.live.configs), 1), _BAR, "accent")
        self.paint((pen.to(width).line(),))

    @staticmethod
    def _progress(lab: Lab) -> list[Span]:
        live = lab.live
        if live is None:
            ready = f"{len(lab.chosen)} chosen " if lab.chosen else ""
            return [(ready, "accent")]
        what = "stopping" if live.stopping else live.config or live.doing
        return [(f"{live.done} of {len(live.configs)} done", "strong"), (f" · {cut(what, 24)}  ", "accent")]


def _subject(lab: Lab, view: View) -> list[str]:
    """Framework, GPU, workload, budget: what is the same for all of the next runs."""
    parameters = lab.parameters
    found = lab.interpreter
    newest = next(iter(lab.known), None)
    if found is not None:
        parts = [f"{found.framework} {found.version or ''}".strip()]
    elif newest is not None and newest.framework is not None:
        parts = [printable(f"{newest.framework.name} {newest.framework.version or ''}".strip())]
    else:
        parts = ["TensorFlow"]
    device = view.snapshot.device(parameters.gpu) if view.snapshot is not None else None
    count = len(view.devices)
    if device is not None:
        parts.append(f"GPU {device.index} {printable(device.name)}")
    else:
        parts.append(f"{count} GPU{'s' * (count != 1)}" if count else "no GPU: probes run on the CPU")
    if view.snapshot is not None and view.snapshot.simulated:
        parts.append("simulated: speeds are the CPU's")
    parts.append(parameters.workload or "own workloads")
    parts.append(f"{parameters.seconds:g} s each")
    if parameters.memory_limit is not None:
        parts.append(f"limit {parameters.memory_limit} MB")
    if parameters.fraction is not None:
        parts.append(f"fraction {parameters.fraction:g}")
    if parameters.visible:
        parts.append(f"visible {parameters.visible}")
    if parameters.virtual is not None:
        parts.append(f"{parameters.virtual} virtual")
    if parameters.python:
        parts.append(printable(parameters.python))
    return parts


class ProbesScreen(TabScreen):
    """The catalogue as a table that fills with what happened."""

    AUTO_FOCUS = "#probes"
    TAB = "probes"
    PANES: ClassVar[dict[str, str]] = {"probes": "probes"}

    def __init__(self) -> None:
        super().__init__()
        self.head = ProbeHead(id="probe-head")
        self.table = ProbeTable(id="probes")
        self.below = Below(id="below")
        self.with_earlier = False
        self._message: Span = ("", "text")
        self._followed = ""

    @property
    def lab(self) -> Lab:
        """Probes and runs, shared by the tabs."""
        return self.gpuwatch.lab

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield self.top_line
        yield self.head
        yield self.table
        yield self.below
        yield self.keys
        yield TooSmall(id="too-small")

    def on_mount(self) -> None:
        """Earlier runs come when they have been read."""
        self.gpuwatch.watch_lab()

    # Showing

    def draw(self, view: View) -> None:
        """Table and what is below it."""
        width, height = self.app.size
        self.table.framed = self.below.framed = width >= 100 and height >= 30
        self.below.styles.height = min(max(height // 4, 5), 16)
        self.head.show(self.lab, view)
        self._draw_table(view)
        self._draw_below()

    def _draw_table(self, view: View) -> None:
        lab, live = self.lab, self.lab.live
        rows = rows_of(
            lab.scripts,
            lab.runs,
            lab.earlier,
            chosen=lab.chosen,
            running=live.config if live is not None else "",
            waiting=live.waiting if live is not None else frozenset(),
            with_earlier=self.with_earlier,
        )
        if not self.with_earlier and lab.earlier:
            self.table.note = f" {len(lab.earlier)} earlier: c "
        else:
            self.table.note = f" {len(lab.scripts)} configurations "
        doing = live.doing if live is not None else ""
        self.table.show(rows, self.document(), doing=doing, now=view.now)
        if live is not None and live.config != self._followed:
            self._followed = live.config
            self.table.follow(live.config)
            self.table.redraw()

    def _draw_below(self) -> None:
        lab = self.lab
        if lab.live is not None:
            self.below.show_live(lab.live)
            return
        lines: list[list[Span]] = []
        if lab.problem.message:
            lines.append([("✖ ", "error"), (printable(lab.problem.message), "text")])
            if lab.problem.hint:
                lines.append([("  → ", "accent"), (printable(lab.problem.hint), "text")])
            lines.append(
                [
                    ("  → ", "accent"),
                    ("p", "key"),
                    (" names the interpreter here, ", "text"),
                    ("x", "key"),
                    (" tries again", "text"),
                ]
            )
        lines += [[("▲ ", "warning"), (printable(note), "text")] for note in lab.notes]
        if self._message[0]:
            lines.append([self._message])
        row = self.table.chosen
        title = "What it is about"
        if isinstance(row, Group):
            title = printable(row.name)
            lines.append([("", "text"), (GROUP_WORDS.get(row.name, ""), "text")])
            names = ", ".join(script.name for script in self._of(row))
            lines.append([("", "text"), (printable(names), "dim")])
            lines.append([("space", "key"), (" chooses them all, ", "dim"), ("x", "key"), (" runs them", "dim")])
        elif row is not None:
            config = row.script.name if isinstance(row, Config) else row.run.config
            run = row.run
            title = printable(config)
            lines += _about(self.lab.scripts.get(config), run)
        from gpuwatch.ui.screens.lines_modal import wrapped

        width = max(self.app.size.width - 4, 20)
        self.below.show_text(title, [part for line in lines for part in wrapped(line, width)])

    def titles(self) -> dict[str, str]:
        """The key that runs also stops."""
        return super().titles() | ({"run_probes": "stop"} if self.lab.live is not None else {})

    def lab_changed(self, message: LabChanged) -> None:
        """Something has come from the runs."""
        if self._view is not None:
            self.draw(self._view)
            self.show_keys()

    def say(self, text: str, ink: str = "text") -> None:
        """One line below the table, until the cursor moves."""
        self._message = (text, ink)
        self._draw_below()

    def document(self) -> Comparison:
        """What is shown, as a comparison."""
        runs = [run for script in self.lab.scripts if (run := self.lab.runs.get(script)) is not None]
        if self.with_earlier:
            runs += self.lab.earlier
        return compare(runs)

    # Actions

    def action_move(self, where: str) -> None:
        """The cursor, and what is said about its row."""
        self._message = ("", "text")
        self.table.move(where)
        self._draw_below()

    def _of(self, group: Group) -> list[ProbeScript]:
        return [script for script in self.lab.scripts.values() if script.group == group.name]

    def action_toggle_choice(self) -> None:
        """A configuration, or a whole group; then one down."""
        row, chosen = self.table.chosen, self.lab.chosen
        if isinstance(row, Config):
            chosen ^= {row.script.name}
        elif isinstance(row, Group):
            names = {script.name for script in self._of(row)}
            chosen.difference_update(names) if names <= chosen else chosen.update(names)
        self._changed()
        self.action_move("down")

    def action_toggle_all(self) -> None:
        """All, or none when all are chosen."""
        everything = set(self.lab.scripts)
        self.lab.chosen = set() if self.lab.chosen >= everything else everything
        self._changed()

    def _changed(self) -> None:
        if self._view is not None:
            self.draw(self._view)
            self.show_keys()

    def action_run_probes(self) -> None:
        """Runs what is chosen, else the row under the cursor; while something runs: stops it."""
        if self.lab.live is not None:
            self._stop()
            return
        wanted = [name for name in self.lab.scripts if name in self.lab.chosen] or self._under_cursor()
        self._message = ("", "text")
        if self.lab.start(wanted):
            self._changed()

    def _under_cursor(self) -> list[str]:
        row = self.table.chosen
        if isinstance(row, Group):
            return [script.name for script in self._of(row)]
        return [row.script.name] if isinstance(row, Config) else []

    async def action_cancel(self) -> None:
        """Ends the running probe, leaves out the rest; where none runs, this is the way back."""
        if not self._stop():
            await self.action_back()

    def _stop(self) -> bool:
        stopped = self.lab.cancel()
        if stopped:
            self._changed()
        return stopped

    @on(Listed.Chosen)
    def _double_clicked(self) -> None:
        self.action_open_run()

    def action_open_run(self) -> None:
        """The run under the cursor; a configuration that has none is run."""
        row = self.table.chosen
        run = row.run if isinstance(row, (Config, Earlier)) else None
        if run is None:
            # This row, whatever else is chosen.
            if self.lab.live is None and self.lab.start(self._under_cursor()):
                self._message = ("", "text")
                self._changed()
            return
        from gpuwatch.ui.screens.run_sheet import RunModal

        opened: Run = run

        def then(wanted: str | None) -> None:
            if wanted == "code":
                self._show_code(opened.config, dict(opened.workload_parameters))
            elif wanted == "report":
                self._write(opened, opened.config)

        self.app.push_screen(RunModal(opened, max(min(self.app.size.width * 9 // 10 - 4, 150), 40)), then)

    def action_options(self) -> None:
        """Parameters of the next runs."""
        from gpuwatch.ui.screens.probe_options import ParametersModal

        devices = self._view.devices if self._view is not None else ()
        self.app.push_screen(ParametersModal(self.lab.parameters, devices), self._parameters_taken)

    def _parameters_taken(self, parameters: Parameters | None) -> None:
        if parameters is not None:
            self.lab.parameters = parameters
            self.lab.interpreter = None
            self._changed()

    def action_code(self) -> None:
        """The settings of the row under the cursor."""
        names = self._under_cursor()
        row = self.table.chosen
        if isinstance(row, Earlier):
            names = [row.run.config]
        if names:
            self._show_code(names[0], self.lab.parameters.own)

    def _show_code(self, config: str, options: dict[str, object]) -> None:
        script = self.lab.scripts.get(config)
        if script is None:
            self.say(f"{printable(config)} is no longer in the catalogue", "warning")
            return
        from gpuwatch.probing.recipe import recipe
        from gpuwatch.ui.screens.code_sheet import CodeModal

        self.app.push_screen(CodeModal(config, recipe(script, options)))

    def action_earlier(self) -> None:
        """Runs of earlier sessions below the rows, or not."""
        self.with_earlier = not self.with_earlier
        if self.with_earlier and not self.lab.earlier:
            self.say("there are no earlier runs yet")
        self._changed()

    def action_report(self) -> None:
        """The comparison that is shown."""
        document = self.document()
        if document.runs:
            self._write(document, "probes")
        else:
            self.say("nothing to report yet: x runs what is chosen", "warning")

    def _write(self, document: Comparison | Run, name: str) -> None:
        from gpuwatch.reports.registry import write

        moment = datetime.datetime.fromtimestamp(self.gpuwatch.clock()).strftime("%Y%m%d-%H%M%S")
        safe = "".join(char if char.isalnum() or char in "-_" else "_" for char in name)
        path = Path.cwd() / f"gpuwatch-{safe}-{moment}.html"
        try:
            write(document, path)
        except GpuwatchError as error:
            self.say(f"✖ {printable(error.message)}", "error")
        else:
            self.say(f"● report written: {printable(str(path))}", "ok")


def _about(script: ProbeScript | None, run: Run | None) -> list[list[Span]]:
    lines: list[list[Span]] = []
    if run is not None and run.verdict_reason:
        lines.append([("", "text"), (printable(run.verdict_reason), "strong")])
    if script is None:
        return lines
    lines.append([("", "text"), (f"{printable(script.title)}. {printable(script.summary)}", "text")])
    facts = [f"workload {script.workload}", f"usually ends {script.verdict}"]
    if script.gpus:
        facts.append(f"needs {script.gpus} GPU{'s' * (script.gpus > 1)}")
    facts += [f"{name} {value}" for name, value in {**script.options, **script.environment}.items()]
    lines.append([("", "dim"), (printable(" · ".join(facts)), "dim")])
    return lines
