"""PyTorch's CUDA build on simulated GPUs: its own code over the simulated driver and runtime.

Several gigabytes, so nothing installs it by itself: name interpreters that have one in GPUWATCH_TORCH_PYTHON,
separated by colons. Builds for CUDA 12 and for CUDA 13 differ in much of what they ask.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch, torch_pythons

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
GIB, MIB = 2**30, 2**20


@pytest.fixture(params=torch_pythons() or [None])
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def torch(machine: SimMachine, python: str, code: str, **environment: str) -> Any:
    """The last line of what it printed, as JSON."""
    done = subprocess.run(
        [python, "-c", "import json, torch\ncuda = torch.cuda\n" + code],
        env=machine.environment({**os.environ, **environment}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_map(sim_machine: Callable[[str], SimMachine], python: str) -> None:
    machine = sim_machine("3x24GiB")
    code = """
properties = [cuda.get_device_properties(index) for index in range(cuda.device_count())]
try:
    cuda.set_device(7)
except RuntimeError as error:
    refused = str(error).splitlines()[0]
cuda.set_device(1)
print(json.dumps([cuda.is_available(), cuda.current_device(), refused, cuda.get_device_name(0),
    cuda.get_device_capability(0), [[str(p.uuid), p.total_memory, p.multi_processor_count] for p in properties]]))"""
    devices = machine.devices()
    expected = [[device.uuid.removeprefix("GPU-"), 24 * GIB, 82] for device in devices]
    said = [True, 1, "CUDA error: invalid device ordinal", devices[0].name, [8, 6]]
    assert torch(machine, python, code) == [*said, expected]
    for value, order in (
        ("2,0", [2, 0]),
        (f"{devices[1].uuid},{devices[0].uuid}", [1, 0]),
        ("1,9,0", [1]),
    ):
        found = torch(machine, python, code.replace("set_device(1)", "set_device(0)"), CUDA_VISIBLE_DEVICES=value)[-1]
        assert found == [expected[index] for index in order], value
    none = "print(json.dumps([cuda.is_available(), cuda.device_count()]))"
    assert torch(machine, python, none, CUDA_VISIBLE_DEVICES="-1") == [False, 0]


def test_memory_is_pytorchs_and_shows_up_by_process(sim_machine: Callable[[str], SimMachine], python: str) -> None:
    machine = sim_machine("1x24GiB")
    code = """
import os, sys
free, total = cuda.mem_get_info()
block = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
held = [cuda.memory_allocated() >> 20, cuda.memory_reserved() >> 20, free - cuda.mem_get_info()[0] >> 20]
from ctypes import *
nvml = CDLL("libnvidia-ml.so.1")
count, device, entries = c_uint(16), c_void_p(), (c_ubyte * 24 * 16)()
nvml.nvmlInit_v2(); nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device))
assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, byref(count), entries) == 0
mine = [int.from_bytes(bytes(entry)[8:16], "little") >> 20 for entry in entries[:count.value]
    if int.from_bytes(bytes(entry)[:4], "little") == os.getpid()]
messages = []
for fraction, size in ((1.0, 1 << 40), (0.1, 8 << 30)):
    cuda.set_per_process_memory_fraction(fraction)
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except cuda.OutOfMemoryError as error:
        messages.append(str(error))
del block; cuda.empty_cache()
copied = torch.arange(1000.).cuda().cpu().sum().item()
print(json.dumps([total >> 20, held, mine, cuda.memory_reserved() >> 20, copied, messages]))"""
    total, held, mine, left, copied, (whole, fraction) = torch(machine, python, code)
    assert (total, held, mine, left, copied) == (24 * 1024, [256] * 3, [256 + 320], 2, 499500.0)
    assert "Tried to allocate 1024.00 GiB. GPU 0 has a total capacity of 24.00 GiB" in whole
    assert "this process has 576.00 MiB memory in use" in whole, "from NVML"
    assert "2.40 GiB allowed" in fraction


def test_choosing_a_gpu_takes_its_context_at_once(sim_machine: Callable[[str], SimMachine], python: str) -> None:
    code = """
cuda.set_device(1)
print(json.dumps(cuda.mem_get_info(1)[1] - cuda.mem_get_info(1)[0] >> 20))"""
    assert torch(sim_machine("2x24GiB"), python, code) == 256 + 320


def test_products_are_computed_and_kernels_refused(sim_machine: Callable[[str], SimMachine], python: str) -> None:
    machine = sim_machine("1x24GiB")
    code = """
