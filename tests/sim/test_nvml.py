"""The real pynvml over the simulated NVML, in processes of their own."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpuwatch.core.model.metrics import METRICS
from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.sim.simulated_machine import SimMachine
from tests.sim.attached_process import attach_process
from tests.waiting import wait_for

GIB = 2**30
Run = Callable[..., str]
Start = Callable[..., "subprocess.Popen[str]"]
Idle = Callable[[], "subprocess.Popen[bytes]"]

HEAD = """
import json, pynvml as N
N.nvmlInit()
h = [N.nvmlDeviceGetHandleByIndex(i) for i in range(N.nvmlDeviceGetCount())]
"""


def ask(run: Run, machine: SimMachine, code: str) -> Any:
    return json.loads(run(machine, HEAD + code))


def test_identity(machine: SimMachine, run: Run) -> None:
    answer = ask(
        run,
        machine,
        """
print(json.dumps([[N.nvmlDeviceGetName(d), N.nvmlDeviceGetUUID(d), N.nvmlDeviceGetPciInfo(d).busId,
    N.nvmlDeviceGetPciInfo(d).busIdLegacy, N.nvmlDeviceGetIndex(d), N.nvmlDeviceGetCudaComputeCapability(d)]
    for d in h]))""",
    )
    assert answer == [
        ["Simulated GPU 8GiB", d.uuid, f"0000{d.pci_bus_id}", d.pci_bus_id, d.index, [8, 6]] for d in machine.devices()
    ]
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", machine.devices()[0].uuid)


def test_a_device_is_found_by_every_name(machine: SimMachine, run: Run) -> None:
    code = """
d = h[1]
def raises(call):
    try: call()
    except N.NVMLError as e: return type(e).__name__
print(json.dumps([
    N.nvmlDeviceGetIndex(N.nvmlDeviceGetHandleByUUID(N.nvmlDeviceGetUUID(d))),
    N.nvmlDeviceGetIndex(N.nvmlDeviceGetHandleByUUIDV(N.nvmlDeviceGetUUID(d).encode(), N.NVML_UUID_TYPE_ASCII)),
    N.nvmlDeviceGetIndex(N.nvmlDeviceGetHandleByPciBusId("00000000:02:00.0")),
    N.nvmlDeviceGetIndex(N.nvmlDeviceGetHandleByPciBusId("0000:02:00.0")),
    raises(lambda: N.nvmlDeviceGetHandleByUUID("GPU-0")),
    raises(lambda: N.nvmlDeviceGetHandleByPciBusId("0000:09:00.0")),
    raises(lambda: N.nvmlDeviceGetHandleByIndex(2)),
    raises(lambda: N.nvmlDeviceGetName(None)),
    raises(lambda: N.nvmlDeviceGetName(12345)),
]))"""
    wrong = ["NVMLError_NotFound", "NVMLError_NotFound"] + ["NVMLError_InvalidArgument"] * 3
    assert ask(run, machine, code) == [1, 1, 1, 1, *wrong]


def test_memory_of_both_versions(machine: SimMachine, run: Run, idle_process: Idle) -> None:
    machine.attach(idle_process().pid, 0, 3 * GIB)
    code = """
one, two = N.nvmlDeviceGetMemoryInfo(h[0]), N.nvmlDeviceGetMemoryInfo(h[0], version=N.nvmlMemory_v2)
print(json.dumps([one.total, one.used, one.free, two.total, two.used, two.free, two.reserved]))"""
    reserved = machine.devices()[0].reserved_bytes
    assert reserved > 0
    free = 5 * GIB - reserved
    assert ask(run, machine, code) == [8 * GIB, 3 * GIB + reserved, free, 8 * GIB, 3 * GIB, free, reserved]


def test_processes_of_every_kind_and_version(machine: SimMachine, run: Run, idle_process: Idle) -> None:
    compute, graphics, both, mps = (idle_process().pid for _ in range(4))
    machine.attach(compute, 0, GIB)
    attach_process(machine, graphics, 0, 2 * GIB, kind="G")
    attach_process(machine, both, 0, GIB // 2, kind="C+G")
    attach_process(machine, mps, 0, GIB // 4, kind="M")
    code = """
