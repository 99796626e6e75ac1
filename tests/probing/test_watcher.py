"""The part of ``gpuwatch run`` that looks from within the program, without the program: nothing is left out unsaid."""

from __future__ import annotations

import _thread
import importlib.util
import json
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import gpuwatch.experiment.probing.watch_program
from gpuwatch.experiment.probing.op_placement import merge_op_counts
from gpuwatch.experiment.probing.received_events import ReceivedEvents

_FOLDER = Path(gpuwatch.experiment.probing.watch_program.__file__).parents[3] / "probes/_gpuwatch_watch"
_MODULES = ("tensorflow.python.distribute.distribute_lib", "tensorflow.python.distribute.mirrored_strategy")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_under_test", _FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def watcher() -> ModuleType:
    return load("_gpuwatch_watcher")


@pytest.fixture(scope="module")
def placement() -> ModuleType:
    return load("_gpuwatch_placement")


class _Watcher:
    """A watcher that keeps what it would say."""

    def __init__(self, module: ModuleType) -> None:
        self.of = module.Watcher("nowhere", load, None)
        self.emitted: list[tuple[str, dict[str, Any]]] = []
        self.of.emit = lambda kind, **data: self.emitted.append((kind, data))


RESOURCE = SimpleNamespace(name="resource")


def _tensor(device: str = "/device:GPU:0", dtype: Any = None) -> SimpleNamespace:
    return SimpleNamespace(device=device, dtype=dtype or SimpleNamespace(name="float32"))


class _Spec(SimpleNamespace):
    """A device's name, as TensorFlow's DeviceSpec reads it."""

    @classmethod
    def from_string(cls, name: str) -> _Spec:
        kind, _, index = name.rpartition("device:")[2].lstrip("/").partition(":")
        return cls(device_type=kind or None, device_index=int(index) if index.isdecimal() else None)


def _ops(placement: ModuleType, *scopes: tuple[str | None, str | None]) -> Any:
    """``scopes``: device and line, the outermost first."""
    ops = placement.Ops(load)
    ops.resource = RESOURCE
    ops.registry = SimpleNamespace(of=lambda op, types: (None, None, None))
    ops.scopes.device_spec = _Spec
    ops.scopes._changed([(device, line, False) for device, line in scopes])
    return ops


def _counted(ops: Any) -> list[tuple[str, str, str, str, str]]:
    return [(op, *rest) for op, _, *rest in ops.counts]


def test_an_op_on_a_variable_is_where_that_is_and_says_so(placement: ModuleType) -> None:
    ops = _ops(placement, ("/GPU:0", "train.py:3"))
    variable = _tensor("/device:CPU:0", RESOURCE)
    ops.take("ReadVariableOp", (variable,), (), (_tensor("/device:CPU:0"),))
    ops.take("NoOp", (), (), (None,))
    ops.take("MatMul", (_tensor(), _tensor()), (), (_tensor(),))
    assert _counted(ops) == [
        ("ReadVariableOp", "/device:GPU:0", "train.py:3", "/device:CPU:0", "resource"),
        ("MatMul", "/device:GPU:0", "train.py:3", "/device:GPU:0", ""),
    ]


def test_an_op_is_sent_with_its_kernels_and_line_or_not_yet(placement: ModuleType) -> None:
    """Another thread may send while an op's kernels are looked up: the op is sent once."""
    ops, sent = _ops(placement, ("/GPU:0", "a.py:1")), []

    def looked_up(op: str, types: Any) -> tuple[bool, bool, bool, None]:
        ops.tell(lambda kind, **data: sent.append(data))
        return False, False, False, None

    ops.registry = SimpleNamespace(of=looked_up)
    ops.scopes.caller = lambda frame: "a.py:2"
    ops.take("StringJoin", (), (), (_tensor("/device:CPU:0"),))
    ops.tell(lambda kind, **data: sent.append(data))
    assert [(data["op"], data["cuda_kernel"], data["line"]) for data in sent] == [("StringJoin", False, "a.py:2")]


