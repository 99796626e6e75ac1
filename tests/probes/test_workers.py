"""Processes that a probe forks: orders, reports, deadlines, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.experiment.probing.probe_scripts import probe_folder
from tests.terminal import wait_until_ended

_COORDINATOR = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
import _gpuwatch_probe, _gpuwatch_workers as workers

def obedient(framework, probe, next_order):
    print("hello from", framework, flush=True)
    probe.result("granted_bytes", 7)
    while (order := next_order()) is not None:
        probe.result("did", order)

def failing(framework, probe, next_order):
    raise MemoryError("first line\\nOOM when allocating tensor")

def skipping(framework, probe, next_order):
    probe.skip("no such thing here")

def crashing(framework, probe, next_order):
    os.kill(os.getpid(), signal.SIGSEGV)

def hanging(framework, probe, next_order):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(300)

probe = _gpuwatch_probe.Probe({"name": "x"})
"""


def coordinate(body: str) -> tuple[list[dict[str, Any]], str]:
    """Events and stderr of a script that has workers; none of its processes may stay."""
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _COORDINATOR + body, str(probe_folder())],
            env={**os.environ, "GPUWATCH_EVENT_FD": str(write)},
            pass_fds=(write,),
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)
    with os.fdopen(read, "rb") as stream:  # ends only when no process holds the other end any more
        events = [json.loads(line) for line in stream]
    assert done.returncode == 0, done.stderr
    return events, done.stderr


def test_orders_reports_and_the_log() -> None:
    events, log = coordinate("""
one, two = (workers.Worker("TF", probe, name, obedient, "default") for name in ("one", "two"))
for worker in (one, two):
    worker.order("a"); worker.order("b")
assert two.wait("result", "did")["value"] == "a"
workers.finish_all([one, two])
for worker in (one, two):
    worker.report()
    probe.result("did", [data["value"] for data in worker.data("result", "did")])
""")
    assert [event["data"]["verdict"] for event in events if event["kind"] == "worker"] == ["ok", "ok"]
    assert [event["data"]["granted_bytes"] for event in events if event["kind"] == "worker"] == [7, 7]
    assert [event["data"]["value"] for event in events if event["kind"] == "result"] == [["a", "b"], ["a", "b"]]
    assert log.count("hello from TF") == 2


@pytest.mark.parametrize(
    ("task", "verdict", "detail"),
    [
        ("failing", "oom", "MemoryError: OOM when allocating tensor"),
        ("skipping", "skipped", ""),
        ("crashing", "error", "Killed: it was killed by signal 11"),
        ("hanging", "timeout", "Killed: it was killed by signal 9"),
    ],
)
def test_ends_that_are_not_well(task: str, verdict: str, detail: str) -> None:
    events, _ = coordinate(f"""
worker = workers.Worker(None, probe, "one", {task}, seconds=0.5)
assert worker.wait("result") is None
worker.finish().report()
assert worker.order("too late") is False
""")
    (report,) = (event["data"] for event in events if event["kind"] == "worker")
    assert (report["verdict"], report["detail"]) == (verdict, detail)


def test_a_worker_dies_with_its_coordinator(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    read, write = os.pipe()
    body = f"""
worker = workers.Worker(None, probe, "one", hanging)
open({str(note)!r}, "w").write(str(worker.pid))
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", _COORDINATOR + body, str(probe_folder())]
    # The worker inherits the descriptor: reading ends when it is gone.
    subprocess.run(command, pass_fds=(write,), timeout=30, check=False)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        assert stream.read() == b""
    wait_until_ended(int(note.read_text()))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("InternalError: cudaSetDevice() on GPU:0 failed. Status: out of memory", True),  # TensorFlow 2.21, a full H200
        ("RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory", True),
        ("AcceleratorError: CUDA error: cudaErrorMemoryAllocation", True),
        ("ResourceExhaustedError: failed to allocate", True),
        ("InternalError: cudaSetDevice() on GPU:0 failed. Status: invalid device ordinal", False),
    ],
)
def test_a_full_gpu_is_told_by_whichever_layer_of_cuda_met_it(message: str, expected: bool) -> None:
    name, _, text = message.partition(": ")
    body = f"print(workers.exhausted(type({name!r}, (Exception,), {{}})({text!r})), file=sys.stderr)"
    assert coordinate(body)[1].strip() == str(expected)
