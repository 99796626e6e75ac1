"""Causes that a build, a driver, MIG and containers give by themselves, without a line in a log."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import DeviceMapping, Framework, Oom, Run, Worker
from gpuwatch.core.model.snapshot import Driver, Process, Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_parser import parse
from tests.diagnosis.cases import GIB, draft, machine, on_gpus, process

BUILD = {"cuda_version": "12.5.1", "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"]}
WHEEL = Framework(name="tensorflow", version="2.21.0", gpu_build=True, build=BUILD)


def found(cause: str, evidence: Evidence) -> list[Finding]:
    return [entry for entry in diagnose(evidence) if entry.id == cause]


def with_driver(cuda_version: str | None) -> Snapshot:
    return msgspec.structs.replace(
        machine(), driver=Driver(version="470.1", cuda_version=cuda_version, nvml_version="11")
    )


@pytest.mark.parametrize(
    ("driver", "build", "too_old"),
    [
        ("11.4", "12.5.1", True),
        ("12.0", "12.5.1", False),  # minor version compatibility
        ("13.0", "12.5.1", False),
        ("12.8", "13.0", True),
        (None, "12.5.1", False),
        ("11.4", "64_112", False),  # an old Windows build, whose version has another form
        ("11.4", None, False),
    ],
)
def test_a_driver_is_too_old_by_major_version(driver: str | None, build: str | None, too_old: bool) -> None:
    wheel = Framework(name="tensorflow", version="2.21.0", gpu_build=True, build={"cuda_version": build})
    evidence = Evidence(snapshot=with_driver(driver), run=draft(framework=wheel))
    assert [entry.severity for entry in found("driver.too-old", evidence)] == (["error"] if too_old else [])


def test_a_plug_in_and_a_cpu_build_need_no_cuda() -> None:
    for fields in ({"simulation": "plugin", "framework": WHEEL}, {"framework": Framework(name="t", gpu_build=False)}):
        assert not found("driver.too-old", Evidence(snapshot=with_driver("11.4"), run=draft(**fields)))


def with_capability(*capabilities: str) -> Snapshot:
    snapshot = machine(gpus=len(capabilities))
    devices = tuple(
        msgspec.structs.replace(device, compute_capability=capability)
        for device, capability in zip(snapshot.devices, capabilities, strict=True)
    )
    return msgspec.structs.replace(snapshot, devices=devices)


@pytest.mark.parametrize(
    ("capability", "usable", "severity"),
    [
        ("5.2", False, "error"),
        ("5.2", True, "warning"),
        ("8.6", True, None),
        ("9.0", True, None),
        ("12.0", True, "warning"),
    ],
)
def test_the_build_s_own_list_says_which_card_it_has_code_for(
    capability: str, usable: bool, severity: str | None
) -> None:
    run: Run = on_gpus("default", framework=WHEEL) if usable else draft(framework=WHEEL)
    entries = found("build.gpu-unsupported", Evidence(snapshot=with_capability(capability), run=run))
    assert [entry.severity for entry in entries] == ([severity] if severity else [])
    if entries:
        assert capability in " ".join(entries[0].evidence)
        assert entries[0].device_uuid == "GPU-0"


def test_a_card_that_the_work_does_not_see_is_not_judged() -> None:
    evidence = Evidence(
        snapshot=with_capability("8.6", "5.2"),
        run=on_gpus("default", framework=WHEEL, environment={"CUDA_VISIBLE_DEVICES": "0"}),
    )
    assert not found("build.gpu-unsupported", evidence)


def test_what_the_log_says_is_not_said_twice() -> None:
    line = (
        "gpu_device.cc:1] TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0."
    )
    evidence = Evidence(snapshot=with_capability("12.0"), run=on_gpus("default", framework=WHEEL), log=parse(line))
    assert len(found("build.gpu-unsupported", evidence)) == 1


MIG = "MIG-41b36e66-e0ee-52d7-a0c0-000000000001"
OTHER = "MIG-41b36e66-e0ee-52d7-a0c0-000000000002"


def divided(mode: str = "enabled") -> Snapshot:
    snapshot = machine(gpus=1)
    device = snapshot.devices[0]
    device = msgspec.structs.replace(device, readings={**device.readings, "mig.mode": mode})
    return msgspec.structs.replace(snapshot, devices=(device,))


@pytest.mark.parametrize(
    ("value", "snapshot", "titles"),
    [
        (f"{MIG},{OTHER}", divided(), ["2 MIG instances are listed"]),
        (f"{MIG},{OTHER}", None, ["2 MIG instances are listed"]),
        (f"{MIG},0", None, ["MIG instances and whole GPUs"]),
        (MIG, divided(), []),
        (MIG, None, []),
        (MIG, divided("disabled"), ["no GPU in this machine has MIG enabled"]),
        ("0", divided(), ["a number does not select any"]),
        ("0", divided("disabled"), []),
        ("GPU-0", divided(), []),
    ],
)
def test_mig_instances_are_named_one_at_a_time_by_uuid(
    value: str, snapshot: Snapshot | None, titles: list[str]
) -> None:
    entries = found("mig.misuse", Evidence(snapshot=snapshot, environment={"CUDA_VISIBLE_DEVICES": value}))
    assert len(entries) == len(titles)
    for entry, title in zip(entries, titles, strict=True):
        assert title in entry.title
        assert entry.severity in ("warning", "info")
        assert value in " ".join(entry.evidence)


def test_mig_misuse_is_an_error_where_no_gpu_could_be_used() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": f"{MIG},{OTHER}"}
    (entry,) = found("mig.misuse", Evidence(run=draft(environment=environment)))
    assert entry.severity == "error"
    (entry,) = found("mig.misuse", Evidence(run=on_gpus("default", environment=environment)))
    assert entry.severity == "warning"
    (entry,) = found("mig.misuse", Evidence(log=LogFacts(hiding_visible_devices=f"{MIG},{OTHER}")))
    assert entry.severity == "error"


def hidden(pid: int, amount: int, **changes: Any) -> Process:
    fields: dict[str, Any] = {"note": "in another PID namespace, or exited", "create_time": None, **changes}
    return msgspec.structs.replace(process(pid, amount), **fields)


def test_processes_of_another_namespace_are_told_by_device() -> None:
    snapshot = machine(processes=(hidden(7001, GIB), hidden(7002, 2 * GIB), hidden(7003, GIB, device_uuid="GPU-1")))
    first, second = found("container.pid-namespace", Evidence(snapshot=snapshot))
    assert (first.device_uuid, second.device_uuid) == ("GPU-0", "GPU-1")
    assert first.title.startswith("GPU 0: 2 processes")
    assert "7001, 7002" in first.evidence[0]
    assert "3.0 GiB" in first.evidence[1]
    assert (first.severity, first.certainty) == ("info", "likely")


def test_processes_that_proc_hides_are_told_as_that() -> None:
    note = "hidden from this user: /proc is mounted with hidepid=2"
    evidence = Evidence(snapshot=machine(processes=(hidden(7001, GIB, note=note), hidden(7002, GIB, note=note))))
    assert not found("container.pid-namespace", evidence)
    (entry,) = found("memory.other-process", evidence)
    assert "hidepid=2" in entry.title
    assert (entry.severity, entry.certainty) == ("info", "fact")
    assert "2.0 GiB" in entry.evidence[1]


def test_processes_that_are_seen_are_no_strangers() -> None:
    snapshot = machine(processes=(process(1, GIB), hidden(2, GIB, note="permission denied")))
    assert not found("container.pid-namespace", Evidence(snapshot=snapshot))
    assert not found("container.pid-namespace", Evidence(snapshot=machine(processes=(hidden(1, GIB),)), run=draft()))


def test_a_process_of_the_same_run_that_holds_the_memory_is_named_with_its_bytes() -> None:
    workers = (
        Worker(name="first", setting="default", pid=4711, granted_bytes=20 * GIB),
        Worker(name="second", setting="default", pid=4712, verdict="oom"),
        Worker(name="first", setting="fraction 0.4", pid=4713, granted_bytes=9 * GIB),
    )
    oom = Oom(device="GPU:0", requested_bytes=GIB, verdict="memory.other-process", expected=True)
    (entry,) = found("memory.other-process", Evidence(run=on_gpus("contention", workers=workers, ooms=(oom,))))
    held = [line for line in entry.evidence if "of this run" in line]
    assert held == ["process first (pid 4711) of this run held 20.0 GiB (its allocator's limit)"]


def test_a_plug_in_device_needs_no_cuda_library() -> None:
    missing = LogFacts(missing_libraries=["libnccl.so.2"])
    for simulation, expected in (("plugin", False), ("driver", True)):
        run = on_gpus("multi-worker", simulation=simulation, simulated=True)
        evidence = Evidence(run=run, log=missing, snapshot=machine())
        assert bool(found("cuda.libraries-missing", evidence)) == expected


@pytest.mark.parametrize(
    ("hours", "severity"),
    [(0.5, "error"), (3, "warning")],
)
def test_an_xid_of_the_hardware_stands_for_as_long_as_it_is_known(hours: float, severity: str) -> None:
    snapshot = machine(gpus=2)
    at = snapshot.taken_at.timestamp() - hours * 3600
    devices = (msgspec.structs.replace(snapshot.devices[0], xids=(Xid(at, 79),)), snapshot.devices[1])
    (fault,) = found("hardware.fault", Evidence(snapshot=msgspec.structs.replace(snapshot, devices=devices)))
    assert (fault.severity, fault.certainty) == (severity, "fact")
    assert "Xid 79" in fault.title
    assert any("none for 3 h since" in line for line in fault.evidence) == (hours > 1)


@pytest.mark.parametrize(
    ("readings", "part"),
    [
        ({"temperature.gpu_celsius": 86.0, "temperature.slowdown_celsius": 92.0}, "throttled (thermal)"),
        ({"temperature.gpu_celsius": 71.0}, "throttled (thermal)"),
        ({}, "throttled (thermal)"),
        ({"temperature.gpu_celsius": 45.0}, "core is cool: its memory, its voltage regulators or a sensor"),
        ({"temperature.gpu_celsius": 70.0, "temperature.operating_max_celsius": 93.0}, "core is cool"),
        ({"temperature.gpu_celsius": 60.0, "temperature.margin_celsius": 27.0}, "core is cool"),
        (
            {
                "temperature.gpu_celsius": 50.0,
                "temperature.memory_celsius": 101.0,
                "temperature.memory_max_celsius": 105.0,
            },
            "(thermal): its memory is hot",
        ),
        (
            {
                "temperature.gpu_celsius": 50.0,
                "temperature.memory_celsius": 60.0,
                "temperature.memory_max_celsius": 105.0,
            },
            "core is cool: its voltage regulators or a sensor",
        ),
    ],
)
def test_throttling_for_heat_agrees_with_the_temperatures(readings: dict[str, float], part: str) -> None:
    snapshot = machine(gpus=1)
    (device,) = snapshot.devices
    kept = {name: value for name, value in device.readings.items() if not name.startswith("temperature")}
    hot = msgspec.structs.replace(device, readings=kept | readings | {"clocks.event_reasons": "sw-thermal"})
    snapshot = msgspec.structs.replace(snapshot, devices=(hot,))
    (found_here,) = found("throttle.thermal", Evidence(snapshot=snapshot))
    assert part in found_here.title
    cool = "core is cool" in part
    assert ("Cooling the core" in found_here.action) is cool
    assert ("Improve the cooling" in found_here.action) is not cool
    memory = "temperature.memory_celsius" in readings
    assert ("heat pads over memory" in found_here.action) is (cool and not memory), "read, it is cool"
    celsius = readings.get("temperature.gpu_celsius")
    if celsius is not None:
        assert any(f"core {celsius:.0f} °C" in line for line in found_here.evidence)


def test_a_run_is_told_of_throttling_only_on_the_gpus_that_it_used() -> None:
    snapshot = machine(busy=90.0)
    hot = msgspec.structs.replace(
        snapshot.devices[1], readings={**snapshot.devices[1].readings, "clocks.event_reasons": "hw-thermal"}
    )
    snapshot = msgspec.structs.replace(snapshot, devices=(snapshot.devices[0], hot))
    for uuid, told in (("GPU-0", False), ("GPU-1", True), (None, True)):
        used = (DeviceMapping(framework_device="/device:GPU:0", uuid=uuid),)
        run = on_gpus("default", device_map=used)
        assert bool(found("throttle.thermal", Evidence(snapshot=snapshot, run=run))) is told
