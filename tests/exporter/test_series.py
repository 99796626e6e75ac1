"""Which series there are, and what they say."""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.snapshot import MIG_READINGS, UNLISTED, Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.share import metric_families as families
from gpuwatch.share.exporter.metric_series import (
    ALL_METRICS,
    CORE_METRICS,
    MAX_OWNERS_LISTED,
    ExporterOptions,
    ScrapeContent,
    series_lines,
)
from gpuwatch.share.exporter.metrics_page import MetricsPage, XidCounts
from gpuwatch.share.openmetrics_text import Family
from tests.every import every
from tests.exporter.machines import (
    GIB,
    OPTIONS,
    device,
    every_reading,
    found,
    large,
    mig_device,
    names_of,
    one,
    process,
    snapshot,
)

ALL_OF_IT = OPTIONS._replace(metrics="all", processes=50, commands=True)
GPU0 = {"gpu": "0", "host": "node7", "uuid": device().uuid}


def finding(cause: str, **changes: object) -> Finding:
    return Finding(id=cause, severity="error", certainty="fact", title="it", **changes)  # type: ignore[arg-type]


def whole() -> ScrapeContent:
    """Something of everything."""
    gpu, divided = device(0), mig_device(1)
    rows = (
        process(1, gpu, 4),
        process(2, gpu, 2, user="bob", container="slurm job 4711"),
        process(3, divided, 1, mig_instance="1/0", container="pod train-0"),
    )
    return ScrapeContent(
        snapshot(gpu, divided, processes=rows),
        (finding("throttle.thermal", device_uuid=gpu.uuid), finding("memory.other-process", device_uuid=gpu.uuid)),
        True,
        3,
        True,
        {gpu.uuid: {"79": 2, "unknown": 1}},
    )


def test_values_are_in_the_units_of_their_names() -> None:
    samples = found(snapshot(device()), ALL_OF_IT)
    assert one(samples, "gpuwatch_gpu_utilization_ratio", **GPU0) == 0.87
    assert one(samples, "gpuwatch_gpu_clocks_sm_hertz", **GPU0) == 1.68e9
    assert one(samples, "gpuwatch_gpu_memory_used_bytes", **GPU0) == 20 * GIB
    assert one(samples, "gpuwatch_gpu_performance_state", **GPU0) == 2
    assert one(samples, "gpuwatch_gpu_remapped_rows_pending", **GPU0) == 0
    assert one(samples, families.GPU_INFO, name="NVIDIA H100 80GB HBM3", driver="580.95", mig="disabled", **GPU0) == 1
    assert one(samples, families.GPU_MODES, mode_compute="default", mode_persistence="disabled", **GPU0) == 1
    assert one(samples, families.GPU_CLOCK_REASON, reason="sw-thermal", **GPU0) == 1
    assert one(samples, families.GPU_CLOCK_REASON, reason="sw-power-cap", **GPU0) == 1
    assert one(samples, families.HOST_CPU) == 0.25
    assert one(samples, families.SNAPSHOT_DURATION) == 0.004
    assert one(samples, families.GPUS, host="node7") == 1


@every([*CORE_METRICS, *(spec.id for spec in ALL_METRICS)])
def test_a_reading_that_is_missing_has_no_series(metric: str) -> None:
    readings = every_reading()
    readings.pop(metric, None)
    samples = found(snapshot(device(readings=readings)), ALL_OF_IT)
    assert one(samples, families.family_of(BY_ID[metric])) is None


@pytest.mark.parametrize("state", ["lost", "reset-required", "failed"])
def test_a_bad_gpu_has_its_identity_and_state_and_no_readings(state: str) -> None:
    samples = found(snapshot(device(state=state)), ALL_OF_IT)
    of_gpu = {key.partition("{")[0] for key in samples if "uuid=" in key}
    assert of_gpu == {
        family.sample_name for family in (families.GPU_INFO, families.GPU_XIDS, families.GPU_STATE, families.GPU_FREE)
    }
    assert one(samples, families.GPU_STATE, state=state) == 1
    assert one(samples, families.GPU_FREE) == 0


def test_processes_that_could_not_be_listed_are_not_none() -> None:
    readings = every_reading()
    del readings["memory.unexplained_bytes"]
    unread = device(readings=readings, missing={"memory.unexplained_bytes": UNLISTED})
    assert families.GPU_PROCESSES.sample_name not in names_of(found(snapshot(unread)))
    assert one(found(snapshot(device())), families.GPU_PROCESSES) == 0


