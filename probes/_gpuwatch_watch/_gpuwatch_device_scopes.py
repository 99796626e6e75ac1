"""Which device the program requested with ``tf.device``, and on which of its lines.

TensorFlow and Keras open device scopes too, so each scope is noted with its owner: the first frame outside of their
folders. Nothing of the program runs inside of what is replaced here, so no frame of ours is in a traceback. Standard
library only, Python 3.7 or newer.
"""

import collections
import contextlib
import importlib.util
import os
import sys
import threading

Request = collections.namedtuple("Request", "type index line")
"""``line``: ``train.py:12`` of the program's scope; None if TensorFlow itself asks for the device, or nobody does."""
NO_REQUEST = Request(None, None, None)
UNKNOWN = Request("unknown", None, None)
"""Somebody asked for a device, and it cannot be told who."""
COPY = "copy"
"""In place of a line: of a node that TensorFlow copies with another graph, whose line is the original node's."""
_SCOPE_FORWARDERS = frozenset(
    ["device", "device_v2", "combined", "init_scope", "colocate_with", "_colocate_with_for_gradient"]
)
"""Functions of TensorFlow's ops.py that open a scope for their caller."""
_RESOURCE_FILES = (
    "resource_variable_ops.py",
    "ref_variable.py",
    "variables.py",
    "data_flow_ops.py",
    os.path.join("trackable", "resource.py"),
)
"""Files of TensorFlow whose scopes put an op where its variable, table or queue is. Others, as those of strategies,
checkpoints and summaries, place what TensorFlow makes for itself: what the program requested outside is not meant.
"""
_MIRROR_FUNCTION = "_real_mirrored_creator"
"""TensorFlow's function (distribute/mirrored_strategy.py) that makes a variable on each device of a strategy."""
_GRAPH_COPYING_FILES = ("control_flow_util_v2.py", "atomic_function.py")
"""Files of TensorFlow that import graphs of this process again, for gradients."""


