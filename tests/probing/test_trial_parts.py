"""The part of ``gpuwatch try`` inside the program, on versions of the frameworks that lack what it needs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpuwatch.experiment.probing.received_events import ReceivedEvents
from tests.probing.test_watcher import load

_SESSIONS = "tensorflow.python.client.pywrap_tf_session"
_CONTEXT = "tensorflow.python.eager.context"


class _Trial:
    """A Trial with a watcher that sends nowhere."""

    def __init__(self, **asked: Any) -> None:
        watcher = load("_gpuwatch_watcher").Watcher("nowhere", load, None)
        watcher.settings = load("_gpuwatch_tensorflow_settings").Settings(watcher.descriptors)
        self.module = load("_gpuwatch_trial_setting")
        self.of = watcher.trial = self.module.Trial(asked, watcher)
        self.watcher = watcher
        self.emitted: list[tuple[str, dict[str, Any]]] = []
        watcher.emit = lambda kind, **data: self.emitted.append((kind, data))

    def tell(self, *, last: bool = False) -> list[tuple[str, dict[str, Any]]]:
        self.emitted.clear()
        self.of.tell(self.watcher.emit, last)
        self.watcher.step_reports.tell(with_speed=False)
        return self.emitted

    def act(self, name: str, module: object) -> None:
        """As sitecustomize.py does it."""
        observer = self.of if name in self.of.actions else self.watcher.counters
        try:
            observer.actions[name](module)
        except (AttributeError, TypeError) as error:
            observer.failed(name, error)


def _step_times(data: dict[str, Any]) -> list[float]:
    """The times that count, of an event of steps."""
    state = ReceivedEvents()
    state.take_line(msgspec.json.encode({"t": 1.0, "kind": "steps", "data": data}))
    return state.steps.times


def _class(name: str, function: Callable[..., object]) -> SimpleNamespace:
    return SimpleNamespace(**{name: type(name, (), {function.__name__: function})})


def ensure_initialized(self: object) -> None:
    """Another version's, without the lock."""


def test_a_version_that_starts_its_devices_otherwise_is_not_tried() -> None:
    made = _Trial(probe="limit", options={"memory_limit": 700})
    made.act(_CONTEXT, _class("Context", ensure_initialized))
    ((kind, data),) = made.tell()
    assert kind == "applied"
    assert (data["name"], data["applied"]) == ("limit", False)
    assert "eager.context (AttributeError" in data["reason"]
    assert made.tell() == [], "once"


@pytest.mark.parametrize("name", [_SESSIONS, _CONTEXT])
def test_a_missing_private_name_is_told(name: str) -> None:
    made = _Trial(probe="limit", options={"memory_limit": 700}, no_retry=True)
    made.act(name, SimpleNamespace())
    ((_, data),) = made.tell()
    assert data["reason"].startswith("not possible in this version")


@pytest.mark.parametrize("name", ["tensorflow.python.client.session", "tensorflow.python.pywrap_tfe"])
def test_what_only_counts_or_saves_time_may_be_missing(name: str) -> None:
    made = _Trial(probe="limit", options={"memory_limit": 700}, no_retry=True)
    made.act(name, SimpleNamespace())
    assert made.tell() == []
    assert made.of.answer is None, "the setting is tried"


def test_a_session_of_a_server_is_left_alone() -> None:
    made = _Trial(probe="limit", options={"memory_limit": 700})
    module = SimpleNamespace(TF_NewSessionOptions=lambda target, config: (target, config))
    made.act(_SESSIONS, module)
    assert module.TF_NewSessionOptions(target=b"grpc://localhost:2222", config="own") == (
        b"grpc://localhost:2222",
        "own",
    )
    assert made.tell()[0][1]["reason"] == "a server starts the devices, not the session"


