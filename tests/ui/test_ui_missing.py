"""Why a cell is empty: in the words of the screen, with what was asked, how often, and how old it is."""

from __future__ import annotations

from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Ancestor, Snapshot
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.history.metric_history import History
from gpuwatch.session.process_history import ancestor_row
from gpuwatch.session.view import View
from gpuwatch.ui.details.missing_readings import missing_of_device, missing_of_row
from tests.ui import machines


def seen(*shots: Snapshot, later: float = 2.0) -> View:
    history = History()
    for shot in shots:
        history.add(shot)
    return View(shots[-1], history, FeedStatus("ok", 0.0), shots[-1].taken_at.timestamp() + later, 1.0)


def text(shown: tuple[str, list[list[tuple[str, str]]]]) -> str:
    return "\n".join("".join(words for words, _ in line) for line in shown[1])


def test_cells_have_the_names_of_their_columns_and_their_age() -> None:
    row = machines.process(0, missing={"sm_percent": machines.DENIED, "memory_percent": machines.DENIED})
    shown = text(missing_of_row(row, seen(machines.snapshot((machines.device(0),), (row,)))))
    assert "SM%  share of time one of its kernels was running" in shown
    assert "MBW%" in shown
    assert "sm percent" not in shown
    assert "permission denied, NVML code 4\n    nvmlDeviceGetProcessUtilization: Insufficient Permissions" in shown
    assert ", 2 s ago" in shown


def test_what_only_started_others_is_not_blamed_on_the_driver() -> None:
    child = machines.process(0, pid=20)
    parent = ancestor_row(Ancestor(pid=10, create_time=0.0, user="alice", command="bash", name="bash"))
    shown = text(missing_of_row(parent, seen(machines.snapshot((machines.device(0),), (child,)))))
    assert "GPU-MEM  GPU memory it holds\n    the process uses no GPU" in shown
    assert "not supported by" not in shown


def test_the_last_known_value_is_shown_with_its_time() -> None:
    lost = Missing("device_lost", code=15, detail="nvmlDeviceGetTemperature: GPU is lost")
    never = Missing("not_supported", code=3, detail="nvmlDeviceGetFanSpeed: Not Supported")
    before = machines.device(0, busy=50)
    gone = machines.device(0, missing={"temperature.gpu_celsius": lost, "fan.speed_percent": never})
    shots = [machines.snapshot((before if tick < 3 else gone,), tick=tick) for tick in range(13)]
    shown = text(missing_of_device(gone, seen(*shots)))
    assert ", 12 s ago: 48 °C" in shown, "ten samples back, and two seconds more"
    assert "Not Supported\n    retried once a minute" in shown
    assert "queried with every sample" in shown
