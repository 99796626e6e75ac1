"""Truth tables: one change of a healthy machine, the check that must see it, and the cause that follows."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.doctor import (
    DeviceFile,
    DeviceTest,
    Distribution,
    FrameworkFacts,
    Library,
    LoadedLibrary,
    PciCard,
)
from gpuwatch.core.model.doctor import LibraryFolder as Folder
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.json_codec import from_json, to_json
from gpuwatch.core.model.snapshot import Driver, Problem, Process
from gpuwatch.explain.diagnosis.doctor.check import CHECKS, Answer, DeclaredCheck, Facts, check, run_checks
from gpuwatch.explain.diagnosis.doctor.doctor_document import CHECK_MODULES, checks_in_order
from gpuwatch.explain.diagnosis.rule_registry import RULES, Rule
from gpuwatch.explain.diagnosis.rules.gpu_environment_variables import gpu_variables
from gpuwatch.explain.logs.log_facts import CuInitError, LogFacts
from tests.doctor.machines import (
    ANSWER,
    GIB,
    LOOK,
    SYSTEM,
    TENSORFLOW,
    bare,
    checks,
    examined,
    gpu,
    machine,
    replace,
    run,
    snapshot,
)
from tests.every import every

ALIKE = "NVIDIA A100"


def system(**changes: Any) -> Any:
    return replace(SYSTEM, **changes)


def driver(**changes: Any) -> Any:
    return replace(ANSWER, **changes)


def look(**changes: Any) -> Any:
    return replace(LOOK, **changes)


def environment(**variables: str) -> Facts:
    return machine(environment=variables)


def absent(name: str) -> LoadedLibrary:
    return LoadedLibrary(name=name, error=f"{name}: cannot open shared object file: No such file or directory")


def broken(name: str) -> LoadedLibrary:
    return LoadedLibrary(name=name, error=f"/usr/lib/{name}: file too short")


def files(*closed: str) -> Any:
    return tuple(replace(entry, usable=entry.path not in closed) for entry in SYSTEM.device_files)


STUBS = Folder(folder="/usr/local/cuda/lib64/stubs", exists=True, libraries=("libcuda.so", "libcuda.so.1"))
COMPAT = Folder(folder="/usr/local/cuda/compat", exists=True, libraries=("libcuda.so.1",))
CUDNN = LOOK.libraries[0]
SERVER = Process(
    pid=99, create_time=1.0, user="root", command="nvidia-cuda-mps-server", name="nvidia-cuda-mps-server", type="M",
    device_uuid="GPU-000", readings={"gpu_memory_bytes": GIB},
)  # fmt: skip
HELD = Process(
    pid=77, create_time=1.0, user="ann", command="python", name="python", type="C", device_uuid="GPU-000",
    readings={"gpu_memory_bytes": 79 * GIB},
)  # fmt: skip

TABLE: list[tuple[str, str, Facts, str]] = [
    ("driver.cards", "pass", machine(), "2 cards"),
    ("driver.cards", "fail", bare(), "no NVIDIA card"),
    ("driver.cards", "skip", machine(system=system(cards=None)), "/sys"),
    ("driver.cards", "skip", machine(system=system(wsl=True)), "WSL"),
    ("driver.cards", "skip", bare(system=system(jetson=True, cards=())), "Jetson"),
    ("driver.kernel-module", "skip", bare(system=system(jetson=True, kernel_module=None)), "nvgpu"),
    ("devices.files", "skip", bare(system=system(jetson=True, device_files=())), "nvhost"),
    ("driver.cards", "skip", machine(system=None), "within 3 s"),
    ("driver.cards", "skip", machine(simulated=True), "simulated"),
    ("driver.nouveau", "pass", machine(), "nvidia"),
    ("driver.nouveau", "fail", machine(system=system(cards=(PciCard(bus_id="a", driver="nouveau"),))), "nouveau"),
    ("driver.nouveau", "fail", machine(system=system(cards=(PciCard(bus_id="a"),))), "no kernel driver"),
    ("driver.nouveau", "warn", machine(system=system(cards=(PciCard(bus_id="a", driver="vfio-pci"),))), "vfio"),
    ("driver.kernel-module", "pass", machine(), "570.86.10"),
    ("driver.kernel-module", "fail", bare(), "not loaded"),
    ("driver.kernel-module", "pass", machine(system=system(kernel_module=None)), "NVML answers"),
    ("driver.libcuda", "pass", machine(), "570.86.10"),
    ("driver.libcuda", "fail", bare(), "cannot open"),
    ("driver.libcuda", "warn", machine(driver=driver(libcuda=LoadedLibrary(name="l", path="/cuda/compat/l"))),
        "compat"),
    ("driver.libcuda", "skip", machine(driver=driver(libcuda=None, nvml=None, late="dlopen")), "within 3 s"),
    ("driver.pynvml", "warn", machine(snapshot=snapshot(driver=None, problems=(
        Problem(source="nvml", reason="gpuwatch.failed", detail="the module pynvml belongs to x", hint="pip"),))), "x"),
    ("driver.nvml", "pass", machine(), "570.86.10"),
    ("driver.nvml", "fail", bare(), "cannot open"),
    ("driver.nvml", "fail", machine(driver=driver(nvml_code=18)), "returns 18"),
    ("driver.nvml", "fail", machine(driver=driver(late="nvmlInit", nvml_code=None)), "did not return"),
    ("driver.nvml", "fail", machine(driver=driver(nvml=broken("libnvidia-ml.so.1"))), "too short"),
    ("driver.nvml", "fail", machine(driver=driver(nvml_code=None, ended_in="nvmlInit", problem="killed")), "killed"),
    ("driver.nvml", "fail", machine(driver=driver(
        nvml=None, nvml_code=None, ended_in="dlopen of libnvidia-ml.so.1", problem="signal 7")), "signal 7"),
    ("driver.libcuda", "fail", machine(driver=driver(libcuda=broken("libcuda.so.1"))), "too short"),
    ("driver.libcuda", "skip", machine(driver=driver(libcuda=None, ended_in="nvmlInit", problem="signal 6")), "signal"),
    ("driver.start", "fail", machine(driver=driver(cuinit_code=None, ended_in="cuInit", problem="signal 11")), "11"),
    ("driver.start", "pass", machine(), "2 devices"),
    ("driver.start", "skip", bare(), "not loaded"),
    ("driver.start", "fail", machine(driver=driver(cuinit_code=803)), "versions"),
    ("driver.start", "fail", machine(driver=driver(cuda_devices=0)), "no device"),
    ("driver.start", "warn", machine(driver=driver(cuinit_code=None, late="cuInit")), "did not return"),
    ("driver.versions", "pass", machine(), "kernel module 570.86.10"),
    ("driver.versions", "fail", machine(system=system(kernel_module="560.1"), driver=driver(cuinit_code=803)), "560.1"),
    ("driver.versions", "warn", machine(system=system(kernel_module="560.1")), "560.1"),
    ("driver.versions", "skip", bare(), "fewer than two"),
    ("driver.cuda-version", "pass", machine(), "12.8"),
    ("driver.cuda-version", "pass", bare(driver=driver()), "12.8, by libcuda"),
    ("driver.cuda-version", "skip", bare(), "without a driver"),
    ("devices.files", "pass", machine(), "/dev/nvidiactl"),
    ("devices.files", "fail", bare(), "/dev/nvidia* does not exist"),
    ("devices.files", "fail", machine(system=system(device_files=files()[1:])), "/dev/nvidia-uvm"),
    ("devices.files", "fail", machine(system=system(wsl=True)), "/dev/dxg"),
    ("devices.permissions", "pass", machine(), "4 files, readable"),
    ("devices.permissions", "fail", machine(system=system(device_files=files("/dev/nvidiactl"))), "/dev/nvidiactl"),
    ("devices.present", "pass", machine(), "2 GPUs"),
    ("devices.present", "fail", machine(snapshot=snapshot(gpu(0, state="lost"))), "lost"),
    ("devices.present", "skip", bare(), "libnvidia-ml.so.1 is missing"),
    ("devices.present", "fail", machine(snapshot=None), "within 3 s"),
    ("devices.present", "skip", machine(driver=driver(late="nvmlInit", nvml_code=None), snapshot=None), "within 3 s"),
    ("devices.mode", "pass", machine(), "default"),
    ("devices.mode", "warn", machine(snapshot=snapshot(gpu(0, mode__compute="exclusive-process"))), "one process"),
    ("devices.mode", "fail", machine(snapshot=snapshot(gpu(0, mode__compute="prohibited"))), "is refused"),
    ("devices.mode", "fail", machine(
        snapshot=snapshot(gpu(0, mode__compute="exclusive-process"), processes=(HELD,))), "is refused"),
    ("devices.mig", "pass", machine(), "off"),
    ("devices.mig", "warn", machine(
        snapshot=snapshot(gpu(0, mig__mode="enabled")), environment={"CUDA_VISIBLE_DEVICES": "0"}), "lists 0"),
    ("devices.mig", "fail", environment(CUDA_VISIBLE_DEVICES="MIG-1,MIG-2"), "2 instances"),
    ("devices.mig", "fail", environment(CUDA_VISIBLE_DEVICES="MIG-1"), "no GPU has MIG on"),
    ("devices.mps", "pass", machine(snapshot=snapshot(processes=(SERVER,))), "serves GPU 0"),
    ("devices.mps", "warn", machine(
        snapshot=snapshot(processes=(SERVER,)), environment={"CUDA_VISIBLE_DEVICES": "0,1"}), "renumbers"),
    ("devices.mps", "warn", environment(CUDA_MPS_PIPE_DIRECTORY="/tmp/mps"), "no MPS server"),
    ("devices.persistence", "pass", machine(), "on"),
    ("devices.persistence", "pass", machine(snapshot=snapshot(gpu(0, mode__persistence="disabled"))), "off"),
    ("devices.persistence", "warn", machine(
        snapshot=snapshot(gpu(0, mode__persistence="disabled")), driver=driver(cuinit_seconds=2.5)), "2.5 s"),
    ("devices.memory", "pass", machine(), "GPU 0"),
    ("devices.memory", "warn", machine(
        snapshot=snapshot(gpu(0, memory__free_bytes=GIB // 4), processes=(HELD,))), "python (pid 77, ann)"),
    ("container.kind", "pass", machine(), "none"),
    ("container.kind", "pass", machine(system=system(container="docker")), "docker"),
    ("container.kind", "warn", bare(system=system(container="docker", device_files=())), "without GPUs"),
    ("container.visible-devices", "fail", bare(
        system=system(container="docker"), environment={"NVIDIA_VISIBLE_DEVICES": "void"}), "without GPUs"),
    ("container.capabilities", "fail", machine(
        system=system(container="docker"), environment={"NVIDIA_DRIVER_CAPABILITIES": "compute"}), "utility"),
    ("container.capabilities", "pass", machine(
        system=system(container="docker"), environment={"NVIDIA_DRIVER_CAPABILITIES": "all"}), "all"),
    ("container.wsl", "fail", machine(system=system(wsl=True)), "/usr/lib/wsl"),
    ("container.wsl", "pass", machine(system=system(wsl=True, wsl_libraries=True)), "Windows"),
    ("framework.cudnn", "fail", machine(installation=look(
        libraries=(replace(CUDNN, version="9.1.0", origin="LD_LIBRARY_PATH"),))), "needs 9.3"),
    ("framework.cudnn", "pass", machine(installation=look(libraries=(replace(CUDNN, version="9.5.1"),))), "9.5.1"),
    ("framework.cudnn", "pass", machine(installation=look(
        libraries=(CUDNN,), distributions=(Distribution(name="nvidia-cudnn-cu12", version="9.3.0.75"),))), "9.3.0.75"),
    ("framework.cudnn", "skip", machine(installation=look(libraries=(replace(CUDNN, origin="system"),))),
     "unknown version"),
    ("driver.libcuda", "fail", bare(), "cannot open"),
    ("environment.visible-devices", "pass", machine(), "not set"),
    ("environment.visible-devices", "fail", environment(CUDA_VISIBLE_DEVICES="-1"), "hides every"),
    ("environment.visible-devices", "fail", environment(CUDA_VISIBLE_DEVICES="5"), "not a GPU of this machine"),
    ("environment.visible-devices", "warn", environment(CUDA_VISIBLE_DEVICES="0,-1,1"), "1 is never read"),
    ("environment.visible-devices", "fail", environment(CUDA_VISIBLE_DEVICES="0,0"), "is a duplicate"),
    ("environment.visible-devices", "warn", environment(CUDA_VISIBLE_DEVICES="0 1"), "'0 1' is read as 0; visible: 0"),
    ("environment.visible-devices", "pass", environment(CUDA_VISIBLE_DEVICES="1"), "GPU:0 is GPU 1"),
    ("environment.visible-devices", "skip", bare(environment={"CUDA_VISIBLE_DEVICES": "0"}), "without a driver"),
    ("environment.device-order", "pass", machine(), "same model"),
    ("environment.device-order", "warn", machine(snapshot=snapshot(gpu(0), gpu(1, name="Other"))), "cards differ"),
    ("environment.device-order", "pass", machine(
        snapshot=snapshot(gpu(0), replace(gpu(1), name="unknown GPU", pci_bus_id="", state="lost"))), "same model"),
    ("environment.device-order", "pass", machine(
        snapshot=snapshot(gpu(0), gpu(1, name="Other")), environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
     "PCI_BUS_ID"),
    ("environment.device-order", "warn", environment(CUDA_DEVICE_ORDER="PCI_BUS"), "not a valid value"),
    ("environment.misspelt", "pass", machine(), "none"),
    ("environment.misspelt", "warn", environment(CUDA_VISIBLE_DIVICES="1"), "CUDA_VISIBLE_DEVICES was probably"),
    ("environment.growth", "pass", environment(TF_FORCE_GPU_ALLOW_GROWTH="true"), "as needed"),
    ("environment.growth", "warn", environment(TF_FORCE_GPU_ALLOW_GROWTH="false"), "even if"),
    ("environment.growth", "warn", environment(TF_FORCE_GPU_ALLOW_GROWTH="1"), "neither"),
    ("environment.allocator", "pass", environment(TF_GPU_ALLOCATOR="cuda_malloc_async"), "CUDA's own pool"),
    ("environment.allocator", "warn", environment(TF_GPU_ALLOCATOR="async"), "not a TensorFlow allocator"),
    ("environment.library-path", "pass", machine(), "not set"),
    ("environment.library-path", "fail", machine(system=system(library_path=(STUBS,))), "stubs"),
    ("environment.library-path", "fail", machine(system=system(library_path=(COMPAT,))), "compat"),
    ("environment.library-path", "warn", machine(
        system=system(library_path=(Folder(folder="/x", exists=True),)),
        installation=look(libraries=(Library(name="libcudnn.so.9", state="loaded", path="/x/l", shadows="/w/l"),))),
     "shadows"),
    ("environment.library-path", "pass", machine(
        system=system(library_path=(Folder(folder="/gone", exists=False),))), "missing: /gone"),
    ("environment.log-level", "pass", machine(), "shown"),
    ("environment.log-level", "warn", environment(TF_CPP_MIN_LOG_LEVEL="3"), "all but fatal"),
    ("environment.others", "pass", environment(XLA_FLAGS="--x"), "XLA"),
    ("environment.others", "warn", environment(CUDA_LAUNCH_BLOCKING="1"), "debugging"),
    ("framework.interpreter", "pass", machine(), "/venv/bin/python"),
    ("framework.interpreter", "fail", machine(installation=FrameworkFacts(name="torch", missing="not there")),
     "not there"),
    ("framework.interpreter", "skip", bare(), "not checked"),
    ("framework.distributions", "pass", machine(), "tensorflow 2.21.0"),
    ("framework.distributions", "fail", machine(installation=look(distributions=(
        Distribution(name="tensorflow", version="2.21.0"), Distribution(name="tensorflow-cpu", version="2.20.0")))),
     "overwrite each other"),
    ("framework.distributions", "warn", machine(installation=look(distributions=(
        Distribution(name="pynvml", version="11"), Distribution(name="nvidia-ml-py", version="12")))), "pynvml"),
    ("framework.distributions", "skip", machine(installation=look(distributions=None, search_late="the search")),
     "the search"),
    ("framework.import", "pass", machine(), "2.0 s"),
    ("framework.import", "fail", machine(run=run(gpus=0, framework=None), installation=look(late="import tensorflow")),
     "deadline"),
    ("framework.build", "pass", machine(), "CUDA 12.5.1, cuDNN 9"),
    ("framework.build", "fail", machine(run=run(gpus=0, framework=replace(TENSORFLOW, gpu_build=False))),
     "without CUDA"),
    ("framework.cuda-version", "pass", machine(), "12.8"),
    ("framework.cuda-version", "fail", machine(
        snapshot=snapshot(driver=Driver(version="470.1", cuda_version="11.4", nvml_version=None))), "needs 12.5.1"),
    ("framework.cuda-version", "pass", machine(
        snapshot=snapshot(driver=Driver(version="525.1", cuda_version="12.0", nvml_version=None))), "minor version"),
    ("framework.capability", "pass", machine(), "native"),
    ("framework.capability", "fail", machine(snapshot=snapshot(gpu(0, capability="5.2"))), "no code"),
    ("framework.capability", "warn", machine(snapshot=snapshot(gpu(0, capability="12.0"))), "compiled on first use"),
    ("framework.in-the-way", "warn", machine(system=system(shadowing_files=(("/w/torch.py", False),))), "/w/torch.py"),
    ("framework.libraries", "pass", machine(), "1 library"),
    ("framework.libraries", "fail", machine(
        installation=look(libraries=(Library(name="libcudnn.so.9", state="missing", detail="no such file"),))),
     "libcudnn.so.9"),
    ("framework.libraries", "fail", machine(log=LogFacts(missing_libraries=["libcusolver.so.11"])), "libcusolver"),
    ("framework.libraries", "skip", machine(installation=look(search_late="the search")), "opened so far: 1"),
    ("framework.devices", "pass", machine(), "2 GPUs"),
    ("framework.devices", "fail", machine(run=run(gpus=0)), "has no GPU"),
    ("framework.op", "pass", machine(), "GPU:0"),
    ("framework.op", "fail", machine(installation=look(tests=(DeviceTest(device="GPU:0", error="Boom: x"),))), "Boom"),
    ("framework.op", "fail", machine(installation=look(
        tests=(DeviceTest(device="GPU:0", ran_on="GPU:0", correct=False),))), "wrong"),
    ("framework.op", "skip", machine(installation=look(tests=(), late="starting its devices")), "deadline"),
    ("framework.log", "pass", machine(), "no problems"),
    ("framework.log", "warn", machine(
        log=LogFacts(cuinit_error=CuInitError(name="CUDA_ERROR_UNKNOWN", code=999, text=""))), "CUDA_ERROR_UNKNOWN"),
]  # fmt: skip


@every(TABLE)
def test_truth_table(check_id: str, state: str, facts: Facts, says: str) -> None:
    answer = checks(facts)[check_id]
    assert (answer.state, says in answer.detail) == (state, True), answer
    if state in ("warn", "fail"):
        assert answer.action, "what is wrong needs a remedy"


def test_every_check_is_in_the_table_with_a_good_and_a_bad_answer() -> None:
    bad = {row[0] for row in TABLE if row[1] in ("warn", "fail")}
    always_good = {"driver.cuda-version"}
    assert bad | always_good == {entry.id for entry in CHECKS}


def test_a_healthy_machine() -> None:
    document = examined(machine())
    assert document.primary == "healthy"
    assert {check.state for check in document.checks} == {"pass"}


CAUSES_TABLE: list[tuple[str, str, Facts, str]] = [
    ("driver.missing", "error", bare(), "GPU"),
    ("driver.missing", "error", bare(
        system=system(kernel_module=None, cards=(PciCard(bus_id="a", driver="nouveau"),))), "Blacklist nouveau"),
    ("driver.missing", "error", bare(
        system=system(kernel_module=None, container="docker", device_files=())), "--gpus all"),
    ("driver.missing", "error", machine(
        system=system(container="docker"), driver=driver(nvml=absent("libnvidia-ml.so.1")),
        snapshot=snapshot(driver=None), run=run(gpus=0)),
        "utility"),
    ("driver.missing", "error", machine(
        system=system(container="docker"), driver=driver(libcuda=absent("libcuda.so.1"), cuinit_code=None),
        run=None, installation=None),
        "compute"),
    ("driver.missing", "error", machine(
        driver=driver(libcuda=absent("libcuda.so.1"), cuinit_code=None), run=None, installation=None),
        "libcuda.so.1 of release 570.86.10: it is in a package of its own (Debian libcuda1"),
    ("driver.missing", "error", machine(
        driver=driver(nvml=absent("libnvidia-ml.so.1")), snapshot=snapshot(driver=None), run=run(gpus=0)),
        "Debian libnvidia-ml1"),
    ("driver.missing", "error", bare(system=system(
        jetson=True, cards=(), kernel_module=None, device_files=())), "JetPack"),
    ("driver.mismatch", "error", machine(driver=driver(cuinit_code=803), run=None, installation=None), "reboot"),
    ("driver.mismatch", "error", machine(driver=driver(cuinit_code=804), run=None, installation=None), "cuda-compat"),
    ("driver.mismatch", "error", machine(
        driver=driver(cuinit_code=None), system=system(kernel_module="560.1"), run=None, installation=None), "reboot"),
    ("driver.bad-state", "error", machine(driver=driver(cuinit_code=999), run=None, installation=None), "nvidia_uvm"),
    ("driver.bad-state", "error", machine(driver=driver(cuinit_code=802), run=None, installation=None),
     "fabricmanager"),
    ("driver.bad-state", "error", machine(driver=driver(cuinit_code=34), run=None, installation=None), "stub"),
    ("driver.bad-state", "error", bare(driver=driver(late="nvmlInit", nvml_code=None), snapshot=None), "dmesg"),
    ("driver.bad-state", "error", machine(driver=driver(late="nvmlInit", nvml_code=None), snapshot=None), "-smi -r"),
    ("driver.bad-state", "error", machine(snapshot=None), "nvidia-smi -r"),
    ("driver.bad-state", "error", machine(
        driver=driver(nvml=broken("libnvidia-ml.so.1")), snapshot=snapshot(driver=None), run=run(gpus=0)), "Reinstall"),
    ("driver.bad-state", "error", machine(
        driver=driver(libcuda=broken("libcuda.so.1"), cuinit_code=None), run=None, installation=None), "Reinstall"),
    ("driver.bad-state", "error", machine(
        driver=driver(nvml_code=None, ended_in="nvmlInit", problem="signal 6"), snapshot=None, run=None,
        installation=None), "reinstall"),
    ("driver.bad-state", "error", machine(
        system=system(device_files=files("/dev/nvidiactl")), run=None, installation=None), "group"),
    ("container.lost-devices", "error", machine(driver=driver(cuinit_code=100), run=None, installation=None),
     "recreate"),
    ("container.lost-devices", "error", machine(
        system=system(container="docker", device_files=()), run=None, installation=None), "--gpus all"),
    ("visibility.hidden", "error", machine(
        driver=driver(cuinit_code=100), environment={"CUDA_VISIBLE_DEVICES": "-1"}, run=None, installation=None),
     "Unset"),
    ("cuda.libraries-missing", "error", machine(
        run=run(gpus=0), installation=look(libraries=(Library(name="libcudnn.so.9", state="missing"),))), "and-cuda"),
    ("cuda.version-mismatch", "warning", machine(run=None, installation=look(
        libraries=(Library(name="libcudnn.so.9", state="loaded", path="/x/l", shadows="/w/l"),))), "unset"),
    ("hardware.fault", "error", machine(
        installation=look(tests=(DeviceTest(device="GPU:0", ran_on="GPU:0", correct=False),))), "card"),
    ("build.cpu-only", "error", machine(
        run=None, installation=FrameworkFacts(name="torch", interpreter="p", gpu_build=False)), "pytorch.org"),
    ("build.cpu-only", "warning", machine(installation=look(distributions=(
        Distribution(name="tensorflow", version="1"), Distribution(name="tensorflow-cpu", version="1")))), "uninstall"),
    ("memory.other-process", "warning", machine(
        snapshot=snapshot(gpu(0, memory__free_bytes=1 << 20), gpu(1), processes=(HELD,))), "Use GPU 1"),
    ("unknown", "error", machine(run=run(gpus=0)), "Send this report"),
    ("unknown", "error", machine(run=run(gpus=0, framework=None), installation=look(late="import tensorflow")),
     "dmesg"),
    ("unknown", "warning", machine(run=None, installation=FrameworkFacts(name="torch", missing="PyTorch is not there")),
     "--python"),
]  # fmt: skip


def test_a_gpu_that_others_use_is_a_note_while_another_one_has_room() -> None:
    """As on the dashboard, where it is none; an idle holder is more."""
    most = gpu(0, memory__free_bytes=9 * GIB)
    for shot, severity in (
        (snapshot(most, gpu(1), processes=(HELD,)), "info"),
        (snapshot(most, processes=(HELD,)), "warning"),
    ):
        (found,) = [one for one in examined(machine(snapshot=shot)).findings if one.id == "memory.other-process"]
        assert found.severity == severity, found.title
        assert "others hold the rest" in found.title


@every(CAUSES_TABLE)
def test_primary_cause_and_its_action(cause: str, severity: str, facts: Facts, action: str) -> None:
    document = examined(facts)
    assert document.primary == cause, [(found.id, found.severity, found.title) for found in document.findings]
    main = next(found for found in document.findings if found.id == cause)
    assert main.severity == severity
    assert action in main.action
    assert main.evidence or cause in ("unknown", "build.cpu-only")
    assert len({(found.id, found.device_uuid, found.title) for found in document.findings}) == len(document.findings)


def test_every_rule_of_the_doctor_yields_only_what_it_declares() -> None:
    for entry in RULES["machine"]:
        assert {found.id for row in CAUSES_TABLE for found in entry.find(row[2])} <= set(entry.causes), entry.name


def test_a_rule_of_the_doctor_that_breaks_is_said_and_the_others_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(facts: Facts) -> list[Finding]:
        raise ZeroDivisionError("oh")

    monkeypatch.setitem(RULES, "machine", [Rule("breaks", ("unknown",), breaks), *RULES["machine"]])
    ids = {found.id: found.title for found in examined(bare()).findings}
    assert ids.keys() == {"driver.missing", "unknown"}
    assert "breaks" in ids["unknown"]


def test_what_ended_the_work_wins_over_why_there_is_no_gpu() -> None:
    assert list(CAUSES).index("memory.context-failed") < list(CAUSES).index("driver.missing")
    facts = machine(
        driver=driver(cuinit_code=999),
        installation=look(tests=(DeviceTest(device="GPU:0", ran_on="GPU:0", correct=False),)),
        run=run(gpus=0),
    )
    assert examined(facts).primary == "hardware.fault"


def test_ids_are_dotted_unique_and_shown_by_topic() -> None:
    ids = [entry.id for entry in checks_in_order()]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+\.[a-z-]+", name) for name in ids)
    groups = [topic.__name__.rpartition(".")[2] for topic in CHECK_MODULES]
    assert list(dict.fromkeys(name.split(".")[0] for name in ids)) == groups
    with pytest.raises(ValueError, match=r"driver\.start"):
        check("driver.start", "again")


def test_a_check_that_breaks_is_said_and_the_others_speak() -> None:
    def broken(facts: Facts) -> Answer:
        raise ZeroDivisionError("oh")

    found = run_checks(
        machine(),
        [DeclaredCheck("a.b", "Broken", broken), DeclaredCheck("a.c", "Whole", lambda facts: Answer("pass", "x"))],
    )
    assert [(entry.state, "ZeroDivisionError: oh" in entry.detail) for entry in found] == [
        ("skip", True),
        ("pass", False),
    ]


def test_only_variables_that_bear_on_gpus_leave_the_machine() -> None:
    kept = gpu_variables(
        {
            "CUDA_VISIBLE_DEVICES": "0",
            "CUDE_VISIBLE_DEVICES": "0",
            "TF_GPU_ALLOCATOR": "x",
            "LD_LIBRARY_PATH": "/x",
            "TF_VAR_password": "secret",
            "TF_TOKEN_app": "secret",
            "HOME": "/home/ann",
            "GITHUB_TOKEN": "secret",
        }
    )
    assert set(kept) == {"CUDA_VISIBLE_DEVICES", "CUDE_VISIBLE_DEVICES", "TF_GPU_ALLOCATOR", "LD_LIBRARY_PATH"}


def test_the_map_names_every_gpu_as_far_as_it_is_known() -> None:
    document = examined(machine(run=run(gpus=1), environment={"CUDA_VISIBLE_DEVICES": "0"}))
    rows = [(entry.framework_device, entry.cuda_ordinal, entry.uuid) for entry in document.device_map]
    assert rows == [("/device:GPU:0", 0, "GPU-000"), ("", None, "GPU-111")]


def test_it_is_a_document() -> None:
    document = examined(machine())
    assert from_json(to_json(document).encode()) == document


def test_device_file_has_its_owner() -> None:
    closed = DeviceFile(path="/dev/nvidia0", usable=False, mode="crw-rw---- root video")
    answer = checks(machine(system=system(device_files=(closed,))))["devices.permissions"]
    assert "crw-rw---- root video" in answer.detail


def test_without_a_card_one_advice_is_enough() -> None:
    failed = {entry.id: entry for entry in examined(bare()).checks if entry.state == "fail"}
    assert "a machine with an NVIDIA GPU" in failed["driver.cards"].action
    for name in ("driver.kernel-module", "driver.libcuda", "driver.nvml", "devices.files"):
        assert failed[name].action.startswith("First see the check ")


def test_a_framework_that_was_asked_for_and_is_not_there_is_an_error() -> None:
    """Without being asked for it is a warning: gpuwatch's own interpreter need not have one."""
    absent = machine(
        run=None, installation=FrameworkFacts(name="torch", missing="PyTorch is not installed in /x/python")
    )
    for asked, severity in ((False, "warning"), (True, "error")):
        found = examined(dataclasses.replace(absent, named_by_user=asked)).findings
        assert [entry.severity for entry in found if entry.id == "unknown"] == [severity]


def test_pytorch_is_not_told_of_tensorflows_variables() -> None:
    looked = machine(run=None, installation=FrameworkFacts(name="torch", interpreter="p", gpu_build=True))
    environment = {**looked.environment, "TF_GPU_ALLOCATOR": "cuda_malloc_async", "TF_CPP_MIN_LOG_LEVEL": "3"}
    asked = {entry.id for entry in examined(dataclasses.replace(looked, environment=environment)).checks}
    own = {"environment.growth", "environment.allocator", "environment.log-level"}
    assert not own & asked
    assert own - {"environment.allocator"} <= {entry.id for entry in examined(machine()).checks}