class Torch(ModuleType):
    """The parts of a CUDA build of torch that the hook uses."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.version = SimpleNamespace(cuda="12.8")
        self.set: list[tuple[float, int]] = []
        self.queued: list[Callable[[], None]] = []
        self._C = SimpleNamespace(_cuda_setMemoryFraction=lambda fraction, number: self.set.append((fraction, number)))
        self.cuda = SimpleNamespace(
            device_count=lambda: 2,
            _lazy_call=self.queued.append,
            set_per_process_memory_fraction=lambda fraction, number: self._C._cuda_setMemoryFraction(fraction, number),
        )

    def start(self) -> None:
        for call in self.queued:
            call()


def test_the_fraction_of_pytorch_is_set_at_its_first_use_of_cuda() -> None:
    made, torch = _Trial(probe="fraction", options={"fraction": 0.5}), Torch()
    made.act("torch", torch)
    assert (torch.set, made.tell()) == ([], [])
    torch.start()
    assert torch.set == [(0.5, 0), (0.5, 1)]
    assert made.tell()[0][1]["effective"] == {"per_process_memory_fraction": 0.5}
    torch.cuda.set_per_process_memory_fraction(0.9, 0)
    assert torch.set[-1] == (0.9, 0)
    ((_, data),) = made.tell()
    assert (data["applied"], data["overridden"].rpartition(":")[0]) == (False, "test_trial_parts.py")


def test_a_pytorch_without_cuda_is_not_tried() -> None:
    made, torch = _Trial(probe="fraction", options={"fraction": 0.5}), Torch()
    torch.version.cuda = None
    made.act("torch", torch)
    assert made.tell()[0][1]["reason"] == "this PyTorch is a CPU build"
    made, torch = _Trial(probe="fraction", options={"fraction": 0.5}), Torch()
    del torch.cuda._lazy_call
    made.act("torch", torch)
    assert "_lazy_call" in made.tell()[0][1]["reason"]


def test_steps_of_an_optimizer_and_better_ones() -> None:
    made = _Trial()
    assert made.tell(last=True) == []
    for _ in range(8):
        made.watcher.counters.optimizer.step()
    ((_, data),) = made.tell(last=True)
    assert (data["counted"], data["count"], len(_step_times(data))) == ("steps of the optimizer", 8, 3)
    assert made.tell(last=True) == [], "nothing new"
    made.watcher.counters.batches.step()
    assert [(kind, data["counted"], data["count"], data["times"]) for kind, data in made.tell(last=True)] == [
        ("steps", "batches of Keras", 1, [])
    ]


class _Gpu:
    """PyTorch's CUDA events on a GPU that does one step after another, each in the same time."""

    def __init__(self, step_seconds: float) -> None:
        self.step_seconds, self.free_at = step_seconds, 0.0
        self.capturing = self.broken = False
        self.cuda = SimpleNamespace(
            is_initialized=lambda: True,
            is_current_stream_capturing=lambda: self.capturing,
            current_stream=lambda device: f"a stream of {device.name}",
            Event=self.event,
        )

    def event(self, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        event = SimpleNamespace(at=0.0, query=lambda: self._reached(event))
        event.record = lambda stream: self._record(event, stream)
        event.elapsed_time = lambda later: (later.at - event.at) * 1000
        return event

    def _record(self, event: SimpleNamespace, stream: object) -> None:
        assert stream == "a stream of cuda:1"
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.free_at = event.at = max(self.free_at, time.perf_counter()) + self.step_seconds

    def _reached(self, event: SimpleNamespace) -> bool:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return bool(event.at <= time.perf_counter())


def _torch(monkeypatch: pytest.MonkeyPatch, step_seconds: float) -> _Gpu:
    gpu = _Gpu(step_seconds)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=gpu.cuda))
    return gpu


CUDA = SimpleNamespace(type="cuda", name="cuda:1")


