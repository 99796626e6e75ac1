"""The diagnostic report: findings of all sources, sorted and joined, and the effects of environment variables.

The sources in order: the user's latest program, then what keeps the framework from the GPUs now, then the machine
itself, then the probes. Within a source the order of causes decides (:mod:`gpuwatch.explain.diagnosis.rule_engine`).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import asdict, replace

from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.diagnostic_report import MACHINE_SOURCE, Diagnostic, Effect, SourcedFinding, Variable
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.findings import SEVERITY_ORDER, Finding
from gpuwatch.core.model.run import Run
from gpuwatch.explain.diagnosis.rule_engine import CAUSE_RANK
from gpuwatch.explain.diagnosis.rule_registry import error_finding, healthy_finding
from gpuwatch.explain.diagnosis.rules.gpu_environment_variables import KNOWN_VARIABLES, known_variable_meant

RECENT = datetime.timedelta(days=1)
"""A program that failed longer ago is reported, but not as the primary cause."""
DOCTOR = "doctor"

_TENSORFLOW_LINE_PREFIX = re.compile(r"^[IWEF]\d{4} [\d:.]+\s+\d+ ")
"""Time and thread at the start of a TensorFlow log line."""
_OWN_PREFIX = "GPUWATCH_"
_SET_BY_SIMULATION = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"})
_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
# Ranks of sources.
_PROGRAM, _DOCTOR, _MACHINE, _EARLIER, _PROBE = range(5)


def diagnostic_report(
    gathered: Diagnostic, *, why_no_snapshot: str = "", files: Iterable[tuple[str, Explanation]] = ()
) -> Diagnostic:
    """The report on the gathered parts, with its findings and variables.

    ``why_no_snapshot``: if the driver did not answer. ``files``: explanations of the user's files, each with its name.
    """
    snapshot, doctor = gathered.snapshot, gathered.doctor
    joined = _joined_by_cause(_findings(gathered, why_no_snapshot, files))
    findings = tuple(_with_place_of_setting(finding, gathered) for finding in joined)
    parts = [part for part in (snapshot, doctor) if part is not None]
    primary = "healthy" if parts else None
    if findings and findings[0].severity != "info":  # notes alone are no primary cause
        primary = findings[0].id
    elif primary is not None and all(finding.id != primary for finding in findings):
        healthy = asdict(healthy_finding())
        findings = (SourcedFinding(**healthy, sources=(MACHINE_SOURCE,)), *findings)
    host = snapshot.host.hostname if snapshot is not None else None
    return replace(
        gathered,
        took_seconds=round(gathered.took_seconds, 3),
        simulated=gathered.simulated or any(part.simulated for part in parts),
        host=host or (doctor.host if doctor is not None else None),
        primary=primary,
        findings=findings,
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
    reasons = {fallback.reason for fallback in run.fallbacks}
    provoked = found.id.startswith(("visibility.", "placement.")) and found.id in reasons
    return found.severity != "error" and (run.verdict == "ok" or found.severity == "info" or provoked)


def _findings(
    gathered: Diagnostic, why_no_snapshot: str, files: Iterable[tuple[str, Explanation]]
) -> Iterator[tuple[int, Finding, str]]:
    """Findings with their rank (lower comes first) and source."""
    for number, run in enumerate(gathered.programs):
        rank = _PROGRAM if number == 0 and gathered.taken_at - run.started_at <= RECENT else _EARLIER
        for found in run.findings:
            of_program_alone = found.id == "program.error"
            yield rank, replace(found, severity="info") if of_program_alone else found, source_of(run)
    for name, explanation in files:
        yield from ((_PROGRAM, found, name) for found in explanation.findings)
    if gathered.doctor is not None:
        yield from ((_DOCTOR, found, DOCTOR) for found in gathered.doctor.findings)
    if gathered.snapshot is not None:
        yield from ((_MACHINE, found, MACHINE_SOURCE) for found in gathered.snapshot.findings)
    if why_no_snapshot:
        title = f"NVML does not answer: {why_no_snapshot}"
        action = "Look for a hung GPU (dmesg | grep -i xid), then reset it (nvidia-smi --gpu-reset) or reboot."
        yield _MACHINE, error_finding("driver.bad-state", title=title, action=action), MACHINE_SOURCE
    for run in gathered.probes.runs if gathered.probes is not None else ():
        for found in run.findings:
            if not provoked_by_probe(run, found):
                timed_out = run.verdict == "timeout" and found.id == "unknown"  # nothing certain about the machine
                yield _PROBE, replace(found, severity="info") if timed_out else found, source_of(run)


def _with_place_of_setting(found: SourcedFinding, gathered: Diagnostic) -> SourcedFinding:
    """Corrects the advice if the variable is not set in this shell but for the program only."""
    doctor = gathered.doctor
    if found.id != "visibility.hidden" or doctor is None or _VISIBLE_DEVICES in doctor.environment:
        return found
    if not any(source_of(run) in found.sources and _VISIBLE_DEVICES in run.environment for run in gathered.programs):
        return found
    return replace(
        found,
        action=f"{_VISIBLE_DEVICES} is not set in this shell: it was set for this program only (before its command, in"
        " a job script, or in the program itself). Remove it there, or set it to the GPUs to use (0, or a UUID).",
    )


def _joined_by_cause(listed: Iterable[tuple[int, Finding, str]]) -> list[SourcedFinding]:
    """In order, with each cause of a device once, with all its sources.

    ``healthy`` is included once, if the doctor or the machine reports it and nothing contradicts it.
    """
    listed = list(listed)
    has_problem = any(found.severity != "info" for _, found, _ in listed)
    ordered = []
    for entries in group_by(listed, lambda entry: (entry[1].id, entry[1].device_uuid, entry[1].pid)).values():
        by_rank = sorted(entries, key=_order)
        rank, best, _ = by_rank[0]
        if best.id == "healthy" and (has_problem or rank not in (_DOCTOR, _MACHINE)):
            continue
        best = _with_specific_title(best, [found for _, found, _ in by_rank])
        fields = asdict(best)
        sources = dict.fromkeys(source for _, _, source in sorted(entries, key=lambda entry: entry[0]))
        ordered.append((_order((rank, best, "")), SourcedFinding(**fields, sources=tuple(sources))))
    return [found for _, found in sorted(ordered, key=lambda entry: entry[0])]


def _with_specific_title(best: Finding, found: Sequence[Finding]) -> Finding:
    """The first finding, with the title of the most specific one: only the doctor names a missing library."""
    general = CAUSES.get(best.id)
    for other in found:
        more_specific = best.title == general or other.title.startswith(f"{best.title}:")
        if more_specific and other.title not in (best.title, general):
            # The same line from two processes counts once.
            lines = {_TENSORFLOW_LINE_PREFIX.sub("", line): line for line in (*best.evidence, *other.evidence)}
            in_order = dict.fromkeys((*other.evidence, *best.evidence))
            evidence = tuple(line for line in in_order if line in lines.values())
            certainty = "fact" if "fact" in (best.certainty, other.certainty) else best.certainty
            return replace(best, title=other.title, evidence=evidence, action=other.action, certainty=certainty)
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
    return group, rank, CAUSE_RANK.get(found.id, len(CAUSE_RANK))


def variables(doctor: Doctor | None, programs: Sequence[Run]) -> tuple[Variable, ...]:
    """The effect of each variable of this shell, and of those that differed in the latest program."""
    settings = [found for run in programs for found in run.findings if found.id == "config.too-late"]
    too_late = " ".join(text for found in settings for text in (found.title, *found.evidence))
    shell = dict(sorted(doctor.environment.items())) if doctor is not None else {}
    of_shell = [_shell_variable(name, value, doctor, too_late) for name, value in shell.items()] if doctor else []
    return (*of_shell, *(_program_variables(programs[0], shell, too_late) if programs else ()))


def _program_variables(run: Run, shell: Mapping[str, str], too_late: str) -> Iterator[Variable]:
    """Variables whose values in the program differ from this shell's."""
    for name, value in sorted(run.environment.items()):
        if shell.get(name) == value or name.startswith(_OWN_PREFIX) or (run.simulated and name in _SET_BY_SIMULATION):
            continue
        effect: Effect = "effect" if name in KNOWN_VARIABLES else "unknown"
        note = f"this shell has {shell[name]!r}" if name in shell else "not set in this shell"
        effect, note = _why_without_effect(name, too_late, "the program") or (effect, note)
        yield Variable(name=name, value=value, effect=effect, note=note, program=run.title or run.config)


