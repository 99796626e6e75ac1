"""HTML: one file that opens offline, in light and dark, on screen and on paper."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from gpuwatch.model.codec import Document
from gpuwatch.model.run import Comparison, Run
from gpuwatch.reports.content import GLYPHS
from gpuwatch.reports.document import content_of
from gpuwatch.reports.formats.chart import memory_chart

_BREAKS = re.compile(r"(?<=\w[_=/,→.])(?=[^\s\d])")
_HERE = Path(__file__).parent


def render(document: Document) -> str:
    """The document as one HTML file; everything from outside is escaped by the template engine."""
    runs = document.runs if isinstance(document, Comparison) else (document,) if isinstance(document, Run) else ()
    charts = [memory_chart(run) for run in runs]
    is_comparison = isinstance(document, Comparison)
    return _template().render(
        content=content_of(document),
        chart=None if is_comparison or not charts else charts[0],
        part_charts=charts if is_comparison else [],
        glyphs=GLYPHS,
        css=Markup((_HERE / "report.css").read_text(encoding="utf-8")),
    )


def _breakable(text: str) -> Markup:
    """Lets a browser break long names where a reader would; the parts are escaped."""
    return Markup("<wbr>").join(_BREAKS.split(text))


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = _breakable
    return environment.get_template("report.html.jinja")
