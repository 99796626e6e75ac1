"""Everything that a diagnostic report is made of, gathered; what cannot be is named with its reason."""

from __future__ import annotations

import datetime
import sys
import time

import msgspec

from gpuwatch import __version__
from gpuwatch.cli.dashboard import findings
from gpuwatch.cli.doctor import examined
from gpuwatch.cli.options import progress_wanted
from gpuwatch.cli.snapshot import take
from gpuwatch.diagnosis.diagnostic import Looks, diagnostic, newest, of_this_machine
from gpuwatch.errors import GpuwatchError
from gpuwatch.history.runs import RunStore
from gpuwatch.model.diagnostic import Diagnostic, Gap
from gpuwatch.model.doctor import Doctor
from gpuwatch.model.run import Run
from gpuwatch.reports.compare import compare

DEADLINE = 10.0
"""Seconds that the driver has to answer; the doctor has deadlines of its own."""
PROGRAMS = 5
"""Of the user's own programs, so many of the latest."""
OLDEST = datetime.timedelta(days=30)
"""Runs of longer ago tell of another machine: drivers, packages and programs change."""


def gather(python: str | None, framework: str | None, *, with_doctor: bool = True) -> Diagnostic:
    """Looks at the machine, asks the doctor, reads the runs that were kept."""
    taken_at, started = datetime.datetime.now(datetime.UTC), time.monotonic()
    missing: list[Gap] = []
    _say("looking at the GPUs")
    snapshot, answered = take(DEADLINE)
    if answered:
        snapshot = msgspec.structs.replace(snapshot, findings=findings(snapshot))
    else:
        missing.append(Gap(part="the machine now", why=snapshot.problems[0].detail))
    doctor = _doctor(python, framework, missing) if with_doctor else None
    if not with_doctor:
        missing.append(Gap(part="doctor", why="left out with --no-doctor"))
    _say("reading the runs that were kept")
    host = snapshot.host.hostname
    simulated = snapshot.simulated or (doctor is not None and doctor.simulated)
    programs, probes = _runs(taken_at, host, simulated=simulated, missing=missing)
    _say("")
    looks = Looks(
        taken_at=taken_at,
        took_seconds=time.monotonic() - started,
        version=__version__,
        snapshot=snapshot if answered else None,
        silent="" if answered else snapshot.problems[0].detail,
        doctor=doctor,
        programs=programs,
        probes=compare(probes) if probes else None,
        missing=tuple(missing),
        simulated=simulated,
    )
    return diagnostic(looks)


def _doctor(python: str | None, framework: str | None, missing: list[Gap]) -> Doctor | None:
    try:
        return examined(python, framework)
    except GpuwatchError as error:
        if python is not None:  # what was asked for by name is a mistake to be told
            raise
        missing.append(Gap(part="doctor", why=f"{error.message}{f' ({error.hint})' if error.hint else ''}"))
    except Exception as error:  # noqa: BLE001 - said in the report: the other parts are still worth sending
        missing.append(Gap(part="doctor", why=f"it broke off, a bug of gpuwatch: {type(error).__name__}: {error}"))
    return None


def _runs(
    now: datetime.datetime, host: str | None, *, simulated: bool, missing: list[Gap]
) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """The latest programs and probes of this machine; what is left out, and why, goes to ``missing``."""
    store = RunStore()
    kept = store.latest()
    if store.unreadable:
        missing.append(Gap(part="kept runs", why=f"{store.unreadable} files in {store.folder} cannot be read"))
    young = [run for run in kept if now - run.started_at <= OLDEST]
    here = [run for run in young if of_this_machine(run, host, simulated=simulated)]
    for count, why in (
        (len(kept) - len(young), f"of more than {OLDEST.days} days ago"),
        (sum(run.simulated != simulated for run in young), "of real GPUs" if simulated else "of simulated GPUs"),
        (sum(run.simulated == simulated for run in young) - len(here), "of other machines"),
    ):
        if count:
            missing.append(Gap(part="earlier runs", why=f"{count} {why}: left out"))
    programs, probes = newest(here, PROGRAMS)
    if not programs:
        missing.append(Gap(part="programs", why="none was watched here: gpuwatch run -- python train.py"))
    if not probes:
        missing.append(Gap(part="probes", why="none was run here: gpuwatch probe --group memory"))
    return programs, probes


def _say(doing: str) -> None:
    """Progress on a terminal, nothing in a pipe."""
    if progress_wanted():
        sys.stderr.write("\r\x1b[K" + (f"{doing} …" if doing else ""))
        sys.stderr.flush()
