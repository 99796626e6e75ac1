"""Gathers the content of a diagnostic report; parts that are missing are listed with the reason."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable

import msgspec

from gpuwatch import __version__
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.diagnostic_report import Diagnostic, Excerpt, Gap
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.run import Run
from gpuwatch.explain.diagnosis.diagnostic_report import diagnostic_report
from gpuwatch.machine.history.saved_runs import RunStore, is_of_this_machine, newest_runs
from gpuwatch.machine.sources.nvidia_smi_and_kernel_log import kernel_log, nvidia_smi
from gpuwatch.machine.sources.system_and_driver_facts import job_and_platform_facts
from gpuwatch.session.doctor_input import examine_machine
from gpuwatch.session.snapshots import findings_of, take_snapshot
from gpuwatch.share.reports.runs_side_by_side import compare

DEADLINE_SECONDS = 10.0
"""Seconds the driver has to answer; the doctor has its own deadlines."""
MAX_PROGRAMS = 5
"""Number of the user's latest programs in a report."""
MAX_AGE = datetime.timedelta(days=30)
"""Older runs are left out: drivers, packages and programs change."""


def gather_diagnostic(
    python: str | None,
    framework: str | None,
    progress: Callable[[str], None],
    *,
    with_doctor: bool,
    files: tuple[tuple[str, Explanation], ...],
) -> Diagnostic:
    """Reads the machine, runs the doctor, reads saved runs.

    ``progress`` is called with each step, and with the empty string at the end. ``files``: names of given files, and
    their explanations.
    """
    taken_at, started = datetime.datetime.now(datetime.UTC), time.monotonic()
    missing: list[Gap] = []
    progress("reading the GPUs")
    snapshot, answered = take_snapshot(DEADLINE_SECONDS)
    if answered:
        snapshot = msgspec.structs.replace(snapshot, findings=findings_of(snapshot))
    else:
        missing.append(Gap(part="the machine now", why=snapshot.problems[0].detail))
    doctor = _run_doctor(python, framework, missing, progress) if with_doctor else None
    if not with_doctor:
        missing.append(Gap(part="doctor", why="left out with --no-doctor"))
    progress("reading saved runs")
    host = snapshot.host.hostname
    simulated = snapshot.simulated or (doctor is not None and doctor.simulated)
    programs, probes = _latest_runs(taken_at, host, simulated=simulated, missing=missing)
    surroundings, excerpts = job_and_platform_facts(os.environ), _excerpts(missing, progress, simulated=simulated)
    progress("")
    diagnostic = Diagnostic(
        taken_at=taken_at,
        took_seconds=time.monotonic() - started,
        gpuwatch_version=__version__,
        snapshot=snapshot if answered else None,
        doctor=doctor,
        programs=programs,
        probes=compare(probes) if probes else None,
        surroundings=surroundings,
        excerpts=(*excerpts, *(_explained_file(*named_file) for named_file in files)),
        missing=tuple(missing),
        simulated=simulated,
    )
    return diagnostic_report(diagnostic, why_no_snapshot="" if answered else snapshot.problems[0].detail, files=files)


def _run_doctor(
    python: str | None, framework: str | None, missing: list[Gap], progress: Callable[[str], None]
) -> Doctor | None:
    try:
        return examine_machine(python, framework, progress)
    except GpuwatchError as error:
        if python is not None:  # the user named the interpreter
            raise
        missing.append(Gap(part="doctor", why=f"{error.message}{f' ({error.hint})' if error.hint else ''}"))
    except Exception as error:  # noqa: BLE001 - reported as a gap: the other parts are still worth sending
        missing.append(Gap(part="doctor", why=f"it failed, a bug in gpuwatch: {type(error).__name__}: {error}"))
    return None


def _excerpts(missing: list[Gap], progress: Callable[[str], None], *, simulated: bool) -> tuple[Excerpt, ...]:
    """Output that supporters usually ask for; what is unavailable is added to ``missing``."""
    excerpts = []
    for name, read in (("nvidia-smi", nvidia_smi), ("kernel log", kernel_log)):
        if simulated:
            missing.append(Gap(part=name, why="left out: the GPUs are simulated"))
            continue
        progress(f"reading {name}")
        lines, why = read()
        if lines:
            excerpts.append(Excerpt(name=name, lines=lines))
        if why:
            missing.append(Gap(part=name, why=why))
    return tuple(excerpts)


def _explained_file(name: str, explanation: Explanation) -> Excerpt:
    """What a file says at its errors, or that nothing in it was recognized."""
    lines = [line for finding in explanation.findings for line in (finding.title, *finding.evidence)]
    lines += [error.message for error in explanation.errors if error.message not in lines]
    return Excerpt(name=name, lines=tuple(lines) or ("no problem recognized in this file",))


def _latest_runs(
    now: datetime.datetime, host: str | None, *, simulated: bool, missing: list[Gap]
) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """The latest programs and probes of this machine; what is left out is added to ``missing``."""
    store = RunStore()
    saved = store.latest()
    if store.why_untrusted:
        missing.append(Gap(part="saved runs", why=f"{store.folder} is not read: {store.why_untrusted}"))
    if store.unreadable:
        missing.append(
            Gap(part="saved runs", why=f"{count_text(store.unreadable, 'file')} in {store.folder} cannot be read")
        )
    recent = [run for run in saved if now - run.started_at <= MAX_AGE]
    of_this_machine = [run for run in recent if is_of_this_machine(run, host, simulated=simulated)]
    for count, why in (
        (len(saved) - len(recent), f"more than {MAX_AGE.days} days old"),
        (sum(run.simulated != simulated for run in recent), "of real GPUs" if simulated else "of simulated GPUs"),
        (sum(run.simulated == simulated for run in recent) - len(of_this_machine), "of other machines"),
    ):
        if count:
            missing.append(Gap(part="earlier runs", why=f"{count} {why}: left out"))
    programs, probes = newest_runs(of_this_machine, MAX_PROGRAMS)
    some_unread = bool(store.why_untrusted or store.unreadable)
    program_count = sum(run.is_program for run in saved)
    for part, runs, count, command in (
        ("programs", programs, program_count, "gpuwatch run -- python train.py"),
        ("probes", probes, len(saved) - program_count, "gpuwatch probe --group memory"),
    ):
        if not runs:
            missing.append(Gap(part=part, why=_why_none(count, command, some_unread=some_unread)))
    older = sum(run.is_program for run in of_this_machine) - len(programs)
    if older > 0:
        missing.append(Gap(part="programs", why=f"{older} older than the {len(programs)} shown: left out"))
    return programs, probes


def _why_none(count: int, command: str, *, some_unread: bool) -> str:
    """Why there are none, and the command that makes one."""
    if count:
        return f"none of the saved ones ({count}) is both recent and from this machine; to create one: {command}"
    return f"{'none could be read' if some_unread else 'this user has not saved any'}; to create one: {command}"
