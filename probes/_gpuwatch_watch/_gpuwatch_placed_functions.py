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
_POOL = 48
"""Collected graphs that wait for the end of their function's first call."""
_ENDS = frozenset(["_Arg", "_Retval"])
FEED = frozenset(["_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Placeholder"])
IDLE = frozenset(
    {
        *("Const", "NoOp", "Identity", "Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "_EagerConst"),
        *("_Send", "_Recv", "_HostSend", "_HostRecv", "_HostCast"),
    }
)
"""Ops that compute nothing, most of them TensorFlow's own after placement."""
_CALLS = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), ("f",)),
    **dict.fromkeys(("While", "StatelessWhile"), ("cond", "body")),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ()),
}
"""Ops that call functions, with the attributes that name them; Case has a list."""
_LOWERED = re.compile(r"^(?:body|cond|then|else|branch\d+)/_\d+/")
"""What TensorFlow puts before the nodes of a lowered loop or branch."""
_OF_INPUTS = frozenset(["Shape", "ShapeN", "Size", "Rank"])
"""Ops that TensorFlow places where their input is, unless the node itself names a device (placer.cc, IsMetadata)."""
_READS = frozenset(["ReadVariableOp", "VarIsInitializedOp"])
"""Each use of a variable: its value is copied to where it is used."""
_INLINED = ("PartitionedCall", "StatefulPartitionedCall")
_COMPILED = "_XlaMustCompile"
_ONLY_CPU = "/device:CPU:0"
"""Where every node is if TensorFlow has no other device."""
_DEEPEST = 12
NOT_PLACED = FEED | IDLE | frozenset(_CALLS)
"""Ops that say nothing of where the program's own ops ran."""


class Collected:
    """One function's graph as it was traced and as it was placed.

    TensorFlow merges what it places until some eager op ends, in whichever thread (GraphCollector in
    tensorflow/core/framework/function.h): there may be nodes of several functions, or only one of the two graphs.
    """

    def __init__(self, graphs, number):
        before = graphs.pre_optimization_graph
        self.number = number
        self.nodes = {node.name: node for node in before.node}
        self.library = {one.signature.name: one for one in before.library.function}
        self.bodies = {}
        self.placed = list(graphs.post_optimization_graph.node)
        self.places = {node.name: node.device for node in self.placed}
        lacking = [node for node in before.node if node.op in _ENDS and node.name not in self.places]
        self.whole = len(self.nodes) == len(before.node) and len(self.places) == len(self.placed) > 0
        self.whole = self.whole and not any(one.op == "_Retval" or self._is_used(one.name) for one in lacking)
        self.identity = _identity(before.node)

    def _is_used(self, name, nodes=None, depth=0):
        """Whether an op works on an argument, also within a function that it calls: TensorFlow prunes the others."""
        for node in self.nodes.values() if nodes is None else nodes:
            for position, given in enumerate(node.input):
                if given.lstrip("^").split(":")[0] != name:
                    continue
                body = self.library.get(node.attr["f"].func.name) if node.op in _INLINED and depth < _DEEPEST else None
                if body is None or given.startswith("^"):
                    return True
                inner = body.signature.input_arg[position].name
                if self._is_used(inner, body.node_def, depth + 1) or inner in body.ret.values():
                    return True
        return False

    def body(self, name):
        """The nodes of a function that is called, by name; None if it was not collected with it."""
        if name not in self.bodies and name in self.library:
            self.bodies[name] = {node.name: node for node in self.library[name].node_def}
        return self.bodies.get(name)

    def is_eager_op(self):
        """TensorFlow wraps each eager op in a function of its own, with one node named after the op."""
        nodes = [node for node in self.nodes.values() if node.op not in FEED]
        return len(nodes) <= 1 and all(node.name == node.op for node in nodes)

    def requested(self):
        """How many nodes name a GPU."""
        nodes = [*self.nodes.values(), *(node for body in self.library.values() for node in body.node_def)]
        return sum(":GPU:" in node.device and node.op not in IDLE for node in nodes)


