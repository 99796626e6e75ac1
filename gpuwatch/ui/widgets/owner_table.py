"""The table of owners, which are users or jobs, with the totals of their processes: shown instead of these."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gpuwatch.core.formatting.units import UNKNOWN, gib, short_gib, whole_number
from gpuwatch.core.safe_text import printable
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.line_builder import LineBuilder, filtered_title
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.drawing.text_width import align_left, align_right, cut_to_width, width_of
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.tables.owner_totals import NO_JOB, Total, job_of, totals, unexplained_total, user_of
from gpuwatch.ui.tables.process_columns import job_text
from gpuwatch.ui.tables.process_filter import ProcessFilter
from gpuwatch.ui.tables.process_table_rows import unexplained_memory
from gpuwatch.ui.widgets.scroll_list import ItemList
from gpuwatch.ui.widgets.scrolling_pane import TypeAhead

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class _Columns:
    """Widths of the columns; ``gpu``: of one GPU."""

    user: int
    memory: int
    cpu: int
    host: int
    gpu: int

    @property
    def fixed_cells(self) -> int:
        """Cells of everything but the GPU columns."""
        return 2 + self.user + 1 + 5 + self.memory + self.cpu + self.host


_WIDE = _Columns(16, 11, 9, 10, 10)
_USUAL = _Columns(11, 11, 9, 10, 10)
_TIGHT = _Columns(9, 8, 6, 7, 5)
"""GPU columns in GiB without unit; without decimals from 10 GiB."""


class OwnerTable(ItemList[Total]):
    """One line for each user or job; Enter shows its processes."""

    BINDINGS = bindings("users")

    by_job = False
    _view: View | None = None
    _filter: ProcessFilter | None = None

    def __init__(self, title: str = "", *, id: str | None = None) -> None:
        super().__init__(title, id=id)
        self._type_ahead = TypeAhead()

    @property
    def item_under_cursor(self) -> Total | None:
        """The user or job under the cursor; None on unexplained memory."""
        total = super().item_under_cursor
        return total if total is not None and total.name != "" else None

    def show(self, view: View, wanted: ProcessFilter | None, *, framed: bool) -> None:
        """Sums up the processes of ``view`` that match a filter; the cursor stays with its user."""
        self._view, self._filter, self.framed = view, wanted, framed
        rows = tuple(row for row in view.processes if wanted is None or wanted(row, view.moment))
        sums = totals(rows, job_of if self.by_job else user_of)
        if wanted is None:
            unexplained = unexplained_memory(view.snapshot) if view.snapshot is not None else None
            if unexplained is not None:
                sums.append(unexplained_total(unexplained.parts))
        self.set_items(sums, lambda total: total.name)

    def move(self, where: str) -> None:
        """As in any list; what is typed next begins a name."""
        self._type_ahead.forget()
        super().move(where)

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Letters are no keys of a replay here, whose keys else come first."""
        return character is not None and character.isalpha()

    def find(self, char: str | None) -> str | None:
        """Goes to the name that was typed; returns what to say of it. None: the character, None for none, is a key."""
        if not char or not (char.isalnum() or self._type_ahead.continues_name(char)):
            return None
        names = [printable(total.name or "") for total in self.items]
        found = self._type_ahead.find_line(names, char, self.cursor or 0)
        if found is not None:
            self.put_cursor(found)
            self.rebuild()
            return ""
        if (char == "u" and not self._type_ahead.text) or not self._type_ahead.continues_name(char):
            return None
        return f"no {'job' if self.by_job else 'user'} begins with “{char}”; Esc leaves"

    def rebuild(self) -> None:
        view = self._view
        if view is None:
            return
        count = sum(total.name not in (None, "", NO_JOB) for total in self.items)
        owner, title = ("job", "Jobs") if self.by_job else ("user", "Users")
        self.note = f" {count} {owner}{'s' * (count != 1)}, by GPU memory "
        typed = cut_to_width(printable(self._filter.text), self.inner_width // 3) if self._filter is not None else None
        self.title = filtered_title(title, typed)
        indices = [device.index for device in view.devices]
        usual = _WIDE if self.inner_width >= 100 else _USUAL
        choices = (usual, _TIGHT) if indices else ()
        fits = [columns for columns in choices if columns.fixed_cells + len(indices) * columns.gpu <= self.inner_width]
        fits_in_words = all(_gpu_amounts(total)[1] <= self.inner_width - usual.fixed_cells - 2 for total in self.items)
        if fits == [_TIGHT] and fits_in_words:
            fits = []
        columns = fits[0] if fits else usual if fits_in_words else _TIGHT
        heads = ["  ", align_left(owner.upper(), columns.user + 1), align_right("PROCS", 5)]
        heads += [align_right("GPU-MEM", columns.memory)] if indices else []
        heads += [align_right("CPU%", columns.cpu), align_right("HOST", columns.host)]
        gpus = [align_right(f"GPU{'' if columns is _TIGHT else ' '}{index}", columns.gpu) for index in indices]
        heads += gpus if fits else ["  ON GPU"] * bool(indices)
        head = LineBuilder(self.inner_width).add("".join(heads), "header")
        self.head = [head.fill_to(self.inner_width, style="header").line()]
        lines = [self._line(total, indices, columns, side_by_side=bool(fits)) for total in self.items]
        self.set_lines(lines or [Line((("  no process uses a GPU", "dim"),))], stale=view.stale)

    def _label_of(self, total: Total, width: int) -> str:
        if total.name is None:
            return UNKNOWN
        return job_text(total.name, width) if self.by_job and total.name != NO_JOB else printable(total.name)

    def _line(self, total: Total, indices: list[int], columns: _Columns, *, side_by_side: bool) -> Line:
        builder = LineBuilder(self.inner_width)
        is_unexplained = total.name == ""
        name = "unexplained" if is_unexplained else self._label_of(total, columns.user)
        style = "warning" if is_unexplained else "strong" if total.name else "dim"
        builder.add("  ").add(align_left(cut_to_width(name, columns.user), columns.user + 1), style)
        builder.add(align_right("" if is_unexplained else str(total.processes), 5), "text")
        format_memory = short_gib if columns is _TIGHT else gib
        format_gpu = (lambda value: _short_memory(value).removesuffix("G")) if columns is _TIGHT else gib
        format_total = _short_memory if columns is _TIGHT and (total.memory.value or 0) >= 100 * _GIB else format_memory
        if indices:
            builder.add(align_right(total.memory.shown(format_total), columns.memory), "strong")
        cpu = "" if is_unexplained else total.cpu.shown(partial(whole_number, width=1))
        builder.add(align_right(cpu, columns.cpu), "text")
        builder.add(align_right("" if is_unexplained else total.host_memory.shown(format_memory), columns.host), "dim")
        if side_by_side:
            for index in indices:
                held = total.by_gpu.get(index)
                text = held.shown(format_gpu) if held is not None else "·"
                builder.add(align_right(text, columns.gpu), "memory" if held is not None else "faint")
        elif indices:
            _add_gpus(builder.add("  "), total)
        return builder.fill_to(self.inner_width).line()


def _gpu_amounts(total: Total) -> tuple[list[tuple[str, str]], int]:
    """A user's GPUs with the memory held on each, and the cells they need."""
    in_words = [(f"GPU {index}: ", total.by_gpu[index].shown(gib)) for index in sorted(total.by_gpu)]
    return in_words, sum(width_of(name + text) + 2 for name, text in in_words) - 2


def _add_gpus(builder: LineBuilder, total: Total) -> None:
    """A user's GPUs in one line: all in words, or those with most memory and the number of others."""
    in_words, cells = _gpu_amounts(total)
    if cells <= builder.cells_left:
        shown = in_words
    else:
        shown = [(f"{index}:", total.by_gpu[index].shown(_short_memory)) for index in sorted(total.by_gpu)]
        by_memory = sorted(total.by_gpu, key=lambda index: (-total.by_gpu[index].known, index))
        room, count = builder.cells_left, len(shown)
        while sum(width_of(name + text) + 1 for name, text in shown) > room and count > 1:
            count -= 1
            room = builder.cells_left - len(f"+{len(by_memory) - count} more")
            shown = [(f"{index}:", total.by_gpu[index].shown(_short_memory)) for index in sorted(by_memory[:count])]
    for number, (name, text) in enumerate(shown):
        builder.add(" " * (number > 0) * (1 + (shown is in_words))).add(name, "dim").add(text, "memory")
    if len(shown) < len(in_words):
        builder.add(f" +{len(in_words) - len(shown)} more", "dim")


def _short_memory(value: float | None) -> str:
    """Like :func:`short_gib`, without decimals from 10 GiB."""
    return short_gib(value) if value is None or value < 10 * _GIB else f"{value / _GIB:.0f}G"