a, b = torch.rand(64, 96), torch.rand(96, 32)
right = torch.allclose((a.cuda() @ b.cuda()).cpu(), a @ b, atol=1e-4)
failed = []
for work in (lambda: torch.ones(4, device="cuda"), lambda: torch.rand(4).cuda() + 1,
             lambda: torch.nn.Conv2d(3, 3, 3).cuda()(torch.rand(1, 3, 9, 9).cuda())):
    try:
        work()
    except RuntimeError as error:
        failed.append(str(error).splitlines()[0])
print(json.dumps([right, failed]))"""
    right, failed = torch(machine, python, code)
    assert right
    assert (
        failed[:2]
        == ["CUDA error: operation not supported: the GPU is simulated, and the simulated driver lacks it"] * 2
    )
    assert len(failed) == 3


def command(machine: SimMachine, *arguments: str) -> Any:
    done = gpuwatch(*arguments, environment=machine.environment(os.environ), timeout=400)
    assert done.out.startswith("{"), done.err
    return json.loads(done.out)


def test_every_probe_runs(sim_machine: Callable[[str], SimMachine], python: str) -> None:
    machine = sim_machine("2x24GiB")
    group = ("probe", "--group", "torch", "--framework", "torch", "--python", python, "--seconds", "0.2", "--json")
    runs = {run["config"]: run for run in command(machine, *group)["runs"]}
    assert {name: run["verdict"] for name, run in runs.items()} == {
        "torch-map": "ok",
        "torch-visible": "ok",
        "torch-set-device": "ok",
        "torch-fraction": "ok",
        "torch-oom": "oom",
    }
    for name, run in runs.items():
        uuids = [device["uuid"] for device in run["device_map"]]
        wanted = [device.uuid for device in machine.devices()]
        assert uuids == (wanted[:1] if name == "torch-visible" else wanted), name
        assert run["simulation"] == "driver"
        assert run["throughput"]["steps_per_second"] > 0
        assert run["memory"]["nvml_peak_bytes"] > 320 * MIB
        assert not [entry["id"] for entry in run["findings"] if entry["id"].startswith(("driver.", "cuda.", "build."))]
    assert runs["torch-set-device"]["placements"][0]["actual"] == "cuda:1"
    assert [oom["verdict"] for oom in runs["torch-oom"]["ooms"]] == ["memory.model-too-large"]
    assert [oom["verdict"] for oom in runs["torch-fraction"]["ooms"]] == ["memory.limit-too-small"]


def test_doctor_finds_it_well(sim_machine: Callable[[str], SimMachine], python: str) -> None:
    found = command(sim_machine("2x24GiB"), "doctor", "--framework", "torch", "--python", python, "--json")
    assert [finding["id"] for finding in found["findings"]] == ["healthy"]


@pytest.mark.parametrize(
    ("tier", "work"),
    [
        ("driver", "torch.ones(3, device='cuda')"),
        ("driver", "torch.nn.Conv2d(3, 3, 3).cuda()(torch.rand(1, 3, 9, 9).cuda())"),
        ("plugin", "torch.empty(3, device='cuda')"),
    ],
)
def test_what_stays_impossible_is_told_as_the_simulations_limit(
    sim_machine: Callable[[str], SimMachine], python: str, tmp_path: Path, tier: str, work: str
) -> None:
    out = tmp_path / "run.json"
    options = ("--sim-tier", tier, "-q", "--no-save", "--json", "-o", str(out))
    environment = sim_machine("1x24GiB").environment(os.environ)
    done = gpuwatch("run", *options, "--", python, "-c", f"import torch; {work}", environment=environment, timeout=400)
    assert done.code == 1
    run = json.loads(out.read_text())
    assert (run["verdict"], run["primary"]) == ("error", "simulation.limit"), done.err
    assert [finding["id"] for finding in run["findings"]] == ["simulation.limit"]


_SNIPPETS = """
for index in range(torch.cuda.device_count()):
    gpu = torch.cuda.get_device_properties(index)
    print(f"cuda:{index}", gpu.name, gpu.total_memory >> 20)
torch.cuda.set_device(1)
a = torch.rand(64, 64, device="cpu").to("cuda:1")
print((a @ a).device, torch.cuda.current_device(), torch.cuda.get_device_name(0))
torch.cuda.synchronize()
"""


def test_snippets_of_guides_run_and_what_cannot_is_said_first(python: str, tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    options = ("--sim", "2x24GiB", "--no-save", "-o", str(out))
    done = gpuwatch("run", *options, "--", python, "-c", f"import torch\n{_SNIPPETS}", timeout=400)
    assert done.code == 0, done.err
    assert "cuda:1 1 " in done.out
    assert done.err.index("other kernels") < done.err.index("[SIMULATED]")
    (mapped,) = json.loads(out.read_text())["device_map"]
    assert (mapped["framework_device"], mapped["physical_index"]) == ("cuda:1", 1)
