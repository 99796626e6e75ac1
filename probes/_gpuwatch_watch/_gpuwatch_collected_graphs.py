"""Graphs of tf.functions that TensorFlow has collected, as traced and as placed.

Part of ``gpuwatch run --placement`` (_gpuwatch_placement.py). Standard library only, Python 3.7 or newer.
"""

_ARGUMENT_OPS = frozenset(["_Arg", "_Retval"])
_INLINED_OPS = ("PartitionedCall", "StatefulPartitionedCall")


class CollectedGraphs:
    """One function's graph as it was traced and as it was placed.

    TensorFlow merges what it places until some eager op ends, in whichever thread (GraphCollector in
    tensorflow/core/framework/function.h): there may be nodes of several functions, or only one of the two graphs.
    """

    def __init__(self, graphs, number, graph_ops):
        """``graphs``: TensorFlow's. ``graph_ops``: the module _gpuwatch_graph_ops."""
        self.graph_ops = graph_ops
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
        self.identity = graph_ops.identity(traced_graph.node)

    def _is_used(self, name, nodes=None, depth=0):
        """Whether an op works on an argument, also within a function that it calls: TensorFlow prunes the others."""
        for node in self.nodes.values() if nodes is None else nodes:
            for position, input_name in enumerate(node.input):
                if input_name.lstrip("^").split(":")[0] != name:
                    continue
                body = (
                    self.library.get(node.attr["f"].func.name)
                    if node.op in _INLINED_OPS and depth < self.graph_ops.MAX_DEPTH
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
        nodes = [node for node in self.nodes.values() if node.op not in self.graph_ops.FEED_OPS]
        return len(nodes) <= 1 and all(node.name == node.op for node in nodes)

    def requested(self):
        """How many nodes name a GPU."""
        nodes = [*self.nodes.values(), *(node for body in self.library.values() for node in body.node_def)]
        return sum(":GPU:" in node.device and node.op not in self.graph_ops.IDLE_OPS for node in nodes)
