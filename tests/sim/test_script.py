"""What is done to a simulated machine: MIG layouts, values, faults that end, GPUs that come and go."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.sim.machine_shape import parse_memory
from gpuwatch.sim.mig_layout import layout_text, parse_layout
from gpuwatch.sim.simulated_machine import SimMachine
from tests.sim.attached_process import attach_process
from tests.sim.test_nvml import HEAD, Idle, Run, Start
from tests.waiting import wait_for

GIB = 2**30


def ask(run: Run, machine: SimMachine, code: str) -> Any:
    return json.loads(run(machine, HEAD + code))


@pytest.mark.parametrize("text", ["1g,1g,-,2g,3g", "7g", "on", "3g,3g", "4g,-,-,1c.3g", "1c.2g,1c.2g,1g"])
def test_layouts_are_read_and_written(text: str) -> None:
    instances = parse_layout(text)
    assert instances is not None
    assert layout_text(instances) == text
    assert len({(i.gpu_instance, i.compute_instance) for i in instances}) == len(instances)


def test_compute_instances_share_a_gpu_instance() -> None:
    instances = parse_layout("1c.2g,1c.2g,1c.2g")
    assert instances is not None
    assert [(i.gpu_instance, i.compute_instance) for i in instances] == [(3, 0), (3, 1), (4, 0)]
    assert parse_layout("off") is None


@pytest.mark.parametrize("text", ["", "5g", "1g,,1g", "3c.2g", "7g,1g", "4g,4g", "3g,3g,1g", "1g" + ",-" * 8, "x"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a MIG layout"):
        parse_layout(text)


@given(st.text("1234567gc.,- onf", max_size=24))
def test_any_text_is_a_layout_or_refused(text: str) -> None:
    try:
        instances = parse_layout(text)
    except UsageError:
        return
    if instances is not None:
        assert parse_layout(layout_text(instances)) == instances
        slices = {i.gpu_instance: i.gpu_slices for i in instances}
        assert sum(slices.values()) <= 7
        assert all(i.compute_slices <= i.gpu_slices and 0 <= i.index < 8 for i in instances)


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_refused(text: str) -> None:
    try:
        size = parse_memory(text)
    except UsageError:
        return
    assert size >= 0


def test_sizes_have_units() -> None:
    assert [parse_memory(text) for text in ("2GiB", " 1.5 gb", "512MiB")] == [2 << 30, 1_500_000_000, 512 << 20]


MIG = """
d = h[0]
def code(call, *arguments):
    try: return call(*arguments)
    except N.NVMLError as e: return e.value
def instance(i):
    try: m = N.nvmlDeviceGetMigDeviceHandleByIndex(d, i)
    except N.NVMLError as e: return e.value
    a, memory = N.nvmlDeviceGetAttributes_v2(m), N.nvmlDeviceGetMemoryInfo(m)
    return [N.nvmlDeviceGetName(m), N.nvmlDeviceGetUUID(m)[:4], N.nvmlDeviceGetGpuInstanceId(m),
        N.nvmlDeviceGetComputeInstanceId(m), a.multiprocessorCount, memory.used,
        sorted(p.pid for p in N.nvmlDeviceGetComputeRunningProcesses(m)),
        N.nvmlDeviceGetIndex(N.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(m)), N.nvmlDeviceIsMigDeviceHandle(m).value,
        code(N.nvmlDeviceGetTemperature, m, 0)]
"""


def test_a_divided_gpu(machine: SimMachine, run: Run, idle_process: Idle) -> None:
    machine.set_mig(0, "1g,-,3g")
    first, third = idle_process().pid, idle_process().pid
    machine.attach(first, 0, GIB // 2, sm_percent=50)
    machine.attach(third, 0, GIB, mig=2)
    code = (
        MIG
        + """
