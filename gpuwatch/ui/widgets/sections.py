"""Named sections below each other in one list, their lines folded to its width."""

from __future__ import annotations

from gpuwatch.ui.screens.lines_modal import Lines, wrapped
from gpuwatch.ui.widgets.listed import Listed
from gpuwatch.ui.widgets.paint import Line, Span
from gpuwatch.ui.widgets.pen import Pen


class Sections(Listed):
    """A list without a cursor."""

    def __init__(self, title: str, *, id: str) -> None:
        super().__init__(title, cursor=False, id=id)
        self._told: Lines = []
        self.places: dict[str, int] = {}
        """Line on which each section begins."""

    def tell(self, sections: list[tuple[str, Lines]], *, stale: bool) -> None:
        """Sections below each other, each under its name."""
        self._told = []
        room = max(self.inner - 2, 10)
        self.places = {}
        for title, lines in sections:
            if self._told:
                self._told.append([])
            self.places[title] = len(self._told)
            self._told.append([(title, "title")])
            self._told += [part for line in lines for part in wrapped(line, room)]
        self.set_lines([self._fitted(line) for line in self._told], stale=stale)

    def _fitted(self, line: list[Span]) -> Line:
        """Only the last part of a line is folded: what still is too long is cut."""
        pen = Pen(self.inner).add(" ")
        for text, ink in line:
            pen.add(text, ink)
        return pen.line()

    def go(self, title: str) -> None:
        """To the beginning of a section."""
        self.top = self.places.get(title, 0)
        self.redraw()
