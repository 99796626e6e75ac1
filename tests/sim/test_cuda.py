"""The simulated CUDA driver and runtime, called through ctypes as a framework calls them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.model.visible_devices import read_visible, visible_devices
from gpuwatch.sim.simulated_machine import SimMachine

GIB, MIB = 2**30, 2**20
NO_DEVICE, OUT_OF_MEMORY, NOT_INITIALIZED = 100, 2, 3
Run = Callable[..., str]
Start = Callable[..., "subprocess.Popen[str]"]

HEAD = "import json, os\nfrom ctypes import *\nfrom tests.sim.cuda_client import *\n"


def ask(run: Run, machine: SimMachine, code: str, **environment: str) -> Any:
    return json.loads(run(machine, HEAD + code, **environment))


LIST = """
code = cuda.cuInit(0)
print(json.dumps(code or [int(text[5:7], 16) - 1 for text in pci_bus_ids()]))"""


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, [0, 1, 2, 3]),
        ("0,1,2,3", [0, 1, 2, 3]),
        ("3,1", [3, 1]),
        ("2", [2]),
        (" 1 , 0 ", [1, 0]),
        ("", NO_DEVICE),
        ("-1", NO_DEVICE),
        ("-1,0", NO_DEVICE),
        ("0,-1,1", [0]),
        ("1,4,0", [1]),
        ("4", NO_DEVICE),
        ("0,,1", [0]),
        ("0,x,1", [0]),
        ("x", NO_DEVICE),
        ("NoDevFiles", NO_DEVICE),
        ("0,0", NO_DEVICE),
        ("1,2,1", NO_DEVICE),
        ("{2}", [2]),
        ("{3},{0}", [3, 0]),
        ("{1:.12}", [1]),
        ("{1:.12},{2:.9}", [1, 2]),
        ("GPU-", NO_DEVICE),
        ("GPU-ffffffff", NO_DEVICE),
        ("{1},GPU-ffffffff,{2}", [1]),
        ("{1},0", [1]),
        ("0,{1}", [0]),
        ("MIG-GPU-1/1/0", NO_DEVICE),
        ("0 1", [0]),
        ("0-1", [0]),
        ("0x1", [0]),
        ("1.0", [1]),
        ("+1", [1]),
        ("1gpu2,0ampere", [1, 0]),
        ("0 1,0", NO_DEVICE),
    ],
)
def test_cuda_visible_devices(
    sim_machine: Callable[[str], SimMachine], run: Run, value: str | None, seen: object
) -> None:
    machine = sim_machine("4x1GiB")
    environment = {}
    if value is not None:
        value = value.format(*(device.uuid for device in machine.devices()))
        environment["CUDA_VISIBLE_DEVICES"] = value
    assert ask(run, machine, LIST, **environment) == seen
    devices = [
        Device(index=index, uuid=device.uuid, name="Card", pci_bus_id="", readings={}, missing={})
        for index, device in enumerate(machine.devices())
    ]
    told = visible_devices(value, "PCI_BUS_ID", devices)
    assert [entry.index for entry in told.map] == (seen if isinstance(seen, list) else []), "as gpuwatch reads it"
    if value is not None:
        assert len(read_visible(value, devices).entries) == len(told.map)


def test_without_a_machine_there_is_no_device(machine: SimMachine) -> None:
    env = machine.environment(os.environ)
    del env["GPUWATCH_SIM_STATE"]
    code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(NO_DEVICE)


def test_identity_is_nvmls(machine: SimMachine, run: Run) -> None:
    code = """
use(1)
name, uuid, total = create_string_buffer(64), (c_ubyte * 16)(), c_size_t()
check(cuda.cuDeviceGetName(name, 64, 1)); check(cuda.cuDeviceGetUuid_v2(uuid, 1))
check(cuda.cuDeviceTotalMem_v2(byref(total), 1))
def attribute(n):
    value = c_int()
    check(cuda.cuDeviceGetAttribute(byref(value), n, 1))
    return value.value
