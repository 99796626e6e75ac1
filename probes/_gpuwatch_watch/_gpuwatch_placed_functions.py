"""``gpuwatch run --placement``: where nodes of tf.functions were placed, and what was requested for them.

TensorFlow keeps the graphs of functions as they are instantiated (context.enable_graph_collection): each as it was
traced and as it was placed, after optimization and inlining. They carry no function's name: a pair belongs to the
function that has exactly its nodes, requests and calls, that was made before, and whose first call was alone.
Nothing is logged. Functions of tf.data and those that are not inlined are not among them: of these, only what has no
kernel for the requested device is known. Sessions: _gpuwatch_placed_sessions.py. Standard library only, Python 3.7 or
newer.
"""

import re
import sys
import threading
import weakref

_TRACES = "tensorflow.python.ops.summary_ops_v2"
_MAX_WAITING_GRAPHS = 48
"""Collected graphs that wait for the end of their function's first call."""
_LOWERED_PREFIX = re.compile(r"^(?:body|cond|then|else|branch\d+)/_\d+/")
"""What TensorFlow puts before the nodes of a lowered loop or branch."""
_METADATA_OPS = frozenset(["Shape", "ShapeN", "Size", "Rank"])
"""Ops that TensorFlow places where their input is, unless the node itself names a device (placer.cc, IsMetadata)."""
_VARIABLE_READ_OPS = frozenset(["ReadVariableOp", "VarIsInitializedOp"])
"""Each use of a variable: its value is copied to where it is used."""
_COMPILED_ATTRIBUTE = "_XlaMustCompile"
_CPU_DEVICE = "/device:CPU:0"
"""Where every node is if TensorFlow has no other device."""


class TracedFunction:
    """What is kept of a function after its graph is gone."""

    def __init__(self, graph, requests, number):
        self.graph = weakref.ref(graph)
        self.requests = requests
        """By name of a node; those without a request are left out."""
        self.number = number
        """Of the first graph that may be collected for it."""


