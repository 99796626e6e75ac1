"""Small programs that request devices, each with what is true of it.

``want(op, requested, device)``: an op of the program that ran there instead; the device is that of the tensor, variable
or table. ``allow``: may be seen too, as another op of the same object, or what TensorFlow adds in the same scope.
"""

import contextlib
import os
import tempfile
import threading
from concurrent import futures

import tensorflow as tf

PROGRAMS = {}
wanted, allowed = set(), set()
CPU = "CPU:0"
STRINGS = ("StringJoin", "AsString")


def short(name):
    spec = tf.DeviceSpec.from_string(name if name.startswith("/") else "/device:" + name)
    return f"{spec.device_type}:{spec.device_index}"


def want(op, requested, device=CPU):
    wanted.add((op, requested, short(device)))


def allow(requested, *ops, device=CPU):
    allowed.update((op, requested, short(device)) for op in ops)


def want_strings(*requested):
    for one in requested:
        for op in STRINGS:
            want(op, one)


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def ones():
    return tf.ones([4, 4])


def text(a):
    """Two ops without a GPU kernel."""
    return tf.strings.join(["a", tf.as_string(a[0, 0])])


# Eager ops


@program
def string():
    with tf.device("/GPU:0"):
        tf.strings.join(["a", "b"])
    want("StringJoin", "GPU:0")


@program
def integer_product():
    a = tf.ones([2, 2], tf.int32)
    with tf.device("/GPU:0"):
        want("MatMul", "GPU:0", tf.matmul(a, a).device)


@program
def missing_gpu():
    a = ones()
    with tf.device("/GPU:3"):
        want("MatMul", "GPU:3", tf.matmul(a, a).device)


@program
def nothing_requested():
    tf.strings.join(["a", "b"])


@program
def cpu_requested():
    with tf.device("/CPU:0"):
        tf.strings.join(["a", "b"])
        ones()


@program
def scope_reset():
    with tf.device("/GPU:0"), tf.device(None):
        tf.strings.join(["a", "b"])


@program
def inner_scope_wins():
    with tf.device("/GPU:0"), tf.device("/CPU:0"):
        tf.strings.join(["a", "b"])


@program
def after_an_inner_scope():
    with tf.device("/GPU:1"):
        with tf.device("/CPU:0"):
            ones()
        tf.strings.join(["a", "b"])
    want("StringJoin", "GPU:1")


@program
def exit_stack():
    with contextlib.ExitStack() as stack:
        stack.enter_context(tf.device("/GPU:1"))
        tf.strings.join(["a", "b"])
    want("StringJoin", "GPU:1")


@program
def scope_made_before():
    scope = tf.device("/GPU:0")
    with scope:
        tf.strings.join(["a", "b"])
    want("StringJoin", "GPU:0")


@program
def job_only():
    with tf.device("/job:localhost"):
        tf.strings.join(["a", "b"])


@program
def scope_that_cannot_be_entered():
    try:
        with tf.device("/GPU:zero"):
            ones()
    except ValueError:
        tf.strings.join(["a", "b"])
    with tf.device("/GPU:1"):
        tf.strings.join(["a", "b"])
    want("StringJoin", "GPU:1")


@program
def exception_in_a_scope():
    with contextlib.suppress(KeyError), tf.device("/GPU:0"):
        raise KeyError("program's own")
    tf.strings.join(["a", "b"])


@program
def scope_in_a_thread():
    def work():
        with tf.device("/GPU:0"):
            tf.strings.join(["a", "b"])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    want("StringJoin", "GPU:0")


@program
def scope_around_a_thread():
    """A scope is of one thread."""
    with tf.device("/GPU:0"):
        thread = threading.Thread(target=lambda: tf.strings.join(["a", "b"]))
        thread.start()
        thread.join()


@program
def generator_of_ops():
    with tf.device("/GPU:0"):
        for _ in range(3):
            tf.strings.length(tf.strings.join(["a", "b"]))
    want("StringJoin", "GPU:0")
    want("StringLength", "GPU:0")


@program
def vectorized_map():
    with tf.device("/GPU:0"):
        tf.vectorized_map(lambda row: row * 2.0, ones())


@program
def files_and_pictures():
    path = os.path.join(tempfile.mkdtemp(), "a.png")
    tf.io.write_file(path, tf.io.encode_png(tf.zeros([4, 4, 3], tf.uint8)))
    with tf.device("/GPU:0"):
        tf.io.decode_png(tf.io.read_file(path))
    want("ReadFile", "GPU:0")
    want("DecodePng", "GPU:0")


# Variables and other resources


