"""The panel shown instead of GPUs: waiting for the driver, or why there are none."""

from __future__ import annotations

import textwrap

from gpuwatch.core.model.driver_advice import TRY_SIMULATED_GPUS
from gpuwatch.core.safe_text import printable
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.line_builder import LineBuilder, with_border
from gpuwatch.ui.drawing.styled_lines import Line, Span
from gpuwatch.ui.panes.verdict import why_no_gpus
from gpuwatch.ui.settings.tabs import number_of

SIMULATED_GPUS = "2x24GiB"
_GPU_SOURCES = ("nvml", "driver", "gpu", "collector")


def no_gpu_height(view: View, width: int) -> int:
    """Lines the whole text needs inside the frame."""
    return len(_content(view, width)[2])


def no_gpu_lines(view: View, width: int, height: int, *, keys: bool = True) -> list[Line]:
    """A framed panel of exactly ``height`` lines; the hint on simulated GPUs is never cut.

    ``keys``: whether the keys of the Overview work there; else its tab is named too.
    """
    title, style, body = _content(view, width, keys=keys)
    room = height - 2
    if len(body) > room and view.snapshot is not None:
        body = [*_with_ellipsis(body[: max(room - 1, 0)]), body[-1]]
    lines = [LineBuilder(width - 4).add("  ").add_spans(line).line() for line in body]
    return with_border(lines, width, height, title=[(title, style)])


def _content(view: View, width: int, *, keys: bool = True) -> tuple[str, str, list[list[Span]]]:
    inner = max(width - 6, 10)
    snapshot = view.snapshot
    if snapshot is None or view.waiting:
        return _waiting(view, inner)
    body: list[list[Span]] = []
    title, style = why_no_gpus(snapshot)[1], "strong"
    problems = [p for p in snapshot.problems if any(word in p.source.lower() for word in _GPU_SOURCES)]
    for problem in problems or snapshot.problems:
        _add_wrapped(body, "✖ ", "error", printable(problem.detail), inner)
        _add_wrapped(body, "  → ", "accent", printable(problem.hint.removesuffix(TRY_SIMULATED_GPUS)), inner)
    if not body:
        body.append([("– ", "dim"), ("The driver responds but lists no GPU.", "text")])
    if view.simulated:
        return title, style, body
    if offers_simulation(view):
        named: list[Span] = [] if keys else [(f"{number_of('overview')} Overview", "key"), (", then ", "dim")]
        named += [("s", "key"), (f" simulated GPUs (--sim {SIMULATED_GPUS})   ", "dim")]
        body.append([*named, ("d", "key"), (" doctor: every check", "dim")])
    else:
        body.append([("With simulated GPUs:  ", "dim"), (f"gpuwatch --sim {SIMULATED_GPUS}", "key")])
    return title, style, body


def offers_simulation(view: View) -> bool:
    """Whether there is no GPU, on this machine and now, so that the panel offers simulated ones and the doctor."""
    known = view.snapshot is not None and not view.waiting
    return known and view.own_machine and view.position is None and not (view.devices or view.simulated)


def _with_ellipsis(lines: list[list[Span]]) -> list[list[Span]]:
    """Lines of a text that goes on: the last word gives way to an ellipsis."""
    if not lines or not lines[-1]:
        return lines
    *spans, (text, style) = lines[-1]
    return [*lines[:-1], [*spans, (f"{text.rpartition(' ')[0]} …", style)]]


def _waiting(view: View, inner: int) -> tuple[str, str, list[list[Span]]]:
    """What gpuwatch is waiting for, since when, and what works in the meantime."""
    status = view.status
    if status.state != "not-answering":
        return "starting", "dim", [[("◌ ", "accent"), ("querying the driver for GPUs…", "text")]]
    since = clock_text(view.now - status.waiting_seconds)
    who = "the driver has not answered"
    if status.collector_fault:
        who = f"no answer: the collector process {printable(status.collector_fault)}"
    body: list[list[Span]] = []
    _add_wrapped(body, "✖ ", "error", f"{who} for {status.waiting_seconds:.0f} s, since {since}", inner)
    if status.detail:
        body.append([("  " + printable(status.detail), "dim")])
    if status.machine is not None:
        meanwhile = "host and processes are shown meanwhile; GPUs appear as soon as it answers"
        _add_wrapped(body, "→ ", "accent", meanwhile, inner)
    if not status.collector_fault:
        hint = "if this lasts: check dmesg for Xid or NVRM lines, and whether nvidia-smi hangs as well"
        if view.simulated:
            hint = "a fault makes the simulated driver hang; to end it: gpuwatch sim fault clear"
        _add_wrapped(body, "→ ", "accent", hint, inner)
    return "waiting for the driver: GPUs unknown", "strong", body


def _add_wrapped(body: list[list[Span]], lead: str, style: str, text: str, inner: int) -> None:
    """Adds a sentence, wrapped; ``lead`` begins its first line."""
    for number, part in enumerate(textwrap.wrap(text, inner - len(lead))):
        body.append([(lead if not number else " " * len(lead), style), (part, "text")])
