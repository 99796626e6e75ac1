"""Graphs of tf.functions that TensorFlow has collected, as traced and as placed; and which ops say where work ran.

Standard library only, Python 3.7 or newer.
"""

_ARGUMENT_OPS = frozenset(["_Arg", "_Retval"])
FEED_OPS = frozenset(["_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Placeholder"])
IDLE_OPS = frozenset(
    {
        *("Const", "NoOp", "Identity", "Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "_EagerConst"),
        *("_Send", "_Recv", "_HostSend", "_HostRecv", "_HostCast"),
    }
)
"""Ops that compute nothing, most of them TensorFlow's own after placement."""
CALL_OPS = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), ("f",)),
    **dict.fromkeys(("While", "StatelessWhile"), ("cond", "body")),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ()),
}
"""Ops that call functions, with the attributes that name them; Case has a list."""
_INLINED_OPS = ("PartitionedCall", "StatefulPartitionedCall")
MAX_DEPTH = 12
"""Calls within calls that are followed."""
NOT_PLACED_OPS = FEED_OPS | IDLE_OPS | frozenset(CALL_OPS)
"""Ops that say nothing of where the program's own ops ran."""
_RESOURCE_USING_OPS = frozenset(
    {
        *("ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "VarIsInitializedOp"),
        *("ResourceGather", "ResourceScatterAdd", "ResourceScatterUpdate"),
        *("LookupTableFindV2", "LookupTableInsertV2", "LookupTableSizeV2", "LookupTableImportV2"),
        *("QueueEnqueueV2", "QueueDequeueV2", "QueueSizeV2"),
    }
)
RESOURCE_CREATING_OPS = frozenset(["VarHandleOp", "HashTableV2", "MutableHashTableV2", "FIFOQueueV2"])
DT_RESOURCE = 20
"""Of tensorflow/core/framework/types.proto."""


class CollectedGraphs:
    """One function's graph as it was traced and as it was placed.

    TensorFlow merges what it places until some eager op ends, in whichever thread (GraphCollector in
    tensorflow/core/framework/function.h): there may be nodes of several functions, or only one of the two graphs.
    """

    def __init__(self, graphs, number):
        traced_graph = graphs.pre_optimization_graph
        self.number = number
        self.nodes = {node.name: node for node in traced_graph.node}
        self.library = {one.signature.name: one for one in traced_graph.library.function}
        self.bodies = {}
        self.placed = list(graphs.post_optimization_graph.node)
        self.places = {node.name: node.device for node in self.placed}
        pruned = [node for node in traced_graph.node if node.op in _ARGUMENT_OPS and node.name not in self.places]
        self.is_whole = len(self.nodes) == len(traced_graph.node) and len(self.places) == len(self.placed) > 0
        self.is_whole = self.is_whole and not any(one.op == "_Retval" or self._is_used(one.name) for one in pruned)
        self.identity = identity(traced_graph.node)

    def _is_used(self, name, nodes=None, depth=0):
        """Whether an op works on an argument, also within a function that it calls: TensorFlow prunes the others."""
        for node in self.nodes.values() if nodes is None else nodes:
            for position, input_name in enumerate(node.input):
                if input_name.lstrip("^").split(":")[0] != name:
                    continue
                body = (
                    self.library.get(node.attr["f"].func.name)
                    if node.op in _INLINED_OPS and depth < MAX_DEPTH
                    else None
                )
                if body is None or input_name.startswith("^"):
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
        nodes = [node for node in self.nodes.values() if node.op not in FEED_OPS]
        return len(nodes) <= 1 and all(node.name == node.op for node in nodes)

    def requested(self):
        """How many nodes name a GPU."""
        nodes = [*self.nodes.values(), *(node for body in self.library.values() for node in body.node_def)]
        return sum(":GPU:" in node.device and node.op not in IDLE_OPS for node in nodes)


def _is_resource(node):
    return node is not None and (
        (node.op == "_Arg" and node.attr["T"].type == DT_RESOURCE) or node.op in RESOURCE_CREATING_OPS
    )


def uses_resource(node, nodes):
    """Whether a node works on a variable, table or queue; ``nodes``: its graph's, by name."""
    has_resource_input = any(_is_resource(nodes.get(name.split(":")[0].lstrip("^"))) for name in node.input)
    return has_resource_input or node.op in _RESOURCE_USING_OPS


def identity(nodes):
    """What tells a function's graph from another one's: names, ops, requested devices and called functions.

    Without constants that name no device: TensorFlow prunes those that no op uses. Calls without their names: a loop
    has another one once its gradient is known.
    """
    return frozenset(
        ("", node.op, node.device, tuple(called_functions(node)))
        if node.op in CALL_OPS
        else (node.name, node.op, node.device, ())
        for node in nodes
        if node.op not in FEED_OPS and (node.op != "Const" or node.device)
    )


def called_functions(call):
    names = [call.attr[attribute].func.name for attribute in CALL_OPS[call.op]]
    return names + [function.name for function in call.attr["branches"].list.func]
