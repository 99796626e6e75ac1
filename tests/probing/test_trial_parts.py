"""The part of ``gpuwatch try`` inside the program, on versions of the frameworks that lack what it needs."""

from __future__ import annotations

import _thread
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
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
        self.watcher.step_reports.tell()
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
        self.step_seconds, self.free_at, self.current = step_seconds, 0.0, 1
        self.capturing = self.broken = False
        self.thread_mode = 0
        """Of captures: 0 as at a thread's start, 2 where it may query events meanwhile."""
        self.cuda = SimpleNamespace(
            is_initialized=lambda: True,
            is_current_stream_capturing=lambda: self.capturing,
            current_device=lambda: self.current,
            device=self.device,
            Event=self.event,
        )

    @contextlib.contextmanager
    def device(self, number: int) -> Iterator[None]:
        before, self.current = self.current, number
        yield
        self.current = before

    def event(self, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        event = SimpleNamespace(at=0.0, query=lambda: self._reached(event))
        event.record = lambda: self._record(event)
        event.elapsed_time = lambda later: (later.at - event.at) * 1000
        return event

    def _record(self, event: SimpleNamespace) -> None:
        assert self.current == 1
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.free_at = event.at = max(self.free_at, time.perf_counter()) + self.step_seconds

    def _reached(self, event: SimpleNamespace) -> bool:
        if self.broken or (self.capturing and self.thread_mode != 2):
            raise RuntimeError("CUDA error: an illegal memory access, or an operation not permitted while capturing")
        return bool(event.at <= time.perf_counter())

    def exchange(self, mode: Any) -> None:
        """The driver's ``cuThreadExchangeStreamCaptureMode``."""
        self.thread_mode, mode._obj.value = mode._obj.value, self.thread_mode


def _torch(monkeypatch: pytest.MonkeyPatch, step_seconds: float) -> _Gpu:
    gpu = _Gpu(step_seconds)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=gpu.cuda))
    return gpu


CUDA = SimpleNamespace(type="cuda", index=1)