def test_the_first_op_of_a_kind_that_fell_back_is_sent_at_once(placement: ModuleType) -> None:
    """SIGKILL leaves no time; what ran where it was requested waits, and nothing is sent twice."""
    ops, sent = _ops(placement, ("/GPU:0", "a.py:1")), []
    ops.registry = SimpleNamespace(of=lambda op, types: (False, False, False, None))
    ops.emit = lambda kind, **data: sent.append((data["op"], data["count"]))
    for _ in range(3):
        ops.take("MatMul", (), (), (_tensor(),))
        ops.take("RandomShuffle", (), (), (_tensor("/device:CPU:0"),))
    assert sent == [("RandomShuffle", 1)]
    ops.tell(ops.emit)
    assert sorted(sent) == [("MatMul", 3), ("RandomShuffle", 1), ("RandomShuffle", 2)]


@pytest.mark.parametrize(
    ("scopes", "asked"),
    [
        ([], ""),
        ([("/CPU:0", None)], ""),
        ([("/GPU:0", "a.py:1"), (None, "a.py:2")], ""),
        ([("/GPU:0", "a.py:1"), ("/CPU:0", "a.py:2")], "/device:CPU:0"),
        ([("/GPU:0", "a.py:1"), ("/device:GPU:1", None)], ""),
        ([("/GPU", "a.py:1")], "/device:GPU:*"),
    ],
)
def test_only_the_programs_innermost_scope_is_a_request(
    placement: ModuleType, scopes: list[tuple[str | None, str | None]], asked: str
) -> None:
    ops = _ops(placement, *scopes)
    ops.take("MatMul", (), (), (_tensor("/device:CPU:0"),))
    assert [entry[1] for entry in _counted(ops)] == [asked]


def test_tensorflows_own_scope_around_what_it_makes_hides_no_request(placement: ModuleType) -> None:
    ops = _ops(placement, ("/GPU:0", "a.py:1"), ("/CPU:0", None))
    ops.take("HashTableV2", (), (), (_tensor("/device:CPU:0", RESOURCE),))
    ops.take("StringJoin", (), (), (_tensor("/device:CPU:0"),))
    assert [entry[1:] for entry in _counted(ops)] == [
        ("/device:GPU:0", "a.py:1", "/device:CPU:0", "framework"),
        ("", "", "/device:CPU:0", ""),
    ]


def test_ops_without_a_tensor_as_output_are_told_with_their_number(watcher: ModuleType, placement: ModuleType) -> None:
    made = _Watcher(watcher)
    made.of.ops = ops = _ops(placement)
    for _ in range(3):
        ops.take(b"Print", (), (), ())
    ops.take("Send", (), (), (None,))
    ops.take("MatMul", (), (), (_tensor(),))
    assert list(ops.counts.values()) == [1]
    made.of.last_functions()
    made.of.last_functions()
    notes = [data["text"] for kind, data in made.emitted if kind == "note"]
    assert [note.rpartition("(")[2] for note in notes] == ["Print 3, Send 1)"]


def test_an_error_of_one_look_costs_that_look_alone(watcher: ModuleType, placement: ModuleType) -> None:
    made = _Watcher(watcher)
    made.of.ops = ops = _ops(placement)
    ops.take("MatMul", (), (), (_tensor(),))
    made.of.functions = _fails
    made.of.step_reports.tell = _fails
    made.of.reporters = [SimpleNamespace(tell=_fails), SimpleNamespace(tell=lambda emit: emit("told"))]
    made.of.failures = SimpleNamespace(total=_fails, uncounted_forks=0)
    made.of.socket = object()
    made.of.last_words()
    kinds = [kind for kind, _ in made.emitted]
    assert {"placement", "told", "end"} <= {*kinds}
    assert ("note", {"text": "_fails: ZeroDivisionError: no more"}) in made.emitted


