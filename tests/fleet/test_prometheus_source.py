"""Hosts out of the series of three exporters."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.fleet import Fleet, HostView
from gpuwatch.core.model.metrics import BY_ID, Unit
from gpuwatch.core.model.reading import Missing
from gpuwatch.fleet.exporter_series import EXPORTER_METRICS, exporter_metric_names, parse_reading
from gpuwatch.fleet.fleet_summary import HostSummary, summarize_fleet, summarize_host
from gpuwatch.fleet.prometheus_api import Prometheus, Sample
from gpuwatch.fleet.prometheus_hosts import HostsBuilder
from gpuwatch.fleet.prometheus_source import PrometheusSource
from gpuwatch.share.dcgm_metrics import DCGM_METRICS
from gpuwatch.share.exporter.metric_series import ExporterOptions, ScrapeContent
from gpuwatch.share.exporter.metrics_page import MetricsPage
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.panes.host_list_lines import host_row
from gpuwatch.ui.tables.host_columns import place_columns, sorted_hosts
from tests.every import every
from tests.fleet.exporters import MIB, dcgm, gpuwatch, nvidia_smi
from tests.fleet.prometheus_server import FakePrometheus, exposition, served
from tests.ui import machines
from tests.waiting import PATIENCE


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    with served() as running:
        yield running


def hosts(fake: FakePrometheus) -> dict[str, HostView]:
    fleet = PrometheusSource(Prometheus(fake.url)).read()
    assert not fleet.problem
    return {host.name: host for host in fleet.hosts}


def only(fake: FakePrometheus) -> HostSummary:
    (view,) = hosts(fake).values()
    return summarize_host(view)


@pytest.mark.parametrize("label", ["Hostname", "hostname"])
def test_dcgm(fake: FakePrometheus, label: str) -> None:
    fake.series = exposition(
        dcgm("dgx1", 2, used={1: 40000}, busy={1: 90}, label=label), instance="10.0.0.1:9400", job="dcgm"
    )
    host = only(fake)
    assert host.name == "dgx1"
    first, second = host.gpus
    assert (first.use, second.use, second.reason) == ("free", "used", "39.1 GiB in use")
    assert (first.device.index, first.device.name) == (0, "NVIDIA H100 80GB HBM3")
    assert second.device.number("memory.used_bytes") == 40000 * MIB
    assert second.device.number("memory.total_bytes") == 81559 * MIB, "the sum of its parts, the reserved one included"
    assert second.device.number("utilization.gpu_percent") == 90
    assert host.view.snapshot is not None
    assert host.view.snapshot.driver is not None
    assert host.view.snapshot.driver.version == "580.95.05"
    assert isinstance(second.device.get("temperature.memory_celsius"), Missing), "a blank value of DCGM"


def test_dcgm_tells_to_whom_a_scheduler_gave_a_gpu(fake: FakePrometheus) -> None:
    fake.series = exposition(dcgm("n1", 2, pods={1: "train-0"}), instance="n1:9400", job="dcgm")
    fake.series += exposition(dcgm("n2", 2, jobs={0: "4711"}), instance="n2:9400", job="dcgm")
    # As a ServiceMonitor scrapes it: the labels of the exporter's own pod take the names.
    own = {"pod": "dcgm-exporter-x", "namespace": "gpu-operator", "container": "exporter"}
    fake.series += exposition(dcgm("n3", 2, pods={0: "eval"}), instance="n3:9400", job="dcgm", **own)
    fake.pods = [own]
    found = {name: summarize_host(view) for name, view in hosts(fake).items()}
    assert [gpu.reason for gpu in found["n1"].gpus] == ["", "used by ml/train-0"]
    assert found["n2"].holders == (("job 4711", 1),)
    assert found["n3"].holders == (("ml/eval", 1),)
    assert found["n3"].free_count == 1


def test_nvidia_gpu_exporter(fake: FakePrometheus) -> None:
    fake.series = exposition(nvidia_smi(2, used=300), instance="desk7:9835", job="desks")
    host = only(fake)
    assert host.name == "desk7"
    assert [gpu.use for gpu in host.gpus] == ["free", "free"]
    assert host.gpus[1].device.uuid == "GPU-40801"
    assert (host.gpus[1].device.index, host.gpus[1].device.name) == (1, "NVIDIA GeForce RTX 4080 SUPER")


def test_gpuwatch(fake: FakePrometheus) -> None:
    text = gpuwatch("n1", 3, owners={0: "alice"}, findings={2: ("hardware.fault", "error")}, lost=2)
    fake.series = exposition(text, instance="n1:9836", job="gpuwatch")
    host = only(fake)
    assert [gpu.use for gpu in host.gpus] == ["used", "free", "bad"]
    assert host.gpus[0].reason == "used by alice"
    assert host.gpus[0].holders[0].processes == 2
    assert host.holders == (("alice", 1),)
    assert [(one.id, one.severity, one.device_uuid) for one in host.errors_and_warnings] == [
        ("hardware.fault", "error", "GPU-n1-2"),
    ]
    assert host.view.age_seconds == 0.4
    assert host.memory_total is None, "unknown of the lost GPU, so of all"


def test_a_gpu_whose_memory_is_the_hosts_stays_one(fake: FakePrometheus) -> None:
    machine = machines.many(1, 1)
    machine = replace(machine, devices=(replace(machine.devices[0], unified_memory=True),))
    page = MetricsPage(ScrapeContent(machine, driver_answers=True), ExporterOptions("n1", 5.0), 0.0)
    fake.series = exposition(page.body("plain").decode(), instance="n1:9836", job="gpuwatch")
    assert only(fake).gpus[0].device.unified_memory


def test_one_gpu_that_two_exporters_report_is_one(fake: FakePrometheus) -> None:
    fake.series = exposition(gpuwatch("n1", 1), instance="n1:9836", job="gpuwatch")
    fake.series += exposition(nvidia_smi(1, first="n1-"), instance="10.1.2.3:9835", job="smi")
    host = only(fake)
    assert (host.name, len(host.gpus)) == ("n1", 1)
    assert host.gpus[0].device.number("memory.total_bytes") == 80 << 30, "gpuwatch's own exporter comes first"


def test_an_exporter_whose_driver_hangs_is_not_an_idle_host(fake: FakePrometheus) -> None:
    fake.series = exposition(gpuwatch("n1", 2, age=95.0), instance="n1:9836", job="gpuwatch")
    host = only(fake)
    assert host.free_count == 0
    assert host.view.reason.endswith("for 95 s")


def test_an_exporter_that_leaves_old_readings_out_tells_why(fake: FakePrometheus) -> None:
    """As gpuwatch exporter does when its sample is a minute old."""
    target = {"instance": "n1:9836", "job": "gpuwatch"}
    fake.past = exposition(gpuwatch("n1", 2), **target)
    fake.series = exposition(
        'gpuwatch_snapshot_age_seconds{host="n1"} 95\ngpuwatch_driver_answering{host="n1"} 0', **target
    )
    assert hosts(fake)["n1"].reason.endswith("for 95 s")


def test_machines_that_call_themselves_the_same(fake: FakePrometheus) -> None:
    """Containers often do."""
    for number in range(2):
        text = gpuwatch("gpu", 2, owners={number: "alice"}).replace("GPU-gpu", f"GPU-{number}")
        fake.series += exposition(text, instance=f"10.0.0.{number}:9836", job="gpuwatch")
    found = {name: summarize_host(view) for name, view in hosts(fake).items()}
    assert sorted(found) == ["gpu (10.0.0.0:9836)", "gpu (10.0.0.1:9836)"]
    assert [[gpu.use for gpu in host.gpus] for host in found.values()] == [["used", "free"], ["free", "used"]]


def test_mig_instances_of_dcgm(fake: FakePrometheus) -> None:
    lines = []
    for part, used in (("3", 9000), ("4", 12)):
        own = f'gpu="0",UUID="GPU-a",modelName="A100",GPU_I_PROFILE="2g.20gb",GPU_I_ID="{part}",Hostname="n1"'
        lines += [f"DCGM_FI_DEV_FB_USED{{{own}}} {used}", f"DCGM_FI_DEV_FB_FREE{{{own}}} {19968 - used}"]
        lines.append(f"DCGM_FI_DEV_GPU_TEMP{{{own}}} 41")
        lines.append(f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{own}}} 0.5")
    fake.series = exposition("\n".join(lines), instance="n1:9400", job="dcgm")
    host = only(fake)
    assert [gpu.use for gpu in host.gpus] == ["used", "free"]
    assert host.gpus[0].instance is not None
    assert host.gpus[0].instance.profile == "2g.20gb"
    assert host.gpus[0].instance.number("memory.total_bytes") == 19968 * MIB
    assert host.hottest == 41
    assert len(host.gpus[0].device.mig_instances) == 2
    assert host.gpus[0].device.number("activity.tensor_percent") is None, "of an instance, not of the GPU"


def test_mig_instances_of_gpuwatch(fake: FakePrometheus) -> None:
    own = 'uuid="GPU-a",gpu="0",host="n1"'
    lines = [f'gpuwatch_gpu_info{{{own},name="H100",mig="enabled"}} 1', f'gpuwatch_gpu_state{{{own},state="ok"}} 1']
    for part, free in (("1/0", 0), ("2/0", 1)):
        mine = f'{own},mig_instance="{part}"'
        lines.append(f'gpuwatch_mig_info{{{mine},mig_uuid="MIG-{part[0]}",profile="1g.10gb"}} 1')
        lines += [f"gpuwatch_mig_free{{{mine}}} {free}", f"gpuwatch_mig_memory_used_bytes{{{mine}}} 1000000"]
    fake.series = exposition("\n".join(lines), instance="n1:9836", job="gpuwatch")
    host = only(fake)
    assert [gpu.use for gpu in host.gpus] == ["used", "free"]
    assert host.gpus[1].instance is not None
    assert host.gpus[1].instance.uuid == "MIG-2"


def test_hosts_that_are_silent_are_counted(fake: FakePrometheus) -> None:
    fake.series = exposition(gpuwatch("n1", 2), instance="n1:9836", job="gpuwatch")
    fake.past = exposition(gpuwatch("n2", 2), instance="n2:9836", job="gpuwatch")
    fake.past += exposition(dcgm("n3", 2), instance="n3:9400", job="dcgm")
    fake.down = [{"instance": "n2:9836", "job": "gpuwatch"}]
    found = hosts(fake)
    assert [name for name, view in found.items() if view.answered] == ["n1"]
    assert found["n2"].reason == "its exporter does not answer"
    assert found["n3"].reason == "no new data in Prometheus"
    fleet = summarize_fleet(PrometheusSource(Prometheus(fake.url)).read())
    assert (fleet.fleet.answered, len(fleet.hosts), fleet.gpu_count, fleet.free_count) == (1, 3, 2, 2)


def test_a_server_that_stops_answering_keeps_the_last_hosts_as_old(fake: FakePrometheus) -> None:
    fake.series = exposition(gpuwatch("n1", 2), instance="n1:9836", job="gpuwatch")
    source = PrometheusSource(Prometheus(fake.url))
    assert source.read().answered == 1
    fake.answer = lambda query: (503, b"")
    fleet = source.read()
    assert fleet.problem.endswith(": HTTP error 503")
    assert [host.name for host in fleet.hosts] == ["n1"]
    assert fleet.answered == 0
    assert summarize_fleet(fleet).free_count == 0, "nothing is called free on old data"


def test_a_failure_of_gpuwatch_itself_ends_a_feed_loudly(fake: FakePrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    source = PrometheusSource(Prometheus(fake.url))
    monkeypatch.setattr(source, "host_view", fail)
    feed, woken = source.feed("n1", 60.0), threading.Event()
    feed.start(woken.set)
    try:
        assert woken.wait(PATIENCE), "the screen has to look"
        with pytest.raises(ZeroDivisionError):
            feed.drain()
    finally:
        feed.stop()


@every(
    [
        ("DCGM_FI_DEV_MEMORY_TEMP", "9223372036854775794", None),
        ("DCGM_FI_DEV_ENC_UTIL", "2147483632", None),
        ("DCGM_FI_DEV_POWER_USAGE", "140737488355328", None),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "2147483640", 2147483.64),
        ("DCGM_FI_DEV_GPU_TEMP", "NaN", None),
        ("DCGM_FI_DEV_FB_USED", "-1", None),
        ("nvidia_smi_utilization_gpu_ratio", "0.42", 42.0),
        ("nvidia_smi_pstate", "8", "P8"),
        ("nvidia_smi_clocks_current_sm_clock_hz", "1.98e+09", 1980),
        ("gpuwatch_gpu_utilization_ratio", "0.97", 97.0),
        ("gpuwatch_gpu_clocks_sm_hertz", "1.98e+09", 1980),
        ("gpuwatch_gpu_ecc_sram_threshold_exceeded", "1", "yes"),
    ]
)
def test_values(name: str, text: str, reading: float | str | None) -> None:
    assert parse_reading(EXPORTER_METRICS[name], text) == reading


@pytest.mark.parametrize(("since", "idle"), [("1000", 60.0), ("0", 0.0)])
def test_since_when_a_process_is_idle(since: str, idle: float) -> None:
    about = '{uuid="GPU-n1-0",gpu="0",pid="7",host="n1"}'
    given = f"gpuwatch_gpu_memory_used_bytes{about} 1\ngpuwatch_process_idle_since_timestamp_seconds{about} {since}"
    collected = HostsBuilder()
    for labels, text in exposition(given, instance="x"):
        collected.add_reading(Sample(labels, (0.0, text)))
        collected.add_state(Sample(labels, (0.0, text)))
    (row,) = collected.hosts(1060.0)["n1"].snapshot.processes
    assert row.idle_seconds(1060.0) == idle


HOSTILE = ("NaN", "+Inf", "-Inf", "-1", "1e300", "9" * 400, "abc", "", "1e17")


@pytest.mark.parametrize("text", HOSTILE)
def test_any_value_of_any_series(text: str) -> None:
    """No value ends the thread that reads."""
    given = exposition(gpuwatch("n1", 2, owners={0: "alice"}, findings={1: ("hardware.fault", "error")}), instance="x")
    given += exposition(dcgm("n2", 1, jobs={0: "1"}) + "\n" + nvidia_smi(1), instance="y")
    given += exposition('gpuwatch_process_gpu_memory_bytes{uuid="GPU-n1-0",pid="7"} 1', instance="x")
    given += exposition(
        'gpuwatch_host_memory_used_bytes{host="n1"} 1\ngpuwatch_host_cpu_ratio{host="n1"} 1', instance="x"
    )
    for number in range(len(given)):
        collected = HostsBuilder()
        for turn, (labels, usual) in enumerate(given):
            sample = Sample(labels, (0.0, text if turn == number else usual))
            collected.add_reading(sample)
            collected.add_state(sample)
            collected.add_identity(labels)
            collected.add_owner(labels)
        for view in collected.hosts(1e9).values():
            summarize_host(view)


@pytest.mark.parametrize("label", ["\x1b[2J", "", "9" * 5000, "١٢", "-1", "a\nb", "MIG-1", "GPU-"])
def test_any_label_of_any_series(label: str) -> None:
    given = exposition(gpuwatch("n1", 2, owners={0: "alice"}, findings={1: ("hardware.fault", "error")}), instance="x")
    given += exposition(dcgm("n2", 1, pods={0: "p"}) + "\n" + nvidia_smi(1), instance="y")
    for name in {name for labels, _ in given for name in labels} - {"__name__"}:
        collected = HostsBuilder()
        for labels, usual in given:
            sample = Sample({**labels, **({name: label} if name in labels else {})}, (0.0, usual))
            collected.add_reading(sample)
            collected.add_state(sample)
            collected.add_identity(sample.metric)
            collected.add_owner(sample.metric)
        fleet = Fleet(taken_at=1e9, source="", hosts=tuple(collected.hosts(1e9).values()))
        hosts_of = summarize_fleet(fleet).hosts
        placed = place_columns(120, hosts_of)
        for host in sorted_hosts(hosts_of, "host", reverse=False):
            assert width_of("".join(text for text, _ in host_row(host, placed, 120).spans)) == 120


def test_what_gpuwatch_reports_under_the_names_of_dcgm_is_read_from_there() -> None:
    for metric in DCGM_METRICS:
        spec = BY_ID[metric.metric_id]
        value = "1" if spec.unit is Unit.NAME else str(40 * metric.factor)
        assert parse_reading(EXPORTER_METRICS[metric.family.sample_name], value) == ("yes" if value == "1" else 40)


def test_every_exporter_reports_what_the_list_needs() -> None:
    for prefix in ("gpuwatch_", "DCGM_", "nvidia_smi_"):
        found = {EXPORTER_METRICS[name].metric_id for name in exporter_metric_names() if name.startswith(prefix)}
        assert {"memory.used_bytes", "memory.free_bytes", "utilization.gpu_percent"} <= found
