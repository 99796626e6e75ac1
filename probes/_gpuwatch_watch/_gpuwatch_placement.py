"""``gpuwatch run --placement``: the requested device of every op.

TensorFlow's log says where an op ran, but not which device was requested. For eager ops, TensorFlow's op callbacks
(tensorflow/python/framework/op_callbacks.py) have both. Graphs are placed later by TensorFlow's placer, which logs node
names: the nodes of each traced graph are sent with their requested devices, and gpuwatch joins the two by name.
Standard library only, Python 3.7 or newer.
"""

import collections
import os
import sys
import weakref

_MOST_OPS = 2000
_MOST_NODES = 50000
_NODES_A_LINE = 2000
_OWN = tuple(os.sep + name + os.sep for name in ("tensorflow", "keras", "tf_keras"))
_PLACEHOLDERS = frozenset(["_EagerConst", "Const", "Placeholder", "NoOp"])
_CALLS = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "While": ("cond", "body"),
    "StatelessWhile": ("cond", "body"),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
}
"""Ops that call functions, with the attributes that name the functions."""
_DERIVED = "/job:localhost/"
"""A full device name is not the program's: TensorFlow took it from a tensor, a variable or a strategy."""


class Registry:
    """The kernels that are registered in this process (``TF_GetRegisteredKernelsForOp``)."""

    def __init__(self):
        self.known = {}
        self.cuda_build = None

    def of(self, op, types):
        """Whether an op has a GPU kernel here, and whether it has a CUDA kernel; None if unknown.

        ``types``: the op's type attributes as TensorFlow's numbers. On GPUs that gpuwatch simulates as a plug-in, the
        CUDA kernels of a CUDA build have the device type GPU_CUDA.
        """
        found = self.known.get(op)
        if found is None:
            found = self.known[op] = self._ask(op)
        if found is False:
            return None, None
        gpu = any(_allows(kernel, types) for kernel in found if kernel.device_type in ("GPU", "DEFAULT"))
        if "GPUWATCH_SIM_STATE" not in os.environ or "TF_PLUGGABLE_DEVICE_LIBRARY_PATH" not in os.environ:
            return gpu, gpu
        if not self.cuda_build:
            return gpu, None
        return gpu, any(_allows(kernel, types) for kernel in found if kernel.device_type in ("GPU_CUDA", "DEFAULT"))

    def cuda_types(self, op):
        """Names of the types for which TensorFlow has a CUDA kernel of an op; None in a CPU build."""
        from tensorflow.python.framework import dtypes

        found = self._ask(op)
        if not found or not self.cuda_build:
            return None
        types = set()
        for kernel in found:
            if kernel.device_type == "GPU_CUDA":
                allowed = [number for one in kernel.constraint for number in one.allowed_values.list.type]
                types.update([dtypes.as_dtype(number).name for number in allowed] or ["any type"])
        return sorted(types)

    def _ask(self, op):
        from tensorflow.python.framework import kernels

        if self.cuda_build is None:
            self.cuda_build = bool(sys.modules["tensorflow"].test.is_built_with_cuda())
        try:
            return list(kernels.get_registered_kernels_for_op(op).kernel)
        except Exception:  # no such op in this version
            return False


def _allows(kernel, types):
    for constraint in kernel.constraint:
        wanted = types.get(constraint.name)
        if wanted is not None and wanted not in constraint.allowed_values.list.type:
            return False
    return True


