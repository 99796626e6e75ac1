"""Every reader keeps to its row of the table of limits: what is larger or deeper ends in one line, or is cut."""

from __future__ import annotations

import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.cli.explain import explanation_of
from gpuwatch.cli.input_files import read_document
from gpuwatch.cli.read_log import read_lines
from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import EXIT_FAILED, EXIT_USAGE, GpuwatchError
from gpuwatch.core.input_size_limits import ALL_LIMITS, Limit
from gpuwatch.core.model.json_codec import EMBED_BEGIN, EMBED_END
from gpuwatch.experiment.probing.memory_recording import MemoryRecordings
from gpuwatch.explain.traces.nvidia_smi_q import SmiQueryReader
from gpuwatch.fleet import ssh_source
from gpuwatch.fleet.host_list import parse_hosts
from gpuwatch.fleet.prometheus_api import ANSWER_SECONDS, Prometheus
from gpuwatch.machine.history import sample_frames
from gpuwatch.machine.recording import database_cells, gpu_time_and_energy
from gpuwatch.machine.sources import nvidia_smi_and_kernel_log
from gpuwatch.share.assistant import allowed_files, run_commands
from gpuwatch.share.assistant.tool_arguments import ExplainArguments, parse_arguments
from gpuwatch.share.exporter.web_config import WebConfig
from gpuwatch.ui.settings.settings_file import load_settings
from gpuwatch.ui.tables import filter_language, process_filter
from tests.fleet.prometheus_server import served
from tests.traces.hostile import PROFILE, SNAPSHOT
from tests.traces.test_dcgm import FOUR
from tests.traces.test_pprof import SAMPLES, profile

DOCS = Path(input_size_limits.__file__).parents[1] / "docs/commands.md"
SMALL = 1 << 10
"""Bytes to which a limit is lowered, where the reader looks at each call."""
TIMELINE = json.dumps([[-1, 1, 4096, 0], *([time, 3, 1024, 5] for time in range(200))]).encode()
ELSEWHERE = {
    "HOST_LINE": "fleet/test_hosts.py",
    "NODE_CHATTER": "cluster/test_fan_out.py",
    "TOOL_OUTPUT": "sources/test_surroundings.py",
    "MCP_MESSAGE": "assistant/test_server.py",
}
"""Readers of what another process sends, each with the test that starts one."""


def refused(code: int, read: Callable[[], object]) -> str:
    """What is said of an input."""
    with pytest.raises(GpuwatchError) as caught:
        read()
    assert caught.value.exit_code == code
    return caught.value.message


