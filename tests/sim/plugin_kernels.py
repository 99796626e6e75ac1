"""Runs in TensorFlow on the plug-in tier: each case on the CPU and on the first simulated GPU, with the same
inputs, and without soft placement, so that an op without a kernel fails. Prints one JSON object: by case "ok",
or what is wrong.
"""

from __future__ import annotations

import json
import math
import sys
import traceback

import tensorflow as tf

raw = tf.raw_ops
cases = {}
_seed = [0]


def real(*shape, dtype=tf.float32, low=-2.0, high=2.0):
    _seed[0] += 1
    return tf.random.stateless_uniform(shape, [7, _seed[0]], low, high, dtype)


def positive(*shape, dtype=tf.float32):
    return real(*shape, dtype=dtype, low=0.1, high=3.0)


def whole(*shape, dtype=tf.int64, low=-5, high=6):
    _seed[0] += 1
    return tf.random.stateless_uniform(shape, [7, _seed[0]], low, high, dtype)


def case(name, function, *inputs, exact=False, tolerance=2e-5):
    """Inputs that are callables are made on the CPU, once."""
    assert name not in cases, name
    cases[name] = (function, inputs, exact, tolerance)


# --- element by element -----------------------------------------------------------------------------------
BROADCASTS = [
    ((7, 5), (7, 5)),
    ((7, 5), (5,)),
    ((7, 1), (1, 5)),
    ((), (3, 2)),
    ((4, 3, 5), (3, 1)),
    ((1, 5), (7, 1)),
    ((0, 5), (5,)),
    ((2, 1, 3, 1, 2), (4, 1, 3, 1)),
    ((33,), ()),
    ((2, 3, 1, 1, 4, 5), (3, 2, 2, 1, 5)),
]
for op in ("Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference"):
    for left, right in BROADCASTS:
        case(
            f"{op} {left} {right}",
            lambda x, y, op=op: getattr(raw, op)(x=x, y=y),
            lambda a=left: real(*a),
            lambda b=right: real(*b),
        )
    for dtype in (tf.float64, tf.int64):
        make = (lambda d=dtype: real(6, 5, dtype=d)) if dtype.is_floating else (lambda: whole(6, 5))
        case(f"{op} {dtype.name}", lambda x, y, op=op: getattr(raw, op)(x=x, y=y), make, make)
for op in ("RealDiv", "Div", "DivNoNan", "MulNoNan", "FloorDiv", "FloorMod"):
    for dtype in (tf.float32, tf.float64):
        case(
            f"{op} {dtype.name}",
            lambda x, y, op=op: getattr(raw, op)(x=x, y=y),
            lambda d=dtype: real(6, 5, dtype=d),
            lambda d=dtype: positive(6, 1, dtype=d),
        )
case("DivNoNan by zero", lambda x: raw.DivNoNan(x=x, y=tf.zeros_like(x)), lambda: real(9))
for dtype in (tf.float32, tf.float64):
    case(
        f"Pow {dtype.name}",
        lambda x, y: x**y,
        lambda d=dtype: positive(6, 5, dtype=d),
        lambda d=dtype: real(5, dtype=d),
    )
case("Pow 2", lambda x: x**2.0, lambda: real(6, 5))
for op in ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"):
    for dtype in (tf.float32, tf.float64, tf.int64):
        case(
            f"{op} {dtype.name}",
            lambda x, y, op=op: getattr(raw, op)(x=x, y=y),
            lambda d=dtype: tf.cast(whole(9, 5), d),
            lambda d=dtype: tf.cast(whole(5), d),
            exact=True,
        )
for op in ("Equal", "NotEqual", "LogicalAnd", "LogicalOr"):
    case(
        f"{op} bool",
        lambda x, y, op=op: getattr(raw, op)(x=x, y=y),
        lambda: whole(9, 5) > 0,
        lambda: whole(5) > 0,
        exact=True,
    )
for op in ("TanhGrad", "SigmoidGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"):
    for dtype in (tf.float32, tf.float64):
        case(
            f"{op} {dtype.name}",
            lambda y, dy, op=op: getattr(raw, op)(y=y, dy=dy),
            lambda d=dtype: positive(7, 5, dtype=d),
            lambda d=dtype: real(7, 5, dtype=d),
        )
for op in ("ReluGrad", "Relu6Grad", "SoftplusGrad", "LeakyReluGrad"):
    case(
        op,
        lambda g, x, op=op: getattr(raw, op)(gradients=g, features=x),
        lambda: real(7, 5),
        lambda: real(7, 5, low=-8, high=8),
    )
