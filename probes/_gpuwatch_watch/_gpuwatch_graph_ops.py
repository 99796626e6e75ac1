"""Ops of TensorFlow's graphs: which of them compute nothing, call functions, or work on variables and tables.

Part of ``gpuwatch run --placement`` (_gpuwatch_placement.py). Standard library only, Python 3.7 or newer.
"""

FEED_OPS = frozenset(["_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Placeholder"])
IDLE_OPS = frozenset(
    {
        *("Const", "NoOp", "Identity", "Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "_EagerConst"),
        *("_Send", "_Recv", "_HostSend", "_HostRecv", "_HostCast"),
    }
)
"""Ops that compute nothing, most of them TensorFlow's own after placement."""
CALL_OPS = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), ("f",)),
    **dict.fromkeys(("While", "StatelessWhile"), ("cond", "body")),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ()),
}
"""Ops that call functions, with the attributes that name them; Case has a list."""
MAX_DEPTH = 12
"""Calls within calls that are followed."""
NOT_PLACED_OPS = FEED_OPS | IDLE_OPS | frozenset(CALL_OPS)
"""Ops that say nothing of where the program's own ops ran."""
_RESOURCE_USING_OPS = frozenset(
    {
        *("ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "VarIsInitializedOp"),
        *("ResourceGather", "ResourceScatterAdd", "ResourceScatterUpdate"),
        *("LookupTableFindV2", "LookupTableInsertV2", "LookupTableSizeV2", "LookupTableImportV2"),
        *("QueueEnqueueV2", "QueueDequeueV2", "QueueSizeV2"),
    }
)
RESOURCE_CREATING_OPS = frozenset(["VarHandleOp", "HashTableV2", "MutableHashTableV2", "FIFOQueueV2"])
DT_RESOURCE = 20
"""Of tensorflow/core/framework/types.proto."""


def _is_resource(node):
    return node is not None and (
        (node.op == "_Arg" and node.attr["T"].type == DT_RESOURCE) or node.op in RESOURCE_CREATING_OPS
    )


def uses_resource(node, nodes):
    """Whether a node works on a variable, table or queue; ``nodes``: its graph's, by name."""
    has_resource_input = any(_is_resource(nodes.get(name.split(":")[0].lstrip("^"))) for name in node.input)
    return has_resource_input or node.op in _RESOURCE_USING_OPS


def identity(nodes):
    """What tells a function's graph from another one's: names, ops, requested devices and called functions.

    Without constants that name no device: TensorFlow prunes those that no op uses. Calls without their names: a loop
    has another one once its gradient is known.
    """
    return frozenset(
        ("", node.op, node.device, tuple(called_functions(node)))
        if node.op in CALL_OPS
        else (node.name, node.op, node.device, ())
        for node in nodes
        if node.op not in FEED_OPS and (node.op != "Const" or node.device)
    )


def called_functions(call):
    names = [call.attr[attribute].func.name for attribute in CALL_OPS[call.op]]
    return names + [function.name for function in call.attr["branches"].list.func]