def variable(dtype, value):
    with tf.device("/GPU:0"):
        made = tf.Variable(value, dtype=dtype)
    if "GPU" not in made.device:
        want("VarHandleOp", "GPU:0", made.device)
        allow("GPU:0", "AssignVariableOp", device=made.device)


for _name, _value in {
    **{"float32": 1.0, "float64": 1.0, "float16": 1.0, "int64": 1, "int32": 1},
    **{"uint8": 1, "bool": True, "string": "a", "complex64": 1},
}.items():
    PROGRAMS[f"variable_{_name}"] = lambda name=_name, value=_value: variable(getattr(tf, name), value)


@program
def variable_on_a_missing_gpu():
    with tf.device("/GPU:3"):
        made = tf.Variable(1.0)
    want("VarHandleOp", "GPU:3", made.device)
    allow("GPU:3", "AssignVariableOp", device=made.device)


@program
def variable_of_a_function():
    with tf.device("/GPU:0"):
        made = tf.Variable(lambda: tf.zeros([3], tf.int32), dtype=tf.int32)
    want("VarHandleOp", "GPU:0", made.device)
    allow("GPU:0", "AssignVariableOp", "Fill", "Cast")


@program
def counter():
    step = tf.Variable(1)
    with tf.device("/GPU:0"):
        step.assign_add(1)
    want("AssignAddVariableOp", "GPU:0", step.device)
    allow("GPU:0", "ReadVariableOp")


@program
def variable_of_another_gpu():
    with tf.device("/GPU:1"):
        made = tf.Variable(1.0)
    with tf.device("/GPU:0"):
        made.assign_add(1.0)
        made.assign(2.0)
        made.read_value()
    for op in ("AssignAddVariableOp", "AssignVariableOp", "ReadVariableOp"):
        want(op, "GPU:0", made.device)


@program
def module_under_gpu():
    class Layer(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = tf.Variable(ones())
            self.calls = tf.Variable(0)

    with tf.device("/GPU:0"):
        layer = Layer()
    want("VarHandleOp", "GPU:0", layer.calls.device)
    allow("GPU:0", "AssignVariableOp")


@program
def static_table():
    with tf.device("/GPU:0"):
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)
        table.lookup(tf.constant(["a"]))
    for op in ("HashTableV2", "LookupTableFindV2"):
        want(op, "GPU:0", table.resource_handle.device)
    allow("GPU:0", "LookupTableImportV2")


@program
def mutable_table():
    with tf.device("/GPU:0"):
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        table.insert(["a"], [1])
    want("MutableHashTableV2", "GPU:0", table.resource_handle.device)


@program
def table_in_a_function():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)

    @tf.function
    def find(key):
        with tf.device("/GPU:0"):
            return table.lookup(key)

    find(tf.constant(["a"]))
    want("LookupTableFindV2", "GPU:0")


@program
def queue():
    with tf.device("/GPU:0"):
        made = tf.queue.FIFOQueue(3, [tf.string], shapes=[[]])
        made.enqueue("a")
        made.dequeue()
    if "CPU" in made.queue_ref.device:
        for op in ("FIFOQueueV2", "QueueEnqueueV2", "QueueDequeueV2"):
            want(op, "GPU:0", made.queue_ref.device)


# Functions


@program
def scope_in_a_function():
    @tf.function
    def f(a):
        with tf.device("/GPU:1"):
            found = text(a)
        return found, a @ a

    f(ones())
    want_strings("GPU:1")


@program
def scope_around_a_function():
    f = tf.function(lambda a: (text(a), a @ a))
    a = ones()
    with tf.device("/GPU:0"):
        f(a)
    want_strings("GPU:0")


@program
def function_with_and_without_a_scope():
    f = tf.function(text)
    a = ones()
    f(a)
    with tf.device("/GPU:1"):
        f(a)
    want_strings("GPU:1")


@program
def missing_gpu_in_a_function():
    @tf.function
    def f(a):
        with tf.device("/GPU:5"):
            return a @ a

    want("MatMul", "GPU:5", f(ones()).device)


@program
def function_in_a_function():
    g = tf.function(text)

    @tf.function
    def f(a):
        with tf.device("/GPU:1"):
            return g(a)

    f(ones())
    want_strings("GPU:1")


@program
def inner_function_s_own_scope():
    @tf.function
    def g(a):
        with tf.device("/CPU:0"):
            return text(a)

    @tf.function
    def f(a):
        with tf.device("/GPU:1"):
            return g(a)

    f(ones())


@program
def three_functions_deep():
    a1 = tf.function(text)
    a2 = tf.function(lambda a: a1(a))

    @tf.function
    def f(a):
        with tf.device("/GPU:1"):
            return a2(a)

    f(ones())
    want_strings("GPU:1")


