"""Of a traceback, the last line that is the user's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.logs.log_parser import parse
from gpuwatch.logs.tracebacks import Frame, FrameFinder


def of(*lines: str) -> Frame | None:
    return parse("\n".join(lines)).frame


def test_the_last_frame_outside_the_framework() -> None:
    frame = of(
        "Traceback (most recent call last):",
        '  File "/home/u/train.py", line 80, in <module>',
        "    main()",
        '  File "/home/u/model.py", line 12, in call',
        "    return self.dense(x)",
        "           ^^^^^^^^^^^^^",
        '  File "/opt/v/lib/python3.11/site-packages/keras/src/utils/traceback_utils.py", line 122, in error_handler',
        "    raise e.with_traceback(filtered_tb) from None",
        '  File "/usr/lib/python3.11/contextlib.py", line 81, in inner',
        "    return func(*args, **kwds)",
        "ValueError: no",
    )
    assert frame == Frame(file="/home/u/model.py", line=12, function="call", code="return self.dense(x)")


def test_the_latest_traceback_counts() -> None:
    frame = of('  File "a.py", line 1, in f', "    one()", "E: x", '  File "b.py", line 2, in g', "    two()")
    assert frame is not None
    assert (frame.file, frame.line) == ("b.py", 2)


@pytest.mark.parametrize(
    ("line", "file", "number"),
    [
        ('  File "<ipython-input-3-2f1>", line 4, in <module>', "<ipython-input-3-2f1>", 4),
        ("<ipython-input-3-2f1>, line 4", "<ipython-input-3-2f1>", 4),
        ("Cell In[7], line 2", "Cell In[7]", 2),
        ('[rank0]:   File "/w/t.py", line 9, in main', "/w/t.py", 9),
    ],
)
def test_notebooks_and_launchers(line: str, file: str, number: int) -> None:
    frame = of(line)
    assert frame is not None
    assert (frame.file, frame.line) == (file, number)


def test_marks_under_a_line_and_a_missing_source_are_no_code() -> None:
    assert of('  File "a.py", line 1, in f', "    ^^^^").code == ""  # type: ignore[union-attr]
    assert of('  File "a.py", line 1, in f', '  File "/x/site-packages/y.py", line 3, in g').code == ""  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["nothing", "see line 4, line 5", 'File "x.py"', "on line 3, line"])
def test_sentences_are_no_frames(text: str) -> None:
    assert of(text) is None


@given(st.lists(st.text(max_size=80), max_size=20))
def test_any_lines(lines: list[str]) -> None:
    finder = FrameFinder()
    for line in lines:
        finder.line(line)
        finder.code(line)
    assert finder.frame is None or finder.frame.line >= 0


def test_memory_was_requested_by_the_latest_frame_that_no_other_exception_explains() -> None:
    head, frame = "Traceback (most recent call last):", ('  File "a.py", line 1, in f', "    one()")
    found = parse("\n".join((head, *frame, "KeyError: 'x'")))
    assert (found.requested_at, found.error_frames) == (None, {"KeyError: 'x'": found.frame})
    # As TensorFlow names the place of an op, after the exception.
    later = parse("\n".join((head, *frame, "KeyError: 'x'", '  File "b.py", line 2, in g', "    two()")))
    assert later.requested_at is not None
    assert later.requested_at.file == "b.py"
    cut = parse("\n".join((head, *frame, "InternalError: Graph execution error:")))
    assert cut.requested_at is not None