def test_steps_that_are_only_queued_take_as_long_as_the_gpu_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H200, 20 steps of 79 ms were queued in 40 ms, and were 509 steps/s."""
    _torch(monkeypatch, 0.02)
    made = _Trial()
    steps = made.watcher.counters.optimizer
    began = time.monotonic()
    for _ in range(10):
        steps.step(device=CUDA)
    steps.step(device=SimpleNamespace(type="cuda", index=0))  # no time passes between events of two GPUs
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
    assert on_cpu.timed == 3
    assert not on_cpu.queued
    for _ in range(8):
        on_gpu.step(device=CUDA)
    gpu.broken = True
    on_gpu.step(device=CUDA)
    on_gpu.finish()
    assert (on_gpu.count, len(on_gpu.queued), on_gpu.timed) == (9, 0, 0)
    gpu.broken = False
    for _ in range(3):
        on_cpu.step(device=CUDA)
    on_cpu.finish()
    assert (on_cpu.count, on_cpu.gpu, on_cpu.done[1]) == (11, 1, 11), "the first optimizer does not decide for all"


def test_a_cuda_graph_may_be_captured_while_events_are_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    """In CUDA's default mode a query by any thread makes the program's capture fail."""
    gpu, made = _torch(monkeypatch, 0.001), _Trial()
    asked = []
    monkeypatch.setattr(made.watcher.counting, "_exchange_capture_mode", lambda: asked.append(1) or gpu.exchange)
    steps = made.watcher.counters.optimizer
    steps.step(device=SimpleNamespace(type="cpu"))
    steps.look()
    assert not asked, "a program on the CPU does not load the driver"
    steps.reset()
    for _ in range(8):
        steps.step(device=CUDA)
    gpu.capturing = True
    steps.finish()
    assert (steps.timed, steps.done[1], gpu.thread_mode) == (3, 8, 0)


def test_steps_in_a_cuda_graph_are_made_when_it_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, made = _torch(monkeypatch, 0.001), _Trial()
    counters = made.watcher.counters
    observer = load("_gpuwatch_torch_steps").OptimizerSteps(counters, made.watcher.descriptors)
    kind = type("CUDAGraph", (), {"capture_end": lambda self: "ended", "replay": lambda self: "replayed"})
    observer.actions["torch.cuda.graphs"](SimpleNamespace(CUDAGraph=kind))
    graph, empty = kind(), kind()
    gpu.capturing = True
    for _ in range(2):
        counters.optimizer.step(device=CUDA)
    assert (graph.capture_end(), empty.capture_end()) == ("ended", "ended")
    gpu.capturing = False
    assert (counters.optimizer.count, len(counters.optimizer.queued)) == (0, 0), "an event would be a part of the graph"
    for _ in range(5):
        assert (graph.replay(), empty.replay()) == ("replayed", "replayed")
    counters.optimizer.finish()
    assert (counters.optimizer.count, counters.optimizer.timed) == (10, 2)


def test_a_step_of_another_stream_that_was_done_before_is_timed_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    _torch(monkeypatch, 0.001)
    steps = _Trial().watcher.counters.optimizer
    for _ in range(8):
        steps.step(device=CUDA)
    steps.queued[6][0].at = steps.queued[4][0].at
    steps.finish()
    assert [several for *_, several in steps.unsent] == [1, 1, 1, 1, 1, 2]


class _Optimizer:
    param_groups = ()

    def step(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("called", "steps"),
    [
        ("a" * 6, 6),
        ("ab" * 6, 6),  # a GAN, or Muon with AdamW
        ("aaaaab" * 4, 20),  # a critic that is trained more often
        ("baaaaa" * 4, 20),
        ("ab" * 3 + "b" + "ab" * 3, 7),  # GradScaler has left out a step of the one that is counted
        ("a" * 6 + "b" * 6, 11),  # one fold after another
    ],
)
def test_one_step_is_counted_of_all_optimizers_of_an_iteration(called: str, steps: int) -> None:
    counters = _Trial().watcher.counters
    observer, optimizers = load("_gpuwatch_torch_steps").OptimizerSteps(counters, None), {}
    for name in called:
        observer.stepped(optimizers.setdefault(name, _Optimizer()))
    assert counters.optimizer.count == steps


def test_the_optimizer_of_the_next_fold_is_counted_from_its_first_step() -> None:
    counters = _Trial().watcher.counters
    observer = load("_gpuwatch_torch_steps").OptimizerSteps(counters, None)
    for _ in range(3):
        optimizer = _Optimizer()  # the last one is gone
        for _ in range(4):
            observer.stepped(optimizer)
    assert counters.optimizer.count == 12


def test_the_steps_of_two_threads_are_all_counted() -> None:
    """In whichever order the threads take turns; a library's own threads belong to the program's main loop."""
    counters = _Trial().watcher.counters
    observer = load("_gpuwatch_torch_steps").OptimizerSteps(counters, None)

    def in_turns(start: Callable[[Callable[[], None]], object], called: str) -> int:
        """Steps counted of two threads, each of which makes those of its optimizer, in this order."""
        turns, counted = {name: threading.Semaphore(0) for name in "ab"}, counters.optimizer.count
        made, optimizers = threading.Semaphore(0), {name: _Optimizer() for name in "ab"}

        def train(name: str) -> None:
            optimizer = optimizers[name]
            for _ in range(called.count(name)):
                turns[name].acquire()
                observer.stepped(optimizer)
                made.release()

        for name in turns:
            start(lambda name=name: train(name))  # type: ignore[misc]
        for name in called:
            turns[name].release()
            assert made.acquire(timeout=10)
        return counters.optimizer.count - counted

    assert in_turns(lambda run: threading.Thread(target=run).start(), "abbaab" * 4) == 24
    assert in_turns(lambda run: _thread.start_new_thread(run, ()), "ab" * 6) == 6


def test_dynamo_finds_nothing_of_gpuwatch_in_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """It imports the module of each global in what it traces: ``torch.compile(optimizer.step)`` failed."""
    hooks, compiling = [], [False]

    def register(hook: Callable[..., None]) -> SimpleNamespace:
        hooks.append(hook)
        return SimpleNamespace(remove=lambda: hooks.remove(hook))

    def step(self: object) -> None:
        torch._dynamo.graph_break()  # type: ignore[name-defined] # noqa: F821

    counters = _Trial().watcher.counters
    observer = load("_gpuwatch_torch_steps").OptimizerSteps(counters, None)
    kind = type("Adam", (_Optimizer,), {"step": step})
    monkeypatch.setitem(sys.modules, "torch.optim", SimpleNamespace(Adam=kind, Optimizer=_Optimizer, lr_scheduler=sys))
    observer.actions["torch.optim.optimizer"](SimpleNamespace(register_optimizer_step_post_hook=register))
    dynamo = SimpleNamespace(is_compiling=lambda: compiling[0], disable=lambda function: function)
    observer.actions["torch._dynamo"](dynamo)
    (hook,) = hooks
    assert set(hook.__code__.co_names) <= {"__class__"}, "no global, builtins included"
    own, adam = _Optimizer(), kind()
    hook(own, (), {})
    assert counters.optimizer.count == 1
    compiling[0] = True
    hook(own, (), {})
    assert counters.optimizer.count == 1, "calling anything would break the graph"
    for _ in range(2):
        hook(adam, (), {})
    assert counters.optimizer.count == 2, "its own step has broken the graph"


@pytest.mark.parametrize("order", [("gpuwatch", "torch._dynamo"), ("torch._dynamo", "gpuwatch")])
def test_calls_of_step_are_counted_except_in_what_dynamo_compiles(
    monkeypatch: pytest.MonkeyPatch, order: tuple[str, str]
) -> None:
    compiling = [False]
    package = SimpleNamespace(_count_step=None)
    dynamo = SimpleNamespace(is_compiling=lambda: compiling[0], disable=lambda function: function)
    counters = _Trial().watcher.counters
    for name in order:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in order:
        monkeypatch.setitem(sys.modules, name, package if name == "gpuwatch" else dynamo)
        counters.actions[name](sys.modules[name])
    package._count_step()
    compiling[0] = True
    package._count_step()
    assert counters.own.count == 1
    assert package._count_step.__code__.co_names == ()


def test_a_setting_that_was_never_made_is_told_at_the_end() -> None:
    made = _Trial(probe="limit", options={"memory_limit": 700})
    assert made.tell() == []
    ((_, data),) = made.tell(last=True)
    assert (data["applied"], data["reason"]) == (False, "the program used no GPU")


def test_reports_of_steps_are_bounded_and_start_over_where_something_else_is_counted() -> None:
    state = ReceivedEvents()

    def report(counted: str, count: int, seconds: list[float], at: float) -> None:
        times = [(at, each, count, 1) for each in seconds]
        data = {"counted": counted, "count": count, "warm_up": 0, "has_speed": True, "times": times}
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


@pytest.mark.parametrize("old", [True, False])
def test_validations_are_counted_once_whatever_names_the_class_has(old: bool) -> None:
    events = [
        f"on_{kind}_{event}" for kind in ("train", "test") for event in ("begin", "batch_begin", "batch_end", "end")
    ]
    if not old:
        events += [name.replace("train", "predict") for name in events[:4]]
    kind = type("CallbackList", (), dict.fromkeys(events, lambda self, logs=None: f"called with {logs}"))
    made = _Trial()
    calls = made.watcher.keras_calls
    for name in ("keras.src.callbacks.callback_list", "keras.callbacks"):
        with contextlib.suppress(KeyError):  # as sitecustomize.py does
            calls.actions[name](SimpleNamespace(CallbackList=kind))
    assert kind().on_test_begin(3) == "called with 3"  # type: ignore[attr-defined]
    made.watcher.counters.batches.step()
    ((_, data),) = made.tell(last=True)
    assert data["validations"] == (None if old else 1), "nothing is known of a version that has no such methods"


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
