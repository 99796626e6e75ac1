"""The confirmation before probes start: what they will use, who is on the GPU, what is at risk."""

from __future__ import annotations

from gpuwatch.core.formatting.safe_text import printable
from gpuwatch.core.formatting.units import UNKNOWN, gib, memory, size
from gpuwatch.machine.history.machine_event import gpu_list_text
from gpuwatch.session.probe_preflight import Preflight
from gpuwatch.ui.drawing.styled_lines import Span
from gpuwatch.ui.drawing.text_width import align_left, align_right, cut_to_width
from gpuwatch.ui.drawing.wrapping import Lines, wrap_line
from gpuwatch.ui.screens.choice_sheet import ChoiceModal
from gpuwatch.ui.tables.process_columns import short_command

_GROW_OR_LIMIT = frozenset(
    ["growth", "growth-env", "grow-to-limit", "growth-and-limit", "limit", "session-growth", "session-grow-to-limit"]
)
"""Probes that do not reserve all free memory."""
_MAX_PROGRAMS = 6
"""Maximum programs listed; more are counted."""
_MAX_CONFIGURATIONS = 4
"""Maximum configurations named; more are counted."""
_RUN = 1


class PreflightSheet(ChoiceModal[bool]):
    """Result True: run. Enter cancels unless the cursor was moved; ``y`` runs."""

    def __init__(self, ahead: Preflight, seconds: float, width: int) -> None:
        """``seconds``: the time budget of each measurement."""
        room = min(width * 9 // 10, 104) - 4
        count = len(ahead.configs)
        what = printable(ahead.configs[0] if count == 1 else f"{count} configurations")
        lines = [part for line in _facts(ahead, seconds, room) for part in wrap_line(line, room)]
        choices = (("Cancel", "start nothing", "starts nothing"), ("Run", what, f"runs {what}"))
        super().__init__(f"Run {what}?", [*lines, []], choices, _RUN)

    def take(self, number: int) -> None:
        self.dismiss(number == _RUN)


def _facts(ahead: Preflight, seconds: float, room: int) -> Lines:
    """Who is on the GPU, what the probes take, what is at risk: a line each; then the programs and exceptions."""
    count = len(ahead.configs)
    each = f"{seconds:g} s of measuring" + (" each" if count > 1 else "")
    names = _listed(ahead.configs)
    if not ahead.devices:
        takes = f"{names}: {each}, on the CPU"
        return [
            _line("on the GPU", "no GPU is available: the probes run on the CPU", "text"),
            _line("takes", takes, "text"),
            _line("at risk", "nothing on a GPU", "ok"),
        ]
    programs = {(process.pid, process.create_time) for process in ahead.tenants}
    lines: Lines = [
        _line("on the GPU", f"{_gpus(ahead)}: {_users(ahead, len(programs))}", "warning" if programs else "ok"),
        _line("takes", _taken(ahead), "text"),
    ]
    if programs:
        risk = "the other programs can run out of memory if they request more meanwhile; all run slower"
        lines.append(_line("▲ at risk", risk, "warning"))
    else:
        lines.append(_line("at risk", "nothing: no other compute program is there", "ok"))
    notes = [f"runs {names}; {'one by one, ' if count > 1 else ''}{each}"]
    if ahead.spared:
        are = "are not used: they are" if len(ahead.spared) > 1 else "is not used: it is"
        notes.append(f"{gpu_list_text(device.index for device in ahead.spared)} {are} busy")
    if ahead.by_number:
        chooses = "select their GPUs themselves" if len(ahead.by_number) > 1 else "selects its GPUs itself"
        notes.append(f"{_listed(ahead.by_number)} {chooses}")
    lines.append([])
    for process in ahead.tenants[:_MAX_PROGRAMS]:
        user = align_left(printable(process.user) if process.user else UNKNOWN, 9)
        held_here = align_right(gib(process.number("gpu_memory_bytes")), 10)
        begin = f"  {align_right(str(process.pid), 9)}  "
        rest = f"{user} GPU {process.device_index} {held_here}  {short_command(process)}"
        lines.append([(begin, "strong"), (cut_to_width(rest, room - len(begin)), "text")])
    if len(ahead.tenants) > _MAX_PROGRAMS:
        lines.append([(f"  and {len(ahead.tenants) - _MAX_PROGRAMS} more", "dim")])
    return lines + [[(" · ", "dim"), (note, "dim")] for note in notes]


def _line(name: str, text: str, ink: str) -> list[Span]:
    return [(align_left(f" {name}", 13), "warning" if name.startswith("▲") else "dim"), (text, ink)]


def _gpus(ahead: Preflight) -> str:
    devices = ahead.devices
    if len(devices) == 1:
        return f"GPU {devices[0].index} {printable(devices[0].name)}"
    return f"GPUs {', '.join(str(device.index) for device in devices)}"


def _users(ahead: Preflight, count: int) -> str:
    if not count:
        return "no compute process"
    held = memory(ahead.held_bytes) if ahead.held_bytes is not None else "an unknown amount of memory"
    return f"{count} program{'s' * (count != 1)}, holding {held}"


def _taken(ahead: Preflight) -> str:
    grows = sum(config in _GROW_OR_LIMIT for config in ahead.configs)
    most = "what it needs, of the free" if grows == len(ahead.configs) else "up to all free"
    if len(ahead.devices) > 2:
        free = [device.number("memory.free_bytes") for device in ahead.devices]
        known = [amount for amount in free if amount is not None]
        total = f"{size(sum(known))} of {len(free)} GPUs" if len(known) == len(free) else f"of {len(free)} GPUs"
        return f"{most}: {total}"
    free_of = ", ".join(f"{size(device.number('memory.free_bytes'))} of GPU {device.index}" for device in ahead.devices)
    return f"{most}: {free_of}"


def _listed(names: tuple[str, ...]) -> str:
    """The first ones by name, the rest as a number."""
    more = f" and {len(names) - _MAX_CONFIGURATIONS} more" if len(names) > _MAX_CONFIGURATIONS else ""
    return ", ".join(printable(name) for name in names[:_MAX_CONFIGURATIONS]) + more
