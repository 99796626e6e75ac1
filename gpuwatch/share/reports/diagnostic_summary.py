"""The summary of a diagnostic report: a line for each thing that a helper asks first."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files

from gpuwatch.core.formatting.durations import ago
from gpuwatch.core.formatting.sentences import count_text, first_and_more
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.diagnostic_report import Diagnostic, SourcedFinding
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.safe_text import shorten
from gpuwatch.share.reports import run_report
from gpuwatch.share.reports.doctor_report import check_counts_text
from gpuwatch.share.reports.report_text import clean, framework_text, names_with_counts

_MAX_NAME_CHARS = 60
_SYSTEM_VERSIONS = (("os", ""), ("kernel", "kernel "), ("libc", ""))
_DOCTOR_SOURCE = "doctor"
_CLEAR_FAULTS = "gpuwatch sim fault clear"
_DOCTOR_TEXT = "doctor (gpuwatch's own check of this machine)"
_VERDICT_TEXTS = {
    "ok": "completed",
    "fallback": "completed on the CPU",
    "oom": "ran out of GPU memory",
    "error": "failed",
    "timeout": "was stopped at its deadline",
    "interrupted": "was interrupted",
    "skipped": "did not run",
}


def summary_rows(document: Diagnostic, main: SourcedFinding | None) -> Iterator[tuple[str, str]]:
    """What a helper reads first, one line each."""
    doctor, snapshot = document.doctor, document.snapshot
    if document.programs:
        run = document.programs[0]
        where = ", on GPUs that are not here now" if _ran_elsewhere(run, snapshot) else ""
        yield "last program", f"{run_name(run)}: {how_it_ended(run, main)}; {_when_text(run, document.taken_at)}{where}"
    if main is not None and main.id != "healthy":
        sources = Counter(
            _DOCTOR_TEXT if source == _DOCTOR_SOURCE else short_command(clean(source)) for source in main.sources
        )
        shell = _is_of_environment(main) and main.sources[:1] == (_DOCTOR_SOURCE,)
        source_texts = [source if count == 1 else f"{source} ({count} times)" for source, count in sources.items()]
        yield "found in", ", ".join(source_texts) + (": the environment of this shell" if shell else "")
        # Pages describe real machines.
        real_machine_note = "On a real machine: " if document.simulated and _CLEAR_FAULTS in main.action else ""
        yield "meaning", f"{real_machine_note}{cause_meaning(main.id)} More: gpuwatch cause {main.id}".strip()
    other_findings = [entry for entry in document.findings if entry is not main and entry.severity != "info"]
    if other_findings:
        yield "also", _other_findings(other_findings)
    if missing := _still_missing(document, main):
        yield "besides", missing
    yield "GPUs", _gpus(document)
    yield "driver", _driver(document)
    yield "framework", _framework(doctor)
    if doctor is not None:
        yield "checks", check_counts_text(doctor.checks)
    if machine := _machine(document):
        yield "machine", machine
    if document.surroundings:
        yield "runs in", "; ".join(f"{clean(name)}: {clean(value)}" for name, value in document.surroundings.items())
    if document.probes is not None and document.probes.runs:
        environment_note = "; each sets its own environment, not that of this shell" if _is_of_environment(main) else ""
        yield "probes", _probes(document.probes, document.taken_at, snapshot) + environment_note


def _is_of_environment(main: SourcedFinding | None) -> bool:
    return main is not None and main.id.startswith("visibility.")


def cause_meaning(cause: str) -> str:
    """The first paragraph of its page, for readers without gpuwatch."""
    path = files("gpuwatch") / "docs" / "causes" / f"{cause}.md"
    if cause not in CAUSES or not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8").partition("## What it is")[2].strip()
    return " ".join(text.split("\n\n", 1)[0].replace("`", "").replace("**", "").split())


def _still_missing(document: Diagnostic, main: SourcedFinding | None) -> str:
    """Libraries that would still be missing once the first problem is fixed."""
    doctor = document.doctor
    if doctor is None or main is None or any(finding.id.startswith("cuda.") for finding in document.findings):
        return ""
    check = next(
        (check for check in doctor.checks if check.id == "framework.libraries" and check.state == "fail"), None
    )
    return f"a second problem, {clean(check.title)}: {clean(check.action)}" if check is not None else ""


def _machine(document: Diagnostic) -> str:
    doctor, snapshot = document.doctor, document.snapshot
    versions = doctor.versions if doctor is not None else {}
    system = [f"{name}{clean(versions[key])}" for key, name in _SYSTEM_VERSIONS if versions.get(key)]
    host = snapshot.host if snapshot is not None else None
    if versions.get("processor") or (host is not None and host.cpu_count):
        count = count_text(host.cpu_count, "CPU") if host is not None and host.cpu_count else "CPU"
        system.append(f"{count} ({clean(versions['processor'])})" if versions.get("processor") else count)
    if host is not None and host.memory_total_bytes:
        system.append(f"{size(host.memory_total_bytes)} memory")
    checks = doctor.checks if doctor is not None else ()
    container = next((check.detail for check in checks if check.id == "container.kind" and check.state != "skip"), "")
    if container:
        system.append("no container" if container == "none" else f"in a container: {clean(container)}")
    return ", ".join(system)


def _when_text(run: Run, now: datetime.datetime) -> str:
    """When it started and ended, in UTC, and how long ago that was."""
    age_note = f", {age_text(run, now)} when this was written"
    start, ended = utc_text(run.started_at), utc_text(ended_at(run))
    same_day = start.partition(" ")[0] == ended.partition(" ")[0]
    return f"started {start}, ended {ended.partition(' ')[2] if same_day else ended}{age_note}"


def ended_at(run: Run) -> datetime.datetime:
    """Its start and the time of all phases: a run does not say when it ended."""
    return run.started_at + datetime.timedelta(seconds=run.phases.total_seconds or 0.0)


def utc_text(moment: datetime.datetime) -> str:
    """``2026-11-20 12:38:19 UTC``."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _other_findings(other_findings: Sequence[SourcedFinding]) -> str:
    counts = Counter((finding.id, finding.severity) for finding in other_findings).items()
    parts = [f"{cause} ({severity}{f', {count} times' if count > 1 else ''})" for (cause, severity), count in counts]
    return first_and_more(parts, 4, "; ")