def _shell_variable(name: str, value: str, doctor: Doctor, too_late: str) -> Variable:
    variable = partial(Variable, name=name, value=value)
    if doctor.simulated and name in _SET_BY_SIMULATION:
        return variable(effect="effect", note="set by gpuwatch for the simulated GPUs")
    if (without := _why_without_effect(name, too_late, "a program")) is not None:
        return variable(effect=without[0], note=without[1])
    for check in doctor.checks:
        if check.title == name:
            note = check.detail + (f" → {check.action}" if check.action else "")
            return variable(effect="warning" if check.state in ("warn", "fail") else "effect", note=note)
    others = next((check.detail for check in doctor.checks if check.id == "environment.others"), "")
    for part in others.split("; "):
        if part.startswith(f"{name}="):
            return variable(effect="effect", note=part.rpartition(" (")[2].rstrip(")"))
    return variable(effect="effect" if name in KNOWN_VARIABLES else "unknown")


def _why_without_effect(name: str, too_late: str, program: str) -> tuple[Effect, str] | None:
    """For a variable without effect ``misspelt`` or ``too-late``, and a note; ``too_late``: names set too late."""
    if (meant := known_variable_meant(name)) is not None:
        return "misspelt", f"no program reads it; {meant} was probably meant"
    return ("too-late", f"{program} set it after its framework had started") if name in too_late else None
