"""Finds large arrays that are constants of a tf.function's graph, and from which size on: each trace copies them.

Standard library only, Python 3.7 or newer.
"""

_MIN_BYTES = 16 << 20
"""Bytes of an array from which it is reported."""
_MAX_CONSTANTS = 20


class Constants:
    def __init__(self, scopes):
        self.scopes = scopes
        self.entries = {}
        """By function, line, type and shape: bytes, and how many graphs have it."""
        self.reported_graphs = 0

    def inspect(self, graph):
        """``graph``: of a function that was just traced."""
        for op in graph.get_operations():
            value = op.outputs[0] if op.type == "Const" else None
            size = (value.shape.num_elements() or 0) * value.dtype.size if value is not None else 0
            if size < _MIN_BYTES:
                continue
            key = (graph.name, self.scopes.made_at(op.traceback), value.dtype.name, str(value.shape))
            if key in self.entries or len(self.entries) < _MAX_CONSTANTS:
                self.entries.setdefault(key, [size, 0])[1] += 1

    def tell(self, emit):
        graphs = sum(entry[1] for entry in list(self.entries.values()))
        if graphs != self.reported_graphs:
            self.reported_graphs = graphs
            emit("result", name="large_constants", value=[[*key, *entry] for key, entry in list(self.entries.items())])
