"""The diagnostic report contradicts itself nowhere, says whose a thing is, and nothing twice."""

from __future__ import annotations

import dataclasses
import datetime
import re
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len

from gpuwatch.core.masking.mask_secrets import MASK
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.doctor import Check
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.json_codec import EMBED_BEGIN
from gpuwatch.core.model.run import DeviceMapping, Fallback, Framework, Oom, Outcome, Run
from gpuwatch.core.model.run_memory import DeviceMemory, MemoryPoint
from gpuwatch.explain.diagnosis.diagnostic_report import diagnostic_report
from gpuwatch.share.reports.diagnostic_report import diagnostic_content
from gpuwatch.share.reports.diagnostic_summary import age_text, cause_meaning
from gpuwatch.share.reports.formats.terminal_tables import natural_width, table_lines
from gpuwatch.share.reports.literal_commands import command_to_paste, split_commands
from gpuwatch.share.reports.memory_over_time import timeline_text
from gpuwatch.share.reports.report_elements import Table
from gpuwatch.share.reports.report_formats import BY_NAME
from gpuwatch.share.reports.report_log_lines import condense_log
from gpuwatch.share.reports.report_text import sentence_case
from gpuwatch.share.reports.run_report import simulated_note
from gpuwatch.share.reports.runs_side_by_side import compare
from tests.doctor import machines
from tests.every import every
from tests.reports.diagnostics import NOW, died, healthy, looks, nothing, probe, program, without_driver
from tests.reports.documents import GIB, full_run

replace = msgspec.structs.replace
TITLE = "CUDA_VISIBLE_DIVICES is not a variable that anything reads; CUDA_VISIBLE_DEVICES was probably meant"


def misspelt() -> Diagnostic:
    """The program had a misspelt variable; the shell of the report has none."""
    found = Finding(
        id="visibility.misspelt",
        severity="warning",
        certainty="likely",
        title=TITLE,
        evidence=("CUDA_VISIBLE_DIVICES=1",),
        action="Write CUDA_VISIBLE_DEVICES=1",
    )
    run = program(
        verdict="ok",
        verdict_reason=f"Ran, with a warning: {TITLE}.",
        ooms=(),
        fallbacks=(),
        errors=(),
        findings=(found,),
        primary=found.id,
        environment={"CUDA_VISIBLE_DIVICES": "1", "GPUWATCH_SIM": "2x8GiB"},
    )
    return diagnostic_report(looks(programs=(run,)))


def table(document: Diagnostic, title: str) -> Table:
    return next(entry for entry in diagnostic_content(document).tables if entry.title == title)


def draw(document: Diagnostic, name: str) -> str:
    return BY_NAME[name].render(document)


# -- whose it is ----------------------------------------------------------------------------------


def test_variable_checks_name_the_shell_and_the_programs_value() -> None:
    rows = {row[1]: row for row in table(misspelt(), "Passed checks").rows}
    state, _, what = rows["Misspelled variables"]
    assert state == "● pass"
    assert what == "in this shell: none; python train.py had CUDA_VISIBLE_DIVICES=1"
    assert all(
        row[2].startswith("in this shell: ") for name, row in rows.items() if name.startswith(("CUDA_", "TF_", "LD_"))
    )


def test_variables_of_the_program_are_beside_those_of_the_shell() -> None:
    rows = table(misspelt(), "Environment variables").rows
    assert rows[0][:4] == ("✖ misspelled", "CUDA_VISIBLE_DIVICES", "1", "python train.py")
    assert not any("GPUWATCH" in row[1] for row in rows), "what gpuwatch sets for itself is nobody's setting"


def test_a_variable_equal_in_both_is_listed_once() -> None:
    doctor = machines.examined(machines.machine(environment={"CUDA_VISIBLE_DEVICES": "0"}))
    same, other = (program(environment={"CUDA_VISIBLE_DEVICES": value}) for value in ("0", "1"))
    alike = [
        v
        for v in diagnostic_report(looks(doctor=doctor, programs=(same,))).variables
        if v.name == "CUDA_VISIBLE_DEVICES"
    ]
    assert [entry.program for entry in alike] == [None]
    differing = diagnostic_report(looks(doctor=doctor, programs=(other,))).variables
    assert [entry.note for entry in differing if entry.program] == ["this shell has '0'"]


