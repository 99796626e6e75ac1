"""Nodes of TF1 graphs that have to be on one device, and which of them keeps the others from the GPU.

TensorFlow puts ops with one ``_class``, and what works on one variable, table or queue, on one device: where one of
them has no kernel there, all of them go elsewhere (tensorflow/core/common_runtime/colocation_graph.cc). Standard
library only, Python 3.7 or newer.
"""

_CLASS = "loc:@"
TOGETHER = "colocated:"
"""What a node's place is decided by; the op follows that has no CUDA kernel, if there is one."""


def request_of_its_group(requests, graph, nothing):
    """What was requested for the op whose device TensorFlow gives to those that are made now; None outside of
    Graph.colocate_with, or where that has no device: ``requests`` by graph."""
    for held in graph._colocation_stack.peek_objs():
        if held.device and getattr(held, "type", None):  # else a variable's own entry, above that of its op
            return requests.get(held.graph, {}).get(held.name, nothing)
    return None


class Groups:
    """The groups of one graph."""

    def __init__(self, nodes, makers):
        """``nodes``: by name; ``makers``: the ops that make a variable, table or queue."""
        self.nodes, self.makers = nodes, makers
        self.parents, self.sizes = {}, {}
        self.members, self.blamed = {}, {}

    def _find(self):
        """Only where a node is elsewhere than it was requested: most graphs have none."""
        nodes = self.nodes
        for name, node in nodes.items():
            for near in node.attr["_class"].list.s if "_class" in node.attr else ():
                near = near.decode()
                if near.startswith(_CLASS):
                    self._join(name, near[len(_CLASS) :])
            for given in node.input:
                source = given.split(":")[0]
                if source in nodes and nodes[source].op in self.makers:
                    self._join(name, source)
        for name in nodes:
            self.members.setdefault(self._first(name), []).append(name)

    def _first(self, name):
        while name in self.parents:
            name = self.parents[name]
        return name

    def _join(self, one, other):
        first, second = self._first(one), self._first(other)
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
        if group not in self.blamed:
            lacking, here_alone = {}, False
            for member in self.members.get(group, ()):
                here, cuda = kernels(self.nodes[member].op, self.nodes[member].attr)
                here_alone = here_alone or here is False
                if cuda is False:
                    lacking[self.nodes[member].op] = True
            worst = sorted(lacking, key=lambda op: op not in self.makers)
            self.blamed[group] = TOGETHER + worst[0] if worst else TOGETHER if here_alone else ""
        return self.blamed[group]

    def left(self, name, beside):
        """Members of a node's group that are none of ``beside``, and that some of these are computed from.

        TensorFlow has put them on the same device, and replaced them by their values, or by other nodes.
        """
        found, waiting = set(), [name]
        group = self._first(name)
        while waiting:
            for given in self.nodes[waiting.pop()].input:
                source = given.split(":")[0].lstrip("^")
                inside = source in self.nodes and self._first(source) == group
                if inside and source not in beside and source not in found:
                    found.add(source)
                    waiting.append(source)
        return found

    @staticmethod
    def told(why):
        """Whether this is an answer of :meth:`why`."""
        return why.startswith(TOGETHER)