case("EluGrad", lambda g, y: raw.EluGrad(gradients=g, outputs=y), lambda: real(7, 5), lambda: real(7, 5, low=-0.9))
for op in ("Neg", "Abs", "Sign", "Square", "Exp", "Expm1", "Tanh", "Sigmoid", "Floor", "Ceil", "Sin", "Cos", "Erf"):
    for dtype in (tf.float32, tf.float64):
        case(
            f"{op} {dtype.name}",
            lambda x, op=op: getattr(raw, op)(x=x),
            lambda d=dtype: real(1001, dtype=d, low=-9, high=9),
            tolerance=1e-6,
        )
for op in ("Sqrt", "Rsqrt", "Reciprocal", "Inv", "Log", "Log1p"):
    for dtype in (tf.float32, tf.float64):
        case(
            f"{op} {dtype.name}",
            lambda x, op=op: getattr(raw, op)(x=x),
            lambda d=dtype: positive(1001, dtype=d),
            tolerance=1e-6,
        )
for op in ("Relu", "Relu6", "Elu", "Softplus", "LeakyRelu"):
    case(op, lambda x, op=op: getattr(raw, op)(features=x), lambda: real(77, low=-30, high=30), tolerance=1e-6)
case("Round", lambda x: raw.Round(x=x), lambda: tf.constant([0.5, 1.5, 2.5, -0.5, -1.5, 0.4, 0.6]), exact=True)
for op in ("Neg", "Abs", "Sign", "Square"):
    case(f"{op} int64", lambda x, op=op: getattr(raw, op)(x=x), lambda: whole(31), exact=True)
EDGES = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1e-40,
    -1e-40,
    88.0,
    89.0,
    100.0,
    -87.0,
    -100.0,
    -104.0,
    1e30,
    -1e30,
    0.625,
    -0.625,
    1e-8,
]
for op in ("Exp", "Tanh", "Sigmoid", "IsNan", "IsInf", "IsFinite", "Abs", "Neg"):
    case(f"{op} at the edges", lambda x, op=op: getattr(raw, op)(x=x), lambda: tf.constant(EDGES), tolerance=1e-6)
case(
    "Maximum NaN",
    lambda x, y: raw.Maximum(x=x, y=y),
    lambda: tf.constant([math.nan, 1.0]),
    lambda: tf.constant([1.0, 2.0]),
)
case("LogicalNot", lambda x: raw.LogicalNot(x=x), lambda: whole(9) > 0, exact=True)
TYPES = (tf.float32, tf.float64, tf.int32, tf.int64, tf.uint8, tf.bool)
for source in TYPES:
    for target in TYPES:
        case(
            f"Cast {source.name} {target.name}",
            lambda x, t=target: raw.Cast(x=x, DstT=t),
            lambda s=source: tf.cast(whole(3, 7, low=0, high=9), s),
            exact=True,
        )
for dtype in (tf.float32, tf.float64, tf.int64, tf.bool, tf.uint8):
    case(f"Fill {dtype.name}", lambda v: raw.Fill(dims=[3, 5], value=v), lambda d=dtype: tf.cast(1, d), exact=True)
    case(f"ZerosLike {dtype.name}", lambda x: raw.ZerosLike(x=x), lambda d=dtype: tf.cast(whole(3, 5), d), exact=True)
    case(f"OnesLike {dtype.name}", lambda x: raw.OnesLike(x=x), lambda d=dtype: tf.cast(whole(3, 5), d), exact=True)
case(
    "Fill int64 dims",
    lambda v: raw.Fill(dims=tf.constant([2, 0, 3], tf.int64), value=v),
    lambda: tf.constant(2.0),
    exact=True,
)
case("Range", lambda: tf.range(0.0, 7.0, 0.5), exact=True)
case(
    "Range int64",
    lambda: tf.range(tf.constant(9, tf.int64), tf.constant(-3, tf.int64), tf.constant(-2, tf.int64)),
    exact=True,
)
for dtype in (tf.float32, tf.float64, tf.int64, tf.int32, tf.bool):
    case(
        f"SelectV2 {dtype.name}",
        lambda c, x, y: raw.SelectV2(condition=c, t=x, e=y),
        lambda: whole(4, 1) > 0,
        lambda d=dtype: tf.cast(whole(4, 5), d),
        lambda d=dtype: tf.cast(whole(5), d),
        exact=True,
    )
case(
    "Select rows",
    lambda c, x, y: raw.Select(condition=c, x=x, y=y),
    lambda: whole(4) > 0,
    lambda: real(4, 5, 2),
    lambda: real(4, 5, 2),
    exact=True,
)
case(
    "Select scalar",
    lambda c, x, y: raw.Select(condition=c, x=x, y=y),
    lambda: tf.constant(True),
    lambda: real(4, 5),
    lambda: real(4, 5),
    exact=True,
)
for count in (1, 2, 5):
    case(f"AddN {count}", lambda *x: raw.AddN(inputs=list(x)), *[lambda: real(3, 5)] * count)

