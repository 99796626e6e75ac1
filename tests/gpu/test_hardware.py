"""On a real GPU: NVML's own answers, and the probes on hardware."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pynvml
import pytest

from gpuwatch.core.model.metrics import METRICS, Lane
from gpuwatch.core.model.snapshot import MigInstance
from gpuwatch.machine.sources.nvidia.multi_call_metrics import ADAPTERS
from gpuwatch.machine.sources.nvidia.nvml_source import NvmlSource
from tests.conftest import gpuwatch

pytestmark = pytest.mark.gpu


def test_every_metric_has_a_value_or_a_reason() -> None:
    result = gpuwatch("snapshot", "--gpm", "--json")
    assert result.code == 0, result.err
    snapshot = json.loads(result.out)
    assert not snapshot["simulated"]
    topology = snapshot["topology"]
    assert [place["uuid"] for place in topology["places"]] == [device["uuid"] for device in snapshot["devices"]]
    for place in topology["places"]:
        assert place["cpus"] or place["missing"]["cpus"]["detail"]
    for connection in topology["connections"]:
        assert connection["level"] or connection["missing"]["detail"]
    for device in snapshot["devices"]:
        answered = device["readings"].keys() | device["missing"].keys()
        assert {spec.id for spec in METRICS} <= answered
        assert device["readings"]["memory.total_bytes"] > 2**28
        assert 0 < device["readings"]["temperature.gpu_celsius"] < 120
        for metric_id, lack in device["missing"].items():
            assert lack["detail"], metric_id


@pytest.mark.tensorflow
@pytest.mark.parametrize(("config", "least", "most"), [("default", 0.7, 1.0), ("growth", 0.0, 0.2)])
def test_memory_that_nvml_sees(config: str, least: float, most: float) -> None:
    result = gpuwatch("probe", "--config", config, "--json", timeout=300)
    run = json.loads(result.out)
    assert run["verdict"] == "ok", run["verdict_reason"]
    share = run["memory"]["nvml_peak_bytes"] / run["memory"]["device_total_bytes"]
    assert least <= share <= most
    assert run["device_map"][0]["uuid"].startswith("GPU-")


_LOAD = """
import sys, time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
torch.cuda.synchronize()
print("busy", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(50):
        a @ a
    torch.cuda.synchronize()
"""
_LOAD_SECONDS = 60.0
_DOUBTFUL_FIELDS = (251, 252, 253, 269, 270, 271)
"""Hardware slowdown and power brake have had both ranges of numbers; the record shows what this driver means."""


def as_json(answer: Any) -> Any:
    """What NVML answered, as JSON can hold it: structs by their fields."""
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    if isinstance(answer, ctypes.Structure):
        return {name: as_json(getattr(answer, name)) for name, *_ in answer._fields_}
    if isinstance(answer, (list, tuple, ctypes.Array)):
        return [as_json(item) for item in answer]
    return answer if isinstance(answer, (int, float, str, type(None))) else repr(answer)


def answer_of(call: str | Callable[..., Any], *args: Any) -> dict[str, Any]:
    """One call with its real answer or return code, and how long it took."""
    began = time.perf_counter()
    try:
        answer = {"answer": as_json((getattr(pynvml, call) if isinstance(call, str) else call)(*args))}
    except pynvml.NVMLError as error:
        answer = {"code": error.value, "error": str(error)}
    return {**answer, "microseconds": round((time.perf_counter() - began) * 1e6, 1)}


def field(handle: Any, number: int, scope: int) -> dict[str, Any]:
    """A field value with its type, its own return code and the bits of its union."""
    began = time.perf_counter()
    try:
        value = pynvml.nvmlDeviceGetFieldValues(handle, [(number, scope)])[0]
    except pynvml.NVMLError as error:
        return {"code": error.value, "error": str(error)}
    return {
        "code": value.nvmlReturn,
        "type": value.valueType,
        "bits": value.value.ullVal,
        "timestamp": value.timestamp,
        "microseconds": round((time.perf_counter() - began) * 1e6, 1),
    }


def instance_facts(instance: MigInstance) -> dict[str, Any]:
    """A MIG instance without what names the board."""
    found: dict[str, Any] = msgspec.to_builtins(instance)
    found["uuid"] = instance.uuid is not None
    return found


def record(nvml: NvmlSource) -> list[dict[str, Any]]:
    """Every function of the table on every device, beside what gpuwatch makes of it, twice for rates."""
    devices = []
    for device in nvml.devices:
        calls: dict[str, Any] = {}
        for spec in METRICS:
            if spec.lane is Lane.GPM:
                continue  # two samples and a request of its own
            args = [getattr(pynvml, arg) if isinstance(arg, str) else arg for arg in spec.args]
            for link_field in spec.per_link:
                calls[f"{link_field},link 0"] = field(device.handle, getattr(pynvml, link_field), 0)
            if spec.per_link and not args:
                continue
            for name in filter(None, (spec.call, spec.fallback)):
                key = ",".join((name, *map(str, spec.args)))
                if key in calls:
                    continue
                if name == "nvmlDeviceGetFieldValues":
                    calls[key] = field(device.handle, *(args if len(args) == 2 else (*args, 0)))
                elif name in ("nvmlDeviceGetNvLinkState", "nvmlDeviceGetMigDeviceHandleByIndex"):
                    most = pynvml.NVML_NVLINK_MAX_LINKS if "NvLink" in name else 16
                    calls[key] = [answer_of(name, device.handle, index) for index in range(most)]
                elif name in ADAPTERS:
                    calls[key] = answer_of(ADAPTERS[name], pynvml, device.handle)
                else:
                    calls[key] = answer_of(name, device.handle, *args)
        calls["nvmlDeviceGetSerial"].pop("answer", None)  # names the board, and the record is to be kept
        calls["nvmlDeviceGetMaxMigDeviceCount"] = answer_of("nvmlDeviceGetMaxMigDeviceCount", device.handle)
        for policy in ("POWER", "THERMAL", "SYNC_BOOST", "BOARD_LIMIT", "RELIABILITY"):
            number = getattr(pynvml, f"NVML_PERF_POLICY_{policy}")
            calls[f"nvmlDeviceGetViolationStatus,{policy}"] = answer_of(
                "nvmlDeviceGetViolationStatus", device.handle, number
            )
        doubtful = {str(number): field(device.handle, number, 0) for number in _DOUBTFUL_FIELDS}
        took: dict[str, float] = {}
        for lane in Lane:
            began = time.perf_counter()
            readings, missing = nvml.sample(device, (Lane.FAST, lane))
            took[lane] = round((time.perf_counter() - began) * 1e3, 3)
        calls["nvmlGpmQueryDeviceSupport"] = answer_of("nvmlGpmQueryDeviceSupport", device.handle)
        time.sleep(0.5)  # a period of GPM
        readings, missing = nvml.sample(device, (Lane.FAST, Lane.GPM))
        readings.pop("identity.serial", None)
        devices.append(
            {
                "name": device.name,
                "compute_capability": device.compute_capability,
                "calls": calls,
                "doubtful_fields": doubtful,
                "readings": readings,
                "missing": msgspec.to_builtins(missing),
                "milliseconds_by_lane": took,
                "mig_instances": [instance_facts(instance) for instance in device.mig_instances],
            }
        )
    return devices


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Keeps the first GPU busy with matrix products."""
    with subprocess.Popen([sys.executable, "-c", _LOAD, str(_LOAD_SECONDS)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"busy\n"
            time.sleep(3)  # NVML averages over a second
            yield
        finally:
            process.kill()


def test_every_call_is_answered_and_recorded() -> None:
    """With OUT set to a folder, NVML's answers are kept there (nvml-answers.json) for fixtures."""
    nvml = NvmlSource()
    nvml.open()
    try:
        assert nvml.driver is not None
        kept: dict[str, Any] = {"driver": msgspec.to_builtins(nvml.driver), "idle": record(nvml)}
        if importlib.util.find_spec("torch"):
            with load():
                kept["load"] = record(nvml)
                time.sleep(5)  # what changes under load
                kept["load_5_seconds_later"] = record(nvml)
    finally:
        nvml.close()
    if folder := os.environ.get("OUT"):
        Path(folder, "nvml-answers.json").write_text(json.dumps(kept, indent=1), "utf-8")
    for devices in (kept[key] for key in kept if key != "driver"):
        for device in devices:
            for spec in METRICS:
                if spec.call and spec.id != "identity.serial":
                    assert spec.id in device["readings"] or device["missing"][spec.id]["reason"], spec.id