def test_free_is_what_pick_would_choose() -> None:
    used, idle = device(0), device(1, readings=every_reading() | {"memory.used_bytes": 0, "utilization.gpu_percent": 0})
    samples = found(snapshot(used, idle, processes=(process(1, used),)))
    assert one(samples, families.GPU_FREE, gpu="0") == 0
    assert one(samples, families.GPU_FREE, gpu="1") == 1
    assert one(samples, families.GPU_PROCESSES, gpu="0") == 1


def test_owners_with_the_most_memory_are_listed() -> None:
    gpu = device()
    rows = [
        process(1, gpu, 1, user="alice"),
        process(2, gpu, 5, user="bob", container="slurm job 4711"),
        process(3, gpu, 6, user="bob", container="slurm job 4711"),
        process(4, gpu, None, user="carol", container="pod train-0"),
        process(5, gpu, 3, user="dave", container="container 4f1d4f1d4f1d"),
        process(6, gpu, 3, type="G", user="root"),
    ]
    samples = found(snapshot(gpu, processes=tuple(rows)))
    assert one(samples, families.GPU_PROCESSES) == 5
    assert one(samples, families.GPU_OWNERS) == 4
    assert (
        len([key for key in samples if key.startswith(families.GPU_OWNER_PROCESSES.name + "{")])
        == MAX_OWNERS_LISTED
        == 3
    )
    assert one(samples, families.GPU_OWNER_PROCESSES, user="bob", slurm_job="4711") == 2
    assert one(samples, families.GPU_OWNER_MEMORY, user="bob", slurm_job="4711") == 11 * GIB
    assert one(samples, families.GPU_OWNER_MEMORY, user="dave", container="4f1d4f1d4f1d") == 3 * GIB
    unknown = found(snapshot(gpu, processes=(rows[3],)))
    assert one(unknown, families.GPU_OWNER_PROCESSES, user="carol", pod="train-0") == 1
    assert families.GPU_OWNER_MEMORY.sample_name not in names_of(unknown)


def test_processes_are_shown_only_when_asked_for_and_commands_too() -> None:
    gpu = device()
    sample = snapshot(gpu, processes=tuple(process(n, gpu, n / 10) for n in range(1, 11)))
    assert not any(key.startswith("gpuwatch_process") for key in found(sample, OPTIONS._replace(metrics="all")))
    some = found(sample, OPTIONS._replace(processes=4))
    assert {key for key in some if key.startswith(families.PROCESS_MEMORY.name)} == {
        f'{families.PROCESS_MEMORY.name}{{uuid="{gpu.uuid}",gpu="0",host="node7",pid="{pid}",user="alice"}}'
        for pid in (7, 8, 9, 10)
    }
    assert one(some, families.PROCESSES_LEFT_OUT) == 6
    assert one(some, families.PROCESS_SM, pid="10") == 0.4
    assert one(some, families.PROCESS_CPU, pid="10") == 1.5
    assert families.PROCESS_IDLE.sample_name not in names_of(some), "it is not known"
    sample.processes[9].readings["idle_since"] = 1_700_000_000
    assert one(found(sample, OPTIONS._replace(processes=4)), families.PROCESS_IDLE, pid="10") == 1_700_000_000
    assert not any("train.py" in key for key in some)
    all_metrics = found(sample, OPTIONS._replace(processes=4, commands=True))
    assert one(all_metrics, families.PROCESS_INFO, pid="10", framework="torch 2.11.0", name="python") == 1
    with_command = [key for key in all_metrics if "train.py" in key]
    assert len(with_command) == 4
    assert all(key.startswith("gpuwatch_process_info{") and "hf_abc" not in key for key in with_command)


def test_no_process_left_is_told_as_zero_left_out() -> None:
    assert one(found(snapshot(device()), OPTIONS._replace(processes=4)), families.PROCESSES_LEFT_OUT) == 0


