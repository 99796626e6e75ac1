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


class Sessions:
    """Placed graphs of TF1 sessions, from the first run of each set of fetches."""

    def __init__(self, functions, placed, refuse, groups):
        """``functions``: the PlacedFunctions that count; ``placed``: their module; ``refuse`` counts what did not run:
        an op, the request and the line; ``groups``: makes the Groups of a graph's nodes."""
        self.groups = groups
        self.refuse = refuse
        self.functions = functions
        self.placed = placed
        self.seen = set()
        self.unseen = weakref.WeakKeyDictionary()
        """By graph, its nodes with a requested GPU that no placed graph has: not run, replaced by a constant, or of a
        run that cannot hand over its graphs."""
        self.placed_nodes = weakref.WeakKeyDictionary()
        """By graph, the names of those that some placed graph has, or whose requested GPU does not exist."""
        self.counted = weakref.WeakKeyDictionary()
        """By graph, names and places of the nodes that are counted."""

    def left(self):
        """How many nodes that requested a GPU were in no placed graph."""
        return sum(map(len, list(self.unseen.values())))

    def install(self):
        from tensorflow.core.protobuf import config_pb2
        from tensorflow.python.client import session
        from tensorflow.python.framework import errors_impl

        module = session.tf_session
        original = module.TF_SessionRun_wrapper

        def TF_SessionRun_wrapper(of, options, feeds, fetches, targets, metadata):  # noqa: N802 - TensorFlow's own name
            new = self._new(sys._getframe(1))
            if new is None:
                return original(of, options, feeds, fetches, targets, metadata)
            wanted = config_pb2.RunOptions.FromString(module.TF_GetBuffer(options) if options is not None else b"")
            # MonitoredSession always passes both; without a trace, the metadata stay empty.
            traced = metadata is not None and (wanted.trace_level or wanted.output_partition_graphs)
            if self._keeps_its_graphs(new, traced):
                return original(of, options, feeds, fetches, targets, metadata)
            wanted.output_partition_graphs = True
            asked, answer = module.TF_NewBufferFromString(wanted.SerializeToString()), module.TF_NewBuffer()
            try:
                result = original(of, asked, feeds, fetches, targets, answer)
                self._take(new, module.TF_GetBuffer(answer), config_pb2)
            finally:
                module.TF_DeleteBuffer(asked)
                module.TF_DeleteBuffer(answer)
            return result

        module.TF_SessionRun_wrapper = TF_SessionRun_wrapper
        failed = errors_impl.OpError.__init__

        def noted(this, node_def, op, message, *args):
            self._refused(op, str(message), sys._getframe(2))
            failed(this, node_def, op, message, *args)

        errors_impl.OpError.__init__ = noted

    def _new(self, frame):
        """A session that runs these for the first time."""
        try:
            while frame.f_code.co_name != "_do_run":
                frame = frame.f_back
            session = frame.f_locals["self"]
            asked = (*frame.f_locals["fetch_list"], *frame.f_locals["target_list"])
            key = (id(session), *(one.name for one in asked))
            if key in self.seen or len(self.seen) > 500:
                return None
            self.seen.add(key)
            return session
        except Exception:  # another version: its nodes are not joined
            return None

    def _keeps_its_graphs(self, session, traced):
        """Whether a run cannot hand over its graphs: that of a server, or one whose metadata are the program's."""
        refused = session._config is not None and session._config.experimental.disable_output_partition_graphs
        if traced or refused or session._target:
            self.unseen[session.graph] = self._asked(session.graph) - self.placed_nodes.get(session.graph, set())
        return traced or refused or session._target

    def _take(self, session, data, config_pb2):
        graph = session.graph
        try:
            metadata = config_pb2.RunMetadata()
            metadata.ParseFromString(data)
            nodes = {op.name: op.node_def for op in graph.get_operations()}
            of = self.functions
            placed = {node.name for part in metadata.partition_graphs for node in part.node}
            groups = self.groups(nodes, self.placed.MAKES_RESOURCE)
            with of.lock:
                for part in metadata.partition_graphs:
                    for node in part.node:
                        self._node(of, graph, nodes, node, groups, placed)
                placed |= self.placed_nodes.get(graph, set())
                left = self._asked(graph) - placed
                devices = session.list_devices() if left else ()
                asked = {name: (nodes[name].op, nodes[name].attr, of.of_node(graph, name)) for name in left}
                self.placed_nodes[graph] = placed | {name for name in left if of.missing(*asked[name], devices)}
                self.unseen[graph] = left - self.placed_nodes[graph]
        except Exception:  # our errors must not disturb the program
            self.functions.unclear += 1

    def _asked(self, graph):
        """Names of the nodes for which the program requested a GPU."""
        nodes = {op.name: op.type for op in graph.get_operations()}
        return {
            name
            for name, ask in self.functions.requests.get(graph, {}).items()
            if ask.line is not None and ask.type == "GPU" and nodes[name] not in self.placed.NOT_PLACED
        }

    def _refused(self, op, message, frame):
        """Without soft placement, a session that cannot place a node does not run; ``frame``: of what makes the error.

        Where the requested device does not exist, TensorFlow leaves out the node.
        """
        try:
            found = _NOT_PLACED.search(message)
            if found and op is None and frame.f_code.co_name == "_do_call":
                op = frame.f_locals["self"].graph.get_operation_by_name(found.group(1))
            if found and op is not None:
                request = self.functions.of_node(op.graph, op.name) or self.functions.nothing
                self.refuse(op.type, request, request.line, found.group(2) is None)
        except Exception:  # our errors must not disturb the program
            self.functions.unclear += 1

    def _node(self, of, graph, nodes, node, groups, placed):
        """Counts a placed node, once; and what had to be with it and is not in ``placed``, to which it is added."""
        counted = self.counted.setdefault(graph, set())
        if (node.name, node.device) in counted:
            return
        counted.add((node.name, node.device))
        known, ask = nodes.get(node.name), of.of_node(graph, node.name) or of.nothing
        why = self._why(of, nodes, node, ask, groups) if known is not None else ""
        if groups.told(why):
            self._count(of, graph, known, ask, node.device, why)
            for name in groups.left(node.name, placed):
                placed.add(name)
                asked = of.of_node(graph, name) or of.nothing
                if asked.line is not None and nodes[name].op not in self.placed.FEED:
                    why = self._why(of, nodes, nodes[name], asked, groups, node.device)
                    self._count(of, graph, nodes[name], asked, node.device, why)
        elif node.op not in self.placed.NOT_PLACED:
            of.nodes += 1
            if known is None or ask == of.unknown:
                of.unclear += 1
            else:
                self._count(of, graph, node, ask, node.device, why)

    def _why(self, of, nodes, node, ask, groups, device=None):
        why = "resource" if self.placed.uses_resource(node, nodes) else ""
        if ask.line is not None and not of.scopes.same(ask, device or node.device):
            why = groups.why(node.name, of.kernels) or why
        return why

    @staticmethod
    def _count(of, graph, node, ask, device, why):
        made = graph.get_operation_by_name(node.name)
        of.count(node.op, node.attr, ask, device, why, lambda: of.scopes.made_at(made.traceback))
