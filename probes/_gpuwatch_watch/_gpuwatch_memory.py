"""``gpuwatch run --memory``: records who allocates GPU memory, with TensorFlow's profiler.

It starts with the creation of the devices: later it would miss the weights. The profiler keeps every event in host
memory until it is stopped, so it records windows: the first lasts until some steps were seen. Where few events come,
later ones follow at once; else they are short, and follow when memory reaches a new peak, or after ever longer pauses.
A program that profiles itself gets the profiler: ours stops first. PyTorch's recorder: _gpuwatch_torch_memory.py.

Each file is in a folder of gpuwatch's, which reads it once the program has ended. Standard library only, Python 3.7 or
newer.
"""

import _thread
import os
import time

_CONTEXT = "tensorflow.python.eager.context"
_SESSIONS = "tensorflow.python.client.pywrap_tf_session"
_PROFILER = "tensorflow.python.profiler.internal._pywrap_profiler"
_LAUNCHERS = "tensorflow.python.distribute.cross_device_utils"
_COLLECTIVES = "TensorFlow's profiler may crash a program whose devices reduce together: this recording ended before it"
"""What ends in another thread than it began (CollectiveExecutor::CompleteParams) is written into freed memory when the
profiler stops (SplitEventTracker in traceme_recorder.cc)."""
_MIN_FIRST_STEPS = 5
_MIN_FIRST_SECONDS = 1.0
_MAX_FIRST_SECONDS = 20.0
"""Seconds after which the first window ends though no steps were counted; the next one follows at once."""
_MIN_LATER_STEPS = 2
_MIN_LATER_SECONDS = 0.3
_MAX_LATER_SECONDS = 10.0
_CHEAP_BYTES_PER_SECOND = 64 << 10
"""Bytes of events a second that may be recorded all the time: about 300 events, 0.2 % of a core."""
_MAX_CHEAP_SECONDS = 20.0
_MAX_RSS_GROWTH = 512 << 20
"""Growth of this process in bytes at which a window ends: its events may be the reason."""
_SMALL_FILE_BYTES = 8 << 20
"""Size of a file, in bytes, below which they were not."""
_MAX_TOTAL_BYTES = 32 << 20
"""Size of all files of a process."""
_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_NEW_PEAK_FACTOR = 1.02
_NEW_PEAK_PAUSE = 0.5


class _Level(int):
    """A number that is no truth value: TensorFlow 2.21 takes every other number for one, and ignores the option."""

    def __bool__(self):
        raise TypeError


_OPTIONS = {"host_tracer_level": _Level(2), "python_tracer_level": _Level(0), "device_tracer_level": _Level(0)}
"""Allocations are events of level 2 (``kInfo``); no CUPTI, which the program's own tools may use, which slows kernels,
and whose lines the program's log would have."""


