"""HTML: one file that opens offline, in light and dark, on screen and on paper."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from gpuwatch.core.formatting.palettes import DARK, LIGHT, QUANTITIES, Palette, quantity_color
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.json_codec import Document, embedded_in_html, runs_in
from gpuwatch.core.model.run import Run
from gpuwatch.share.reports.formats.gpu_graphs import period_graphs
from gpuwatch.share.reports.formats.memory_charts import profile_memory_chart, run_memory_chart
from gpuwatch.share.reports.literal_commands import command_to_paste, split_commands
from gpuwatch.share.reports.report_by_document_kind import content_of
from gpuwatch.share.reports.report_elements import GLYPHS
from gpuwatch.share.reports.report_text import sentence_case

_BREAK_POINTS = re.compile(r"(?<=\w[_=/,→.])(?=[^\s\d])")
_FOLDER = Path(__file__).parent
_SPACE_BEFORE_UNIT = re.compile(r"(?<=\d) (?=[KMGT]iB\b|%|m?s\b|W\b|°C)")
_SHORT_CELL_CHARS = 24
"""Characters of a cell whose amounts are kept on one line; sentences break anywhere."""
_SIGNS = {"●": " good", "▲": " warning", "✖": " error", "○": " none"}


def render(document: Document) -> str:
    """The document as one HTML file; everything from outside is escaped by the template engine."""
    runs = document.programs if isinstance(document, Diagnostic) else runs_in(document)
    content = content_of(document)
    charts = [] if isinstance(document, Run) else [run_memory_chart(run) for run in runs]
    script = _read_file("report.js")
    return _template().render(
        content=content,
        chart=run_memory_chart(document) if isinstance(document, Run) else None,
        part_charts=charts + [None] * (len(content.parts) - len(charts)),  # machines come after runs
        glyphs=GLYPHS,
        css=Markup(_colors() + _read_file("report.css")),  # noqa: S704  # a file of ours, or escaped
        document=Markup(embedded_in_html(document)),  # noqa: S704  # a file of ours, or escaped
        script=Markup(script),  # noqa: S704  # a file of ours, or escaped
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _colors() -> str:
    """The colors of states and quantities, as in the dashboard."""

    def rule(palette: Palette) -> str:
        colors = {"ok": palette.success, "warn": palette.warning, "bad": palette.error}
        colors |= {name: quantity_color(palette, name) for name in QUANTITIES}
        return ":root { " + " ".join(f"--{name}: {color};" for name, color in colors.items()) + " }\n"

    hue_rules = "".join(f".of-{name} {{ --hue: var(--{name}); }} " for name in QUANTITIES)
    dark = f"@media (prefers-color-scheme: dark) {{ {rule(DARK)}}}\n"
    return f"{rule(LIGHT)}{dark}@media print {{ {rule(LIGHT)}}}\n{hue_rules}\n"


def _read_file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _breakable(text: str) -> Markup:
    """Lets browsers break long names at separators, and commands nowhere; everything is escaped."""
    return _code(_unbroken_amounts(text) if len(text) <= _SHORT_CELL_CHARS else text, least=" ")


def _code(text: str, least: str = "") -> Markup:
    """Commands and settings with ``least`` in them as code, other text breakable at separators; everything escaped."""
    return Markup("").join(
        Markup("<code>{}</code>").format(piece)
        if code and least in piece
        else Markup("<wbr>").join(_BREAK_POINTS.split(piece))
        for piece, code in split_commands(text)
    )


def _sign_class(text: str) -> str:
    """The CSS class of cells that begin with a sign of state."""
    return _SIGNS.get(text[:1], "") if text[1:2] in (" ", "\u00a0") else ""


def _bar_position(amount: float, top: float) -> float:
    """Where an amount lies on a bar of 1000 units."""
    return min(max(amount / top, 0.0), 1.0) * 1000


def _unbroken_amounts(text: str) -> str:
    """Text with no line break between a number and its unit."""
    return _SPACE_BEFORE_UNIT.sub("\u00a0", text)


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["zip"] = zip
    environment.filters.update(breakable=_breakable, along=_bar_position, anchor=_anchor, sign=_sign_class)
    environment.filters.update(timeline=run_memory_chart, areas=profile_memory_chart, graphs=period_graphs)
    environment.filters.update(whole=_unbroken_amounts, code=_code, command=command_to_paste, sentence=sentence_case)
    return environment.get_template("report.html.jinja")