# --- reductions -------------------------------------------------------------------------------------------
AXES = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [-1], [0, 1, 2], []]
for op in ("Sum", "Mean", "Max", "Min", "Prod"):
    for axes in AXES:
        for keep in (False, True):
            case(
                f"{op} {axes} {keep}",
                lambda x, op=op, a=axes, k=keep: getattr(raw, op)(input=x, axis=tf.constant(a, tf.int32), keep_dims=k),
                lambda: positive(4, 3, 5),
            )
for op in ("Sum", "Max", "Prod"):
    case(
        f"{op} int64",
        lambda x, op=op: getattr(raw, op)(input=x, axis=tf.constant([1], tf.int64)),
        lambda: whole(4, 6),
        exact=True,
    )
case("Sum large", lambda x: tf.reduce_sum(x), lambda: positive(1000, 1003), tolerance=1e-5)
case("Sum columns", lambda x: tf.reduce_sum(x, 0), lambda: positive(999, 37), tolerance=1e-5)
case("Sum float64", lambda x: tf.reduce_sum(x, 1), lambda: positive(9, 37, dtype=tf.float64))
case("Sum empty", lambda x: tf.reduce_sum(x, 0), lambda: real(0, 4))
case("All", lambda x: tf.reduce_all(x, 1), lambda: whole(9, 3) > -4, exact=True)
case("Any", lambda x: tf.reduce_any(x, 0), lambda: whole(9, 3) > 3, exact=True)
case("All of all", lambda x: tf.reduce_all(x), lambda: whole(2, 2) > -9, exact=True)
for axis in (0, 1, -1):
    case(f"ArgMax {axis}", lambda x, a=axis: tf.argmax(x, a), lambda: real(4, 5, 3), exact=True)
    case(f"ArgMin {axis}", lambda x, a=axis: tf.argmin(x, a, output_type=tf.int32), lambda: real(4, 5, 3), exact=True)
case("L2Loss", tf.nn.l2_loss, lambda: real(77, 3))
case("BiasAddGrad", lambda x: raw.BiasAddGrad(out_backprop=x), lambda: real(6, 4, 3, 5))
case("BiasAddGrad NCHW", lambda x: raw.BiasAddGrad(out_backprop=x, data_format="NCHW"), lambda: real(6, 4, 3, 5))

# --- moving -----------------------------------------------------------------------------------------------
for dtype in (tf.float32, tf.float64, tf.int64, tf.bool):

    def make(*shape, dtype=dtype):
        return lambda: tf.cast(whole(*shape), dtype)

    name = dtype.name
    for order in ([1, 0, 2], [2, 1, 0], [0, 2, 1], [2, 0, 1], [0, 1, 2]):
        case(f"Transpose {order} {name}", lambda x, p=order: tf.transpose(x, p), make(4, 3, 5), exact=True)
    case(
        f"ConcatV2 {name}",
        lambda x, y, z: tf.concat([x, y, z], 1),
        make(4, 3, 2),
        make(4, 1, 2),
        make(4, 0, 2),
        exact=True,
    )
    case(f"Pack {name}", lambda x, y: tf.stack([x, y], 1), make(4, 3), make(4, 3), exact=True)
    case(f"Slice {name}", lambda x: tf.slice(x, [1, 0, 2], [2, -1, 2]), make(4, 3, 5), exact=True)
    case(f"StridedSlice {name}", lambda x: x[1:4:2, ..., ::-2], make(6, 3, 5), exact=True)
    case(f"Tile {name}", lambda x: tf.tile(x, [2, 1, 3]), make(4, 3, 5), exact=True)
    case(f"BroadcastTo {name}", lambda x: tf.broadcast_to(x, [4, 3, 5]), make(3, 1), exact=True)
    case(
        f"GatherV2 {name}",
        lambda x, i: tf.gather(x, i, axis=1),
        make(4, 7, 2),
        lambda: whole(3, 2, low=0, high=7, dtype=tf.int32),
        exact=True,
    )
    if name != "bool":
        case(f"OneHot {name}", lambda i, d=dtype: tf.one_hot(i, 5, dtype=d), lambda: whole(4, 3), exact=True)
case("Transpose matrix", tf.transpose, lambda: real(37, 53), exact=True)
case("Transpose 4D", lambda x: tf.transpose(x, [0, 3, 1, 2]), lambda: real(3, 5, 7, 4), exact=True)
case("Transpose int32", lambda x: tf.transpose(x), lambda: whole(3, 5, dtype=tf.int32), exact=True)
SLICES = {
    "[2]": lambda x: x[2],
    "[-1, 1:]": lambda x: x[-1, 1:],
    "[..., 0]": lambda x: x[..., 0],
    "[:, newaxis]": lambda x: x[:, tf.newaxis, 1:2],
    "[::-1]": lambda x: x[::-1],
    "[3:1]": lambda x: x[3:1],
    "[1:100, -2:]": lambda x: x[1:100, -2:],
    "[:, :, 4:0:-3]": lambda x: x[:, :, 4:0:-3],
    "[..., newaxis]": lambda x: x[..., tf.newaxis],
    "[1, ..., 2]": lambda x: x[1, ..., 2],
}
for name, cut in SLICES.items():
    case(f"StridedSlice {name}", cut, lambda: real(4, 3, 5), exact=True)

    def cut_gradient(x, cut=cut):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.square(cut(x)))
        return tape.gradient(y, x)

    case(f"StridedSliceGrad {name}", cut_gradient, lambda: real(4, 3, 5))
