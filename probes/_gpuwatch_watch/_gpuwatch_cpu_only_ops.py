"""Ops of a tf.function that no GPU can compute, on the way to ops on a GPU: each call copies their results there.

By the function's placed graph; TensorFlow has no CUDA kernel of these ops, of any type. One whose results only stay on
the CPU (prints, summaries) is none, nor one for which the program asked for a device, nor what the GPU's kernel wants
in host memory (shapes). Standard library only, Python 3.7 or newer.
"""

_IGNORED_OPS = frozenset(
    ["_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Placeholder", "_Recv", "_HostRecv", "Const"]
)
_MAX_FUNCTIONS = 50
"""Functions that are told."""
_NAME_PREFIXES = ("__inference_", "__forward_")


class CpuOnlyOps:
    def __init__(self, ops, functions):
        """``ops`` knows kernels; ``functions``: the PlacedFunctions, which know the program's requests."""
        self.ops, self.functions = ops, functions
        self.reset()

    def reset(self):
        self.reported = []
        self.function_entries = {}
        """By function: its calls, and by op how many nodes and the program's line of the first."""

    def called(self, name):
        entry = self.function_entries.get(name)
        if entry is not None:
            entry[0] += 1

    def inspect(self, name, graph, placed, requested_names):
        """Called after a function's first call. ``placed``: its nodes; ``requested_names``: names of those with a
        request."""
        if self._is_mostly_on_cpu(placed):
            return
        readers = {}
        for node in placed:
            for position, input_name in enumerate(node.input):
                if not input_name.startswith("^"):
                    readers.setdefault(input_name.split(":")[0], []).append((node, position))
        nodes_by_op = {}
        for node in placed:
            if node.name not in requested_names and self._is_cpu_only(node) and self._reaches_gpu(node.name, readers):
                entry = nodes_by_op.setdefault(node.op, [0, self._line(graph, node)])
                entry[0] += 1
        if nodes_by_op and len(self.function_entries) < _MAX_FUNCTIONS:
            self.function_entries[name] = [1, nodes_by_op]

    def _is_mostly_on_cpu(self, placed):
        """Whether more ops run on the CPU that a GPU could compute than run on GPUs: the program wants them there, as
        with a MirroredStrategy of CPUs, so the function does not leave a GPU for the others."""
        on_gpu = sum(":GPU:" in node.device and node.op not in _IGNORED_OPS for node in placed)
        on_cpu = [node for node in placed if ":CPU:" in node.device and node.op not in _IGNORED_OPS]
        return len(on_cpu) > on_gpu and sum(bool(self.ops.has_some_cuda_kernel(node.op)) for node in on_cpu) > on_gpu

    def _is_cpu_only(self, node):
        if (
            ":CPU:" not in node.device
            or node.op in _IGNORED_OPS
            or "Dataset" in node.op
            or node.op.startswith("Iterator")
        ):
            return False
        return self.ops.has_some_cuda_kernel(node.op) is False

    def _reaches_gpu(self, name, readers):
        visited, pending = {name}, [name]
        while pending:
            for node, position in readers.get(pending.pop(), ()):
                if ":GPU:" in node.device:
                    input_count = sum(not input_name.startswith("^") for input_name in node.input)
                    if not self.ops.in_host_memory(node.op, position, input_count, node.attr):
                        return True
                elif node.name not in visited:
                    visited.add(node.name)
                    pending.append(node.name)
        return False

    def _line(self, graph, node):
        """The program's line that made a node, also one inlined from a function; empty if it is not certain."""
        graphs = [graph, *(graph_searched.graph() for graph_searched in list(self.functions.functions.values()))]
        lines, path = set(), node.name
        while path and not lines:
            for graph_searched in graphs if path != node.name else graphs[:1]:
                try:
                    op = graph_searched.get_operation_by_name(path)
                except (AttributeError, KeyError):  # None, or not in this graph
                    continue
                if op.type == node.op:
                    lines.add(self.functions.scopes.made_at(op.traceback))
            path = path.partition("/")[2]
        return lines.pop() if len(lines) == 1 else ""

    def tell(self, emit):
        report = [[_function_name(name), entry[0], entry[1]] for name, entry in list(self.function_entries.items())]
        if report != self.reported:
            self.reported = report
            emit("result", name="cpu_hops", value=report)


def _function_name(name):
    for prefix in _NAME_PREFIXES:
        if name.startswith(prefix):
            name = name[len(prefix) :]
    return name.rpartition("_")[0] or name
