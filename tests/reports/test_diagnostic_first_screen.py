"""What a stranger reads first: what happened, why, what to do here, and nothing that contradicts it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import DeviceMapping, Fallback, Oom, Placement, Run, Setting
from gpuwatch.core.model.run_memory import DeviceMemory, Holding
from gpuwatch.core.model.snapshot import Problem, Process, Reading
from gpuwatch.explain.diagnosis.diagnostic_report import diagnostic_report
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.memory_holders import free_memory_advice
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.share.reports.comparison_report import comparison_table
from gpuwatch.share.reports.diagnostic_report import diagnostic_content
from gpuwatch.share.reports.report_elements import Table
from gpuwatch.share.reports.report_formats import BY_NAME
from gpuwatch.share.reports.report_text import variable_value
from gpuwatch.share.reports.run_report import fallback_text, run_content
from gpuwatch.share.reports.runs_side_by_side import compare
from tests.doctor import machines
from tests.reports.diagnostics import died, looks, probe, program
from tests.reports.documents import GIB, bare_run, bare_snapshot, full_run

replace = msgspec.structs.replace
HIDDEN = Finding(
    id="visibility.hidden",
    severity="error",
    certainty="fact",
    title=CAUSES["visibility.hidden"],
    evidence=('CUDA_VISIBLE_DEVICES=""',),
    action="Unset CUDA_VISIBLE_DEVICES.",
)
CLEAR = "A fault was put on the simulated GPUs; this ends it: gpuwatch sim fault clear"


def hides_itself(**shell: str) -> Diagnostic:
    run = program(
        verdict="fallback",
        findings=(HIDDEN,),
        primary=HIDDEN.id,
        ooms=(),
        fallbacks=(),
        environment={"CUDA_VISIBLE_DEVICES": ""},
    )
    doctor = machines.examined(machines.machine(environment=shell))
    return diagnostic_report(looks(programs=(run,), doctor=replace(doctor, findings=())))


def table(document: Diagnostic, title: str) -> Table:
    return next(entry for entry in diagnostic_content(document).tables if entry.title == title)


def test_the_headline_says_how_the_program_ended_and_why() -> None:
    reason = diagnostic_content(died()).reason
    assert reason.endswith(" holds 20.0 GiB of GPU 0.")
    assert "completed on the CPU: CUDA_" in diagnostic_content(hides_itself()).reason


def test_a_cause_that_did_not_end_the_program_is_not_blamed() -> None:
    run = program(primary="unknown")
    assert not diagnostic_content(diagnostic_report(looks(programs=(run,)))).reason.startswith("python train.py")


def test_a_variable_that_only_the_program_had_is_not_to_be_unset_in_this_shell() -> None:
    action = diagnostic_content(hides_itself()).action
    assert "is not set in this shell" in action
    assert "Remove it there" in action
    assert diagnostic_content(hides_itself(CUDA_VISIBLE_DEVICES="")).action == HIDDEN.action


def test_an_empty_value_differs_from_an_unknown_one() -> None:
    rows = table(hides_itself(), "Environment variables").rows
    assert next(row[2] for row in rows if row[1] == "CUDA_VISIBLE_DEVICES") == '""'
    assert (variable_value("0"), variable_value(None), variable_value(" ")) == ("0", "–", '""')


# -- a driver that answers half ---------------------------------------------------------------------


def silent() -> Diagnostic:
    """NVML says 18, CUDA starts: the simulated fault of the second stranger."""
    problem = Problem(source="nvml", reason="driver.mismatch", detail="two versions", hint=CLEAR)
    snapshot = replace(bare_snapshot(), problems=(problem,))
    answer = replace(machines.ANSWER, nvml_code=18, cuinit_code=0, cuda_driver=12080, cuda_devices=1)
    doctor = machines.examined(machines.machine(snapshot=snapshot, driver=answer))
    found = Finding(id="driver.mismatch", severity="error", certainty="fact", title="Two versions", action=CLEAR)
    return diagnostic_report(
        looks(snapshot=snapshot, doctor=replace(doctor, findings=(found,)), simulated=True, probes=None)
    )


def test_cuda_may_start_while_nvml_does_not_answer() -> None:
    facts = dict(diagnostic_content(silent()).facts)
    assert facts["GPUs"].endswith("NVML does not answer")
    assert facts["driver"].startswith("NVML does not answer (two versions); CUDA itself starts")
    assert facts["meaning"].startswith("On a real machine: ")
    rows = {row[1]: row[2] for row in table(silent(), "Passed and skipped checks").rows}
    assert "not known" not in rows["Driver and the build's CUDA"]
    assert "libcuda supports CUDA 12.8" in rows["Driver and the build's CUDA"]


def test_sections_of_what_nvml_would_tell_say_why_they_are_empty() -> None:
    drawn = " ".join(BY_NAME["text"].render(silent()).split())
    assert "Who uses the GPUs Not known" in drawn


# -- a program that took more than it used ----------------------------------------------------------


def took_two(peaks: dict[str, int], **changes: Any) -> Run:
    run = full_run(config="run", group="run", verdict="ok", ooms=(), findings=(), fallbacks=(), workers=())
    mapped = tuple(
        DeviceMapping(framework_device=f"/device:GPU:{n}", cuda_ordinal=n, physical_index=n, uuid=f"GPU-{n}")
        for n in range(2)
    )
    holders = (Holding(pid=7, own=True, first_seconds=3.0, last_seconds=40.0),)
    devices = tuple(DeviceMemory(index=n, uuid=f"GPU-{n}", process_bytes=320 << 20, holders=holders) for n in range(2))
    memory = replace(run.memory, allocators=peaks, devices=devices)
    return replace(run, memory=memory, device_map=mapped, environment={}, settings={}, processes=(), **changes)


def unused(run: Run) -> list[str]:
    return [found.title for found in diagnose(Evidence(run=run)) if found.title.startswith("The program used")]


def test_an_allocated_but_unused_gpu_is_reported() -> None:
    run = took_two({"/device:GPU:0": GIB, "/device:GPU:1": 0})
    assert [title.rpartition(": ")[2] for title in unused(run)] == ["not GPU:1"]
    told = next(found for found in diagnose(Evidence(run=run)) if found.device_uuid == "GPU-1")
    assert (told.severity, "CUDA_VISIBLE_DEVICES=0" in told.action) == ("info", True)


@pytest.mark.parametrize(
    "peaks",
    [{"/device:GPU:0": GIB, "/device:GPU:1": GIB // 2}, {"/device:GPU:0": 0, "/device:GPU:1": 0}, {}],
    ids=["both", "none", "not known"],
)
def test_no_note_if_all_or_no_gpus_were_used(peaks: dict[str, int]) -> None:
    assert unused(took_two(peaks)) == []


def test_a_program_that_ended_well_has_no_warning_at_the_top() -> None:
    run = program(verdict="ok", verdict_reason="It succeeded without problems.", findings=(), primary=None)
    told = dict(diagnostic_content(diagnostic_report(looks(programs=(run,)))).facts)["last program"]
    assert "warning" not in told
    assert "completed" in told


# -- speeds, evidence, placement --------------------------------------------------------------------


def test_a_noisy_speed_is_marked_in_a_single_run() -> None:
    steady = probe("default", 400)
    speed = replace(steady.throughput, p90_step_seconds=3 / 400)  # type: ignore[type-var]
    scattered = replace(steady, throughput=speed)
    for run, marked in ((steady, False), (scattered, True)):
        content = run_content(run)
        assert ("uncertain by more than 5 %" in dict(content.facts)["speed"]) == marked
        note = next(entry.note for entry in content.tables if entry.title == "Throughput")
        assert "the range from p10 to p90" in note
        assert ("uncertain" in note) == marked


def test_a_long_variable_is_cut_in_a_run() -> None:
    """Images of CUDA set NVIDIA_REQUIRE_CUDA to some 2,000 characters, and each probe of a comparison has it."""
    run = replace(probe("default", 400), environment={"NVIDIA_REQUIRE_CUDA": "cuda>=12.4 " + "brand=x,driver<1 " * 200})
    table = next(entry for entry in run_content(run).tables if entry.title == "Environment")
    ((_, value),) = table.rows
    assert value.startswith("cuda>=12.4")
    assert len(value) <= 300


def test_evidence_is_folded_and_keeps_its_end() -> None:
    line = "W0000 00:00:1795182270.090848 27090 op_kernel.cc:1858] OP_REQUIRES failed at reduction.h:713 : " * 2
    found = replace(HIDDEN, evidence=(f"{line} the decisive end",))
    run = program(findings=(found,), primary=found.id)
    drawn = BY_NAME["text"].render(diagnostic_report(looks(programs=(run,))))
    assert "the decisive end" in " ".join(drawn.split())


@pytest.mark.parametrize(
    ("effective", "placed", "shown"),
    [("GPU:0", "GPU:0", "GPU:7→GPU:0"), ("GPU:7", "GPU:0", "–"), (None, "GPU:7", "–"), (None, "GPU:0", "not observed")],
)
def test_an_op_moved_by_a_session_is_reported(effective: str | None, placed: str, shown: str) -> None:
    run = probe("session-soft", 400, settings={"device": Setting(asked="/GPU:7", effective=effective)})
    work = replace(run.placements[0], requested=f"/{placed.lower()}", actual=f"/device:{placed}")
    assert fallback_text(replace(run, placements=(work,))) == shown


def test_ops_on_the_cpu_that_did_not_fall_back_are_explained() -> None:
    run = probe("manual", 400)
    moved = replace(run, placements=tuple(replace(run.placements[0], actual=f"{kind}:0") for kind in ("CPU", "GPU")))
    assert "on the CPU as requested" in comparison_table(compare([moved, run]), "Probes").note


def test_ops_that_the_program_keeps_off_the_gpu_come_first() -> None:
    on_gpu = tuple(Placement(op=op, dtype="float32", actual="GPU:0", count=9) for op in ("A", "B", "C", "D"))
    pinned = Placement(op="MatMul", dtype="float32", requested="/device:CPU:0", actual="CPU:0", gpu_kernel=True)
    mapping = DeviceMapping(framework_device="GPU:0", physical_index=0)
    run = replace(full_run(), group="run", device_map=(mapping,), placements=(*on_gpu, pinned))

    def happened(run: Run) -> str:
        return dict(run_content(run).facts)["happened"]

    assert happened(run).startswith(
        "MatMul float32 ×1 on CPU:0 as requested; A float32 ×9, B float32 ×9, C float32 ×9 and 1 more on GPU:0"
    )
    # Without a GPU, or where its variable kept it on one, there is nothing to say.
    for other in (replace(run, device_map=()), replace(run, placements=(*on_gpu, replace(pinned, actual="GPU:0")))):
        assert "as requested" not in happened(other)


def test_a_failed_allocation_is_told_with_what_is_known_of_it() -> None:
    for oom, text in (
        (Oom(device="GPU:0", requested_bytes=2 << 30), "out of memory: 2.0 GiB refused on GPU:0"),
        (Oom(device="GPU:0"), "out of memory on GPU:0"),
        (Oom(), "out of memory"),
    ):
        run = replace(bare_run(), ooms=(oom,))
        assert dict(run_content(run).facts)["happened"] == text


def test_what_fell_back_is_named_among_many_ops_of_a_device() -> None:
    many = tuple(Placement(op=op, dtype="string", actual="CPU:0", count=9) for op in ("A", "B", "C", "D"))
    fallen = Fallback(op="Join", dtype="string", requested="GPU:0", actual="CPU:0", reason="placement.no-kernel")
    placed = Placement(op="Join", dtype="string", requested="/device:GPU:0", actual="/device:CPU:0")
    run = replace(full_run(), group="run", placements=(*many, placed), fallbacks=(fallen,))
    assert dict(run_content(run).facts)["happened"].startswith(
        "Join string ×1, A string ×9, B string ×9 and 2 more on CPU:0"
    )


def test_no_advice_to_end_an_unknown_process() -> None:
    device = machines.gpu(0)
    readings: dict[str, Reading] = {"gpu_memory_bytes": 20 * GIB}
    stranger = Process(
        pid=4711, create_time=None, user=None, command=None, type="C", device_uuid=device.uuid, readings=readings
    )
    advice = free_memory_advice(replace(machines.snapshot(device), processes=(stranger,)), device)
    assert "whether it is still needed" in advice
    assert "and end it" not in advice
