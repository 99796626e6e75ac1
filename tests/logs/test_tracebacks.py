"""Of a traceback, the last line that is the user's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.explain.logs.log_facts import Frame
from gpuwatch.explain.logs.log_parser import parse
from gpuwatch.explain.logs.tracebacks import FrameFinder


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


@pytest.mark.parametrize(
    "file", ["tensorflow/python/eager/execute.py", "keras/src/trainers/trainer.py", "torch/_ops.py", "jax/_src/api.py"]
)
def test_a_framework_from_a_folder_of_pythonpath_is_none_of_the_users_files(file: str) -> None:
    """pip install --target, as modules of a cluster are made: no folder is called site-packages."""
    frame = of(
        '  File "/home/u/train.py", line 8, in <module>', "    main()", f'  File "/apps/tf/{file}", line 1, in f'
    )
    assert frame is not None
    assert frame.file == "/home/u/train.py"


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
        finder.take_frame(line)
        finder.take_code(line)
    assert finder.frame is None or finder.frame.line >= 0


def test_memory_was_requested_by_the_latest_frame_that_no_other_exception_explains() -> None:
    head, frame = "Traceback (most recent call last):", ('  File "a.py", line 1, in f', "    one()")
    found = parse("\n".join((head, *frame, "KeyError: 'x'")))
    assert (found.memory_request_frame, found.error_frames) == (None, {"KeyError: 'x'": found.frame})
    # As TensorFlow names the place of an op, after the exception.
    later = parse("\n".join((head, *frame, "KeyError: 'x'", '  File "b.py", line 2, in g', "    two()")))
    assert later.memory_request_frame is not None
    assert later.memory_request_frame.file == "b.py"
    cut = parse("\n".join((head, *frame, "InternalError: Graph execution error:")))
    assert cut.memory_request_frame is not None


_FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
_LIBRARY = '  File "/opt/env/lib/python3.12/site-packages/torch/nn.py", line 9, in f'


def _traceback(file: str, line: int, code: str, error: str, *, rank: str = "") -> list[str]:
    lines = (
        "Traceback (most recent call last):",
        f'  File "{file}", line {line}, in f',
        f"    {code}",
        _LIBRARY,
        error,
    )
    return [rank + text for text in lines]


@pytest.mark.parametrize("code", ["mp.spawn(main, nprocs=8, join=True)", "ray.get(refs)", "future.result()"])
def test_the_line_that_started_a_process_is_not_where_it_requested_memory(code: str) -> None:
    parent = _traceback("main.py", 103, code, "torch.multiprocessing.spawn.ProcessRaisedException:")
    child = [
        "",
        "-- Process 5 terminated with the following error:",
        "Traceback (most recent call last):",
        _LIBRARY,
        _FULL,
    ]
    assert parse("\n".join((*parent, *child))).memory_request_frame is None
    assert parse("\n".join(_traceback("main.py", 103, code, _FULL))).memory_request_frame is None
    own = parse(
        "\n".join((*parent, *child[:2], *_traceback("work.py", 61, "loss.backward()", _FULL)))
    ).memory_request_frame
    assert own is not None
    assert (own.file, own.line) == ("work.py", 61)


def test_tracebacks_of_ranks_that_mix_are_told_apart() -> None:
    one = _traceback("a.py", 1, "model(x)", _FULL, rank="[rank1]: ")
    two = _traceback("b.py", 2, "next(data)", "KeyError: 'x'", rank="[rank2]: ")
    mixed = [line for pair in zip(one[:4], two[:4], strict=True) for line in pair]
    found = parse("\n".join((*mixed, one[4], two[4])))
    assert found.memory_request_frame is not None
    assert found.memory_request_frame.file == "a.py"
    assert found.error_frames["KeyError: 'x'"].file == "b.py"


def test_what_a_process_cannot_have_held_is_not_told() -> None:
    """In a container, under MIG and in WSL the driver may tell PyTorch 0 or nonsense of its own process."""
    message = (
        f"{_FULL} GPU 0 has a total capacity of 23.64 GiB of which 0 bytes is free. Including non-PyTorch memory, this"
        " process has {} memory in use. Of the allocated memory 21.72 GiB is allocated by PyTorch, and 100.00 MiB is"
        " reserved by PyTorch but unallocated."
    )
    for told in ("0 bytes", "17179869184.00 GiB"):
        oom = parse(message.format(told)).ooms[0]
        assert oom.process_bytes == (oom.in_use_bytes or 0) + (oom.unallocated_bytes or 0)
    assert parse(message.format("22.50 GiB")).ooms[0].process_bytes == int(22.5 * (1 << 30))


@pytest.mark.parametrize(
    "line",
    [
        r"""ERROR task failed: 'Traceback (most recent call last):\n  File "/app/w.py", line 3, in <module>"""
        r"""\n    import foo\nModuleNotFoundError: No module named \'foo\'\n' (job 4)""",
        r"""level=error err="Traceback (most recent call last):\n  File \"/app/w.py\", line 3, in <module>"""
        r"""\n    import foo\nModuleNotFoundError: No module named 'foo'" job=4""",
        """Traceback (most recent call last): File "/app/w.py", line 3, in <module> import foo"""
        """ ModuleNotFoundError: No module named 'foo'""",
    ],
)
def test_a_traceback_that_a_logger_wrote_as_one_line(line: str) -> None:
    facts = parse(f"starting\n{line}\n")
    assert [(error.type, error.message) for error in facts.errors] == [("ModuleNotFoundError", "No module named 'foo'")]
    assert facts.frame is not None
    assert (facts.frame.file, facts.frame.line, facts.line_count) == ("/app/w.py", 3, 2)
    cut = parse(line.partition("ModuleNotFoundError")[0])
    assert not cut.errors
