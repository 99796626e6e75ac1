"""The diagnostic report: the cause and what to do come first, in every format; gaps are told."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

import msgspec
import pytest

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.diagnostic_report import Diagnostic, Excerpt
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.json_codec import from_json
from gpuwatch.core.model.run import Outcome
from gpuwatch.explain.diagnosis.diagnostic_report import (
    DOCTOR,
    MACHINE_SOURCE,
    RECENT,
    diagnostic_report,
    source_of,
)
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.explain.logs.log_parser import parse
from gpuwatch.machine.history.saved_runs import is_of_this_machine, newest_runs
from gpuwatch.share.reports.diagnostic_report import diagnostic_content
from gpuwatch.share.reports.formats import markdown
from gpuwatch.share.reports.report_formats import BY_NAME, render
from gpuwatch.share.reports.runs_side_by_side import compare
from tests.doctor import machines
from tests.reports.diagnostics import (
    NOW,
    died,
    healthy,
    hostile,
    judged,
    looks,
    nothing,
    probe,
    program,
    without_driver,
)
from tests.reports.documents import full_run

KINDS: dict[str, Callable[[], Diagnostic]] = {
    "healthy": healthy,
    "died": died,
    "without driver": without_driver,
    "nothing": nothing,
    "hostile": hostile,
}
FIRST_SCREEN = 60
replace = msgspec.structs.replace


def whole(document: Diagnostic, name: str) -> str:
    return BY_NAME[name].render(document)


def told(severity: str, cause: str, **fields: object) -> Finding:
    return msgspec.convert(
        {"id": cause, "severity": severity, "certainty": "fact", "title": CAUSES[cause], **fields}, Finding
    )


# -- whose finding comes first ---------------------------------------------------------------------


def test_the_failed_program_comes_before_the_machine() -> None:
    doctor = machines.examined(machines.bare())
    document = diagnostic_report(looks(programs=(program(),), doctor=doctor))
    assert document.primary == "memory.other-process"
    assert document.findings[0].sources == ("run of python train.py",)
    assert "driver.missing" in [found.id for found in document.findings[1:]], "what else is wrong is told too"


def test_an_old_program_comes_after_todays_machine() -> None:
    old = program(started_at=NOW - RECENT - datetime.timedelta(minutes=1))
    doctor = machines.examined(machines.bare())
    assert diagnostic_report(looks(programs=(old,), doctor=doctor)).primary == "driver.missing"
    assert diagnostic_report(looks(programs=(old,))).primary == "memory.other-process", "nothing else is wrong"


def test_only_the_latest_program_decides_the_verdict() -> None:
    good = program(verdict="ok", findings=(), primary="healthy", ooms=())
    doctor = machines.examined(machines.bare())
    assert diagnostic_report(looks(programs=(good, program()), doctor=doctor)).primary == "driver.missing"


def test_a_finding_of_several_parts_is_listed_once() -> None:
    (found,) = [entry for entry in without_driver().findings if entry.id == "driver.missing"]
    assert found.sources == (DOCTOR, MACHINE_SOURCE)


def test_what_a_probe_provoked_says_nothing_about_the_machine() -> None:
    misspelt = probe("misspelt-env", 400, findings=(told("warning", "visibility.misspelt"),))
    expected = full_run(config="contention", findings=(told("info", "memory.other-process"),))
    document = diagnostic_report(looks(probes=compare([misspelt, expected])))
    assert document.primary == "healthy"
    assert [found.id for found in document.findings] == ["healthy"]


def test_findings_of_a_probe_count() -> None:
    broken = full_run(config="growth", verdict="oom", findings=(told("error", "memory.other-process"),))
    document = diagnostic_report(looks(probes=compare([broken])))
    assert document.primary == "memory.other-process"
    assert document.findings[0].sources == ("probe growth",)


def test_healthy_needs_an_examined_machine() -> None:
    assert healthy().primary == "healthy"
    assert nothing().primary is None
    assert diagnostic_report(looks(doctor=None)).primary == "healthy"


def test_errors_come_before_warnings_and_warnings_before_remarks() -> None:
    snapshot = judged(machines.snapshot(machines.gpu(0)))
    found = (told("info", "idle.memory-held"), told("warning", "throttle.thermal"), told("error", "hardware.fault"))
    document = diagnostic_report(looks(snapshot=replace(snapshot, findings=found)))
    assert [entry.severity for entry in document.findings] == ["error", "warning", "info"]
    assert document.primary == "hardware.fault"


def test_the_latest_of_each_probe_and_the_latest_programs() -> None:
    runs = [
        program(pid=3),
        probe("growth", 1.0),
        program(pid=2),
        probe("growth", 2.0),
        probe("limit", 3.0),
        program(pid=1),
    ]
    programs, probes = newest_runs(runs, 2)
    assert [run.pid for run in programs] == [3, 2]
    assert [(run.config, run.throughput.steps_per_second) for run in probes if run.throughput] == [
        ("growth", 1.0),
        ("limit", 3.0),
    ]


@pytest.mark.parametrize(
    ("of", "host", "simulated", "ours"),
    [
        ("a", "a", False, True),
        ("b", "a", False, False),
        (None, "a", False, True),
        ("a", None, False, True),
        ("a", "a", True, False),
    ],
)
def test_runs_of_other_machines_are_left_out(of: str | None, host: str | None, simulated: bool, ours: bool) -> None:
    run = full_run(host=of, simulated=False)
    assert is_of_this_machine(run, host, simulated=simulated) is ours


def test_sources_are_named() -> None:
    assert source_of(probe("growth", 1.0)) == "probe growth"
    assert source_of(program()) == "run of python train.py"


# -- variables ------------------------------------------------------------------------------------


def test_variables_have_their_effect() -> None:
    environment = {
        "CUDA_VISIBLE_DEVICES": "1",
        "CUDA_VISIBLE_DIVICES": "0",
        "TF_FORCE_GPU_ALLOW_GROWTH": "yes",
        "XLA_FLAGS": "--xla_dump_to=/x",
    }
    doctor = machines.examined(machines.machine(environment=environment))
    late = program(findings=(told("error", "config.too-late", evidence=("XLA_FLAGS was set after the start",)),))
    by_name = {entry.name: entry for entry in diagnostic_report(looks(doctor=doctor, programs=(late,))).variables}
    assert by_name["CUDA_VISIBLE_DEVICES"].effect == "effect"
    assert by_name["CUDA_VISIBLE_DIVICES"].effect == "misspelt"
    assert "CUDA_VISIBLE_DEVICES" in by_name["CUDA_VISIBLE_DIVICES"].note
    assert by_name["TF_FORCE_GPU_ALLOW_GROWTH"].effect == "warning"
    assert by_name["XLA_FLAGS"].effect == "too-late"
    shown = whole(diagnostic_report(looks(doctor=doctor)), "text")
    assert shown.index("✖ misspelled") < shown.index("● has effect"), "what is wrong comes first"


# -- what is drawn --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["markdown", "text"])
def test_cause_and_action_are_in_the_first_lines(name: str) -> None:
    for document, cause, action in (
        (died(), "memory.other-process", "CUDA_VISIBLE_DEVICES=1"),
        (without_driver(), "driver.missing", "NVIDIA"),
        (healthy(), "healthy", "gpuwatch run -- python train.py"),
    ):
        first = "\n".join(whole(document, name).splitlines()[:12]).replace("\\", "")
        assert cause in first
        assert action in first.replace("\n  ", " ")


def test_html_has_cause_and_action_before_everything_else() -> None:
    drawn = whole(died(), "html")
    body = drawn[drawn.index("<main") :]
    assert body.index("memory.other-process") < body.index("Ask alice") < body.index("<table")
    assert 'class="copy"' in body[: body.index("<table")]


@pytest.mark.parametrize("name", ["html", "markdown", "text"])
def test_the_order_is_that_of_a_helper(name: str) -> None:
    drawn = whole(died(), name)
    drawn = drawn[drawn.index("</nav>") :] if name == "html" else drawn
    order = [
        "Which device is which GPU",
        "Checks: driver, build and cards",
        "Environment variables",
        "Libraries",
        "Out of memory",
        "Probes compared",
    ]
    places = [drawn.index(title) for title in order]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["html", "markdown", "text"])
def test_gaps_have_their_reason(name: str) -> None:
    drawn = whole(nothing(), name)
    assert "Not gathered" in drawn
    assert "did not answer within 10 s" in drawn
    assert "healthy" not in drawn


@pytest.mark.parametrize("kind", KINDS)
def test_json_is_the_document_itself(kind: str) -> None:
    document = KINDS[kind]()
    assert from_json(render(document, "json").encode()) is not None
    assert from_json(BY_NAME["json"].render(document).encode()) == document


def test_charts_have_their_numbers_for_screen_readers() -> None:
    drawn = whole(healthy(), "html")
    labels = re.findall(r'role="img" aria-label="([^"]+)"', drawn)
    assert any("default: 400" in label for label in labels)
    assert any(label.startswith("Driver: ") for label in labels)
    assert any(label.startswith("GPU 0: ") for label in labels)


def test_markdown_fits_into_an_issue_and_says_what_it_left_out() -> None:
    lines = tuple(f"line {number} " + "x" * 90 for number in range(200))
    runs = [probe(f"config-{number}", 100.0 + number, log_tail=lines, verdict="error") for number in range(80)]
    document = diagnostic_report(looks(probes=compare(runs), programs=tuple(program(log_tail=lines) for _ in range(5))))
    drawn = whole(document, "markdown")
    assert 10_000 < len(drawn) <= markdown.MAX_CHARS < 65_536
    assert "Omitted to fit in an issue" in drawn
    assert drawn.count("<details>") == drawn.count("</details>")
    assert "Left out" not in whole(healthy(), "markdown")


def test_markdown_of_one_endless_line_is_cut_with_its_blocks_closed() -> None:
    document = diagnostic_report(looks(programs=(program(title="x" * 200_000),)))
    drawn = whole(document, "markdown")
    assert len(drawn) <= 65_536
    assert drawn.count("<details>") == drawn.count("</details>")


def test_a_machine_without_processes_says_so() -> None:
    snapshot = judged(machines.snapshot(machines.gpu(0), processes=()))
    content = diagnostic_content(diagnostic_report(looks(snapshot=snapshot)))
    (people,) = [table for table in content.tables if table.title == "Who uses the GPUs"]
    assert people.note == "No process uses a GPU."
    for name in ("html", "markdown", "text"):
        assert "No process uses a GPU." in whole(diagnostic_report(looks(snapshot=snapshot)), name)


def test_programs_on_other_gpus_are_marked() -> None:
    here = looks().snapshot.devices[0]  # type: ignore[union-attr]
    other = diagnostic_report(looks(programs=(program(gpus=("0 NVIDIA H200 GPU-11111111-aaaa",)),)))
    same = diagnostic_report(looks(programs=(program(gpus=(f"0 {here.name} {here.uuid}",)),)))
    assert "GPUs that are not here now" in whole(other, "markdown")
    assert ", on other GPUs" not in whole(same, "markdown")


def test_one_cause_of_several_devices_is_counted() -> None:
    found = tuple(told("warning", "throttle.thermal", device_uuid=f"GPU-{number}") for number in range(3))
    snapshot = replace(judged(machines.snapshot(machines.gpu(0))), findings=(told("error", "hardware.fault"), *found))
    assert "throttle.thermal (warning, 3" in whole(diagnostic_report(looks(snapshot=snapshot)), "markdown")


def test_the_latest_memory_is_drawn_over_its_time() -> None:
    assert whole(died(), "html").count("GPU memory over") == 2, "in the table of programs, and in the part of the run"
    assert "Memory of python train.py" in whole(died(), "html")
    latest = probe("limit", 100.0, started_at=NOW)
    drawn = whole(diagnostic_report(looks(probes=compare([probe("growth", 90.0), latest]))), "html")
    assert drawn.count("GPU memory over") == 1
    assert "the latest probe, limit" in drawn


def test_a_driver_that_does_not_answer_is_never_healthy() -> None:
    document = diagnostic_report(looks(snapshot=None), why_no_snapshot="did not answer within 10 s")
    assert document.primary == "driver.bad-state"
    assert "No problems found" not in whole(document, "text")


def test_simulated_gpus_whose_driver_does_not_answer_are_marked() -> None:
    asked = diagnostic_report(
        looks(snapshot=None, doctor=None, simulated=True), why_no_snapshot="the driver did not answer"
    )
    assert asked.simulated
    assert whole(asked, "text").startswith("[SIMULATED]")
    real = diagnostic_report(looks(snapshot=None, doctor=None), why_no_snapshot="the driver did not answer")
    assert not real.simulated
    assert "SIMULATED" not in whole(real, "text")


def crashed(error: str) -> Diagnostic:
    log = ("Traceback (most recent call last):", '  File "/home/alice/train.py", line 5, in load', error)
    run = program(verdict="error", findings=(), primary=None, ooms=(), log_tail=log, outcome=Outcome(exit_code=1))
    return diagnostic_report(looks(programs=(complete(run, parse("\n".join(log)), None),)))


def test_a_crash_of_the_programs_own_code_is_not_the_reports_finding() -> None:
    document = crashed("KeyError: 'missing'")
    assert document.primary == "healthy"
    remark = next(found for found in document.findings if found.id == "program.error")
    assert (remark.severity, remark.sources) == ("info", ("run of python train.py",))
    for name in ("html", "markdown", "text"):
        drawn = BY_NAME[name].render(document)
        assert "KeyError" in drawn, "its traceback is there all the same"
        assert "Traceback" in drawn
        assert "program's own error" in "\n".join(drawn.splitlines()[:8]) or name == "html"


def test_a_crash_that_may_be_of_gpus_stays_the_finding() -> None:
    assert crashed("RuntimeError: Event loop is closed").primary == "unknown"


def test_what_helpers_ask_next_is_in_the_report() -> None:
    excerpts = (
        Excerpt(name="nvidia-smi", lines=("| NVIDIA-SMI 580.00 |", "| evil \x1b[31m |")),
        Excerpt(name="kernel log", lines=("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",)),
    )
    around = {"Slurm": "job 42, GPUs of the node 2,3", "Secure Boot": "on"}
    document = diagnostic_report(looks(excerpts=excerpts, surroundings=around))
    assert from_json(BY_NAME["json"].render(document).encode()) == document
    for name in ("html", "markdown", "text"):
        drawn = BY_NAME[name].render(document)
        for wanted in ("NVIDIA-SMI 580.00", "Kernel log", "fallen off the bus", "runs in", "job 42", "Secure Boot"):
            assert wanted in drawn, (name, wanted)
        assert "\x1b" not in drawn
