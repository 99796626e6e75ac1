"""The confirmation before probes start: what they will use, who is on the GPU, what is at risk."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import UNKNOWN, memory, size
from gpuwatch.session.preflight import Preflight
from gpuwatch.ui.drawing.cells import cut, left, right
from gpuwatch.ui.drawing.wrapping import Lines, wrapped
from gpuwatch.ui.screens.choice_sheet import ChoiceModal
from gpuwatch.ui.tables.columns import short_command

_MOST = 6
"""Maximum programs listed; more are counted."""
_NAMED = 4
"""Maximum configurations named; more are counted."""
_CANCEL, _RUN = 0, 1


class PreflightSheet(ChoiceModal[bool]):
    """Result True: run. Enter cancels unless the cursor was moved; ``y`` runs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "run", "run", show=False),
        Binding("n", "close", "cancel", show=False),
    ]

    def __init__(self, ahead: Preflight, seconds: float, width: int) -> None:
        """``seconds``: the time budget of each measurement."""
        room = min(width * 9 // 10, 104) - 4
        count = len(ahead.configs)
        what = printable(ahead.configs[0] if count == 1 else f"{count} configurations")
        lines = [part for line in _facts(ahead, seconds, room) for part in wrapped(line, room)]
        lines += [[], [("   Cancel", "strong"), ("  start nothing", "dim")]]
        lines.append([("   Run   ", "strong"), (f"  {what}  (y)", "dim")])
        super().__init__(f"Run {what}?", lines, ("starts nothing", f"runs {what}"), _CANCEL)

    def take(self, number: int) -> None:
        """Runs, or cancels."""
        self.dismiss(number == _RUN)

    def action_run(self) -> None:
        """Runs without moving the cursor first."""
        self.dismiss(True)


def _facts(ahead: Preflight, seconds: float, room: int) -> Lines:
    names = _listed(ahead.configs)
    lines: Lines = [[(" runs     ", "dim"), (f"{names}; one after another, {seconds:g} s each", "text")]]
    if not ahead.devices:
        lines.append([(" on       ", "dim"), ("the CPU: no GPU is available", "text")])
        return lines
    lines.append(
        [(" on       ", "dim"), ("; ".join(f"GPU {one.index} {printable(one.name)}" for one in ahead.devices), "text")]
    )
    if ahead.spared:
        spared = ", ".join(f"GPU {device.index}" for device in ahead.spared)
        lines.append([("          ", "dim"), (f"{spared} is not used: it is busy", "dim")])
    if ahead.by_number:
        chooses = "select their GPUs themselves" if len(ahead.by_number) > 1 else "selects its GPUs itself"
        lines.append([("          ", "dim"), (f"{_listed(ahead.by_number)} {chooses}", "dim")])
    free = ", ".join(f"{size(one.number('memory.free_bytes'))} of GPU {one.index}" for one in ahead.devices)
    takes = f"up to all free memory: {free}; less with growth, a limit or a fraction"
    lines.append([(" takes    ", "dim"), (takes, "text")])
    if not ahead.tenants:
        lines.append([(" used by  ", "dim"), ("no compute process", "ok")])
        return lines
    programs = {(process.pid, process.create_time) for process in ahead.tenants}
    held = size(ahead.held_bytes) if ahead.held_bytes is not None else "an unknown amount of memory"
    count = f"{len(programs)} program{'s' * (len(programs) != 1)}, holding {held}"
    lines.append([(" used by  ", "dim"), (count, "warning")])
    for process in ahead.tenants[:_MOST]:
        user = left(printable(process.user) if process.user else UNKNOWN, 9)
        held_here = right(memory(process.number("gpu_memory_bytes")), 10)
        begin = f"  {right(str(process.pid), 9)}  "
        rest = f"{user} GPU {process.device_index} {held_here}  {short_command(process)}"
        lines.append([(begin, "strong"), (cut(rest, room - len(begin)), "text")])
    if len(ahead.tenants) > _MOST:
        lines.append([(f"  and {len(ahead.tenants) - _MOST} more", "dim")])
    risk = (
        "they keep the memory they hold, but while a probe holds the rest they can run out of memory when they "
        "request more; all of them run slower"
    )
    lines.append([(" ▲ at risk ", "warning"), (risk, "text")])
    return lines


def _listed(names: tuple[str, ...]) -> str:
    """The first ones by name, the rest as a number."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(printable(name) for name in names[:_NAMED]) + more