def test_grants_of_the_program_and_the_doctor_are_side_by_side() -> None:
    here = looks().snapshot.devices[0]  # type: ignore[union-attr]
    mapped = DeviceMapping(framework_device="/device:GPU:0", uuid=here.uuid, name="PLUGIN", granted_bytes=7 * GIB)
    shown = table(diagnostic_report(looks(programs=(program(device_map=(mapped,)),))), "Which device is which GPU")
    row = dict(zip(shown.heads, shown.rows[0], strict=True))
    assert row["Program got"] == "7.0 GiB"
    assert row["Name"] == here.name
    assert "python train.py" in shown.note
    assert "doctor's own run" in shown.note


def test_a_hidden_gpu_names_the_shell_that_hides_it() -> None:
    snapshot = machines.snapshot(machines.gpu(0))
    doctor = machines.examined(machines.machine(snapshot=snapshot, environment={"CUDA_VISIBLE_DEVICES": "-1"}))
    hides = Finding(id="visibility.hidden", severity="error", certainty="fact", title=CAUSES["visibility.hidden"])
    document = diagnostic_report(looks(snapshot=snapshot, doctor=replace(doctor, findings=(hides,))))
    facts = dict(diagnostic_content(document).facts)
    assert facts["found in"].startswith("doctor (gpuwatch's own check of this machine): the environment of this")
    assert facts["probes"].endswith("not that of this shell")


# -- once -----------------------------------------------------------------------------------------


def test_the_headline_is_not_repeated_all_over() -> None:
    drawn = draw(misspelt(), "text")
    assert " ".join(drawn.split()).count("is not a variable that anything reads") <= 1
    assert "see the top" in drawn


def test_a_log_and_its_findings_are_in_the_document_once() -> None:
    run = program(log_tail=("a line that is there once",))
    document = diagnostic_report(looks(programs=(run,)))
    for name in ("html", "markdown"):
        drawn = draw(document, name).partition(EMBED_BEGIN)[0]  # behind it is the document itself
        assert drawn.count("a line that is there once") == 1
        assert drawn.count("pid 4711 of alice") == 1
    assert "memory.other-process (see" in draw(document, "markdown")


# -- logs -----------------------------------------------------------------------------------------

SAME = [
    f"E0000 00:00:1795170440.{n:06}   16044 utils.cc:80] Failed to get device properties, error code: 302"
    for n in range(40)
]
BINS = [
    f"I0000 00:00:1.0 1 bfc_allocator.cc:1056] Bin ({256 << n}):  Total Chunks: 0, Chunks in use: 0." for n in range(9)
]


def test_repeated_lines_are_one_with_a_count_and_empty_bins_a_mark() -> None:
    shown = condense_log(["first", *SAME, *BINS, "last"], 60, simulated=False)
    assert shown[1:] == ("first", f"{SAME[0]}  (× 40)", "… 9 lines of empty bins left out", "last")


def test_lines_that_differ_stay_as_they_were() -> None:
    lines = [f"step {number}" for number in range(5)]
    assert condense_log(lines, 60, simulated=True) == tuple(lines)


def test_what_is_cut_is_counted_and_the_decisive_line_stays() -> None:
    decisive = "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB"
    shown = condense_log([decisive, *(f"line {number}" for number in range(100))], 10, simulated=False)
    assert shown[:2] == (decisive, "… 90 earlier lines left out")
    assert shown[-1] == "line 99"
    assert len(shown) == 12


def test_lines_of_the_simulation_are_explained_once_and_only_there() -> None:
    lines = ["Could not find cuda drivers on your machine, GPU will not be used.", "x", *SAME]
    explained = [line for line in condense_log(lines, 60, simulated=True) if "gpuwatch: harmless" in line]
    assert len(explained) == 2
    assert condense_log(lines, 60, simulated=False)[2] == "x"