@program
def one_function_under_two_scopes():
    g = tf.function(text)

    @tf.function
    def f(a):
        with tf.device("/GPU:0"):
            first = g(a)
        with tf.device("/GPU:1"):
            return first, g(a)

    f(ones())
    want_strings("GPU:0", "GPU:1")


@program
def function_without_a_request():
    tf.function(text)(ones())


@program
def equal_functions_of_which_one_requests():
    @tf.function
    def f(a):
        with tf.device("/GPU:0"):
            return text(a)

    f(ones())
    tf.function(text)(ones())
    want_strings("GPU:0")


@program
def equal_functions_with_other_requests():
    def make(device):
        @tf.function
        def f(a):
            with tf.device(device):
                return text(a)

        return f

    make("/GPU:0")(ones())
    make("/GPU:1")(ones())
    want_strings("GPU:0", "GPU:1")


@program
def without_autograph():
    @tf.function(autograph=False)
    def f(a):
        with tf.device("/GPU:1"):
            return text(a)

    f(ones())
    want_strings("GPU:1")


@program
def step_counter_in_a_function():
    with tf.device("/GPU:1"):
        weights, step = tf.Variable([1.0, 2.0]), tf.Variable(0, dtype=tf.int32)

    @tf.function
    def train():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights * weights)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        step.assign_add(1)

    train()
    train()
    want("VarHandleOp", "GPU:1", step.device)
    allow("GPU:1", "AssignVariableOp")


@program
def loop():
    @tf.function
    def f(a):
        found = tf.constant("a")
        for _ in tf.range(tf.cast(a[0, 0], tf.int32) + 2):
            with tf.device("/GPU:0"):
                found = tf.strings.join([found, "b"])
        return found

    f(ones())
    want("StringJoin", "GPU:0")


@program
def branch():
    @tf.function
    def f(a):
        found = tf.constant("a")
        if a[0, 0] > 0:
            with tf.device("/GPU:0"):
                found = tf.strings.join([found, "b"])
        return found

    f(ones())
    want("StringJoin", "GPU:0")


@program
def switch():
    @tf.function
    def f(number):
        with tf.device("/GPU:1"):
            branches = [lambda: tf.strings.join(["a", tf.as_string(number)]), lambda: tf.constant("z")]
            return tf.switch_case(number, branches)

    f(tf.constant(0))
    want_strings("GPU:1")
    allow("GPU:1", "Case", "StatelessCase")


@program
def map_over_rows():
    @tf.function
    def f(a):
        with tf.device("/GPU:0"):
            return tf.map_fn(lambda row: text(row[None]), a, fn_output_signature=tf.string)

    f(ones())
    want_strings("GPU:0")
    allow("GPU:0", "TensorListSetItem", "TensorListStack", "TensorListReserve")


@program
def not_inlined():
    @tf.function(experimental_attributes={"_noinline": True})
    def g(a):
        return text(a)

    @tf.function
    def f(a):
        with tf.device("/GPU:1"):
            return g(a)

    f(ones())
    want_strings("GPU:1")


@program
def function_in_a_thread():
    f = tf.function(text)

    def work():
        with tf.device("/GPU:1"):
            f(ones())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    want_strings("GPU:1")