def pids(name): return sorted([p.pid, p.usedGpuMemory] for p in getattr(N, name)(h[0]))
print(json.dumps([pids("nvmlDeviceGetComputeRunningProcesses"), pids("nvmlDeviceGetComputeRunningProcesses_v2"),
    pids("nvmlDeviceGetGraphicsRunningProcesses"), pids("nvmlDeviceGetMPSComputeRunningProcesses"),
    sorted([p.pid, p.usedGpuMemory] for p in N.nvmlDeviceGetRunningProcessDetailList(
        h[0], N.nvmlProcessDetailList_v1, N.NVML_PROCESS_MODE_ALL)),
    N.nvmlDeviceGetComputeRunningProcesses(h[1])]))"""
    c, g, b, m = [compute, GIB], [graphics, 2 * GIB], [both, GIB // 2], [mps, GIB // 4]
    assert ask(run, machine, code) == [
        sorted([c, b]),
        sorted([c, b]),
        sorted([g, b]),
        [m],
        sorted([c, g, b, m]),
        [],
    ]


def test_sizes_are_told_when_there_is_too_little_room(machine: SimMachine, run: Run, idle_process: Idle) -> None:
    for _ in range(3):
        machine.attach(idle_process().pid, 0, GIB, sm_percent=10)
    code = """
import ctypes
lib = N.nvmlLib
def count(name, room):
    n = ctypes.c_uint(room)
    buffer = (ctypes.c_ubyte * 1024)()
    code = getattr(lib, name)(h[0], ctypes.byref(n), buffer if room else None)
    return [code, n.value]
n = ctypes.c_uint(2)
samples = (N.c_nvmlProcessUtilizationSample_t * 2)()
code = lib.nvmlDeviceGetProcessUtilization(h[0], samples, ctypes.byref(n), ctypes.c_ulonglong(0))
buffer = ctypes.create_string_buffer(5)
print(json.dumps([count("nvmlDeviceGetComputeRunningProcesses", 0), count("nvmlDeviceGetComputeRunningProcesses_v2", 2),
    count("nvmlDeviceGetComputeRunningProcesses_v3", 3), count("nvmlDeviceGetGraphicsRunningProcesses_v3", 0),
    [code, n.value], lib.nvmlDeviceGetName(h[0], buffer, 5)]))"""
    short, fine = pynvml.NVML_ERROR_INSUFFICIENT_SIZE, pynvml.NVML_SUCCESS
    assert ask(run, machine, code) == [[short, 3], [short, 3], [fine, 3], [fine, 0], [short, 3], short]


def test_a_wrong_struct_version_is_refused(machine: SimMachine, run: Run) -> None:
    code = """
import ctypes
def refused(name, struct, *more):
    struct.version = 0x7f000001
    return getattr(N.nvmlLib, name)(h[0], ctypes.byref(struct), *more)
print(json.dumps([refused("nvmlDeviceGetMemoryInfo_v2", N.c_nvmlMemory_v2_t()),
    refused("nvmlDeviceGetTemperatureV", N.c_nvmlTemperature_v1_t()),
    refused("nvmlDeviceGetRunningProcessDetailList", N.c_nvmlProcessDetailList_t()),
    refused("nvmlDeviceGetProcessesUtilizationInfo", N.c_nvmlProcessesUtilizationInfo_v1_t()),
    refused("nvmlDeviceGetPciInfoExt", N.nvmlPciInfoExt_v1_t()),
    refused("nvmlGpmQueryDeviceSupport", N.c_nvmlGpmSupport_t())]))"""
    assert ask(run, machine, code) == [pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH] * 6


def test_nothing_answers_before_init_and_after_shutdown(machine: SimMachine, run: Run) -> None:
    code = """
import json, pynvml as N
N._LoadNvmlLibrary()
def code(call):
    try: return call() and 0
    except N.NVMLError as e: return type(e).__name__
out = [code(N.nvmlDeviceGetCount), code(N.nvmlShutdown)]
N.nvmlInit(); N.nvmlInit()
d = N.nvmlDeviceGetHandleByIndex(0)
N.nvmlShutdown()
out.append(N.nvmlDeviceGetIndex(d))
N.nvmlShutdown()
out += [code(lambda: N.nvmlDeviceGetName(d)), code(N.nvmlSystemGetDriverVersion)]
N.nvmlInit()
out.append(N.nvmlDeviceGetIndex(d))
print(json.dumps(out))"""
    no = "NVMLError_Uninitialized"
    assert json.loads(run(machine, code)) == [no, no, 0, no, no, 0]


def test_without_a_machine_the_driver_is_not_loaded(machine: SimMachine) -> None:
    code = """
