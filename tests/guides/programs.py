"""Programs such as TensorFlow's guides and tutorials show, each with the lesson that gpuwatch's answer has to hold.

Every program is of our own writing; the guide that shows its kind is named. Two GPUs of 4 GiB.
"""

from __future__ import annotations

import textwrap
from typing import NamedTuple


class Program(NamedTuple):
    """One program, and what is true of it."""

    name: str
    guide: str
    """The guide or question that shows programs of this kind."""
    code: str
    findings: frozenset[str] = frozenset()
    """Cause ids that the answer holds: these, and none of severity warning or error beside them."""
    fallbacks: frozenset[tuple[str, str]] = frozenset()
    """Op and requested device of what ran elsewhere than requested: all of them."""
    exit_code: int = 0
    tier: str = "auto"
    says: str = ""
    """What the verdict's sentence holds."""
    finds_no: str = ""
    """A cause id that the answer does not hold, not even as a note."""
    counts: frozenset[tuple[str, ...]] = frozenset()
    """Op, device and count of some placements; with two devices of copies of its inputs from the one to the other."""
    advises: str = ""
    """What a finding's advice holds."""
    fresh: bool = False
    """Whether it is to run in an interpreter of its own: its threads or its children are looked at."""


def _program(name: str, guide: str, code: str, *findings: str, **more: object) -> Program:
    return Program(name, guide, textwrap.dedent(code).strip() + "\n", frozenset(findings), **more)  # type: ignore[arg-type]


