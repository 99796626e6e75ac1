"""What the files of the system tell, on machines made of folders."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gpuwatch.machine.sources import system_and_driver_facts
from gpuwatch.session import doctor_input

VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Wed Jan  8 2025\nGCC version: gcc 12\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (user@host)\n"


def put(root: Path, path: str, text: str = "") -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


def card(root: Path, slot: str, driver: str | None, vendor: str = "0x10de", kind: str = "0x030000") -> None:
    put(root, f"sys/bus/pci/devices/{slot}/vendor", vendor + "\n")
    put(root, f"sys/bus/pci/devices/{slot}/class", kind + "\n")
    if driver is not None:
        (root / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        (root / f"sys/bus/pci/devices/{slot}/driver").symlink_to(root / f"sys/bus/pci/drivers/{driver}")


def test_an_empty_root_is_unknown_and_not_nothing(tmp_path: Path) -> None:
    seen = system_and_driver_facts.read_system_facts({}, tmp_path)
    assert seen.kernel is None
    assert seen.modules is None
    assert seen.cards is None
    assert seen.kernel_module is None
    assert seen.device_files == ()
    assert seen.container is None
    assert not seen.wsl


@pytest.mark.parametrize(
    ("text", "version"), [(VERSION, "570.86.10"), (OPEN, "580.65.06"), ("odd\n", "odd"), ("", None)]
)
def test_kernel_module(tmp_path: Path, text: str, version: str | None) -> None:
    put(tmp_path, "proc/driver/nvidia/version", text)
    assert system_and_driver_facts.read_system_facts({}, tmp_path).kernel_module == version


def test_modules_of_the_drivers_only(tmp_path: Path) -> None:
    put(
        tmp_path,
        "proc/modules",
        "nvidia_uvm 1 0 - Live 0\nnvidia 2 1 nvidia_uvm, Live 0\nnouveaux 1\next4 3 1 - Live 0\n",
    )
    assert system_and_driver_facts.read_system_facts({}, tmp_path).modules == {"nvidia", "nvidia_uvm"}


def test_cards_of_nvidia_with_their_drivers(tmp_path: Path) -> None:
    card(tmp_path, "0000:01:00.0", "nouveau")
    card(tmp_path, "0000:02:00.0", None, kind="0x030200")
    card(tmp_path, "0000:01:00.1", "snd_hda_intel", kind="0x040300")
    card(tmp_path, "0000:00:02.0", "i915", vendor="0x8086")
    cards = system_and_driver_facts.read_system_facts({}, tmp_path).cards
    assert cards is not None
    assert [(entry.bus_id, entry.driver) for entry in cards] == [("0000:01:00.0", "nouveau"), ("0000:02:00.0", None)]


def test_device_files_and_whether_this_user_may_use_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidiactl", "nvidia0", "nvidia12", "nvidia-uvm", "nvidia-modeset", "null"):
        put(tmp_path, f"dev/{name}")
    closed = tmp_path / "dev/nvidia0"
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed)
    files = {entry.path: entry for entry in system_and_driver_facts.read_system_facts({}, tmp_path).device_files}
    assert sorted(files) == ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia12", "/dev/nvidiactl"]
    assert [path for path, entry in files.items() if not entry.usable] == ["/dev/nvidia0"]
    assert files["/dev/nvidia0"].mode.startswith("-rw")


@pytest.mark.parametrize(
    ("path", "text", "environment", "kind"),
    [
        (".dockerenv", "", {}, "docker"),
        ("run/.containerenv", "", {}, "podman"),
        ("proc/self/cgroup", "0::/kubepods/burstable/pod1/abc\n", {}, "kubernetes"),
        ("proc/1/cgroup", "12:devices:/docker/0123\n", {}, "docker"),
        ("proc/1/cgroup", "0::/init.scope\n", {}, None),
        ("proc/1/cgroup", "", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ("proc/1/cgroup", "", {"APPTAINER_CONTAINER": "x.sif"}, "apptainer"),
    ],
)
def test_container(tmp_path: Path, path: str, text: str, environment: dict[str, str], kind: str | None) -> None:
    put(tmp_path, path, text)
    assert system_and_driver_facts.read_system_facts(environment, tmp_path).container == kind


@pytest.mark.parametrize(("namespace", "kind"), [("4026531841", None), ("4026532459", "docker")])
def test_a_machine_made_from_a_container_image_is_no_container(
    tmp_path: Path, namespace: str, kind: str | None
) -> None:
    put(tmp_path, ".dockerenv")
    put(tmp_path, "proc/self/ns/pid").with_name("mnt").symlink_to(f"mnt:[{namespace}]")
    assert system_and_driver_facts.read_system_facts({}, tmp_path).container == kind


def test_wsl(tmp_path: Path) -> None:
    put(tmp_path, "proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n")
    seen = system_and_driver_facts.read_system_facts({}, tmp_path)
    assert (seen.wsl, seen.wsl_libraries) == (True, False)
    put(tmp_path, "usr/lib/wsl/lib/libcuda.so.1")
    assert system_and_driver_facts.read_system_facts({}, tmp_path).wsl_libraries


def test_folders_of_the_library_path(tmp_path: Path) -> None:
    for name in ("libcuda.so.1", "libcudnn.so.9", "libcudnnx.so", "libc.so.6"):
        put(tmp_path, f"lib/{name}")
    entries = system_and_driver_facts.read_system_facts(
        {"LD_LIBRARY_PATH": f"{tmp_path}/lib::{tmp_path}/gone"}, tmp_path
    ).library_path
    assert [(entry.exists, entry.libraries) for entry in entries] == [
        (True, ("libcuda.so.1", "libcudnn.so.9")),
        (False, ()),
    ]


def test_what_hangs_is_given_up_and_what_fails_is_raised() -> None:
    began = time.monotonic()
    assert doctor_input.result_within(0.1, lambda: time.sleep(2)) is None  # it hangs
    assert time.monotonic() - began < 1
    assert doctor_input.result_within(1.0, lambda: 7) == 7

    def broken() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        doctor_input.result_within(1.0, broken)


def test_jetson(tmp_path: Path) -> None:
    put(tmp_path, "proc/device-tree/compatible", "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0")
    assert system_and_driver_facts.read_system_facts({}, tmp_path).jetson
    put(tmp_path, "proc/device-tree/compatible", "raspberrypi,5-model-b\0brcm,bcm2712\0")
    assert not system_and_driver_facts.read_system_facts({}, tmp_path).jetson
