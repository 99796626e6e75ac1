"""A real Prometheus scrapes real exporters; what the documentation asks of them, it gets."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.fleet import HostView
from gpuwatch.fleet.fleet_summary import summarize_host
from gpuwatch.fleet.prometheus_api import Prometheus as PrometheusServer
from gpuwatch.fleet.prometheus_source import PrometheusSource
from gpuwatch.share.exporter.http_server import Address, MetricsServer
from gpuwatch.share.exporter.metric_series import ScrapeContent
from gpuwatch.share.exporter.metrics_page import MetricsPage
from gpuwatch.sim import faults
from gpuwatch.sim.simulated_machine import SimMachine
from tests.exporter.machines import OPTIONS, device, every_reading, process, snapshot
from tests.exporter.prometheus import Prometheus
from tests.exporter.running import RunningExporter
from tests.waiting import wait_for

pytestmark = pytest.mark.prometheus

Open = Callable[[str], SimMachine]
DOCS = Path(__file__).parents[2] / "gpuwatch/docs"
GIB = 1 << 30
IDLE = {"memory.used_bytes": 0, "memory.free_bytes": 79 * GIB, "utilization.gpu_percent": 0}
OF_ITS_DASHBOARD = (
    # What the dashboard in dcgm-exporter's repository asks for (grafana/dcgm-exporter-dashboard.json, 2020 to 2026).
    'max(DCGM_FI_DEV_GPU_TEMP{NAME=~".*", gpu=~".*"}) by (NAME, gpu, UUID)',
    'avg(DCGM_FI_DEV_GPU_TEMP{NAME=~".*", gpu=~".*"})',
    'max(DCGM_FI_DEV_POWER_USAGE{NAME=~".*", gpu=~".*"}) by (NAME, gpu, UUID)',
    'sum(max(DCGM_FI_DEV_POWER_USAGE{NAME=~".*", gpu=~".*"}) by (gpu))',
    'max(DCGM_FI_DEV_SM_CLOCK{NAME=~".*", gpu=~".*"} * 1000000) by (NAME, UUID, gpu)',
    'max(DCGM_FI_DEV_FB_USED{NAME=~".*", gpu=~".*"}) by (NAME, gpu, GPU_I_ID, GPU_I_PROFILE)',
    'group(DCGM_FI_DEV_FB_FREE{NAME=~".*"}) by (NAME, gpu)',
    'max(DCGM_FI_DEV_GPU_UTIL{NAME=~".*", gpu=~".*"}) by (NAME, gpu, UUID)',
)
PROFILING = (
    # With --gpm, on GPUs that have it.
    'max(DCGM_FI_PROF_GR_ENGINE_ACTIVE{NAME=~".*", gpu=~".*"}) by (NAME, gpu, GPU_I_ID, GPU_I_PROFILE)',
    'max(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{NAME=~".*", gpu=~".*"}) by (NAME, gpu, GPU_I_ID, GPU_I_PROFILE)',
)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., object]]:
    """Starts exporters and Prometheus, and ends them."""
    started: list[RunningExporter | Prometheus] = []

    def begin(kind: type, *arguments: object, **options: object) -> object:
        started.append(kind(*arguments, **options))
        return started[-1]

    yield begin
    for one in reversed(started):
        one.end()


@pytest.fixture
def export(run: Callable[..., RunningExporter], tmp_path: Path) -> Callable[..., RunningExporter]:
    return lambda machine, *arguments: run(RunningExporter, machine, *arguments, folder=tmp_path)


@pytest.fixture
def prometheus(run: Callable[..., Prometheus], tmp_path: Path) -> Callable[..., Prometheus]:
    return lambda *exporters, **options: run(
        Prometheus, tmp_path / "prometheus", {"gpuwatch": [one.address for one in exporters]}, **options
    )


def blocks(language: str) -> list[str]:
    """The blocks of code of the documentation."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / "exporter.md").read_text(), re.DOTALL)


def rules() -> str:
    (found,) = (block for block in blocks("yaml") if block.startswith("# rules.yml"))
    return found