class PlacedFunctions:
    def __init__(self, scopes, ops, names, load):
        """``ops`` counts the nodes, and knows kernels and devices; ``names``: the module of the scopes.

        ``load``: loads a module of this folder.
        """
        self.scopes, self.attribute = scopes, load("_gpuwatch_descriptors").Attribute
        self.graphs = load("_gpuwatch_collected_graphs")
        self.graph_ops = load("_gpuwatch_graph_ops")
        self.nothing, self.unknown, self.copy = names.NO_REQUEST, names.UNKNOWN, names.COPY
        self.requests = weakref.WeakKeyDictionary()
        """By graph, the requests by name of its nodes; those without one are left out."""
        self.count, self.missing = ops.count, ops.missing
        self.has_kernel, self.kernels = ops.has_kernel, ops.kernels_for
        self.of_its_group = load("_gpuwatch_colocation").request_of_its_group
        self.listen = ops.listen
        self.hops = load("_gpuwatch_cpu_only_ops").CpuOnlyOps(ops, self)
        self.constants = load("_gpuwatch_graph_constants").Constants(scopes)
        self.functions = {}
        """Each :class:`TracedFunction`, by name."""
        self.compiled = set()
        """Names of functions that XLA compiles (jit_compile=True), each for one device."""
        self.collected = 0
        self.called_functions = set()
        self.counted_identities = set()
        """Hashes of the identities of functions whose nodes are counted."""
        self.first_calls = {}
        """By thread, whether its first call of a function was alone so far."""
        self.judged_graphs = weakref.WeakSet()
        self.collecting = False
        self.reset()

    def reset(self):
        """Counts from 0, as in a forked process, in which another thread cannot give back a lock."""
        self.lock = threading.RLock()
        self.hops.reset()
        self.pool = []
        self.nodes = 0
        self.unclear = 0
        """Nodes of which it is not known where they ran, or what was requested."""
        self.in_compiled = 0
        """Nodes of functions that XLA has compiled."""

    def install(self):
        """Begins to collect; TensorFlow is imported. Raises AttributeError in a version without these names."""
        from tensorflow.python.distribute import one_device_strategy
        from tensorflow.python.eager import context
        from tensorflow.python.eager.polymorphic_function import atomic_function
        from tensorflow.python.framework import ops

        self._watch_nodes(ops.Graph)
        self._watch_calls(context.FunctionCallOptions, context.Context.call_function.__code__)
        make = atomic_function.from_func_graph

        def from_func_graph(name, graph, attrs, *args, **keywords):
            made = make(name, graph, attrs, *args, **keywords)
            try:
                with self.lock:
                    self._fill_pool()
                requests = self.requests.setdefault(graph, {})
                self.functions[_as_text(name)] = TracedFunction(graph, requests, self.collected)
                self.constants.inspect(graph)
                if _COMPILED_ATTRIBUTE in attrs and getattr(
                    attrs[_COMPILED_ATTRIBUTE], "b", attrs[_COMPILED_ATTRIBUTE]
                ):
                    self.compiled.add(_as_text(name))
            except TypeError:  # another kind of graph: its nodes are not joined
                self.unclear += 1
            return made

        atomic_function.from_func_graph = from_func_graph
        one_device_strategy.OneDeviceExtended._device = self.attribute("_device", written=self.scopes.strategy_made)
        if context._context is not None and getattr(context._context, "_initialized", False):
            self.collect(context._context)
        else:
            context.Context._initialized = self.attribute("_initialized", written=self._started)

    def _watch_nodes(self, graph):
        apply = graph._apply_device_functions

        def _apply_device_functions(this, op):
            apply(this, op)
            try:
                request = self.of_its_group(self.requests, this, self.nothing)
                if request is not None or this._device_function_stack.peek_objs():
                    request = request or self.scopes.of_node(this, op)
                    if request.line == self.copy:
                        request = self._original(this, op, request)
                    elif request.line is None and request.type is not None and op.type not in _VARIABLE_READ_OPS:
                        request = self._of_its_resource(this, op, request)
                    if request.type is not None:
                        self.requests.setdefault(this, {})[op.name] = request
            except Exception:  # our errors must not disturb the program
                self.unclear += 1

        graph._apply_device_functions = _apply_device_functions

    def _original(self, graph, op, copied):
        """The request of the node that ``op`` is a copy of: a copied graph has the name of the function's."""
        source_function = self.functions.get(graph.name)
        source_request = source_function.requests.get(op.name) if source_function is not None else None
        return source_request if source_request is not None and source_request[:2] == copied[:2] else self.unknown

    def _of_its_resource(self, graph, op, scope_request):
        """``scope_request``: of TensorFlow's scope. Where that repeats the device of the op's variable or table: what
        the program requested for that."""
        resource_op = next(
            (tensor.op for tensor in op.inputs if tensor.dtype.as_datatype_enum == self.graph_ops.DT_RESOURCE), None
        )
        resource_request = self.of_node(graph, resource_op.name) if resource_op is not None else None
        return (
            resource_request
            if resource_request is not None and resource_request[:2] == scope_request[:2]
            else scope_request
        )

    def of_node(self, graph, name):
        """What was requested for a node; None for nothing."""
        return self.requests.get(graph, {}).get(name)

    def _watch_calls(self, options, caller):
        """What TensorFlow asks for just before each call of a function, in the thread that calls."""
        original = options.as_attrs

        def as_attrs(this):
            try:
                frame = sys._getframe(1)
                if frame.f_code is caller:
                    self._calling(_as_text(frame.f_locals["name"]), caller)
            except Exception:  # our errors must not disturb the program
                self.unclear += 1
            return original(this)

        options.as_attrs = as_attrs

    def _calling(self, name, caller):
        """Before a call; a first one is alone if no other thread is in such a call meanwhile."""
        self.listen()
        if (name, self.scopes.now()[0]) in self.called_functions:
            return
        with self.lock:
            this_thread, frames = threading.get_ident(), sys._current_frames()
            others = [
                thread
                for thread in self.first_calls
                if thread != this_thread and _is_in_call(frames.get(thread), caller)
            ]
            self.first_calls = dict.fromkeys([*others, this_thread], not others)

    def _started(self, frame, context):
        """Graphs can be collected from the context's start on; its state is read by every op, so it is then let go."""
        if context._initialized:
            del type(context)._initialized
            self.collect(context)

    def collect(self, context):
        if self._has_only_a_cpu():
            return
        pywrap = sys.modules["tensorflow.python.pywrap_tfe"]
        pywrap.TFE_ContextEnableGraphCollection(context._context_handle)
        self.collecting = True

    def coverage(self):
        """Nodes that are known of, and how many are unclear: with those of functions that nobody was seen to call."""
        with self.lock:
            self._fill_pool()
            uncounted = sum(
                graphs.requested() for graphs in self.pool if hash(graphs.identity) not in self.counted_identities
            )
        return self.nodes + uncounted, self.unclear + uncounted

    def is_function(self, name):
        return name in self.functions or name.startswith("__")

    # Functions

    def called(self, name, call_request, device):
        """After a call of a function in eager mode, under a request; ``device``: of its first output, "" without."""
        is_alone = self.first_calls.pop(threading.get_ident(), False)
        self.hops.called(name)
        key = (name, call_request)
        if key in self.called_functions:
            return
        with self.lock:
            if key in self.called_functions:
                return
            self.called_functions.add(key)
            self._fill_pool()
            made = self.functions.get(name)
            graph = made.graph() if made is not None else None
            if graph is None:
                return  # a function of TensorFlow's own, without a Python graph
            input_ops = {
                tensor.op for tensor in graph.inputs
            }  # a small tensor from outside is a constant until it is called
            identity = self.graph_ops.identity(op.node_def for op in graph.get_operations() if op not in input_ops)
            self.counted_identities.add(hash(identity))
            if device and not device.startswith(self._own_devices()):
                elsewhere = sum(op.type not in self.graph_ops.NOT_PLACED_OPS for op in graph.get_operations())
                self.nodes += elsewhere
                self.unclear += elsewhere
                return
            if name in self.compiled:
                self._judge(graph, call_request, device)
                return
            if self._has_only_a_cpu():
                self._judge(graph, call_request, _CPU_DEVICE)
                return
            collected = self._of(identity, made.number) if is_alone else None
            if collected is not None:
                self.hops.inspect(name, graph, collected.placed, self._place(graph, call_request, collected))
            else:
                self._judge(graph, call_request)

    @staticmethod
    def _own_devices():
        """What the names of this process's devices begin with; a call elsewhere is placed in another process."""
        return sys.modules["tensorflow.python.eager.context"].context().host_address_space()

    @staticmethod
    def _has_only_a_cpu():
        devices = sys.modules["tensorflow.python.eager.context"].context()._logical_devices or ()
        return [device.device_type for device in devices] == ["CPU"]

    def _fill_pool(self):
        if not self.collecting or getattr(sys.modules.get(_TRACES), "_current_trace_context", None) is not None:
            return  # or the program traces graphs itself (tf.summary.trace_on): what is collected is its own
        for graphs in sys.modules["tensorflow.python.eager.context"]._context.export_run_metadata().function_graphs:
            collected = self.graphs.CollectedGraphs(graphs, self.collected, self.graph_ops)
            self.collected += 1
            if not collected.is_eager_op():
                self.pool.append(collected)
        for graphs_waiting in self.pool[:-_MAX_WAITING_GRAPHS]:
            if hash(graphs_waiting.identity) not in self.counted_identities:
                self.nodes += graphs_waiting.requested()
                self.unclear += graphs_waiting.requested()
        del self.pool[:-_MAX_WAITING_GRAPHS]

    def _of(self, identity, number):
        """What was collected of this function since it was made; None for nothing, or several placed differently."""
        candidates = [
            candidate
            for candidate in self.pool
            if candidate.is_whole and candidate.number >= number and candidate.identity == identity
        ]
        return (
            candidates[0]
            if candidates and all(candidate.places == candidates[0].places for candidate in candidates)
            else None
        )

    def _place(self, graph, call_request, collected):
        """Counts a function's placed nodes; returns the names of those for which the program asked for a device."""
        requested_names = set()
        self.pool.remove(collected)
        nodes, requests = collected.nodes, self.requests.get(graph)
        for node in collected.placed:
            if node.op in self.graph_ops.FEED_OPS or node.op in self.graph_ops.IDLE_OPS:
                continue
            request = self._request(node.name, node.op, nodes, requests, collected, call_request, 0)
            if node.op in self.graph_ops.CALL_OPS:
                self._judge_called(node, request if request is not None else call_request, "", 0)  # not inlined
                continue
            self.nodes += 1
            if request is None or request == self.unknown:
                self.unclear += 1
                continue
            if node.op in _METADATA_OPS and not self.scopes.same(request, node.device):
                request = self.nothing
            if request.line is not None:
                requested_names.add(node.name)
            reason = "resource" if self.graph_ops.uses_resource(node, nodes) else ""
            self.count(node.op, node.attr, request, node.device, reason)
        return requested_names

    def _request(self, path, op, nodes, requests, collected, inherited, depth):
        """What was requested for a placed node: by itself, else by the call that it was inlined from; None: unknown.

        ``requests``: of the function that has ``nodes``; None for one that was not seen being made.
        """
        if path in nodes and (nodes[path].op == op or depth == 0):
            return self._own(nodes[path], requests, inherited)
        if depth > self.graph_ops.MAX_DEPTH:
            return None
        slash = path.find("/")
        while slash > 0:
            call = nodes.get(path[:slash])
            if call is not None and call.op in self.graph_ops.CALL_OPS:
                passed = self._own(call, requests, inherited)
                inner_path = _LOWERED_PREFIX.sub("", path[slash + 1 :])
                for name in self.graph_ops.called_functions(call):
                    body, called_function = collected.body(name), self.functions.get(name)
                    if body is None:
                        continue
                    call_requests = called_function.requests if called_function is not None else None
                    request = self._request(inner_path, op, body, call_requests, collected, passed, depth + 1)
                    if request is not None:
                        return request
            slash = path.find("/", slash + 1)
        return None

    def _own(self, node, requests, inherited):
        """A node's own request, else that of the call around it; unknown where its device is all that is known."""
        request = requests.get(node.name) if requests else None
        if request is None:
            request = self.unknown if node.device and requests is None else inherited
        return request

    # Without a placed graph

    def used_by_data(self, name):
        """A function that a dataset calls: TensorFlow instantiates it later, in its own threads."""
        made = self.functions.get(name)
        graph = made.graph() if made is not None else None
        if graph is not None and graph not in self.judged_graphs:
            with self.lock:
                self.judged_graphs.add(graph)
                self._judge(graph, self.nothing, _CPU_DEVICE if self._has_only_a_cpu() else "", reason="data")

    def _judge(self, graph, call_request, device="", depth=0, reason=""):
        """Where a function's nodes ran, without a placed graph: all on ``device`` if XLA has compiled it, or if there
        is no other. Else what has no GPU kernel ran on the CPU; of the rest it is not known where it ran.
        """
        for op in graph.get_operations():
            node_request = self.of_node(graph, op.name)
            request = node_request if node_request is not None else call_request
            if op.type in self.graph_ops.CALL_OPS:
                self._judge_called(op.node_def, request, device, depth, reason)
            elif op.type not in self.graph_ops.FEED_OPS and (
                op.type not in self.graph_ops.IDLE_OPS or (op.type == "Const" and device == _CPU_DEVICE)
            ):
                self._judge_node(op, request, device, reason)

    def _judge_called(self, call, call_request, device, depth, reason=""):
        if call.attr[_COMPILED_ATTRIBUTE].b:
            device = device or call.device
        for name in self.graph_ops.called_functions(call):
            called_function = self.functions.get(name)
            graph = called_function.graph() if called_function is not None else None
            if graph is not None and depth < self.graph_ops.MAX_DEPTH:
                self._judge(graph, call_request, device, depth + 1, reason)
            elif call_request.line is not None and call_request.type == "GPU":
                self.nodes += 1
                self.unclear += 1

    def _judge_node(self, op, request, device, reason):
        is_gpu_requested = request == self.unknown or (request.line is not None and request.type == "GPU")
        if not is_gpu_requested and (not device or reason):
            return
        self.nodes += 1
        attributes = op.node_def.attr
        if request != self.unknown and device:
            self.in_compiled += device != _CPU_DEVICE
            self.count(op.type, attributes, request, device, reason or ("" if device == _CPU_DEVICE else "compiled"))
        elif request != self.unknown and op.type not in _METADATA_OPS and self.has_kernel(op.type, attributes) is False:
            self.count(op.type, attributes, request, "/device:CPU:0", reason)
        else:
            self.unclear += not self.missing(op.type, attributes, request)


def _is_in_call(frame, code):
    """Whether a thread, in this frame, is in a call of a function with this code."""
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _as_text(name):
    return name.decode() if isinstance(name, bytes) else str(name)