def test_what_every_start_prints_and_libraries_that_opened_are_one_line_each() -> None:
    start = "I0000 00:00:1795178361.577558   12200 "
    lines = [
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        f"{start}port.cc:153] oneDNN custom operations are on. You may see slightly different numerical results",
        *(f"{start}dso_loader.cc:133] Successfully opened dynamic library {n}" for n in ("a.so.1", "b.so.2", "a.so.1")),
        "LargestFreeBlock:                   0B",
        "the end",
    ]
    shown = condense_log(lines, 60, simulated=False)
    assert shown[0] == "(times in seconds since 1970: 1795178361 is 2026-11-20 12:39:21 UTC)"
    assert shown[1:4] == (
        "… 2 lines left out that TensorFlow prints at every start",
        "… 3 lines left out: libraries opened: a.so.1, b.so.2",
        lines[-2],
    )
    assert shown[4].startswith("  ↑ gpuwatch: always 0")
    assert shown[5:] == ("the end",)


# -- commands -------------------------------------------------------------------------------------


@every(
    [
        ("Write CUDA_VISIBLE_DEVICES=1", "export CUDA_VISIBLE_DEVICES=1"),
        ('Install them: pip install "tensorflow[and-cuda]".', 'pip install "tensorflow[and-cuda]"'),
        ("Ask alice, or use GPU 1: CUDA_VISIBLE_DEVICES=1.", "export CUDA_VISIBLE_DEVICES=1"),
        (
            'Install them: /opt/venv/bin/python -m pip install "tensorflow[and-cuda]==2.21.0".',
            '/opt/venv/bin/python -m pip install "tensorflow[and-cuda]==2.21.0"',
        ),
        ("They need TF_CPP_VMODULE=dso_loader=1 as well", "export TF_CPP_VMODULE=dso_loader=1"),
        ("(gpuwatch report --redact replaces them)", "gpuwatch report --redact"),
        ("more: gpuwatch cause memory.fragmented.", "gpuwatch cause memory.fragmented"),
        ("Send it: gpuwatch doctor -o doctor.md", "gpuwatch doctor -o doctor.md"),
        ("Unset CUDA_VISIBLE_DEVICES, or list the GPUs.", "unset CUDA_VISIBLE_DEVICES"),
        ("If it is slow: gpuwatch run -- python train.py, then again.", "gpuwatch run -- python train.py"),
        ("(nvidia-smi -q -d TEMPERATURE,PERFORMANCE), have", "nvidia-smi -q -d TEMPERATURE,PERFORMANCE"),
        ("nvidia-smi -i 1 -pm 1, then nvidia-smi -L.", "nvidia-smi -i 1 -pm 1"),
        ("A fault was put on them; this ends it: gpuwatch sim fault clear", "gpuwatch sim fault clear"),
        ("Make the batch or the model smaller.", None),
    ]
)
def test_what_is_copied_is_the_command(text: str, paste: str | None) -> None:
    assert command_to_paste(text) == paste
    assert "".join(piece for piece, _ in split_commands(text)) == text


def test_markdown_keeps_commands_unchanged() -> None:
    drawn = draw(misspelt(), "markdown")
    assert "**Do:** Write `CUDA_VISIBLE_DEVICES=1`" in drawn
    assert r"CUDA\_" not in drawn
    assert "|  |  |\n|---|---|" not in drawn, "a heading of nothing"
    missing = draw(without_driver(), "markdown")
    assert r"\[and-cuda" not in missing


def test_the_copy_button_copies_the_command() -> None:
    assert 'data-copy="export CUDA_VISIBLE_DEVICES=1"' in draw(misspelt(), "html")


# -- the document ---------------------------------------------------------------------------------


@pytest.mark.parametrize("document", [healthy(), died(), without_driver(), nothing(), misspelt()])
def test_every_link_leads_somewhere_and_every_name_is_there_once(document: Diagnostic) -> None:
    drawn = draw(document, "html")
    names = re.findall(r'\bid="([^"]+)"', drawn)
    assert len(names) == len(set(names))
    assert set(re.findall(r'href="#([^"]+)"', drawn)) <= set(names)