for dtype in (tf.float32, tf.float64):
    case(f"Split {dtype.name}", lambda x: tf.split(x, 3, 1), lambda d=dtype: real(4, 6, 2, dtype=d), exact=True)
    case(f"SplitV {dtype.name}", lambda x: tf.split(x, [1, -1, 2], 0), lambda d=dtype: real(6, 3, dtype=d), exact=True)
    case(f"Unpack {dtype.name}", lambda x: tf.unstack(x, axis=1), lambda d=dtype: real(4, 3, 2, dtype=d), exact=True)
    case(f"Pad {dtype.name}", lambda x: tf.pad(x, [[1, 2], [0, 3]]), lambda d=dtype: real(4, 3, dtype=d), exact=True)
    case(
        f"PadV2 {dtype.name}",
        lambda x: tf.pad(x, [[1, 0], [2, 1]], constant_values=7),
        lambda d=dtype: real(4, 3, dtype=d),
        exact=True,
    )
    case(
        f"ReverseV2 {dtype.name}", lambda x: tf.reverse(x, [0, -1]), lambda d=dtype: real(4, 3, 2, dtype=d), exact=True
    )
case("Concat", lambda x, y: raw.Concat(concat_dim=0, values=[x, y]), lambda: real(2, 3), lambda: real(4, 3), exact=True)
case(
    "GatherV2 batched",
    lambda x, i: tf.gather(x, i, axis=1, batch_dims=1),
    lambda: real(3, 7, 2),
    lambda: whole(3, 4, low=0, high=7),
    exact=True,
)
case(
    "OneHot axis",
    lambda i: tf.one_hot(i, 4, 2.0, -1.0, axis=0),
    lambda: whole(5, low=-1, high=5, dtype=tf.int32),
    exact=True,
)

# --- products and layers ----------------------------------------------------------------------------------
for dtype in (tf.float32, tf.float64):
    for ta in (False, True):
        for tb in (False, True):
            for m, n, k in ((7, 5, 3), (1, 1, 1), (65, 33, 129), (0, 3, 4), (3, 4, 0)):
                case(
                    f"MatMul {dtype.name} {ta} {tb} {m}x{n}x{k}",
                    lambda a, b, ta=ta, tb=tb: raw.MatMul(a=a, b=b, transpose_a=ta, transpose_b=tb),
                    lambda d=dtype, s=(k, m) if ta else (m, k): real(*s, dtype=d),
                    lambda d=dtype, s=(n, k) if tb else (k, n): real(*s, dtype=d),
                    tolerance=1e-5,
                )
            case(
                f"BatchMatMulV2 {dtype.name} {ta} {tb}",
                lambda a, b, ta=ta, tb=tb: raw.BatchMatMulV2(x=a, y=b, adj_x=ta, adj_y=tb),
                lambda d=dtype, s=(3, 1, 7, 5) if ta else (3, 1, 5, 7): real(*s, dtype=d),
                lambda d=dtype, s=(4, 2, 7) if tb else (4, 7, 2): real(*s, dtype=d),
            )
case("BatchMatMul", lambda a, b: raw.BatchMatMul(x=a, y=b), lambda: real(3, 5, 7), lambda: real(3, 7, 2))
case("BiasAdd", tf.nn.bias_add, lambda: real(4, 3, 5), lambda: real(5))
case("Softmax", tf.nn.softmax, lambda: real(7, 5, 11, low=-50, high=50))
case("LogSoftmax", tf.nn.log_softmax, lambda: real(7, 11, low=-50, high=50))
case(
    "SoftmaxCrossEntropyWithLogits",
    lambda x, y: tuple(raw.SoftmaxCrossEntropyWithLogits(features=x, labels=y)),
    lambda: real(7, 11),
    lambda: tf.nn.softmax(real(7, 11)),
)
case(
    "SoftmaxCrossEntropyWithLogits one row",
    lambda x, y: tuple(raw.SoftmaxCrossEntropyWithLogits(features=x, labels=y)),
    lambda: real(7, 11),
    lambda: tf.nn.softmax(real(1, 11)),
)
for dtype in (tf.int32, tf.int64):
    case(
        f"SparseSoftmaxCrossEntropyWithLogits {dtype.name}",
        lambda x, y: tuple(raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=y)),
        lambda: real(7, 11),
        lambda d=dtype: whole(7, low=0, high=11, dtype=d),
    )


