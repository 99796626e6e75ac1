"""Real TensorFlow through the command line: every configuration ends as the catalogue says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.core.model.run_memory import NO_PEAK_PREFIX
from gpuwatch.experiment.probing.interpreter import choose_interpreter
from gpuwatch.experiment.probing.probe_scripts import find_probes
from gpuwatch.experiment.probing.simulation_tier import choose_tier
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch, has_driver
from tests.forked import gpuwatch_forked
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(900),  # the first test waits for what runs beside its own
]

GIB = 1024**3
PROBES = {name: script for name, script in find_probes().items() if script.framework == "tensorflow"}

WAIT = ("contention", "fragmentation", "largest-batch")
"""TensorFlow tries for ten seconds before it gives up an allocation: beside the others."""
NAMED = ("cpu-only", "default", "growth", "hard-missing", "manual", "soft-missing")
"""What the tests below look at more closely."""
COMPARED = ("growth-env", "soft-missing")
"""What also runs in fresh interpreters: one that speaks through the environment, which a fork gets late, and one
through tf.device."""
COMPARED_AT_LENGTH = ("session-visible", "session-grow-to-limit", "visible-env", "session-no-kernel")
LARGE = ("default", "growth", "contention", "fragmentation", "largest-batch")
"""What says something else of a card of 4 GiB, and what is compared with it."""

Taken = dict[str, tuple[int, dict[str, Any]]]


def _shape(config: str) -> str:
    """Small, because TensorFlow fills a table of 1/32 of each pool."""
    return "2x2GiB" if PROBES[config].gpus > 1 else "1x12GiB" if config in LARGE else "1x2GiB"


class Catalogue:
    """Configurations on private devices, each run once in a fork, and once afresh where that is wanted."""

    def __init__(self, configs: Collection[str], afresh: Collection[str]) -> None:
        self._pool = ThreadPoolExecutor(2)
        self._runs: dict[tuple[str, bool], Future[Taken]] = {}
        for waiting in (True, False):
            lane = [config for config in configs if (config in WAIT) is waiting]
            for shape in ("1x12GiB", "1x2GiB", "2x2GiB"):
                chosen = [config for config in lane if shape == _shape(config)]
                if chosen:
                    fresh = [config for config in chosen if config in afresh]
                    both = self._pool.submit(self._run, shape, chosen, fresh)
                    for config in chosen:
                        self._runs[config, False] = both
                    for config in fresh:
                        self._runs[config, True] = both

    @staticmethod
    def _run(shape: str, configs: list[str], afresh: list[str]) -> Taken:
        """Both on one machine, so that they can be compared; afresh under the name and "afresh"."""
        machine = SimMachine.open(SimShape.parse(shape), name=f"test-{uuid.uuid4().hex[:12]}")
        found: Taken = {}
        try:
            for names, seconds, more in ((configs, "0.1", ()), (afresh, "0.05", ("--fresh",))):
                if names:
                    asked = [part for name in names for part in ("--config", name)]
                    start = gpuwatch if more else gpuwatch_forked
                    result = start(
                        *("probe", *asked, "--seconds", seconds, "--json", *more),
                        environment=machine.environment(os.environ),
                        timeout=800,
                    )
                    assert result.out, result.err
                    document = json.loads(result.out)
                    runs = document["runs"] if len(names) > 1 else [document]
                    assert [run["config"] for run in runs] == names
                    found.update({run["config"] + "".join(more): (result.code, run) for run in runs})
        finally:
            machine.remove()
        return found

    def run(self, config: str, *, fresh: bool = False) -> tuple[int, dict[str, Any]]:
        """Exit code of the command that it ran in, and its run."""
        return self._runs[config, fresh].result()[config + ("--fresh" if fresh else "")]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def catalogue(request: pytest.FixtureRequest) -> Iterator[Catalogue]:
    """What the chosen tests look at, begun at once."""
    chosen: dict[str, None] = {}
    afresh: list[str] = []
    for item in request.session.items:
        if item.path == Path(__file__) and "catalogue" in getattr(item, "fixturenames", ()):
            config = getattr(getattr(item, "callspec", None), "params", {}).get("config")
            chosen.update(dict.fromkeys([config] if config else NAMED))
            if isinstance(item, pytest.Function) and item.function is test_a_fork_and_a_fresh_interpreter_tell_the_same:
                afresh.append(str(config))
    runs = Catalogue([name for name in PROBES if name in chosen], afresh)
    yield runs
    runs.close()


@pytest.fixture
def run_of(catalogue: Catalogue) -> Callable[[str], tuple[int, dict[str, Any]]]:
    return catalogue.run


def comparable(run: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on how the probe was started."""
    return {
        "verdict": run["verdict"],
        "device_map": run["device_map"],
        "placements": sorted((p["op"], p["requested"] or "", p["actual"]) for p in run["placements"]),
        "fallbacks": sorted((f["op"], f["requested"], f["actual"], f["reason"]) for f in run["fallbacks"]),
        "ooms": run["ooms"],
        "errors": [(error["type"], error["expected"]) for error in run["errors"]],
        "findings": sorted((finding["id"], finding["severity"]) for finding in run["findings"]),
        "missing_libraries": run["missing_libraries"],
        "settings": {name: setting["effective"] for name, setting in run["settings"].items()},
    }