@pytest.mark.parametrize(("document", "said"), [(misspelt(), "likely"), (died(), "fact"), (healthy(), None)])
def test_the_verdict_says_how_certain_it_is(document: Diagnostic, said: str | None) -> None:
    drawn = draw(document, "html")
    header = drawn[drawn.index("<header") : drawn.index("</header>")]
    assert re.findall(r'class="tag"[^>]*>(\w+)<', header) == ([said] if said else [])
    assert (f"({said})" in draw(document, "markdown").splitlines()[4]) == (said is not None)


def test_every_row_names_an_existing_section() -> None:
    for document in (without_driver(), died()):
        for name in ("html", "markdown", "text"):
            assert "See the primary cause" not in draw(document, name)
            assert "See the findings" not in draw(document, name)


def test_the_essence_of_the_cause_is_there_without_the_tool() -> None:
    facts = dict(diagnostic_content(without_driver()).facts)
    assert "kernel module" in facts["meaning"]


def test_a_second_problem_is_on_the_first_screen() -> None:
    doctor = machines.examined(machines.bare())
    lacking = Check(
        id="framework.libraries",
        title="CUDA libraries",
        state="fail",
        detail="cannot be loaded: libcudart.so.12",
        action='pip install "tensorflow[and-cuda]"',
    )
    kept = tuple(check for check in doctor.checks if check.id != lacking.id)
    document = diagnostic_report(looks(doctor=replace(doctor, checks=(*kept, lacking)), snapshot=None))
    facts = dict(diagnostic_content(document).facts)
    assert facts["besides"] == 'a second problem, CUDA libraries: pip install "tensorflow[and-cuda]"'
    assert '`pip install "tensorflow[and-cuda]"`' in draw(document, "markdown")


def test_the_footer_says_whether_anything_was_masked_and_what_was_not() -> None:
    run = program(environment={"CUDA_CACHE_PATH": MASK, "XLA_FLAGS": MASK})
    footer = diagnostic_content(replace(diagnostic_report(looks(programs=(run,))), variables=())).footer
    assert f"secrets are shown as {MASK}" in footer
    assert "no secrets were found" in diagnostic_content(healthy()).footer
    assert "are not replaced" in footer
    assert "are replaced" in diagnostic_content(replace(healthy(), redacted=True)).footer


def test_the_age_is_that_of_the_end() -> None:
    run = program(started_at=NOW - datetime.timedelta(minutes=10))
    run = replace(run, phases=replace(run.phases, total_seconds=480.0))
    assert age_text(run, NOW) == "2 min ago"


# -- probes ---------------------------------------------------------------------------------------


def fell_back() -> Run:
    hidden = Fallback(op="MatMul", requested="auto", actual="/device:CPU:0", reason="visibility.bad-ordinal")
    found = Finding(id=hidden.reason, severity="info", certainty="fact", title=CAUSES[hidden.reason])
    return probe("visible-invalid-first", 10.0, fallbacks=(hidden,), findings=(found,), primary=hidden.reason)


def test_what_a_probe_demonstrates_is_expected_everywhere() -> None:
    expected = Oom(device="GPU:0", requested_bytes=GIB, limit_bytes=GIB, in_use_bytes=GIB, expected=True)
    silent = Oom(verdict="memory.model-too-large", expected=True)
    probes = [
        replace(fell_back(), verdict="fallback"),
        probe("largest-batch", 10.0, ooms=(expected, silent)),
        probe("contention", 10.0, ooms=(expected,), verdict="oom"),
    ]
    document = diagnostic_report(looks(probes=compare(probes)))
    told = dict(diagnostic_content(document).facts)["probes"]
    for part in ("1 fallback as expected", "1 ok after an expected out-of-memory", "1 out of memory as expected"):
        assert part in told
    assert [row[0] for row in table(document, "Out of memory").rows] == ["largest-batch", "contention"]
    assert any(
        "fallback" in cell and "(expected)" in cell for row in table(document, "Probes compared").rows for cell in row
    )


