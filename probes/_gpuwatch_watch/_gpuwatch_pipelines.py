"""How busy a stage of a tf.data pipeline is, by the model that TensorFlow's own autotuning keeps of it.

TensorFlow measures how long each stage works on its elements (tensorflow/core/framework/model.proto) and gives that of
an iterator from 2.17 on. Iterators are noted by a ``__new__`` that their class lacks: no frame of ours is in a
traceback. Standard library only, Python 3.7 or newer.
"""

import sys
import time
import weakref

_ITERATORS = "tensorflow.python.data.ops.iterator_ops"
_OPS = "tensorflow.python.ops.gen_experimental_dataset_ops"
_PROTO = "tensorflow.core.framework.model_pb2"
_LEAST_STEPS = 20
_MOST = 8
"""Latest iterators that are asked."""


class Pipelines:
    """Part of the watcher: see ``Watcher.seen``."""

    def __init__(self, watcher):
        self.watcher = watcher
        self.actions = {_ITERATORS: self._note}
        self.reset()

    def reset(self):
        """Starts over in a forked process."""
        self.iterators = []
        """Of each a weak reference; its elements and its stages' seconds (by number) at the last look."""
        self.looked = 0.0
        self.seconds = self.busy = 0.0
        self.stages = {}
        """By name, seconds in which this was the busiest stage."""

    def failed(self, name, error):
        return None  # another version of TensorFlow: what its pipelines do is not told

    def _note(self, module):
        if "__new__" in vars(module.OwnedIterator):
            return

        def noted(cls, *args, **keywords):
            made = object.__new__(cls)
            self.iterators[: 1 - _MOST] = []
            self.iterators.append([weakref.ref(made), 0, {}])
            return made

        module.OwnedIterator.__new__ = noted

    def tell(self, emit):
        if self.watcher.started_before_fork:
            return  # its devices are the parent's: an op would wait for ever
        context, proto = self.watcher.context(), sys.modules.get(_PROTO)
        ask = getattr(sys.modules.get(_OPS), "iterator_get_model_proto", None)
        if None in (context, proto, ask) or self.watcher.steps() < _LEAST_STEPS or context.log_device_placement:
            return
        now, before = time.monotonic(), self.looked
        self.looked = now
        seen = [self._look(entry, ask, proto.ModelProto) for entry in list(self.iterators)]
        elements, share, stage = max(seen, default=(0, 0.0, ""))
        if not before or not elements:
            return
        self.seconds += now - before
        share = min(share / (now - before), 1.0)
        self.busy += share * (now - before)
        self.stages[stage] = self.stages.get(stage, 0.0) + share
        busiest = max(self.stages, key=self.stages.get)
        self.watcher.changed(
            *("pipeline", "pipeline"), seconds=round(self.seconds, 3), busy_seconds=round(self.busy, 3), stage=busiest
        )

    def _look(self, entry, ask, proto):
        """Elements since the last look, and seconds in which the busiest stage worked meanwhile, with its name."""
        iterator = entry[0]()
        resource = getattr(iterator, "_iterator_resource", None)
        if type(resource).__name__ != "EagerTensor" or not _has_model(iterator):  # None, or of a graph
            return 0, 0.0, ""
        try:
            model = proto.FromString(ask(resource).numpy())
        except Exception:  # another version of TensorFlow, which has logged the failure: once
            entry[0] = type(None)
            return 0, 0.0, ""
        elements = model.nodes[model.output].num_elements
        worked = {number: node.processing_time / 1e9 / _parallel(node) for number, node in model.nodes.items()}
        more, old = elements - entry[1], entry[2]
        entry[1:] = elements, worked
        busiest = max(worked, key=lambda number: worked[number] - old.get(number, 0.0), default=None)
        if busiest is None or not old:
            return 0, 0.0, ""
        return more, worked[busiest] - old.get(busiest, 0.0), model.nodes[busiest].name


def _has_model(iterator):
    """Whether an iterator is made and its dataset autotuned: TensorFlow logs an error of what is asked otherwise."""
    made = vars(iterator)
    if "_get_next_call_count" not in made or made.get("_dataset") is None:
        return False
    return made["_dataset"].options().autotune.enabled is not False


def _parallel(node):
    """How many elements a stage works on at once."""
    return max([1.0] + [one.state_value or one.value for one in node.parameters if one.name == "parallelism"])
