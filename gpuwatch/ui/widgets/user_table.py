"""Totals by user, in the place of the processes."""

from __future__ import annotations

from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import UNKNOWN, gib, short_size
from gpuwatch.ui.actions import bindings
from gpuwatch.ui.cells import cut, left, right
from gpuwatch.ui.filtering import Filter
from gpuwatch.ui.rows import NOTABLE_UNEXPLAINED
from gpuwatch.ui.totals import Total, totals, unexplained
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.listed import Listed
from gpuwatch.ui.widgets.paint import Line
from gpuwatch.ui.widgets.pen import Pen

_USER = (11, 16)
_GPU = 9
"""Cells of one GPU's memory."""


class UserTable(Listed):
    """One line for each user; Enter shows the user's processes."""

    BINDINGS = bindings("users")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("Users", cursor=True, id=id)
        self._view: View | None = None
        self._filter: Filter | None = None
        self._totals: list[Total] = []
        self.headed = False

    @property
    def chosen(self) -> Total | None:
        """The user under the cursor; None on memory that is nobody's."""
        place = self.cursor or 0
        one = self._totals[place] if place < len(self._totals) else None
        return one if one is not None and one.user != "" else None

    def show(self, view: View, wanted: Filter | None, *, framed: bool) -> None:
        """Sums up the processes of ``view`` that a filter keeps; the cursor stays with its user."""
        before = self.chosen.user if self.chosen is not None and self.cursor else None
        self._view, self._filter, self.framed = view, wanted, framed
        rows = view.snapshot.processes if view.snapshot is not None else ()
        self._totals = totals(row for row in rows if wanted is None or wanted(row))
        if wanted is None:
            amounts = [
                (device.index, amount)
                for device in view.devices
                if (amount := device.number("memory.unexplained_bytes")) is not None and amount >= NOTABLE_UNEXPLAINED
            ]
            if amounts:
                self._totals.append(unexplained(amounts))
        for place, one in enumerate(self._totals):
            if before is not None and one.user == before:
                self.cursor = place
        self.refill()

    def refill(self) -> None:
        """Columns follow the width."""
        view = self._view
        if view is None:
            return
        users = sum(one.user not in (None, "") for one in self._totals)
        self.note = f" {users} user{'s' * (users != 1)}, by memory of GPUs "
        if self._filter is not None:
            self.title = [("Users", "title"), (" ─ ", "border"), ("/ ", "key")]
            self.title.append((cut(printable(self._filter.text), self.inner // 3), "strong"))
        else:
            self.title = [("Users", "title")]
        indices = [device.index for device in view.devices]
        wide = self.inner >= 100
        user = _USER[wide]
        fixed = 2 + user + 1 + 6 + 10 + 9 + 8
        side_by_side = bool(indices) and fixed + len(indices) * _GPU <= self.inner
        pen = Pen(self.inner)
        pen.add("  ", "header").add(left("USER", user + 1), "header").add(right("PROCS", 5), "header")
        if indices:
            pen.add(right("GPU-MEM", 11), "header")
        pen.add(right("CPU%", 9), "header").add(right("HOST", 8), "header")
        if side_by_side:
            for index in indices:
                pen.add(right(f"GPU {index}", _GPU), "header")
        elif indices:
            pen.add("  ON GPU", "header")
        self.head = [pen.to(self.inner, ink="header").line()]
        lines = [self._line(one, indices, user, side_by_side) for one in self._totals]
        self.set_lines(lines or [Line((("  nobody uses a GPU", "dim"),))], stale=view.stale)

    def marked(self, line: Line) -> Line:
        """The chosen line has the mark of the process table."""
        if not self._totals:
            return line
        _, *rest = line.spans
        mark = ("▶ ", "focus" if self.has_focus else "dim")
        return super().marked(Line((mark, *rest)))

    def _line(self, one: Total, indices: list[int], user: int, side_by_side: bool) -> Line:
        pen = Pen(self.inner)
        nobody = one.user == ""
        name = "unexplained" if nobody else printable(one.user) if one.user is not None else UNKNOWN
        pen.add("  ").add(left(cut(name, user + 1), user + 1), "warning" if nobody else "strong" if one.user else "dim")
        pen.add(right("" if nobody else str(one.processes), 5), "text")
        if indices:
            pen.add(right(one.memory.told(_gigabytes), 11), "strong")
        pen.add(right("" if nobody else one.cpu.told(_percent), 9), "text")
        pen.add(right("" if nobody else one.host.told(short_size), 8), "dim")
        if side_by_side:
            for index in indices:
                held = one.by_gpu.get(index)
                text = held.told(_gigabytes) if held is not None else "·"
                pen.add(right(text, _GPU), "memory" if held is not None else "faint")
        elif indices:
            pen.add("  ")
            told = [(index, one.by_gpu[index].told(_gigabytes)) for index in sorted(one.by_gpu)]
            long = sum(len(f"GPU {index}: {text}  ") for index, text in told) <= pen.left
            for index, text in told:
                pen.add(f"GPU {index}: " if long else f"{index}:", "dim").add(text, "memory").add("  ")
        return pen.to(self.inner).line()


def _gigabytes(value: float | None) -> str:
    return UNKNOWN if value is None else f"{gib(value)}G"


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"