@pytest.mark.parametrize(
    "config", [*COMPARED, *(pytest.param(name, marks=pytest.mark.long) for name in COMPARED_AT_LENGTH)]
)
def test_a_fork_and_a_fresh_interpreter_tell_the_same(config: str, catalogue: Catalogue) -> None:
    (_, forked), (code, fresh) = catalogue.run(config), catalogue.run(config, fresh=True)
    assert code == 0
    assert (forked["fresh"], fresh["fresh"]) == (False, True)
    assert comparable(forked) == comparable(fresh)


@pytest.mark.parametrize("config", PROBES)
def test_verdict_of_the_catalogue(config: str, run_of: Callable[[str], tuple[int, dict[str, Any]]]) -> None:
    code, run = run_of(config)
    assert run["verdict"] == PROBES[config].verdict, run["verdict_reason"]
    assert code == 0, [finding["id"] for finding in run["findings"] if finding["severity"] == "error"]
    assert run["simulated"]
    assert run["simulation"] == choose_tier(PROBES[config], choose_interpreter("tensorflow", None), None, None).tier
    assert run["outcome"] == {"exit_code": 0, "signal": None, "timed_out": False, "ended": True}
    # What the workers of occupied hold for a moment may fall between two samples.
    assert [text for text in run["problems"] if config != "occupied" or not text.startswith(NO_PEAK_PREFIX)] == []


def test_manual_tells_the_copies_that_tensorflow_makes_by_itself(
    run_of: Callable[[str], tuple[int, dict[str, Any]]],
) -> None:
    _, run = run_of("manual")
    copies = {(copy["op"], copy["input"], copy["source"], copy["destination"]) for copy in run["copies"]}
    assert copies == {("MatMul", 0, "CPU:0", "GPU:0"), ("MatMul", 1, "CPU:0", "GPU:0")}


def test_default_maps_nearly_everything(run_of: Callable[[str], tuple[int, dict[str, Any]]]) -> None:
    _, run = run_of("default")
    (device,) = run["device_map"]
    memory = run["memory"]
    assert device["granted_bytes"] > 0.8 * memory["device_total_bytes"]
    assert memory["nvml_peak_bytes"] > 0.8 * memory["device_total_bytes"]
    assert device["framework_device"] == "/device:GPU:0"
    assert device["uuid"].startswith("GPU-")
    assert device["pci_bus_id"] == "0000:01:00.0"
    assert "idle.memory-held" in [finding["id"] for finding in run["findings"]]


