"""What stands on a terminal after a program has written to it: just enough of one for our own output."""

from __future__ import annotations

import re

from gpuwatch.ui.drawing.text_width import width_of

_TOKEN = re.compile(
    r"\x1b\[(?P<csi>[0-9;?><$]*)(?P<final>[A-Za-z~])|\x1b\][^\x07]*\x07|\x1b[=>]|(?P<text>[^\x1b])", re.DOTALL
)


class Screen:
    """Rows of cells. Colors are not kept."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self._x = self._y = 0

    def feed(self, output: bytes) -> Screen:
        for token in _TOKEN.finditer(output.decode("utf-8", "replace")):
            if token["final"] == "H":
                y, _, x = token["csi"].partition(";")
                self._y, self._x = int(y or 1) - 1, int(x or 1) - 1
            elif token["final"] == "B":
                self._y += int(token["csi"] or 1)
            elif token["text"] == "\b":
                self._x -= 1
            elif token["text"] == "\n":
                self._y, self._x = self._y + 1, 0
            elif token["text"] is not None and token["text"] >= " ":
                self._put(token["text"])
        return self

    def _put(self, char: str) -> None:
        if 0 <= self._y < len(self.cells) and 0 <= self._x < self.columns:
            self.cells[self._y][self._x] = char
        self._x += max(width_of(char), 1)

    @property
    def rows(self) -> list[str]:
        return ["".join(row) for row in self.cells]
