"""Watches processes that a watched program forks with multiprocessing, and counts those that start otherwise.

Standard library only, Python 3.7 or newer.
"""

import _thread
import os
import sys

_FOLLOWED_MODULES = frozenset(["popen_fork.py", "subprocess.py"])
"""Modules whose forks are followed otherwise (_gpuwatch_child_exits.py)."""
_FORK_WARNING = r"This process \(pid=\d+\) is multi-threaded, use of"
_STARTING_FUNCTIONS = ("system", "posix_spawn", "posix_spawnp")
"""Functions of os that start a process without a fork that Python sees."""


def _suppress_fork_warning():
    """Python 3.12 and later warn of forks with several threads; suppresses this if the only other one is ours."""
    import warnings

    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError:
        return
    for entry in list(warnings.filters):
        if getattr(entry[1], "pattern", None) == _FORK_WARNING:
            warnings.filters.remove(entry)
    if threads == 2:
        warnings.filterwarnings("ignore", message=_FORK_WARNING, category=DeprecationWarning)


def _count_starts(name, started):
    """Has a function of os call ``started`` before; it stays the one that ``os`` has by that name, for pickle too."""
    original = getattr(os, name, None)
    if original is None:
        return

    def start(*args, **options):
        started()
        return original(*args, **options)

    start.__name__ = start.__qualname__ = name
    start.__module__, start.__doc__ = "os", original.__doc__
    setattr(os, name, start)


def _by_multiprocessing(frame):
    return os.path.basename(frame.f_code.co_filename) == "popen_fork.py"


def follow(watcher):
    """Begins; ``watcher`` looks on in each process that multiprocessing forks."""

    def unfollowed():
        if os.path.basename(sys._getframe(2).f_code.co_filename) in _FOLLOWED_MODULES:
            return
        watcher.failures.uncounted_forks += 1
        if hasattr(getattr(os.environ, "_data", None), "late"):
            os.environ._data.late = None  # it may be meant for this child

    for name in _STARTING_FUNCTIONS:
        _count_starts(name, unfollowed)

    def before():
        unfollowed()
        if _by_multiprocessing(sys._getframe(1)) and any(device.device_type == "GPU" for device in watcher.logical()):
            watcher.forks_after_start += 1
        if sys.version_info >= (3, 12) and not watcher.broken and os.getpid() == watcher.pid:
            _suppress_fork_warning()
        util = sys.modules.get("multiprocessing.util")
        if util is not None and not watcher.follows_forks:
            watcher.follows_forks = True
            util.register_after_fork(watcher, after)

    def after(forked_watcher):
        forked_watcher.reset(forked=True)
        # Such a process does not run atexit functions.
        sys.modules["multiprocessing.util"].Finalize(None, forked_watcher.end, exitpriority=0)
        _thread.start_new_thread(forked_watcher.loop, ())

    os.register_at_fork(before=before)