class Recorder:
    """Observes modules after their import (see sitecustomize.py), and starts and stops the recorders."""

    def __init__(self, watcher, folder):
        self.watcher = watcher
        self.folder = folder
        self.names = watcher.load("_gpuwatch_memory_names").Names(self)
        self.torch = watcher.load("_gpuwatch_torch_memory").AllocatorHistory(self)
        self.actions = {
            _CONTEXT: self._context,
            _SESSIONS: self._sessions,
            _PROFILER: self._profiler,
            _LAUNCHERS: self._launchers,
            "torch.cuda": self.torch.observe,
        }
        self.original = None
        """TensorFlow's own ProfilerSession."""
        self.reset()

    def reset(self):
        """Starts over in a forked process: the recording of its parent is not ours."""
        self.lock = _thread.allocate_lock()
        self.pid = os.getpid()
        self.session = None
        self.window_number = 0
        self.total_bytes = 0
        self.stop_reason = ""
        """Why nothing more is recorded."""
        self.window_started_at = 0.0
        self.steps_before = 0
        self.rss_before = 0
        self.rss_limit = _MAX_RSS_GROWTH
        self.next_window_at = 0.0
        self.pause = _PAUSE
        self.stopped_at = 0.0
        self.has_few_events = False
        self.first_steps_recorded = False
        """Whether the first steps were recorded."""
        self.peaks = {}
        self.names.were_sent = False
        self.torch.reset()

    def failed(self, name, error):
        self.note("not possible in this version of %s (%s)" % (name.partition(".")[0], error))

    def note(self, text, **more):
        self.watcher.once("memory: " + text, "memory_note", text=text, **more)

    # Where recording begins

    def _context(self, module):
        # The devices are listed right after their creation, before anything is allocated on them.
        module.Context._logical_devices = self.watcher.descriptors.Attribute("_logical_devices", written=self._listed)

    def _sessions(self, module):
        original = module.TF_NewSessionRef

        def TF_NewSessionRef(*arguments):  # noqa: N802 - TensorFlow's own name
            session = original(*arguments)
            self.begin()
            return session

        module.TF_NewSessionRef = TF_NewSessionRef

    def _profiler(self, module):
        self.original = original = module.ProfilerSession
        serve = module.start_server

        def ProfilerSession(*arguments):  # noqa: N802 - TensorFlow's own name
            self.give_way("the program profiles itself: this recording ended where its own began")
            return original(*arguments)

        def start_server(*arguments):
            self.give_way("the program started a profiler server: this recording ended there")
            return serve(*arguments)

        module.ProfilerSession = ProfilerSession
        module.start_server = start_server

    def _launchers(self, module):
        launcher = module.CollectiveReplicaLauncher
        make = launcher.__init__

        def made(instance, group_key, group_size, *arguments, **keywords):
            if group_size > 1:
                self.give_way(_COLLECTIVES, gave_way=False)
            make(instance, group_key, group_size, *arguments, **keywords)

        launcher.__init__ = made

    def _listed(self, frame, context):
        if context._logical_devices:
            self.begin()

    def begin(self):
        """Starts the first window, unless this process has one."""
        if os.getpid() == self.pid and not self.window_number:
            self._start_window()

    def _start_window(self):
        try:
            with self.lock:
                if self.session is None and not self.stop_reason:
                    self._start()
        except Exception as error:
            self.stop_reason = "%s: %s" % (type(error).__name__, error)
            self.note("TensorFlow's profiler could not be started (%s)" % self.stop_reason[:200])

    def _start(self):
        if self.original is None:
            __import__(_PROFILER)
        session = self.original()
        self.window_number += 1
        session.start(self._path(self.window_number), _OPTIONS)
        self.watcher.once("memory_begin", "memory_begin")
        self.window_started_at = time.monotonic()
        self.steps_before = self.watcher.steps()
        self.rss_before = _resident()
        self.session = session  # last: another thread looks how long this window has lasted

    def _path(self, number):
        return os.path.join(self.folder, "%d-%d" % (self.pid, number))

    # Where it ends

    def give_way(self, reason, gave_way=True):
        """Stops for good; ``gave_way``: before the program's own profiler starts."""
        if os.getpid() != self.pid or self.stop_reason:
            return
        self.stop_reason = reason
        self.stop(reason)
        self.note(reason, gave_way=gave_way)

    def stop(self, reason):
        """Ends the window, and tells gpuwatch where its file is."""
        with self.lock:
            session, self.session = self.session, None
            if session is None:
                return
            path, now, steps = self._path(self.window_number), time.monotonic(), self.watcher.steps()
            try:
                session.export_to_tb()
            except Exception as error:
                self.note("a recording could not be written (%s)" % str(error)[:200])
                return
            self.stopped_at = time.monotonic()
            size = 0
            for folder, _, names in os.walk(path):
                for name in names:
                    if name.endswith(".xplane.pb"):
                        file = os.path.join(folder, name)
                        size += os.path.getsize(file)
                        self.watcher.emit(
                            "memory_file",
                            file=file,
                            tool="tensorflow",
                            number=self.window_number,
                            begin=self.window_started_at,
                            end=now,
                            steps_begin=self.steps_before,
                            steps_end=steps,
                            reason=reason,
                        )
            self.total_bytes += size
        self.has_few_events = size < _CHEAP_BYTES_PER_SECOND * (now - self.window_started_at)
        if size < _SMALL_FILE_BYTES and _resident() - self.rss_before > self.rss_limit:
            self.rss_limit *= 2
        if self.total_bytes > _MAX_TOTAL_BYTES and not self.stop_reason:
            self.stop_reason = "size"
            self.note("recording ended after %d MiB of events" % (self.total_bytes >> 20))

    def look(self):
        """Called some times a second: ends a window that has what it needs, starts the next one."""
        if os.getpid() != self.pid:
            return
        if not self.window_number:
            self._late()
            return
        now = time.monotonic()
        if self.session is not None and self._enough(
            now - self.window_started_at, self.watcher.steps() - self.steps_before
        ):
            self.stop("window")
            self.peaks = self._peaks()
            if self.first_steps_recorded:
                self.next_window_at = time.monotonic() + (0.0 if self.has_few_events else self.pause)
                if not self.has_few_events:
                    self.pause = min(2 * self.pause, _LONGEST_PAUSE)
                if not self.names.were_sent:
                    self.names.send()
        if self.session is None and not self.stop_reason and (now >= self.next_window_at or self._rose(now)):
            self._start_window()

    def _late(self):
        """Starts a recording that the creation of the devices did not start, in an unknown version of TensorFlow."""
        if not self.stop_reason and not self.watcher.started_before_fork and self.watcher.context() is not None:
            self.note("recording began after TensorFlow had made its devices: what was allocated before is missing")
            self.begin()

    def _enough(self, seconds, steps):
        if _resident() - self.rss_before > self.rss_limit:
            return True
        if not self.first_steps_recorded:
            self.first_steps_recorded = steps >= _MIN_FIRST_STEPS and seconds >= _MIN_FIRST_SECONDS
            return self.first_steps_recorded or seconds >= _MAX_FIRST_SECONDS
        if self.has_few_events:
            return seconds >= _MAX_CHEAP_SECONDS
        return (steps >= _MIN_LATER_STEPS and seconds >= _MIN_LATER_SECONDS) or seconds >= _MAX_LATER_SECONDS

    def _peaks(self):
        """Peak of each GPU's allocator, as the watcher has read it last."""
        latest = self.watcher.latest
        return {name: data["peak"] for name, data in list(latest.items()) if "/device:" in str(name)}

    def _rose(self, now):
        if now - self.stopped_at < _NEW_PEAK_PAUSE:
            return False
        return any(peak > _NEW_PEAK_FACTOR * self.peaks.get(name, 0) for name, peak in self._peaks().items())

    def end(self):
        """At the program's end."""
        if os.getpid() != self.pid:
            return
        self.stop("end")
        if self.window_number:
            try:
                self.names.send(ending=True)
            except Exception as error:
                self.note("variables and inputs have no names (%s: %s)" % (type(error).__name__, str(error)[:200]))
        self.torch.end()
        if self.window_number or self.torch.is_recorded:
            self.watcher.emit("memory_end")


def _resident():
    """Resident bytes of this process."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0
