from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.formatting.command_lines import program_in_command, without_folder, without_launcher
from gpuwatch.core.formatting.durations import clock_duration, measured_seconds
from gpuwatch.core.formatting.units import byte_rate, gib_number, memory, short_gib, short_size, shown_memory, size
from gpuwatch.core.safe_text import printable, shorten


def test_escape_sequences_become_visible() -> None:
    assert printable("a\x1b[31mred\x1b[0m") == "a\\x1b[31mred\\x1b[0m"
    assert printable("left\u202eright") == "left\\u202eright"
    assert printable("two\nlines\tand a tab") == "two lines and a tab"
    assert printable("python train.py --name=größe") == "python train.py --name=größe"


@given(st.text())
def test_nothing_that_moves_the_cursor_survives(text: str) -> None:
    shown = printable(text)
    for char in shown:
        assert unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(char) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@given(st.text(), st.integers(0, 50))
def test_shorten_keeps_the_width(text: str, width: int) -> None:
    assert len(shorten(text, width)) <= width


@given(st.integers(0, 2**60))
def test_sizes_stay_short_enough_for_their_columns(count: int) -> None:
    assert len(short_size(count)) <= 6
    assert len(short_gib(count)) <= 6
    assert len(size(count)) <= 9


@given(st.integers(2**30, 2**39))
def test_the_same_amount_reads_the_same_everywhere(count: int) -> None:
    """In a sentence, in a column of GiB and in a narrow column: the same digits."""
    assert size(count) == f"{gib_number(count)} GiB"
    assert short_size(count) == f"{gib_number(count)}G"


@given(st.integers(0, 2**39))
def test_memory_is_none_only_where_there_is_none(count: int) -> None:
    """A client of a few MiB is not told as 0.0 GiB, in a wide column, in a narrow one and in one of GiB."""
    told = memory(count), memory(count, short=True), gib_number(count)
    assert [float(text.lstrip("<").rstrip(" GiBMKT")) == 0 for text in told] == [count == 0] * 3
    assert len(told[0]) <= 9
    assert len(told[1]) <= 7


@given(st.integers(10**8, 9 * 10**11))
def test_a_rate_has_the_unit_of_the_line_of_the_link(count: int) -> None:
    """``↓1.2 GB/s`` of a card and the reading on the GPU tab are the same number."""
    told = byte_rate(count)
    scale = {"MB/s": 1e6, "GB/s": 1e9}[told.split()[1]]
    assert abs(float(told.split()[0]) - count / scale) <= 0.5
    assert len(told) <= 10


def test_rates() -> None:
    assert (byte_rate(1.2e9), byte_rate(278e6), byte_rate(999.97e6), byte_rate(0), byte_rate(None)) == (
        "1.2 GB/s",
        "278 MB/s",
        "1.0 GB/s",
        "0 B/s",
        "–",
    )


def test_memory_of_small_clients() -> None:
    assert (memory(2 * 2**20), memory(2**19, 2**20), gib_number(2 * 2**20)) == ("2 MiB", "<1 MiB", "<0.1")
    assert memory(2 * 2**20, short=True) == "2M"
    assert (memory(0), memory(0, short=True)) == ("0 B", "0B")
    assert (memory(614 * 2**20), memory(31.9 * 2**30, short=True), memory(None)) == ("614 MiB", "31.9G", "–")
    assert (memory(999 * 2**20, short=True), memory(2**30), memory(1000 * 2**20)) == ("999M", "1.0 GiB", "1.0 GiB")


@given(st.lists(st.integers(0, 2**39), min_size=1, max_size=6))
def test_a_column_of_memory_has_one_unit_and_falls_as_it_is_sorted(counts: list[int]) -> None:
    counts.sort(reverse=True)
    for short in (False, True):
        told = [memory(count, counts[0], short=short) for count in counts]
        if counts[0] >= 2**20:
            assert len({text.lstrip("<0123456789.") for text in told}) == 1
            shown = [float(re.sub("[ GiBM]", "", text.replace("<0.1", "0.05").replace("<1", "0.5"))) for text in told]
            assert shown == sorted(shown, reverse=True)