def test_growth_has_the_same_limit_and_little_memory(run_of: Callable[[str], tuple[int, dict[str, Any]]]) -> None:
    _, default = run_of("default")
    _, growth = run_of("growth")
    assert growth["device_map"] == default["device_map"] or (
        growth["device_map"][0]["granted_bytes"] == default["device_map"][0]["granted_bytes"]
    )
    assert growth["memory"]["nvml_peak_bytes"] < 0.1 * growth["memory"]["device_total_bytes"]
    assert growth["settings"]["memory growth"] == {"asked": True, "effective": True, "note": "", "source": ""}
    for run in (default, growth):
        assert run["throughput"]["steps"] >= 20
        assert run["throughput"]["flops_per_second"] > 0
        assert run["throughput"]["device"].endswith("GPU:0")


def test_cpu_only_sees_no_gpu(run_of: Callable[[str], tuple[int, dict[str, Any]]]) -> None:
    _, run = run_of("cpu-only")
    assert run["device_map"] == []
    assert not [device for device in run["devices"]["physical"] if "GPU" in device]
    assert [(f["id"], f["severity"]) for f in run["findings"] if f["id"] == "visibility.hidden"] == [
        ("visibility.hidden", "info")
    ]


def test_soft_missing_names_what_was_asked_and_what_happened(
    run_of: Callable[[str], tuple[int, dict[str, Any]]],
) -> None:
    _, run = run_of("soft-missing")
    (fallback,) = run["fallbacks"]
    assert (fallback["op"], fallback["requested"], fallback["actual"]) == ("MatMul", "GPU:7", "GPU:0")
    assert fallback["reason"] == "placement.device-missing"


def test_hard_missing_keeps_the_expected_error(run_of: Callable[[str], tuple[int, dict[str, Any]]]) -> None:
    _, run = run_of("hard-missing")
    (error,) = run["errors"]
    assert error["expected"]
    assert "Could not satisfy device specification" in error["message"]


@pytest.mark.skipif(has_driver(), reason="this machine has a driver")
def test_without_a_gpu_the_cause_is_named() -> None:
    result = gpuwatch_forked("probe", "--config", "growth", "--seconds", "0.1", "--json", environment=os.environ)
    run = json.loads(result.out)
    assert result.code == 3
    assert run["verdict"] == "fallback"
    assert run["primary"] == "driver.missing"
    assert {placement["actual"].rpartition("device:")[2] for placement in run["placements"]} == {"CPU:0"}
    assert not run["simulated"]


def test_the_process_is_seen_by_others_while_it_runs(sim_machine: Callable[[str], SimMachine]) -> None:
    environment = sim_machine("1x4GiB").environment(os.environ)
    probe = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "probe", "--config", "default", "--seconds", "6", "--json"],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while True:
            taken = json.loads(gpuwatch("snapshot", "--json", environment=environment).out)
            holding = [p for p in taken["processes"] if p["readings"].get("gpu_memory_bytes", 0) > 2 * GIB]
            if holding and (holding[0]["framework"] or "").startswith("tensorflow"):
                break
            assert time.monotonic() < until, taken["processes"]
        (process,) = holding
        assert "default.py" in process["command"]
        assert [entry["index"] for entry in process["device_map"]] == [0]
        assert taken["devices"][0]["readings"]["memory.used_bytes"] > 2 * GIB
    finally:
        probe.send_signal(signal.SIGINT)
        assert probe.wait(10) == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_gpuwatch_is_stopped(
    number: signal.Signals, sim_machine: Callable[[str], SimMachine]
) -> None:
    machine = sim_machine("1x2GiB")
    mark = f"GPUWATCH_TEST_MARK={machine.state_path.name}"
    environment = {**machine.environment(os.environ), "GPUWATCH_TEST_MARK": machine.state_path.name}
    started = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "probe", "--config", "default", "--seconds", "60"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: len(_marked(mark)) >= 3, "gpuwatch, its collector and the probe", pause=0.1)
    time.sleep(1.0)  # some way into the probe
    started.send_signal(number)
    started.wait(10)
    wait_for(lambda: not _marked(mark), lambda: f"the end of {_marked(mark)}", 5, pause=0.1)


def _marked(mark: str) -> list[int]:
    """Processes that have the mark in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                environ = Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in environ:
                found.append(int(entry))
    return found
