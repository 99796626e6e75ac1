"""``gpuwatch run --placement``: where nodes of TF1 sessions were placed, and what was requested for them.

A session returns its placed graph for one run that asks for it (RunOptions.output_partition_graphs). Standard library
only, Python 3.7 or newer.
"""

import re
import sys
import weakref

_NOT_PLACED = re.compile(
    r"Cannot assign a device for operation (\S+): (?:Could not satisfy .*because no supported kernel"
    r"|.*(was explicitly assigned to \S+ but available devices are))",
    re.DOTALL,
)


def _remove_frames(error, code):
    """Removes frames of ours from the traceback that the program prints or formats."""
    entry = getattr(error, "__traceback__", None)
    while entry is not None:
        while entry.tb_next is not None and entry.tb_next.tb_frame.f_code is code:
            entry.tb_next = entry.tb_next.tb_next
        entry = entry.tb_next


class Sessions:
    """Placed graphs of TF1 sessions, from the first run of each set of fetches."""

    def __init__(self, functions, refuse, groups):
        """``functions``: the PlacedFunctions that count; ``refuse`` counts what did not run: an op, the request and the
        line; ``groups``: makes the Groups of a graph's nodes."""
        self.groups = groups
        self.refuse = refuse
        self.functions = functions
        self.graph_ops = functions.graph_ops
        self.known_runs = set()
        self.unplaced_by_graph = weakref.WeakKeyDictionary()
        """By graph, its nodes with a requested GPU that no placed graph has: not run, replaced by a constant, or of a
        run that cannot hand over its graphs."""
        self.placed_nodes = weakref.WeakKeyDictionary()
        """By graph, the names of those that some placed graph has, or whose requested GPU does not exist."""
        self.counted = weakref.WeakKeyDictionary()
        """By graph, names and places of the nodes that are counted."""

    def unplaced_count(self):
        """How many nodes that requested a GPU were in no placed graph."""
        return sum(map(len, list(self.unplaced_by_graph.values())))

    def install(self):
        from tensorflow.core.protobuf import config_pb2
        from tensorflow.python.client import session
        from tensorflow.python.framework import errors_impl

        module = session.tf_session
        original = module.TF_SessionRun_wrapper

        def TF_SessionRun_wrapper(session_handle, options, feeds, fetches, targets, metadata):  # noqa: N802 - TensorFlow's own name
            new_session = self._new(sys._getframe(1))
            if new_session is None:
                return original(session_handle, options, feeds, fetches, targets, metadata)
            run_options = config_pb2.RunOptions.FromString(module.TF_GetBuffer(options) if options is not None else b"")
            # MonitoredSession always passes both; without a trace, the metadata stay empty.
            traced = metadata is not None and (run_options.trace_level or run_options.output_partition_graphs)
            if self._keeps_its_graphs(new_session, traced):
                return original(session_handle, options, feeds, fetches, targets, metadata)
            run_options.output_partition_graphs = True
            options_buffer, metadata_buffer = (
                module.TF_NewBufferFromString(run_options.SerializeToString()),
                module.TF_NewBuffer(),
            )
            try:
                result = original(session_handle, options_buffer, feeds, fetches, targets, metadata_buffer)
                self._take(new_session, module.TF_GetBuffer(metadata_buffer), config_pb2)
            finally:
                module.TF_DeleteBuffer(options_buffer)
                module.TF_DeleteBuffer(metadata_buffer)
            return result

        module.TF_SessionRun_wrapper = TF_SessionRun_wrapper
        failed = errors_impl.OpError.__init__

        def noted(this, node_def, op, message, *args):
            # The session raises it anew, with the program's node, while it handles the one that came through us.
            _remove_frames(sys.exc_info()[1], TF_SessionRun_wrapper.__code__)
            self._refused(op, str(message), sys._getframe(2))
            failed(this, node_def, op, message, *args)

        errors_impl.OpError.__init__ = noted

    def _new(self, frame):
        """A session that runs these for the first time."""
        try:
            while frame.f_code.co_name != "_do_run":
                frame = frame.f_back
            session = frame.f_locals["self"]
            fetched = (*frame.f_locals["fetch_list"], *frame.f_locals["target_list"])
            key = (id(session), *(tensor.name for tensor in fetched))
            if key in self.known_runs or len(self.known_runs) > 500:
                return None
            self.known_runs.add(key)
            return session
        except Exception:  # another version: its nodes are not joined
            return None

    def _keeps_its_graphs(self, session, traced):
        """Whether a run cannot hand over its graphs: that of a server, or one whose metadata are the program's."""
        refused = session._config is not None and session._config.experimental.disable_output_partition_graphs
        if traced or refused or session._target:
            self.unplaced_by_graph[session.graph] = self._asked(session.graph) - self.placed_nodes.get(
                session.graph, set()
            )
        return traced or refused or session._target

    def _take(self, session, data, config_pb2):
        graph = session.graph
        try:
            metadata = config_pb2.RunMetadata()
            metadata.ParseFromString(data)
            nodes = {op.name: op.node_def for op in graph.get_operations()}
            functions = self.functions
            placed = {node.name for graph_part in metadata.partition_graphs for node in graph_part.node}
            groups = self.groups(nodes, self.graph_ops.RESOURCE_CREATING_OPS)
            with functions.lock:
                for graph_part in metadata.partition_graphs:
                    for node in graph_part.node:
                        self._node(functions, graph, nodes, node, groups, placed)
                placed |= self.placed_nodes.get(graph, set())
                unplaced = self._asked(graph) - placed
                devices = session.list_devices() if unplaced else ()
                requests = {
                    name: (nodes[name].op, nodes[name].attr, functions.of_node(graph, name)) for name in unplaced
                }
                self.placed_nodes[graph] = placed | {
                    name for name in unplaced if functions.missing(*requests[name], devices)
                }
                self.unplaced_by_graph[graph] = unplaced - self.placed_nodes[graph]
        except Exception:  # our errors must not disturb the program
            self.functions.unclear += 1

    def _asked(self, graph):
        """Names of the nodes for which the program requested a GPU."""
        nodes = {op.name: op.type for op in graph.get_operations()}
        return {
            name
            for name, request in self.functions.requests.get(graph, {}).items()
            if request.line is not None and request.type == "GPU" and nodes[name] not in self.graph_ops.NOT_PLACED_OPS
        }

    def _refused(self, op, message, frame):
        """Without soft placement, a session that cannot place a node does not run; ``frame``: of what makes the error.

        Where the requested device does not exist, TensorFlow leaves out the node.
        """
        try:
            match = _NOT_PLACED.search(message)
            if match and op is None and frame.f_code.co_name == "_do_call":
                op = frame.f_locals["self"].graph.get_operation_by_name(match.group(1))
            if match and op is not None:
                request = self.functions.of_node(op.graph, op.name) or self.functions.nothing
                self.refuse(op.type, request, request.line, match.group(2) is None)
        except Exception:  # our errors must not disturb the program
            self.functions.unclear += 1

    def _node(self, functions, graph, nodes, node, groups, placed):
        """Counts a placed node, once; and what had to be with it and is not in ``placed``, to which it is added."""
        counted = self.counted.setdefault(graph, set())
        if (node.name, node.device) in counted:
            return
        counted.add((node.name, node.device))
        graph_node, request = nodes.get(node.name), functions.of_node(graph, node.name) or functions.nothing
        reason = self._why(functions, nodes, node, request, groups) if graph_node is not None else ""
        if groups.is_reason(reason):
            self._count(functions, graph, graph_node, request, node.device, reason)
            for name in groups.removed_members(node.name, placed):
                placed.add(name)
                removed_request = functions.of_node(graph, name) or functions.nothing
                if removed_request.line is not None and nodes[name].op not in self.graph_ops.FEED_OPS:
                    reason = self._why(functions, nodes, nodes[name], removed_request, groups, node.device)
                    self._count(functions, graph, nodes[name], removed_request, node.device, reason)
        elif node.op not in self.graph_ops.NOT_PLACED_OPS:
            functions.nodes += 1
            if graph_node is None or request == functions.unknown:
                functions.unclear += 1
            else:
                self._count(functions, graph, node, request, node.device, reason)

    def _why(self, functions, nodes, node, request, groups, device=None):
        reason = "resource" if self.graph_ops.uses_resource(node, nodes) else ""
        if request.line is not None and not functions.scopes.same(request, device or node.device):
            reason = groups.why(node.name, functions.kernels) or reason
        return reason

    @staticmethod
    def _count(functions, graph, node, request, device, reason):
        graph_op = graph.get_operation_by_name(node.name)
        functions.count(
            node.op, node.attr, request, device, reason, lambda: functions.scopes.made_at(graph_op.traceback)
        )