import pynvml as N
try: N.nvmlInit()
except N.NVMLError as e: print(type(e).__name__)"""
    env = machine.environment(os.environ)
    for state in (None, "/nonexistent"):
        env.pop("GPUWATCH_SIM_STATE", None)
        if state:
            env["GPUWATCH_SIM_STATE"] = state
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "NVMLError_DriverNotLoaded"


def test_utilisation_power_heat_and_clocks_follow_the_load(machine: SimMachine, run: Run, idle_process: Idle) -> None:
    code = """
def look(d):
    u = N.nvmlDeviceGetUtilizationRates(d)
    return dict(gpu=u.gpu, memory=u.memory, power=N.nvmlDeviceGetPowerUsage(d), sm=N.nvmlDeviceGetClockInfo(d, 1),
        pstate=N.nvmlDeviceGetPerformanceState(d), reasons=N.nvmlDeviceGetCurrentClocksEventReasons(d),
        celsius=N.nvmlDeviceGetTemperature(d, 0), limit=N.nvmlDeviceGetEnforcedPowerLimit(d),
        link=N.nvmlDeviceGetCurrPcieLinkGeneration(d), energy=N.nvmlDeviceGetTotalEnergyConsumption(d))
import time
first = look(h[1])["energy"], look(h[0])["energy"]
time.sleep(0.5)
out = [look(h[1]), look(h[0])]
out[0]["energy"] -= first[0]; out[1]["energy"] -= first[1]
print(json.dumps(out))"""
    attach_process(machine, idle_process().pid, 1, GIB, sm_percent=50, memory_percent=20)
    machine.attach(idle_process().pid, 1, GIB, sm_percent=40)
    busy, idle = ask(run, machine, code)
    assert (busy["gpu"], busy["memory"], idle["gpu"], idle["memory"]) == (90, 20, 0, 0)
    assert idle["power"] < 30_000 < 250_000 < busy["power"] < busy["limit"]
    assert idle["sm"] < 300 < 1500 < busy["sm"]
    assert (busy["pstate"], idle["pstate"]) == (2, 8)
    assert (busy["reasons"], idle["reasons"]) == (0, 1)
    assert (busy["link"], idle["link"]) == (4, 1)
    assert 30 <= idle["celsius"] <= busy["celsius"] < 90
    # mJ over the half second and the calls around it: the energy is the power's integral
    assert busy["energy"] == pytest.approx(busy["power"] * 0.5, rel=0.2)
    assert idle["energy"] == pytest.approx(idle["power"] * 0.5, rel=0.2)


def test_process_utilisation(machine: SimMachine, run: Run, idle_process: Idle) -> None:
    busy, quiet = idle_process().pid, idle_process().pid
    attach_process(machine, busy, 0, GIB, sm_percent=30, memory_percent=10)
    machine.attach(quiet, 0, GIB)
    code = """
import time
samples = N.nvmlDeviceGetProcessUtilization(h[0], 0)
info = N.nvmlDeviceGetProcessesUtilizationInfo(h[0], 0)
try: later = N.nvmlDeviceGetProcessUtilization(h[0], int(time.time() * 1e6) + 10**7) and None
except N.NVMLError as e: later = type(e).__name__
try: other = N.nvmlDeviceGetProcessUtilization(h[1], 0) and None
except N.NVMLError as e: other = type(e).__name__
print(json.dumps([[[s.pid, s.smUtil, s.memUtil] for s in samples], [[s.pid, s.smUtil, s.memUtil] for s in info],
    later, other, abs(samples[0].timeStamp / 1e6 - time.time()) < 5]))"""
    assert ask(run, machine, code) == [
        [[busy, 30, 10]],
        [[busy, 30, 10]],
        "NVMLError_NotFound",
        "NVMLError_NotFound",
        True,
    ]


def test_a_varying_load_varies_slowly(machine: SimMachine, run: Run, idle_process: Idle) -> None:
    attach_process(machine, idle_process().pid, 0, GIB, sm_percent=50, vary=True)
    code = """
import time
seen = []
for _ in range(20):
    seen.append(N.nvmlDeviceGetUtilizationRates(h[0]).gpu)
    time.sleep(0.05)
print(json.dumps(seen))"""
    seen = ask(run, machine, code)
    assert all(32 <= value <= 68 for value in seen)
    assert all(abs(a - b) <= 2 for a, b in itertools.pairwise(seen))


def test_fields_say_one_by_one_what_is_there(machine: SimMachine, run: Run) -> None:
    code = """
