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

_MOST_OPS = 2000
_PLACEHOLDERS = frozenset(["_EagerConst", "Const", "Placeholder", "NoOp"])
_REFUSED = re.compile(
    r"Supported device types \[([^\]]*)\](?:.*All available devices \[([^\]]*)\])?(?:.*\[Op:(\w+)\])?", re.DOTALL
)
"""Without an op it is about a constant."""
_VARIABLE = "VarHandleOp"
_SENT = ("op", "dtype", "requested", "scope", "actual", "why", "gpu_kernel", "cuda_kernel", "some_type", "blamed")
_PLUMBING = (
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
        self.nothing, self.text = scopes.NOTHING, scopes.text
        self.scopes = scopes.Scopes(self.listen, self.refused)
        self.last_error = None
        placed = load("_gpuwatch_placed_functions")
        self.functions = placed.PlacedFunctions(self.scopes, self, scopes, load)
        self.sessions = load("_gpuwatch_placed_sessions").Sessions(
            self.functions, placed, self._refuse, load("_gpuwatch_colocation").Groups
        )
        self.problems = []
        self.emit = None
        """Sends an event (see _gpuwatch_watcher.py)."""
        self.reset()

    def reset(self):
        """Counts from 0, as in a forked process; what is known of functions and graphs stays."""
        self.counts, self.copies, self.sent = {}, {}, {}
        self.unread = collections.Counter()
        self.beyond = 0
        self.functions.reset()
        self.sessions.unseen.clear()
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
            if name in _PLACEHOLDERS:
                return
            if "Dataset" in name:
                self._dataset(attrs)
            if _plumbing(name) and not ("Dataset" in name and self.scopes.is_the_programs_own(sys._getframe(1))):
                return
            key = self._key(name, inputs, attrs, outputs)
            frame = sys._getframe(1)
            self.eager_ops += 1
            self.eager_at = [*self.eager_at[:1], time.perf_counter()]
            self._add(key, lambda: dict(self.kernels_of.pairs(attrs or ())), lambda: self.scopes.caller(frame))
            self._copied(name, inputs, dict(self.kernels_of.pairs(attrs or ())), key[4])
        except Exception:  # no output, or not a tensor: reported at the end
            self.unread[name] += 1

    def _add(self, key, attributes, line=None):
        """Counts an op; of the first of a kind that did not run on a GPU, its kernels and the program's line."""
        if key in self.counts:
            self.counts[key] += 1
        elif len(self.counts) < _MOST_OPS:
            self._first(key, attributes)
            if line is not None and key in self.kernels:
                self.lines[key] = line()
            if key in self.kernels and key[2] and self.emit is not None:
                self._send(self.emit, key, 1)  # at once: SIGKILL leaves no time
            self.counts[key] = 1  # at last: from now on another thread may send it
        else:
            self.beyond += 1

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
        held = next((one for one in inputs or () if one.dtype == resource), None)
        makes = value is not None and value.dtype == resource
        first = value if makes or held is None else held
        actual, dtype = first.device, first.dtype
        request, below = self.scopes.now()
        why = "resource" if first is held else ""
        if name == "ReadVariableOp" and request.line in self.scopes.mirrors and request.line:
            request = self.nothing  # the first value of another replica's variable
        elif request.line is None:
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

    def _first(self, key, attributes):
        """For the first op of each kind that did not run on a GPU: its kernels."""
        op, _, asked, _, actual, why = key
        if ":GPU:" in actual and (not asked or asked.rpartition("/")[2] in actual):
            return
        self.kernels[key] = self._kernels(op, attributes)
        variable = why == "resource" and ("Variable" in op or op.startswith("Resource"))
        types = self.kernels_of.types_of(attributes()) if variable else {}
        held = types.get("dtype", types.get("T"))
        if held is not None and self.registry.of(_VARIABLE, {"dtype": held})[1] is False:
            self.kernels[key] = self.registry.of(_VARIABLE, {"dtype": held})  # what works on it has no choice

    def _kernels(self, op, attributes):
        """``attributes``: gives an op's attributes when it is called."""
        try:
            return self.registry.of(op, self.kernels_of.types_of(attributes()))
        except Exception:  # another version of TensorFlow
            return None, None, None, None

    # Nodes of graphs

    def count(self, op, attributes, request, device, why, line=None):
        """A placed node; ``attributes`` as in its NodeDef, ``why``: what else than the request decides its place.

        ``line`` tells the program's line that made it."""
        if _plumbing(op) or not device:
            return
        asked = self.text(request)
        why = why if asked and not self.scopes.same(request, device) else ""
        key = (op, self.kernels_of.node_type(op, attributes), asked, request.line or "" if asked else "", device, why)
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
        for at, one in enumerate(inputs or ()):
            if one.dtype == self.resource:
                continue
            held = one.backing_device
            if held == device or not held:
                continue
            key = (name, at, held, device)
            if key in self.copies:
                self.copies[key] += 1
            elif len(self.copies) < _MOST_OPS and (
                ":CPU:" in device or not self.in_host_memory(name, at, len(inputs), attributes)
            ):
                self.copies[key] = 1

    def in_host_memory(self, name, at, many, attributes):
        """Whether the GPU's kernel wants an op's input in host memory; unknown counts as so. ``many``: its inputs."""
        from tensorflow.python.framework import op_def_registry

        definition = op_def_registry.get(name)
        lists = [one for one in definition.input_arg if one.number_attr or one.type_list_attr] if definition else ()
        if definition is None or len(lists) > 1:
            return True
        names = []
        for one in definition.input_arg:
            repeated = many - len(definition.input_arg) + 1 if lists and one is lists[0] else 1
            names += [one.name] * repeated
        types = self.kernels_of.types_of(attributes)
        return at >= len(names) or self.registry.in_host_memory(name, names[at], types)

    # What is sent

    def tell(self, emit):
        for key, count in list(self.counts.items()):
            more = count - self.sent.get(key, 0)
            if more:
                self._send(emit, key, more)
        for key, count in list(self.copies.items()):
            if count != self.sent.get(key):
                self.sent[key] = count
                op, at, source, destination = key
                emit("copied", op=op, input=at, source=source, destination=destination, count=count)
        self.functions.hops.tell(emit)
        self.functions.constants.tell(emit)
        left = self.sessions.left()
        coverage = tuple(number + left for number in self.functions.coverage())
        if coverage[0] and coverage != self.sent.get("coverage"):
            self.sent["coverage"] = coverage
            emit("placement_coverage", nodes=coverage[0], unclear=coverage[1])

    def _send(self, emit, key, more):
        """``more``: calls since the kind of op was last sent."""
        self.sent[key] = self.sent.get(key, 0) + more
        data = dict(zip(_SENT, (*key, *self.kernels.get(key, (None,) * 4))))  # noqa: B905  (Python 3.7)
        data["dtype"] = data.pop("blamed") or data["dtype"]
        emit("placement", count=more, line=self.lines.get(key, ""), **data)

    def left_out(self):
        """What was not counted, in sentences."""
        yield from self.problems
        if self.functions.in_compiled:
            yield "placement: %d nodes are of functions that XLA compiles, each as a whole for one device" % (
                self.functions.in_compiled
            )
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


def _plumbing(op):
    return "Dataset" in op or op.startswith(_PLUMBING)


class Switches:
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