def test_steps_that_are_only_queued_take_as_long_as_the_gpu_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H200, 20 steps of 79 ms were queued in 40 ms, and were 509 steps/s."""
    gpu = _torch(monkeypatch, 0.02)
    made = _Trial()
    steps = made.watcher.counters.optimizer
    began = time.monotonic()
    for _ in range(10):
        steps.step(device=CUDA)
    gpu.capturing = True
    steps.step(device=CUDA)  # in a CUDA graph, which must not change
    gpu.capturing = False
    steps.step(device=CUDA)
    made.watcher.counters.finish()
    ((_, data),) = made.tell(last=True)
    assert data["count"] == 12
    assert _step_times(data) == pytest.approx([0.02] * 5 + [0.01])
    assert [(count, several) for _, _, count, several in data["times"]] == [(n, 1) for n in range(2, 11)] + [(12, 2)]
    ends = [end - began for end, *_ in data["times"]]
    assert ends == pytest.approx([0.02 * n for n in range(2, 12)], abs=0.015)


def test_steps_on_the_cpu_are_timed_there_and_a_gpu_that_fails_ends_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = _torch(monkeypatch, 0.001)
    made = _Trial()
    on_cpu, on_gpu = made.watcher.counters.optimizer, made.watcher.counters.own
    for _ in range(8):
        on_cpu.step(device=SimpleNamespace(type="cpu"))
    assert len(on_cpu.gaps) == 3
    assert not on_cpu.queued
    for _ in range(8):
        on_gpu.step(device=CUDA)
    gpu.broken = True
    on_gpu.step(device=CUDA)
    on_gpu.finish()
    assert (on_gpu.count, len(on_gpu.queued), len(on_gpu.gaps)) == (9, 0, 0)


def test_a_setting_that_was_never_made_is_told_at_the_end() -> None:
    made = _Trial(probe="limit", options={"memory_limit": 700})
    assert made.tell() == []
    ((_, data),) = made.tell(last=True)
    assert (data["applied"], data["reason"]) == (False, "the program used no GPU")


def test_reports_of_steps_are_bounded_and_start_over_where_something_else_is_counted() -> None:
    state = ReceivedEvents()

    def report(counted: str, count: int, seconds: list[float], at: float) -> None:
        times = [(at, each, count, 1) for each in seconds]
        data = {"counted": counted, "count": count, "warm_up": 0, "times": times}
        state.take_line(msgspec.json.encode({"t": at, "kind": "steps", "data": data}))

    report("calls", 5, [], 1.0)
    report("calls", 30_000, [0.5] * 30_000, 2.0)
    report("calls", 30_001, [0.5], 3.0)
    assert (state.steps.count, len(state.steps.times), len(state.steps.latest)) == (30_001, 20_000, 1000)
    assert (state.steps.first_at, state.steps.last_at) == (1.0, 3.0)
    report("batches", 1, [0.25], 4.0)
    assert (state.steps.count, state.steps.times, state.steps.first_at) == (1, [0.25], 4.0)
    state.take_line(msgspec.json.encode({"t": 5.0, "kind": "steps", "data": {"count": 2}}))
    assert "event 'steps' has a missing" in state.problems[0]


class _CallbackList:
    def on_test_begin(self, logs: object = None) -> str:
        return f"began {logs}"


def test_validations_are_counted_once_whatever_names_the_class_has(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("CallbackList", (), {"on_test_begin": _CallbackList.on_test_begin})
    made = _Trial()
    for name in made.module._CALLBACKS:  # another test of this process may have imported Keras
        monkeypatch.delitem(sys.modules, name, raising=False)
    made.watcher.counters.batches.step()
    ((_, data),) = made.tell(last=True)
    assert data["validations"] is None, "nothing is known of a version of Keras that has no such method"
    for name in ("keras.src.callbacks.callback_list", "keras.callbacks"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(CallbackList=kind))
    made.tell()
    assert kind().on_test_begin(3) == "began 3"
    ((_, data),) = made.tell(last=True)
    assert data["validations"] == 1


class _Tape:
    def gradient(self, target: object) -> object:
        return target


def test_gradients_are_steps_where_nothing_else_is_counted() -> None:
    eager = [True]
    kind = type("GradientTape", (), {"gradient": _Tape.gradient})
    made = _Trial()
    made.act(
        "tensorflow.python.eager.backprop",
        SimpleNamespace(GradientTape=kind, context=SimpleNamespace(executing_eagerly=lambda: eager[0])),
    )
    for _ in range(7):
        assert kind().gradient(2) == 2
    eager[0] = False  # while a function is traced
    kind().gradient(2)
    ((_, data),) = made.tell(last=True)
    assert (data["counted"], data["count"], len(_step_times(data))) == ("gradients of a GradientTape", 7, 2)
    assert data["validations"] is None
    made.watcher.counters.batches.step()
    ((_, data),) = made.tell(last=True)
    assert (data["counted"], data["count"]) == ("batches of Keras", 1)