def both_gradients(function):
    def run(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = function(x, w)
            loss = tf.reduce_sum(y * y)
        return y, *tape.gradient(loss, [x, w])

    return run


CONVOLUTIONS = [
    ((2, 9, 8, 3), (3, 3, 3, 4), 1, "SAME", 1),
    ((2, 9, 8, 3), (3, 2, 3, 4), 2, "VALID", 1),
    ((2, 9, 8, 3), (1, 1, 3, 4), 1, "VALID", 1),
    ((1, 11, 10, 2), (3, 3, 2, 5), 1, "SAME", 2),
    ((2, 7, 7, 4), (3, 3, 2, 6), 1, "SAME", 1),
    ((3, 5, 5, 1), (5, 5, 1, 2), 1, "VALID", 1),
    ((2, 9, 8, 3), (2, 3, 3, 4), [1, 3, 2, 1], "SAME", 1),
    ((2, 6, 6, 3), (3, 3, 3, 4), 1, [[0, 0], [1, 2], [0, 1], [0, 0]], 1),
]
for number, (image, kernel, strides, padding, dilation) in enumerate(CONVOLUTIONS):
    # On the CPU, double precision has neither dilated nor grouped gradients.
    for dtype in (tf.float32,) if number in (3, 4) else (tf.float32, tf.float64):
        case(
            f"Conv2D {number} {dtype.name} and gradients",
            both_gradients(lambda x, w, s=strides, p=padding, d=dilation: tf.nn.conv2d(x, w, s, p, dilations=d)),
            lambda d=dtype, s=image: real(*s, dtype=d),
            lambda d=dtype, s=kernel: real(*s, dtype=d),
            tolerance=1e-4,
        )


def one_gradient(function):
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            loss = tf.reduce_sum(y * y)
        return y, tape.gradient(loss, x)

    return run


for size, strides, padding in ((2, 2, "VALID"), (3, 2, "SAME"), (3, 1, "SAME"), ([1, 2, 3, 1], [1, 3, 1, 1], "VALID")):
    for dtype in (tf.float32, tf.float64):
        for pool in ("max_pool2d", "avg_pool2d"):
            case(
                f"{pool} {size} {strides} {padding} {dtype.name} and gradient",
                one_gradient(lambda x, p=pool, a=(size, strides, padding): getattr(tf.nn, p)(x, *a)),
                lambda d=dtype: real(2, 9, 8, 3, dtype=d),
            )


def channels_first(function):
    """On the CPU, where there is no kernel for channels first, with the channels last."""

    def run(x):
        if "GPU" in tf.constant(0.0).device:
            return function(x, "NCHW")
        return tf.transpose(function(tf.transpose(x, [0, 2, 3, 1]), "NHWC"), [0, 3, 1, 2])

    return run


filters = real(3, 3, 3, 5)
case(
    "Conv2D NCHW",
    channels_first(lambda x, f: tf.nn.conv2d(x, filters, 2, "SAME", data_format=f)),
    lambda: real(2, 3, 9, 8),
    tolerance=1e-4,
)
case(
    "MaxPool NCHW",
    channels_first(lambda x, f: tf.nn.max_pool2d(x, 2, 2, "SAME", data_format=f)),
    lambda: real(2, 3, 9, 8),
    exact=True,
)
case(
    "AvgPool NCHW",
    channels_first(lambda x, f: tf.nn.avg_pool2d(x, 3, 2, "SAME", data_format=f)),
    lambda: real(2, 3, 9, 8),
)
case("BiasAdd NCHW", channels_first(lambda x, f: tf.nn.bias_add(x, [1.0, 2.0, 3.0], f)), lambda: real(2, 3, 9, 8))

# --- random numbers ---------------------------------------------------------------------------------------
case("StatelessRandomUniformV2", lambda: tf.random.stateless_uniform([37, 3], [5, 6]), exact=True)
case(
    "StatelessRandomUniformV2 float64", lambda: tf.random.stateless_uniform([37], [5, 6], dtype=tf.float64), exact=True
)
case("StatelessRandomNormalV2", lambda: tf.random.stateless_normal([37, 3], [5, 6]))
case("StatelessTruncatedNormalV2", lambda: tf.random.stateless_truncated_normal([37, 3], [5, 6]))


def moments(sample):
    def run():
        x = sample([50_000])
        return tf.round(tf.reduce_mean(x) * 10), tf.round(tf.math.reduce_std(x) * 10)

    return run


case("RandomUniform", moments(tf.random.uniform), exact=True)
case("RandomStandardNormal", moments(tf.random.normal), exact=True)
case("TruncatedNormal", moments(tf.random.truncated_normal), exact=True)

# --- fused by the graph optimizer -------------------------------------------------------------------------
bias = real(4)
for activation in ("relu", "relu6", "elu"):
    case(
        f"Conv2D, bias and {activation} in a graph",
        tf.function(lambda x, w, a=activation: getattr(tf.nn, a)(tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "SAME"), bias))),
        lambda: real(2, 9, 8, 3),
        lambda: real(3, 3, 3, 4),
        tolerance=1e-4,
    )