print(json.dumps([N.nvmlDeviceGetMigMode(d), [instance(i) for i in range(4)],
    sorted([p.pid, p.gpuInstanceId, p.computeInstanceId] for p in N.nvmlDeviceGetComputeRunningProcesses(d)),
    code(N.nvmlDeviceGetUtilizationRates, d), code(N.nvmlDeviceGetProcessUtilization, d, 0),
    code(N.nvmlDeviceGetMigMode, h[1]), N.nvmlDeviceGetMaxMigDeviceCount(h[1])]))"""
    )
    mode, instances, processes, rates, samples, other, most = ask(run, machine, code)
    assert mode == [1, 1]
    assert instances[0] == ["Simulated GPU 8GiB MIG 1g.1gb", "MIG-", 7, 0, 11, GIB // 2, [first], 0, 1, 3]
    assert instances[1] == 6, "a gap"
    assert instances[2] == ["Simulated GPU 8GiB MIG 3g.4gb", "MIG-", 1, 0, 33, GIB, [third], 0, 1, 3]
    assert instances[3] == 6
    assert processes == sorted([[first, 7, 0], [third, 1, 0]])
    assert (rates, samples, other, most) == (3, 3, [0, 0], 8)
    assert layout_text(machine.mig(0) or ()) == "1g,-,3g"
    with pytest.raises(GpuwatchError, match="no MIG instance 1"):
        machine.attach(third, 0, GIB, mig=1)


def test_a_new_layout_has_new_instances(machine: SimMachine, run: Run, start: Start) -> None:
    look = """
import sys, pynvml as N
N.nvmlInit()
d = N.nvmlDeviceGetHandleByIndex(0)
kept = None
for line in sys.stdin:
    m = N.nvmlDeviceGetMigDeviceHandleByIndex(d, 0) if N.nvmlDeviceGetMigMode(d)[0] else None
    uuid = m and N.nvmlDeviceGetUUID(m)
    found = uuid and N.nvmlDeviceGetUUID(N.nvmlDeviceGetHandleByUUID(uuid)) == uuid
    try: old = kept and N.nvmlDeviceGetName(kept)
    except N.NVMLError as e: old = e.value
    kept = kept or m
    print(uuid, found, old, flush=True)"""
    machine.set_mig(0, "1g")
    process = start(machine, look)
    assert process.stdin is not None
    assert process.stdout is not None
    seen = []
    for layout in ("1g", "2g", "off"):
        machine.set_mig(0, layout)
        process.stdin.write("\n")
        process.stdin.flush()
        seen.append(process.stdout.readline().split(maxsplit=2))
    (one, found, _), (two, again, name), (off, _, gone) = seen
    assert found == again == "True"
    assert one != two
    assert name.strip().endswith("2g.2gb")
    assert off == "None"
    assert gone.strip() == "2", "a handle of an instance that is gone is invalid"


def test_every_value_that_can_be_set_is_told(machine: SimMachine, run: Run) -> None:
    values = {
        "remapped_correctable": 4,
        "remapped_uncorrectable": 2,
        "remapped_pending": 1,
        "remapped_failure": 0,
        "retired_single_bit": 7,
        "retired_double_bit": 8,
        "retired_pending": 1,
        "pcie_replays": 12,
        "recovery_action": 1,
        "bar1_used_bytes": 6 << 20,
        "jpeg_percent": 5,
        "ofa_percent": 6,
        "power_limit_milliwatts": 200_000,
        "slowdown_celsius": 90,
        "shutdown_celsius": 92,
        "operating_max_celsius": 85,
        "memory_max_celsius": 105,
        "nvlink_links": 4,
        "nvlink_links_down": 1,
        "nvlink_crc_errors": 3,
        "nvlink_replays": 2,
        "nvlink_recoveries": 1,
    }
    for name, value in values.items():
        machine.override(0, name, value)
    code = """
d = h[0]
f = lambda *ids: [[v.nvmlReturn, v.value.ullVal if v.valueType == 3 else v.value.uiVal]
    for v in N.nvmlDeviceGetFieldValues(d, list(ids))]
print(json.dumps([N.nvmlDeviceGetRemappedRows(d), f(29, 30, 31, 94, 142, 144, 230, 38, 52, 59, 91),
    N.nvmlDeviceGetPcieReplayCounter(d), N.nvmlDeviceGetBAR1MemoryInfo(d).bar1Used,
    N.nvmlDeviceGetJpgUtilization(d)[0], N.nvmlDeviceGetOfaUtilization(d)[0], N.nvmlDeviceGetEnforcedPowerLimit(d),
    [N.nvmlDeviceGetTemperatureThreshold(d, k) for k in (0, 1, 2, 3)],
    [N.nvmlDeviceGetNvLinkState(d, link) for link in range(4)]]))"""
    rows, fields, replays, bar1, jpeg, ofa, limit, thresholds, links = ask(run, machine, code)
    assert rows == [4, 2, 1, 0]
    assert fields == [[0, value] for value in (7, 8, 1, 12, 4, 1, 1, 3, 2, 1, 4)]
    assert (replays, bar1, jpeg, ofa, limit) == (12, 6 << 20, 5, 6, 200_000)
    assert thresholds == [92, 90, 105, 85]
    assert links == [1, 1, 1, 0]
    assert machine.overrides(0) == values
    assert set(values) <= set(machine.override_names())
    machine.heal()
    assert machine.overrides(0) == {}


def test_event_reasons_have_their_time(machine: SimMachine, run: Run) -> None:
    code = """
