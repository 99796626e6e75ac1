"""The diagnostic report: findings of all sources, sorted and joined.

The sources in order: the user's latest program, then what keeps the framework from the GPUs now, then the machine
itself, then the probes. Within a source the order of causes decides (:mod:`gpuwatch.explain.diagnosis.rule_engine`).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.causes import CAUSES, ENDED_WORK, NO_GPU
from gpuwatch.core.model.diagnostic_report import MACHINE as MACHINE
from gpuwatch.core.model.diagnostic_report import Diagnostic, Effect, SourcedFinding, Variable
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.findings import SEVERITY_ORDER, Finding
from gpuwatch.core.model.run import Run
from gpuwatch.explain.diagnosis.rule_registry import error_finding
from gpuwatch.explain.diagnosis.rules.gpu_environment_variables import KNOWN_VARIABLES, known_variable_meant

RECENT = datetime.timedelta(days=1)
"""A program that failed longer ago is reported, but not as the primary cause."""
DOCTOR = "doctor"

_STAMP = re.compile(r"^[IWEF]\d{4} [\d:.]+\s+\d+ ")
"""Time and thread at the start of a TensorFlow log line."""
_OWN = "GPUWATCH_"
_SIMULATION = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"})
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# Sources, the first one first.
_PROGRAM, _DOCTOR, _MACHINE, _EARLIER, _PROBE = range(5)
_CAUSES = (*ENDED_WORK, *NO_GPU)


def diagnostic_report(
    gathered: Diagnostic, *, silent: str = "", files: Iterable[tuple[str, Explanation]] = ()
) -> Diagnostic:
    """The report from its gathered parts: what they tell together.

    ``silent``: why there is no snapshot, if the driver did not answer. ``files``: what files that were given tell, each
    with its name.
    """
    snapshot, doctor = gathered.snapshot, gathered.doctor
    found = tuple(_where_it_was_set(entry, gathered) for entry in _joined_by_cause(_findings(gathered, silent, files)))
    parts = [part for part in (snapshot, doctor) if part is not None]
    main = "healthy" if parts else None
    if found and found[0].severity != "info":  # notes alone are no primary cause
        main = found[0].id
    elif main is not None and all(entry.id != main for entry in found):
        title = CAUSES["healthy"]
        found = (SourcedFinding(id=main, severity="info", certainty="likely", title=title, sources=(MACHINE,)), *found)
    host = snapshot.host.hostname if snapshot is not None else None
    return msgspec.structs.replace(
        gathered,
        took_seconds=round(gathered.took_seconds, 3),
        simulated=gathered.simulated or any(part.simulated for part in parts),
        host=host or (doctor.host if doctor is not None else None),
        primary=main,
        findings=found,
        variables=variables(doctor, gathered.programs),
    )


def source_of(run: Run) -> str:
    """``probe growth``, ``run of train.py``."""
    # The title of a watched program is its command line.
    return f"run of {run.title or run.config}" if run.is_program else f"probe {run.config}"


def provoked_by_probe(run: Run, found: Finding) -> bool:
    """Whether a probe provoked the finding itself, so that it says nothing about the machine."""
    if run.is_program:
        return False
    provoked = found.id.startswith(("visibility.", "placement.")) and found.id in {one.reason for one in run.fallbacks}
    return found.severity != "error" and (run.verdict == "ok" or found.severity == "info" or provoked)


def _findings(
    gathered: Diagnostic, silent: str, files: Iterable[tuple[str, Explanation]]
) -> Iterator[tuple[int, Finding, str]]:
    """Findings with their rank (lower comes first) and source."""
    for number, run in enumerate(gathered.programs):
        rank = _PROGRAM if number == 0 and gathered.taken_at - run.started_at <= RECENT else _EARLIER
        for found in run.findings:
            own = found.id == "program.error"  # which says nothing about GPUs
            yield rank, msgspec.structs.replace(found, severity="info") if own else found, source_of(run)
    for name, told in files:
        yield from ((_PROGRAM, found, name) for found in told.findings)
    if gathered.doctor is not None:
        yield from ((_DOCTOR, found, DOCTOR) for found in gathered.doctor.findings)
    if gathered.snapshot is not None:
        yield from ((_MACHINE, found, MACHINE) for found in gathered.snapshot.findings)
    if silent:
        title = f"NVML does not answer: {silent}"
        action = "Look for a hung GPU (dmesg | grep -i xid), then reset it (nvidia-smi --gpu-reset) or reboot."
        yield _MACHINE, error_finding("driver.bad-state", title=title, action=action), MACHINE
    for run in gathered.probes.runs if gathered.probes is not None else ():
        for found in run.findings:
            if not provoked_by_probe(run, found):
                late = run.verdict == "timeout" and found.id == "unknown"  # nothing certain about the machine
                yield _PROBE, msgspec.structs.replace(found, severity="info") if late else found, source_of(run)


def _where_it_was_set(found: SourcedFinding, gathered: Diagnostic) -> SourcedFinding:
    """Corrects the advice if the variable is not set in this shell but for the program only."""
    doctor = gathered.doctor
    if found.id != "visibility.hidden" or doctor is None or _VISIBLE in doctor.environment:
        return found
    if not any(source_of(run) in found.sources and _VISIBLE in run.environment for run in gathered.programs):
        return found
    return msgspec.structs.replace(
        found,
        action=f"{_VISIBLE} is not set in this shell: it was set for this program only (before its command, in a job"
        " script, or in the program itself). Remove it there, or set it to the GPUs to use (0, or a UUID).",
    )


def _joined_by_cause(listed: Iterable[tuple[int, Finding, str]]) -> list[SourcedFinding]:
    """In order, with each cause of a device once, with all its sources.

    ``healthy`` is included once, if the doctor or the machine reports it and nothing contradicts it.
    """
    listed = list(listed)
    wrong = any(found.severity != "info" for _, found, _ in listed)
    ordered = []
    for entries in group_by(listed, lambda entry: (entry[1].id, entry[1].device_uuid, entry[1].pid)).values():
        by_rank = sorted(entries, key=_order)
        rank, best, _ = by_rank[0]
        if best.id == "healthy" and (wrong or rank not in (_DOCTOR, _MACHINE)):
            continue
        best = _with_telling_title(best, [found for _, found, _ in by_rank])
        fields = msgspec.structs.asdict(best)
        sources = dict.fromkeys(source for _, _, source in sorted(entries, key=lambda entry: entry[0]))
        ordered.append((_order((rank, best, "")), SourcedFinding(**fields, sources=tuple(sources))))
    return [found for _, found in sorted(ordered, key=lambda entry: entry[0])]


def _with_telling_title(best: Finding, found: Sequence[Finding]) -> Finding:
    """The first finding, with the title of the most specific one: only the doctor names a missing library."""
    general = CAUSES.get(best.id)
    for other in found:
        longer = best.title == general or other.title.startswith(f"{best.title}:")
        if longer and other.title not in (best.title, general):
            # The same line from two processes counts once.
            lines = {_STAMP.sub("", line): line for line in (*best.evidence, *other.evidence)}
            evidence = [line for line in dict.fromkeys((*other.evidence, *best.evidence)) if line in lines.values()]
            certainty = "fact" if "fact" in (best.certainty, other.certainty) else best.certainty
            return msgspec.structs.replace(
                best, title=other.title, evidence=tuple(evidence), action=other.action, certainty=certainty
            )
    return best


def _order(entry: tuple[int, Finding, str]) -> tuple[int, int, int]:
    """Current errors, then warnings; then those of earlier programs and probes; then notes."""
    rank, found, _ = entry
    if found.id == "healthy":
        group = -1
    elif found.severity == "info":
        group = 4
    else:
        group = SEVERITY_ORDER[found.severity] + (2 if rank >= _EARLIER else 0)
    return group, rank, _CAUSES.index(found.id) if found.id in _CAUSES else len(_CAUSES)


def variables(doctor: Doctor | None, programs: Sequence[Run]) -> tuple[Variable, ...]:
    """The effect of each variable of this shell, and of those that differed in the latest program."""
    settings = [found for run in programs for found in run.findings if found.id == "config.too-late"]
    late = " ".join(text for found in settings for text in (found.title, *found.evidence))
    here = dict(sorted(doctor.environment.items())) if doctor is not None else {}
    shell = [_variable(name, value, doctor, late) for name, value in here.items()] if doctor is not None else []
    return (*shell, *(_program_variables(programs[0], here, late) if programs else ()))


def _program_variables(run: Run, here: Mapping[str, str], late: str) -> Iterator[Variable]:
    """Variables whose values in the program differ from this shell's."""
    for name, value in sorted(run.environment.items()):
        if here.get(name) == value or name.startswith(_OWN) or (run.simulated and name in _SIMULATION):
            continue
        effect: Effect = "effect" if name in KNOWN_VARIABLES else "unknown"
        note = f"this shell has {here[name]!r}" if name in here else "not set in this shell"
        if (meant := known_variable_meant(name)) is not None:
            effect, note = "misspelt", f"nothing reads it; {meant} was probably meant"
        elif name in late:
            effect, note = "too-late", "the program set it after its framework had started"
        yield Variable(name=name, value=value, effect=effect, note=note, program=run.title or run.config)


def _variable(name: str, value: str, doctor: Doctor, late: str) -> Variable:
    variable = partial(Variable, name=name, value=value)
    if doctor.simulated and name in _SIMULATION:
        return variable(effect="effect", note="set by gpuwatch for the simulated GPUs")
    if (meant := known_variable_meant(name)) is not None:
        return variable(effect="misspelt", note=f"nothing reads it; {meant} was probably meant")
    if name in late:
        return variable(effect="too-late", note="a program set it after its framework had started")
    for check in doctor.checks:
        if check.title == name:
            note = check.detail + (f" → {check.action}" if check.action else "")
            return variable(effect="warning" if check.state in ("warn", "fail") else "effect", note=note)
    others = next((check.detail for check in doctor.checks if check.id == "environment.others"), "")
    for part in others.split("; "):
        if part.startswith(f"{name}="):
            return variable(effect="effect", note=part.rpartition(" (")[2].rstrip(")"))
    return variable(effect="effect" if name in KNOWN_VARIABLES else "unknown")
