"""Ops of a tf.function that no GPU can compute, on the way to ops on a GPU: each call copies their results there.

By the function's placed graph; TensorFlow has no CUDA kernel of these ops, of any type. One whose results only stay on
the CPU (prints, summaries) is none, nor one for which the program asked for a device, nor what the GPU's kernel wants
in host memory (shapes). Standard library only, Python 3.7 or newer.
"""

_NONE = frozenset(["_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Placeholder", "_Recv", "_HostRecv", "Const"])
_MOST = 50
"""Functions that are told."""
_NAMES = ("__inference_", "__forward_")


class Hops:
    def __init__(self, ops, functions):
        """``ops`` knows kernels; ``functions``: the PlacedFunctions, which know the program's requests."""
        self.ops, self.functions = ops, functions
        self.reset()

    def reset(self):
        self.told = []
        self.known = {}
        """By function: its calls, and by op how many nodes and the program's line of the first."""

    def called(self, name):
        entry = self.known.get(name)
        if entry is not None:
            entry[0] += 1

    def look(self, name, graph, placed, asked):
        """Called after a function's first call. ``placed``: its nodes; ``asked``: names of those with a request."""
        readers = {}
        for node in placed:
            for at, given in enumerate(node.input):
                if not given.startswith("^"):
                    readers.setdefault(given.split(":")[0], []).append((node, at))
        found = {}
        for node in placed:
            if node.name not in asked and self._is_hop(node) and self._reaches_gpu(node.name, readers):
                entry = found.setdefault(node.op, [0, self._line(graph, node)])
                entry[0] += 1
        if found and len(self.known) < _MOST:
            self.known[name] = [1, found]

    def _is_hop(self, node):
        if ":CPU:" not in node.device or node.op in _NONE or "Dataset" in node.op or node.op.startswith("Iterator"):
            return False
        return self.ops.has_some_cuda_kernel(node.op) is False

    def _reaches_gpu(self, name, readers):
        seen, waiting = {name}, [name]
        while waiting:
            for node, at in readers.get(waiting.pop(), ()):
                if ":GPU:" in node.device:
                    many = sum(not given.startswith("^") for given in node.input)
                    if not self.ops.in_host_memory(node.op, at, many, node.attr):
                        return True
                elif node.name not in seen:
                    seen.add(node.name)
                    waiting.append(node.name)
        return False

    def _line(self, graph, node):
        """The program's line that made a node, also one inlined from a function; empty if it is not certain."""
        graphs = [graph, *(one.graph() for one in list(self.functions.functions.values()))]
        lines, path = set(), node.name
        while path and not lines:
            for one in graphs if path != node.name else graphs[:1]:
                try:
                    op = one.get_operation_by_name(path)
                except (AttributeError, KeyError):  # None, or not in this graph
                    continue
                if op.type == node.op:
                    lines.add(self.functions.scopes.made_at(op.traceback))
            path = path.partition("/")[2]
        return lines.pop() if len(lines) == 1 else ""

    def tell(self, emit):
        told = [[_short(name), entry[0], entry[1]] for name, entry in list(self.known.items())]
        if told != self.told:
            self.told = told
            emit("result", name="cpu_hops", value=told)


def _short(name):
    for start in _NAMES:
        if name.startswith(start):
            name = name[len(start) :]
    return name.rpartition("_")[0] or name