def test_speeds_of_simulated_gpus_are_no_ranking() -> None:
    runs = [probe("default", 300.0), probe("cpu-only", 700.0)]
    real = table(diagnostic_report(looks(probes=compare(runs))), "Probes compared")
    simulated = table(
        diagnostic_report(looks(probes=compare([replace(run, simulated=True) for run in runs]))), "Probes compared"
    )
    assert [chart.title for chart in real.charts][:1] == ["Steps per second"]
    assert "Steps per second" not in [chart.title for chart in simulated.charts]
    assert "this computer's CPU" in simulated.note


def test_steps_of_a_program_are_counted_with_those_that_are_left_out() -> None:
    run = full_run(group="run")
    run = replace(run, throughput=replace(run.throughput, steps=96, warmup_steps=5, counted="batches of Keras"))  # type: ignore[type-var]
    drawn = draw(diagnostic_report(looks(programs=(run,))), "markdown")
    assert "96 batches of Keras" in drawn


def test_text_formats_describe_a_chart_in_words() -> None:
    points = tuple(MemoryPoint(t=float(n), allocator_bytes=n * GIB) for n in range(1, 9))
    run = program()
    run = replace(run, memory=replace(run.memory, timeline=points))
    assert ": 1.0 GiB → 2.0 GiB → " in timeline_text(run)
    for name in ("markdown", "text"):
        assert "in use by the framework" in " ".join(draw(diagnostic_report(looks(programs=(run,))), name).split())
    assert timeline_text(replace(run, memory=replace(run.memory, timeline=()))) == ""


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        ("SEEN BY NVML", "Seen by NVML"),
        ("STEPS/S", "Steps/s"),
        ("ON GPU %", "On GPU %"),
        ("UUID", "UUID"),
        ("Op", "Op"),
    ],
)
def test_headings_use_sentence_case(head: str, shown: str) -> None:
    assert sentence_case(head) == shown


# -- every format has everything, in its own manner -----------------------------------------------


@pytest.mark.parametrize("document", [healthy(), died(), without_driver(), nothing(), misspelt()])
def test_prose_of_a_text_file_fits_80_columns_and_tables_are_as_wide_as_they_need(document: Diagnostic) -> None:
    drawn = draw(document, "text")
    content = diagnostic_content(document)
    tables = [table for part in (content, *content.parts) for table in part.tables if table.rows]
    rows = {
        line.rstrip()
        for table in tables
        for line in table_lines(dataclasses.replace(table, note=""), max(80, natural_width(table)), str, elastic=True)
    }
    assert [line for line in drawn.splitlines() if cell_len(line) > 80 and line not in rows] == []
    # No short value is divided between lines.
    short = [cell for table in tables for row in table.rows for cell in row if cell_len(cell) <= 60]
    assert [cell for cell in short if cell not in drawn] == []


def test_a_text_file_has_the_details_and_the_footer_too() -> None:
    run = program(environment={"XLA_FLAGS": "--xla_dump_to=/d"}, log_tail=("a line that is there once",))
    drawn = draw(diagnostic_report(looks(programs=(run,))), "text")
    details = drawn[drawn.index("Details of python train.py") :]
    assert "--xla_dump_to=/d" in details
    assert "Machine and process" in details
    assert details.rstrip().endswith("(gpuwatch report --redact does that).")
    assert drawn.count("a line that is there once") == 1


def test_lists_of_markdown_are_lists_of_their_own() -> None:
    lines = [line for line in draw(died(), "markdown").split("<details>")[0].splitlines() if line]
    evidence = lines.index("**Evidence:**")
    short = lines.index("**In short:**")
    assert all(line.startswith("- ") for line in lines[evidence + 1 : short])
    assert lines[short + 1].startswith("- **last program:**")
    assert not any(line.startswith("- •") for line in lines)