@program
def equal_functions_in_two_threads():
    def work(device):
        f = tf.function(text)
        with tf.device(device):
            f(ones())

    threads = [threading.Thread(target=work, args=(f"/GPU:{number}",)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    want_strings("GPU:0", "GPU:1")


@program
def products_in_two_threads():
    def work(device):
        @tf.function
        def f(a):
            with tf.device(device):
                return a @ a

        f(ones())

    threads = [threading.Thread(target=work, args=(f"/GPU:{number}",)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@program
def in_a_thread_that_only_calls():
    @tf.function
    def f(a):
        with tf.device("/GPU:3"):
            return a @ a

    a = ones()
    thread = threading.Thread(target=f.get_concrete_function(a), args=(a,))
    thread.start()
    thread.join()
    want("MatMul", "GPU:3", "GPU:0")


@program
def python_function():
    @tf.function
    def f(a):
        with tf.device("/GPU:0"):
            return tf.py_function(lambda value: value + 1, [a], tf.float32)

    f(ones())


@program
def gradient():
    a = tf.Variable(tf.eye(4))
    with tf.device("/GPU:0"):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(tf.linalg.eigvalsh(a * 2.0))
        tape.gradient(y, a)
    if "CPU" in tf.linalg.eigvalsh(tf.eye(4)).device:
        want("SelfAdjointEigV2", "GPU:0")
    allow("GPU:0", "MatrixBandPart", "MatrixDiagPartV3", "MatrixDiagV3", "MatrixSetDiagV3")


@program
def gradient_in_a_function():
    a = tf.Variable(tf.eye(4))

    @tf.function
    def f():
        with tf.GradientTape() as tape, tf.device("/GPU:1"):
            y = tf.reduce_sum(tf.linalg.eigvalsh(a * 2.0))
        return y, tape.gradient(y, a)

    f()
    if "CPU" in tf.linalg.eigvalsh(tf.eye(4)).device:
        want("SelfAdjointEigV2", "GPU:1")


@program
def gradient_of_a_loop_in_a_function():
    with tf.device("/GPU:0"):
        weights, steps = tf.Variable(ones()), tf.Variable(0.0)

    @tf.function
    def f(x):
        for _ in tf.range(2):
            x = x @ weights
        with tf.device("/GPU:1"):
            steps.assign_add(1.0)
            return text(x), x @ weights

    with tf.GradientTape() as tape:
        y = tf.reduce_sum(f(ones())[1])
    tape.gradient(y, weights)
    want_strings("GPU:1")
    want("AssignAddVariableOp", "GPU:1", steps.device)
    allow("GPU:1", "ReadVariableOp", device="GPU:0")


# Datasets, sessions, saved models


@program
def dataset_map():
    def add(value):
        with tf.device("/GPU:0"):
            return tf.strings.join([value, "b"])

    for _ in tf.data.Dataset.from_tensor_slices(["a", "c"]).map(add):
        pass
    want("StringJoin", "GPU:0")


@program
def dataset_maps_of_which_one_requests():
    dataset_map()
    for _ in tf.data.Dataset.from_tensor_slices(["a", "c"]).map(lambda value: tf.strings.join([value, "b"])):
        pass


@program
def dataset_without_a_request():
    data = tf.data.Dataset.from_tensor_slices(["a", "c"]).map(lambda value: tf.strings.join([value, "b"]))
    for _ in data.batch(2).prefetch(1):
        pass


@program
def dataset_under_gpu():
    with tf.device("/GPU:0"):
        for _ in tf.data.Dataset.range(3).batch(2).prefetch(1):
            pass
    want("RangeDataset", "GPU:0")
    want("BatchDatasetV2", "GPU:0")
    allow("GPU:0", "PrefetchDataset")


@program
def small_tensors_from_outside():
    a, rows = ones(), tf.constant([1, 2], tf.int64)

    @tf.function
    def f():
        with tf.device("/GPU:0"):
            return text(tf.gather(a, rows)), tf.gather(a, rows) @ a

    f()
    want_strings("GPU:0")


def session(build, variables=False):
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    with tf.Graph().as_default():
        fetch = build(tf.compat.v1.placeholder(tf.float32, [4, 4], name="p"))
        with tf.compat.v1.Session(config=config) as running:
            if variables:
                running.run(tf.compat.v1.global_variables_initializer())
            running.run(fetch, {"p:0": [[1.0] * 4] * 4})
            running.run(fetch, {"p:0": [[2.0] * 4] * 4})


@program
def session_scope():
    def build(a):
        with tf.device("/GPU:0"):
            return text(a)

    session(build)
    want_strings("GPU:0")


@program
def sessions_of_which_one_requests():
    session_scope()
    session(text)


@program
def session_device_function():
    def build(a):
        with tf.compat.v1.get_default_graph().device(lambda op: "/GPU:1" if op.type == "StringJoin" else ""):
            return text(a)

    session(build)
    want("StringJoin", "GPU:1")


@program
def session_counter():
    def build(a):
        with tf.device("/GPU:0"):
            zero = tf.compat.v1.zeros_initializer()
            step = tf.compat.v1.get_variable("step", [], tf.int32, zero, use_resource=True)
            return tf.compat.v1.assign_add(step, 1)

    session(build, variables=True)
    want("VarHandleOp", "GPU:0")
    allow("GPU:0", "AssignVariableOp", "AssignAddVariableOp", "ReadVariableOp", "VarIsInitializedOp")


@program
def session_device_function_that_makes_a_counter():
    """TensorFlow's own scope puts the initial value where the program's function puts the variable."""

    def build(a):
        with tf.compat.v1.get_default_graph().device(lambda op: "/GPU:0" if op.type == "VarHandleOp" else ""):
            zero = tf.compat.v1.zeros_initializer()
            return tf.compat.v1.get_variable("tries", [], tf.int32, zero, use_resource=True).read_value()

    session(build, variables=True)
    want("VarHandleOp", "GPU:0")
    want("AssignVariableOp", "GPU:0")


def sparse_update(optimizer, resource, requested, updated, *lacking, **minimize):
    """An optimizer without a GPU kernel for sparse updates: the variable, its slots and their gradient fall with it."""

    def build(_):
        with tf.device(requested):
            zero = tf.compat.v1.zeros_initializer()
            table = tf.compat.v1.get_variable("table", [9, 4], initializer=zero, use_resource=resource)
        with tf.device(updated):
            return optimizer.minimize(tf.reduce_sum(tf.gather(table, [1, 2])), **minimize)

    session(build, variables=True)
    for op in lacking:
        want(op, (requested or updated)[1:])
    if lacking:
        allow((requested or updated)[1:], "Shape", "Unique", "StridedSlice", "UnsortedSegmentSum", "Const")


MADE = "VarHandleOp", "AssignVariableOp"
MADE_REF = "VariableV2", "Assign"


@program
def session_sparse_momentum():
    optimizer = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
    sparse_update(optimizer, False, "/GPU:0", "/GPU:0", "SparseApplyMomentum", *MADE_REF)


@program
def session_sparse_momentum_of_a_resource():
    optimizer = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
    sparse_update(optimizer, True, "/GPU:1", "/GPU:1", "ResourceSparseApplyMomentum", *MADE)


@program
def session_sparse_rmsprop_with_colocated_gradients():
    optimizer = tf.compat.v1.train.RMSPropOptimizer(0.1)
    made = ("SparseApplyRMSProp", *MADE_REF)
    sparse_update(optimizer, False, "/GPU:0", None, *made, colocate_gradients_with_ops=True)


@program
def session_sparse_momentum_of_a_variable_left_to_tensorflow():
    """Its slot is made where the update is asked for."""
    made = ("SparseApplyMomentum", *MADE_REF)
    sparse_update(tf.compat.v1.train.MomentumOptimizer(0.1, 0.9), False, None, "/GPU:0", *made)


@program
def session_sparse_momentum_of_a_variable_on_the_cpu():
    sparse_update(tf.compat.v1.train.MomentumOptimizer(0.1, 0.9), False, "/CPU:0", "/GPU:0")


@program
def session_sparse_adam():
    """It has GPU kernels for sparse updates too."""
    sparse_update(tf.compat.v1.train.AdamOptimizer(0.1), False, "/GPU:0", "/GPU:0")


@program
def session_colocated_by_the_program():
    def build(a):
        with tf.device("/GPU:0"):
            ones = tf.compat.v1.ones_initializer()
            counter = tf.compat.v1.get_variable("counter", [4], tf.int32, ones, use_resource=False)
        with tf.compat.v1.colocate_with(counter), tf.device("/GPU:1"):  # overridden
            return tf.cast(counter, tf.float32) * 2.0

    session(build, variables=True)
    for op in ("VariableV2", "Assign", "Cast", "Mul"):
        want(op, "GPU:0")
    allow("GPU:0", "Identity", "Const")


@program
def monitored_session():
    with tf.Graph().as_default():
        with tf.device("/GPU:0"):
            joined = text(tf.random.uniform([1, 1]))
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        with tf.compat.v1.train.MonitoredSession(tf.compat.v1.train.ChiefSessionCreator(config=config)) as running:
            running.run(joined)
    want_strings("GPU:0")


@program
def session_on_a_device_of_another_framework():
    def build(a):
        with tf.device("/device:CUDA:0"):
            return a @ a

    session(build)
    want("MatMul", "CUDA:0", "GPU:0")


class Saved(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([4, 4])])
    def f(self, a):
        return text(a)


@program
def saved_model_under_gpu():
    folder = tempfile.mkdtemp()
    tf.saved_model.save(Saved(), folder)
    loaded = tf.saved_model.load(folder)
    a = ones()
    with tf.device("/GPU:0"):
        loaded.f(a)
    want_strings("GPU:0")


@program
def graph_that_is_imported():
    made = tf.Graph()
    with made.as_default(), tf.device("/GPU:1"):
        tf.strings.join(["a", tf.as_string(tf.random.uniform([]))], name="joined")
    graph = made.as_graph_def()
    session(lambda a: tf.import_graph_def(graph, return_elements=["joined:0"])[0])
    want_strings("GPU:1")
    allow("GPU:1", "RandomUniform", "Mul", "AddV2", "Add", "Sub")
    allow("GPU:1", "RandomUniform", device="GPU:0")


@program
def checkpoint_under_gpu():
    with tf.device("/GPU:0"):
        made = tf.Variable(1.0)
        tf.train.Checkpoint(v=made).write(os.path.join(tempfile.mkdtemp(), "c"))


@program
def gradient_of_a_loaded_loop():
    made, folder = tf.Module(), tempfile.mkdtemp()

    def f(a):
        with tf.device("/GPU:0"):
            return tf.while_loop(lambda a: tf.strings.length(text(a)) < 0, lambda a: [a * 2], [a])[0]

    made.f = tf.function(f, input_signature=[tf.TensorSpec([4, 4])])
    tf.saved_model.save(made, folder)
    loaded = tf.saved_model.load(folder)
    with tf.GradientTape() as tape:
        a = tf.Variable(ones())
        found = loaded.f(a)
    tape.gradient(found, a)
    want_strings("GPU:0")
    want("StringLength", "GPU:0")


# XLA: a compiled function runs on one device, whatever its scopes say. Simulated GPUs compile nothing.


@program
def compiled_for_the_cpu():
    f = tf.function(lambda a: a @ a, jit_compile=True)
    with tf.device("/CPU:0"):
        f(ones())


@program
def scope_in_a_compiled_function():
    @tf.function(jit_compile=True)
    def f(a):
        with tf.device("/GPU:1"):
            return a @ a

    with tf.device("/CPU:0"):
        want("MatMul", "GPU:1", f(ones()).device)


@program
def loop_in_a_compiled_function():
    @tf.function(jit_compile=True)
    def f(a):
        for _ in tf.range(3):
            with tf.device("/GPU:0"):
                a = tf.linalg.matmul(a, a)
        return a

    with tf.device("/CPU:0"):
        want("MatMul", "GPU:0", f(ones()).device)


@program
def compiled_function_in_a_function():
    @tf.function(jit_compile=True)
    def g(a):
        with tf.device("/GPU:1"):
            return a @ a

    @tf.function
    def f(a):
        with tf.device("/CPU:0"):
            return g(a)

    with tf.device("/CPU:0"):
        f(ones())
    want("MatMul", "GPU:1")


@program
def compiled_function_and_one_that_is_not():
    compiled = tf.function(lambda a: a @ a, jit_compile=True)
    a = ones()
    with tf.device("/CPU:0"):
        compiled(a)
    with tf.device("/GPU:1"):
        tf.function(text)(a)
    want_strings("GPU:1")


@program
def loop_in_a_map_of_a_dataset():
    def f(number):
        found = tf.constant("a")
        for _ in tf.range(number):
            with tf.device("/GPU:1"):
                found = tf.strings.join([found, "b"])
        return found

    for _ in tf.data.Dataset.range(3).map(f):
        pass
    want("StringJoin", "GPU:1")


@program
def refused_and_caught():
    tf.config.set_soft_device_placement(False)
    for work in (lambda: tf.strings.upper(["a"]), lambda: tf.matmul(ones(), ones())):
        with contextlib.suppress(tf.errors.InvalidArgumentError), tf.device("/GPU:0"), tf.device("/GPU:1"):
            work()
    wanted.add(("StringUpper", "GPU:1", "refused"))


@program
def refused_by_a_session():
    with tf.Graph().as_default():
        with tf.device("/GPU:1"):
            found = tf.strings.upper(["a"])
        with contextlib.suppress(tf.errors.InvalidArgumentError), tf.compat.v1.Session() as running:
            running.run(found)
    wanted.add(("StringUpper", "GPU:1", "refused"))


@program
def a_session_that_fails_otherwise():
    with tf.Graph().as_default():
        with tf.device("/GPU:1"):
            found = tf.matmul(tf.compat.v1.placeholder(tf.float32, [2, None]), ones())
        with contextlib.suppress(tf.errors.InvalidArgumentError), tf.compat.v1.Session() as running:
            running.run(found)
        with tf.device("/GPU:5"):
            found = tf.matmul(ones(), ones())
        with contextlib.suppress(tf.errors.InvalidArgumentError), tf.compat.v1.Session() as running:
            running.run(found)
    wanted.add(("MatMul", "GPU:5", "refused"))


# Strategies and Keras


@program
def mirrored_without_a_request():
    strategy = tf.distribute.MirroredStrategy(["/GPU:0", "/GPU:1"])
    with strategy.scope():
        made = tf.Variable(1.0)
        tf.Variable(1)
    strategy.run(tf.function(lambda: made * 2.0))
    for gpu in ("GPU:0", "GPU:1"):
        want("VarHandleOp", gpu)
        want("AssignVariableOp", gpu)


@program
def mirrored_made_by_keras():
    import keras

    with tf.distribute.MirroredStrategy(["/GPU:0", "/GPU:1"]).scope():
        keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(4)])


@program
def variables_of_another_strategy():
    with tf.distribute.OneDeviceStrategy("/CPU:0").scope():
        tf.Variable(1)
    tf.Variable(1)


@program
def mirrored_with_a_scope():
    strategy = tf.distribute.MirroredStrategy(["/GPU:0", "/GPU:1"])

    @tf.function
    def step():
        def one():
            with tf.device("/GPU:0"):
                return tf.strings.join(["a", tf.as_string(tf.random.uniform([]))])

        return strategy.run(one)

    step()
    want_strings("GPU:0")


def fit(scope):
    import keras

    with scope:
        layers = [keras.layers.Input([4]), keras.layers.Dense(3), keras.layers.Dropout(0.1), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("adam", "mse", metrics=["mae"], jit_compile=False)
        model.fit(ones(), tf.ones([4, 1]), epochs=1, verbose=0)
    return model


@program
def keras_fit():
    fit(contextlib.nullcontext())


@program
def keras_fit_under_gpu():
    model = fit(tf.device("/GPU:1"))
    allow("GPU:1", "FloorMod", "DynamicStitch", "Prod", "Shape")  # int32: Keras's own, in the program's scope
    for made in [*model.variables, *model.optimizer.variables]:
        if short(made.value.device) != "GPU:1":
            want("VarHandleOp", "GPU:1", made.value.device)


@program
def keras_text_under_gpu():
    """Constants of its layers are pruned, and a string's shape is told on the CPU, where the string is: no fallback."""
    import keras

    texts = tf.constant(["good", "bad good", "good good bad", "bad"])
    vectorize = keras.layers.TextVectorization(vocabulary=["good", "bad"], output_sequence_length=4)
    given = keras.Input(shape=(), dtype="string")
    inner = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(8, 4)(vectorize(given)))
    model = keras.Model(given, keras.layers.Dense(1)(inner))
    model.compile("sgd", "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((texts, tf.ones([4, 1]))).batch(2)
    with tf.device("/GPU:0"):
        model.fit(data, verbose=0)
    want("RaggedTensorToTensor", "GPU:0")
    allow("GPU:0", "FloorMod", "DynamicStitch", "Prod", "ReadVariableOp", "VarHandleOp", "AssignVariableOp")


@program
def keras_functional():
    import keras

    with tf.device("/GPU:1"):
        given = keras.Input([4])
        model = keras.Model(given, keras.layers.Dense(2)(given))
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(ones(), tf.ones([4, 2]), verbose=0)
    for made in model.variables:
        if short(made.value.device) != "GPU:1":
            want("VarHandleOp", "GPU:1", made.value.device)
    allow("GPU:1", "FloorMod", "DynamicStitch", "Prod", "Shape")


@program
def keras_layer_with_a_scope():
    import keras

    class Layer(keras.layers.Layer):
        def call(self, a):
            with tf.device("/GPU:1"):
                text(a)
                return a * 2.0

    model = keras.Sequential([keras.layers.Input([4]), Layer()])
    model.compile(jit_compile=False)
    model.predict(ones(), verbose=0, batch_size=4)
    allow("GPU:1", *STRINGS)  # pruned: no output


@program
def keras_embedding_on_the_cpu():
    import keras

    with tf.device("/CPU:0"):
        keras.layers.Embedding(5, 3)(tf.constant([1]))


@program
def no_gpu_left():
    tf.config.set_visible_devices([], "GPU")
    variable = tf.Variable(tf.ones([4, 4]))

    @tf.function
    def work(a):
        with tf.device("/GPU:0"):
            return tf.reduce_sum(tf.exp(a @ variable))

    with tf.GradientTape() as tape:
        value = work(ones())
    tape.gradient(value, variable)
    for op in ("MatMul", "Exp", "Sum", "Const"):
        want(op, "GPU:0")


@program
def one_device_strategies():
    """One that exists is TensorFlow's own scope; one that does not is the program's request."""
    for name in ("/gpu:0", "/gpu:9"):
        strategy = tf.distribute.OneDeviceStrategy(name)
        with strategy.scope():
            variable = tf.Variable(1.0)
        strategy.run(lambda: text(ones()))
        strategy.run(tf.function(lambda: text(ones())))
    want("VarHandleOp", "GPU:9", variable.device)
    want_strings("GPU:9")
    allow("GPU:9", "AssignVariableOp", "Fill", "StridedSlice", device=variable.device)


@program
def session_that_hands_over_no_graphs():
    config = tf.compat.v1.ConfigProto()
    config.experimental.disable_output_partition_graphs = True
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as running:
        running.run(tf.ones([2]) * 2)


@program
def own_trace_of_graphs():
    """The program's trace has its graph: what it collects is not taken from it."""
    folder = tempfile.mkdtemp()
    f = tf.function(lambda a: a @ a)
    tf.summary.trace_on(graph=True, profiler=False)
    f(ones())
    # Whether to record is a bool that would be computed on the GPU, and the driver tier computes nothing.
    with tf.summary.create_file_writer(folder).as_default(), tf.device("/CPU:0"):
        tf.summary.trace_export("f", step=0)
    (path,) = (os.path.join(folder, name) for name in os.listdir(folder))
    with open(path, "rb") as events:
        assert b"MatMul" in events.read()


# Every place where an op can be made, under every kind of request


def eagerly(work):
    work()


def in_a_function(work):
    tf.function(work)()


def in_a_function_of_a_function(work):
    inner = tf.function(work)
    tf.function(lambda: inner())()


def not_inlined_in_a_function(work):
    inner = tf.function(work, experimental_attributes={"_noinline": True})
    tf.function(lambda: inner())()


def in_a_thread_pool(work):
    with futures.ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def in_a_filter_of_a_dataset(work):
    for _ in tf.data.Dataset.range(2).filter(lambda number: tf.strings.length(work()) > 0):
        pass


def in_an_interleaved_dataset(work):
    for _ in tf.data.Dataset.range(2).interleave(lambda number: tf.data.Dataset.from_tensors(work())):
        pass


def in_a_replica(work):
    tf.distribute.OneDeviceStrategy("/GPU:1").run(tf.function(work))


# What TensorFlow makes for itself within the program's scope: it places that on purpose


@program
def replicas_within_a_scope():
    strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
    with tf.device("/GPU:0"), strategy.scope():
        v = tf.Variable(ones())
    with tf.device("/GPU:0"):
        strategy.run(lambda: v.assign_add(tf.matmul(v, v)))


@program
def mirrored_fit_within_a_scope():
    """Its iterator is an argument that no op uses: TensorFlow prunes it."""
    import keras

    strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
    with tf.device("/GPU:0"), strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
        model.compile("sgd", "mse", jit_compile=False)
        model.fit(tf.ones([16, 4]), tf.ones([16, 4]), batch_size=8, verbose=0)
    allow("GPU:0", "ReadVariableOp", device="GPU:1")


@program
def checkpoint_within_a_scope():
    with tf.device("/GPU:0"):
        checkpoint = tf.train.Checkpoint(v=tf.Variable(ones()))
        checkpoint.restore(checkpoint.save(os.path.join(tempfile.mkdtemp(), "saved")))
    allow("GPU:0", "ReadVariableOp")  # no fallback: a value is copied to where it is used


@program
def summary_writer_within_a_scope():
    with tf.device("/GPU:0"):
        writer = tf.summary.create_file_writer(tempfile.mkdtemp())
        with writer.as_default():
            writer.flush()
        del writer


@program
def own_scope_within_a_replica():
    strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])

    def step():
        with tf.device("/GPU:0"):
            tf.strings.join(["a", "b"])

    with tf.device("/GPU:1"):
        strategy.run(step)
    want("StringJoin", "GPU:0")