def test_two_machines_in_one_prometheus(
    sim_machine: Open, export: Callable[..., RunningExporter], prometheus: Callable[..., Prometheus]
) -> None:
    first, second = sim_machine("2x24GiB"), sim_machine("1x80GiB")
    exporters = [export(machine, "--every", "500ms", "--processes") for machine in (first, second)]
    server = prometheus(*exporters, rules=rules())
    by_host = "sum by (instance) (gpuwatch_gpu_free) == {}"
    assert server.wait(by_host.format(2))[0][0]["instance"] == exporters[0].address
    assert server.wait(by_host.format(1))[0][0]["instance"] == exporters[1].address
    assert len(server.wait("gpuwatch_gpu_info")) == 3
    assert len(server.query('gpuwatch_finding{cause="healthy"}')) == 2

    # A change shows within one sample and one scrape.
    pid = faults.foreign_process(second, 0, 5 * GIB, 50.0, None)
    began = time.monotonic()
    server.wait(f'gpuwatch_gpu_free{{instance="{exporters[1].address}"}} == 0')
    shown = time.monotonic() - began
    print(f"a program on the GPU was seen in Prometheus after {shown:.1f} s")
    assert shown < 5
    (memory,) = server.wait(f'gpuwatch_process_gpu_memory_bytes{{pid="{pid}"}}')
    assert memory[1] == 5 * GIB

    # A hang is an alert.
    faults.hang(second, None)
    (pending,) = server.wait('ALERTS{alertname="GpuDriverNotAnswering"}', 40)
    assert pending[0]["instance"] == exporters[1].address
    assert server.query("up == 0") == []
    second.clear_faults()


