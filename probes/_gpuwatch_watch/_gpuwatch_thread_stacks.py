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
_MAX_LOOK_SECONDS = 1.0
"""Seconds that a look counts for at most."""
_MIN_STOPPED_SECONDS = 5.0
"""Seconds without a step after which it is told where the threads stand."""
_REPORT_EVERY_SECONDS = 5.0
_MAX_FRAMES = 100
_MAX_PLACES = 50
_MAX_THREADS = 8
_GENERATOR = 0x20
"""CO_GENERATOR: a generator on the stack makes the next element."""
_NEXT_METHODS = frozenset(["__next__", "next", "get_next", "get_next_as_optional"])
_INPUT_FILES = tuple(
    name.replace("/", os.sep)
    for name in (
        "/tensorflow/python/data/ops/iterator_ops.py",
        "/tensorflow/python/distribute/input_lib.py",
        "/torch/utils/data/dataloader.py",
    )
)
_FEEDING_FILES = tuple(
    name.replace("/", os.sep)
    for name in ("/tensorflow/python/data/ops/from_generator_op.py", "/tensorflow/python/ops/script_ops.py")
)
"""Python code that a dataset runs, in threads of TensorFlow."""
_FRAMEWORKS = tuple(os.sep + name + os.sep for name in ("tensorflow", "keras", "tf_keras", "torch", "jax", "jaxlib"))
_BETWEEN = "between"
_LOOKS = "looks"
_OTHER_WORK = re.compile("sav|dump|writ|checkpoint|log|print|plot|draw|show|eval|valid|test|metric|report|summar", re.I)
"""Functions that a loop calls between its steps for other reasons than its next batch."""
_MAX_NEAR_FRAMES = 3
"""The program's own functions on a stack whose names tell; those above also contain the loop itself."""
_STEP_FILES = tuple(
    name.replace("/", os.sep)
    for name in (
        "/eager/polymorphic_function/polymorphic_function.py",
        "/eager/backprop.py",
        "/torch/optim/optimizer.py",
        "/torch/autograd/__init__.py",
    )
)


