"""Two reports against each other: why it works here and not there."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from gpuwatch.core.formatting.masking import masked
from gpuwatch.core.model.codec import from_json, to_json
from gpuwatch.core.model.contrast import Contrast, Row
from gpuwatch.explain.diagnosis.diagnostic import diagnostic
from gpuwatch.share.reports.contrast import contrast
from gpuwatch.share.reports.report_formats import BY_NAME, render
from tests.conftest import gpuwatch
from tests.doctor import machines
from tests.reports.diagnostics import died, healthy, looks, without_driver
from tests.reports.documents import bare_run

replace = msgspec.structs.replace


def rows(document: Contrast) -> dict[tuple[str, str], tuple[str | None, ...]]:
    return {(row.part, row.name): row.values for row in document.rows}


def test_the_verdicts_come_first_and_then_what_differs() -> None:
    there = replace(without_driver(), host="node08")
    document = contrast([healthy(), there])
    assert document.sources == ("box", "node08")
    assert document.primaries == ("healthy", "driver.missing")
    assert document.rows[0] == Row(part="Verdict", name="primary cause", values=("healthy", "driver.missing"))
    told = rows(document)
    assert told["Versions", "driver"] == ("570.86.10", "–")
    assert told["GPUs", "count"] == ("2", "0")
    fine, broken = told["Checks", "libcuda.so.1"]
    assert (fine or "").startswith("● pass")
    assert (broken or "").startswith("✖ FAIL")
    assert document.alike > 0


def test_reports_of_the_same_machine_have_distinct_names() -> None:
    document = contrast([healthy(), healthy()])
    assert [row.part for row in document.rows] == ["Verdict"]
    assert len(set(document.sources)) == 2
    drawn = render(document, "text")
    assert "No fact differs" in drawn
    assert "✖" not in drawn.partition("\n\n")[0]


def test_times_and_free_memory_are_no_difference() -> None:
    """The details of a check change from moment to moment; its state does not."""
    one = healthy()
    assert one.doctor is not None
    slower = tuple(replace(check, detail=f"{check.detail}, in 9.9 s") for check in one.doctor.checks)
    other = replace(one, doctor=replace(one.doctor, checks=slower))
    assert all(row.part != "Checks" for row in contrast([one, other]).rows)


def test_one_variable_is_the_difference() -> None:
    doctor = machines.examined(machines.machine(environment={"CUDA_VISIBLE_DEVICES": "-1"}))
    told = rows(contrast([healthy(), diagnostic(looks(doctor=doctor))]))
    assert told["Environment variables", "CUDA_VISIBLE_DEVICES"] == (None, "-1")


def test_doctor_documents_and_reports_can_be_compared() -> None:
    report = healthy()
    assert report.doctor is not None
    told = rows(contrast([report, report.doctor]))
    assert ("GPUs", "count") in told, "a doctor alone tells no GPUs"
    assert all(part != "Versions" for part, _ in told)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_format_draws_it(name: str) -> None:
    document = contrast([healthy(), without_driver(), died()])
    drawn = render(document, name).replace("<wbr>", "").replace("\\", "")
    assert "driver.missing" in drawn
    assert "memory.other-process" in drawn
    assert from_json(BY_NAME["json"].render(document).encode()) == document


def test_secret_variables_are_masked_in_every_column() -> None:
    row = Row(part="Environment variables", name="CUDA_API_KEY", values=("abc", None, "def"))
    document = Contrast(sources=("a", "b", "c"), primaries=(None,) * 3, simulated=False, rows=(row,), alike=0)
    assert masked(document).rows[0].values == ("•••", None, "•••")


def test_the_command_compares_reports(tmp_path: Path) -> None:
    here, there, run = tmp_path / "here.json", tmp_path / "there.json", tmp_path / "run.json"
    here.write_text(to_json(healthy()))
    there.write_text(to_json(replace(without_driver(), host="node08")))
    run.write_text(to_json(bare_run()))
    done = gpuwatch("compare", str(here), str(there), "--json")
    assert done.code == 0
    assert json.loads(done.out)["schema"] == "gpuwatch.contrast/1"
    assert "node08" not in gpuwatch("compare", str(here), str(there), "--redact").out
    for arguments, said in (
        ([here], "one report is not enough"),
        ([here, run], "runs cannot be compared with reports"),
    ):
        wrong = gpuwatch("compare", *map(str, arguments))
        assert (wrong.code, wrong.out) == (2, "")
        assert said in wrong.err
        assert wrong.err.count("\n") == 1
