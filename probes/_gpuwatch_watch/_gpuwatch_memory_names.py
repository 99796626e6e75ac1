"""Names of what a TensorFlow program has in GPU memory: its variables, its inputs, and the lines that made its ops.

Part of ``gpuwatch run --memory`` (_gpuwatch_memory.py). Standard library only, Python 3.7 or newer.
"""

import gc
import sys
import time
from itertools import chain

_MAX_VARIABLES = 4000
_MAX_INPUTS = 200
_MAX_READ_ERRORS = 3
_MAX_EVENT_ENTRIES = 200
_ELEMENT_OPS = frozenset(["IteratorGetNext", "IteratorGetNextSync", "OptionalGetValue"])
_MIN_LINE_BYTES = 64 << 10
"""Bytes of a tensor whose line is worth the time: TensorFlow takes half a millisecond for each."""
_MAX_LINES = 1000
_LINES_SECONDS = 0.3
KINDS = {
    "variable": [("tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable")],
    "keras variable": [("keras.src.backend.tensorflow.core", "Variable"), ("tf_keras.src.backend", "Variable")],
    "optimizer": [
        ("keras.src.optimizers.base_optimizer", "BaseOptimizer"),
        ("tf_keras.src.optimizers.optimizer", "_BaseOptimizer"),
    ],
    "graph": [("tensorflow.python.framework.func_graph", "FuncGraph")],
    "model": [("keras.src.models.functional", "Functional")],
}


class Names:
    """Sends shapes and names of variables, and shapes of inputs; at the end also the lines of ops."""

    def __init__(self, recorder):
        """``recorder``: :class:`_gpuwatch_memory.Recorder`."""
        self.recorder = recorder
        self.lines = recorder.watcher.lines
        self.were_sent = False

    def send(self, ending=False):
        self.were_sent = True
        note = self.recorder.note
        variables, inputs = [], []
        reader = Reader(program_objects(), self.lines)
        for entry in reader.variables():
            if len(variables) >= _MAX_VARIABLES:
                note("only the first %d variables were named" % _MAX_VARIABLES)
                break
            variables.append(entry)
        for entry in reader.inputs():
            if entry not in inputs:
                inputs.append(entry)
            if len(inputs) >= _MAX_INPUTS:
                break
        lines = list(reader.lines()) if ending else []
        if ending and reader.errors:
            note("no name for what could not be read: %s" % "; ".join(sorted(reader.errors)))
        for name, entries in (("variables", variables), ("inputs", inputs), ("lines", lines)):
            for start in range(0, len(entries), _MAX_EVENT_ENTRIES):
                self.recorder.watcher.emit(
                    "memory_names", what=name, first=start == 0, entries=entries[start : start + _MAX_EVENT_ENTRIES]
                )


def program_objects():
    """The program's objects of these kinds, in one pass over all objects: some 150 ms for a million.

    Each refers to its class, so they are asked for as referrers. A list of all objects (``gc.get_objects``) would for a
    moment also hold a tuple that another thread is building, which then fails with a SystemError (bpo-15108).
    """
    kind_by_class = {}
    for name, bases in KINDS.items():
        classes = [getattr(sys.modules.get(module), class_, None) for module, class_ in bases]
        while classes:
            class_ = classes.pop()
            if class_ is not None:
                kind_by_class[class_] = name
                classes += class_.__subclasses__()
    objects_by_kind = {name: [] for name in KINDS}
    for program_object in gc.get_referrers(*kind_by_class):
        name = kind_by_class.get(type(program_object))
        if name is not None:
            objects_by_kind[name].append(program_object)
    return objects_by_kind


def _creation_number(variable):
    """In the order of creation: TensorFlow numbers its variables."""
    number = str(getattr(variable, "_unique_id", "")).rpartition("_")[2]
    return int(number) if number.isdigit() else 0