def test_an_interruption_of_the_last_looks_is_no_error_of_the_program(watcher: ModuleType) -> None:
    """Ctrl+C a second time: in an exit handler, Python prints what it ignores."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    made = _Watcher(watcher)
    made.of.devices = SimpleNamespace(tensorflow=interrupted, last_torch=interrupted, jax=interrupted)
    made.of.end()


def _fails(*_: object, **__: object) -> None:
    raise ZeroDivisionError("no more")


def test_more_kinds_of_op_than_are_kept_are_told_with_their_number(placement: ModuleType) -> None:
    ops = _ops(placement)
    for number in range(placement._MAX_OP_KINDS + 3):
        ops.take(f"Op{number}", (), (), (_tensor(),))
    ops.take("Op0", (), (), (_tensor(),))
    assert len(ops.counts) == placement._MAX_OP_KINDS
    assert max(ops.counts.values()) == 2, "those that are kept are counted on"
    kinds = placement._MAX_OP_KINDS
    assert f"more than {kinds} kinds" in next(iter(ops.left_out()))


def test_a_forked_process_counts_from_0(watcher: ModuleType, placement: ModuleType) -> None:
    made = _Watcher(watcher)
    made.of.ops = ops = _ops(placement)
    for _ in range(20):
        ops.take("MatMul", (), (), (_tensor(),))
    ops.functions.nodes = 7
    made.of.reset(forked=True)
    ops.take("Add", (), (), (_tensor(),))
    made.of.last_functions()
    assert [(data["op"], data["count"]) for kind, data in made.emitted if kind == "placement"] == [("Add", 1)]
    assert not [data for kind, data in made.emitted if kind == "placement_coverage"]


def test_each_thread_of_python_is_heard_from_its_start(placement: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "_set_ident", threading.Thread._set_ident)  # type: ignore[attr-defined]
    order: list[Any] = []
    ops = _ops(placement)
    ops.listen = lambda: order.append(threading.get_ident())
    ops._listen_in_threads()
    thread = threading.Thread(target=lambda: order.append("the program"))
    thread.start()
    thread.join()
    assert order == [thread.ident, "the program"]
    done = threading.Lock()
    done.acquire()
    # A thread of a library, which Python's threading gives a number when it is asked for: its ops are another's.
    _thread.start_new_thread(lambda: (threading.current_thread(), done.release()), ())
    done.acquire()
    assert len(order) == 2


def test_where_all_are_counted_nothing_is_said(placement: ModuleType) -> None:
    assert list(_ops(placement).left_out()) == []


def test_a_copy_of_a_node_has_the_request_of_the_original_or_is_unclear(placement: ModuleType) -> None:
    ops = _ops(placement)
    functions = ops.functions
    request = type(functions.unknown)("GPU", 0, "train.py:4")
    copied = request._replace(line=functions.copy)

    class Graph(SimpleNamespace):
        def __hash__(self) -> int:
            return id(self)

    joined = SimpleNamespace(name="join", type="StringJoin", node_def=SimpleNamespace(attr={}))
    copy = Graph(name="f", get_operations=lambda: [joined])
    functions.functions["f"] = SimpleNamespace(requests={"join": request})
    assert functions._original(copy, joined, copied) == request
    functions.functions["f"] = SimpleNamespace(requests={})
    assert functions._original(copy, joined, copied) == functions.unknown
    functions.requests[copy] = {"join": functions.unknown}
    functions._judge(copy, functions.nothing)
    assert (functions.nodes, functions.unclear) == (1, 1)


class MirroredStrategy:
    def __init__(self, *devices: str) -> None:
        self.extended = SimpleNamespace(worker_devices=[f"/job:localhost/replica:0/task:0{name}" for name in devices])


@pytest.fixture
def mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = SimpleNamespace(value=lambda: "MirroredStrategy")
    gauge = SimpleNamespace(get_cell=lambda name: cell)
    monkeypatch.setitem(sys.modules, _MODULES[0], SimpleNamespace(distribution_strategy_gauge=gauge))
    monkeypatch.setitem(sys.modules, _MODULES[1], SimpleNamespace(MirroredStrategy=MirroredStrategy))


def test_replicas_on_devices_that_are_not_there(watcher: ModuleType, mirrored: None) -> None:
    made = _Watcher(watcher)
    strategy = MirroredStrategy("/device:GPU:0", "/device:GPU:1", "/device:GPU:2")
    for _ in range(3):
        made.of.devices.report_replicas(["/device:CPU:0", "/device:GPU:0", "/device:GPU:1"])
    value = {"devices": ["/device:GPU:0", "/device:GPU:1", "/device:GPU:2"], "missing": ["/device:GPU:2"]}
    assert made.emitted == [("result", {"name": "replicas", "value": value})]
    del strategy


def test_replicas_that_have_their_devices_are_told_too(watcher: ModuleType, mirrored: None) -> None:
    made = _Watcher(watcher)
    strategy = MirroredStrategy("/device:GPU:0")
    for _ in range(3):
        made.of.devices.report_replicas(["/device:CPU:0", "/device:GPU:0"])
    assert made.emitted == [("result", {"name": "replicas", "value": {"devices": ["/device:GPU:0"]}})]
    del strategy


def test_a_strategy_that_is_gone_is_not_searched_for_ever(
    watcher: ModuleType, mirrored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[object] = []
    made = _Watcher(watcher)
    module = type(made.of.devices).report_replicas.__globals__
    monkeypatch.setitem(module, "gc", SimpleNamespace(get_referrers=lambda one: searched.append(one) or []))
    for _ in range(50):
        made.of.devices.report_replicas(["/device:CPU:0"])
    assert len(searched) == module["_MAX_SEARCHES"]


def test_pytorchs_chosen_gpu_is_told_at_the_end_though_it_held_no_memory(
    watcher: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = SimpleNamespace(
        **dict.fromkeys(("memory_allocated", "max_memory_allocated"), lambda number: 0),
        is_initialized=lambda: True,
        device_count=lambda: 2,
        current_device=lambda: 1,
        get_device_properties=lambda number: SimpleNamespace(name=f"GPU {number}"),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.9.0", cuda=cuda, version=None))
    made = _Watcher(watcher)
    for look in (made.of.devices.torch, made.of.devices.last_torch, made.of.devices.last_torch):
        look()
    results = [data for kind, data in made.emitted if kind == "result"]
    assert results == [{"name": "cuda:1", "value": {"name": "GPU 1"}}]


def test_the_latest_steps_are_sent_with_their_times(watcher: ModuleType) -> None:
    one = _Watcher(watcher)
    before = time.monotonic()
    for _ in range(3):
        one.of.counters.batches.step()
    one.of.counters.batches.step(4)  # steps_per_execution
    one.of.last_report()
    one.of.last_report()  # nothing new
    for _ in range(one.of.counting.MOST_UNSENT + 500):
        one.of.counters.batches.step()
    one.of.last_report()
    sent = [data for kind, data in one.emitted if kind == "steps"]
    assert [data["counted"] for data in sent] == ["batches of Keras"] * 2
    assert [(number, steps) for _, _, number, steps in sent[0]["times"]] == [(2, 1), (3, 1), (7, 4)]
    assert len(sent[1]["times"]) == one.of.counting.MOST_UNSENT
    state = ReceivedEvents()
    for data in sent:
        line = {"t": time.monotonic(), "kind": "steps", "data": data}
        assert state.take_line(json.dumps(line).encode()) is not None
    assert not state.problems
    assert state.throughput is not None
    assert (state.throughput.counted, state.throughput.steps) == ("batches of Keras", state.steps.count)
    assert len(state.steps.latest) == 1000
    assert state.steps.latest[-1].number == 7 + one.of.counting.MOST_UNSENT + 500
    ends = [before, *(entry.t for entry in state.steps.latest), time.monotonic()]
    assert ends == sorted(ends)
    for earlier, later in pairwise(list(state.steps.latest)):
        assert later.t - later.seconds == pytest.approx(earlier.t, abs=3e-6)


@pytest.mark.parametrize(("each", "runs", "grown"), [(1, 30, 30), (1, 20, 20), (1, 19, 0), (10, 60, 0), (2, 60, 30)])
def test_a_graph_that_grows_between_the_runs_of_its_session(each: int, runs: int, grown: int) -> None:
    """Every so many runs a node is made, of a line of the program: that is known once it did 20 times."""
    frames = [SimpleNamespace(filename=f"/x/{name}", lineno=7) for name in ("train.py", "site-packages/tf/op.py")]

    class Graph:
        version = 50

        def get_operations(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(traceback=frames)] * self.version

    sessions, graph = load("_gpuwatch_steps").Sessions(None, load("_gpuwatch_program_lines")), Graph()
    frame = SimpleNamespace(f_locals={"fetch_list": ["loss"], "target_list": []})
    sessions._ran(frame, SimpleNamespace())  # a version without that
    sessions._ran(frame, SimpleNamespace(graph=graph))
    for at in range(1, runs + 1):
        graph.version += at % each == 0
        sessions._ran(frame, SimpleNamespace(graph=graph))
    assert sessions.growing() == ([runs + 1, grown, 50, 50 + grown, "train.py:7"] if grown else None)


def test_steps_of_own_loops_and_of_sessions_have_a_speed(watcher: ModuleType) -> None:
    """What ``gpuwatch try`` counts, ``run`` counts, too: the best kind that the program has."""

    class BaseSession:
        def _call_tf_sessionrun(self, fetch_list: list[str], target_list: list[str]) -> object:
            return self._session  # type: ignore[attr-defined]

    one = _Watcher(watcher)
    one.of.counters.sessions.count(SimpleNamespace(BaseSession=BaseSession))
    session = BaseSession()
    session._session = "a handle"  # type: ignore[attr-defined]
    for _ in range(20):
        assert session._call_tf_sessionrun(["loss"], ["train"]) == "a handle"
    session._call_tf_sessionrun(["summary"], [])
    one.of.last_report()
    for _ in range(30):
        one.of.counters.tapes.step()
    one.of.last_report()
    sent = [(data["counted"], data["count"]) for kind, data in one.emitted if kind == "steps" and data["has_speed"]]
    assert sent == [("runs of the session (fetches: 1, operations: 1)", 20), ("gradients of a GradientTape", 30)]
    assert one.of.progress() == 51
    one.of.reset(forked=True)
    assert one.of.progress() == 0


def test_ops_of_probes_and_of_programs_are_one_record() -> None:
    state = ReceivedEvents()
    probe = {"op": "_MklMatMul", "dtype": "float32", "requested": "/GPU:0", "actual": "/job:a/task:1/device:GPU:0"}
    program = {**probe, "op": "MatMul", "requested": "/device:GPU:0", "scope": "", "why": "", "gpu_kernel": None}
    for data in (probe, program, {**probe, "requested": "cuda", "actual": "cuda:1"}):
        line = {"t": 0.0, "kind": "placement", "data": {**data, "count": 2}}
        state.take_line(json.dumps(line).encode())
    found, _ = merge_op_counts([state.op_counts])
    assert [(one.op, one.requested, one.actual, one.count) for one in found] == [
        ("MatMul", "GPU:0", "GPU:0", 4),
        ("MatMul", "cuda", "cuda:1", 2),
    ]


def test_the_nodes_of_a_called_function_are_read_once() -> None:
    """Not once for each placed node: a model has thousands of both."""
    collected = object.__new__(load("_gpuwatch_collected_graphs").CollectedGraphs)
    nodes = iter([SimpleNamespace(name="MatMul")])
    collected.bodies, collected.library = {}, {"step": SimpleNamespace(node_def=nodes)}
    assert list(collected.body("step")) == list(collected.body("step")) == ["MatMul"]
    assert collected.body("other") is None