print(json.dumps([name.value.decode(), bytes(uuid).hex(), total.value, attribute(75), attribute(76), attribute(16)]))"""
    device = machine.devices()[1]
    uuid = device.uuid.removeprefix("GPU-").replace("-", "")
    assert ask(run, machine, code) == [device.name, uuid, device.memory_bytes, 8, 6, 82]


def test_nothing_is_entered_before_a_context(machine: SimMachine, run: Run) -> None:
    code = """
check(cuda.cuInit(0)); pci_bus_ids()
import pynvml as N
N.nvmlInit()
d = N.nvmlDeviceGetHandleByIndex(0)
def held(): return [[p.pid == os.getpid(), p.usedGpuMemory] for p in N.nvmlDeviceGetComputeRunningProcesses(d)]
out = [held()]
context = use(0)
out.append(held())
check(cuda.cuDevicePrimaryCtxRelease_v2(0))
out.append(held())
print(json.dumps(out))"""
    before, during, after = ask(run, machine, code)
    assert before == after == []
    assert during[0][0] is True
    assert 100 * MIB < during[0][1] < 500 * MIB


def test_memory_is_counted_given_back_and_refused(machine: SimMachine, run: Run) -> None:
    code = """
use(0)
start, total = memory()
code, first = allocate(3 << 30)
out = [total, code, start - memory()[0], allocate(start)[0], start - memory()[0]]
check(cuda.cuMemFree_v2(first))
out += [start - memory()[0], cuda.cuMemFree_v2(first)]
code, last = allocate(memory()[0])
out += [code, memory()[0], allocate(1)[0]]
cuda.cuMemFree_v2(last)
code, small = allocate(1)
out += [code, 0 < start - memory()[0] <= 1 << 21, small % 256]
print(json.dumps(out))"""
    three = 3 * GIB
    assert ask(run, machine, code) == [
        *(8 * GIB, 0, three, OUT_OF_MEMORY, three),
        *(0, 1),
        *(0, 0, OUT_OF_MEMORY),
        *(0, True, 0),
    ]


def test_a_card_may_be_larger_than_the_host(sim_machine: Callable[[str], SimMachine], run: Run) -> None:
    machine = sim_machine("1x512GiB")
    code = """
use(0)
code, address = allocate(400 << 30)
check(code)
check(cuda.cuMemsetD32_v2(address + (399 << 30), 7, 4))
check(cuda.cuMemsetD32_v2(address, 0, 64 << 28))
host = (c_uint32 * 4)()
check(cuda.cuMemcpyDtoH_v2(host, address + (399 << 30), 16))
# VmHWM and not ru_maxrss, which a process inherits from the one that started it.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(json.dumps([list(host), peak < 200_000]))"""
    assert ask(run, machine, code) == [[7] * 4, True]


def test_copies_and_fills(machine: SimMachine, run: Run) -> None:
    code = """
use(0)
check(allocate(1 << 22)[0])
code, a = allocate(1 << 22)
text = bytes(range(256)) * 64
check(cuda.cuMemcpyHtoD_v2(a + 100, text, len(text)))
back = create_string_buffer(len(text))
check(cuda.cuMemcpyDtoH_v2(back, a + 100, len(text)))
out = [back.raw == text]
cuda.cuMemsetD8_v2.argtypes = [c_uint64, c_ubyte, c_size_t]
cuda.cuMemsetD16_v2.argtypes = [c_uint64, c_ushort, c_size_t]
check(cuda.cuMemsetD8_v2(a + 3, 5, (1 << 22) - 7))     # fills all but the ends ...
check(cuda.cuMemsetD8_v2(a + 5, 0, (1 << 22) - 11))    # ... and zeros with whole pages given back
whole = create_string_buffer(1 << 22)
check(cuda.cuMemcpyDtoH_v2(whole, a, 1 << 22))
out += [whole.raw[3:5] == b"\\5\\5", whole.raw[5:-6].strip(b"\\0") == b"", whole.raw[-6:-4] == b"\\5\\5"]
out.append(whole.raw[-4:].hex())
check(cuda.cuMemsetD16_v2(a, 0x1234, 3)); check(cuda.cuMemsetD32_v2(a + 8, 0x89abcdef, 1))
check(cuda.cuMemcpyDtoH_v2(whole, a, 12))
out += [whole.raw[:12].hex(), cuda.cuMemsetD32_v2(a + 1, 1, 1)]
print(json.dumps(out))"""
    answer = ask(run, machine, code)
    assert answer[:4] == [True] * 4
    assert answer[4] == "00000000"
    assert answer[5].startswith("341234123412")
    assert answer[5].endswith("efcdab89")
    assert answer[6] == 1


