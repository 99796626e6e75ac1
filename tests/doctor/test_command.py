"""The command line of the doctor: one document, one line for an error, secrets masked."""

from __future__ import annotations

import html
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.json_codec import from_json
from gpuwatch.machine.sources import system_and_driver_facts
from gpuwatch.share.reports.report_formats import FORMATS, render
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch
from tests.doctor.machines import bare, examined, machine

SECRET = "hunter2-x9"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--python", "/nonexistent/python"], "no such program"),
        (["--framework", "jax"], "jax"),
        (["-o", "doctor.pdf"], ".html"),
        (["-o", "/nonexistent/doctor.md"], "its folder does not exist"),
        (["--sim", "0x1"], "0x1"),
        (["--jsno"], "--jsno"),
        (["extra"], "extra"),
    ],
)
def test_one_line_and_the_exit_code(arguments: list[str], says: str) -> None:
    result = gpuwatch("doctor", *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1, result.err
    assert says in result.err


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """An interpreter without any framework."""
    script = tmp_path / "bare-python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_without_a_framework_the_machine_is_looked_at_all_the_same(bare_python: str) -> None:
    result = gpuwatch("doctor", "--python", bare_python, "--sim", "2x9GiB", "--json")
    assert (result.code, result.err) == (3, ""), "a framework that is not installed finds no GPU"
    document = from_json(result.out.encode())
    assert isinstance(document, Doctor)
    assert document.simulated
    assert document.primary == "unknown"
    assert document.findings[0].title.startswith("TensorFlow is not installed")
    assert len(document.device_map) == 2
    assert {check.id: check.state for check in document.checks}["driver.start"] == "pass"


def test_a_driver_that_hangs_is_given_up(bare_python: str, sim_machine: Callable[[str], SimMachine]) -> None:
    machine = sim_machine("1x24GiB")
    machine.inject("nvmlInit", delay_ms=30_000)
    began = time.monotonic()
    environment = {**machine.environment(os.environ), "GPUWATCH_PROGRESS": ""}
    result = gpuwatch("doctor", "--python", bare_python, "--json", environment=environment)
    assert time.monotonic() - began < 25
    assert result.err == "gpuwatch: reading GPUs and driver …\n", "a second is over, and nobody is at a terminal"
    document = from_json(result.out.encode())
    assert isinstance(document, Doctor)
    assert (result.code, document.primary) == (3, "driver.bad-state")
    checks = {check.id: check for check in document.checks}
    assert checks["driver.nvml"].detail.endswith("within 3 s")
    assert checks["devices.present"].detail == "no answer within 3 s"
    assert checks["driver.start"].state == "skip", "not looked at is not a failure"


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia/version"), reason="there is a driver here")
def test_without_a_driver(bare_python: str, tmp_path: Path) -> None:
    path = tmp_path / "doctor.md"
    result = gpuwatch("doctor", "--python", bare_python, "-o", str(path))
    assert (result.code, result.out) == (3, "")
    written, *offered = result.err.splitlines()
    assert written == f"written: {path}"
    bare = system_and_driver_facts.read_system_facts(os.environ).cards == ()
    assert [line.partition("--sim ")[2].split()[0] for line in offered] == ["2x24GiB"] * bare
    text = path.read_text()
    assert "driver.missing" in text
    assert text.index("Do:") < text.index("libcuda.so.1")


def test_secrets_and_unrelated_variables_stay_here(bare_python: str) -> None:
    environment = {
        **os.environ,
        "NCCL_API_TOKEN": SECRET,
        "XLA_FLAGS": f"--x=https://ann:{SECRET}@host/",
        "MY_PASSWORD": SECRET,
    }
    for arguments in ((), ("--json",)):
        result = gpuwatch("doctor", "--python", bare_python, *arguments, environment=environment)
        assert "XLA_FLAGS" in result.out
        assert SECRET not in result.out
        assert "MY_PASSWORD" not in result.out


def test_text_has_the_verdict_first_and_hides_nothing() -> None:
    document = examined(bare(environment={"CUDA_VISIBLE_DIVICES": "1"}))
    text = render(document, "text", width=100)
    lines = text.splitlines()
    assert lines[1].startswith("✖ driver.missing")
    assert lines[3].strip().startswith("do")
    flat = " ".join(text.split())
    for check in document.checks:
        assert check.title in flat
    assert {line.split()[0] for line in lines if line.strip()[1:6] in (" pass", " FAIL", " skip", " warn")} >= {
        "✖",
        "○",
    }
    assert max(len(line) for line in lines if ", likely  " not in line) <= 100  # headings of findings are one line


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: entry.name)
def test_every_format_has_every_check(entry: object) -> None:
    document = examined(machine())
    name = getattr(entry, "name", "")
    rendered = html.unescape(render(document, name)).replace("<wbr>", "").replace("\\", "")
    for check in document.checks:
        assert check.title in rendered or check.id in rendered
    if name == "json":
        assert json.loads(rendered)["schema"] == "gpuwatch.doctor/1"


def test_a_saved_document_can_be_reported_and_has_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "doctor.json"
    path.write_text(render(examined(machine()), "json"))
    result = gpuwatch("report", str(path))
    assert result.code == 0
    assert "healthy" in result.out
    assert "checks" in gpuwatch("schema", "doctor").out
