"""Names of TensorFlow's ops: the calls of functions they are in, name scope, backward pass, XLA cluster."""

from __future__ import annotations

import re

_CALLS = re.compile(r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
BACKWARD = re.compile(r"^(?:gradient_tape|gradients(?:_\d+)?)/|/(?:gradient_tape|gradients(?:_\d+)?)/")
"""Where a name says that its op belongs to the backward pass."""
_CLUSTER = re.compile(r"(?:^|/)(?:cluster_\d|_?Xla(?:Run|Launch|LocalLaunch|CompileOnDemand))|^xla_")


def strip_calls(op: str) -> str:
    """The op's name without the calls of functions that it is in."""
    return _CALLS.sub("", op)


def name_scope(op: str) -> str:
    """The name scope of an op: ``sequential/dense_1`` of ``StatefulPartitionedCall/sequential/dense_1/MatMul``."""
    op_name = BACKWARD.sub("", strip_calls(op))
    return op_name.rpartition("/")[0]


def in_xla_cluster(op: str) -> bool:
    """Whether it belongs to a cluster that XLA compiled, which allocates one buffer for all of its ops."""
    return _CLUSTER.search(op) is not None