case(
    "MatMul, bias and relu in a graph",
    tf.function(lambda x, w: tf.nn.relu(tf.nn.bias_add(x @ w, bias))),
    lambda: real(9, 8),
    lambda: real(8, 4),
)

# --- TensorFlow's own CPU kernels, which serve simulated GPUs where the plug-in has none ------------------
ELEMENTWISE = (
    "Tan Sinh Cosh Asin Atan Asinh Atanh Erfc Erfinv Lgamma Digamma Rint Softsign Selu BesselI0e BesselI1 Ndtri Acos"
)
for op in ELEMENTWISE.split():
    key = "features" if op in ("Softsign", "Selu") else "x"
    for dtype in (tf.float32, tf.float64, tf.float16):
        if dtype != tf.float16 or op not in ("Ndtri", "Erfinv", "Rint"):
            case(
                f"{op} {dtype.name}",
                lambda x, op=op, key=key: getattr(raw, op)(**{key: x}),
                lambda d=dtype: real(31, dtype=d, low=0.05, high=0.95),
            )
for op in ("AddV2", "Sub", "Mul", "RealDiv", "Maximum", "FloorMod", "Pow", "Atan2", "SquaredDifference"):
    key = "yx" if op == "Atan2" else "xy"
    case(
        f"{op} float16",
        lambda x, y, op=op, key=key: getattr(raw, op)(**dict(zip(key, (x, y), strict=True))),
        lambda: positive(4, 5, dtype=tf.float16),
        lambda: positive(5, dtype=tf.float16),
    )
case("FloorMod int64", lambda x, y: x % y, lambda: whole(9), lambda: whole(9, low=1, high=7), exact=True)
case("FloorDiv int64", lambda x, y: x // y, lambda: whole(9), lambda: whole(9, low=1, high=7), exact=True)
for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    case(f"{op} int64", lambda x, y, op=op: getattr(raw, op)(x=x, y=y), lambda: whole(9), lambda: whole(9), exact=True)


def generator_state():
    generator = tf.random.Generator.from_seed(3)
    return generator.uniform([5]), generator.normal([5]), generator.make_seeds(2)


def prefetched():
    with tf.device("/CPU:0"):
        data = tf.data.Dataset.range(6).batch(3)
        return next(iter(data.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))))