class Made:
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
        self.nothing, self.unknown, self.copy = names.NOTHING, names.UNKNOWN, names.COPY
        self.requests = weakref.WeakKeyDictionary()
        """By graph, the requests by name of its nodes; those without one are left out."""
        self.count, self.missing = ops.count, ops.missing
        self.has_kernel, self.kernels = ops.has_kernel, ops.kernels_for
        self.of_its_group = load("_gpuwatch_colocation").request_of_its_group
        self.listen = ops.listen
        self.hops = load("_gpuwatch_cpu_only_ops").Hops(ops, self)
        self.constants = load("_gpuwatch_graph_constants").Constants(scopes)
        self.functions = {}
        """Each :class:`Made`, by name."""
        self.compiled = set()
        """Names of functions that XLA compiles (jit_compile=True), each for one device."""
        self.collected = 0
        self.seen = set()
        self.told = set()
        """Hashes of the identities of functions whose nodes are counted."""
        self.first_calls = {}
        """By thread, whether its first call of a function was alone so far."""
        self.judged = weakref.WeakSet()
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
                self.functions[_text(name)] = Made(graph, requests, self.collected)
                self.constants.look(graph)
                if _COMPILED in attrs and getattr(attrs[_COMPILED], "b", attrs[_COMPILED]):
                    self.compiled.add(_text(name))
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
                    elif request.line is None and request.type is not None and op.type not in _READS:
                        request = self._of_its_resource(this, op, request)
                    if request.type is not None:
                        self.requests.setdefault(this, {})[op.name] = request
            except Exception:  # our errors must not disturb the program
                self.unclear += 1

        graph._apply_device_functions = _apply_device_functions

    def _original(self, graph, op, copied):
        """The request of the node that ``op`` is a copy of: a copied graph has the name of the function's."""
        source = self.functions.get(graph.name)
        found = source.requests.get(op.name) if source is not None else None
        return found if found is not None and found[:2] == copied[:2] else self.unknown

    def _of_its_resource(self, graph, op, own):
        """``own``: of TensorFlow's scope. Where that repeats the device of the op's variable or table: what the
        program requested for that."""
        made = next((one.op for one in op.inputs if one.dtype.as_datatype_enum == _DT_RESOURCE), None)
        found = self.of_node(graph, made.name) if made is not None else None
        return found if found is not None and found[:2] == own[:2] else own

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
                    self._calling(_text(frame.f_locals["name"]), caller)
            except Exception:  # our errors must not disturb the program
                self.unclear += 1
            return original(this)

        options.as_attrs = as_attrs

    def _calling(self, name, caller):
        """Before a call; a first one is alone if no other thread is in such a call meanwhile."""
        self.listen()
        if (name, self.scopes.now()[0]) in self.seen:
            return
        with self.lock:
            own, frames = threading.get_ident(), sys._current_frames()
            others = [one for one in self.first_calls if one != own and _is_in(frames.get(one), caller)]
            self.first_calls = dict.fromkeys([*others, own], not others)

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
            left = sum(one.requested() for one in self.pool if hash(one.identity) not in self.told)
        return self.nodes + left, self.unclear + left

    def is_function(self, name):
        return name in self.functions or name.startswith("__")

    # Functions

    def called(self, name, ask, device):
        """After a call of a function in eager mode, under a request; ``device``: of its first output, "" without."""
        alone = self.first_calls.pop(threading.get_ident(), False)
        self.hops.called(name)
        key = (name, ask)
        if key in self.seen:
            return
        with self.lock:
            if key in self.seen:
                return
            self.seen.add(key)
            self._fill_pool()
            made = self.functions.get(name)
            graph = made.graph() if made is not None else None
            if graph is None:
                return  # a function of TensorFlow's own, without a Python graph
            given = {one.op for one in graph.inputs}  # a small tensor from outside is a constant until it is called
            identity = _identity(op.node_def for op in graph.get_operations() if op not in given)
            self.told.add(hash(identity))
            if device and not device.startswith(self._own_devices()):
                elsewhere = sum(op.type not in NOT_PLACED for op in graph.get_operations())
                self.nodes += elsewhere
                self.unclear += elsewhere
                return
            if name in self.compiled:
                self._judge(graph, ask, device)
                return
            if self._has_only_a_cpu():
                self._judge(graph, ask, _ONLY_CPU)
                return
            collected = self._of(identity, made.number) if alone else None
            if collected is not None:
                self.hops.look(name, graph, collected.placed, self._place(graph, ask, collected))
            else:
                self._judge(graph, ask)

    @staticmethod
    def _own_devices():
        """What the names of this process's devices begin with; a call elsewhere is placed in another process."""
        return sys.modules["tensorflow.python.eager.context"].context().host_address_space()

    @staticmethod
    def _has_only_a_cpu():
        devices = sys.modules["tensorflow.python.eager.context"].context()._logical_devices or ()
        return [one.device_type for one in devices] == ["CPU"]

    def _fill_pool(self):
        if not self.collecting or getattr(sys.modules.get(_TRACES), "_current_trace_context", None) is not None:
            return  # or the program traces graphs itself (tf.summary.trace_on): what is collected is its own
        for graphs in sys.modules["tensorflow.python.eager.context"]._context.export_run_metadata().function_graphs:
            collected = Collected(graphs, self.collected)
            self.collected += 1
            if not collected.is_eager_op():
                self.pool.append(collected)
        for one in self.pool[:-_POOL]:
            if hash(one.identity) not in self.told:
                self.nodes += one.requested()
                self.unclear += one.requested()
        del self.pool[:-_POOL]

    def _of(self, identity, number):
        """What was collected of this function since it was made; None for nothing, or several placed differently."""
        fits = [one for one in self.pool if one.whole and one.number >= number and one.identity == identity]
        return fits[0] if fits and all(one.places == fits[0].places for one in fits) else None

    def _place(self, graph, ask, collected):
        """Counts a function's placed nodes; returns the names of those for which the program asked for a device."""
        asked = set()
        self.pool.remove(collected)
        nodes, requests = collected.nodes, self.requests.get(graph)
        for node in collected.placed:
            if node.op in FEED or node.op in IDLE:
                continue
            found = self._request(node.name, node.op, nodes, requests, collected, ask, 0)
            if node.op in _CALLS:
                self._judge_called(node, found if found is not None else ask, "", 0)  # not inlined
                continue
            self.nodes += 1
            if found is None or found == self.unknown:
                self.unclear += 1
                continue
            if node.op in _OF_INPUTS and not self.scopes.same(found, node.device):
                found = self.nothing
            if found.line is not None:
                asked.add(node.name)
            self.count(node.op, node.attr, found, node.device, "resource" if uses_resource(node, nodes) else "")
        return asked

    def _request(self, path, op, nodes, requests, collected, inherited, depth):
        """What was requested for a placed node: by itself, else by the call that it was inlined from; None: unknown.

        ``requests``: of the function that has ``nodes``; None for one that was not seen being made.
        """
        if path in nodes and (nodes[path].op == op or depth == 0):
            return self._own(nodes[path], requests, inherited)
        if depth > _DEEPEST:
            return None
        at = path.find("/")
        while at > 0:
            call = nodes.get(path[:at])
            if call is not None and call.op in _CALLS:
                passed = self._own(call, requests, inherited)
                rest = _LOWERED.sub("", path[at + 1 :])
                for name in _called(call):
                    inner, made = collected.body(name), self.functions.get(name)
                    if inner is None:
                        continue
                    of = made.requests if made is not None else None
                    found = self._request(rest, op, inner, of, collected, passed, depth + 1)
                    if found is not None:
                        return found
            at = path.find("/", at + 1)
        return None

    def _own(self, node, requests, inherited):
        """A node's own request, else that of the call around it; unknown where its device is all that is known."""
        found = requests.get(node.name) if requests else None
        if found is None:
            found = self.unknown if node.device and requests is None else inherited
        return found

    # Without a placed graph

    def used_by_data(self, name):
        """A function that a dataset calls: TensorFlow instantiates it later, in its own threads."""
        made = self.functions.get(name)
        graph = made.graph() if made is not None else None
        if graph is not None and graph not in self.judged:
            with self.lock:
                self.judged.add(graph)
                self._judge(graph, self.nothing, _ONLY_CPU if self._has_only_a_cpu() else "", why="data")

    def _judge(self, graph, ask, device="", depth=0, why=""):
        """Where a function's nodes ran, without a placed graph: all on ``device`` if XLA has compiled it, or if there
        is no other. Else what has no GPU kernel ran on the CPU; of the rest it is not known where it ran.
        """
        for op in graph.get_operations():
            own = self.of_node(graph, op.name)
            wanted = own if own is not None else ask
            if op.type in _CALLS:
                self._judge_called(op.node_def, wanted, device, depth, why)
            elif op.type not in FEED and (op.type not in IDLE or (op.type == "Const" and device == _ONLY_CPU)):
                self._judge_node(op, wanted, device, why)

    def _judge_called(self, call, ask, device, depth, why=""):
        if call.attr[_COMPILED].b:
            device = device or call.device
        for name in _called(call):
            made = self.functions.get(name)
            graph = made.graph() if made is not None else None
            if graph is not None and depth < _DEEPEST:
                self._judge(graph, ask, device, depth + 1, why)
            elif ask.line is not None and ask.type == "GPU":
                self.nodes += 1
                self.unclear += 1

    def _judge_node(self, op, wanted, device, why):
        asked = wanted == self.unknown or (wanted.line is not None and wanted.type == "GPU")
        if not asked and (not device or why):
            return
        self.nodes += 1
        attributes = op.node_def.attr
        if wanted != self.unknown and device:
            self.in_compiled += device != _ONLY_CPU
            self.count(op.type, attributes, wanted, device, why or ("" if device == _ONLY_CPU else "compiled"))
        elif wanted != self.unknown and op.type not in _OF_INPUTS and self.has_kernel(op.type, attributes) is False:
            self.count(op.type, attributes, wanted, "/device:CPU:0", why)
        else:
            self.unclear += not self.missing(op.type, attributes, wanted)


