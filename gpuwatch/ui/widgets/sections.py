"""A list of titled sections, with lines wrapped to its width."""

from __future__ import annotations

from gpuwatch.ui.drawing.pen import Pen
from gpuwatch.ui.drawing.wrapping import Lines, wrapped
from gpuwatch.ui.widgets.scroll_list import ScrollList


class Sections(ScrollList):
    """A list without a cursor."""

    def __init__(self, title: str, *, id: str) -> None:
        super().__init__(title, cursor=False, id=id)
        self._wrapped: Lines = []
        self.places: dict[str, int] = {}
        """Line number where each section begins."""

    def show_sections(self, sections: list[tuple[str, Lines]], *, stale: bool) -> None:
        """Shows sections, each under its title."""
        self._wrapped = []
        room = max(self.inner - 2, 10)
        self.places = {}
        for title, lines in sections:
            if self._wrapped:
                self._wrapped.append([])
            self.places[title] = len(self._wrapped)
            self._wrapped.append([(title, "title")])
            self._wrapped += [part for line in lines for part in wrapped(line, room)]
        self.set_lines([Pen(self.inner).add(" ").write(line).line() for line in self._wrapped], stale=stale)

    def go(self, title: str) -> None:
        """Scrolls to the beginning of a section."""
        self.top = self.places.get(title, 0)
        self.redraw()
