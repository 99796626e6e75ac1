"""When memory is recorded in a watched program: windows, bounds, and giving way; with a profiler of our own."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.probing.test_watcher import load


class Session:
    """TensorFlow's ProfilerSession as far as it is used; one can be active at a time."""

    active: Session | None = None
    started = 0
    size = 1000

    def start(self, path: str, options: dict[str, int]) -> None:
        if Session.active is not None:
            raise RuntimeError("Another profiling session active.")
        Session.active = self
        Session.started += 1
        self.path = Path(path)

    def export_to_tb(self) -> None:
        assert Session.active is self
        Session.active = None
        folder = self.path / "plugins/profile/now"
        folder.mkdir(parents=True)
        (folder / "host.xplane.pb").write_bytes(b"x" * Session.size)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Session.active, Session.started, Session.size = None, 0, 1000


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    found = load("_gpuwatch_memory_names")
    monkeypatch.setattr(found, "program_objects", lambda: {name: [] for name in found.KINDS})
    return found


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    found = load("_gpuwatch_memory")
    clock = SimpleNamespace(now=100.0, resident=0)
    monkeypatch.setattr(found, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(found, "_resident", lambda: clock.resident)
    found.clock = clock  # type: ignore[attr-defined]
    return found


class Watcher:
    def __init__(self, names: ModuleType) -> None:
        self.names = names
        self.lines = load("_gpuwatch_program_lines")
        self.emitted: list[tuple[str, dict[str, Any]]] = []
        self.batches = SimpleNamespace(count=0)
        self.latest: dict[str, Any] = {}
        self.started_before_fork = False
        self.devices: object | None = None
        self.descriptors = load("_gpuwatch_descriptors")

    def load(self, name: str) -> ModuleType:
        return self.names if name == "_gpuwatch_memory_names" else load(name)

    def emit(self, kind: str, **data: Any) -> None:
        self.emitted.append((kind, data))

    def once(self, key: str, kind: str, **data: Any) -> None:
        if (kind, data) not in self.emitted:
            self.emit(kind, **data)

    def context(self) -> object | None:
        return self.devices

    def steps(self) -> int:
        return int(self.batches.count)

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [data for one, data in self.emitted if one == kind]


Record = Callable[[], tuple[Any, Watcher]]


@pytest.fixture
def record(module: ModuleType, names: ModuleType, tmp_path: Path) -> Record:
    def make() -> tuple[Any, Watcher]:
        watcher = Watcher(names)
        recorder = module.Recorder(watcher, str(tmp_path))
        recorder._profiler(SimpleNamespace(ProfilerSession=Session, start_server=lambda port: port))
        return recorder, watcher

    return make


def test_recording_begins_with_the_devices_and_its_first_window_ends_after_some_steps(
    record: Record, module: ModuleType
) -> None:
    recorder, watcher = record()
    context = SimpleNamespace(Context=type("Context", (), {}))
    recorder._context(context)
    made = context.Context()
    made._logical_devices = None
    assert Session.started == 0
    made._logical_devices = ["GPU:0"]
    made._logical_devices = ["GPU:0"]
    assert (Session.started, made._logical_devices) == (1, ["GPU:0"])
    module.clock.now += 5
    recorder.look()
    assert not watcher.told("memory_file"), "no step was seen yet"
    watcher.batches.count = 5
    recorder.look()
    (file,) = watcher.told("memory_file")
    assert (file["number"], file["steps_end"], file["reason"]) == (1, 5, "window")
    assert Path(file["file"]).stat().st_size == 1000


def test_a_look_while_the_first_window_begins_does_not_end_it(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watcher's loop looked before the window's begin was noted, and took it for as old as the machine."""
    recorder, watcher = record()
    judged, looks = threading.Event(), []
    monkeypatch.setattr(watcher, "steps", lambda: judged.set() or 0)

    def once(key: str, kind: str, **data: Any) -> None:
        judged.clear()
        looks.append(threading.Thread(target=recorder.look))
        looks[-1].start()
        judged.wait(0.3)

    monkeypatch.setattr(watcher, "once", once)
    recorder.begin()
    looks[0].join()
    assert Session.active is not None
    assert not watcher.told("memory_file")


def test_later_windows_are_short_and_ever_rarer(record: Record, module: ModuleType) -> None:
    recorder, watcher = record()
    recorder.begin()
    Session.size = 1 << 20
    began = []
    for _ in range(4000):
        module.clock.now += 0.05
        watcher.batches.count += 1
        before = Session.started
        recorder.look()
        if Session.started != before:
            began.append(module.clock.now)
    pauses = [after - before for before, after in itertools.pairwise(began)]
    assert pauses == sorted(pauses)
    assert len(began) < 10
    assert max(file["end"] - file["begin"] for file in watcher.told("memory_file")[1:]) < 0.5


def test_where_little_happens_it_is_recorded_all_the_time(record: Record, module: ModuleType) -> None:
    recorder, watcher = record()
    recorder.begin()
    unrecorded = 0
    for _ in range(2000):
        module.clock.now += 0.05
        watcher.batches.count += 1
        recorder.look()
        unrecorded += Session.active is None
    assert unrecorded == 0
    assert len(watcher.told("memory_file")) < 10


def test_a_new_peak_starts_a_window(record: Record, module: ModuleType) -> None:
    recorder, watcher = record()
    recorder.begin()
    Session.size = 1 << 20
    watcher.batches.count = 10
    watcher.latest["/job:localhost/device:GPU:0"] = {"peak": 1000}
    module.clock.now += 2
    recorder.look()
    assert Session.active is None
    module.clock.now += 0.7
    recorder.look()
    assert Session.active is None
    watcher.latest["/job:localhost/device:GPU:0"] = {"peak": 2000}
    recorder.look()
    assert Session.active is not None


def test_memory_of_events_is_bounded(record: Record, module: ModuleType) -> None:
    recorder, watcher = record()
    recorder.begin()
    Session.size = 20 << 20
    for _ in range(100):
        module.clock.now += 0.05
        module.clock.resident += 300 << 20
        recorder.look()
    assert len(watcher.told("memory_file")) == 2
    assert " 40 MiB " in watcher.told("memory_note")[0]["text"]
    assert Session.active is None


def test_the_program_s_own_profiler_comes_first(record: Record, module: ModuleType) -> None:
    recorder, watcher = record()
    profiler = SimpleNamespace(ProfilerSession=Session, start_server=lambda port: port)
    recorder._profiler(profiler)
    recorder.begin()
    own = profiler.ProfilerSession()
    own.start("/nowhere", {})
    assert isinstance(own, Session)
    module.clock.now += 100
    recorder.look()
    recorder.end()
    assert Session.active is own
    assert len(watcher.told("memory_file")) == 1
    assert "profiles itself" in watcher.told("memory_note")[0]["text"]
    assert profiler.start_server(7) == 7


@pytest.mark.parametrize(("size", "ends"), [(2, True), (1, False)])
def test_it_ends_before_devices_reduce_together(record: Record, size: int, ends: bool) -> None:
    """TensorFlow's profiler writes into freed memory where an activity ends in another thread than it began in."""

    class Launcher:
        def __init__(self, group_key: int, group_size: int, device: str) -> None:
            assert (Session.active is None) == ends, "stopped before"
            self.of = (group_key, group_size, device)

    recorder, watcher = record()
    recorder._launchers(SimpleNamespace(CollectiveReplicaLauncher=Launcher))
    recorder.begin()
    assert Launcher(group_key=1, group_size=size, device="GPU:0").of == (1, size, "GPU:0")
    notes = watcher.told("memory_note")
    assert [note["gave_way"] for note in notes] == [False] * ends
    recorder.look()
    assert Session.started == 1
    assert (Session.active is None) == ends


def test_a_profiler_that_is_already_active_is_a_note(record: Record) -> None:
    recorder, watcher = record()
    Session().start("/nowhere", {})
    recorder.begin()
    recorder.begin()
    recorder.end()
    (note,) = watcher.told("memory_note")
    assert "started (RuntimeError" in note["text"]


def test_a_profiler_that_becomes_active_meanwhile_ends_the_recording(record: Record, module: ModuleType) -> None:
    recorder, watcher = record()
    recorder.begin()
    watcher.batches.count = 5
    module.clock.now += 2
    recorder.look()
    recorder.stop("window")
    Session.active = Session()  # one that a profiler server was asked for
    for _ in range(3):
        module.clock.now += 100
        recorder.look()
    assert len(watcher.told("memory_note")) == 1
    assert len(watcher.told("memory_file")) == 2


def test_without_the_private_name_recording_begins_late_and_says_so(record: Record) -> None:
    recorder, watcher = record()
    recorder.look()
    assert Session.started == 0
    watcher.devices = object()
    watcher.started_before_fork = True
    recorder.look()
    assert Session.started == 0, "in a fork they are its parent's"
    watcher.started_before_fork = False
    recorder.look()
    assert Session.started == 1
    assert "recording began after" in watcher.told("memory_note")[0]["text"]


def test_a_forked_process_leaves_its_parent_s_recording_alone(
    record: Record, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, watcher = record()
    recorder.begin()
    session = Session.active
    monkeypatch.setattr(os, "getpid", lambda: recorder.pid + 1)
    recorder.look()
    recorder.give_way("forked")
    recorder.end()
    assert Session.active is session
    assert not watcher.told("memory_file")
    recorder.reset()
    assert (recorder.session, recorder.window_number) == (None, 0)


def test_pytorch_without_its_recorder_is_a_note(record: Record) -> None:
    recorder, watcher = record()
    recorder.torch.observe(SimpleNamespace())
    assert watcher.told("memory_note") == [{"text": "this version of PyTorch cannot record its allocator"}]
    recorder.failed("torch.cuda", AttributeError("gone"))
    assert watcher.told("memory_note")[-1] == {"text": "not possible in this version of torch (gone)"}


def test_writing_pytorch_s_snapshot_does_not_import_its_compiler(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch asks torch for its attribute _inductor, which imports it: 800 modules, and a warning without NumPy."""
    torch, imported = ModuleType("torch"), []

    def lazily_imported(name: str) -> object:
        if name not in torch._lazy_modules:  # type: ignore[attr-defined]
            raise AttributeError(name)
        imported.append((name, threading.current_thread()))
        return SimpleNamespace()

    def write(path: str) -> None:
        hasattr(torch, "_inductor")
        other = threading.Thread(target=lambda: (torch._inductor, torch._dynamo))  # type: ignore[attr-defined]
        other.start()
        other.join()
        assert imported == [("_inductor", other), ("_dynamo", other)], "the program's own threads have it"
        imported.clear()
        Path(path).write_bytes(b"written")

    torch._lazy_modules, torch.__getattr__ = {"_dynamo", "_inductor"}, lazily_imported  # type: ignore
    torch._C = SimpleNamespace()  # type: ignore[attr-defined]
    memory = SimpleNamespace(_record_memory_history=lambda **_: None, _dump_snapshot=write)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.cuda.memory", memory)
    recorder, watcher = record()
    recorder.torch.observe(SimpleNamespace(_lazy_call=lambda begin: begin()))
    recorder.torch._failed(0, 1, 1, 1)
    recorder.end()
    assert [(file["number"], file["reason"]) for file in watcher.told("memory_file")] == [
        (1, "out of memory"),
        (3, "end"),
    ]
    assert hasattr(torch, "_inductor"), "afterwards it is as before"


def test_the_variables_of_each_replica_are_of_their_keras_variable(names: ModuleType) -> None:
    def raw(number: int) -> SimpleNamespace:
        shape = SimpleNamespace(is_fully_defined=lambda: True, as_list=lambda: [2])
        return SimpleNamespace(_unique_id=f"v_{number}", name="v:0", shape=shape, dtype=SimpleNamespace(name="float32"))

    replicas, alone, rate = [raw(1), raw(2)], raw(3), raw(4)
    mirrored = SimpleNamespace(_value=SimpleNamespace(_values=replicas), trainable=True, path="dense/kernel")
    moved = SimpleNamespace(_value=rate, path="adam/rate")
    found = {
        "variable": [*replicas, alone, rate],
        "keras variable": [mirrored, SimpleNamespace(_value=None, trainable=True, path="")],
        "optimizer": [SimpleNamespace(variables=[moved])],
    }
    named = [(name, kind) for name, _, _, kind in names.Reader(found, None).variables()]
    assert named == [("dense/kernel", "weight")] * 2 + [("v:0", ""), ("adam/rate", "optimizer")]


def test_an_unfinished_variable_costs_only_its_own_name(
    record: Record, names: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt may come while a variable is being made: it is there, and has no shape."""
    shape = SimpleNamespace(is_fully_defined=lambda: True, as_list=lambda: [2])
    made = SimpleNamespace(_unique_id="v_1", name="v:0", shape=shape, dtype=SimpleNamespace(name="float32"))
    found = {name: [] for name in names.KINDS} | {"variable": [SimpleNamespace(name="w:0"), made]}
    monkeypatch.setattr(names, "program_objects", lambda: found)
    recorder, watcher = record()
    recorder._listed(None, SimpleNamespace(_logical_devices=["/device:GPU:0"]))
    recorder.end()
    assert [name for data in watcher.told("memory_names") for name, *_ in data["entries"]] == ["v:0"]
    assert "'types.SimpleNamespace' object has no attribute 'shape'" in watcher.told("memory_note")[-1]["text"]
    assert watcher.told("memory_end") == [{}]
    monkeypatch.setattr(names, "program_objects", lambda: 1 / 0)
    recorder.window_number = 1
    recorder.end()
    assert watcher.told("memory_end") == [{}, {}]


@pytest.mark.thorough
def test_the_search_for_objects_breaks_no_tuple_that_another_thread_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else holds a tuple while it grows makes the call fail that builds it (bpo-15108)."""

    class FuncGraph:
        pass

    class Own(FuncGraph):
        pass

    graphs = [FuncGraph(), Own()]
    monkeypatch.setitem(sys.modules, "tensorflow.python.framework.func_graph", SimpleNamespace(FuncGraph=FuncGraph))
    find, found, done = load("_gpuwatch_memory_names").program_objects, [], threading.Event()

    def search() -> None:
        while not done.is_set():
            found.append([*map(id, find()["graph"])])

    searching = threading.Thread(target=search)
    searching.start()
    try:
        until = time.monotonic() + 1
        while len(found) < 30 or time.monotonic() < until:
            tuple((number,) for number in range(300))
    finally:
        done.set()
        searching.join()
    assert sorted(found[-1]) == sorted(map(id, graphs))
