"""The simulated CUDA runtime of 12 and of 13: what PyTorch's start asks of it, with the layouts that each has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.sim import library_cache
from gpuwatch.sim.simulated_machine import SimMachine

GIB, MIB = 2**30, 2**20
NOT_SUPPORTED, INSUFFICIENT_DRIVER, INVALID_DEVICE = 801, 35, 101
Run = Callable[..., str]

HEAD = """
import json, os, sys
from ctypes import *
runtime = CDLL(f"libcudart.so.{sys.argv[1]}")
def check(code):
    if code:
        raise RuntimeError(f"CUDA error {code}")
"""


def ask(run: Run, machine: SimMachine, major: int, code: str, **environment: str) -> Any:
    return json.loads(run(machine, HEAD + code, str(major), **environment))


# Offsets in driver_types.h of each version: CUDA 13 has left out some members of cudaDeviceProp.
@pytest.mark.parametrize(
    ("major", "function", "size", "offsets"),
    [
        (12, "cudaGetDeviceProperties_v2", 1032, (288, 360, 388, 584, 616, 696)),
        (13, "cudaGetDeviceProperties", 1008, (288, 360, 384, 568, 596, 672)),
    ],
)
def test_the_properties_stand_where_each_version_has_them(
    machine: SimMachine, run: Run, major: int, function: str, size: int, offsets: tuple[int, ...]
) -> None:
    code = f"""
raw = (c_ubyte * {size + 64})(*[0xAA] * {size + 64})
check(runtime.{function}(raw, 1))
raw = bytes(raw)
number = lambda at, width=4: int.from_bytes(raw[at:at + width], "little")
memory, major, processors, bus, l2, shared = {offsets}
print(json.dumps([raw[:18].decode(), raw[256:272].hex(), number(memory, 8), [number(major), number(major + 4)],
    number(processors), number(bus), number(l2), number(shared, 8), set(raw[{size}:]) == {{0xAA}}]))"""
    name, uuid, memory, capability, processors, bus, l2, shared, untouched = ask(run, machine, major, code)
    device = machine.devices()[1]
    assert (name, memory) == (device.name, device.memory_bytes)
    assert uuid == device.uuid.removeprefix("GPU-").replace("-", "")
    assert (capability, processors, bus, l2, shared) == ([8, 6], 82, 2, 6 * MIB, 101376)
    assert untouched, "what lies behind the caller's struct"


@pytest.mark.parametrize("major", [12, 13])
def test_pointers_streams_and_devices(machine: SimMachine, run: Run, major: int) -> None:
    code = f"""
size = {24 if major == 12 else 88}
def attributes(pointer):
    raw = create_string_buffer(b"\\xaa" * (size + 8), size + 8)
    check(runtime.cudaPointerGetAttributes(raw, pointer))
    kind = [int.from_bytes(raw.raw[at:at + 4], "little", signed=True) for at in (0, 4)]
    return [*kind, raw.raw[size:] == b"\\xaa" * 8, set(raw.raw[24:size]) <= {{0}}]
device, pinned, there, mode = c_void_p(), c_void_p(), c_int(), c_int(2)
check(runtime.cudaSetDevice(1))
check(runtime.cudaMalloc(byref(device), c_size_t(1 << 20)))
check(runtime.cudaHostAlloc(byref(pinned), c_size_t(4096), 0))
out = [attributes(device), attributes(pinned), attributes(cast(create_string_buffer(8), c_void_p))]
check(runtime.cudaDeviceCanAccessPeer(byref(there), 0, 1))
out.append([there.value, runtime.cudaDeviceEnablePeerAccess(0, 0), runtime.cudaDeviceEnablePeerAccess(9, 0)])
check(runtime.cudaThreadExchangeStreamCaptureMode(byref(mode)))
out.append([mode.value, runtime.cudaThreadExchangeStreamCaptureMode(byref(mode)), mode.value])
print(json.dumps(out))"""
    assert ask(run, machine, major, code) == [
        [2, 1, True, True],
        [1, 1, True, True],
        [0, -2, True, True],
        [0, 217, INVALID_DEVICE],
        [0, 0, 2],
    ]


def test_an_older_driver_is_too_old_for_the_newer_runtime_alone(machine: SimMachine, run: Run) -> None:
    code = "print(json.dumps(runtime.cudaGetDeviceCount(byref(c_int()))))"
    assert [ask(run, machine, major, code) for major in (12, 13)] == [0, 0]
    machine.override(0, "cuda_version", 12080)
    assert [ask(run, machine, major, code) for major in (12, 13)] == [0, INSUFFICIENT_DRIVER]


@pytest.mark.parametrize(("library", "function"), [("libcudart", "cudaMalloc"), ("libcublas", "cublasCreate_v2")])
@pytest.mark.parametrize("major", [12, 13])
def test_symbols_carry_the_version_that_programs_are_linked_against(
    machine: SimMachine, run: Run, library: str, function: str, major: int
) -> None:
    code = f"""
