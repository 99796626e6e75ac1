"""Large arrays that are constants of a tf.function's graph: each trace copies them.

Standard library only, Python 3.7 or newer.
"""

_LARGE = 16 << 20
"""Bytes from which one is told."""
_MOST = 20


class Constants:
    def __init__(self, scopes):
        self.scopes = scopes
        self.found = {}
        """By function, line, type and shape: bytes, and how many graphs have it."""
        self.told = 0

    def look(self, graph):
        """``graph``: of a function that was just traced."""
        for op in graph.get_operations():
            value = op.outputs[0] if op.type == "Const" else None
            size = (value.shape.num_elements() or 0) * value.dtype.size if value is not None else 0
            if size < _LARGE:
                continue
            key = (graph.name, self.scopes.made_at(op.traceback), value.dtype.name, str(value.shape))
            if key in self.found or len(self.found) < _MOST:
                self.found.setdefault(key, [size, 0])[1] += 1

    def tell(self, emit):
        graphs = sum(entry[1] for entry in list(self.found.values()))
        if graphs != self.told:
            self.told = graphs
            emit("result", name="large_constants", value=[[*key, *entry] for key, entry in list(self.found.items())])