v = N.nvmlDeviceGetFieldValues(h[0], [74, 75, 76, 77])
print(json.dumps([[x.nvmlReturn, x.value.ullVal] for x in v]))"""
    assert [code for code, _ in ask(run, machine, code)] == [3, 3, 3, 3]
    machine.override(0, "clock_event_reasons", 0x4)
    time.sleep(0.1)  # the time that is counted
    machine.override(0, "clock_event_reasons", 0x40)
    time.sleep(0.1)  # and here
    (_, power), (_, heat), (_, boost), (_, board) = ask(run, machine, code)
    assert power >= 1e8
    assert heat >= 1e8
    assert (boost, board) == (0, 0)
    machine.override(0, "clock_event_reasons", None)
    before = ask(run, machine, code)
    assert ask(run, machine, code) == before, "nothing slows it down any more"


def test_topology_follows_what_was_set(sim_machine: Callable[[str], SimMachine], run: Run) -> None:
    machine = sim_machine("4x1GiB")
    for device, (node, switch) in enumerate([(0, 1), (0, 1), (0, 2), (1, 2)]):
        machine.override(device, "numa_node", node)
        machine.override(device, "pcie_switch", switch)
        machine.override(device, "nvlink_links", 6)
    code = """
print(json.dumps([[[N.nvmlDeviceGetTopologyCommonAncestor(a, b) for b in h] for a in h],
    [list(N.nvmlDeviceGetMemoryAffinity(d, 1, 0)) for d in h],
    [N.nvmlDeviceGetNvLinkRemotePciInfo(h[1], link).busId for link in range(6)],
    N.nvmlDeviceGetNvLinkRemoteDeviceType(h[0], 0)]))"""
    levels, nodes, remote, kind = ask(run, machine, code)
    assert levels == [[0, 10, 30, 50], [10, 0, 30, 50], [30, 30, 0, 50], [50, 50, 50, 0]]
    assert nodes == [[1], [1], [1], [2]]
    assert remote == [f"00000000:{bus:02X}:00.0" for bus in (1, 3, 4, 1, 3, 4)]
    assert kind == 0


def test_gpm_tells_what_happened_between_two_samples(machine: SimMachine, run: Run, idle_process: Idle) -> None:
    code = """
import time
def measure(d, *ids):
    get = N.c_nvmlGpmMetricsGet_t()
    get.version, get.numMetrics = N.NVML_GPM_METRICS_GET_VERSION, len(ids)
    get.sample1, get.sample2 = N.nvmlGpmSampleAlloc(), N.nvmlGpmSampleAlloc()
    for i, wanted in enumerate(ids): get.metrics[i].metricId = wanted
    N.nvmlGpmSampleGet(d, get.sample1); time.sleep(0.2); N.nvmlGpmSampleGet(d, get.sample2)
    N.nvmlGpmMetricsGet(get)
    N.nvmlGpmSampleFree(get.sample1); N.nvmlGpmSampleFree(get.sample2)
    return [[get.metrics[i].nvmlReturn, round(get.metrics[i].value)] for i in range(len(ids))]
