"""``gpuwatch run --placement``: the requested device of every op.

For eager ops, TensorFlow's op callbacks (tensorflow/python/framework/op_callbacks.py) have both request and place, in
each thread that opened a device scope. Nodes of graphs: _gpuwatch_placed_functions.py; whose request it was:
_gpuwatch_device_scopes.py. Nothing is logged and no setting changes, so the program's output stays its own. Standard
library only, Python 3.7 or newer.
"""

import collections
import re
import sys
import threading
import time

_MAX_OP_KINDS = 2000
_IGNORED_OPS = frozenset(["_EagerConst", "Const", "Placeholder", "NoOp"])
_REFUSED = re.compile(
    r"Supported device types \[([^\]]*)\](?:.*All available devices \[([^\]]*)\])?(?:.*\[Op:(\w+)\])?", re.DOTALL
)
"""Without an op it is about a constant."""
_VARIABLE = "VarHandleOp"
_KEY_FIELDS = ("op", "dtype", "requested", "scope", "actual", "why", "gpu_kernel", "cuda_kernel", "some_type", "blamed")
_PIPELINE_OPS = (
    *("Anonymous", "DeleteIterator", "DestroyResource", "Iterator", "MakeIterator", "MultiDeviceIterator", "Optional"),
    "RemoteCall",
)