class Ops:
    """Counts eager ops, and reads the program's graphs."""

    def __init__(self):
        self.counts = {}
        self.asked = {}
        """Device in TensorFlow's context to the device that the program requested, for ops where they differ."""
        self.kernels = {}
        self.sent = {}
        self.unread = collections.Counter()
        self.beyond = 0
        self.registry = Registry()
        self.graphs = {}
        """By id() of a graph: a weak reference, its number, and how many of its nodes were sent."""
        self.number = 0
        self.nodes = 0
        self.nodes_left_out = 0
        self.functions = set()
        self.pending = []

    def begin(self):
        """Called in the thread that imports TensorFlow, usually the main thread."""
        from tensorflow.python.eager import context
        from tensorflow.python.framework import dtypes, op_callbacks

        self.context = context.context()
        self.resource = dtypes.resource
        op_callbacks.add_op_callback(self.take)

    def take(self, op_type, inputs, attrs, outputs, op_name=None, graph=None):
        """The op callback; returns None, so that TensorFlow does not change the op."""
        name = "an op"
        try:
            if graph is not None:
                self._know(graph)
                return
            name = op_type.decode() if isinstance(op_type, bytes) else str(op_type)
            if name.startswith("__"):
                if name not in self.functions:
                    self.functions.add(name)
                    self.read_graphs()
                return
            if name in _PLACEHOLDERS:
                return
            first = outputs[0] if outputs else None
            held = inputs[0] if inputs else None
            asked = self.context.device_name or ""
            if held is not None and held.dtype == self.resource:
                asked = ""  # it runs on its variable's device, whatever was requested
                first = held if first is None else first
            dtype = first.dtype
            dtype = _held_type(attrs) if dtype == self.resource else dtype.name
            key = (name, dtype, asked, first.device)
        except Exception:  # no output, or not a tensor: reported at the end
            self.unread[name] += 1
            return
        if key in self.counts:
            self.counts[key] += 1
        elif len(self.counts) < _MOST_OPS:
            self.counts[key] = 1
            self._first(key, attrs)
        else:
            self.beyond += 1

    def _first(self, key, attrs):
        """For the first op of each kind that did not run on a GPU: the real request, and its kernels."""
        op, _, asked, actual = key
        moved = asked and asked.rpartition("device:")[2] != actual.rpartition("device:")[2]
        if moved and not _by_the_program(sys._getframe(2)):
            self.asked[key] = ""
        if ":GPU:" in actual and not moved:
            return
        try:
            self.kernels[key] = self.registry.of(op, _types(dict(_pairs(attrs))))
        except Exception:  # another version of TensorFlow
            self.kernels[key] = (None, None)

    # Graphs

    def _know(self, graph):
        known = self.graphs.get(id(graph))
        if known is None or known[0]() is not graph:
            self.number += 1
            self.graphs[id(graph)] = [weakref.ref(graph), self.number, 0]

    def read_graphs(self):
        """Notes the new nodes of all graphs, for :meth:`tell`."""
        for key, entry in list(self.graphs.items()):
            graph = entry[0]()
            if graph is None:
                self.graphs.pop(key, None)
            else:
                self._read(graph, entry)

    def _read(self, graph, entry):
        operations = graph.get_operations()
        if len(operations) <= entry[2]:
            return
        new, entry[2] = operations[entry[2] :], len(operations)
        for name, function in list(getattr(graph, "_functions", {}).items()):
            body = getattr(function, "_cached_graph", None) or getattr(function, "_graph", None)
            if body is not None:
                self._know(body)
                known = self.graphs[id(body)]
                self.pending.append({"function": str(name), "graph": known[1]})
                self._read(body, known)
        kinds, nodes, calls = {}, {}, {}
        for op in new:
            if self.nodes >= _MOST_NODES:
                self.nodes_left_out += 1
                continue
            self.nodes += 1
            try:
                nodes[op.name] = kinds.setdefault(self._kind(op), len(kinds))
                if op.type in _CALLS:
                    calls[op.name] = [op.get_attr(attribute).name for attribute in _CALLS[op.type]]
            except Exception:  # it cannot be described, so it cannot be joined
                self.nodes_left_out += 1
            if len(nodes) >= _NODES_A_LINE:
                self.pending.append({"graph": entry[1], "kinds": list(kinds), "nodes": nodes, "calls": calls})
                kinds, nodes, calls = {}, {}, {}
        if nodes:
            self.pending.append({"graph": entry[1], "kinds": list(kinds), "nodes": nodes, "calls": calls})

    def _kind(self, op):
        """Op, type, requested device, and whether there are GPU kernels."""
        outputs, inputs = op.outputs, op.inputs
        dtype = outputs[0].dtype if outputs else self.resource
        if dtype == self.resource:
            try:
                dtype = op.get_attr("dtype")  # of the variable
            except ValueError:
                dtype = None
        dtype = dtype.name if dtype is not None else None
        asked = op.device or ""
        if asked and (asked.startswith(_DERIVED) or (len(inputs) and inputs[0].dtype == self.resource)):
            asked = ""
        key = (op.type, dtype, asked)
        if key not in self.kernels:
            try:
                self.kernels[key] = self.registry.of(op.type, _types(op.node_def.attr))
            except Exception:  # another version of TensorFlow
                self.kernels[key] = (None, None)
        return (*key, *self.kernels[key])

    # What is sent

    def tell(self, emit):
        self.read_graphs()
        while self.pending:
            emit("graph", **self.pending.pop(0))
        for key, count in list(self.counts.items()):
            more = count - self.sent.get(key, 0)
            if more:
                self.sent[key] = count
                op, dtype, asked, actual = key
                gpu, cuda = self.kernels.get(key, (None, None))
                emit(
                    "placed",
                    op=op,
                    dtype=dtype,
                    requested=self.asked.get(key, asked),
                    actual=actual,
                    count=more,
                    gpu_kernel=gpu,
                    cuda_kernel=cuda,
                )

    def left_out(self):
        """What was not counted, in sentences."""
        if self.unread:
            most = ", ".join("%s %d" % entry for entry in self.unread.most_common(5))
            more = ", ..." if len(self.unread) > 5 else ""
            total = sum(self.unread.values())
            yield "placement: %d calls of ops without a tensor output were not counted (%s%s)" % (
                total,
                most,
                more,
            )
        if self.beyond:
            yield "placement: %d calls were not counted: more than %d kinds of op" % (self.beyond, _MOST_OPS)
        if self.nodes_left_out:
            yield "placement: %d graph nodes could not be read, or came after the first %d" % (
                self.nodes_left_out,
                _MOST_NODES,
            )