try: other = measure(h[1], 2)
except N.NVMLError as e: other = e.value
support = [N.nvmlGpmQueryDeviceSupport(d).isSupportedDevice for d in h]
print(json.dumps([*support, measure(h[0], 2, 5, 10, 20, 3), other]))
"""
    attach_process(machine, idle_process().pid, 0, GIB, sm_percent=60, memory_percent=20)
    machine.override(0, "gpm", 1)
    machine.override(0, "tensor_percent", 50)
    assert ask(run, machine, code) == [1, 0, [[0, 60], [0, 30], [0, 20], [0, 0], [3, 0]], 3]


def test_a_fault_ends_by_itself(machine: SimMachine, run: Run) -> None:
    machine.inject("*", delay_ms=60_000, seconds=0.5, label="hang")
    (fault,) = machine.faults()
    assert (fault.function, fault.label, fault.device, fault.delay_seconds) == ("*", "hang", None, 60)
    assert fault.seconds_left is not None
    assert 0 < fault.seconds_left <= 0.5
    began = time.monotonic()
    assert ask(run, machine, "print(len(h))") == 2
    assert 0.3 < time.monotonic() - began < 10
    assert machine.faults() == ()


def test_faults_are_cleared_by_label_and_device(machine: SimMachine) -> None:
    machine.inject("*", code=15, device=0, label="lost")
    machine.inject("*", code=15, device=1, label="lost")
    machine.inject("nvmlDeviceGetName", code=999, label="fail")
    assert machine.clear_faults("lost", device=1) == 1
    assert [(fault.label, fault.device) for fault in machine.faults()] == [("lost", 0), ("fail", None)]
    assert machine.clear_faults() == 2
    assert machine.faults() == ()


def test_a_gpu_that_is_taken_out_is_gone_everywhere(sim_machine: Callable[[str], SimMachine], run: Run) -> None:
    machine = sim_machine("3x8GiB")
    uuids = [device.uuid for device in machine.devices()]
    look = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
n = ctypes.c_int()
cuda.cuInit(0); cuda.cuDeviceGetCount(ctypes.byref(n))
print(json.dumps([[N.nvmlDeviceGetUUID(d) for d in h], [N.nvmlDeviceGetIndex(d) for d in h], n.value]))"""
    machine.show_device(1, False)
    assert not machine.is_shown(1)
    assert ask(run, machine, look) == [[uuids[0], uuids[2]], [0, 1], 2]
    machine.show_device(1)
    assert ask(run, machine, look) == [uuids, [0, 1, 2], 3]


def test_a_handle_of_a_gpu_that_went_says_lost(machine: SimMachine, start: Start) -> None:
    code = """
import sys, pynvml as N
N.nvmlInit()
d = N.nvmlDeviceGetHandleByIndex(0)
for line in sys.stdin:
    try: print(N.nvmlDeviceGetName(d), flush=True)
    except N.NVMLError as e: print(e.value, flush=True)"""
    process = start(machine, code)
    assert process.stdin is not None
    assert process.stdout is not None
    for shown, said in ((True, "Simulated GPU 8GiB"), (False, "15"), (True, "Simulated GPU 8GiB")):
        machine.show_device(0, shown)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline().strip() == said


def test_healing_ends_everything(machine: SimMachine, idle_process: Callable[[], subprocess.Popen[bytes]]) -> None:
    machine.inject("*", code=15)
    machine.override(0, "temperature_celsius", 99)
    machine.set_mig(0, "1g")
    machine.show_device(1, False)
    machine.set_asleep(1, True)
    machine.attach(4_000_000, 0, GIB, foreign=True)
    machine.attach(idle_process().pid, 0, GIB)
    assert machine.is_asleep(1)
    machine.heal()
    assert (machine.faults(), machine.overrides(0), machine.mig(0)) == ((), {}, None)
    assert machine.is_shown(1)
    assert not machine.is_asleep(1)
    assert machine.used_bytes(0) == GIB, "a process of this machine stays"


def test_a_stopped_process_stops_nobody_else(machine: SimMachine, start: Start, run: Run) -> None:
    for number in range(300):  # so that it has the state's lock most of the time
        machine.attach(4_100_000 + number, 0, 1 << 20, foreign=True)
    process = start(machine, HEAD + "print('up', flush=True)\nwhile True: N.nvmlDeviceGetUtilizationRates(h[0])")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    for _ in range(3):
        time.sleep(0.05)  # it works
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        code = """
import time
began = time.monotonic()
seen = [N.nvmlDeviceGetMemoryInfo(h[0]).used > 300 * 2**20 for _ in range(50)]
print(json.dumps([all(seen), time.monotonic() - began]))"""
        right, took = ask(run, machine, code)
        assert right
        assert took < 2
        process.send_signal(signal.SIGCONT)