def test_pinned_memory_is_aligned_and_known(machine: SimMachine, run: Run) -> None:
    code = """
use(1)
pointer, kind, ordinal = c_void_p(), c_uint(), c_int()
check(cuda.cuMemHostAlloc(byref(pointer), c_size_t(1000), 0))
out = [pointer.value % 4096]
check(cuda.cuPointerGetAttribute(byref(kind), 2, c_uint64(pointer.value + 999)))
out.append(kind.value)
code, a = allocate(1000)
check(cuda.cuPointerGetAttribute(byref(kind), 2, c_uint64(a + 999)))
check(cuda.cuPointerGetAttribute(byref(ordinal), 9, c_uint64(a)))
out += [kind.value, ordinal.value, cuda.cuPointerGetAttribute(byref(kind), 2, c_uint64(a + 2000)),
    cuda.cuMemFreeHost(pointer), cuda.cuMemFreeHost(pointer)]
print(json.dumps(out))"""
    assert ask(run, machine, code) == [0, 1, 2, 1, 1, 0, 1]


def test_every_thread_has_its_own_current_device(machine: SimMachine, run: Run) -> None:
    code = """
import threading
use(0)
seen = []
def other():
    device = c_int(-1)
    seen.append(cuda.cuCtxGetDevice(byref(device)))  # none is current in a new thread
    use(1)
    check(cuda.cuCtxGetDevice(byref(device)))
    seen.append(device.value)
thread = threading.Thread(target=other); thread.start(); thread.join()
device = c_int(-1)
check(cuda.cuCtxGetDevice(byref(device)))
second = c_void_p(); check(cuda.cuDevicePrimaryCtxRetain(byref(second), 1))
check(cuda.cuCtxPushCurrent_v2(second)); inner = c_int(); check(cuda.cuCtxGetDevice(byref(inner)))
check(cuda.cuCtxPopCurrent_v2(None)); outer = c_int(); check(cuda.cuCtxGetDevice(byref(outer)))
rt = CDLL("libcudart.so.12"); chosen = c_int(); check(rt.cudaSetDevice(1)); check(rt.cudaGetDevice(byref(chosen)))
print(json.dumps([*seen, device.value, inner.value, outer.value, chosen.value]))"""
    assert ask(run, machine, code) == [201, 1, 0, 1, 0, 1]


def test_a_forked_child_cannot_use_cuda_but_one_forked_before_can(machine: SimMachine, run: Run) -> None:
    code = """
import sys
def child(work):
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        try: os.write(w, json.dumps(work()).encode())
        finally: os._exit(0)
    os.close(w); os.waitpid(pid, 0)
    return json.loads(os.read(r, 1000))
import pynvml as N
N.nvmlInit()
def holders(): return [p.pid for p in N.nvmlDeviceGetComputeRunningProcesses(N.nvmlDeviceGetHandleByIndex(0))]
def early():
    use(0)
    return holders() == [os.getpid()]
out = [child(early), holders()]
use(0)
def late(): return [cuda.cuInit(0), cuda.cuCtxSynchronize(), allocate(1)[0], holders() == [os.getppid()]]
out += [child(late), holders() == [os.getpid()]]
print(json.dumps(out))"""
    assert ask(run, machine, code) == [True, [], [NOT_INITIALIZED] * 3 + [True], True]


def test_exec_drops_what_the_program_before_held(machine: SimMachine, run: Run) -> None:
    code = """
import sys
use(0)
check(allocate(4 << 30)[0])
after = '''
import json
from tests.sim.cuda_client import *
use(0)
code, address = allocate(6 << 30)
print(json.dumps(code))'''
os.execv(sys.executable, [sys.executable, "-c", after])"""
    assert ask(run, machine, code) == 0