values = N.nvmlDeviceGetFieldValues(h[0], [N.NVML_FI_DEV_POWER_INSTANT, N.NVML_FI_DEV_MEMORY_TEMP,
    N.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, N.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 9999])
print(json.dumps([v.nvmlReturn for v in values] + [values[0].value.uiVal, values[2].valueType]))"""
    missing = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert ask(run, machine, code) == [
        0,
        missing,
        0,
        missing,
        missing,
        22_000,
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
    ]


def test_what_is_not_modelled_says_so(machine: SimMachine, run: Run) -> None:
    code = """
names = ["nvmlDeviceGetSerial", "nvmlDeviceGetEccMode", "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetDecoderUtilization", "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetVbiosVersion",
    "nvmlDeviceGetJpgUtilization", "nvmlDeviceGetOfaUtilization"]
out = {}
for name in names:
    try: out[name] = getattr(N, name)(h[0]) and "a value"
    except N.NVMLError as e: out[name] = type(e).__name__
print(json.dumps(out))"""
    answer = ask(run, machine, code)
    assert len(answer) == 11
    assert set(answer.values()) == {"NVMLError_NotSupported"}


def test_every_function_of_pynvml_about_a_device_is_there(machine: SimMachine, run: Run) -> None:
    """A newer pynvml may know more; then add them to nvml_not_modelled.h."""
    source = pynvml.__file__
    assert source is not None
    called = set(re.findall(r'_nvmlGetFunctionPointer\("(nvmlDeviceGet\w+)"\)', Path(source).read_text("utf-8")))
    called -= {"nvmlDeviceGetHandleBySerial"}
    code = f"""
names = {sorted(called)!r}
print(json.dumps([name for name in names if not hasattr(N.nvmlLib, name)]))"""
    assert len(called) > 150
    missing = ask(run, machine, code)
    assert missing == []


def test_the_margin_is_what_the_slowdown_threshold_leaves(machine: SimMachine, run: Run) -> None:
    machine.override(0, "temperature_celsius", 97)
    code = """
