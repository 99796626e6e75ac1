"""Looks at where the program's Python threads stand: at its input, or since its steps stopped.

The watcher's thread reads their stacks (``sys._current_frames``), a few times a second: no signal, no trace function,
nothing that the program can notice. A look counts for the time since the look before, and only once a step has come
after it: what follows the last step is no wait between steps. Standard library only, Python 3.7 or newer.
"""

import _thread
import os
import re
import sys
import time

_WARM_UP = 6
"""Steps of which nothing is told: tracing, buffers that fill."""
_LONGEST_LOOK = 1.0
"""Seconds that a look counts for at most."""
_STOPPED = 5.0
"""Seconds without a step after which it is told where the threads stand."""
_AGAIN = 5.0
_MOST_FRAMES = 100
_MOST_PLACES = 50
_MOST_THREADS = 8
_GENERATOR = 0x20
"""CO_GENERATOR: a generator on the stack makes the next element."""
_PYTHON = "/python%d.%d/" % sys.version_info[:2]
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/tensorflow/python/", "/keras/src/", _PYTHON)
_NEXT = frozenset(["__next__", "next", "get_next", "get_next_as_optional"])
_INPUTS = tuple(
    name.replace("/", os.sep)
    for name in (
        "/tensorflow/python/data/ops/iterator_ops.py",
        "/tensorflow/python/distribute/input_lib.py",
        "/torch/utils/data/dataloader.py",
    )
)
_FEEDS = tuple(
    name.replace("/", os.sep)
    for name in ("/tensorflow/python/data/ops/from_generator_op.py", "/tensorflow/python/ops/script_ops.py")
)
"""Python code that a dataset runs, in threads of TensorFlow."""
_FRAMEWORKS = tuple(os.sep + name + os.sep for name in ("tensorflow", "keras", "tf_keras", "torch", "jax", "jaxlib"))
_BETWEEN = "between"
_LOOKS = "looks"
_NO_INPUT = re.compile("sav|dump|writ|checkpoint|log|print|plot|draw|show|eval|valid|test|metric|report|summar", re.I)
"""Functions that a loop calls between its steps for other reasons than its next batch."""
_NEAR = 3
"""The program's own functions on a stack whose names tell; those above also contain the loop itself."""
_STEPS = tuple(
    name.replace("/", os.sep)
    for name in (
        "/eager/polymorphic_function/polymorphic_function.py",
        "/eager/backprop.py",
        "/torch/optim/optimizer.py",
        "/torch/autograd/__init__.py",
    )
)