def in_a_saved_module(work):
    made = tf.Module()
    made.f = tf.function(work, input_signature=[])
    folder = tempfile.mkdtemp()
    tf.saved_model.save(made, folder)
    tf.saved_model.load(folder).f()


def in_a_predicting_model(work):
    import keras

    class Layer(keras.layers.Layer):
        def call(self, a):
            return a + tf.cast(tf.strings.length(work()), tf.float32)

    model = keras.Sequential([keras.layers.Input([4]), Layer()])
    model.compile("sgd", "mse", jit_compile=False)
    model.predict(ones(), verbose=0, batch_size=4)


def in_an_evaluated_metric(work):
    import keras

    def metric(y, found):
        return tf.cast(tf.strings.length(work()), tf.float32) + found * 0

    model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[metric], jit_compile=False)
    model.evaluate(ones(), tf.ones([4, 1]), verbose=0)


PLACES = (
    *(eagerly, in_a_function, in_a_function_of_a_function, not_inlined_in_a_function, in_a_thread_pool),
    *(in_a_filter_of_a_dataset, in_an_interleaved_dataset, in_a_replica, in_a_saved_module),
    *(in_a_predicting_model, in_an_evaluated_metric),
)


def under(place, device):
    def work():
        with tf.device(device):
            return tf.strings.join(["a", tf.as_string(tf.random.uniform([]))])

    if place is not_inlined_in_a_function and device in ("/GPU:0", "/GPU:1"):
        with contextlib.suppress(tf.errors.InvalidArgumentError):  # such a function is not placed softly
            place(work)
        return
    place(work)
    if device is not None and "GPU" in device:
        want_strings(device.strip("/"))
        allow(device.strip("/"), "RandomUniform", device="GPU:0")
        allow(device.strip("/"), "Mul", "AddV2", "Add", "RandomUniform", "Sub")


for _place in PLACES:
    for _device in ("/GPU:0", "/GPU:1", "/CPU:0", None):
        _name = f"{_place.__name__}_{(_device or 'nowhere').strip('/').replace(':', '_').lower()}"
        PROGRAMS[_name] = lambda place=_place, device=_device: under(place, device)
