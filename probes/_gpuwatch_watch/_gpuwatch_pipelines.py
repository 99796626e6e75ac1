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
_MIN_STEPS = 20
_MAX_ITERATORS = 8
"""Latest iterators that are asked."""


class Pipelines:
    """Part of the watcher: one of ``Watcher.reporters``."""

    def __init__(self, watcher):
        self.watcher = watcher
        self.actions = {_ITERATORS: self._note}
        self.reset()

    def reset(self):
        """Starts over in a forked process."""
        self.iterators = []
        """Of each a weak reference; its elements and its stages' seconds (by number) at the last look."""
        self.looked_at = 0.0
        self.seconds = self.busy = 0.0
        self.busy_by_stage = {}
        """By name, seconds in which this was the busiest stage."""

    def failed(self, name, error):
        return None  # another version of TensorFlow: what its pipelines do is not told

    def _note(self, module):
        if "__new__" in vars(module.OwnedIterator):
            return

        def noted(cls, *args, **keywords):
            iterator = object.__new__(cls)
            self.iterators[: 1 - _MAX_ITERATORS] = []
            self.iterators.append([weakref.ref(iterator), 0, {}])
            return iterator

        module.OwnedIterator.__new__ = noted

    def tell(self, emit):
        if self.watcher.started_before_fork:
            return  # its devices are the parent's: an op would wait for ever
        context, proto = self.watcher.context(), sys.modules.get(_PROTO)
        ask_model = getattr(sys.modules.get(_OPS), "iterator_get_model_proto", None)
        if None in (context, proto, ask_model) or self.watcher.steps() < _MIN_STEPS or context.log_device_placement:
            return
        now, before = time.monotonic(), self.looked_at
        self.looked_at = now
        looks = [self._look(entry, ask_model, proto.ModelProto) for entry in list(self.iterators)]
        elements, share, stage = max(looks, default=(0, 0.0, ""))
        if not before or not elements:
            return
        self.seconds += now - before
        share = min(share / (now - before), 1.0)
        self.busy += share * (now - before)
        self.busy_by_stage[stage] = self.busy_by_stage.get(stage, 0.0) + share
        busiest = max(self.busy_by_stage, key=self.busy_by_stage.get)
        self.watcher.changed(
            *("pipeline", "pipeline"), seconds=round(self.seconds, 3), busy_seconds=round(self.busy, 3), stage=busiest
        )

    def _look(self, entry, ask_model, proto):
        """Elements since the last look, and seconds in which the busiest stage worked meanwhile, with its name."""
        iterator = entry[0]()
        resource = getattr(iterator, "_iterator_resource", None)
        if type(resource).__name__ != "EagerTensor" or not _has_model(iterator):  # None, or of a graph
            return 0, 0.0, ""
        try:
            model = proto.FromString(ask_model(resource).numpy())
        except Exception:  # another version of TensorFlow, which has logged the failure: once
            entry[0] = type(None)
            return 0, 0.0, ""
        elements = model.nodes[model.output].num_elements
        stage_seconds = {
            number: node.processing_time / 1e9 / _parallelism(node) for number, node in model.nodes.items()
        }
        new_elements, earlier_seconds = elements - entry[1], entry[2]
        entry[1:] = elements, stage_seconds
        busiest = max(
            stage_seconds, key=lambda number: stage_seconds[number] - earlier_seconds.get(number, 0.0), default=None
        )
        if busiest is None or not earlier_seconds:
            return 0, 0.0, ""
        return new_elements, stage_seconds[busiest] - earlier_seconds.get(busiest, 0.0), model.nodes[busiest].name


def _has_model(iterator):
    """Whether an iterator is made and its dataset autotuned: TensorFlow logs an error of what is asked otherwise."""
    made = vars(iterator)
    if "_get_next_call_count" not in made or made.get("_dataset") is None:
        return False
    return made["_dataset"].options().autotune.enabled is not False


def _parallelism(node):
    """How many elements a stage works on at once."""
    return max(
        [1.0]
        + [parameter.state_value or parameter.value for parameter in node.parameters if parameter.name == "parallelism"]
    )