class Threads:
    """Part of the watcher: one of ``Watcher.reporters``."""

    def __init__(self, watcher):
        self.watcher = watcher
        self.lines = watcher.lines
        self.reset()

    def reset(self):
        """Starts over in a forked process."""
        self.progress = 0
        self.stepped_at = time.monotonic()
        self.looked_at = None
        self.seconds = {}
        """Seconds by what was seen: ``None`` all that were looked at; ``_FEEDING_FILES`` those in which a dataset ran
        Python; a pair of a place and the generator (or None) for those in which the steps' thread waited for its input;
        of ``_BETWEEN`` and a place for those in which it ran other code of the program, not of a framework. And by
        ``_LOOKS`` the number of looks."""
        self.seconds_since_step = {}
        """The same since the last step."""
        self.with_steps = set()
        """Generators that make steps themselves: they are no input."""
        self.standing_frames = None
        self.standing_since = 0.0
        self.reported_at = 0.0
        self.cpu_seconds_before = 0.0
        self.was_reported = False

    def look(self):
        """Called by the loop of the watcher."""
        now, progress = time.monotonic(), self.watcher.progress()
        if progress > self.progress:
            self._stepped(now, progress)
        before, self.looked_at = self.looked_at, now
        if before is None or self.watcher.steps() < _WARM_UP:
            return
        frames = sys._current_frames()
        # Our own frame would hold itself in a circle, and with it what is local in all others.
        frames.pop(_thread.get_ident(), None)
        stepping_thread = self.watcher.stepping_thread()
        self._count(min(now - before, _MAX_LOOK_SECONDS), frames, stepping_thread)
        if now - self.stepped_at >= _MIN_STOPPED_SECONDS:
            self._stopped(now, frames, stepping_thread)

    def _stepped(self, now, progress):
        self.progress, self.stepped_at = progress, now
        for key, seconds in self.seconds_since_step.items():
            if key in self.seconds or len(self.seconds) < _MAX_PLACES:
                self.seconds[key] = self.seconds.get(key, 0.0) + seconds
        self.seconds_since_step = {}
        self.standing_frames = None
        if self.was_reported:
            self.was_reported = False
            self.watcher.emit("standing", since=None)

    def _count(self, seconds, frames, stepping_thread):
        frame = frames.get(stepping_thread)
        keys = {None, self._input(frame) or self._between(frame)}
        for thread, frame in frames.items():
            if thread != stepping_thread and _runs_code_of(frame, _FEEDING_FILES):
                keys |= {_FEEDING_FILES, (_FEEDING_FILES, self.lines.innermost_line(frame))}
        for key in keys:
            self.seconds_since_step[key] = self.seconds_since_step.get(key, 0.0) + seconds
        self.seconds_since_step[_LOOKS] = self.seconds_since_step.get(_LOOKS, 0) + 1

    def _input(self, frame):
        """Where a thread waits for its next batch: its line, and the generator that it is in; None if it does not."""
        first, steps = frame, False
        for _ in range(_MAX_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            name = code.co_filename
            if name.endswith(_STEP_FILES):
                steps = True
            elif name.endswith(_INPUT_FILES):
                if code.co_name in _NEXT_METHODS and not steps:
                    return self.lines.innermost_line(first), None
            elif not self.lines.is_library(name) and (code.co_flags & _GENERATOR or code.co_name == "__next__"):
                if not steps:
                    return self.lines.innermost_line(first), code
                self.with_steps.add(code)
            frame = frame.f_back
        return None

    def _between(self, frame):
        """The program's line at which its own code runs between steps; None in a framework, a step, or as it saves."""
        places = []
        for _ in range(_MAX_FRAMES):
            if frame is None:
                break
            name = frame.f_code.co_filename
            if name.endswith(_STEP_FILES):
                return None
            if len(places) < _MAX_NEAR_FRAMES:
                if any(part in name for part in _FRAMEWORKS) or _OTHER_WORK.search(frame.f_code.co_name):
                    return None
                places += () if self.lines.is_library(name) else (self.lines.frame_line(frame),)
            frame = frame.f_back
        return (_BETWEEN, places[0]) if places else None

    def _thread_reports(self, frames, stepping_thread):
        """Names and lines of the program's threads, that of the steps first."""
        active = getattr(sys.modules.get("threading"), "_active", None) or {}
        reports = []
        for thread in sorted(frames, key=lambda one: one != stepping_thread):
            if len(reports) < _MAX_THREADS:
                name = getattr(active.get(thread), "name", "") or "a thread of a library"
                frame, lines = frames[thread], self.lines
                report = {"place": lines.innermost_line(frame), "frames": lines.first_and_own_lines(frame)}
                reports.append({"name": str(name)[:80], **report})
        return reports

    def _stopped(self, now, frames, stepping_thread):
        own = self.lines.own_frames(frames.get(stepping_thread))
        where = [(frame.f_code, frame.f_lineno) for frame in own]
        if where != self.standing_frames:
            self.standing_frames, self.standing_since, self.cpu_seconds_before = where, now, time.process_time()
            return
        if now - self.standing_since < _MIN_STOPPED_SECONDS or now - self.reported_at < _REPORT_EVERY_SECONDS:
            return
        self.reported_at, self.was_reported = now, True
        self.watcher.emit(
            "standing",
            since=self.stepped_at,
            stood=self.standing_since,
            seen=now,
            steps=self.watcher.steps(),
            cpu_seconds=time.process_time() - self.cpu_seconds_before,
            threads=self._thread_reports(frames, stepping_thread),
        )

    def tell(self, emit):
        """Sends what the looks have shown so far."""
        seconds_by_key = self.seconds.copy()
        pairs = [
            (key, seconds)
            for key, seconds in seconds_by_key.items()
            if type(key) is tuple and key is not _FEEDING_FILES
        ]
        feeds = [(key[1], seconds) for key, seconds in pairs if key[0] is _FEEDING_FILES]
        between = [(key[1], seconds) for key, seconds in pairs if key[0] is _BETWEEN]
        kinds = (_FEEDING_FILES, _BETWEEN)
        waits = [(key[0], seconds) for key, seconds in pairs if key[0] not in kinds and key[1] not in self.with_steps]
        if None in seconds_by_key:
            self.watcher.changed(
                "waiting",
                "waiting",
                looked_seconds=round(seconds_by_key[None], 3),
                looks=int(seconds_by_key.get(_LOOKS, 0)),
                input_seconds=round(sum(seconds for _, seconds in waits), 3),
                feeding_seconds=round(seconds_by_key.get(_FEEDING_FILES, 0.0), 3),
                places=_longest(waits),
                feeds=_longest(feeds),
                between_seconds=round(sum(seconds for _, seconds in between), 3),
                between=_longest(between),
            )


def _longest(places):
    """The places where most time was spent, by a generator's lines too."""
    ordered = sorted(places, key=lambda one: -one[1])
    return [place for place, _ in ordered if place][:3]


def _runs_code_of(frame, files):
    """Whether code of one of these files is on a stack."""
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith(files):
            return True
        frame = frame.f_back
    return False