class Scopes:
    """The device scopes of each thread, and of graphs."""

    def __init__(self, entered, failed):
        """``entered``: called in each thread when it opens its first scope; ``failed``: with an exception that ends a
        scope, and its request."""
        self.entered = entered
        self.failed = failed
        self.local = threading.local()
        self.parsed = {}
        self.mirrors = set()
        """The program's lines that make a variable on each device of a strategy."""
        self.folders = ()
        self.through = frozenset()

    def install(self):
        """Raises AttributeError if this version of TensorFlow has other names."""
        from tensorflow.python.eager import context
        from tensorflow.python.framework import device, importer, ops, traceable_stack
        from tensorflow.python.util import tf_contextlib, tf_stack

        self.device_spec = device.DeviceSpec
        self.extract_stack = tf_stack.extract_stack
        specs = [importlib.util.find_spec(name) for name in ("tensorflow", "keras", "tf_keras")]
        self.folders = tuple(os.path.dirname(spec.origin) + os.sep for spec in specs if spec and spec.origin)
        self.ops_file = ops.__file__
        self.importer = importer.__file__
        own_file = sys._getframe().f_code.co_filename
        self.through = frozenset(
            [contextlib.__file__, tf_contextlib.__file__, traceable_stack.__file__, ops.__file__, own_file]
        )
        scope = context._EagerDeviceContext
        self._eager(context.Context, scope.__enter__.__code__, scope.__exit__.__code__)
        self._graphs(traceable_stack.TraceableStack, ops._UserDeviceSpec)

    def _eager(self, context, enter, leave):
        """Each scope of eager mode sets the device when it begins, after checks, and when it ends."""
        original = context._set_device

        def _set_device(this, device_name, device_spec):
            original(this, device_name, device_spec)
            try:
                frame = sys._getframe(1)
                if frame.f_code is enter:
                    self._begin(frame.f_locals["self"]._device_name, frame.f_back)
                elif frame.f_code is leave:
                    error = frame.f_locals["ex_info"][1]
                    if error is not None:
                        self.failed(error, self.now()[0])
                    self._end()
            except Exception:  # our errors must not disturb the program
                self.local.scopes = []

        context._set_device = _set_device

    def _begin(self, name, frame):
        local = self.local.__dict__
        stack = local.setdefault("scopes", [])
        stack.append((name, *self.opened(frame)))
        self._changed(stack)
        if "entered" not in local:
            local["entered"] = True
            self.entered()

    def _end(self):
        stack = self.local.__dict__.get("scopes")
        if stack:
            stack.pop()
            self._changed(stack)

    def _changed(self, stack):
        local = self.local
        local.request = self.merged(stack)
        local.below = NO_REQUEST
        if local.request.line is None and any(line for _, line, _ in stack):
            innermost_own = max(
                (index for index, (name, _, is_internal) in enumerate(stack) if is_internal and name), default=-1
            )
            local.below = self.merged([scope for scope in stack[innermost_own + 1 :] if scope[1] is not None])

    def now(self):
        """This thread's request in eager mode; and the program's own, where TensorFlow opened a scope within it."""
        local = self.local.__dict__
        return local.get("request", NO_REQUEST), local.get("below", NO_REQUEST)

    def _graphs(self, stack, spec):
        """Graphs keep their scopes in a stack; whose each one is, is noted at the scope itself."""
        original = stack.push_obj

        def push_obj(this, obj, offset=0):
            result = original(this, obj, offset + 1)
            try:
                if isinstance(obj, spec):
                    obj._gpuwatch_line = self.opened(sys._getframe(1))[0]
            except Exception:  # our errors must not disturb the program
                return result
            return result

        stack.push_obj = push_obj

    def of_node(self, graph, op):
        """What was requested for a node that its graph is adding."""
        scopes = []
        for spec in reversed(list(graph._device_function_stack.peek_objs())):
            device_or_function = spec._device_name_or_function
            name = device_or_function if device_or_function is None or callable(device_or_function) else spec.raw_string
            scopes.append((name, getattr(spec, "_gpuwatch_line", None), False))
        request = self.merged(scopes)
        if request.type == "function":
            kind, index = self.parse(op.device) if op.device else (None, None)
            return Request(kind, index, request.line if kind else None)
        return request

    def merged(self, scopes):
        """The request of nested scopes, as of :meth:`opened` with their names, the outermost first: the innermost that
        names a type counts.
        """
        device_type = index = line = None
        for name, owner, _ in scopes:
            if name is None:
                device_type = index = line = None
            elif not isinstance(name, str):
                device_type, index, line = "function", None, owner
            else:
                inner_type, inner_index = self.parse(name)
                if inner_type is not None:
                    index = inner_index if inner_index is not None or device_type != inner_type else index
                    device_type, line = inner_type, owner
                elif inner_index is not None:
                    index, line = inner_index, owner
        return Request(device_type, index, line)

    def parse(self, name):
        """Device type and index of a device's name; None for what it leaves open."""
        parsed = self.parsed.get(name)
        if parsed is None:
            if len(self.parsed) > 1000:
                self.parsed.clear()
            device_spec = self.device_spec.from_string(name)
            device_type = device_spec.device_type.upper() if device_spec.device_type not in (None, "*") else None
            parsed = self.parsed[name] = (device_type, device_spec.device_index)
        return parsed

    def lacks(self, request, devices=None):
        """Whether a GPU was requested that is not among the GPUs of a session (``devices``), else of the process."""
        if devices is None:
            context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
            devices = getattr(context, "_logical_devices", None) or ()
        gpu_indices = [self.parse(device.name)[1] for device in devices if device.device_type == "GPU"]
        return (
            request.type == "GPU"
            and request.line is not None
            and gpu_indices != []
            and request.index not in (None, *gpu_indices)
        )

    def strategy_made(self, frame, extended):
        """A OneDeviceStrategy has its device, by the program's line in or around ``frame``."""
        extended._gpuwatch_line = self.caller(frame)

    def _of_strategy(self, extended):
        """The program's line that has given a OneDeviceStrategy a GPU which does not exist; None for one that does."""
        line = getattr(extended, "_gpuwatch_line", None)
        return line if line and self.lacks(Request(*self.parse(extended._device), line)) else None

    def same(self, request, actual):
        """Whether an op on the device ``actual`` is where it was requested, as far as that says."""
        device_type, index = self.parse(actual) if actual else (None, None)
        if device_type is None or request.type in (None, "function", UNKNOWN.type):
            return True
        return device_type == request.type and (request.index is None or index is None or index == request.index)

    def opened(self, frame):
        """The program's line that opened a scope, None if TensorFlow or Keras did; whether for something of its own."""
        while frame is not None and self._passes_on(frame.f_code):
            if frame.f_code.co_name == "init_scope":  # passes on a scope of the graph
                return getattr(frame.f_locals.get("device_spec"), "_gpuwatch_line", None), False
            frame = frame.f_back
        if frame is None:
            return None, False
        name, line = frame.f_code.co_filename, frame.f_lineno
        if "__autograph_generated_file" in name:  # AutoGraph's copy of the program's function
            name, line = self._source(name, line)
        if name == self.importer:
            return self._loaded(frame), False
        if frame.f_code.co_name == _MIRROR_FUNCTION:
            line = self._own_line(frame)
            self.mirrors.add(line)
            return line, True
        if name.startswith(self.folders):
            if name.endswith("one_device_strategy.py"):
                return self._of_strategy(frame.f_locals.get("self")), True
            return None, not name.endswith(_RESOURCE_FILES)
        return "%s:%d" % (os.path.basename(name), line), False

    def caller(self, frame):
        """The innermost line that is not TensorFlow's or ours; empty if there is none."""
        while frame is not None:
            if self._is_the_programs(frame.f_code.co_filename):
                return "%s:%d" % (os.path.basename(frame.f_code.co_filename), frame.f_lineno)
            frame = frame.f_back
        return ""

    def made_at(self, frame_summaries):
        """The same of a node's traceback, as TensorFlow keeps it; it has none of an imported node."""
        own_frames = [frame for frame in frame_summaries or () if self._is_the_programs(frame.filename)]
        return "%s:%d" % (os.path.basename(own_frames[-1].filename), own_frames[-1].lineno) if own_frames else ""

    def _is_the_programs(self, name):
        is_own = os.path.basename(name).startswith("_gpuwatch_")
        return not is_own and name not in self.through and not name.startswith((*self.folders, "<frozen"))

    def is_the_programs_own(self, frame):
        """Whether the program makes an op of tf.data in its own scope: Keras makes others within, for fit()."""
        return self.now()[0].line is not None and self._own_line(frame) is not None

    def _own_line(self, frame):
        """The program's line that makes a variable; None if Keras makes it, for the program or for itself."""
        tensorflow = self.folders[:1]
        while frame is not None and (frame.f_code.co_filename in self.through or self._in(frame, tensorflow)):
            frame = frame.f_back
        is_program_line = frame is not None and not self._in(frame, self.folders)
        return "%s:%d" % (os.path.basename(frame.f_code.co_filename), frame.f_lineno) if is_program_line else None

    @staticmethod
    def _in(frame, folders):
        return frame.f_code.co_filename.startswith(folders)

    def _loaded(self, frame):
        """The program's line that loads a graph whose nodes name devices; COPY for TensorFlow's own copy of a graph."""
        while frame is not None:
            name = frame.f_code.co_filename
            if name.endswith(_GRAPH_COPYING_FILES):
                return COPY
            if not name.startswith(self.folders) and not self._passes_on(frame.f_code):
                return "%s:%d" % (os.path.basename(name), frame.f_lineno)
            frame = frame.f_back
        return None

    def _source(self, name, line):
        """The program's own line, from the source maps of AutoGraph's cache: a replica's thread knows none."""
        api = sys.modules.get("tensorflow.python.autograph.impl.api")
        cache = getattr(getattr(getattr(api, "_TRANSPILER", None), "_cache", None), "_cache", {})
        for entry in list(cache.values()):
            for factory in list(entry.values()):
                origin = getattr(factory, "source_map", {}).get((name, line))
                if origin is not None:
                    return origin.loc.filename, origin.loc.lineno
        for frame in reversed(self.extract_stack()):
            if frame.filename not in self.through:
                return frame.filename, frame.lineno
        return name, line

    def _passes_on(self, code):
        name = code.co_filename
        return name in self.through and (
            name != self.ops_file or code.co_name in _SCOPE_FORWARDERS or code.co_name == "_add_device_to_stack"
        )


def device_text(request):
    """``/device:GPU:0``; empty if the program requested no device."""
    if request.line is None or request.type in (None, "function", UNKNOWN.type):
        return ""
    return "/device:%s:%s" % (request.type, "*" if request.index is None else request.index)
