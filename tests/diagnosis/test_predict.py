"""The expected device map, as truth tables; against real TensorFlow at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gpuwatch.core.model.run import DeviceMapping, Devices, Framework, PredictedMapping, Run, Setting
from gpuwatch.core.model.run_memory import NO_PEAK_PREFIX, DeviceMemory, Memory
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.reference.cuda_compatibility import capabilities_of_build, support_of_build
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.explain.diagnosis.runs.tensorflow_device_prediction import RequestedDevices, predict, requested_devices_of
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.sim.simulated_machine import SimMachine
from tests.diagnosis.cases import GIB, MIB, draft, machine, on_gpus
from tests.every import every
from tests.forked import gpuwatch_forked

BOTH = {"GPU-0": 320 * MIB, "GPU-1": 320 * MIB}


def cards(*free_mib: int, capability: str = "8.6", simulated: bool = True) -> Snapshot:
    """A machine whose GPUs have so much free memory."""
    snapshot = machine(gpus=len(free_mib))
    devices = tuple(
        msgspec.structs.replace(
            device,
            simulated=simulated,
            compute_capability=capability,
            readings={
                "memory.total_bytes": 24 * GIB,
                "memory.used_bytes": 24 * GIB - (free + 256) * MIB,
                "memory.free_bytes": free * MIB,
                "memory.reserved_bytes": 256 * MIB,
            },
        )
        for device, free in zip(snapshot.devices, free_mib, strict=True)
    )
    return msgspec.structs.replace(snapshot, devices=devices, simulated=simulated)


def table(found: tuple[PredictedMapping, ...] | None) -> list[tuple[str, str, int | None]]:
    assert found is not None
    return [
        (entry.framework_device, entry.uuid, None if entry.granted_bytes is None else entry.granted_bytes // MIB)
        for entry in found
    ]


@pytest.mark.parametrize(
    ("capability", "free", "granted"),
    [
        # The reserve steps with the card's generation; below 2 GiB it is the same for all.
        ("6.1", 20000, 20000 - 320 - 500),
        ("7.5", 20000, 20000 - 320 - 1050),
        ("8.9", 20000, 20000 - 320 - 1536),
        ("9.0", 20000, 20000 - 320 - 1800),
        ("12.0", 20000, 20000 - 320 - 1800),
        ("8.6", 2048 + 320, 512),
        ("8.6", 2047 + 320, 2047 - 225),
        ("8.6", 320 + 200, 200),
    ],
)
def test_the_reserve_by_capability_and_free_memory(capability: str, free: int, granted: int) -> None:
    found = predict(cards(free, capability=capability), RequestedDevices(), context_bytes=BOTH)
    assert table(found) == [("/device:GPU:0", "GPU-0", granted)]
    assert found is not None
    assert found[0].tolerance_bytes == 0
    assert str(granted) in found[0].how
    assert "320" in found[0].how


@every(
    [
        (RequestedDevices(fraction=0.4), [("/device:GPU:0", "GPU-0", 9830), ("/device:GPU:1", "GPU-1", 9830)]),
        (RequestedDevices(limits={0: (1024,)}), [("/device:GPU:0", "GPU-0", 1024), ("/device:GPU:1", "GPU-1", 18144)]),
        (
            RequestedDevices(limits={0: (1024, 512)}, chosen=(0,)),
            [("/device:GPU:0", "GPU-0", 1024), ("/device:GPU:1", "GPU-0", 512)],
        ),
        (RequestedDevices(chosen=(1,)), [("/device:GPU:0", "GPU-1", 18144)]),
        (
            RequestedDevices(chosen=(1, 0), fraction=0.5),
            [("/device:GPU:0", "GPU-1", 12288), ("/device:GPU:1", "GPU-0", 12288)],
        ),
        (
            RequestedDevices(visible="1,0", fraction=0.5),
            [("/device:GPU:0", "GPU-1", 12288), ("/device:GPU:1", "GPU-0", 12288)],
        ),
        (RequestedDevices(visible="GPU-1"), [("/device:GPU:0", "GPU-1", 18144)]),
        (RequestedDevices(visible="1", chosen=(0,)), [("/device:GPU:0", "GPU-1", 18144)]),
        (RequestedDevices(visible="0,-1,1", fraction=0.5), [("/device:GPU:0", "GPU-0", 12288)]),
        (RequestedDevices(visible="-1,0"), []),
        (RequestedDevices(visible=""), []),
        # The variable wins over the fraction, not over a limit.
        (RequestedDevices(visible="0", fraction=0.4, reserve_mb=100), [("/device:GPU:0", "GPU-0", 20000 - 320 - 100)]),
        (RequestedDevices(visible="0", limits={0: (7,)}, reserve_mb=100), [("/device:GPU:0", "GPU-0", 7)]),
    ]
)
def test_settings_decide_the_map(asked: RequestedDevices, expected: list[tuple[str, str, int]]) -> None:
    assert table(predict(cards(20000, 20000), asked, context_bytes=BOTH)) == expected


@pytest.mark.parametrize(
    "asked",
    [
        RequestedDevices(),
        RequestedDevices(limits={0: (1024, 512)}),
        RequestedDevices(fraction=0.25),
        RequestedDevices(reserve_mb=7),
    ],
)
@pytest.mark.parametrize("free", [2047, 24000])
def test_simulated_gpus_grant_the_same_on_both_tiers(free: int, asked: RequestedDevices) -> None:
    cpu_build = Framework(name="tensorflow", gpu_build=False)
    plugged = predict(cards(free), asked, framework=cpu_build, simulation="plugin", context_bytes=BOTH)
    assert plugged == predict(cards(free), asked, simulation="driver", context_bytes=BOTH)
    assert plugged


def test_a_fraction_is_of_what_the_driver_leaves() -> None:
    """TensorFlow 2.21 on an H200 of 143771 MiB, of which driver 580 reserves 615: 57262 MB granted for 0.4."""
    snapshot = cards(143155, capability="9.0", simulated=False)
    memory = {"memory.total_bytes": 150754820096, "memory.reserved_bytes": 644939776}
    (device,) = snapshot.devices
    h200 = msgspec.structs.replace(device, readings={**device.readings, **memory})
    (found,) = predict(msgspec.structs.replace(snapshot, devices=(h200,)), RequestedDevices(fraction=0.4))
    assert found.granted_bytes == 57262 * MIB


def test_real_cards_have_a_tolerance_because_nobody_knows_the_context() -> None:
    (entry,) = predict(cards(20000, simulated=False, capability="9.0"), RequestedDevices()) or ()
    assert entry.granted_bytes is not None
    low, high = entry.granted_bytes - entry.tolerance_bytes, entry.granted_bytes + entry.tolerance_bytes
    for context in (100, 500, 800):
        assert low <= (20000 - context - 1800) * MIB <= high
    assert not low <= (20000 - 1800 + 100) * MIB <= high


def test_no_prediction_where_nobody_can_tell() -> None:
    mixed = cards(20000, 20000)
    mixed = msgspec.structs.replace(
        mixed, devices=(mixed.devices[0], msgspec.structs.replace(mixed.devices[1], name="Another card"))
    )
    assert predict(mixed, RequestedDevices(visible="0")) is None
    assert predict(mixed, RequestedDevices(visible="0", order="PCI_BUS_ID"), context_bytes=BOTH) is not None
    assert predict(machine(driver=False), RequestedDevices()) is None
    assert predict(cards(20000), RequestedDevices(), framework=Framework(name="torch")) is None
    assert predict(cards(20000), RequestedDevices(chosen=(3,))) is None


def test_a_build_without_cuda_and_a_card_too_old_map_nothing() -> None:
    assert predict(cards(20000), RequestedDevices(), framework=Framework(name="tensorflow", gpu_build=False)) == ()
    build = {"cuda_compute_capabilities": ["sm_60", "compute_90"]}
    new = Framework(name="tensorflow", gpu_build=True, build=build)
    assert predict(cards(20000, capability="5.2"), RequestedDevices(), framework=new) == ()
    assert table(predict(cards(20000, capability="6.1"), RequestedDevices(limits={0: (9,)}), framework=new)) == [
        ("/device:GPU:0", "GPU-0", 9)
    ]


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ((5, 2), "no"),
        ((6, 1), "native"),
        ((7, 5), "native"),
        ((8, 6), "native"),
        ((8, 9), "native"),
        ((9, 0), "native"),
        ((10, 0), "jit"),
        ((12, 0), "jit"),
    ],
)
def test_what_a_build_can_do_on_a_card(card: tuple[int, int], expected: str) -> None:
    built = capabilities_of_build({"cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"]})
    assert support_of_build(card, built) == expected


def test_the_settings_of_probes_are_understood() -> None:
    def of(**fields: Any) -> RequestedDevices:
        return requested_devices_of(draft(**fields))

    assert of(settings={"memory_limit": Setting(asked=1024)}).limits == {-1: (1024,)}
    virtual = Devices(virtual=("/physical_device:GPU:0 part 0: 1024 MB", "/physical_device:GPU:0 part 1: 512.0 MB"))
    assert of(devices=virtual).limits == {0: (1024, 512)}
    assert of(settings={"visible_device_list": Setting(asked="1,0")}).chosen == (1, 0)
    assert of(settings={"visible devices": Setting(asked=["/physical_device:GPU:1"])}).chosen == (1,)
    # What could not be set any more is not asked for: the sentence is no list of devices.
    assert of(settings={"visible devices": Setting(asked="after the first use")}).chosen is None
    both = ("/physical_device:CPU:0", "/physical_device:GPU:0", "/physical_device:GPU:1")
    assert of(devices=Devices(physical=both, visible=both[:2])).chosen == (0,)
    assert of(devices=Devices(physical=both, visible=both)).chosen is None
    assert of(settings={"CUDA_VISIBLE_DEVICES": Setting(asked="0")}).visible == "0"
    assert of(environment={"TF_DEVICE_MIN_SYS_MEMORY_IN_MB": "100"}).reserve_mb == 100
    for odd in ("²", "9" * 5000, "-1", ""):
        assert of(environment={"TF_DEVICE_MIN_SYS_MEMORY_IN_MB": odd}).reserve_mb is None


# Observed against predicted


def observed(uuid: str, mib: int, **fields: Any) -> Run:
    mapping = DeviceMapping(framework_device="/device:GPU:0", uuid=uuid, granted_bytes=mib * MIB)
    framework = Framework(name="tensorflow", gpu_build=True)
    run = on_gpus("limit", framework=framework, device_map=(mapping,), simulated=True, simulation="driver", **fields)
    return complete(run, LogFacts(), cards(20000, 20000))


def telling(run: Run) -> list[tuple[str, str]]:
    return [(found.id, found.severity) for found in run.findings if found.id not in ("healthy", "idle.memory-held")]


LIMIT = {"memory_limit": Setting(asked=1024), "visible devices": Setting(asked=["GPU:0"])}


def test_what_was_predicted_needs_no_finding() -> None:
    run = observed("GPU-0", 1024, settings=LIMIT)
    assert telling(run) == []
    assert run.predicted is not None
    assert run.predicted[0].granted_bytes == 1024 * MIB


def test_another_amount_is_a_finding_with_both_numbers() -> None:
    run = observed("GPU-0", 1000, settings=LIMIT)
    assert telling(run) == [("unknown", "warning")]
    assert "1024 MiB" in " ".join(run.findings[0].evidence)
    assert "1000 MiB" in " ".join(run.findings[0].evidence)


def test_another_gpu_is_a_finding() -> None:
    run = observed("GPU-1", 1024, settings=LIMIT)
    assert ("unknown", "warning") in telling(run)
    assert any("expected 0 (GPU-0)" in line for found in run.findings for line in found.evidence)


def test_memory_that_somebody_took_meanwhile_is_named() -> None:
    chosen = {"visible devices": Setting(asked=["GPU:0"])}
    taken = DeviceMemory(uuid="GPU-0", index=0, others_before_bytes=0, others_peak_bytes=3000 * MIB)
    # 320 MiB of a context is what is left on a card of 24 GiB.
    run = observed("GPU-0", 20000 - 320 - 1536 - 3000, settings=chosen, memory=Memory(devices=(taken,)))
    assert telling(run) == [("memory.other-process", "warning")]
    alone = msgspec.structs.replace(taken, others_peak_bytes=0)
    run = observed("GPU-0", 20000 - 320 - 1536 - 3000, settings=chosen, memory=Memory(devices=(alone,)))
    assert telling(run) == [("unknown", "warning")]


def test_several_processes_and_skipped_probes_are_not_judged() -> None:
    run = complete(draft(framework=Framework(name="tensorflow"), verdict="skipped"), LogFacts(), cards(20000))
    assert run.predicted is None


# Real TensorFlow

EXACT = ("default", "growth", "limit", "fraction", "virtual", "visible-env", "visible-api", "visible-late")
EXACT += ("session-visible", "growth-and-limit", "grow-to-limit", "session-grow-to-limit")
PLUGIN = ("towers",)
"""Runs on simulated PluggableDevices."""


@pytest.mark.tensorflow
def test_tensorflow_grants_what_was_predicted(
    sim_machine: Callable[[str], SimMachine], sleeper: Callable[[], int]
) -> None:
    """To the MiB, on two simulated GPUs of which one is partly taken by somebody else."""
    # Not larger than it need be: TensorFlow fills a table of 1/32 of each pool, here in 25 processes.
    simulated = sim_machine("2x6GiB")
    simulated.attach(sleeper(), device=1, memory_bytes=GIB + 12345)
    arguments = [part for name in (*EXACT, *PLUGIN) for part in ("--config", name)]
    environment = simulated.environment(os.environ)
    result = gpuwatch_forked("probe", *arguments, "--seconds", "0.02", "--json", environment=environment, timeout=240)
    runs = {run["config"]: run for run in json.loads(result.out)["runs"]}
    assert set(runs) == {*EXACT, *PLUGIN}
    for config, run in runs.items():
        expected = [(p["framework_device"], p["uuid"], p["granted_bytes"]) for p in run["predicted"]]
        assert expected, config
        assert expected == [(m["framework_device"], m["uuid"], m["granted_bytes"]) for m in run["device_map"]], config
        assert all(entry["tolerance_bytes"] == 0 for entry in run["predicted"]), config
    first, second = (entry["granted_bytes"] // MIB for entry in runs["default"]["device_map"])
    reserved = 192 * MIB
    free = 6144 - 192 - 320 - 1536
    assert (first, second) == (free, free - 1024 - 1)
    assert runs["towers"]["simulation"] == "plugin"
    assert mapped(runs["towers"]) == mapped(runs["default"])
    uuids = [device.uuid for device in simulated.devices()]
    assert [entry["uuid"] for entry in runs["virtual"]["predicted"]] == [uuids[0], uuids[0]]
    assert [entry["uuid"] for entry in runs["visible-api"]["predicted"]] == [uuids[1]]
    # The ledger: the allocator within the process within the device, the driver's part beside it. A probe as short as
    # these may end before the sample that would show it, and says so.
    sampled = [
        name
        for name in ("default", "limit")
        if not any(text.startswith(NO_PEAK_PREFIX) for text in runs[name]["problems"])
    ]
    for config in sampled:
        memory = runs[config]["memory"]
        device = memory["devices"][0]
        assert memory["allocator_peak_bytes"] <= memory["allocator_limit_bytes"] <= device["process_bytes"]
        assert device["process_bytes"] <= device["used_bytes"] <= device["total_bytes"] - reserved
        assert (device["context_bytes"], device["driver_reserved_bytes"]) == (320 * MIB, reserved)
        assert device["unexplained_bytes"] == 0
    # A device that only others use is in it with their part apart.
    if "default" in sampled:
        other = next(entry for entry in runs["default"]["memory"]["devices"] if entry["uuid"] == uuids[1])
        assert other["others_bytes"] == GIB + 12345
    # GPUs that compute have the same map, and grant the same.
    arguments = [part for name in EXACT for part in ("--config", name)]
    result = gpuwatch_forked(
        *("probe", *arguments, "--seconds", "0.02", "--sim-tier", "plugin", "--json"), environment=environment
    )
    for run in json.loads(result.out)["runs"]:
        assert (run["simulation"], run["verdict"]) == ("plugin", "ok"), run["config"]
        assert mapped(run) == mapped(runs[run["config"]]), run["config"]
        assert [entry["granted_bytes"] for entry in run["predicted"]] == [granted for *_, granted in mapped(run)]


def mapped(run: dict[str, Any]) -> list[tuple[Any, ...]]:
    keys = ("framework_device", "cuda_ordinal", "physical_index", "uuid", "granted_bytes")
    return [tuple(entry[key] for key in keys) for entry in run["device_map"]]
