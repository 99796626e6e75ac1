"""What differs between two machines or days: structure, findings, numbers beyond their noise; and the exit code."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.core.masking.masked_documents import masked
from gpuwatch.core.model.diagnostic_report import MACHINE_SOURCE, Diagnostic, SourcedFinding
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.json_codec import from_json, to_json
from gpuwatch.core.model.machine_diff import Diff, NumberChange, Spread
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device, MigInstance, Snapshot
from gpuwatch.machine.recording.writer import Clock, RecordingWriter
from gpuwatch.share.reports.diff_report import diff, diff_content
from gpuwatch.share.reports.diff_sides import ComparableDocument, side_of_document
from gpuwatch.share.reports.report_formats import BY_NAME, render
from tests.conftest import gpuwatch
from tests.recording.days import NOON, day
from tests.reports.diagnostics import healthy, without_driver
from tests.reports.documents import full_run, speed
from tests.ui import machines

BUS = Finding(id="hardware.fault", severity="error", certainty="fact", title="GPU 1 has fallen off the bus")
HOT = Finding(id="throttle.thermal", severity="warning", certainty="fact", title="GPU 0 is throttled")


def compared(one: ComparableDocument, two: ComparableDocument, *, with_card_ids: bool = False) -> Diff:
    return diff(
        side_of_document(one, "A", with_card_ids=with_card_ids), side_of_document(two, "B", with_card_ids=with_card_ids)
    )


def machine(change: Callable[[Device], Device] = lambda device: device, **changes: object) -> Snapshot:
    shot = machines.many(2, 4)
    devices = (change(shot.devices[0]), *shot.devices[1:])
    return replace(shot, devices=devices, **changes)


def with_(**readings: object) -> Callable[[Device], Device]:
    named = {name.replace("__", "."): value for name, value in readings.items()}
    return lambda device: replace(device, readings=device.readings | named)


def facts(document: Diff) -> dict[tuple[str, str], tuple[str | None, str | None]]:
    return {(one.part, one.name): one.values for one in document.facts}


def test_a_machine_does_not_differ_from_itself() -> None:
    document = compared(machine(), machine(), with_card_ids=True)
    assert not document.differs
    assert not document.facts
    assert document.alike > 20


@pytest.mark.parametrize(
    ("before", "after", "where", "values"),
    [
        ({"pcie__width": 16}, {"pcie__width": 8}, ("GPU 0", "PCIe link width"), ("16", "8")),
        (
            {"power__limit_watts": 700.0}, {"power__limit_watts": 350.0},
            ("GPU 0", "Enforced power limit"), ("700 W", "350 W"),
        ),
        ({"ecc__mode": "enabled"}, {"ecc__mode": "disabled"}, ("GPU 0", "ECC mode"), ("enabled", "disabled")),
        (
            {"remapped_rows__uncorrectable": 0}, {"remapped_rows__uncorrectable": 2},
            ("GPU 0", "Memory rows remapped for uncorrectable errors"), ("0", "2"),
        ),
        (
            {"mode__compute": "default"}, {"mode__compute": "prohibited"},
            ("GPU 0", "Compute mode"), ("default", "prohibited"),
        ),
    ],
)  # fmt: skip
def test_structure(
    before: dict[str, object], after: dict[str, object], where: tuple[str, str], values: tuple[str, str]
) -> None:
    document = compared(machine(with_(**before)), machine(with_(**after)))
    assert facts(document) == {where: values}
    assert document.differs


def test_driver_mig_state_and_number_of_gpus() -> None:
    one = machine()
    assert one.driver is not None
    split = (MigInstance(id="1/0", index=0, uuid=None, gpu_instance=1, compute_instance=0, profile="1g.10gb"),)
    two = machine(
        lambda device: replace(device, mig_instances=split, state="lost"), driver=replace(one.driver, version="590.1")
    )
    two = replace(two, devices=two.devices[:1])
    found = facts(compared(one, two))
    assert found["Machine", "driver"] == (one.driver.version, "590.1")
    assert found["Machine", "GPUs"] == ("2", "1")
    assert found["GPU 0", "MIG layout"] == ("none", "1g.10gb")
    assert found["GPU 0", "state"] == ("ok", "lost")
    assert not [part for part, _ in found if part == "GPU 1"], "its readings are not differences too"


def test_what_cannot_be_read_is_not_a_difference_but_named() -> None:
    def unread(device: Device) -> Device:
        rest = {name: value for name, value in device.readings.items() if name != "ecc.mode"}
        return replace(device, readings=rest, missing=device.missing | {"ecc.mode": Missing("failed", code=999)})

    document = compared(machine(with_(ecc__mode="enabled")), machine(unread))
    assert not document.differs
    assert any("GPU 0 ECC mode" in note for note in document.notes)


def test_of_reports_variables_and_checks_differ_and_times_do_not() -> None:
    here = healthy().doctor
    assert here is not None
    slower = replace(here, checks=tuple(replace(c, detail=f"{c.detail}, in 9.9 s") for c in here.checks))
    assert not compared(here, slower).differs
    found = facts(compared(here, replace(here, environment={"CUDA_VISIBLE_DEVICES": "-1", "CUDA_API_KEY": "abc"})))
    assert found["Environment variables", "CUDA_VISIBLE_DEVICES"] == (None, "-1")
    there = without_driver().doctor
    assert there is not None
    fine, broken = facts(compared(here, there))["Checks", "libcuda.so.1"]
    assert (fine or "").startswith("● pass")
    assert (broken or "").startswith("✖ FAIL")


def test_a_secret_is_masked_on_both_sides() -> None:
    here = healthy().doctor
    assert here is not None
    document = compared(replace(here, environment={"CUDA_API_KEY": "abc"}), here)
    assert facts(masked(document))["Environment variables", "CUDA_API_KEY"] == ("•••", None)


def test_a_card_that_was_exchanged_is_seen_on_one_machine_only() -> None:
    other = machine(lambda device: replace(device, uuid="GPU-other"))
    assert not compared(machine(), other).differs
    assert facts(compared(machine(), other, with_card_ids=True))["GPU 0", "UUID"][1] == "GPU-other"


def test_findings_come_go_and_stay() -> None:
    one, two = machine(findings=(HOT,)), machine(findings=(HOT, BUS))
    changes = {found.id: found.change for found in compared(one, two).findings}
    assert changes == {"throttle.thermal": "stayed", "hardware.fault": "came"}
    assert {found.id: found.change for found in compared(two, one).findings}["hardware.fault"] == "went"
    assert not compared(one, replace(one, findings=(replace(HOT, title="other words"),))).differs


def test_runs_are_compared_by_settings_and_proven_speed() -> None:
    real = {"simulated": False, "simulation": None}
    run = full_run(throughput=speed(0.010), **real)
    assert not compared(run, full_run(throughput=speed(0.0101), **real)).differs, "within its noise"
    slower = compared(run, full_run(throughput=speed(0.020), **real))
    assert [change.metric for change in slower.numbers] == ["median_step_seconds"]
    worse = compared(run, full_run(throughput=speed(0.010), verdict="oom", **real))
    assert facts(worse)["Run", "verdict"] == (run.verdict, "oom")


@pytest.mark.parametrize("name", list(BY_NAME))
def test_every_format_and_back(name: str) -> None:
    document = compared(machine(findings=(HOT,)), machine(with_(pcie__width=8), findings=(BUS,)))
    text = render(document, name)
    assert "PCIe link width" in text
    assert "hardware.fault" in text.replace("<wbr>", "")
    if name == "json":
        assert from_json(text.encode()) == document


# Recordings and the command


def record(path: Path, watts: float, *, findings: tuple[Finding, ...] = (), seconds: int = 240) -> None:
    now = [NOON.timestamp()]
    writer = RecordingWriter(path, clock=Clock(lambda: now[0], lambda: now[0], lambda: now[0], lambda: "b"))
    for shot in day(2, 2, seconds):
        now[0] = shot.taken_at.timestamp()
        devices = [
            replace(device, readings=device.readings | {"power.draw_watts": watts + tick % 7})
            for tick, device in enumerate(shot.devices, round(now[0]))
        ]
        writer.add(replace(shot, devices=tuple(devices)), findings)
    writer.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diff")
    record(folder / "a.gpuwatch", 300)
    record(folder / "same.gpuwatch", 301)
    record(folder / "b.gpuwatch", 250, findings=(BUS,))
    (folder / "shot.json").write_text(to_json(machine()))
    (folder / "run.json").write_text(to_json(full_run()))
    return folder


def test_numbers_of_recordings_are_compared_beyond_their_noise(folder: Path) -> None:
    done = gpuwatch("diff", str(folder / "a.gpuwatch"), str(folder / "same.gpuwatch"))
    assert (done.code, done.err) == (0, "")
    assert "No difference" in done.out
    done = gpuwatch("diff", str(folder / "a.gpuwatch"), str(folder / "b.gpuwatch"), "--json")
    assert (done.code, done.err) == (3, "")
    document = json.loads(done.out)
    assert [(one["part"], one["metric"]) for one in document["numbers"]] == [
        ("GPU 0", "power.draw_watts"), ("GPU 1", "power.draw_watts"),
    ]  # fmt: skip
    power = document["numbers"][0]
    assert [value["median"] for value in power["values"]] == [303, 253]
    assert power["threshold"] == pytest.approx(0.05 * 303)
    assert [(one["id"], one["change"]) for one in document["findings"]] == [("hardware.fault", "came")]


def test_temperatures_differ_by_degrees_and_ranges_have_one_unit() -> None:
    cool, hot = Spread(median=48, low=47, high=50, points=9), Spread(median=67, low=66, high=69, points=9)
    change = NumberChange(
        part="GPU 0",
        name="GPU temperature",
        metric="temperature.gpu_celsius",
        unit="°C",
        values=(cool, hot),
        threshold=3,
    )
    document = replace(compared(machine(), machine()), numbers=(change,), differs=True)
    content = diff_content(document)
    assert content.tables[-1].rows[0][1:] == ("48 °C (47 – 50 °C)", "67 °C (66 – 69 °C)", "+19 °C")
    assert content.title == "A and B differ: 1 number"


def test_two_stretches_of_one_recording(folder: Path) -> None:
    file = str(folder / "b.gpuwatch")
    middle = (NOON + datetime.timedelta(seconds=120)).isoformat()
    done = gpuwatch("diff", file, file, "--a-until", middle, "--b-since", middle, "--json")
    sides = json.loads(done.out)["sides"]
    assert [side["samples"] for side in sides] == [120, 120]
    assert sides[0]["end"] <= sides[1]["begin"]


def test_a_recording_and_a_snapshot_share_the_machine(folder: Path) -> None:
    done = gpuwatch("diff", str(folder / "a.gpuwatch"), str(folder / "shot.json"))
    assert done.code == 0, done.out
    assert "have enough samples" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("shot.json", "nothing.json"), "cannot read"),
        (("shot.json", "a.gpuwatch", "--a-since", "14:00"), "is not a recording, so it has no time range"),
        (("a.gpuwatch", "b.gpuwatch", "--since", "soon"), "not a time"),
        (("a.gpuwatch", "b.gpuwatch", "--b-until", "2001-01-01T00:00"), "nothing was recorded"),
        (("shot.json", "shot.json", "-o", "x.xyz"), "no report format has the suffix .xyz"),
    ],
)
def test_mistakes_are_not_differences(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(folder)
    done = gpuwatch("diff", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_redacted(folder: Path) -> None:
    done = gpuwatch("diff", str(folder / "a.gpuwatch"), str(folder / "b.gpuwatch"), "--redact")
    assert "node07" not in done.out
    assert done.code == 3


def test_of_a_report_only_the_machine_is_compared_with_a_snapshot() -> None:
    of_machine = SourcedFinding(
        **{name: getattr(BUS, name) for name in BUS.__struct_fields__}, sources=(MACHINE_SOURCE,)
    )
    of_program = replace(of_machine, id="memory.fragmented", sources=("run of train.py",))
    shot = machine(findings=(BUS,))
    report = Diagnostic(
        taken_at=NOON, took_seconds=1.0, gpuwatch_version="1", simulated=False, host="node07", snapshot=shot,
        findings=(of_machine, of_program),
    )  # fmt: skip
    assert {one.id: one.change for one in compared(shot, report).findings} == {"hardware.fault": "stayed"}
    assert {one.id: one.change for one in compared(report, report).findings} == {
        "hardware.fault": "stayed", "memory.fragmented": "stayed",
    }  # fmt: skip