def test_processes_share_the_device_and_never_exceed_it(machine: SimMachine, start: Start) -> None:
    code = (
        HEAD
        + """
import random, sys
random.seed(int(sys.argv[1]))
use(0)
print("up", flush=True)
sys.stdin.readline()
held, refused = [], 0
for _ in range(3000):
    if held and random.random() < 0.45:
        check(cuda.cuMemFree_v2(held.pop(random.randrange(len(held)))[0]))
    else:
        size = random.randrange(1, 700 << 20)
        code, address = allocate(size)
        if code == 2: refused += 1
        else: check(code); held.append((address, size))
print(json.dumps([sum(size for _, size in held), refused]), flush=True)
sys.stdin.readline()
"""
    )
    workers = [start(machine, code, str(number)) for number in range(4)]
    device = machine.devices()[0]
    ceiling = device.memory_bytes - device.reserved_bytes
    for worker in workers:  # each has its context before the first takes memory
        assert worker.stdout is not None
        assert worker.stdout.readline() == "up\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    most = 0
    while any(not _has_line(worker) for worker in workers):
        most = max(most, machine.used_bytes(0))
        assert most <= ceiling
    answers = []
    for worker in workers:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        answers.append(json.loads(line) if line else pytest.fail(worker.communicate()[1]))
    assert all(refused > 0 for _, refused in answers)  # they did fight for it
    assert most > 0.8 * ceiling
    held = sum(size for size, _ in answers)
    assert held <= machine.used_bytes(0) <= ceiling
    for worker in workers[:2]:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    left = machine.used_bytes(0)
    assert answers[2][0] + answers[3][0] <= left <= answers[2][0] + answers[3][0] + 3 * GIB


def _has_line(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0)[0])


def test_a_killed_process_makes_room_and_wedges_nobody(machine: SimMachine, start: Start, run: Run) -> None:
    storm = (
        HEAD
        + """
use(0)
print("up", flush=True)
while True:
    code, address = allocate(7 << 30)
    if not code: cuda.cuMemFree_v2(address)"""
    )
    code = "use(0)\ncode, address = allocate(7 << 30)\nprint(json.dumps(code))"
    for _ in range(8):
        process = start(machine, storm)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.kill()  # at any point of an allocation
        process.wait()
        assert ask(run, machine, code) == 0
    assert machine.used_bytes(0) == 0


def test_faults_reach_the_driver(machine: SimMachine, run: Run) -> None:
    code = "print(json.dumps([cuda.cuInit(0), cuda.cuInit(0)]))"
    machine.inject("cuInit", code=803, count=1)
    assert ask(run, machine, code) == [803, 0]
    machine.inject("cuDevicePrimaryCtxRetain", code=OUT_OF_MEMORY, device=1)
    machine.inject("cuMemAlloc", code=999, device=0)
    code = """
check(cuda.cuInit(0))
c = c_void_p()
out = [cuda.cuDevicePrimaryCtxRetain(byref(c), 1), cuda.cuDevicePrimaryCtxRetain(byref(c), 0)]
check(cuda.cuCtxSetCurrent(c))
print(json.dumps([*out, allocate(1)[0]]))"""
    assert ask(run, machine, code) == [OUT_OF_MEMORY, 0, 999]
    machine.inject("*", code=15)  # NVML's codes mean nothing to CUDA
    assert ask(run, machine, "print(json.dumps(cuda.cuInit(0)))") == 0


def test_a_full_device_refuses_a_context(
    machine: SimMachine, run: Run, idle_process: Callable[[], subprocess.Popen[bytes]]
) -> None:
    device = machine.devices()[0]
    machine.attach(idle_process().pid, 0, device.memory_bytes - device.reserved_bytes - 10 * MIB)
    code = "check(cuda.cuInit(0))\nc = c_void_p()\nprint(json.dumps(cuda.cuDevicePrimaryCtxRetain(byref(c), 0)))"
    assert ask(run, machine, code) == OUT_OF_MEMORY