def _ran_elsewhere(run: Run, snapshot: Snapshot | None) -> bool:
    """Whether it ran on GPUs that are not here now."""
    present_uuids = {device.uuid for device in snapshot.devices} if snapshot is not None else set()
    run_uuids = {text.rpartition(" ")[2] for text in run.gpus}
    return bool(present_uuids and run_uuids) and not present_uuids & run_uuids


def nvml_silence(snapshot: Snapshot) -> str:
    """That NVML does not answer, and why."""
    problem = next((entry for entry in snapshot.problems if entry.source == "nvml"), None)
    why = f" ({clean(problem.detail)})" if problem is not None and problem.detail else ""
    return f"NVML does not answer{why}"


def _cuda_starts(document: Diagnostic) -> str:
    """What libcuda reports if it starts although NVML does not."""
    checks = document.doctor.checks if document.doctor is not None else ()
    start = next((check for check in checks if check.id == "driver.start" and check.state == "pass"), None)
    return clean(start.detail) if start is not None else ""


def _gpus(document: Diagnostic) -> str:
    snapshot = document.snapshot
    if snapshot is None:
        return "not examined"
    if snapshot.driver is None and not snapshot.devices and _cuda_starts(document):
        return "not listed: NVML does not answer"
    totals = ((clean(device.name), device.number("memory.total_bytes")) for device in snapshot.devices)
    names = (name + (f" with {size(total)}" if total is not None else "") for name, total in totals)
    return names_with_counts(names) or "none"