def test_held_memory_is_shown_for_each_gpu() -> None:
    memory = replace(
        program().memory,
        devices=tuple(DeviceMemory(uuid=f"GPU-{n}", index=n, process_bytes=(22 - 21 * n) * GIB) for n in range(2)),
    )
    shown = table(diagnostic_report(looks(programs=(program(memory=memory),))), "Watched programs")
    row = dict(zip(shown.heads, shown.rows[0], strict=True))
    assert row["Peak held (NVML)"] == "GPU 0 22.0 GiB, GPU 1 1.0 GiB"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verdict": "fallback", "device_map": ()}, "completed on the CPU, exit code 0"),
        ({"verdict": "ok"}, "completed, exit code 0"),
        ({"verdict": "oom", "outcome": Outcome(exit_code=1)}, "ran out of GPU memory, exit code 1"),
        ({"verdict": "error", "outcome": Outcome(signal=9)}, "failed, killed by SIGKILL"),
    ],
)
def test_how_a_program_ended_is_in_words_with_its_times(changes: dict[str, Any], said: str) -> None:
    run = program(**{"fallbacks": (), "outcome": Outcome(exit_code=0), **changes})
    shown = diagnostic_report(looks(programs=(run,)))
    fact = dict(diagnostic_content(shown).facts)["last program"]
    assert said in fact
    assert re.search(r"started 2026-\d\d-\d\d \d\d:\d\d:\d\d UTC, ended \d\d:\d\d:\d\d UTC", fact)
    row = table(shown, "Watched programs").rows[0]
    assert (row[-1] == "everything ran on the CPU") == (run.verdict == "fallback")


def test_values_of_simulated_kernels_are_not_taken_for_results() -> None:
    simulated = program(simulated=True, simulation="driver")
    assert (
        "a loss mean nothing"
        in diagnostic_content(diagnostic_report(looks(programs=(simulated,), simulated=True))).simulated
    )
    torch = replace(simulated, framework=Framework(name="torch", version="2.7.1"))
    assert "matrix products without a bias" in simulated_note((torch,))
    on_cpu = replace(simulated, device_map=())
    assert "a loss" not in diagnostic_content(diagnostic_report(looks(programs=(on_cpu,), simulated=True))).simulated


def test_the_meaning_has_no_marks_of_markdown() -> None:
    for cause in CAUSES:
        assert not re.search(r"[*`]", cause_meaning(cause)), cause


def test_sampled_memory_names_its_span_and_the_peak() -> None:
    points = tuple(MemoryPoint(t=float(n), allocator_bytes=GIB) for n in range(1, 9))
    run = program()
    memory = replace(run.memory, timeline=points, allocators={"/device:GPU:0": 3 * GIB})
    run = replace(run, memory=memory, phases=replace(run.phases, total_seconds=24.0))
    told = "in use by the framework: 1.0 GiB, sampled over 7 s of 24 s, peak 3.0 GiB"
    assert timeline_text(run) == told


def test_programs_of_one_name_have_their_start_time() -> None:
    first, second = program(), program(started_at=NOW - datetime.timedelta(hours=1))
    content = diagnostic_content(diagnostic_report(looks(programs=(first, second))))
    titles = [part.title for part in content.parts]
    assert len(set(titles)) == 2
    assert all(re.fullmatch(r"python train\.py \(\d\d:\d\d:\d\d UTC\)", title) for title in titles)
    assert [part.title for part in diagnostic_content(diagnostic_report(looks(programs=(first,)))).parts] == [
        "python train.py"
    ]


def test_a_source_with_several_runs_is_named_once() -> None:
    document = died()
    main, *rest = document.findings
    repeated = replace(main, sources=("run of train.py", "run of train.py", "run of eval.py"))
    facts = dict(diagnostic_content(replace(document, findings=(repeated, *rest))).facts)
    assert facts["found in"] == "run of train.py (2 times), run of eval.py"


def test_without_the_doctor_the_map_has_no_columns_for_it() -> None:
    shown = table(diagnostic_report(looks(doctor=None)), "Which device is which GPU")
    assert shown.heads == ("NVML", "Name", "Capability", "PCI bus id", "In use", "UUID")
    assert [row[0] for row in shown.rows] == ["0", "1"]
    assert "NVML" in shown.right
    assert "Doctor got" in table(diagnostic_report(looks()), "Which device is which GPU").heads