class Reader:
    """Reads the program's objects, some of which another thread, or what was interrupted, may have left unfinished."""

    def __init__(self, program_objects, lines):
        self.program_objects = program_objects
        self.program_lines = lines
        self.errors = set()
        """Why objects could not be read: one costs itself alone."""

    def each(self, name, read):
        """What ``read`` yields for each object of this kind."""
        for program_object in self.program_objects[name]:
            try:
                found = list(read(program_object))
            except Exception as error:
                if len(self.errors) < _MAX_READ_ERRORS:
                    self.errors.add("%s (%s)" % (type(program_object).__name__, str(error)[:200]))
                continue
            yield from found

    def variables(self):
        """Name, shape, type and kind of the program's variables, oldest first; the kind is Keras's, else empty."""
        kinds = dict(self.each("optimizer", _optimizer_kinds))
        for value, kind in self.each("keras variable", _keras_kinds):
            kinds.setdefault(value, kind)
        self.program_objects["variable"].sort(key=_creation_number)
        return self.each("variable", lambda variable: _described_variable(variable, kinds))

    def inputs(self):
        """Shape and type of what the program feeds: elements of datasets, inputs of models and functions; -1 is any."""
        graph_classes = tuple({type(graph) for graph in self.program_objects["graph"]})
        yield from self.each("graph", lambda graph: _graph_inputs(graph, graph_classes))
        yield from self.each("model", lambda model: chain.from_iterable(map(_described_input, model.inputs)))

    def lines(self):
        """Names of ops with a large output, and the program's line that made them, of the graphs that have several."""
        ends_at = time.monotonic() + _LINES_SECONDS
        return self.each("graph", lambda graph: _lines(graph, ends_at, self.program_lines))


def _optimizer_kinds(optimizer):
    optimizer_variables = getattr(optimizer, "variables", ())
    for variable in optimizer_variables() if callable(optimizer_variables) else optimizer_variables:
        for value in _replica_variables(getattr(variable, "_value", variable)):
            yield id(value), ("optimizer", getattr(variable, "path", ""))


def _keras_kinds(variable):
    for value in _replica_variables(getattr(variable, "_value", None)):
        yield id(value), ("weight" if variable.trainable else "state", variable.path)


def _described_variable(variable, kinds):
    kind, path = kinds.get(id(variable), ("", ""))
    if variable.shape.is_fully_defined():
        yield [str(path or variable.name)[:200], variable.shape.as_list(), variable.dtype.name, kind]


def _replica_variables(value):
    """The variables of a Keras variable: under a strategy one for each replica."""
    return getattr(value, "_values", None) or (value,)


def _graph_inputs(graph, graph_classes):
    for op in graph.get_operations():
        if op.type in _ELEMENT_OPS:
            for tensor in op.outputs:
                yield from _described_input(tensor, any_length=True)
    if not isinstance(graph.outer_graph, graph_classes):
        captured = {id(tensor_captured) for tensor_captured in graph.internal_captures}
        for tensor in list(graph.inputs):
            if id(tensor) not in captured:
                yield from _described_input(tensor)


def _lines(graph, ends_at, program_lines):
    lines = {}
    for op in graph.get_operations():
        if time.monotonic() > ends_at or len(lines) >= _MAX_LINES:
            break
        if any(_large(tensor) for tensor in op.outputs):
            frame = program_lines.maker(op.traceback)
            if frame is not None:
                place = program_lines.place(frame.filename, frame.lineno)
                lines[op.name[:300]] = "%s in %s" % (place, frame.name[:80])
    # Where all were made by the call of fit(), the line says nothing.
    if len(set(lines.values())) > 1:
        for name in lines:
            yield [name, lines[name]]


def _large(tensor):
    if tensor.dtype.name in ("resource", "variant", "string") or tensor.shape.rank is None:
        return False
    size = tensor.dtype.size
    for part in tensor.shape.as_list():
        size *= _MIN_LINE_BYTES if part is None else part
    return size >= _MIN_LINE_BYTES


def _described_input(tensor, any_length=False):
    dtype = getattr(tensor.dtype, "name", tensor.dtype)
    shape = tensor.shape.as_list() if hasattr(tensor.shape, "as_list") and tensor.shape.rank else tensor.shape
    if dtype not in ("resource", "variant", "string") and isinstance(shape, (list, tuple)) and shape:
        shape = [-1 if part is None else int(part) for part in shape]
        yield [[-1, *shape[1:]] if any_length else shape, dtype]