PROGRAMS = (
    _program(
        "where-ops-run",
        "guide/gpu: logging device placement",
        """
        import tensorflow as tf
        tf.debugging.set_log_device_placement(True)
        a = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        b = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        print(tf.matmul(a, b))
        """,
    ),
    _program(
        "constants-on-the-cpu",
        "guide/gpu: manual device placement",
        """
        import tensorflow as tf
        with tf.device("/CPU:0"):
            a = tf.constant([[1.0, 2.0], [3.0, 4.0]])
            b = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        print(tf.matmul(a, b))
        """,
    ),
    _program(
        "one-visible-gpu",
        "guide/gpu: limiting GPU memory growth",
        """
        import tensorflow as tf
        gpus = tf.config.list_physical_devices("GPU")
        tf.config.set_visible_devices(gpus[1], "GPU")
        print(len(gpus), "physical", len(tf.config.list_logical_devices("GPU")), "logical")
        print(tf.reduce_sum(tf.random.normal([500, 500])))
        """,
    ),
    _program(
        "growth",
        "guide/gpu: limiting GPU memory growth",
        """
        import tensorflow as tf
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
        x = tf.random.normal([1024, 1024])
        print(tf.reduce_mean(x @ x))
        """,
    ),
    _program(
        "growth-too-late",
        "guide/gpu: the error that the guide catches",
        """
        import tensorflow as tf
        x = tf.ones([8, 8])
        gpus = tf.config.list_physical_devices("GPU")
        try:
            for gpu in gpus:
                tf.config.experimental.set_memory_growth(gpu, True)
        except RuntimeError as error:
            print(error)
        print(tf.reduce_sum(x))
        """,
        "config.too-late",
    ),
    _program(
        "visible-too-late",
        "guide/gpu: the error that the guide catches",
        """
        import tensorflow as tf
        print(tf.config.list_logical_devices("GPU"))
        try:
            tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[:1], "GPU")
        except RuntimeError as error:
            print("not set:", error)
        print(tf.reduce_sum(tf.ones([8, 8])))
        """,
        "config.too-late",
    ),
    _program(
        "memory-limit",
        "guide/gpu: limiting GPU memory growth",
        """
        import tensorflow as tf
        gpus = tf.config.list_physical_devices("GPU")
        tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=1024)])
        print(tf.config.list_logical_devices("GPU"))
        print(tf.matmul(tf.ones([64, 64]), tf.ones([64, 64]))[0, 0])
        """,
        tier="driver",
    ),
    _program(
        "virtual-gpus",
        "guide/gpu: using multiple GPUs",
        """
        import tensorflow as tf
        gpu = tf.config.list_physical_devices("GPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration(memory_limit=1024)] * 2
        tf.config.set_logical_device_configuration(gpu, parts)
        for device in tf.config.list_logical_devices("GPU"):
            with tf.device(device.name):
                print(tf.matmul(tf.ones([64, 64]), tf.ones([64, 64])).device)
        """,
        tier="driver",
    ),
    _program(
        "gpu-2-of-two-softly",
        "guide/gpu: using a single GPU on a multi-GPU system",
        """
        import tensorflow as tf
        tf.config.set_soft_device_placement(True)
        with tf.device("/device:GPU:2"):
            a = tf.random.uniform([32, 32])
            c = tf.matmul(a, a)
        print(c.device)
        """,
        "placement.device-missing",
        fallbacks=frozenset({("MatMul", "GPU:2"), ("RandomUniform", "GPU:2")}),
    ),
    _program(
        "gpu-2-of-two-hard",
        "guide/gpu: the error that the guide catches",
        """
        import tensorflow as tf
        tf.config.set_soft_device_placement(False)
        try:
            with tf.device("/device:GPU:2"):
                a = tf.constant([[1.0, 2.0], [3.0, 4.0]])
                print(tf.matmul(a, a))
        except Exception as error:
            print(type(error).__name__, error)
        """,
    ),
    _program(
        "towers",
        "guide/gpu: manual placement on several GPUs",
        """
        import tensorflow as tf
        found = []
        for gpu in tf.config.list_logical_devices("GPU"):
            with tf.device(gpu.name):
                a = tf.random.normal([64, 64])
                found.append(tf.matmul(a, a))
        with tf.device("/CPU:0"):
            total = tf.add_n(found)
        print(total.device, tf.reduce_sum(total))
        """,
    ),
    _program(
        "mirrored-fit",
        "guide/distributed_training: MirroredStrategy with Keras",
        """
        import tensorflow as tf
        strategy = tf.distribute.MirroredStrategy()
        print(strategy.num_replicas_in_sync, "replicas")
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.Input((16,)), tf.keras.layers.Dense(4)])
            model.compile("sgd", "mse", jit_compile=False)
        data = tf.data.Dataset.from_tensors(([1.0] * 16, [1.0] * 4)).repeat(64).batch(8)
        model.fit(data, epochs=2, verbose=0)
        print("trained")
        """,
    ),
    _program(
        "mirrored-loop",
        "tutorials/distribute/custom_training",
        """
        import tensorflow as tf
        strategy = tf.distribute.MirroredStrategy()
        with strategy.scope():
            weights = tf.Variable(tf.ones([16, 1]))
        data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(tf.ones([16])).repeat(64).batch(8))
        @tf.function
        def step(batch):
            def replica(x):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(x @ weights)
                weights.assign_sub(0.01 * tape.gradient(loss, weights))
                return loss
            return strategy.reduce("SUM", strategy.run(replica, args=(batch,)), axis=None)
        for batch in data:
            loss = step(batch)
        print("loss", float(loss) < 100)
        """,
    ),
    _program(
        "one-device-strategy",
        "guide/distributed_training: OneDeviceStrategy",
        """
        import tensorflow as tf
        strategy = tf.distribute.OneDeviceStrategy("/gpu:1")
        with strategy.scope():
            v = tf.Variable(tf.ones([4, 4]))
            print(strategy.run(lambda: tf.matmul(v, v)).device)
        """,
    ),
    _program(
        "central-storage",
        "guide/distributed_training: CentralStorageStrategy",
        """
        import tensorflow as tf
        strategy = tf.distribute.experimental.CentralStorageStrategy()
        with strategy.scope():
            v = tf.Variable(tf.ones([4, 4]))
        print(v.device)
        print(strategy.reduce("SUM", strategy.run(lambda: tf.reduce_sum(v * 2.0)), axis=None))
        """,
    ),
    _program(
        "parameter-server-without-a-cluster",
        "guide/distributed_training: ParameterServerStrategy",
        """
        import tensorflow as tf
        strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
        """,
        "unknown",
        exit_code=1,
    ),
    _program(
        "retraced-by-python-numbers",
        "guide/function: rules of tracing",
        """
        import tensorflow as tf
        @tf.function
        def train(step, x):
            return tf.reduce_sum(x) * step
        for step in range(60):
            train(step, tf.ones([8]))
        print("done")
        """,
        "function.retraced",
    ),
    _program(
        "retraced-by-shapes",
        "guide/function: controlling retracing",
        """
        import tensorflow as tf
        @tf.function
        def total(x):
            return tf.reduce_sum(x * x)
        for length in range(1, 60):
            total(tf.ones([length]))
        print("done")
        """,
        "function.retraced",
    ),
    _program(
        "traced-once",
        "guide/function: input_signature",
        """
        import tensorflow as tf
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def total(x):
            return tf.reduce_sum(x * x)
        for length in range(1, 60):
            total(tf.ones([length]))
        print("done")
        """,
    ),
    _program(
        "functions-in-a-loop",
        "guide/function: creating functions in a loop",
        """
        import tensorflow as tf
        for number in range(20):
            square = tf.function(lambda x: x * x)
            square(tf.ones([4]))
        print("done")
        """,
        "function.retraced",
    ),
    _program(
        "int-variable-on-the-gpu",
        "guide/variable: placing variables",
        """
        import tensorflow as tf
        with tf.device("/GPU:0"):
            steps = tf.Variable(0, dtype=tf.int32)
            weights = tf.Variable(tf.ones([4]))
        steps.assign_add(1)
        print(steps.device, weights.device)
        """,
        "placement.no-kernel",
        fallbacks=frozenset({("VarHandleOp", "GPU:0"), ("AssignVariableOp", "GPU:0")}),
    ),
    _program(
        "variables-in-another-place",
        "guide/variable: placing variables and tensors",
        """
        import tensorflow as tf
        with tf.device("/CPU:0"):
            a = tf.Variable([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
            b = tf.Variable([[1.0, 2.0, 3.0]])
        with tf.device("/GPU:0"):
            k = a * b
            b.assign_add([[1.0, 1.0, 1.0]])
        print(k.device)
        """,
        "placement.together",
        fallbacks=frozenset({("AssignAddVariableOp", "GPU:0")}),
    ),
    _program(
        "maths-without-a-kernel",
        "question: which linear algebra runs on the GPU",
        """
        import tensorflow as tf
        with tf.device("/GPU:0"):
            print(tf.linalg.eig(tf.eye(4))[0].device)
        """,
        "placement.no-kernel",
        counts=frozenset({("Eig", "GPU:0", "CPU:0", "1"), ("Eig", "CPU:0", "1")}),
        fallbacks=frozenset({("Eig", "GPU:0")}),
    ),
    _program(
        "int-variable-of-a-strategy",
        "guide/distributed_training: variables of MirroredStrategy",
        """
        import tensorflow as tf
        with tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"]).scope():
            weights = tf.Variable(tf.ones([4, 4]))
            seen = tf.Variable(0, aggregation=tf.VariableAggregation.SUM)
        print(seen.values[1].device)
        """,
        "placement.no-kernel",
        fallbacks=frozenset((op, gpu) for op in ("VarHandleOp", "AssignVariableOp") for gpu in ("GPU:0", "GPU:1")),
    ),
    _program(
        "refused-by-a-session",
        "guide/migrate: sessions place softly only if asked",
        """
        import sys
        import tensorflow.compat.v1 as tf
        tf.disable_eager_execution()
        with tf.device("/gpu:0"):
            upper = tf.strings.upper(["a"])
        try:
            tf.Session().run(upper)
        except tf.errors.InvalidArgumentError:
            sys.exit(4)
        """,
        "placement.no-kernel",
        exit_code=4,
    ),
    _program(
        "gpu-4-of-two-refused-by-a-session",
        "guide/migrate: a graph from a file, whose nodes name a device",
        """
        import sys
        import tensorflow.compat.v1 as tf
        tf.disable_eager_execution()
        with tf.Graph().as_default() as graph, tf.device("/gpu:4"):
            tf.tanh(tf.placeholder(tf.float32, [2], name="x"), name="y")
        with tf.Graph().as_default():
            tf.import_graph_def(graph.as_graph_def(), name="")
            try:
                tf.Session().run("y:0", {"x:0": [1.0, 2.0]})
            except tf.errors.InvalidArgumentError:
                sys.exit(3)
        """,
        "placement.device-missing",
        exit_code=3,
        fresh=True,
    ),
    _program(
        "gpu-5-of-two-refused",
        "guide/gpu: a device that does not exist, without soft placement, the error caught",
        """
        import tensorflow as tf
        tf.config.set_soft_device_placement(False)
        try:
            with tf.device("/GPU:5"):
                tf.ones([4, 4]) @ tf.ones([4, 4])
        except tf.errors.InvalidArgumentError as error:
            print(error)
        """,
        "placement.device-missing",
    ),
    _program(
        "steps-of-a-session",
        "guide/migrate: a training loop in a session, whose placed nodes are told once",
        """
        import tensorflow.compat.v1 as tf
        tf.disable_eager_execution()
        with tf.device("/gpu:0"):
            x = tf.placeholder(tf.float32, [2, 2])
            words, product = tf.as_string(x), tf.matmul(x, x)
        kept = []
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
            for _ in range(12):
                session.run([words.op, product], {x: [[1.0, 2.0], [3.0, 4.0]]})
                kept += [words.op._c_op, product._as_tf_output()]  # the next run's are at other addresses
        """,
        "placement.no-kernel",
        fallbacks=frozenset({("AsString", "GPU:0")}),
        counts=frozenset({("AsString", "CPU:0", "1"), ("MatMul", "GPU:0", "1")}),
    ),
    _program(
        "text-within-the-dataset",
        "guide/data: tf.device within the dataset's functions",
        """
        import tensorflow as tf

        def to_words(number):
            with tf.device("/GPU:0"):
                return tf.strings.as_string(number)

        print(list(tf.data.Dataset.range(3).map(to_words).as_numpy_iterator()))
        """,
        "placement.no-kernel",
        advises="Remove tf.device from the dataset's functions",
        fallbacks=frozenset({("AsString", "GPU:0")}),
    ),
    _program(
        "slices-of-an-int-variable",
        "question: a replay buffer in variables of a GPU",
        """
        import tensorflow as tf
        with tf.device("/GPU:0"):
            actions = tf.Variable(tf.zeros([8], tf.int32))

        @tf.function
        def add(index):
            with tf.device("/GPU:0"):
                actions[index].assign(1)

        add(tf.constant(2))
        """,
        "placement.no-kernel",
        finds_no="placement.together",
        fallbacks=frozenset((op, "GPU:0") for op in ("VarHandleOp", "AssignVariableOp", "ResourceStridedSliceAssign")),
    ),
    _program(
        "a-table-that-counts",
        "question: tables under tf.device; the table's own methods put its ops where it is",
        """
        import tensorflow as tf
        with tf.device("/GPU:0"):
            seen = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, default_value=0.0)
            seen.insert(tf.constant([1], tf.int64), tf.constant([2.0]))
            print(seen.export()[0].device)
        """,
        "placement.no-kernel",
        fallbacks=frozenset({("MutableHashTableV2", "GPU:0")}),
    ),
    _program(
        "a-function-of-another-process",
        "tutorials/distribute/parameter_server_training: functions run on workers",
        """
        import tensorflow as tf
        server = tf.distribute.Server.create_local_server()
        tf.config.experimental_connect_to_host(server.target[len("grpc://"):])
        product = tf.function(lambda x: tf.matmul(x, x) * 2.0)
        with tf.device("/job:worker/task:0"):
            print(product(tf.ones([4, 4])).shape)
        """,
        says="only the requested devices of 0 % of",
        fresh=True,
    ),
    _program(
        "growth-on-one-gpu",
        "guide/gpu: memory growth must be the same across GPUs",
        """
        import tensorflow as tf
        tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)
        try:
            tf.ones([4])
        except ValueError as error:
            print(error)
        """,
        "config.inconsistent",
    ),
    _program(
        "growth-on-one-gpu-and-then-on-both",
        "guide/gpu: memory growth must be the same across GPUs",
        """
        import tensorflow as tf
        first, second = tf.config.list_physical_devices("GPU")
        tf.config.experimental.set_memory_growth(first, True)
        try:
            tf.ones([4])
        except ValueError:
            tf.config.experimental.set_memory_growth(second, True)
        print(tf.ones([4]).device)
        """,
    ),
    _program(
        "functions-left-eager",
        "guide/function: debugging",
        """
        import tensorflow as tf
        tf.config.run_functions_eagerly(True)
        step = tf.function(lambda x: tf.tanh(x) + 1.0)
        for _ in range(8):
            step(tf.ones([4]))
        """,
        "function.eager",
    ),
    _program(
        "a-pool-after-the-first-tensor",
        "question: a pool for preprocessing beside TensorFlow",
        """
        import multiprocessing
        import tensorflow as tf
        if __name__ == "__main__":
            weights = tf.ones([4, 4])
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(pool.map(abs, [-1, 2]))
        """,
        "program.forked",
    ),
    _program(
        "strings-on-the-gpu",
        "question: string ops under tf.device",
        """
        import tensorflow as tf
        with tf.device("/GPU:0"):
            words = tf.strings.split("a b c")
            lengths = tf.strings.length(words)
        print(lengths.device)
        """,
        "placement.no-kernel",
        fallbacks=frozenset(
            {
                ("StringSplitV2", "GPU:0"),
                ("StringLength", "GPU:0"),
                ("StridedSlice", "GPU:0"),
                ("Pack", "GPU:0"),
                ("DenseBincount", "GPU:0"),
            }
        ),
    ),
    _program(
        "lookup-table-on-the-gpu",
        "question: lookup tables under tf.device",
        """
        import tensorflow as tf
        with tf.device("/GPU:0"):
            init = tf.lookup.KeyValueTensorInitializer(["a", "b"], [0, 1], value_dtype=tf.int64)
            table = tf.lookup.StaticHashTable(init, -1)
            print(table.lookup(tf.constant(["a", "c"])))
        """,
        "placement.no-kernel",
        fallbacks=frozenset(
            {("HashTableV2", "GPU:0"), ("LookupTableFindV2", "GPU:0"), ("LookupTableImportV2", "GPU:0")}
        ),
    ),
    _program(
        "int-products",
        "question: integer matmul is slow",
        """
        import tensorflow as tf
        a = tf.ones([64, 64], tf.int32)
        with tf.device("/GPU:0"):
            print(tf.matmul(a, a).device)
        """,
        "placement.no-kernel",
        fallbacks=frozenset({("MatMul", "GPU:0")}),
    ),
    _program(
        "generators",
        "guide/random_numbers",
        """
        import tensorflow as tf
        g = tf.random.Generator.from_seed(1)
        print(g.normal([2, 3]).shape, g.uniform([3]).shape)
        with tf.device("/GPU:1"):
            h = tf.random.Generator.from_seed(2)
            print(h.normal([4]).device)
        print(tf.random.stateless_normal([3], seed=[1, 2]).shape)
        """,
    ),
    _program(
        "mixed-precision",
        "guide/mixed_precision",
        """
        import tensorflow as tf
        tf.keras.mixed_precision.set_global_policy("mixed_float16")
        model = tf.keras.Sequential([
            tf.keras.Input((32,)), tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10), tf.keras.layers.Activation("softmax", dtype="float32")])
        model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
        model.fit(tf.random.normal([256, 32]), tf.zeros([256], tf.int32), batch_size=32, epochs=1, verbose=0)
        print(model.layers[0].compute_dtype)
        """,
    ),
    _program(
        "pipeline",
        "guide/data_performance",
        """
        import tensorflow as tf
        data = tf.data.Dataset.range(2000).map(lambda n: tf.cast(n, tf.float32) / 7, num_parallel_calls=2)
        data = data.shuffle(100).batch(20).cache().prefetch(tf.data.AUTOTUNE)
        total = 0.0
        for batch in data:
            total += float(tf.reduce_sum(tf.sqrt(batch)))
        print(total > 0)
        """,
    ),
    _program(
        "prefetch-to-device",
        "guide/data_performance",
        """
        import tensorflow as tf
        data = tf.data.Dataset.from_tensor_slices(tf.random.normal([256, 8])).batch(16)
        data = data.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))
        for batch in data:
            place = batch.device
        print(place)
        """,
    ),
    _program(
        "checkpoint",
        "guide/checkpoint",
        """
        import tensorflow as tf, tempfile, os
        v = tf.Variable(tf.ones([8]))
        folder = tempfile.mkdtemp()
        saved = tf.train.Checkpoint(v=v).save(os.path.join(folder, "ck"))
        v.assign(v * 3)
        tf.train.Checkpoint(v=v).restore(saved).assert_consumed()
        print(float(v[0]))
        """,
    ),
    _program(
        "saved-model",
        "guide/saved_model",
        """
        import tensorflow as tf, tempfile
        class M(tf.Module):
            def __init__(self):
                self.w = tf.Variable(tf.ones([4, 4]))
            @tf.function(input_signature=[tf.TensorSpec([None, 4])])
            def __call__(self, x):
                return x @ self.w
        folder = tempfile.mkdtemp()
        tf.saved_model.save(M(), folder)
        print(tf.saved_model.load(folder)(tf.ones([2, 4])).device)
        """,
    ),
    _program(
        "keras-file",
        "guide/keras/serialization_and_saving",
        """
        import tensorflow as tf, tempfile, os
        model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(3)])
        path = os.path.join(tempfile.mkdtemp(), "m.keras")
        model.save(path)
        print(tf.keras.models.load_model(path).predict(tf.ones([4, 8]), verbose=0).shape)
        """,
    ),
    _program(
        "session-growth",
        "guide/migrate: ConfigProto",
        """
        import tensorflow.compat.v1 as tf
        tf.disable_v2_behavior()
        config = tf.ConfigProto()
        config.gpu_options.allow_growth = True
        with tf.Session(config=config) as session:
            a = tf.random_normal([64, 64])
            print(session.run(tf.reduce_sum(tf.matmul(a, a))) is not None)
        """,
    ),
    _program(
        "session-fraction",
        "guide/migrate: per_process_gpu_memory_fraction",
        """
        import tensorflow.compat.v1 as tf
        tf.disable_eager_execution()
        options = tf.GPUOptions(per_process_gpu_memory_fraction=0.333)
        session = tf.Session(config=tf.ConfigProto(gpu_options=options))
        print(session.run(tf.ones([4]) * 2)[0])
        """,
    ),
    _program(
        "session-one-gpu",
        "guide/migrate: visible_device_list",
        """
        import tensorflow.compat.v1 as tf
        tf.disable_eager_execution()
        config = tf.ConfigProto(gpu_options=tf.GPUOptions(visible_device_list="1"))
        with tf.Session(config=config) as session:
            print(session.run(tf.ones([4]) * 2)[0])
        """,
    ),
    _program(
        "session-of-constants",
        "question: nodes that TensorFlow computes before it places any",
        """
        import tensorflow.compat.v1 as tf
        tf.disable_eager_execution()
        with tf.device("/gpu:3"):
            c = tf.matmul([[1.0, 3.0, 5.0]], [[2.0], [4.0], [6.0]])
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
            print(session.run(c))
        """,
        "placement.device-missing",
        says="GPU:3 was requested and does not exist",
    ),
    _program(
        "session-invalid-list",
        "question: visible_device_list of a GPU that is not there",
        """
        import tensorflow.compat.v1 as tf
        tf.disable_eager_execution()
        config = tf.ConfigProto(gpu_options=tf.GPUOptions(visible_device_list="1,2"))
        with tf.Session(config=config) as session:
            print(session.run(tf.ones([4]) * 2)[0])
        """,
        "visibility.bad-ordinal",
        exit_code=1,
    ),
    _program(
        "session-is-gone",
        "guide/migrate: names of version 1",
        """
        import tensorflow as tf
        with tf.Session() as session:
            print(session.run(tf.constant(1)))
        """,
        "api.removed",
        exit_code=1,
    ),
    _program(
        "contrib-is-gone",
        "guide/migrate: tf.contrib",
        """
        import tensorflow as tf
        print(tf.contrib.layers)
        """,
        "api.removed",
        exit_code=1,
    ),
    _program(
        "hidden-by-minus-one",
        "question: run on the CPU",
        """
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        import tensorflow as tf
        print(tf.config.list_physical_devices("GPU"), tf.reduce_sum(tf.ones([10])))
        """,
        "visibility.hidden",
    ),
    _program(
        "one-visible-after-the-import",
        "question: CUDA_VISIBLE_DEVICES in the program",
        """
        import os
        import tensorflow as tf
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        print(tf.config.list_physical_devices("GPU"), tf.reduce_sum(tf.ones([10])))
        """,
        "visibility.renumbered",
    ),
    _program(
        "one-visible-too-late",
        "question: CUDA_VISIBLE_DEVICES has no effect",
        """
        import os
        import tensorflow as tf
        print(tf.config.list_physical_devices("GPU"))
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        print(tf.reduce_sum(tf.ones([10])))
        """,
        "config.too-late",
    ),
    _program(
        "an-error-that-was-logged",
        "question: logging.exception",
        """
        import logging, tensorflow as tf
        try:
            raise ValueError("no cache")
        except ValueError:
            logging.exception("cache miss")
        for epoch in range(3):
            logging.warning("epoch %d: nothing in the cache", epoch)
        print(tf.reduce_sum(tf.ones([10])))
        """,
    ),
    _program(
        "no-gpu-visible",
        "guide/gpu: limiting visible devices, to none",
        """
        import tensorflow as tf
        tf.config.set_visible_devices([], "GPU")
        print(tf.ones([8, 8]) @ tf.ones([8, 8]))
        """,
        "visibility.hidden",
    ),
    _program(
        "no-gpu-visible-but-requested",
        "guide/gpu: limiting visible devices, to none",
        """
        import tensorflow as tf
        tf.config.set_visible_devices([], "GPU")
        with tf.device("/GPU:0"):
            print(tf.ones([8, 8]) @ tf.ones([8, 8]))
        """,
        "visibility.hidden",
        fallbacks=frozenset({("Fill", "GPU:0"), ("MatMul", "GPU:0")}),
    ),
    _program(
        "mirrored-on-a-gpu-too-many",
        "guide/distributed_training: MirroredStrategy(devices=...)",
        """
        import tensorflow as tf
        strategy = tf.distribute.MirroredStrategy(["/gpu:0", "/gpu:5"])
        with strategy.scope():
            v = tf.Variable(1.0)
        """,
        "distribution.devices-missing",
        fallbacks=frozenset((op, "GPU:5") for op in ("VarHandleOp", "AssignVariableOp", "Identity")),
    ),
    _program(
        "misspelt-variable",
        "question: CUDA_VISIBLE_DEVICES has no effect",
        """
        import os
        os.environ["CUDA_VISIBLE_DEVICE"] = "1"
        import tensorflow as tf
        print(tf.reduce_sum(tf.ones([10])))
        """,
        "visibility.misspelt",
    ),
    _program(
        "too-large-a-tensor",
        "question: ResourceExhaustedError, caught",
        """
        import tensorflow as tf
        try:
            x = tf.ones([100_000, 100_000])
        except tf.errors.ResourceExhaustedError as error:
            print("caught", type(error).__name__)
        print(tf.reduce_sum(tf.ones([10])))
        """,
        "memory.request-too-large",
    ),
    _program(
        "custom-loop",
        "guide/keras/writing_a_training_loop_from_scratch",
        """
        import tensorflow as tf
        model = tf.keras.Sequential([tf.keras.Input((20,)), tf.keras.layers.Dense(16), tf.keras.layers.Dense(2)])
        optimizer = tf.keras.optimizers.Adam()
        lossy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = lossy(y, model(x, training=True))
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
            return loss
        data = tf.data.Dataset.from_tensor_slices((tf.random.normal([640, 20]), tf.zeros([640], tf.int32))).batch(16)
        for x, y in data:
            loss = step(x, y)
        print("done")
        """,
    ),
    _program(
        "text-layers",
        "tutorials/keras/text_classification",
        """
        import tensorflow as tf
        layer = tf.keras.layers.TextVectorization(max_tokens=100, output_sequence_length=8)
        texts = tf.constant(["the cat sat", "on the mat", "and ran off"])
        layer.adapt(texts)
        model = tf.keras.Sequential([tf.keras.Input((8,), dtype="int64"), tf.keras.layers.Embedding(100, 4),
                                     tf.keras.layers.GlobalAveragePooling1D(), tf.keras.layers.Dense(1)])
        model.compile("adam", "mse", jit_compile=False)
        data = tf.data.Dataset.from_tensor_slices((texts, tf.ones([3, 1]))).repeat(20).batch(6)
        model.fit(data.map(lambda x, y: (layer(x), y)).prefetch(2), verbose=0)
        print("done")
        """,
    ),
    _program(
        "embeddings-on-the-cpu",
        "question: an embedding too large for the GPU",
        """
        import tensorflow as tf
        with tf.device("/CPU:0"):
            table = tf.Variable(tf.random.normal([1000, 16]))
        @tf.function
        def step(ids):
            with tf.device("/CPU:0"):
                rows = tf.gather(table, ids)
            return tf.reduce_sum(rows @ tf.ones([16, 4]))
        for number in range(20):
            step(tf.constant([1, 2, 3]))
        print(table.device)
        """,
    ),
    _program(
        "slow-generator",
        "question: the GPU waits for the input",
        """
        import tensorflow as tf, time, numpy as np
        def batches():
            for number in range(40):
                time.sleep(0.2)
                yield np.ones([16, 8], "float32"), np.ones([16, 1], "float32")
        model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        model.fit(batches(), steps_per_epoch=40, verbose=0)
        """,
        "input.bound",
    ),
    _program(
        "gradients-of-a-function-under-a-device",
        "guide/autodiff",
        """
        import tensorflow as tf
        x = tf.Variable(3.0)
        with tf.device("/GPU:1"):
            with tf.GradientTape() as tape:
                y = x * x
            print(tape.gradient(y, x).device)
        """,
    ),
    _program(
        "ragged-and-sparse",
        "guide/ragged_tensor, guide/sparse_tensor",
        """
        import tensorflow as tf
        r = tf.ragged.constant([[1.0, 2.0], [3.0]])
        print(tf.reduce_sum(r, axis=1))
        s = tf.sparse.SparseTensor([[0, 0], [1, 2]], [1.0, 2.0], [3, 4])
        print(tf.sparse.sparse_dense_matmul(s, tf.ones([4, 2])).shape)
        """,
    ),
    _program(
        "an-error-that-ends-the-work",
        "question: except Exception",
        """
        import tensorflow as tf, traceback
        try:
            print(tf.reduce_sum(tf.ones([10])))
            open("/no/such/file")
        except Exception:
            traceback.print_exc()
        """,
        "unknown",
        says="although its stderr ends in the traceback of FileNotFoundError",
    ),
    _program(
        "ops-that-were-refused",
        "guide/gpu: without soft placement, the error caught",
        """
        import tensorflow as tf
        tf.config.set_soft_device_placement(False)
        for work in (lambda: tf.strings.upper(["a"]), lambda: tf.ones([4, 4]) @ tf.ones([4, 4])):
            try:
                with tf.device("/GPU:0"):
                    print(work().device)
            except tf.errors.InvalidArgumentError as error:
                print(type(error).__name__)
        """,
        "placement.no-kernel",
        says="StringUpper requested GPU:0 and did not run",
    ),
    _program(
        "a-launcher-whose-child-fails",
        "question: subprocess.run without check",
        """
        import subprocess, sys
        code = "import sys, tensorflow as tf; print(tf.ones([4]).device); sys.exit({})"
        for number in (0, 2):
            print(subprocess.run([sys.executable, "-c", code.format(number)]).returncode)
        """,
        says="ended with exit code 2",
        fresh=True,
    ),
    _program(
        "two-trainings-on-one-gpu",
        "question: two processes on one GPU",
        """
        import os, subprocess, sys, time
        code = "import time, tensorflow as tf; print(tf.ones([4]).shape, flush=True); time.sleep(8)"
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0"}
        first = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
        first.stdout.readline()
        second = subprocess.Popen([sys.executable, "-c", code], env=environment)
        print(first.wait(), second.wait())
        """,
        "memory.other-process",
        tier="driver",
    ),
    _program(
        "one-training-after-the-other",
        "question: two processes on one GPU",
        """
        import os, subprocess, sys
        code = "import tensorflow as tf; print(tf.ones([4]).shape)"
        for _ in range(2):
            subprocess.run([sys.executable, "-c", code], env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"}, check=True)
        """,
        tier="driver",
    ),
    _program(
        "a-gpu-held-for-nothing",
        "question: TensorFlow takes both GPUs",
        """
        import tensorflow as tf, time
        x = tf.random.normal([512, 512])
        print(tf.reduce_sum(x @ x).shape)
        time.sleep(25)
        """,
        "idle.memory-held",
        fresh=True,
    ),
    _program(
        "a-process-per-gpu",
        "question: one program per GPU",
        """
        import os, subprocess, sys
        code = "import tensorflow as tf; print(tf.reduce_sum(tf.random.normal([64, 64]) @ tf.ones([64, 64])).shape)"
        running = [subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)})
                   for gpu in (0, 1)]
        sys.exit(max(process.wait() for process in running))
        """,
    ),
    _program(
        "words-within-the-step",
        "keras: text classification from scratch, with the vectorization inside of the model",
        """
        import tensorflow as tf
        table = tf.Variable(tf.random.normal([20, 4]))

        @tf.function
        def step(words):
            tf.print(tf.shape(words), output_stream="file:///dev/null")
            return tf.reduce_sum(tf.gather(table, tf.strings.to_hash_bucket_fast(words, 20)))

        for _ in range(8):
            step(tf.constant(["a", "b"]))
        """,
        "placement.no-kernel",
    ),
    _program(
        "prints-within-the-step",
        "guide/function: executing Python side effects",
        """
        import tensorflow as tf
        total = tf.Variable(0.0)

        @tf.function
        def step(x):
            total.assign_add(tf.reduce_sum(x))
            tf.print(tf.strings.format("step {}", tf.as_string(total)), output_stream="file:///dev/null")

        for _ in range(8):
            step(tf.ones([4]))
        """,
        finds_no="placement.no-kernel",
    ),
    _program(
        "an-array-within-the-graph",
        "guide/function: all outputs of a tf.function must be return values; arrays are captured by value",
        """
        import numpy as np, tensorflow as tf
        data = np.ones([1_000_000, 8], np.float32)
        kept = tf.constant(data)

        @tf.function
        def loss(w):
            return tf.reduce_mean(data @ w) + tf.reduce_mean(kept @ w)

        print(loss(tf.ones([8, 1])).shape)
        """,
        "function.constant",
    ),
    _program(
        "a-loop-of-small-ops",
        "tutorials/customization: custom training loops, without tf.function",
        """
        import tensorflow as tf
        w = [tf.Variable(tf.random.normal([4, 4])) for _ in range(6)]
        for _ in range(60):
            with tf.GradientTape() as tape:
                x = tf.ones([2, 4])
                for one in w:
                    x = tf.tanh(x @ one) * 0.5 + x
                loss = tf.reduce_mean(x)
            for one, gradient in zip(w, tape.gradient(loss, w)):
                one.assign_sub(0.1 * gradient)
        """,
        "function.eager",
        fresh=True,
    ),
    _program(
        "gpu-3-of-two-in-a-session",
        "guide/migrate: a session of constants, which TensorFlow computes once",
        """
        import tensorflow.compat.v1 as tf
        tf.disable_eager_execution()
        with tf.device("/gpu:3"):
            product = tf.matmul(tf.ones([2, 2]), tf.ones([2, 2]))
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
            print(session.run(product))
        """,
        "placement.device-missing",
    ),
)