def test_mig_instances_have_their_own() -> None:
    gpu = mig_device()
    samples = found(snapshot(gpu, processes=(process(1, gpu, 1, mig_instance="1/0"),)))
    first = GPU0 | {"mig_instance": "1/0"}
    assert one(samples, families.MIG_INFO, mig_uuid="MIG-1", profile="3g.40gb", **first) == 1
    assert one(samples, "gpuwatch_mig_memory_used_bytes", **first) == GIB
    assert one(samples, families.MIG_FREE, **first) == 0
    assert families.GPU_FREE.sample_name not in names_of(samples)


def test_findings_are_listed_by_cause() -> None:
    samples = found(whole())
    assert one(samples, families.FINDING, cause="throttle.thermal", severity="error", **GPU0) == 1
    twice = (finding("idle.memory-held", device_uuid=device().uuid, pid=1), finding("driver.mismatch"))
    several = found(
        snapshot(device()), findings=(*twice, finding("idle.memory-held", device_uuid=device().uuid, pid=2))
    )
    assert len([key for key in several if key.startswith(families.FINDING.name)]) == 2
    assert 'host="node7"' in next(key for key in several if "driver.mismatch" in key)


def test_xids_are_counted_by_number() -> None:
    counts = XidCounts(0.0)
    early, late, unknown = Xid(1.0, 79), Xid(2.0, 79), Xid(3.0, None)
    counts.observe(snapshot(device(xids=(early,))))
    counts.observe(snapshot(device(xids=(early,))))
    counts.observe(snapshot(device(xids=(early, late))))
    counts.observe(snapshot(device(xids=(late, unknown))))  # the oldest was dropped
    samples = found(snapshot(device()), xids=counts.counts)
    assert one(samples, families.GPU_XID_ERRORS, xid="79", **GPU0) == 2
    assert one(samples, families.GPU_XID_ERRORS, xid="unknown", **GPU0) == 1
    assert one(samples, families.GPU_XIDS, **GPU0) == 3
    assert one(found(snapshot(device())), families.GPU_XIDS) == 0
    assert one(found(snapshot(device(xids_missing=UNLISTED))), families.GPU_XIDS) is None


def test_an_xid_that_two_collectors_received_counts_once() -> None:
    counts = XidCounts(100.0)
    own, of_recorder = Xid(110.0, 79), Xid(110.4, 79)
    counts.observe(snapshot(device(xids=(own,))))
    # A recorder was started on this machine, then ended; its list has older errors, too.
    counts.observe(snapshot(device(xids=(Xid(50.0, 31), of_recorder))))
    counts.observe(snapshot(device()))
    counts.observe(snapshot(device(xids=(Xid(50.0, 31), of_recorder))))
    assert counts.counts == {device().uuid: {"79": 1}}
    counts.observe(snapshot(device(xids=(Xid(50.0, 31), of_recorder, Xid(111.0, 79)))))
    counts.observe(snapshot(device(xids=(Xid(130.0, 48),))))
    assert counts.counts == {device().uuid: {"79": 2, "48": 1}}


def test_nothing_is_free_while_the_driver_is_silent() -> None:
    free = {families.GPU_FREE.sample_name, families.MIG_FREE.sample_name}
    assert free <= names_of(found(whole(), ALL_OF_IT))
    assert not free & names_of(found(whole()._replace(driver_answers=False), ALL_OF_IT))


def test_an_old_sample_has_no_readings() -> None:
    samples = found(whole()._replace(driver_answers=False, current=False), ALL_OF_IT)
    assert one(samples, families.DRIVER_ANSWERING) == 0
    assert one(samples, families.GPU_INFO, gpu="0") == 1
    assert one(samples, families.FINDING, cause="throttle.thermal") == 1
    gone = {
        "gpuwatch_gpu_memory_used_bytes",
        families.GPU_STATE.sample_name,
        families.GPU_FREE.sample_name,
        families.PROCESS_MEMORY.sample_name,
    }
    assert not gone & names_of(samples)


def test_before_the_first_sample_there_is_the_exporter_alone() -> None:
    assert names_of(found(ScrapeContent())) == {
        families.EXPORTER_INFO.sample_name,
        families.COLLECTOR_REPLACEMENTS.sample_name,
    }


def test_without_a_driver_no_gpu_is_counted() -> None:
    samples = found(snapshot(driver=None))
    assert families.GPUS.sample_name not in names_of(samples)
    assert one(samples, families.HOST_LOAD) == 1.5