found = CDLL(None).dlvsym
found.argtypes, found.restype = [c_void_p, c_char_p, c_char_p], c_void_p
library = CDLL("{library}.so.{major}")
print(json.dumps([bool(found(library._handle, b"{function}", b"{library}.so.%d" % major)) for major in (12, 13)]))"""
    assert ask(run, machine, major, code) == [major == 12, major == 13]


def test_what_is_not_modelled_is_refused(machine: SimMachine, run: Run) -> None:
    code = """
runtime.cudaGetErrorString.restype = c_char_p
print(json.dumps([runtime.cudaGraphInstantiate(None, None, 0), runtime.cudaGetLastError(),
    runtime.cudaGetErrorString(801).decode()]))"""
    assert ask(run, machine, 12, code) == [NOT_SUPPORTED, NOT_SUPPORTED, "operation not supported"]


# A wheel in small: a library that is linked against the runtime and finds its own copy of it by an RPATH.
WHEEL = "int cudaRuntimeGetVersion(int *version) { *version = 99; return 0; }\n"
USER = """
typedef struct { unsigned x, y, z; } dim3;
int cudaRuntimeGetVersion(int *);
int cudaLaunchKernel(const void *, dim3, dim3, void **, unsigned long, void *) __attribute__((weak));
void **__cudaRegisterFatBinary(void *) __attribute__((weak));
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *)
    __attribute__((weak));
static char kernel;
__attribute__((constructor)) static void enter(void) {
    if (__cudaRegisterFatBinary)
        __cudaRegisterFunction(__cudaRegisterFatBinary(0), &kernel, 0, "_ZN2at6native4fillEf", 0, 0, 0, 0, 0, 0);
}
int version(void) { int found; cudaRuntimeGetVersion(&found); return found; }
int launch(void) { dim3 one = {1, 1, 1}; return cudaLaunchKernel(&kernel, one, one, 0, 0, 0); }
"""


def made(folder: Path, name: str, source: str, *options: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.with_name(path.name + ".c")
    text.write_text(source)
    subprocess.run([*library_cache.find_compiler(), "-shared", "-fPIC", "-o", path, text, *options], check=True)
    return path


@pytest.fixture
def wheel(tmp_path: Path) -> Callable[[str], Path]:
    made(tmp_path, "nvidia/libcudart.so.12", WHEEL, "-Wl,-soname,libcudart.so.12", "-Wl,--default-symver")

    def user(name: str) -> Path:
        rpath = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia"
        return made(tmp_path, f"lib/{name}/{name}.so", USER, str(tmp_path / "nvidia" / "libcudart.so.12"), rpath)

    return user


def test_pytorch_gets_the_simulated_runtime_and_others_their_own(
    machine: SimMachine, run: Run, wheel: Callable[[str], Path]
) -> None:
    """Its libraries would find their wheel's before anything in LD_LIBRARY_PATH."""
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).version())"
    assert run(machine, code, str(wheel("libother"))) == "99\n"
    assert run(machine, code, str(wheel("libtorch_global_deps"))) == "12050\n"


def test_a_kernel_of_pytorch_is_refused_loudly(machine: SimMachine, wheel: Callable[[str], Path]) -> None:
    code = "import ctypes, sys; user = ctypes.CDLL(sys.argv[1]); print([user.launch() for _ in range(3)])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(wheel("libtorch_cuda"))],
        env=machine.environment(os.environ),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == f"{[NOT_SUPPORTED] * 3}\n"
    assert done.stderr.count("driver lacks kernels") == 1
    assert "CUDA error 801" in done.stderr


def test_the_callers_own_folder_is_still_searched(machine: SimMachine, run: Run, tmp_path: Path) -> None:
    """The library that watches dlopen must not stand between a library and its RUNPATH."""
    made(tmp_path, "own/libonlyhere.so.7", "int seven(void) { return 7; }", "-Wl,-soname,libonlyhere.so.7")
    opener = '#include <dlfcn.h>\nint found(void) { return dlopen("libonlyhere.so.7", RTLD_NOW) != 0; }'
    path = made(tmp_path, "libopener.so", opener, "-Wl,--enable-new-dtags,-rpath,$ORIGIN/own", "-ldl")
    assert run(machine, "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).found())", str(path)) == "1\n"