def said(error: type[Exception], read: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        read()
    return str(caught.value)


def of_file(read: Callable[[Path], object], content: bytes) -> Callable[[Path], str]:
    """A case of a reader of files."""

    def case(path: Path) -> str:
        path.write_bytes(content)
        return refused(EXIT_USAGE, lambda: read(path))

    return case


def prometheus(answer: bytes, **files: Path) -> str:
    with served() as server:
        server.answer = lambda query: answer
        return refused(EXIT_FAILED, lambda: Prometheus(server.url, **files).query("up"))  # type: ignore[arg-type]


def long_line(path: Path) -> str:
    path.write_text("x" * 3 * SMALL + "\nlast")
    with path.open("rb") as file:
        line, last = read_lines(file.fileno(), path)
    assert (line, last) == ("x" * SMALL, "last")
    states = [f"{number}%" for number in range(SMALL)]
    path.write_text("\r".join(states) + "\nlast")
    with path.open("rb") as file:
        line, last = read_lines(file.fileno(), path)
    assert len(line) <= SMALL
    assert line.split("\r") == states[-line.count("\r") - 1 :]
    return ""


def run_memory(path: Path) -> str:
    path.write_bytes(SNAPSHOT)
    records = MemoryRecordings()
    records.take_event("memory_file", {"file": str(path), "tool": "torch", "number": 1})
    assert not list(records.profiles(1))
    return "; ".join(records.problems())


def recording(path: Path) -> str:
    plain = zlib.compress(bytes(2 * SMALL))
    errors = (
        said(
            sample_frames.DamagedData,
            lambda: list(sample_frames.split_frames(sample_frames.packed_frame(bytes(2 * SMALL)))),
        ),
        said(
            database_cells.DamagedData,
            lambda: database_cells.decompress(database_cells.with_checksum(plain)),
        ),
        said(ValueError, lambda: gpu_time_and_energy.unpack_gpu_time(plain)),
    )
    assert all("truncated" in error for error in errors), errors
    return ""


def smi_value(path: Path) -> str:
    reader = SmiQueryReader()
    for line in f"<nvidia_smi_log>\n<gpu id='1'>\n<product_name>{'x' * 9999}</product_name>\n".splitlines():
        reader.take(line.replace("'", '"'))
    snapshot = reader.snapshot()
    assert snapshot is not None
    assert len(snapshot.devices[0].name) <= input_size_limits.NVIDIA_SMI.bytes
    return ""


CASES: dict[str, Callable[[Path], str]] = {
    "LOG_LINE": long_line,
    "LOG": of_file(explanation_of, gzip.compress(b"step 1\n" * SMALL)),
    "UNPACKING": of_file(explanation_of, lzma.compress(b"step 1\n" * SMALL)),
    "NVIDIA_SMI": smi_value,
    "ALLOCATOR_SNAPSHOT": of_file(explanation_of, SNAPSHOT),
    "MEMORY_TIMELINE": of_file(explanation_of, gzip.compress(TIMELINE)),
    "TENSORFLOW_PROFILE": of_file(explanation_of, PROFILE * 9),
    "JAX_PROFILE": of_file(explanation_of, gzip.compress(profile(*SAMPLES) + b"\x9a\x06\x80\x10" + bytes(2 * SMALL))),
    "DCGM": of_file(explanation_of, json.dumps(FOUR).encode() + b" " * SMALL),
    "RUN_MEMORY": run_memory,
    "DOCUMENT": of_file(read_document, b'{"schema": "gpuwatch.run/1"}' + b" " * SMALL),
    "RECORDING": recording,
    "SETTINGS": lambda path: (path.symlink_to("/dev/zero"), "; ".join(load_settings(path).problems))[1],
    "WEB_CONFIGURATION": of_file(WebConfig, b"# \n" * SMALL),
    "TOKEN": lambda path: (path.write_text("x" * 2 * SMALL), prometheus(b"", token_file=path))[1],
    "PROMETHEUS": lambda path: prometheus(b" " * 2 * SMALL),
    "HOSTS": lambda path: refused(EXIT_USAGE, lambda: parse_hosts("a," * SMALL + "a")),
    "FILTER": lambda path: said(
        filter_language.FilterError, lambda: process_filter.parse_process_filter("ab " * SMALL)
    ),
    "MCP_LOG": of_file(lambda path: allowed_files.open_log(str(path), ()), b"step 1\n" * SMALL),
    "MCP_TEXT": lambda path: refused(
        EXIT_USAGE, lambda: parse_arguments({"text": "x" * (input_size_limits.MCP_TEXT.bytes + 1)}, ExplainArguments)
    ),
    "MCP_DOCUMENT": lambda path: refused(
        EXIT_FAILED, lambda: run_commands._decode_document(bytes(2 * SMALL), b"", "snapshot", 0)
    ),
}
NESTED = b"[" * 200_000
DEEP: dict[str, Callable[[Path], str]] = {
    "ALLOCATOR_SNAPSHOT": of_file(explanation_of, b"\x80\x04" + SNAPSHOT[2:400] + b"(" * 20_000),
    "MEMORY_TIMELINE": of_file(explanation_of, b"[[-1, 1, 4096, 0]," + NESTED),
    "DCGM": of_file(explanation_of, b'{"DCGM Diagnostic": ' + NESTED + b"}"),
    "DOCUMENT": of_file(read_document, b'{"schema": "gpuwatch.run/1", "settings": ' + NESTED),
    "a page": of_file(read_document, f"<!doctype html>{EMBED_BEGIN}{'[' * 200_000}{EMBED_END}".encode()),
    "SETTINGS": lambda path: (path.write_text("a." * 99 + "a = 1"), "; ".join(load_settings(path).problems))[1],
    "in a value": lambda path: (path.write_text("a = " + "[" * 9999), "; ".join(load_settings(path).problems))[1],
    "WEB_CONFIGURATION": of_file(WebConfig, NESTED[:60_000]),
    "PROMETHEUS": lambda path: prometheus(b'{"status":"success","data":' + NESTED),
    "HOSTS": lambda path: refused(EXIT_USAGE, lambda: parse_hosts("n" + "[1," * 99)),
}


@pytest.mark.parametrize("name", [name for name, found in vars(input_size_limits).items() if isinstance(found, Limit)])
def test_what_is_larger_ends_in_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in ELSEWHERE:
        assert f"input_size_limits.{name}" in (Path(__file__).parents[1] / ELSEWHERE[name]).read_text()
        return
    limit: Limit = getattr(input_size_limits, name)
    if name not in ("MCP_TEXT", "NVIDIA_SMI"):  # read once, as they are imported
        lowered = limit._replace(bytes=SMALL)
        monkeypatch.setattr(input_size_limits, name, lowered)
        monkeypatch.setattr("gpuwatch.explain.diagnosis.explain_trace_file.LIMITS", Lowered(lowered))
    text = CASES[name](tmp_path / "train.log")
    assert "\n" not in text
    assert len(text) < 300


class Lowered(dict[str, Limit]):
    def __init__(self, limit: Limit) -> None:
        self.limit = limit

    def __missing__(self, kind: str) -> Limit:
        return self.limit


@pytest.mark.parametrize("name", DEEP)
def test_what_is_deeper_ends_in_one_line(name: str, tmp_path: Path) -> None:
    text = DEEP[name](tmp_path / "train.log")
    assert text
    assert "\n" not in text
    assert len(text) < 300


def test_every_limit_is_in_the_docs() -> None:
    rows = re.findall(r"^\| (.+?) \| ([\d.]+ \w+) \|(?: ([\d,]+))? \|$", DOCS.read_text(), re.MULTILINE)
    told = [(one.what, one.size_text, f"{one.depth:,}" if one.depth else "") for one in ALL_LIMITS]
    assert rows == told
    for seconds in (ANSWER_SECONDS, nvidia_smi_and_kernel_log._ANSWER_SECONDS, ssh_source._FIRST_LINE_SECONDS):
        assert f" {seconds:g} s" in DOCS.read_text()