def test_64_gpus_and_5000_processes_stay_within_bounds() -> None:
    sample = large()
    core = series_lines(ScrapeContent(sample, driver_answers=True), OPTIONS)
    per_gpu = Counter(label for line in core.lines.values() for text in line for label in [text.split('"')[1]])
    most = max(count for label, count in per_gpu.items() if label.startswith("GPU-"))
    all_metrics = series_lines(
        ScrapeContent(sample, driver_answers=True), OPTIONS._replace(metrics="all", processes=50)
    )
    print(f"core {core.count}, {most} a GPU; all with 50 processes {all_metrics.count}")
    assert core.count + 1 < 2500  # one is the age
    assert most <= 30
    assert all_metrics.count + 1 < 6500


def test_labels_stay_one_line_whatever_a_name_contains() -> None:
    gpu = device()
    row = process(1, gpu, user='a"b\\c', name="x\ny\x1b[31m", container="slurm job 1")
    content = ScrapeContent(snapshot(gpu, processes=(row,)), driver_answers=True)
    text = MetricsPage(content, OPTIONS._replace(processes=1), None).body("plain").decode()
    (family,) = (one for one in text_string_to_metric_families(text) if one.name == "gpuwatch_process_info")
    assert family.samples[0].labels["user"] == 'a"b\\c'
    assert "\x1b" not in text
    assert all(line.startswith(("#", "gpuwatch_")) for line in text.splitlines())


@pytest.mark.parametrize("options", [OPTIONS, ALL_OF_IT])
def test_both_formats_are_read_by_prometheus_client(options: ExporterOptions) -> None:
    page = MetricsPage(whole(), options, 0.0, lambda: 4.5)
    plain = list(text_string_to_metric_families(page.body("plain").decode()))
    strict = list(openmetrics_parser.text_string_to_metric_families(page.body("openmetrics").decode()))

    def samples(chosen_families: list[object]) -> dict[object, float]:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in chosen_families
            for sample in family.samples  # type: ignore[attr-defined]
        }

    assert samples(plain) == samples(strict)
    assert samples(plain)["gpuwatch_snapshot_age_seconds", (("host", "node7"),)] == 4.5
    for chosen_families in (plain, strict):
        listed = [family.name for family in chosen_families]
        assert len(listed) == len(set(listed))
        assert all(family.documentation for family in chosen_families)


@pytest.mark.prometheus
@pytest.mark.parametrize("options", [OPTIONS, ALL_OF_IT])
@pytest.mark.parametrize("gpm", [False, True])
def test_promtool_finds_nothing_to_say(options: ExporterOptions, gpm: bool) -> None:
    content = whole()
    if gpm:
        assert content.snapshot is not None
        content = content._replace(snapshot=with_gpm(content.snapshot))
    assert promtool(MetricsPage(content, options, 0.0)) == (0, "")


def with_gpm(sample: Snapshot) -> Snapshot:
    """The same with the activity of the GPUs."""
    activity = {metric: 50.0 for metric in BY_ID if metric.startswith("activity.")}
    devices = tuple(device(each.index, readings=each.readings | activity) for each in sample.devices)
    return snapshot(*devices, taken_at=sample.taken_at + datetime.timedelta(seconds=1))


def promtool(page: MetricsPage) -> tuple[int, str]:
    """What ``promtool check metrics`` says."""
    program = shutil.which("promtool")
    assert program is not None
    done = subprocess.run([program, "check", "metrics"], input=page.body("plain"), capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_the_documentation_names_series_that_there_are() -> None:
    page = Path(__file__).parents[2] / "gpuwatch/docs/exporter.md"
    told = set(re.findall(r"\bgpuwatch_[a-z0-9_]+[a-z0-9]\b", page.read_text()))
    constants = {one.sample_name for one in vars(families).values() if isinstance(one, Family)}
    listed = constants | {families.family_of(spec).sample_name for spec in ALL_METRICS}
    listed |= {families.family_of(BY_ID[metric], "mig").sample_name for metric in MIG_READINGS}
    assert told <= listed | {"gpuwatch_gpu", "gpuwatch_mig"}
    ours = {
        families.GPU_FREE,
        families.GPU_OWNER_MEMORY,
        families.FINDING,
        families.GPU_XIDS,
        families.SNAPSHOT_AGE,
        families.DRIVER_ANSWERING,
        families.GPU_STATE,
    }
    assert {family.sample_name for family in ours} <= told
