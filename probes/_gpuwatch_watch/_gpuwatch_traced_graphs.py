"""The nodes of the program's graphs with the devices that it requested, and when its functions were placed.

TensorFlow's placer logs node names without the graph. So each node is sent as it is made, and each first call of a
function with its thread and time: gpuwatch joins the two. Graphs themselves are not kept. Standard library only,
Python 3.7 or newer.
"""

import collections
import itertools
import os
import sys
import threading
import time
import weakref

_MOST_NODES = 50000
_NODES_A_LINE = 2000
_MOST_CALLS = 5000
_CALLS = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "While": ("cond", "body"),
    "StatelessWhile": ("cond", "body"),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
}
"""Ops that call functions, with the attributes that name the functions."""
_CASES = frozenset(["Case", "StatelessCase"])


class Graphs:
    """Graphs by number. What is to be sent waits in ``pending``; any thread may add to it."""

    def __init__(self, scopes, describe, text):
        """``describe(op, request)``: what is sent of a node; ``text(request)``: its device."""
        self.scopes, self.describe, self.text = scopes, describe, text
        self.numbers = weakref.WeakKeyDictionary()
        self.names = weakref.WeakKeyDictionary()
        """Names of the nodes of each graph that was not called yet."""
        self.functions = {}
        self.next = itertools.count(1)
        self.pending = collections.deque()
        self.nodes = self.left_out = 0
        self.called = set()
        self.parent_thread = self.forking_thread = None
        self.begun = time.time()

    def install(self):
        """Raises AttributeError if this version of TensorFlow has other names."""
        from tensorflow.python.client import session
        from tensorflow.python.eager.polymorphic_function import atomic_function
        from tensorflow.python.framework import ops

        self._watch_nodes(ops.Graph)
        self._watch_functions(atomic_function.AtomicFunction)
        self._watch_sessions(session.BaseSession)
        os.register_at_fork(before=self._before_fork, after_in_child=self._after_fork)

    def _before_fork(self):
        self.forking_thread = _thread_number()

    def _after_fork(self):
        """TensorFlow's log keeps the thread's number of before the fork."""
        self.parent_thread = self.forking_thread
        self.called.clear()
        self.begun = time.time()

    def _watch_nodes(self, graph):
        original = graph._snapshot_colocation_stack_metadata

        def _snapshot_colocation_stack_metadata(this):
            try:
                frame = sys._getframe(1)
                if frame.f_code.co_name == "_create_op_helper":
                    known = frame.f_locals
                    self._add(this, known["op"], known["compute_device"])
            except Exception:  # it cannot be described, so it cannot be joined
                self.left_out += 1
            return original(this)

        graph._snapshot_colocation_stack_metadata = _snapshot_colocation_stack_metadata

    def _watch_functions(self, function):
        original = function.__init__

        def __init__(this, *args, **kwargs):  # noqa: N807
            original(this, *args, **kwargs)
            try:
                name, graph = this.name, this._cached_graph
                name = name.decode() if isinstance(name, bytes) else name
                if graph is not None:
                    number = self.number(graph)
                    self.functions[name] = (number, weakref.ref(graph))
                    self.pending.append(("function", name, number))
            except Exception:  # our errors must not disturb the program
                return

        function.__init__ = __init__

    def _watch_sessions(self, session):
        """A session's graph is placed when it is extended, just before each run."""
        session._extend_graph = _Noticed(session._extend_graph, self._session_begins)
        session._call_tf_sessionrun = _Noticed(session._call_tf_sessionrun, self._session_runs)

    def _session_begins(self, session):
        self.scopes.local.session = time.time()

    def _session_runs(self, session):
        """The graph was placed since it began, if it has nodes that were not placed before."""
        graph = session.graph
        self.complete(graph)
        key = (id(session), self.number(graph), len(graph.get_operations()))
        since = self.scopes.local.__dict__.get("session")
        if key not in self.called and since is not None:
            self._window(key, self.number(graph), since, time.time(), "", "", "session")

    def number(self, graph):
        found = self.numbers.get(graph)
        if found is None:
            found = self.numbers[graph] = next(self.next)
            self.names[graph] = set()
        return found

    def _add(self, graph, op, scoped):
        number = self.number(graph)
        if self.nodes >= _MOST_NODES:
            self.left_out += 1
            return
        self.nodes += 1
        names = self.names.get(graph)
        if names is not None:
            names.add(op.name)
        request = self.scopes.of_node(graph, op) if scoped else None
        self.pending.append(("node", number, op.name, self.describe(op, request), _called_by(op)))

    def complete(self, graph):
        """Adds the nodes that TensorFlow made without Python, as when it loads a model."""
        names = self.names.pop(graph, None)
        operations = graph.get_operations() if names is not None else ()
        if len(operations) == len(names or ()):
            return
        for op in operations:
            if op.name not in names:
                try:
                    self._add(graph, op, False)
                except Exception:  # it cannot be described, so it cannot be joined
                    self.left_out += 1

    # When functions are placed

    def call(self, name, request, since):
        """A function was called in this thread after ``since``: it is placed when first called on a device."""
        key = (name, request)
        if key in self.called:
            return
        known = self.functions.get(name)
        graph = known[1]() if known is not None else None
        if graph is None:
            return
        self._complete_all(graph, set())
        line = request.line or "" if self.text(request) else ""
        self._window(key, known[0], since, time.time(), self.text(request), line, "call")

    def dataset(self, name, since):
        """A function of a dataset that was made after ``since``; placed when an iterator is made, by any thread."""
        known = self.functions.get(name)
        graph = known[1]() if known is not None else None
        if graph is not None:
            self._complete_all(graph, set())
            self._window(None, known[0], since, None, "", "", "dataset")

    def _complete_all(self, graph, seen):
        if id(graph) in seen:
            return
        seen.add(id(graph))
        self.complete(graph)
        for name in list(getattr(graph, "_functions", ())):
            known = self.functions.get(name.decode() if isinstance(name, bytes) else name)
            body = known[1]() if known is not None else None
            if body is not None:
                self._complete_all(body, seen)

    def _window(self, key, number, start, end, device, line, kind):
        if len(self.called) >= _MOST_CALLS:
            return
        self.called.add(key if key is not None else len(self.called))
        threads = [_thread_number()]
        if self.parent_thread is not None:
            threads.append(self.parent_thread)
        self.pending.append(
            (
                "call",
                {
                    **{"graph": number, "threads": threads, "start": max(start, self.begun), "end": end},
                    **{"requested": device, "scope": line, "how": kind},
                },
            )
        )

    # What is sent

    def tell(self, emit):
        batch = []
        while self.pending:
            one = self.pending.popleft()
            if one[0] == "node":
                if batch and (batch[0][1] != one[1] or len(batch) >= _NODES_A_LINE):
                    _emit_nodes(emit, batch)
                    batch = []
                batch.append(one)
                continue
            if batch:
                _emit_nodes(emit, batch)
                batch = []
            if one[0] == "function":
                emit("graph", function=one[1], graph=one[2])
            else:
                emit("called", **one[1])
        if batch:
            _emit_nodes(emit, batch)

    def left(self):
        """What could not be sent, in a sentence."""
        if self.left_out:
            yield "placement: %d graph nodes could not be read, or came after the first %d" % (
                self.left_out,
                _MOST_NODES,
            )


class _Noticed:
    """A method, with a look at its object just before it is called: it adds no frame to the program's tracebacks."""

    def __init__(self, method, look):
        self.method, self.look = method, look

    def __get__(self, instance, owner=None):
        if instance is not None:
            try:
                self.look(instance)
            except Exception:  # our errors must not disturb the program
                return self.method.__get__(instance, owner)
        return self.method.__get__(instance, owner)


def _emit_nodes(emit, batch):
    kinds, nodes, calls = {}, {}, {}
    for _, _, name, kind, called in batch:
        nodes[name] = kinds.setdefault(kind, len(kinds))
        if called:
            calls[name] = called
    emit("graph", graph=batch[0][1], kinds=list(kinds), nodes=nodes, calls=calls)


def _called_by(op):
    """Names of the functions that a node calls."""
    if op.type in _CALLS:
        return [op.get_attr(attribute).name for attribute in _CALLS[op.type]]
    if op.type in _CASES:
        return [branch.name for branch in op.get_attr("branches")]
    return []


def _thread_number():
    return threading.get_native_id() if hasattr(threading, "get_native_id") else 0  # Python 3.8