def test_events_tell_time(machine: SimMachine, run: Run) -> None:
    code = """
import time
use(0)
a, b, ms = c_void_p(), c_void_p(), c_float()
check(cuda.cuEventCreate(byref(a), 0)); check(cuda.cuEventCreate(byref(b), 0))
out = [cuda.cuEventElapsedTime(byref(ms), a, b)]
check(cuda.cuEventRecord(a, None)); time.sleep(0.05); check(cuda.cuEventRecord(b, None))
check(cuda.cuEventElapsedTime(byref(ms), a, b))
print(json.dumps([*out, 49 < ms.value < 200]))"""
    assert ask(run, machine, code) == [400, True]


def test_a_pool_keeps_what_its_threshold_allows(machine: SimMachine, run: Run) -> None:
    code = """
use(0)
start = memory()[0]
pool, address, value = c_void_p(), c_uint64(), c_uint64(2 << 30)
check(cuda.cuDeviceGetDefaultMemPool(byref(pool), 0))
def reserved():
    value = c_uint64(); check(cuda.cuMemPoolGetAttribute(pool, 5, byref(value))); return value.value
def take(size):
    check(cuda.cuMemAllocAsync(byref(address), c_size_t(size), None)); return address.value
def give(a): check(cuda.cuMemFreeAsync(c_uint64(a), None))
a = take(3 << 30); out = [start - memory()[0]]
give(a); out.append(start - memory()[0])
check(cuda.cuMemPoolSetAttribute(pool, 4, byref(value)))
a = take(3 << 30); give(a); out += [start - memory()[0], reserved()]
a = take(1 << 30); out.append(start - memory()[0]); give(a)
check(cuda.cuMemPoolTrimTo(pool, c_size_t(0))); out.append(start - memory()[0])
out.append(cuda.cuMemAllocAsync(byref(address), c_size_t(9 << 30), None))
print(json.dumps(out))"""
    assert ask(run, machine, code) == [3 * GIB, 0, 2 * GIB, 2 * GIB, 2 * GIB, 0, OUT_OF_MEMORY]


def test_the_runtime_sees_the_same_device(machine: SimMachine, run: Run) -> None:
    code = """
rt = CDLL("libcudart.so.12")
count, pointer, free, total = c_int(), c_void_p(), c_size_t(), c_size_t()
out = [rt.cudaGetDeviceCount(byref(count)), count.value]
out += [rt.cudaSetDevice(9), rt.cudaGetLastError(), rt.cudaGetLastError()]
check(rt.cudaSetDevice(1))
out.append(rt.cudaMalloc(byref(pointer), c_size_t(100 << 30)))
check(rt.cudaMalloc(byref(pointer), c_size_t(1 << 30)))
check(rt.cudaMemGetInfo(byref(free), byref(total)))
check(rt.cudaFree(pointer))
rt.cudaGetErrorString.restype = c_char_p
properties = create_string_buffer(1032)
check(rt.cudaGetDeviceProperties_v2(properties, 1))
print(json.dumps([*out, total.value, free.value < 7 << 30, rt.cudaGetErrorString(2).decode(),
    properties.raw[:18].decode(), int.from_bytes(properties.raw[360:364], "little")]))"""
    assert ask(run, machine, code) == [
        *(0, 2, 101, 101, 0),
        OUT_OF_MEMORY,
        *(8 * GIB, True, "out of memory", "Simulated GPU 8GiB", 8),
    ]
    assert machine.used_bytes(1) == 0


def test_functions_are_found_by_name(machine: SimMachine, run: Run) -> None:
    code = """
found, status = c_void_p(), c_int(-1)
out = []
for name, newest in ((b"cuMemAlloc", "cuMemAlloc_v2"), (b"cuInit", "cuInit"), (b"cuNoSuchThing", "cuInit")):
    code = cuda.cuGetProcAddress_v2(name, byref(found), 12000, c_uint64(0), byref(status))
    out.append([code, status.value, found.value == cast(getattr(cuda, newest), c_void_p).value])
print(json.dumps(out))"""
    assert ask(run, machine, code) == [[0, 0, True], [0, 0, True], [500, 1, False]]