_ON_RESOURCES = frozenset(
    {
        *("ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "VarIsInitializedOp"),
        *("ResourceGather", "ResourceScatterAdd", "ResourceScatterUpdate"),
        *("LookupTableFindV2", "LookupTableInsertV2", "LookupTableSizeV2", "LookupTableImportV2"),
        *("QueueEnqueueV2", "QueueDequeueV2", "QueueSizeV2"),
    }
)
MAKES_RESOURCE = frozenset(["VarHandleOp", "HashTableV2", "MutableHashTableV2", "FIFOQueueV2"])
_DT_RESOURCE = 20
"""Of tensorflow/core/framework/types.proto."""


def _is_resource(node):
    return node is not None and (
        (node.op == "_Arg" and node.attr["T"].type == _DT_RESOURCE) or node.op in MAKES_RESOURCE
    )


def uses_resource(node, nodes):
    """Whether a node works on a variable, table or queue; ``nodes``: its graph's, by name."""
    held = any(_is_resource(nodes.get(name.split(":")[0].lstrip("^"))) for name in node.input)
    return held or node.op in _ON_RESOURCES


def _identity(nodes):
    """What tells a function's graph from another one's: names, ops, requested devices and called functions.

    Without constants that name no device: TensorFlow prunes those that no op uses. Calls without their names: a loop
    has another one once its gradient is known.
    """
    return frozenset(
        ("", node.op, node.device, tuple(_called(node))) if node.op in _CALLS else (node.name, node.op, node.device, ())
        for node in nodes
        if node.op not in FEED and (node.op != "Const" or node.device)
    )


def _is_in(frame, code):
    """Whether a thread, in this frame, is in a call of a function with this code."""
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _called(call):
    names = [call.attr[attribute].func.name for attribute in _CALLS[call.op]]
    return names + [function.name for function in call.attr["branches"].list.func]


def _text(name):
    return name.decode() if isinstance(name, bytes) else str(name)