class Threads:
    """Part of the watcher: see ``Watcher.seen``."""

    def __init__(self, watcher):
        self.watcher = watcher
        self.reset()

    def reset(self):
        """Starts over in a forked process."""
        self.progress = 0
        self.stepped = time.monotonic()
        self.looked = None
        self.seconds = {}
        """Seconds by what was seen: ``None`` all that were looked at; ``_FEEDS`` those in which a dataset ran Python; a
        pair of a place and the generator (or None) for those in which the steps' thread waited for its input; of
        ``_BETWEEN`` and a place for those in which it ran other code of the program, not of a framework. And by
        ``_LOOKS`` the number of looks."""
        self.open = {}
        """The same since the last step."""
        self.with_steps = set()
        """Generators that make steps themselves: they are no input."""
        self.standing = None
        self.stood = 0.0
        self.told = 0.0
        self.used = 0.0
        self.sent = False

    def look(self):
        """Called by the loop of the watcher."""
        now, progress = time.monotonic(), self.watcher.progress()
        if progress > self.progress:
            self._stepped(now, progress)
        before, self.looked = self.looked, now
        if before is None or self.watcher.steps() < _WARM_UP:
            return
        frames = sys._current_frames()
        # Our own frame would hold itself in a circle, and with it what is local in all others.
        frames.pop(_thread.get_ident(), None)
        main = self.watcher.stepping_thread()
        self._count(min(now - before, _LONGEST_LOOK), frames, main)
        if now - self.stepped >= _STOPPED:
            self._stopped(now, frames, main)

    def _stepped(self, now, progress):
        self.progress, self.stepped = progress, now
        for seen, seconds in self.open.items():
            if seen in self.seconds or len(self.seconds) < _MOST_PLACES:
                self.seconds[seen] = self.seconds.get(seen, 0.0) + seconds
        self.open = {}
        self.standing = None
        if self.sent:
            self.sent = False
            self.watcher.emit("standing", since=None)

    def _count(self, seconds, frames, main):
        frame = frames.get(main)
        seen = {None, self._input(frame) or _between(frame)}
        for thread, frame in frames.items():
            if thread != main and _through(frame, _FEEDS):
                seen |= {_FEEDS, (_FEEDS, _user_place(frame))}
        for one in seen:
            self.open[one] = self.open.get(one, 0.0) + seconds
        self.open[_LOOKS] = self.open.get(_LOOKS, 0) + 1

    def _input(self, frame):
        """Where a thread waits for its next batch: its line, and the generator that it is in; None if it does not."""
        first, steps = frame, False
        for _ in range(_MOST_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            name = code.co_filename
            if name.endswith(_STEPS):
                steps = True
            elif name.endswith(_INPUTS):
                if code.co_name in _NEXT and not steps:
                    return _user_place(first), None
            elif not _library(name) and (code.co_flags & _GENERATOR or code.co_name == "__next__"):
                if not steps:
                    return _user_place(first), code
                self.with_steps.add(code)
            frame = frame.f_back
        return None

    def _stopped(self, now, frames, main):
        where = _user_frames(frames.get(main))
        if where != self.standing:
            self.standing, self.stood, self.used = where, now, time.process_time()
            return
        if now - self.stood < _STOPPED or now - self.told < _AGAIN:
            return
        self.told, self.sent = now, True
        self.watcher.emit(
            "standing",
            since=self.stepped,
            stood=self.stood,
            seen=now,
            steps=self.watcher.steps(),
            cpu_seconds=time.process_time() - self.used,
            threads=_threads(frames, main),
        )

    def tell(self, emit):
        """Sends what the looks have shown so far."""
        seen = self.seconds.copy()
        pairs = [(key, seconds) for key, seconds in seen.items() if type(key) is tuple and key is not _FEEDS]
        feeds = [(key[1], seconds) for key, seconds in pairs if key[0] is _FEEDS]
        between = [(key[1], seconds) for key, seconds in pairs if key[0] is _BETWEEN]
        kinds = (_FEEDS, _BETWEEN)
        waits = [(key[0], seconds) for key, seconds in pairs if key[0] not in kinds and key[1] not in self.with_steps]
        if None in seen:
            self.watcher.changed(
                "waiting",
                "waiting",
                looked_seconds=round(seen[None], 3),
                looks=int(seen.get(_LOOKS, 0)),
                input_seconds=round(sum(seconds for _, seconds in waits), 3),
                feeding_seconds=round(seen.get(_FEEDS, 0.0), 3),
                places=_longest(waits),
                feeds=_longest(feeds),
                between_seconds=round(sum(seconds for _, seconds in between), 3),
                between=_longest(between),
            )


def _between(frame):
    """The program's line at which its own code runs between steps; None in a framework, a step, or where it saves."""
    places = []
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        name = frame.f_code.co_filename
        if name.endswith(_STEPS):
            return None
        if len(places) < _NEAR:
            if any(part in name for part in _FRAMEWORKS) or _NO_INPUT.search(frame.f_code.co_name):
                return None
            places += () if _library(name) else (_line(frame),)
        frame = frame.f_back
    return (_BETWEEN, places[0]) if places else None


def _longest(places):
    """The places where most time was spent, by a generator's lines too."""
    ordered = sorted(places, key=lambda one: -one[1])
    return [place for place, _ in ordered if place][:3]


def _threads(frames, main):
    """Names and lines of the program's threads, that of the steps first."""
    active = getattr(sys.modules.get("threading"), "_active", None) or {}
    found = []
    for thread in sorted(frames, key=lambda one: one != main):
        if len(found) < _MOST_THREADS:
            name = getattr(active.get(thread), "name", "") or "a thread of a library"
            frame = frames[thread]
            found.append({"name": str(name)[:80], "place": _user_place(frame), "frames": _lines(frame)})
    return found


def _lines(frame):
    """The innermost lines, and those of the program itself, innermost first."""
    found = []
    for depth in range(_MOST_FRAMES):
        if frame is None:
            break
        if depth < 3 or (len(found) < 8 and not _library(frame.f_code.co_filename)):
            found.append(_line(frame))
        frame = frame.f_back
    return found


def _line(frame):
    name = frame.f_code.co_filename
    return "%s:%s in %s" % (
        os.path.basename(name) if os.path.isabs(name) else name,
        frame.f_lineno,
        frame.f_code.co_name,
    )


def _through(frame, files):
    """Whether code of one of these files is on a stack."""
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith(files):
            return True
        frame = frame.f_back
    return False


def _user_place(frame):
    """The innermost line of the program itself; empty if there is none."""
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return ""
        if not _library(frame.f_code.co_filename):
            return _line(frame)
        frame = frame.f_back
    return ""


def _user_frames(frame):
    """What tells where the program stands: its own lines."""
    found = []
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        if not _library(frame.f_code.co_filename):
            found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


def _library(name):
    return name.startswith("<frozen") or any(part in name for part in _LIBRARIES) or "_gpuwatch_" in name