MORE = {
    "Snapshot": (lambda x: raw.Snapshot(input=x), lambda: real(3, 4)),
    "Qr": (lambda x: tf.abs(tf.linalg.qr(x)[1]), lambda: real(4, 3)),
    "Cholesky": (tf.linalg.cholesky, lambda: tf.eye(3) * 4 + 0.5),
    "MatrixInverse": (tf.linalg.inv, lambda: tf.eye(3) * 4 + 0.5),
    "MatrixDeterminant": (tf.linalg.det, lambda: tf.eye(3) * 4 + 0.5),
    "MatrixSolve": (lambda a: tf.linalg.solve(a, tf.ones([3, 2])), lambda: tf.eye(3) * 4 + 0.5),
    "MatrixTriangularSolve": (
        lambda a: tf.linalg.triangular_solve(a, tf.ones([3, 2])),
        lambda: tf.eye(3) * 4 + 0.5,
    ),
    "SelfAdjointEigV2": (tf.linalg.eigvalsh, lambda: tf.eye(3) * 4 + 0.5),
    "Svd": (lambda x: tf.linalg.svd(x, compute_uv=False), lambda: real(4, 3)),
    "MatrixDiagV3": (tf.linalg.diag, lambda: real(3, 4)),
    "MatrixDiagPartV3": (tf.linalg.diag_part, lambda: real(4, 4)),
    "MatrixSetDiagV3": (lambda x: tf.linalg.set_diag(x, tf.zeros([4])), lambda: real(4, 4)),
    "MatrixBandPart": (lambda x: tf.linalg.band_part(x, 1, -1), lambda: real(4, 4)),
    "FFT": (lambda x: tf.abs(tf.signal.fft(tf.complex(x, x))), lambda: real(8)),
    "RFFT": (lambda x: tf.signal.irfft(tf.signal.rfft(x)), lambda: real(2, 8)),
    "Complex": (lambda x: tf.math.imag(tf.math.conj(tf.complex(x, x * 2))), lambda: real(8)),
    "Cumsum": (lambda x: tf.cumsum(x, 1, reverse=True), lambda: real(3, 4)),
    "Cumprod": (lambda x: tf.math.cumprod(x, 1), lambda: real(3, 4)),
    "Roll": (lambda x: tf.roll(x, 2, 0), lambda: real(5, 3)),
    "Where": (lambda x: tf.where(x > 0), lambda: real(5, 3)),
    "GatherNd": (lambda x: tf.gather_nd(x, [[0, 1], [2, 0]]), lambda: real(5, 3)),
    "ScatterNd": (lambda x: tf.scatter_nd([[1], [3]], x, [5, 3]), lambda: real(2, 3)),
    "TensorScatterUpdate": (lambda x: tf.tensor_scatter_nd_update(x, [[1]], [9.0]), lambda: real(5)),
    "UnsortedSegmentSum": (lambda x: tf.math.unsorted_segment_sum(x, [0, 1, 0], 2), lambda: real(3, 4)),
    "SegmentSum": (lambda x: tf.math.segment_sum(x, [0, 0, 1]), lambda: real(3, 4)),
    "TopKV2": (lambda x: tuple(tf.math.top_k(x, 2)), lambda: real(3, 7)),
    "DynamicPartition": (lambda x: tf.dynamic_partition(x, [0, 1, 0], 2), lambda: real(3)),
    "DynamicStitch": (lambda x: tf.dynamic_stitch([[0, 2], [1]], [x[:2], x[2:]]), lambda: real(3)),
    "Unique": (lambda x: raw.Unique(x=x)[0], lambda: whole(9)),
    "Bincount": (lambda x: tf.math.bincount(x, minlength=7), lambda: whole(9, low=0, dtype=tf.int32)),
    "Bucketize": (lambda x: raw.Bucketize(input=x, boundaries=[0.0, 1.0]), lambda: real(9)),
    "ClipByValue": (lambda x: raw.ClipByValue(t=x, clip_value_min=-1.0, clip_value_max=1.0), lambda: real(9)),
    "Xlogy": (lambda x: tf.math.xlogy(x, x), lambda: positive(9)),
    "Igamma": (lambda x: tf.math.igamma(x, x), lambda: positive(9)),
    "Einsum": (lambda x: tf.einsum("ij,kj->ik", x, x), lambda: real(3, 4)),
    "Cross": (lambda x: tf.linalg.cross(x, x[::-1]), lambda: real(4, 3)),
    "MirrorPad": (lambda x: tf.pad(x, [[1, 1], [2, 1]], "REFLECT"), lambda: real(4, 4)),
    "DepthToSpace": (lambda x: tf.nn.depth_to_space(x, 2), lambda: real(1, 2, 2, 8)),
    "SpaceToDepth": (lambda x: tf.nn.space_to_depth(x, 2), lambda: real(1, 4, 4, 2)),
    "ReverseSequence": (lambda x: tf.reverse_sequence(x, [1, 3], seq_axis=1), lambda: real(2, 4)),
    "ResizeBilinear": (lambda x: tf.image.resize(x, [5, 7]), lambda: real(1, 4, 4, 2)),
    "ResizeNearestNeighbor": (lambda x: tf.image.resize(x, [5, 7], "nearest"), lambda: real(1, 4, 4, 2)),
    "AdjustHue": (lambda x: tf.image.adjust_hue(x, 0.1), lambda: positive(1, 4, 4, 3)),
    "AdjustContrastv2": (lambda x: tf.image.adjust_contrast(x, 0.5), lambda: positive(1, 4, 4, 3)),
    "RGBToHSV": (tf.image.rgb_to_hsv, lambda: real(4, 4, 3, low=0, high=1)),
    "CropAndResize": (
        lambda x: tf.image.crop_and_resize(x, [[0.0, 0.0, 0.5, 0.5]], [0], [3, 3]),
        lambda: real(1, 6, 6, 2),
    ),
    "ExtractImagePatches": (
        lambda x: tf.image.extract_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID"),
        lambda: real(1, 6, 6, 2),
    ),
    "ImageProjectiveTransformV3": (
        lambda x: raw.ImageProjectiveTransformV3(
            images=x,
            transforms=tf.constant([[1.0, 0.1, 0.0, 0.0, 1.0, 0.5, 0.0, 0.0]]),
            output_shape=[6, 6],
            fill_value=0.0,
            interpolation="BILINEAR",
        ),
        lambda: real(1, 6, 6, 2),
    ),
    "NonMaxSuppressionV3": (
        lambda x: tf.image.non_max_suppression(x, [0.9, 0.8], 2),
        lambda: tf.constant([[0.0, 0, 1, 1], [0, 0, 1, 0.9]]),
    ),
    "LRN": (tf.nn.local_response_normalization, lambda: real(1, 4, 4, 6)),
    "Conv3D": (
        one_gradient(lambda x: tf.nn.conv3d(x, tf.ones([2, 2, 2, 2, 3]), [1] * 5, "SAME")),
        lambda: real(1, 3, 4, 4, 2),
    ),
    "MaxPool3D": (one_gradient(lambda x: tf.nn.max_pool3d(x, 2, 2, "VALID")), lambda: real(1, 4, 4, 4, 2)),
    "AvgPool3D": (one_gradient(lambda x: tf.nn.avg_pool3d(x, 2, 2, "VALID")), lambda: real(1, 4, 4, 4, 2)),
    "DepthwiseConv2dNative": (
        one_gradient(lambda x: tf.nn.depthwise_conv2d(x, tf.ones([3, 3, 3, 2]), [1, 1, 1, 1], "SAME")),
        lambda: real(1, 6, 6, 3),
    ),
    "Dilation2D": (
        lambda x: tf.nn.dilation2d(x, tf.ones([2, 2, 2]), [1] * 4, "SAME", "NHWC", [1] * 4),
        lambda: real(1, 6, 6, 2),
    ),
    "FusedBatchNormV3": (
        one_gradient(lambda x: tf.compat.v1.nn.fused_batch_norm(x, tf.ones([3]), tf.zeros([3]))[0]),
        lambda: real(2, 4, 4, 3),
    ),
    "CheckNumerics": (lambda x: tf.debugging.check_numerics(x, "x"), lambda: real(3)),
    "StatelessRandomUniformIntV2": (lambda: tf.random.stateless_uniform([9], [1, 2], 0, 100, tf.int64),),
    "RngReadAndSkip": (generator_state,),
    "PrefetchDataset": (prefetched,),
    "Bitcast": (lambda x: (tf.bitcast(x, tf.int64), tf.bitcast(x, tf.uint8)), lambda: real(3, 2)),
    "TensorListStack": (
        tf.function(lambda x: tf.map_fn(lambda row: row * 2, x)),
        lambda: real(4, 3),
    ),
    "SparseTensorDenseMatMul": (
        lambda x: tf.sparse.sparse_dense_matmul(tf.SparseTensor([[0, 1], [2, 0]], [1.0, 2.0], [3, 3]), x),
        lambda: real(3, 2),
    ),
    "SparseSegmentMean": (
        lambda x: tf.sparse.segment_mean(x, [0, 1, 2], [0, 0, 1]),
        lambda: real(3, 2),
    ),
    "MatMul float16": (lambda x: x @ x, lambda: real(8, 8, dtype=tf.float16)),
    "Sum float16": (lambda x: tf.reduce_sum(x, 1), lambda: real(8, 8, dtype=tf.float16)),
    "Softmax float16": (tf.nn.softmax, lambda: real(8, 8, dtype=tf.float16)),
}
for name, (function, *inputs) in MORE.items():
    case(name, function, *inputs, tolerance=1e-4)

