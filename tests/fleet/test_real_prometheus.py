"""A real Prometheus scrapes all three kinds of exporters; the fleet is read from it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpuwatch.fleet.fleet_source import FleetPoller
from gpuwatch.fleet.fleet_summary import HostSummary, summarize_host
from gpuwatch.fleet.prometheus_api import Prometheus as Server
from gpuwatch.fleet.prometheus_source import PrometheusSource
from gpuwatch.sim import faults
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.ui.fleet_app import FleetApp
from tests.exporter.prometheus import Prometheus
from tests.exporter.running import RunningExporter
from tests.fleet.exporters import dcgm, nvidia_smi
from tests.fleet.test_fleet_screen import text_of
from tests.ui.waiting import until
from tests.waiting import wait_for

pytestmark = pytest.mark.prometheus


@pytest.fixture
def pages() -> Iterator[dict[str, str]]:
    """Pages of exporters that are not gpuwatch's, at ``address``; the one of a name that is taken out is gone."""
    shown = {"dcgm": dcgm("dgx9", 4, used={1: 40000}, busy={1: 90}, jobs={1: "4711"}), "smi": nvidia_smi(2)}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = shown.get(self.path.partition("/metrics/")[2])
            self.send_response(200 if text is not None else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(f"{text or ''}\n".encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    shown["address"] = f"127.0.0.1:{server.server_port}"
    yield shown
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def started() -> Iterator[list[RunningExporter | Prometheus]]:
    """Ended in the end."""
    running: list[RunningExporter | Prometheus] = []
    yield running
    for one in reversed(running):
        one.end()


def fleet_of(source: PrometheusSource) -> dict[str, HostSummary]:
    source._asked = float("-inf")
    fleet = source.read()
    assert not fleet.problem
    return {view.name: summarize_host(view) for view in fleet.hosts}


async def test_fleet_of_three_exporters(
    sim_machine: Callable[[str], SimMachine],
    started: list[RunningExporter | Prometheus],
    pages: dict[str, str],
    tmp_path: Path,
) -> None:
    machines = [sim_machine("2x24GiB"), sim_machine("1x80GiB")]
    exporters = [RunningExporter(one, "--every", "500ms", "--processes", folder=tmp_path) for one in machines]
    started += exporters
    prometheus = Prometheus(
        tmp_path / "prometheus",
        {"gpuwatch": [one.address for one in exporters]},
        more="",
    )
    started.append(prometheus)
    source = PrometheusSource(Server(prometheus.url))
    wait_for(lambda: len(prometheus.query("gpuwatch_gpu_free")) == 3)
    hosts = fleet_of(source)
    first, second = (next(host for host in hosts.values() if len(host.gpus) == count) for count in (2, 1))
    assert (first.free_count, second.free_count) == (2, 1)
    assert first.view.snapshot is not None
    assert first.view.snapshot.simulated
    assert first.view.snapshot.host.memory_total_bytes

    # The list shows a change within one refresh, and the host opens with its past.
    watch = FleetPoller(source, 1.0)
    app = FleetApp(watch, lambda name: source.feed(name, 1.0))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "○ 3 of 3 GPUs" in text_of(app))
        pid = faults.foreign_process(machines[1], 0, 5 << 30, 50.0, None)
        wait_for(lambda: prometheus.query("gpuwatch_gpu_free == 0"))
        scraped = time.monotonic()
        await until(pilot, lambda: "○ 2 of 3 GPUs" in text_of(app))
        print(f"shown {time.monotonic() - scraped:.1f} s after it was in Prometheus")
        assert time.monotonic() - scraped < 3
        await pilot.press("s", "down", "enter", "end", "enter")
        await until(pilot, lambda: app.session.snapshot is not None and app.session.history.sample_count > 1)
        await until(pilot, lambda: str(pid) in text_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.fleet_screen)

    # A hang is no idle host.
    faults.hang(machines[0], None)
    wait_for(lambda: "no answer from the driver" in " ".join(one.view.reason for one in fleet_of(source).values()))
    machines[0].clear_faults()


def test_exporters_of_others(
    started: list[RunningExporter | Prometheus], pages: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "prometheus"
    address = pages["address"]
    prometheus = Prometheus(
        config,
        {"dcgm": [address], "smi": [address]},
        more="    relabel_configs: [{source_labels: [job], regex: '(.*)', target_label: __metrics_path__,"
        " replacement: '/metrics/$1'}]\n",
    )
    started.append(prometheus)
    source = PrometheusSource(Server(prometheus.url))
    wait_for(lambda: len(prometheus.query("DCGM_FI_DEV_FB_USED")) == 4 and prometheus.query("nvidia_smi_gpu_info"))
    hosts = fleet_of(source)
    assert sorted(hosts) == ["127.0.0.1", "dgx9"]
    assert hosts["dgx9"].holders == (("job 4711", 1),)
    assert [gpu.use for gpu in hosts["dgx9"].gpus] == ["free", "used", "free", "free"]
    assert hosts["127.0.0.1"].free_count == 2
    del pages["dcgm"]
    wait_for(lambda: not fleet_of(source)["dgx9"].view.answered)
    assert fleet_of(source)["dgx9"].view.reason == "its exporter does not answer"
    # Its past is still there.
    feed = source.feed("127.0.0.1", 1.0)
    feed.start()
    try:
        wait_for(lambda: feed.status().state == "ok")
        assert len(feed.drain()[-1].devices) == 2
    finally:
        feed.stop()
