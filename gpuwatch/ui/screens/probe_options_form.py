"""The form with parameters of the next probe runs; input is checked before it is applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from gpuwatch.core.formatting.safe_text import printable, whole_number
from gpuwatch.core.model.snapshot import Device
from gpuwatch.experiment.probing.probe_scripts import MEASURED_SECONDS
from gpuwatch.session.probe_batch import WORKLOADS
from gpuwatch.session.probe_runs import Parameters
from gpuwatch.ui.screens.sheet import Modal
from gpuwatch.ui.settings.preferences import InvalidValue
from gpuwatch.ui.widgets.painted_pane import Line, Painted

_FIELDS = (
    ("workload", "Workload", "the configuration's own; " + " ".join(WORKLOADS)),
    ("seconds", "Seconds", f"{MEASURED_SECONDS:g}"),
    ("memory_limit", "Memory limit", "MB, for configurations with a limit; 1024"),
    ("fraction", "Fraction", "0 to 1, for configurations with a fraction; 0.4"),
    ("visible", "Visible list", "CUDA_VISIBLE_DEVICES, where a configuration sets it"),
    ("virtual", "Virtual GPUs", "1 to 16, for the configuration that has them; 2"),
    ("gpu", "GPU", "index or UUID; all"),
    ("python", "Interpreter", "a Python with TensorFlow; detected by default"),
)


def parsed(typed: dict[str, str], devices: Sequence[Device]) -> Parameters:
    """The parameters typed; raises :class:`InvalidValue` for the first invalid one."""
    text = {name: value.strip() for name, value in typed.items()}
    if text["workload"] not in ("", *WORKLOADS):
        raise InvalidValue(f"workload must be one of {', '.join(WORKLOADS)}")
    seconds = _number(text["seconds"] or str(MEASURED_SECONDS), "seconds", 0.01, 3600)
    limit, fraction, virtual = text["memory_limit"], text["fraction"], text["virtual"]
    if virtual and whole_number(virtual) is None:
        raise InvalidValue(f"virtual GPUs: {printable(virtual)!r} is not a whole number")
    return Parameters(
        workload=text["workload"],
        seconds=seconds,
        memory_limit=int(_number(limit, "memory limit", 1, 10**7)) if limit else None,
        fraction=_number(fraction, "fraction", 0.001, 1) if fraction else None,
        visible=printable(text["visible"]),
        virtual=int(_number(virtual, "number of virtual GPUs", 1, 16)) if virtual else None,
        gpu=_device(text["gpu"], devices),
        python=text["python"],
    )


def _number(text: str, name: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InvalidValue(f"{name}: {printable(text)!r} is not a number") from None
    if not low <= value <= high:
        raise InvalidValue(f"{name} must be between {low:g} and {high:g}")
    return value


def _device(text: str, devices: Sequence[Device]) -> str:
    if text in ("", "all"):
        return ""
    found = [d for d in devices if (str(d.index) == text if text.isdigit() else d.uuid.startswith(text))]
    if len(found) != 1:
        known = ", ".join(str(device.index) for device in devices) or "none"
        raise InvalidValue(f"there is no GPU {printable(text)}; here: {known}")
    return found[0].uuid


class ParametersModal(Modal[Parameters]):
    """Enter applies the parameters, Esc cancels."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "close", show=False),
        Binding("up", "app.focus_previous", "up", show=False),
        Binding("down", "app.focus_next", "down", show=False),
    ]

    def __init__(self, parameters: Parameters, devices: Sequence[Device]) -> None:
        super().__init__()
        self._devices = devices
        self._before = parameters
        self._problem = Painted(id="problem")
        self._inputs = {
            name: Input(self._shown(name), placeholder=hint, compact=True, id=name) for name, _, hint in _FIELDS
        }

    def compose(self) -> ComposeResult:
        with Vertical(id="parameters") as box:
            box.border_title = "Parameters of the next runs"
            box.border_subtitle = "Enter Apply  Esc Cancel"
            for name, title, _ in _FIELDS:
                with Horizontal(classes="field"):
                    label = Painted()
                    label.add_class("label")
                    label.paint((Line(((f"{title:<13}", "dim"),)),))
                    yield label
                    yield self._inputs[name]
            yield self._problem

    def _shown(self, name: str) -> str:
        value = getattr(self._before, name)
        if name == "gpu":
            return next((str(device.index) for device in self._devices if device.uuid == value), value)
        return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    @on(Input.Submitted)
    def _taken(self) -> None:
        typed = {name: field.value for name, field in self._inputs.items()}
        try:
            self.dismiss(parsed(typed, self._devices))
        except InvalidValue as wrong:
            self._problem.paint((Line(((f"✖ {wrong}", "error"),)),))
