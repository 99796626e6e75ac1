"""Nodes of TF1 graphs that have to be on one device, and which of them keeps the others from the GPU.

TensorFlow puts ops with one ``_class``, and what works on one variable, table or queue, on one device: where one of
them has no kernel there, all of them go elsewhere (tensorflow/core/common_runtime/colocation_graph.cc). Standard
library only, Python 3.7 or newer.
"""

_CLASS_PREFIX = "loc:@"
COLOCATED = "colocated:"
"""What a node's place is decided by; the op follows that has no CUDA kernel, if there is one."""


def request_of_its_group(requests, graph, no_request):
    """What was requested for the op whose device TensorFlow gives to those that are made now; None outside of
    Graph.colocate_with, or where that has no device: ``requests`` by graph."""
    for colocation_op in graph._colocation_stack.peek_objs():
        if colocation_op.device and getattr(
            colocation_op, "type", None
        ):  # else a variable's own entry, above that of its op
            return requests.get(colocation_op.graph, {}).get(colocation_op.name, no_request)
    return None


class Groups:
    """The groups of one graph."""

    def __init__(self, nodes, resource_ops):
        """``nodes``: by name; ``resource_ops``: the ops that make a variable, table or queue."""
        self.nodes, self.resource_ops = nodes, resource_ops
        self.parents, self.sizes = {}, {}
        self.members, self.reason_by_group = {}, {}

    def _find(self):
        """Only where a node is elsewhere than it was requested: most graphs have none."""
        nodes = self.nodes
        for name, node in nodes.items():
            for colocated_name in node.attr["_class"].list.s if "_class" in node.attr else ():
                colocated_name = colocated_name.decode()
                if colocated_name.startswith(_CLASS_PREFIX):
                    self._join(name, colocated_name[len(_CLASS_PREFIX) :])
            for input_name in node.input:
                source = input_name.split(":")[0]
                if source in nodes and nodes[source].op in self.resource_ops:
                    self._join(name, source)
        for name in nodes:
            self.members.setdefault(self._first(name), []).append(name)

    def _first(self, name):
        while name in self.parents:
            name = self.parents[name]
        return name

    def _join(self, name, other_name):
        first, second = self._first(name), self._first(other_name)
        if first == second:
            return
        if self.sizes.get(first, 1) > self.sizes.get(second, 1):
            first, second = second, first
        self.parents[first] = second
        self.sizes[second] = self.sizes.get(second, 1) + self.sizes.get(first, 1)

    def why(self, name, kernels):
        """Why a node is where the rest of its group is; empty if no other one of them lacks a kernel.

        ``kernels``: whether an op with these attributes has a kernel for the GPUs here, and a CUDA kernel. Of several
        without, what makes a variable is told before what uses it.
        """
        if False in kernels(self.nodes[name].op, self.nodes[name].attr):
            return ""
        if not self.members:
            self._find()
        group = self._first(name)
        if group not in self.reason_by_group:
            lacking, lacks_gpu_kernel = {}, False
            for member in self.members.get(group, ()):
                gpu_kernel, cuda_kernel = kernels(self.nodes[member].op, self.nodes[member].attr)
                lacks_gpu_kernel = lacks_gpu_kernel or gpu_kernel is False
                if cuda_kernel is False:
                    lacking[self.nodes[member].op] = True
            blamed_ops = sorted(lacking, key=lambda op: op not in self.resource_ops)
            self.reason_by_group[group] = (
                COLOCATED + blamed_ops[0] if blamed_ops else COLOCATED if lacks_gpu_kernel else ""
            )
        return self.reason_by_group[group]

    def removed_members(self, name, placed_names):
        """Members of a node's group that are none of ``placed_names``, and that some of these are computed from.

        TensorFlow has put them on the same device, and replaced them by their values, or by other nodes.
        """
        removed, pending = set(), [name]
        group = self._first(name)
        while pending:
            for input_name in self.nodes[pending.pop()].input:
                source = input_name.split(":")[0].lstrip("^")
                is_of_group = source in self.nodes and self._first(source) == group
                if is_of_group and source not in placed_names and source not in removed:
                    removed.add(source)
                    pending.append(source)
        return removed

    @staticmethod
    def is_reason(reason):
        """Whether this is an answer of :meth:`why`."""
        return reason.startswith(COLOCATED)
