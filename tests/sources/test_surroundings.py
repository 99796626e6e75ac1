"""What helpers ask for next: nvidia-smi, the kernel's lines, and what the machine runs in."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.core import input_size_limits
from gpuwatch.machine.sources import nvidia_smi_and_kernel_log
from gpuwatch.machine.sources.system_and_driver_facts import job_and_platform_facts

KERNEL = """\
2026-11-22T04:00:00,000000+0000 usb 1-1: new device
2026-11-22T04:00:01,000000+0000 NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.
2026-11-22T04:00:02,000000+0000 nvidia 0000:01:00.0: enabling device \x1b[31m
2026-11-22T04:00:03,000000+0000 Command line: nvidia-drm.modeset=1
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name in ("nvidia-smi", "dmesg", "journalctl"):
        program(folder, name, "echo 'not here' >&2; exit 1")
    return folder


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_the_kernels_lines_about_gpus(path: Path) -> None:
    (path / "text").write_text(KERNEL)
    program(path, "dmesg", f"cat {path}/text")
    lines, why = nvidia_smi_and_kernel_log.kernel_log()
    assert [line.partition(" ")[2][:6] for line in lines] == ["NVRM: ", "nvidia"]
    assert all(line.isprintable() for line in lines)
    assert why == ""


def test_why_the_kernels_log_cannot_be_read(path: Path) -> None:
    program(path, "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    program(path, "journalctl", "exit 0")
    lines, why = nvidia_smi_and_kernel_log.kernel_log()
    assert lines == ()
    assert "failed: Operation not permitted" in why
    assert "journalctl: it printed" in why


def test_a_kernel_without_a_line_about_gpus_says_so(path: Path) -> None:
    program(path, "dmesg", "echo 'usb 1-1: new device'")
    assert nvidia_smi_and_kernel_log.kernel_log() == ((nvidia_smi_and_kernel_log.NO_LINES,), "")


def test_nvidia_smi_says_its_table_or_what_is_wrong(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(path, "nvidia-smi", "echo '+-----+'; echo '| GPU |'")
    assert nvidia_smi_and_kernel_log.nvidia_smi() == (("+-----+", "| GPU |"), "")
    program(path, "nvidia-smi", 'echo "NVIDIA-SMI has failed because it couldn\'t communicate"; exit 9')
    lines, why = nvidia_smi_and_kernel_log.nvidia_smi()
    assert lines
    assert why.startswith("it failed with exit code 9: ")
    monkeypatch.setattr(input_size_limits, "TOOL_OUTPUT", input_size_limits.TOOL_OUTPUT._replace(bytes=1000))
    monkeypatch.setattr(nvidia_smi_and_kernel_log, "_ANSWER_SECONDS", 0.2)
    program(path, "nvidia-smi", "exec yes")
    assert nvidia_smi_and_kernel_log.nvidia_smi() == ((), "it did not answer within 0.2 s")
    program(path, "nvidia-smi", "exec sleep 20")
    assert nvidia_smi_and_kernel_log.nvidia_smi() == ((), "it did not answer within 0.2 s")
    monkeypatch.setattr(nvidia_smi_and_kernel_log, "_ANSWER_SECONDS", 30.0)
    program(path, "nvidia-smi", "seq 1 9999")
    lines, why = nvidia_smi_and_kernel_log.nvidia_smi()
    assert (lines[-1], len(lines), why) == ("9949", 150, ""), "the last 1000 bytes, of which the first lines are shown"
    (path / "nvidia-smi").unlink()
    assert nvidia_smi_and_kernel_log.nvidia_smi() == ((), "it is not installed")


def test_slurm_colab_wsl_and_secure_boot_where_they_are(tmp_path: Path) -> None:
    assert job_and_platform_facts({}, tmp_path) == {}
    variables = tmp_path / "sys/firmware/efi/efivars"
    variables.mkdir(parents=True)
    secure = variables / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    secure.write_bytes(b"\6\0\0\0\1")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("5.15.167.4-microsoft-standard-WSL2\n")
    environment = {"SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "2,3", "COLAB_RELEASE_TAG": "release-colab_2026"}
    found = job_and_platform_facts(environment, tmp_path)
    assert found["Slurm"] == "job 42, GPUs of the node 2,3"
    assert found["Google Colab"] == "release release-colab_2026"
    assert found["WSL"] == "kernel 5.15.167.4-microsoft-standard-WSL2"
    assert found["Secure Boot"].startswith("on: ")
    secure.write_bytes(b"\6\0\0\0\0")
    assert job_and_platform_facts({}, tmp_path)["Secure Boot"] == "off"