def _types(attributes):
    """Type attributes of an eager op (numbers or DType) or a NodeDef (AttrValue), as TensorFlow's numbers."""
    found = {}
    for name in attributes:
        value = attributes[name]
        number = getattr(value, "type", value)  # AttrValue
        number = getattr(number, "as_datatype_enum", number)  # DType
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            found[name.decode() if isinstance(name, bytes) else name] = number
    return found


def _held_type(attrs):
    """The type of a variable's value, from the op's attribute."""
    from tensorflow.python.framework import dtypes

    for name, value in _pairs(attrs):
        if name in ("dtype", b"dtype"):
            return dtypes.as_dtype(value).name
    return None


def _pairs(attrs):
    """Pairs of an op callback's attributes, which alternate names and values."""
    return [(attrs[at], attrs[at + 1]) for at in range(0, len(attrs) - 1, 2)]


def _by_the_program(frame):
    """Whether the program opened the device scope: no function of the framework on the stack opens one."""
    while frame is not None:
        code = frame.f_code
        if not any(part in code.co_filename for part in _OWN):
            return True
        if "device" in code.co_names or "colocate_with" in code.co_names:
            return False
        frame = frame.f_back
    return False


class Switches:
    """Switches TensorFlow's logging on after its import (see sitecustomize.py)."""

    def __init__(self, watcher):
        self.watcher = watcher
        self.actions = {"tensorflow": self.switch_on}

    def switch_on(self, tensorflow):
        tensorflow.debugging.set_log_device_placement(True)
        _sessions()
        self.watcher.ops.begin()
        _copies(tensorflow)
        self.watcher.emit("setting", name="placement logging", asked=True, effective=True, source="gpuwatch run")

    def failed(self, name, error):
        text = "placement: not possible in this version of TensorFlow (%s)" % error
        self.watcher.once(text, "note", text=text)


def _copies(tensorflow):
    """Makes TensorFlow log copies of eager ops' inputs from another device (device policy ``warn``)."""
    offered = getattr(tensorflow.config.experimental, "set_device_policy", None)
    if offered is not None:
        offered("warn")


def _sessions():
    """Switches placement logging on in each TF1 session's configuration.

    Where the session passes it to the C API, after it was checked: none of our frames can be in a traceback, and the
    signature of Session does not change.
    """
    interface = sys.modules.get("tensorflow.python.client.pywrap_tf_session")
    original = getattr(interface, "TF_NewSessionOptions", None)
    if original is None:
        return

    def TF_NewSessionOptions(target=None, config=None):  # noqa: N802 - TensorFlow's own name
        if config is not None:
            wanted = type(config)()
            wanted.CopyFrom(config)
            wanted.log_device_placement = True
            config = wanted
        return original(target=target, config=config)

    interface.TF_NewSessionOptions = TF_NewSessionOptions
