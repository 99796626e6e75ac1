"""The diagnostic report in short: a line each for what a helper asks first."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files

from gpuwatch.formatting.text import shorten
from gpuwatch.formatting.units import size
from gpuwatch.model.diagnostic import Diagnostic, Told
from gpuwatch.model.doctor import STATE_ORDER, Doctor
from gpuwatch.model.findings import CAUSES
from gpuwatch.model.run import Comparison, Run
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.reports import run_content
from gpuwatch.reports.content import clean

_NAME = 60
_DOCTOR = "doctor"


def story(document: Diagnostic, main: Told | None) -> Iterator[tuple[str, str]]:
    """What a helper reads first, a line each."""
    doctor, snapshot = document.doctor, document.snapshot
    if main is not None and main.id != "healthy":
        yield "found in", ", ".join(short_command(clean(source)) for source in main.sources) + _where(main)
        yield "meaning", f"{_meaning(main.id)} All of it: gpuwatch cause {main.id}".strip()
    others = [found for found in document.findings if found is not main and found.severity != "info"]
    if others:
        yield "also", _also(others)
    apart = _apart(document, main)
    if apart:
        yield "besides", apart
    yield "GPUs", _gpus(snapshot)
    yield "driver", _driver(document)
    yield "framework", _framework(doctor)
    if doctor is not None:
        counts = {state: sum(check.state == state for check in doctor.checks) for state in STATE_ORDER}
        yield "checks", ", ".join(f"{counts[state]} {state}" for state in ("fail", "warn", "skip", "pass"))
        where = next((check.detail for check in doctor.checks if check.id == "container.kind"), "")
        if where and main is not None and main.id.startswith(("driver.", "container.")):
            yield "container", clean(where)
    if document.programs:
        run = document.programs[0]
        where = ", on other GPUs than those here now" if _elsewhere(run, snapshot) else ""
        ago = age(run, document.taken_at)
        yield "last program", f"{name_of(run)}, {_over(ago)}{where}: {ended(run, main)}"
    if document.probes is not None and document.probes.runs:
        own = "; each sets its own environment, not that of this shell" if _of_environment(main) else ""
        yield "probes", _probes(document.probes, document.taken_at, snapshot) + own


def _where(main: Told) -> str:
    """Whose environment it is that is wrong."""
    return ": the environment of this shell" if _of_environment(main) and main.sources[:1] == (_DOCTOR,) else ""


def _of_environment(main: Told | None) -> bool:
    return main is not None and main.id.startswith("visibility.")


def _meaning(cause: str) -> str:
    """The first paragraph of the page about it, for readers who have no gpuwatch."""
    path = files("gpuwatch") / "docs" / "causes" / f"{cause}.md"
    if cause not in CAUSES or not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8").partition("## What it is")[2].strip()
    return " ".join(text.split("\n\n", 1)[0].replace("`", "").split())


def _apart(document: Diagnostic, main: Told | None) -> str:
    """Libraries that would still be missing when the first problem is mended."""
    doctor = document.doctor
    if doctor is None or main is None or any(found.id.startswith("cuda.") for found in document.findings):
        return ""
    check = next((c for c in doctor.checks if c.id == "framework.libraries" and c.state == "fail"), None)
    return f"a second problem, {clean(check.title)}: {clean(check.action)}" if check is not None else ""


def _over(ago: str) -> str:
    return f"ended {ago}"


def _also(others: Sequence[Told]) -> str:
    counts = Counter((found.id, found.severity) for found in others)
    parts = [
        f"{cause} ({severity}{f', {count} times' if count > 1 else ''})" for (cause, severity), count in counts.items()
    ]
    return "; ".join(parts[:4]) + (f" and {len(parts) - 4} more" if len(parts) > 4 else "")


def _elsewhere(run: Run, snapshot: Snapshot | None) -> bool:
    """Whether it ran on other GPUs than those that are here now."""
    here = {device.uuid for device in snapshot.devices} if snapshot is not None else set()
    then = {text.rpartition(" ")[2] for text in run.gpus}
    return bool(here and then) and not here & then


def _gpus(snapshot: Snapshot | None) -> str:
    if snapshot is None:
        return "not looked at"
    names: dict[str, int] = {}
    for device in snapshot.devices:
        total = device.number("memory.total_bytes")
        name = clean(device.name) + (f" with {size(total)}" if total is not None else "")
        names[name] = names.get(name, 0) + 1
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in names.items()) or "none"


def _driver(document: Diagnostic) -> str:
    driver = document.snapshot.driver if document.snapshot is not None else None
    if driver is None:
        return "none answers" if document.snapshot is not None else "not looked at"
    return f"{clean(driver.version)}, CUDA up to {clean(driver.cuda_version)}"


def _framework(doctor: Doctor | None) -> str:
    if doctor is None or doctor.framework is None:
        return "not imported"
    it = doctor.framework
    build = f", built for CUDA {clean(doctor.versions['build_cuda'])}" if doctor.versions.get("build_cuda") else ""
    if it.gpu_build is False:
        build = ", built without GPU support"
    return f"{clean(it.name)} {clean(it.version)}{build}, Python {clean(it.python_version)}, {clean(it.interpreter)}"


def ended(run: Run, main: Told | None = None) -> str:
    """The verdict, and why; not what the top of the report, ``main``, says already."""
    if main is not None and clean(main.title).rstrip(".") in clean(run.verdict_reason):
        return f"{run.verdict} ({'with a warning, ' if run.verdict == 'ok' else ''}as told at the top)"
    reason = f" ({clean(run.verdict_reason).rstrip('.')})" if run.verdict_reason else ""
    return f"{run.verdict}{reason}"


def _probes(probes: Comparison, now: datetime.datetime, snapshot: Snapshot | None) -> str:
    counts: dict[str, int] = {}
    for run in probes.runs:
        name: str = run.verdict
        if run.verdict == "oom" and run.ooms and all(oom.expected for oom in run.ooms):
            name = "out of memory as expected"
        elif run.verdict == "ok" and run.ooms:
            name = "ok after an out-of-memory that was expected"
        elif run.verdict == "fallback" and run_content.expected_fallback(run):
            name = "fallback as expected"
        counts[name] = counts.get(name, 0) + 1
    newest = max(probes.runs, key=lambda run: run.started_at)
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    elsewhere = sum(_elsewhere(run, snapshot) for run in probes.runs)
    note = f"; {elsewhere} of them on other GPUs than those here now" if elsewhere else ""
    return f"{len(probes.runs)} configurations: {told}; the last {age(newest, now)}{note}"


def age(run: Run, now: datetime.datetime) -> str:
    """How long ago it ended."""
    seconds = (now - run.started_at).total_seconds() - (run.phases.total_seconds or 0.0)
    minutes = max(seconds, 0.0) / 60
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{minutes:.0f} min ago"
    return f"{minutes / 60:.0f} h ago" if minutes < 48 * 60 else f"{minutes / 1440:.0f} days ago"


def name_of(run: Run) -> str:
    """A program by its command line, a probe by its configuration."""
    if run.group != "run" or not run.title:
        return clean(run.config)
    return short_command(run.title)


def short_command(command: str) -> str:
    """``python train.py`` of ``/opt/venv/bin/python /home/…/train.py``: the whole line is in the part of the run."""
    words = [word if "=" in word or "://" in word else word.rpartition("/")[2] or word for word in command.split()]
    return shorten(clean(" ".join(words)), _NAME)