def _driver(document: Diagnostic) -> str:
    if document.snapshot is None:
        return "not examined"
    if (driver := document.snapshot.driver) is not None:
        return f"{clean(driver.version)}, CUDA up to {clean(driver.cuda_version)}"
    cuda_version, silence = _cuda_starts(document), nvml_silence(document.snapshot)
    if not cuda_version:
        return "not answering"
    return f"{silence}; CUDA itself starts, for programs that do not use NVML: {cuda_version}"


def _framework(doctor: Doctor | None) -> str:
    if doctor is None or doctor.framework is None:
        return "not imported"
    framework = doctor.framework
    build = f", built for CUDA {clean(doctor.versions['build_cuda'])}" if doctor.versions.get("build_cuda") else ""
    if framework.gpu_build is False:
        build = ", built without GPU support"
    python = f"Python {clean(framework.python_version)}, {clean(framework.interpreter)}"
    return f"{framework_text(framework)}{build}, {python}"


def how_it_ended(run: Run, main: SourcedFinding | None = None) -> str:
    """How it ended, and why unless the top of the report, ``main``, says it."""
    ending = ", ".join(filter(None, (_verdict_text(run), run.outcome.text)))
    is_main = main is not None and main.id != "healthy" and main.id == run.primary
    if is_main and any(finding.id == run.primary for finding in run.findings):
        return f"{ending} ({'with a warning: ' if run.verdict == 'ok' else ''}see the top)"
    reason = run.verdict_reason.strip().removeprefix("It succeeded").strip(" .;,")
    return f"{ending} ({clean(reason)})" if reason else ending


def _verdict_text(run: Run) -> str:
    if run.verdict == "fallback" and run.fallbacks:
        return "completed, with ops that fell back"
    return _VERDICT_TEXTS.get(run.verdict, run.verdict)


def consequence(document: Diagnostic, main: SourcedFinding) -> str:
    """``python train.py ran out of GPU memory``: what the cause did to the latest program; empty if nothing."""
    run = document.programs[0] if document.programs else None
    if run is None or run.verdict in ("ok", "skipped", "interrupted") or run.primary != main.id:
        return ""
    is_source = f"run of {run.title or run.config}" in main.sources
    return f"{run_name(run)} {_verdict_text(run)}" if is_source else ""


def _probes(probes: Comparison, now: datetime.datetime, snapshot: Snapshot | None) -> str:
    counts = Counter[str]()
    for run in probes.runs:
        name: str = run.verdict
        if run.verdict == "oom" and run.ooms and all(oom.expected for oom in run.ooms):
            name = "out of memory as expected"
        elif run.verdict == "ok" and run.ooms:
            name = "ok after an expected out-of-memory"
        elif run.verdict == "fallback" and run_report.is_expected_fallback(run):
            name = "fallback as expected"
        counts[name] += 1
    newest = max(probes.runs, key=lambda run: run.started_at)
    counts_text = ", ".join(f"{count} {name}" for name, count in counts.items())
    run_elsewhere = sum(_ran_elsewhere(run, snapshot) for run in probes.runs)
    note = f"; {run_elsewhere} of them on GPUs that are not here now" if run_elsewhere else ""
    return f"{count_text(len(probes.runs), 'configuration')}: {counts_text}; the last {age_text(newest, now)}{note}"


def age_text(run: Run, now: datetime.datetime) -> str:
    """How long ago it ended."""
    return ago((now - run.started_at).total_seconds() - (run.phases.total_seconds or 0.0))


def run_name(run: Run, runs: Sequence[Run] = ()) -> str:
    """A program by its command line, a probe by its configuration; with its start if several have the same name."""
    name = clean(run.config) if not run.is_program or not run.title else short_command(run.title)
    if any(other is not run and run_name(other) == name for other in runs):
        name += f" ({utc_text(run.started_at).partition(' ')[2]})"
    return name


def short_command(command: str) -> str:
    """``python train.py`` of ``/opt/venv/bin/python /home/…/train.py``: the part of the run has the whole line."""
    words = [word if "=" in word or "://" in word else word.rpartition("/")[2] or word for word in command.split()]
    return shorten(clean(" ".join(words)), _MAX_NAME_CHARS)
