"""Lines of code on a stack: which of them are the program's own.

Part of the watcher (_gpuwatch_watcher.py). Standard library only, Python 3.7 or newer.
"""

import os

_LIBRARIES = (
    *("/site-packages/", "/dist-packages/", "/_gpuwatch_"),
    *("/tensorflow/python/", "/keras/src/"),  # on PYTHONPATH
    os.path.dirname(os.__file__) + os.sep,
)
_MAX_FRAMES = 1000


def is_library(file):
    """Whether a file is of Python, of a package that was installed, or ours."""
    return file.startswith("<frozen") or any(part in file for part in _LIBRARIES)


def place(file, line):
    """``train.py:12``."""
    return "%s:%s" % (os.path.basename(file), line)


def frame_line(frame):
    """``train.py:12 in main``; a relative path as it is."""
    file = frame.f_code.co_filename
    file = os.path.basename(file) if os.path.isabs(file) else file
    return "%s:%s in %s" % (file, frame.f_lineno, frame.f_code.co_name)


def own_frames(frame):
    """The program's own frames, innermost first."""
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return
        if not is_library(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def innermost_place(frame):
    """``train.py:12``: where the program itself is; empty if no frame is its own."""
    own = (place(of_program.f_code.co_filename, of_program.f_lineno) for of_program in own_frames(frame))
    return next(own, "")


def innermost_line(frame):
    """The innermost line of the program itself; empty if there is none."""
    return next(map(frame_line, own_frames(frame)), "")


def first_and_own_lines(frame):
    """The innermost three lines, and eight in all with those of the program itself, innermost first."""
    lines = []
    for depth in range(_MAX_FRAMES):
        if frame is None:
            break
        if depth < 3 or (len(lines) < 8 and not is_library(frame.f_code.co_filename)):
            lines.append(frame_line(frame))
        frame = frame.f_back
    return lines


def maker(frame_summaries):
    """The program's own frame that made a node of a graph, by the traceback that TensorFlow keeps; None without one."""
    own = (frame for frame in reversed(frame_summaries or ()) if not is_library(frame.filename))
    return next(own, None)
