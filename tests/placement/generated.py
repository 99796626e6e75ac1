"""Programs made of nested scopes, functions, threads, branches, loops and maps of datasets, from a description in JSON.

A node is ``["op"]``, ``["product"]`` (of matrices), ``["scope", device, nodes]`` or ``[kind, nodes]``. Each op of a
program is another one, so that its request is known by its name; none of them has a GPU kernel.
"""

import threading

import tensorflow as tf

OPS = {
    "StringUpper": tf.strings.upper,
    "StringLower": tf.strings.lower,
    "StringStrip": tf.strings.strip,
    "StringJoin": lambda text: tf.strings.join([text, "b"]),
    "StaticRegexReplace": lambda text: tf.strings.regex_replace(text, "a", "b"),
    "EncodeBase64": tf.io.encode_base64,
    "Substr": lambda text: tf.strings.substr(text, 0, 3),
    "UnicodeTranscode": lambda text: tf.strings.unicode_transcode(text, "UTF-8", "UTF-8"),
}
GPUS = ("GPU:0", "GPU:1")


class Program:
    """One run of a description; ``wanted``: what is true of it: op, requested device, device."""

    def __init__(self):
        self.left = list(OPS)
        self.wanted, self.allowed = set(), set()
        self.local = threading.local()
        """``default``: where the function being traced was called; what asks for a GPU that is missing runs there."""

    def run(self, nodes):
        self._nodes(nodes, None, (tf.constant("aaaa"), tf.ones([2, 2])))

    def _nodes(self, nodes, request, state):
        for node in nodes:
            state = getattr(self, "_" + node[0])(*node[1:], request, state)
        return tuple(state)

    def _op(self, request, state):
        if not self.left:
            return state
        name = self.left.pop(0)
        if request and "GPU" in request:
            self.wanted.add((name, request, "CPU:0"))
        return OPS[name](state[0]), state[1]

    def _product(self, request, state):
        if request and "GPU" in request and request not in GPUS:
            self.wanted.add(("MatMul", request, getattr(self.local, "default", None) or "GPU:0"))
        return state[0], state[1] @ state[1]

    def _scope(self, device, nodes, request, state):
        with tf.device(device and "/" + device):
            return self._nodes(nodes, device, state)

    def _function(self, nodes, request, state):
        before = getattr(self.local, "default", None)
        self.local.default = before or (request if request in (*GPUS, "CPU:0") else "GPU:0")
        made = tf.function(lambda *given: self._nodes(nodes, request, given))(*state)
        self.local.default = before
        return made

    def _thread(self, nodes, request, state):
        """Scopes are of one thread. Two do the same at once, so that first calls of alike functions meet."""
        found = []
        threads = [threading.Thread(target=lambda: found.append(self._nodes(nodes, None, state))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found[0]

    def _branch(self, nodes, request, state):
        self._own(request, "StringLength", "Greater")
        return tf.cond(
            tf.strings.length(state[0]) > 0, lambda: self._nodes(nodes, request, state), lambda: tuple(state)
        )

    def _loop(self, nodes, request, state):
        def again(turn, *given):
            return (turn + 1, *self._nodes(nodes, request, given))

        self._own(request, "Less", "AddV2", "Add")
        shapes = [tf.TensorShape([]), state[0].shape, state[1].shape]
        return tf.while_loop(lambda turn, *_: turn < 2, again, [tf.constant(0), *state], shapes)[1:]

    def _own(self, request, *ops):
        """Ops of a branch and a loop themselves."""
        if request:
            self.allowed.update((op, request, place) for op in ops for place in ("CPU:0", *GPUS))

    def _data(self, nodes, request, state):
        """A dataset calls its functions on the CPU."""
        data = tf.data.Dataset.from_tensors(state).map(lambda *given: self._nodes(nodes, None, given))
        return next(iter(data))
