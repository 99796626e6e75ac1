"""What a scrape costs, beside sending a file of the same size: ``python -m tests.benchmarks.scrape``.

64 GPUs and 5,000 processes. Both servers are in Python, in processes of their own, and keep the connection. CPU is
that of the server; ratios are what counts.
"""

from __future__ import annotations

import functools
import http.client
import http.server
import multiprocessing
import multiprocessing.connection
import statistics
import tempfile
import time
from pathlib import Path

import psutil

from gpuwatch.share.exporter.http_server import Address, MetricsServer
from gpuwatch.share.exporter.metric_series import ExporterOptions, ScrapeContent
from gpuwatch.share.exporter.metrics_page import MetricsPage
from tests.exporter.machines import OPTIONS, large

_REQUESTS = 2000
_ROUNDS = 3


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def _files(folder: str, told: multiprocessing.connection.Connection) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=folder))
    told.send(server.server_address[1])
    server.serve_forever()


def _exporter(page: MetricsPage, told: multiprocessing.connection.Connection) -> None:
    server = MetricsServer(Address("127.0.0.1:0"), lambda: page, max_requests=40)
    told.send(server.server_address[1])
    server.serve_forever()


def _cost(process: psutil.Process, port: int, path: str, headers: dict[str, str]) -> tuple[float, float]:
    """CPU of the server and wall time of one request, in seconds."""
    client = http.client.HTTPConnection("127.0.0.1", port)

    def ask(times: int) -> None:
        for _ in range(times):
            client.request("GET", path, headers=headers)
            client.getresponse().read()

    ask(20)
    before, began = process.cpu_times(), time.perf_counter()
    ask(_REQUESTS)
    took, after = time.perf_counter() - began, process.cpu_times()
    client.close()
    return (after.user + after.system - before.user - before.system) / _REQUESTS, took / _REQUESTS


def _compare(name: str, options: ExporterOptions, *, gzip: bool) -> None:
    page = MetricsPage(ScrapeContent(large(), driver_answers=True), options, time.monotonic())
    began = time.process_time()
    body = page.body("plain", gzip=gzip)
    rendered = time.process_time() - began
    spawn = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "metrics").write_bytes(body)
        servers = []
        for work in (functools.partial(_files, folder), functools.partial(_exporter, page)):
            here, there = spawn.Pipe()
            server = spawn.Process(target=work, args=(there,), daemon=True)
            server.start()
            servers.append((server, here.recv()))
        headers = {"Accept-Encoding": "gzip"} if gzip else {}
        costs: list[list[tuple[float, float]]] = [[], []]
        for _ in range(_ROUNDS):
            for (server, port), found in zip(servers, costs, strict=True):
                found.append(_cost(psutil.Process(server.pid), port, "/metrics", headers))
        for server, _ in servers:
            server.kill()
            server.join()
    (file_cpu, file_wall), (cpu, wall) = (
        (statistics.median(one for one, _ in found), statistics.median(one for _, one in found)) for found in costs
    )
    kind = f"{name}{', gzip' if gzip else ''}"
    print(
        f"{kind:20} {len(body):8,} bytes  rendered once {rendered * 1e3:5.1f} ms  scrape {cpu * 1e3:.3f} ms of CPU,"
        f" file {file_cpu * 1e3:.3f} ({cpu / file_cpu:.2f} x); wall {wall * 1e3:.2f} and {file_wall * 1e3:.2f} ms"
    )


if __name__ == "__main__":
    for gzip in (False, True):
        _compare("core", OPTIONS, gzip=gzip)
        _compare("all, 50 processes", OPTIONS._replace(metrics="all", processes=50), gzip=gzip)