out = [N.nvmlDeviceGetMarginTemperature(h[0])]
slowdown = N.nvmlDeviceGetTemperatureThreshold(h[1], N.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
out.append(N.nvmlDeviceGetMarginTemperature(h[1]) + N.nvmlDeviceGetTemperature(h[1], 0) - slowdown)
print(json.dumps(out + [N.nvmlDeviceGetAddressingMode(h[0])]))"""
    assert ask(run, machine, code) == [-2, 0, pynvml.NVML_DEVICE_ADDRESSING_MODE_NONE]


def test_set_values_show(machine: SimMachine, run: Run) -> None:
    machine.override(0, "temperature_celsius", 91)
    machine.override(0, "clock_event_reasons", 0x40)
    machine.override(0, "ecc_uncorrected", 3)
    machine.override(0, "encoder_percent", 12)
    code = """
print(json.dumps([N.nvmlDeviceGetTemperature(h[0], 0), N.nvmlDeviceGetCurrentClocksThrottleReasons(h[0]),
    N.nvmlDeviceGetEccMode(h[0])[0],
    N.nvmlDeviceGetTotalEccErrors(h[0], 1, 0), N.nvmlDeviceGetTotalEccErrors(h[0], 0, 0),
    N.nvmlDeviceGetEncoderUtilization(h[0])[0], N.nvmlDeviceGetTemperature(h[1], 0) < 40]))"""
    assert ask(run, machine, code) == [91, 0x40, 1, 3, 0, 12, True]
    machine.override(0, "temperature_celsius", None)
    assert ask(run, machine, "print(N.nvmlDeviceGetTemperature(h[0], 0) < 40 and 1)") == 1


def test_the_codes_are_those_of_nvml_h() -> None:
    codes = {name.removeprefix("NVML_ERROR_"): code for name, code in vars(pynvml).items() if "NVML_ERROR_" in name}
    assert NvmlReturn.__members__.items() <= codes.items()


def test_every_code_injected_is_pynvmls_exception(machine: SimMachine, start: Start) -> None:
    code = """
import sys, pynvml as N
N.nvmlInit()
d = N.nvmlDeviceGetHandleByIndex(0)
for line in sys.stdin:
    try: print(N.nvmlDeviceGetPowerUsage(d), flush=True)
    except N.NVMLError as e: print(e.value, type(e).__name__, flush=True)"""
    process = start(machine, code)
    assert process.stdin is not None
    assert process.stdout is not None
    for value in map(int, NvmlReturn):
        machine.inject("nvmlDeviceGetPowerUsage", code=value)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline().split() == [str(value), pynvml.nvmlExceptionClass(value).__name__]
        machine.clear_faults()
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline().strip() == "22000"


def test_faults_keep_to_their_device_function_and_count(machine: SimMachine, run: Run) -> None:
    machine.inject("*", code=pynvml.NVML_ERROR_GPU_IS_LOST, device=1)
    machine.inject("nvmlDeviceGetMemoryInfo", code=pynvml.NVML_ERROR_UNKNOWN, device=0, count=2)
    code = """
import json, pynvml as N
N.nvmlInit()
def code(call, *arguments, **more):
    try: call(*arguments, **more); return 0
    except N.NVMLError as e: return e.value
d = N.nvmlDeviceGetHandleByIndex(0)
print(json.dumps([code(N.nvmlDeviceGetHandleByIndex, 1), code(N.nvmlDeviceGetName, d),
    code(N.nvmlDeviceGetMemoryInfo, d), code(N.nvmlDeviceGetMemoryInfo, d, version=N.nvmlMemory_v2),
    code(N.nvmlDeviceGetMemoryInfo, d)]))"""
    assert json.loads(run(machine, code)) == [15, 0, 999, 999, 0]


def test_init_fails_on_request(machine: SimMachine, run: Run) -> None:
    machine.inject("nvmlInit", code=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    code = """
import pynvml as N
try: N.nvmlInit()
except N.NVMLError as e: print(e.value)"""
    assert run(machine, code).strip() == "18"


def test_a_hung_call_hangs_until_the_fault_is_cleared(machine: SimMachine, start: Start) -> None:
    machine.inject("nvmlDeviceGetTemperature", delay_ms=600_000)
    code = """
import pynvml as N
N.nvmlInit()
d = N.nvmlDeviceGetHandleByIndex(0)
print("asking", flush=True)
print(N.nvmlDeviceGetTemperature(d, 0), flush=True)"""
    process = start(machine, code)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "asking"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    machine.clear_faults()
    out, _ = process.communicate(timeout=5)
    assert 20 < int(out) < 60


def test_a_slow_call_takes_its_time_and_answers(machine: SimMachine, run: Run) -> None:
    machine.inject("nvmlDeviceGetName", delay_ms=200)
    code = """
import time
began = time.monotonic()
name = N.nvmlDeviceGetName(h[0])
print(json.dumps([name, time.monotonic() - began >= 0.2]))"""
    assert ask(run, machine, code) == ["Simulated GPU 8GiB", True]


def test_killed_processes_are_swept_at_once(machine: SimMachine, run: Run, idle_process: Idle) -> None:
    processes = [idle_process() for _ in range(5)]
    for process in processes:
        machine.attach(process.pid, 0, GIB, sm_percent=10)
    for process in processes[:4]:
        process.send_signal(signal.SIGKILL)
        process.wait()
    code = """
print(json.dumps([[p.pid for p in N.nvmlDeviceGetComputeRunningProcesses(h[0])],
    N.nvmlDeviceGetMemoryInfo(h[0], version=N.nvmlMemory_v2).used, N.nvmlDeviceGetUtilizationRates(h[0]).gpu]))"""
    assert ask(run, machine, code) == [[processes[4].pid], GIB, 10]


def test_pcie_throughput_blocks_like_the_real_one(machine: SimMachine, run: Run) -> None:
    code = """
import time
began = time.monotonic()
rate = N.nvmlDeviceGetPcieThroughput(h[0], N.NVML_PCIE_UTIL_TX_BYTES)
print(json.dumps([rate, 0.018 < time.monotonic() - began < 0.2]))"""
    assert ask(run, machine, code) == [0, True]


def test_sixteen_devices_and_many_processes(sim_machine: Callable[[str], SimMachine], run: Run) -> None:
    machine = sim_machine("16x1GiB")
    for number in range(200):
        machine.attach(3_000_000 + number, number % 16, 8 * 2**20, sm_percent=1, foreign=True)
    code = """
print(json.dumps([sum(len(N.nvmlDeviceGetComputeRunningProcesses(d)) for d in h),
    sorted({N.nvmlDeviceGetUtilizationRates(d).gpu for d in h})]))"""
    assert ask(run, machine, code) == [200, [12, 13]]


def test_measured_activity_fades_within_a_second(machine: SimMachine, run: Run, start: Start) -> None:
    code = """
import ctypes, time
cuda, blas = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcublas.so.12")
context, handle = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0 and blas.cublasCreate_v2(ctypes.byref(handle)) == 0
n, one, zero = 256, ctypes.c_float(1), ctypes.c_float(0)
a = (ctypes.c_float * (n * n))(); c = (ctypes.c_float * (n * n))()
import select, sys
began = time.monotonic()
while not select.select([sys.stdin], [], [], 0)[0]:
    if began is not None and time.monotonic() - began > 1.5:
        print("busy", flush=True)
        began = None
    blas.cublasSgemm_v2(handle, 0, 0, n, n, n, ctypes.byref(one), a, n, a, n, ctypes.byref(zero), c, n)
sys.stdin.readline()
print("done", flush=True)
sys.stdin.read()"""
    look = """
print(json.dumps([N.nvmlDeviceGetUtilizationRates(h[0]).gpu, N.nvmlDeviceGetUtilizationRates(h[1]).gpu]))"""
    process = start(machine, code)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline().strip() == "busy"
    busy = ask(run, machine, look)
    process.stdin.write("stop\n")
    process.stdin.flush()
    assert process.stdout.readline().strip() == "done"
    assert busy[0] > 40
    assert busy[1] == 0
    wait_for(lambda: ask(run, machine, look) == [0, 0], "idle GPUs", 10)


def test_copies_are_pcie_traffic(machine: SimMachine, run: Run, start: Start) -> None:
    code = """
from tests.sim.cuda_client import *
import sys, threading
use(0)
code, a = allocate(1 << 20)
host = bytes(1 << 20)
print("up", flush=True)
while True: check(cuda.cuMemcpyHtoD_v2(a, host, 1 << 20))"""
    process = start(machine, code)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    # a sample lasts 20 ms: on a busy machine the copying process may get no core in one of them
    look = """
rates = (N.nvmlDeviceGetPcieThroughput(h[0], N.NVML_PCIE_UTIL_RX_BYTES) for _ in range(500))
received = next((rate for rate in rates if rate > 100_000), 0)  # KB/s
print(json.dumps([received, N.nvmlDeviceGetPcieThroughput(h[0], N.NVML_PCIE_UTIL_TX_BYTES),
    N.nvmlDeviceGetUtilizationRates(h[0]).gpu, N.nvmlDeviceGetUtilizationRates(h[0]).memory]))"""
    received, sent, kernels, memory = ask(run, machine, look)
    assert received
    assert (sent, kernels) == (0, 0)
    assert memory > 0


def test_a_process_killed_in_a_kernel_leaves_the_device_free(machine: SimMachine, run: Run, start: Start) -> None:
    work = """
import sys
from tests.sim.cuda_client import *
use(0)
blas, handle, n = CDLL("libcublas.so.12"), c_void_p(), int(sys.argv[1])
check(blas.cublasCreate_v2(byref(handle)))
one, zero, a = c_float(1), c_float(0), (c_float * (n * n))()
def product(): check(blas.cublasSgemm_v2(handle, 0, 0, n, n, n, byref(one), a, n, a, n, byref(zero), a, n))
product()
print("up", flush=True)
while len(sys.argv) == 2: product()"""
    work = work.replace("from tests", "from ctypes import *\nfrom tests", 1)
    for _ in range(3):
        process = start(machine, work, "1024")
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        time.sleep(0.05)  # some way into the work
        process.kill()  # in all likelihood while it holds the device
        process.wait()
        began = time.monotonic()
        assert run(machine, work, "64", "once") == "up\n"
        assert time.monotonic() - began < 2
    assert machine.used_bytes(0) == 0


def test_what_is_recorded_of_a_real_gpu_can_be_recorded(machine: SimMachine, run: Run) -> None:
    """tests/gpu/test_hardware.py seldom meets hardware: its record must not fail there by a fault of its own."""
    code = """
import json
from gpuwatch.machine.sources.nvidia.nvml_source import NvmlSource
nvml = NvmlSource()
nvml.open()
from tests.gpu.test_hardware import record
print(json.dumps(record(nvml)))"""
    for device in json.loads(run(machine, code)):
        assert device["calls"]["nvmlDeviceGetMemoryInfo"]["answer"]["total"] == device["readings"]["memory.total_bytes"]
        assert device["calls"]["nvmlDeviceGetGpuFabricInfoV"]["code"] == pynvml.NVML_ERROR_NOT_SUPPORTED
        assert not {spec.id for spec in METRICS if spec.call} - device["readings"].keys() - device["missing"].keys()
