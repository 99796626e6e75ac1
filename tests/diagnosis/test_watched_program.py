"""A user's program under ``gpuwatch run``: what it did itself, and what that means."""

from __future__ import annotations

import pytest

from gpuwatch.diagnosis.complete import complete
from gpuwatch.logs.tensorflow import parse
from gpuwatch.model.run import Devices, Framework, Outcome, Run
from tests.diagnosis.cases import ON_CPU, draft, machine

TENSORFLOW = Framework(name="tensorflow", version="2.21.0", gpu_build=True)
CPU, GPU = "/physical_device:CPU:0", "/physical_device:GPU:0"


def program(log: str = "", **fields: object) -> Run:
    values: dict[str, object] = {"group": "run", "framework": TENSORFLOW, "placements": (), **fields}
    return complete(draft("run", **values), parse(log), machine())


def test_a_program_that_hides_its_gpus_itself() -> None:
    devices = Devices(physical=(CPU, GPU), visible=(CPU,), logical=("/device:CPU:0",))
    for placements in ((), (ON_CPU,)):
        run = program(devices=devices, placements=placements)
        assert (run.verdict, run.primary) == ("fallback", "visibility.hidden")
        assert run.findings[0].severity == "warning"
        assert "own set_visible_devices leaves no GPU" in run.findings[0].title
        assert all(fallback.reason == "visibility.hidden" for fallback in run.fallbacks)


def test_a_program_that_takes_one_of_two_gpus_hides_none() -> None:
    devices = Devices(physical=(CPU, GPU), visible=(CPU, GPU), logical=("/device:CPU:0", "/device:GPU:0"))
    assert program(devices=devices).primary == "healthy"


def test_a_program_that_the_kernel_killed_for_want_of_the_hosts_memory() -> None:
    run = program(verdict="error", outcome=Outcome(signal=9, ended=True), host_memory_out=True)
    assert (run.verdict, run.primary) == ("error", "unknown")
    assert "host's memory" in run.findings[0].title
    assert "killed by signal 9" in " ".join(run.findings[0].evidence)
    killed = program(verdict="error", outcome=Outcome(signal=9, ended=True))
    assert (killed.primary, killed.findings) == (None, ())


def test_a_flag_that_xla_does_not_know_is_named() -> None:
    said = "F0000 00:00:1795181982.271454   19936 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --foo"
    run = program(said, verdict="error", outcome=Outcome(exit_code=1, ended=True))
    assert run.primary == "unknown"
    assert "XLA_FLAGS" in run.findings[0].title
    assert said in run.findings[0].evidence


@pytest.mark.parametrize(("gpus", "severity"), [(("/device:GPU:0", "/device:GPU:1"), "error"), ((), "warning")])
def test_replicas_on_gpus_that_are_not_there(gpus: tuple[str, ...], severity: str) -> None:
    asked = [f"/device:GPU:{number}" for number in range(3)]
    results = {"replicas": {"devices": asked, "missing": [name for name in asked if name not in gpus]}}
    run = program(devices=Devices(logical=("/device:CPU:0", *gpus)), results=results)
    found = next(entry for entry in run.findings if entry.id == "distribution.devices-missing")
    assert found.severity == severity
    assert "GPU:2, which the program does not have" in found.title
    assert not gpus or (run.verdict, run.primary) == ("fallback", "distribution.devices-missing")
    assert not gpus or run.verdict_reason == f"{found.title}."