# The graph optimizer must not give these a layout that CPU kernels lack.
for name in ("Conv3D", "MaxPool3D", "AvgPool3D", "DepthwiseConv2dNative", "FusedBatchNormV3", "ResizeBilinear"):
    function, *inputs = MORE[name]
    case(f"{name} in a graph", tf.function(function), *inputs, tolerance=1e-4)


def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def difference(expected, got, exact, tolerance):
    if expected.dtype != got.dtype or expected.shape != got.shape:
        return f"{got.dtype} {got.shape} instead of {expected.dtype} {expected.shape}"
    if exact or not expected.dtype.is_floating:
        same = tf.reduce_all(tf.equal(expected, got))
        return None if same else f"{got} instead of {expected}"
    both_nan = tf.math.is_nan(expected) & tf.math.is_nan(got)
    error = tf.where(both_nan | (expected == got), tf.zeros_like(got), tf.abs(got - expected))
    scale = tf.maximum(tf.abs(tf.where(tf.math.is_finite(expected), expected, tf.zeros_like(got))), 1)
    if expected.dtype == tf.float64:
        tolerance = tolerance * 1e-6
    if expected.dtype == tf.float16:
        tolerance = max(tolerance, 2e-3)
    worst = float(tf.reduce_max(error / scale)) if tf.size(error) else 0.0
    return None if worst <= tolerance else f"off by {worst:.3g}: {got} instead of {expected}"


def check(name):
    function, makers, exact, tolerance = cases[name]
    with tf.device("/CPU:0"):
        inputs = [make() for make in makers]
        expected = flat(function(*inputs))
    with tf.device("/GPU:0"):
        got = flat(function(*[tf.identity(x) for x in inputs]))
        for tensor in got:
            if "GPU:0" not in tensor.device:
                return f"computed on {tensor.device}"
    with tf.device("/CPU:0"):
        for one, other in zip(expected, got, strict=True):
            wrong = difference(one, tf.identity(other), exact, tolerance)
            if wrong:
                return wrong
    return "ok"


def main():
    tf.config.set_soft_device_placement(False)
    results = {}
    for name in cases:
        try:
            results[name] = check(name)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this case's result
            results[name] = "".join(traceback.format_exception_only(type(error), error))[:1000]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