class Ops:
    """Counts ops by request and place, and copies of their inputs."""

    def __init__(self, load):
        self.kernels_of = load("_gpuwatch_kernels")
        self.kernels = {}
        self.lines = {}
        """Of eager ops that did not run on the requested GPU, the program's line of the first one."""
        self.registry = self.kernels_of.Registry()
        scopes = load("_gpuwatch_device_scopes")
        self.nothing, self.text = scopes.NO_REQUEST, scopes.device_text
        self.scopes = scopes.Scopes(self.listen, self.refused)
        self.last_error = None
        self.functions = load("_gpuwatch_placed_functions").PlacedFunctions(self.scopes, self, scopes, load)
        self.sessions = load("_gpuwatch_placed_sessions").Sessions(
            self.functions, self._refuse, load("_gpuwatch_colocation").Groups
        )
        self.problems = []
        self.emit = None
        """Sends an event (see _gpuwatch_watcher.py)."""
        self.reset()

    def reset(self):
        """Counts from 0, as in a forked process; what is known of functions and graphs stays."""
        self.counts, self.copies, self.sent = {}, {}, {}
        self.unread_op_counts = collections.Counter()
        self.uncounted_calls = 0
        self.functions.reset()
        self.sessions.unplaced_by_graph.clear()
        self.sessions.counted.clear()
        self.eager_ops = 0
        """Eager ops so far, in all threads."""
        self.eager_at = []
        """When the first and the latest of them began."""

    def begin(self):
        """Called in the thread that imports TensorFlow, usually the main thread."""
        from tensorflow.python.framework import dtypes

        self.resource = dtypes.resource
        for part in (self.scopes, self.functions, self.sessions):
            try:
                part.install()
            except (AttributeError, ImportError) as error:
                self.problems.append(
                    "placement: the devices that the program requested are not all known in this version (%s)" % error
                )
        self._listen_in_threads()
        self.listen()

    def listen(self):
        """Op callbacks are per thread."""
        from tensorflow.python.framework import op_callbacks

        if not self.scopes.local.__dict__.get("listening"):
            self.scopes.local.listening = True
            op_callbacks.add_op_callback(self.take)

    def _listen_in_threads(self):
        """A thread of Python's threading begins to listen where it notes its number, before the program's code."""
        original = threading.Thread._set_ident

        def _set_ident(this):
            original(this)
            try:
                if type(this) is not threading._DummyThread:  # a thread of TensorFlow, inside one of its calls
                    self.listen()
            except Exception as error:  # our errors must not disturb the program
                self.problems.append("placement: the ops of a thread are not known (%s)" % error)

        threading.Thread._set_ident = _set_ident

    def take(self, op_type, inputs, attrs, outputs, op_name=None, graph=None):
        """The op callback; returns None, so that TensorFlow does not change the op."""
        if graph is not None:
            return
        name = "an op"
        try:
            name = op_type.decode() if isinstance(op_type, bytes) else str(op_type)
            if self.functions.is_function(name):
                self.functions.called(name, self.scopes.now()[0], outputs[0].device if outputs else "")
                return
            if name in _IGNORED_OPS:
                return
            if "Dataset" in name:
                self._dataset(attrs)
            if _is_pipeline_op(name) and not ("Dataset" in name and self.scopes.is_the_programs_own(sys._getframe(1))):
                return
            key = self._key(name, inputs, attrs, outputs)
            frame = sys._getframe(1)
            self.eager_ops += 1
            self.eager_at = [*self.eager_at[:1], time.perf_counter()]
            self._add(
                key, lambda: dict(self.kernels_of.attribute_pairs(attrs or ())), lambda: self.scopes.caller(frame)
            )
            self._copied(name, inputs, dict(self.kernels_of.attribute_pairs(attrs or ())), key[4])
        except Exception:  # no output, or not a tensor: reported at the end
            self.unread_op_counts[name] += 1

    def _add(self, key, attributes, line=None):
        """Counts an op; of the first of a kind that did not run on a GPU, its kernels and the program's line."""
        if key in self.counts:
            self.counts[key] += 1
        elif len(self.counts) < _MAX_OP_KINDS:
            self._first(key, attributes)
            if line is not None and key in self.kernels:
                self.lines[key] = line()
            if key in self.kernels and key[2] and self.emit is not None:
                self._send(self.emit, key, 1)  # at once: SIGKILL leaves no time
            self.counts[key] = 1  # at last: from now on another thread may send it
        else:
            self.uncounted_calls += 1

    def refused(self, error, request):
        """An error that ends a device scope: without soft placement, an op that has no kernel for the device."""
        known = _REFUSED.search(str(error)) if type(error).__name__ == "InvalidArgumentError" else None
        if known is None or id(error) == self.last_error:
            return
        types, devices, op = known.groups()
        exists = request.index is None or "device:%s:%d" % request[:2] in (devices or "device:%s:%d" % request[:2])
        if exists and (op is None or request.type in types.split(", ")):
            return
        self.last_error, last = id(error), error.__traceback__
        while last.tb_next is not None:
            last = last.tb_next
        self._refuse(op or "Const", request, self.scopes.caller(last.tb_frame), exists)

    def _refuse(self, op, request, line, exists=True):
        """``exists``: whether there is the requested device."""
        key = (op, None, self.text(request), request.line or "", "", "refused" if exists else "absent")
        if key[2]:
            self._add(key, dict, lambda: line)

    def _dataset(self, attrs):
        for value in attrs or ():
            called = getattr(value, "name", value)
            called = called.decode() if isinstance(called, bytes) else called
            if isinstance(called, str):
                self.functions.used_by_data(called)

    def _key(self, name, inputs, attrs, outputs):
        """Op, type, requested device, the scope's line, device, and what it lies with."""
        resource = self.resource
        value = outputs[0] if outputs else None
        resource_input = next((tensor for tensor in inputs or () if tensor.dtype == resource), None)
        makes_resource = value is not None and value.dtype == resource
        first = value if makes_resource or resource_input is None else resource_input
        actual, dtype = first.device, first.dtype
        request, program_request = self.scopes.now()
        reason = "resource" if first is resource_input else ""
        if name == "ReadVariableOp" and request.line in self.scopes.mirrors and request.line:
            request = self.nothing  # the first value of another replica's variable
        elif request.line is None:
            # TensorFlow's own scope. It is looked through where it only names the device of the op's variable or table,
            # and where it makes one: the program sees that device.
            looked_through = (
                request.type is not None and self.scopes.same(request, actual) if reason else makes_resource
            )
            if program_request.line is None or not looked_through or (makes_resource and _is_pipeline_op(name)):
                request = self.nothing
            else:
                request, reason = program_request, reason or "framework"
        if dtype == resource:
            dtype = self.kernels_of.variable_type(attrs or ())
            if dtype is None and value is not None and not makes_resource:
                dtype = value.dtype.name
        else:
            dtype = dtype.name
        requested_device = self.text(request)
        if self.scopes.same(request, actual):
            reason = ""
        return (name, dtype, requested_device, request.line or "" if requested_device else "", actual, reason)

    def _first(self, key, attributes):
        """For the first op of each kind that did not run on a GPU: its kernels."""
        op, _, requested_device, _, actual, reason = key
        if ":GPU:" in actual and (not requested_device or requested_device.rpartition("/")[2] in actual):
            return
        self.kernels[key] = self._kernels(op, attributes)
        variable = reason == "resource" and ("Variable" in op or op.startswith("Resource"))
        types = self.kernels_of.types_of(attributes()) if variable else {}
        value_type = types.get("dtype", types.get("T"))
        if value_type is not None and self.registry.of(_VARIABLE, {"dtype": value_type})[1] is False:
            self.kernels[key] = self.registry.of(_VARIABLE, {"dtype": value_type})  # what works on it has no choice

    def _kernels(self, op, attributes):
        """``attributes``: gives an op's attributes when it is called."""
        try:
            return self.registry.of(op, self.kernels_of.types_of(attributes()))
        except Exception:  # another version of TensorFlow
            return None, None, None, None

    # Nodes of graphs

    def count(self, op, attributes, request, device, reason, line=None):
        """A placed node; ``attributes`` as in its NodeDef, ``reason``: what else than the request decides its place.

        ``line`` tells the program's line that made it."""
        if _is_pipeline_op(op) or not device:
            return
        requested_device = self.text(request)
        reason = reason if requested_device and not self.scopes.same(request, device) else ""
        key = (
            op,
            self.kernels_of.node_type(op, attributes),
            requested_device,
            request.line or "" if requested_device else "",
            device,
            reason,
        )
        self._add(key, lambda: attributes, line)

    def missing(self, op, attributes, request, devices=None):
        """Whether a node requested a GPU that TensorFlow does not have: that is known wherever it ran, and counted."""
        if not self.scopes.lacks(request, devices):
            return False
        key = (op, self.kernels_of.node_type(op, attributes), self.text(request), request.line, "", "missing")
        self._add(key, lambda: attributes)
        return True

    def has_kernel(self, op, attributes):
        """Whether an op has a kernel for some GPU; None if unknown."""
        return self._kernels(op, lambda: attributes)[0]

    def kernels_for(self, op, attributes):
        """Whether an op has a kernel for the GPUs here, and a CUDA kernel; None if unknown."""
        return self._kernels(op, lambda: attributes)[:2]

    def has_some_cuda_kernel(self, op):
        """Whether TensorFlow has a CUDA kernel of an op for any type; None if unknown."""
        return self._kernels(op, dict)[2]

    # Copies

    def _copied(self, name, inputs, attributes, device):
        """Inputs in the memory of another device, which TensorFlow copies before the op (eager/execute.cc)."""
        for index, tensor in enumerate(inputs or ()):
            if tensor.dtype == self.resource:
                continue
            source_device = tensor.backing_device
            if source_device == device or not source_device:
                continue
            key = (name, index, source_device, device)
            if key in self.copies:
                self.copies[key] += 1
            elif len(self.copies) < _MAX_OP_KINDS and (
                ":CPU:" in device or not self.in_host_memory(name, index, len(inputs), attributes)
            ):
                self.copies[key] = 1

    def in_host_memory(self, name, index, input_count, attributes):
        """Whether the GPU's kernel wants an op's input in host memory; unknown counts as so. ``input_count``: its
        inputs."""
        from tensorflow.python.framework import op_def_registry

        definition = op_def_registry.get(name)
        lists = (
            [argument for argument in definition.input_arg if argument.number_attr or argument.type_list_attr]
            if definition
            else ()
        )
        if definition is None or len(lists) > 1:
            return True
        names = []
        for argument in definition.input_arg:
            repeated = input_count - len(definition.input_arg) + 1 if lists and argument is lists[0] else 1
            names += [argument.name] * repeated
        types = self.kernels_of.types_of(attributes)
        return index >= len(names) or self.registry.in_host_memory(name, names[index], types)

    # What is sent

    def tell(self, emit):
        for key, count in list(self.counts.items()):
            new_count = count - self.sent.get(key, 0)
            if new_count:
                self._send(emit, key, new_count)
        for key, count in list(self.copies.items()):
            if count != self.sent.get(key):
                self.sent[key] = count
                op, index, source, destination = key
                emit("copied", op=op, input=index, source=source, destination=destination, count=count)
        self.functions.hops.tell(emit)
        self.functions.constants.tell(emit)
        unplaced = self.sessions.unplaced_count()
        coverage = tuple(number + unplaced for number in self.functions.coverage())
        if coverage[0] and coverage != self.sent.get("coverage"):
            self.sent["coverage"] = coverage
            emit("placement_coverage", nodes=coverage[0], unclear=coverage[1])

    def _send(self, emit, key, new_count):
        """``new_count``: calls since the kind of op was last sent."""
        self.sent[key] = self.sent.get(key, 0) + new_count
        data = dict(zip(_KEY_FIELDS, (*key, *self.kernels.get(key, (None,) * 4))))  # noqa: B905  (Python 3.7)
        data["dtype"] = data.pop("blamed") or data["dtype"]
        emit("placement", count=new_count, line=self.lines.get(key, ""), **data)

    def left_out(self):
        """What was not counted, in sentences."""
        yield from self.problems
        if self.functions.in_compiled:
            yield "placement: %d nodes are of functions that XLA compiles, each as a whole for one device" % (
                self.functions.in_compiled
            )
        if self.unread_op_counts:
            most_frequent = ", ".join("%s %d" % entry for entry in self.unread_op_counts.most_common(5))
            rest_mark = ", ..." if len(self.unread_op_counts) > 5 else ""
            total = sum(self.unread_op_counts.values())
            yield "placement: %d calls of ops without a tensor output were not counted (%s%s)" % (
                total,
                most_frequent,
                rest_mark,
            )
        if self.uncounted_calls:
            yield "placement: %d calls were not counted: more than %d kinds of op" % (
                self.uncounted_calls,
                _MAX_OP_KINDS,
            )


def _is_pipeline_op(op):
    return "Dataset" in op or op.startswith(_PIPELINE_OPS)


class PlacementStart:
    """Begins to look after the import of TensorFlow (see sitecustomize.py)."""

    def __init__(self, watcher):
        self.watcher = watcher
        self.actions = {"tensorflow": self.switch_on}

    def switch_on(self, tensorflow):
        self.watcher.ops.emit = self.watcher.emit
        self.watcher.ops.begin()
        self.watcher.emit("setting", name="placement", asked=True, effective=True, source="gpuwatch run")

    def failed(self, name, error):
        text = "placement: not possible in this version of TensorFlow (%s)" % error
        self.watcher.once(text, "note", text=text)
