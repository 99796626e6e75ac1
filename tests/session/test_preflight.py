"""Which GPUs probes are shown: those on which nobody computes, where there are enough of them and nobody chose."""

from __future__ import annotations

import msgspec
import pytest

from gpuwatch.cli.probe import _idle_gpus
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.experiment.probing.probe_scripts import find_probe
from tests.ui import machines


def machine(*held: int, busy: int | None = None) -> Snapshot:
    """Two GPUs; processes on those that are ``held``, work on the ``busy`` one by nobody that is listed."""
    devices = tuple(machines.device(index, busy=80 if index == busy else 0) for index in range(2))
    return machines.snapshot(devices, tuple(machines.process(index, gpu=index) for index in held))


@pytest.mark.parametrize(
    ("config", "snapshot", "shown"),
    [
        ("default", machine(), ()),
        ("default", machine(0), (1,)),
        ("default", machine(1), (0,)),
        ("default", machine(busy=0), (1,)),
        ("default", machine(0, 1), ()),
        ("mirrored", machine(0), ()),
        ("visible-env", machine(0), ()),
        ("default", None, ()),
    ],
)
def test_the_command_line_leaves_gpus_in_use_alone(
    config: str,
    snapshot: Snapshot | None,
    shown: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert _idle_gpus([find_probe(config)], snapshot) == tuple(machines.uuid(index) for index in shown)
    note = capsys.readouterr().err
    if shown:
        assert note == f"gpuwatch: GPU {1 - shown[0]} skipped: in use (--gpu 0,1 uses all)\n"
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
        assert _idle_gpus([find_probe(config)], snapshot) == (), "who sets it has chosen"
    else:
        assert note == ""


def test_a_display_is_no_work() -> None:
    shown = machine(0)
    windows = tuple(msgspec.structs.replace(process, type="G") for process in shown.processes)
    assert _idle_gpus([find_probe("default")], msgspec.structs.replace(shown, processes=windows)) == ()