def test_what_dashboard_and_documentation_ask_for_is_there(
    run: Callable[..., Prometheus], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """On a GPU of which everything is known: simulated ones have no counters of throttling."""
    gpu = device()
    content = ScrapeContent(
        snapshot(gpu, device(1, readings=every_reading() | IDLE), processes=(process(1, gpu),)),
        (Finding(id="throttle.thermal", severity="warning", certainty="fact", title="it", device_uuid=gpu.uuid),),
        driver_answers=True,
    )
    page = MetricsPage(content, OPTIONS, time.monotonic())
    server = MetricsServer(Address("127.0.0.1:0"), lambda: page, max_requests=40)
    server.start()
    request.addfinalizer(server.stop)
    asked_of = run(Prometheus, tmp_path / "prometheus", {"gpuwatch": [f"127.0.0.1:{server.server_address[1]}"]})
    dashboard = json.loads((DOCS / "exporter-dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    questions = [line for block in blocks("promql") for line in block.splitlines() if line and line[0] != "#"]
    assert (len(asked), len(questions)) == (15, 6)
    for expression in asked + questions:
        for variable, text in (("$host", "node7"), ("$__rate_interval", "1m"), ("1d:1m", "1d:1s")):
            expression = expression.replace(variable, text)
        assert asked_of.wait(expression), expression
    assert [labels["gpu"] for labels, _ in asked_of.query(questions[1])] == ["1"]
    assert asked_of.query("sum(gpuwatch_gpu_free)")[0][1] == 1
    (named,) = asked_of.query(questions[2])
    assert named[0]["name"] == gpu.name
    (hosts,) = (one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query")
    assert hosts == "label_values(gpuwatch_exporter_info, host)"
    assert asked_of.query("gpuwatch_exporter_info")[0][0]["host"] == "node7"


def test_the_fleet_view_shows_a_change_within_one_refresh(
    sim_machine: Open, export: Callable[..., RunningExporter], prometheus: Callable[..., Prometheus]
) -> None:
    first, second = sim_machine("2x24GiB"), sim_machine("1x80GiB")
    server = prometheus(
        export(first, "--every", "500ms", "--host", "n1", "--processes"),
        export(second, "--every", "500ms", "--host", "n2", "--compat", "dcgm"),
    )
    server.wait("count(gpuwatch_gpu_free) == 3")
    server.wait("DCGM_FI_DEV_FB_USED")
    source = PrometheusSource(PrometheusServer(server.url))

    def uses() -> dict[str, list[str]]:
        fleet = source.read()
        assert not fleet.problem
        return {view.name: [gpu.use for gpu in summarize_host(view).gpus] for view in fleet.hosts}

    assert uses() == {"n1": ["free", "free"], "n2": ["free"]}
    for machine, gpu in ((first, 1), (second, 0)):
        faults.foreign_process(machine, gpu, 5 * GIB, 50.0, None)
    began = time.monotonic()
    wanted = {"n1": ["free", "used"], "n2": ["used"]}
    wait_for(lambda: uses() == wanted, lambda: f"{wanted}: {uses()}", 15, pause=0.2)
    print(f"the fleet view showed it after {time.monotonic() - began:.1f} s")
    faults.hang(second, None)

    def n2() -> HostView:
        (view,) = (view for view in source.read().hosts if view.name == "n2")
        return view

    wait_for(lambda: n2().reason, "the hang of n2", pause=0.5)
    silent = n2()
    print(f"the fleet view says of the hang: {silent.reason}")
    assert not silent.answered
    assert silent.snapshot is not None
    assert [finding.id for finding in silent.snapshot.findings] == ["driver.bad-state"]
    second.clear_faults()


@pytest.mark.parametrize("name", ["Hostname", "hostname", "instance"])
def test_dashboards_for_dcgm_exporter_get_what_nvml_can_tell(
    name: str, sim_machine: Open, export: Callable[..., RunningExporter], prometheus: Callable[..., Prometheus]
) -> None:
    machine = sim_machine("2x80GiB")
    for gpu in (0, 1):
        machine.override(gpu, "gpm", 1)
        machine.override(gpu, "tensor_percent", 50)
    server = prometheus(export(machine, "--every", "500ms", "--compat", "dcgm", "--gpm"))
    server.wait("DCGM_FI_DEV_GPU_TEMP")
    for expression in (*OF_ITS_DASHBOARD, *PROFILING):
        found = server.wait(expression.replace("NAME", name))
        if "by" in expression and "sum" not in expression:
            assert len(found) == 2, expression
            assert all(labels[name] for labels, _ in found)


def test_promtool_takes_the_rules(tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(rules())
    program = shutil.which("promtool") or "promtool"
    done = subprocess.run([program, "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{rules().count('- alert:')} rules found" in done.stdout


def test_prometheus_comes_with_password_and_certificate(
    sim_machine: Open, run: Callable[..., object], tmp_path: Path
) -> None:
    import bcrypt

    from tests.exporter.certificates import Authority

    authority = Authority(tmp_path / "ca")
    authority.issue("localhost", tmp_path / "server")
    authority.issue("prometheus", tmp_path / "client")
    web = tmp_path / "web.yml"
    web.write_text(
        "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  client_ca_file: ca.crt\n"
        "  client_auth_type: RequireAndVerifyClientCert\n"
        f"basic_auth_users:\n  prometheus: {bcrypt.hashpw(b'secret', bcrypt.gensalt(6)).decode()}\n"
    )
    machine = sim_machine("1x24GiB")
    exporter = run(RunningExporter, machine, "--web-config", str(web), folder=tmp_path)
    assert isinstance(exporter, RunningExporter)
    assert exporter.url.startswith("https://")
    tls = (
        f"ca_file: {tmp_path}/ca.crt, cert_file: {tmp_path}/client.crt, key_file: {tmp_path}/client.key,"
        " server_name: localhost"
    )
    more = f"    scheme: https\n    tls_config: {{{tls}}}\n    basic_auth: {{username: prometheus, password: secret}}\n"
    server = run(Prometheus, tmp_path / "prometheus", {"gpuwatch": [exporter.address]}, more=more)
    assert isinstance(server, Prometheus)
    assert server.wait("gpuwatch_gpus")[0][1] == 1
