"""``gpuwatch run --placement``: the requested device of every op.

TensorFlow's log says where an op ran, but not which device was requested. For eager ops, TensorFlow's op callbacks
(tensorflow/python/framework/op_callbacks.py) have both, in each thread that opened a device scope. Graphs:
_gpuwatch_traced_graphs.py; whose request it was: _gpuwatch_device_scopes.py. Standard library only, Python 3.7 or
newer.
"""

import collections
import sys
import time

_MOST_OPS = 2000
_PLACEHOLDERS = frozenset(["_EagerConst", "Const", "Placeholder", "NoOp"])
_PLUMBING = ("Anonymous", "DeleteIterator", "Iterator", "MultiDeviceIterator", "Optional", "RemoteCall")


class Ops:
    """Counts eager ops, and reads the program's graphs."""

    def __init__(self, load):
        self.kernels_of = load("_gpuwatch_kernels")
        self.text = None
        self.counts = {}
        self.kernels = {}
        self.sent = {}
        self.unread = collections.Counter()
        self.beyond = 0
        self.registry = self.kernels_of.Registry()
        scopes = load("_gpuwatch_device_scopes")
        self.nothing, self.text = scopes.NOTHING, scopes.text
        self.scopes = scopes.Scopes(self.listen)
        self.graphs = load("_gpuwatch_traced_graphs").Graphs(self.scopes, self.describe, self.text)
        self.problems = []

    def begin(self):
        """Called in the thread that imports TensorFlow, usually the main thread."""
        from tensorflow.python.framework import dtypes

        self.resource = dtypes.resource
        for part in (self.scopes, self.graphs):
            try:
                part.install()
            except (AttributeError, ImportError) as error:
                self.problems.append(
                    "placement: the devices that the program requested are not all known in this version (%s)" % error
                )
        self.listen()

    def listen(self):
        """Op callbacks are per thread."""
        from tensorflow.python.framework import op_callbacks

        if not self.scopes.local.__dict__.get("listening"):
            self.scopes.local.listening = True
            op_callbacks.add_op_callback(self.take)

    def take(self, op_type, inputs, attrs, outputs, op_name=None, graph=None):
        """The op callback; returns None, so that TensorFlow does not change the op."""
        if graph is not None:
            return
        name = "an op"
        try:
            name = op_type.decode() if isinstance(op_type, bytes) else str(op_type)
            local = self.scopes.local.__dict__
            since, local["last"] = local.get("last", 0.0), time.time()
            if name.startswith("__") or name in self.graphs.functions:
                self.graphs.call(name, self.scopes.now()[0], since)
                return
            if name in _PLACEHOLDERS:
                return
            if "Dataset" in name:
                self._dataset(attrs, since)
            key = self._key(name, inputs, attrs, outputs)
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

    def _dataset(self, attrs, since):
        for value in attrs or ():
            called = getattr(value, "name", value)
            called = called.decode() if isinstance(called, bytes) else called
            if isinstance(called, str) and called in self.graphs.functions:
                self.graphs.dataset(called, since)

    def _key(self, name, inputs, attrs, outputs):
        """Op, type, requested device, the scope's line, device, and what it lies with."""
        resource = self.resource
        value = outputs[0] if outputs else None
        held = next((one for one in inputs or () if one.dtype == resource), None)
        makes = value is not None and value.dtype == resource
        first = value if makes or held is None else held
        actual, dtype = first.device, first.dtype
        request, below = self.scopes.now()
        why = "resource" if first is held else ""
        if request.line is None:
            # TensorFlow's own scope. It is looked through where it only names the device of the op's variable or table,
            # and where it makes one: the program sees that device.
            through = request.type is not None and self.scopes.same(request, actual) if why else makes
            if below.line is None or not through or (makes and _plumbing(name)):
                request = self.nothing
            else:
                request, why = below, why or "framework"
        if dtype == resource:
            dtype = self.kernels_of.held_type(attrs or ())
            if dtype is None and value is not None and not makes:
                dtype = value.dtype.name
        else:
            dtype = dtype.name
        asked = self.text(request)
        if self.scopes.same(request, actual):
            why = ""
        return (name, dtype, asked, request.line or "" if asked else "", actual, why)

    def _first(self, key, attrs):
        """For the first op of each kind that did not run on a GPU: its kernels."""
        op, _, asked, _, actual, why = key
        if why == "resource" or (":GPU:" in actual and (not asked or asked.rpartition("/")[2] in actual)):
            return
        try:
            self.kernels[key] = self.registry.of(op, self.kernels_of.types_of(dict(self.kernels_of.pairs(attrs))))
        except Exception:  # another version of TensorFlow
            self.kernels[key] = (None, None, None)

    def describe(self, op, request):
        """Of a node: op, type, requested device, the scope's line, what it lies with, and whether there are kernels."""
        outputs, inputs = op.outputs, op.inputs
        dtype = outputs[0].dtype if outputs else self.resource
        held = any(one.dtype == self.resource for one in inputs)
        if dtype == self.resource:
            try:
                dtype = op.get_attr("dtype")  # of the variable
            except ValueError:
                dtype = None
        dtype = dtype.name if dtype is not None else None
        asked = self.text(request) if request is not None else ""
        line = request.line or "" if asked else ""
        key = (op.type, dtype, asked, line, "resource" if held else "")
        if key not in self.kernels:
            try:
                self.kernels[key] = self.registry.of(op.type, self.kernels_of.types_of(op.node_def.attr))
            except Exception:  # another version of TensorFlow
                self.kernels[key] = (None, None, None)
        gpu, cuda, blamed = self.kernels[key]
        return (op.type, blamed or dtype, asked, line, key[4], gpu, cuda)

    # What is sent

    def tell(self, emit):
        self.graphs.tell(emit)
        for key, count in list(self.counts.items()):
            more = count - self.sent.get(key, 0)
            if more:
                self.sent[key] = count
                op, dtype, asked, line, actual, why = key
                gpu, cuda, blamed = self.kernels.get(key, (None, None, None))
                emit(
                    "placed",
                    op=op,
                    dtype=blamed or dtype,
                    requested=asked,
                    scope=line,
                    why=why,
                    actual=actual,
                    count=more,
                    gpu_kernel=gpu,
                    cuda_kernel=cuda,
                )

    def left_out(self):
        """What was not counted, in sentences."""
        yield from self.problems
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
        yield from self.graphs.left()


def _plumbing(op):
    return "Dataset" in op or op.startswith(_PLUMBING)


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