@given(st.integers(2**20, 2**38), st.integers(2**20, 2**38))
def test_what_is_compared_is_what_is_shown(one: int, other: int) -> None:
    assert (memory(one) == memory(other)) == (shown_memory(one) == shown_memory(other))
    assert shown_memory(shown_memory(one)) == shown_memory(one)


def test_sizes_and_times() -> None:
    assert size(33 * 2**30) == "33.0 GiB"
    assert size(512 * 2**20) == "512 MiB"
    assert size(None) == "–"
    assert size(0) == "0 B"
    assert size(139.8 * 2**30) == "139.8 GiB"
    assert size(2**40 - 1) == "1.0 TiB", "what rounds to a thousand is told in the next unit"
    assert short_size(2**30 - 1) == "1.0G"
    assert clock_duration(8047) == "2:14:07"
    assert clock_duration(3 * 86400 + 4 * 3600 + 5 * 60) == "3d 04:05"
    assert measured_seconds(0.0183) == "18.3 ms"


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python train.py --bs 64", "train.py"),
        ("/usr/bin/python3.11 -u -X dev /srv/jobs/train.py", "train.py"),
        ("python -m torch.distributed.run --nproc-per-node 8 pretrain.py", "pretrain.py"),
        ("python -c import tensorflow", "python"),
        ("python", "python"),
        ("/opt/bin/tritonserver --model-repository=/models", "tritonserver"),
        ("bash -l run.sh", "run.sh"),
        ("", ""),
    ],
)
def test_a_program_is_named_by_its_script(command: str, program: str) -> None:
    assert program_in_command(command) == program


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/opt/venv/bin/python3 -u -W ignore /srv/train.py --bs 64", "train.py --bs 64"),
        ("python -O train.py", "train.py"),
        ("python -m pkg.mod --lr 1e-3", "pkg.mod --lr 1e-3"),
        ("python -u -m ipykernel_launcher -f k.json", "ipykernel_launcher -f k.json"),
        ("python -c import x; x.run()", "python -c import x; x.run()"),
        ("/usr/bin/torchrun --nproc_per_node 8 --standalone train.py a", "train.py a"),
        ("torchrun --nproc_per_node=8 -m pkg.train a", "pkg.train a"),
        ("/venv/bin/python /venv/bin/torchrun --nnodes 2 train.py", "train.py"),
        ("accelerate launch --config_file a.yaml --multi_gpu train.py", "train.py"),
        ("accelerate config", "accelerate config"),
        ("srun -n 4 --gres gpu:2 python -u train.py x", "train.py x"),
        ("srun -n 4 ./simulate fast", "simulate fast"),
        ("srun --exclusive", "srun --exclusive"),
        ("uv run --with torch python train.py", "train.py"),
        ("uv pip install torch", "uv pip install torch"),
        ("conda run -n tf --no-capture-output python train.py", "train.py"),
        ("env A=1 nice -n 10 python train.py", "train.py"),
        ("ray::Trainer.step", "ray::Trainer.step"),
        ("bash", "bash"),
        ("", ""),
    ],
)
def test_a_command_is_shown_from_its_script_on(command: str, shown: str) -> None:
    assert without_launcher(command) == shown


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/usr/bin/python3 train.py", "python3 train.py"),
        (".venv/bin/python -u a/b.py", "python -u a/b.py"),
        ("./run.sh x", "run.sh x"),
        ("python a/b.py", "python a/b.py"),
        ("[kworker/0:1]", "[kworker/0:1]"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_a_command_is_shown_without_the_folder_of_its_program(command: str, shown: str) -> None:
    assert without_folder(command) == shown


def test_the_process_of_a_probe_is_named_as_that() -> None:
    assert (
        program_in_command("/opt/venv/bin/python -u /src/probes/_gpuwatch_fork_server.py tensorflow 5")
        == "gpuwatch probe"
    )
