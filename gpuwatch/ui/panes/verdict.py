"""Whether anything is wrong, in a few words: errors, warnings, notes, no GPU. Pure, no Textual."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.core.formatting.durations import rounded_duration
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.clock_event_reasons import BRAKE, THERMAL, clock_reasons
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import BAD_STATES, FAILED_ITSELF, Device, Snapshot
from gpuwatch.explain.diagnosis.conditions.gpu_faults import unreadable_metrics
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.styled_lines import Span
from gpuwatch.ui.tables.device_notes import throttled_text

_UNREMARKABLE = ("healthy", "throttle.power")
"""Causes of notes that nobody needs to know: a busy GPU is at its power limit."""
_NOTABLE_BYTES = 2**30
"""Unexplained bytes that the verdict ignores: contexts and the driver's own use."""


def verdict(view: View) -> Span:
    """Whether anything is wrong, in a few words with a glyph; while an earlier moment is shown, then and now.

    Never green while anything on screen is not: a machine that is healthy now does not make an earlier moment
    on screen healthy.
    """
    if view.live is None:
        return _verdict(view)
    (then, then_style), (now, now_style) = _verdict(view), _verdict(view.live)
    if then == now or not now:
        return (now, now_style) if now or then_style != "ok" else ("", "dim")
    if now_style == "ok":
        return (f"then {then}", then_style) if then_style != "ok" else (now, now_style)
    return f"now {now}", now_style


def _verdict(view: View) -> Span:
    snapshot = view.snapshot
    if snapshot is None or view.waiting:
        return "◌ starting", "dim"
    silent = view.status.state in ("not-answering", "stopped")
    # feed_state() shows silence.
    wrong = [finding for finding in view.errors_and_warnings if not (silent and finding is view.silent_driver)]
    errors = sum(f.severity == "error" for f in wrong)
    if not errors and not snapshot.devices and snapshot.problems:
        return f"✖ {why_no_gpus(snapshot)[0]}", "badge-error"
    if found := error_count_spans(errors, len(wrong) - errors or len(snapshot.problems)):
        return found[0]
    if not snapshot.devices:
        return "– no GPU", "dim"
    if silent:
        return "", "dim"  # feed_state() shows that the data are old
    well = next((finding.since for finding in view.findings if finding.id == "healthy" and finding.until is None), None)
    if _mostly_unexplained(snapshot.devices):
        return "▲ unexplained", "warning"  # the row below the processes shows how much and where
    if well is not None and any(throttled_text(device, view.findings) for device in snapshot.devices):
        return "▲ throttled", "warning"  # the card says why; a finding follows if it lasts
    if well is None and any(map(_looks_bad, snapshot.devices)):
        return "", "dim"  # a sample that is drawn before it is judged, or of which too little is known yet
    if noted := len(notable_notes(view.findings)):
        return f"● {count_text(noted, 'note')}", "text"
    lasted = snapshot.taken_at.timestamp() - max(well.timestamp(), view.last_problem_at) if well is not None else 0.0
    # In minutes: a count of seconds would be the one thing that moves on a calm screen.
    return f"● all well for {rounded_duration(lasted)}" if lasted >= 100 else "● all well", "ok"


def error_count_spans(errors: int, warnings: int) -> list[Span]:
    """``✖ 2 errors``, else ``▲ 1 warning``; empty if there is neither."""
    for count, word, glyph in ((errors, "error", "✖"), (warnings, "warning", "▲")):
        if count:
            return [(f"{glyph} {count_text(count, word)}", f"badge-{word}")]
    return []


def notable_notes(findings: Sequence[Finding]) -> list[Finding]:
    """Notes that somebody should know."""
    notes = (finding for finding in findings if finding.severity == "info" and finding.until is None)
    return [finding for finding in notes if finding.id not in _UNREMARKABLE]


def _looks_bad(device: Device) -> bool:
    """Whether its card shows something that is not well."""
    throttled = (clock_reasons(device) or frozenset()) & (THERMAL | BRAKE)
    unwell = device.number("ecc.uncorrected") or unreadable_metrics(device)
    return device.state in BAD_STATES or bool(throttled) or bool(unwell)


def _mostly_unexplained(devices: Sequence[Device]) -> bool:
    """Whether most of the used GPU memory, and a notable amount, is owned by no listed process."""
    used = sum(device.number("memory.used_bytes") or 0.0 for device in devices)
    unexplained = sum(device.number("memory.unexplained_bytes") or 0.0 for device in devices)
    return unexplained >= _NOTABLE_BYTES and unexplained > used / 2


_WHY_UNKNOWN = {
    "driver.missing": "no NVIDIA driver",
    "driver.mismatch": "the driver cannot be queried",
    "driver.bad-state": "the driver reports an error",
    "container.lost-devices": "the driver reports an error",
    FAILED_ITSELF: "gpuwatch could not query the driver",
}
"""By the reason of a problem, the most important first."""


def why_no_gpus(snapshot: Snapshot) -> tuple[str, str]:
    """Why no GPU is shown, in two words and as a title: the driver lists none, or GPUs are unknown."""
    if snapshot.driver is not None:
        return "no GPU", "no GPU on this machine"
    reasons = {problem.reason for problem in snapshot.problems}
    why = next((text for reason, text in _WHY_UNKNOWN.items() if reason in reasons), "the driver does not answer")
    return "no driver" if "driver.missing" in reasons else "GPUs unknown", f"{why}: GPUs unknown"
