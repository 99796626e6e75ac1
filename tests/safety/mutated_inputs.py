"""Mutations of what each reader reads: any answer but its own kind of refusal, or one that takes long, is a fault.

By hand, for a million inputs of each reader in one polite process:

    nice -n 10 python -m tests.safety.mutated_inputs --count 1000000

``--reader NAME`` tries one reader, ``--seed`` repeats a run, ``--only N`` one of its inputs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import random
import sqlite3
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpuwatch.cli.read_log import decompressed
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.json_codec import NotADocument, embedded_in_html, from_json, to_json
from gpuwatch.core.model.probes import decode_event
from gpuwatch.explain.traces import InvalidTrace, dcgm_diagnostic, jax_pprof, torch_memory_timeline
from gpuwatch.explain.traces.memory_profiles import tensorflow_profiles, torch_profiles
from gpuwatch.explain.traces.nvidia_smi_q import SmiQueryReader
from gpuwatch.fleet.cluster.node_protocol import NodeDecoder, encode_frame
from gpuwatch.fleet.host_list import parse_hosts
from gpuwatch.fleet.prometheus_api import _response_decoder
from gpuwatch.machine.history.sample_frames import DamagedData, FrameDecoder
from gpuwatch.machine.recording import gpu_time_and_energy, minute_and_hour_means
from gpuwatch.machine.recording.database_cells import decompress as block
from gpuwatch.machine.recording.database_cells import without_checksum
from gpuwatch.share.exporter.web_config import WebConfig
from gpuwatch.ui.settings.settings_file import parse_settings
from gpuwatch.ui.tables import host_filter, process_filter
from gpuwatch.ui.tables.filter_language import FilterError
from tests.reports.documents import full_run
from tests.traces.hostile import PROFILE, SNAPSHOT
from tests.traces.test_dcgm import FOUR, THREE
from tests.traces.test_pprof import SAMPLES, profile
from tests.traces.test_smi_q import TEXT, XML
from tests.ui import machines

MOST_SECONDS = 5.0
"""Of processor time for one input."""
RECORDING = Path(__file__).parents[1] / "fixtures/recording-3.gpuwatch"
TOKENS = (
    *(b"", b"\0", b"\xff", b"-1", b"9" * 400, b"1e999", b"18446744073709551616", b"NaN", b"null", b"true", b"\\ud800"),
    *(b"[" * 50, b"{" * 50, b'"', b"\n", b"\x1b[31m", b"..", b"=", b",", b":", b"%", "²".encode(), "٣".encode()),
)


class Reader(NamedTuple):
    """How one reader is tried."""

    starts: Callable[[], list[bytes]]
    read: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...] = ()


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "replace"))


def _smi(text: str) -> None:
    reader = SmiQueryReader()
    for line in text.split("\n"):
        reader.take(line)
    reader.snapshot()


@cache
def _blocks() -> tuple[bytes, ...]:
    with sqlite3.connect(f"file:{RECORDING}?mode=ro", uri=True) as recording:
        tables = [name for (name,) in recording.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        rows = [row for table in tables for row in recording.execute(f"SELECT * FROM {table} LIMIT 3")]
    return tuple(value for row in rows for value in row if isinstance(value, bytes))


def _frames() -> list[bytes]:
    found = []
    for one in _blocks():
        try:
            found.append(block(one))
        except DamagedData:
            continue
    return found[:3]


def _gpu_time() -> gpu_time_and_energy.GpuTime:
    """Of a GPU with three processes over two minutes."""
    meter = gpu_time_and_energy.GpuTimeMeter(1.0)
    for tick in range(120):
        meter.add(machines.many(1, 3, tick=tick))
    return gpu_time_and_energy.merged_times(meter.pop_hours().values())


def _web(text: str) -> None:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        WebConfig(Path(file.name))


def _settings(text: str) -> None:
    parse_settings(text)


def _page() -> bytes:
    return f"<!doctype html><p>report</p>{embedded_in_html(full_run())}".encode()


def _drained(chunks: Iterator[bytes]) -> None:
    for _ in chunks:
        pass


_TIMELINE = json.dumps([[-1, 1, 4096, 0], [1000, 2, 1024, 4], [2000, 3, -1024, 4], [2000, 3, 1024, 5]]).encode()
_ANSWER = (
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up","a":"b"},'
    b'"value":[1700000000.5,"1"]}]}}'
)
_MATRIX = (
    b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},'
    b'"values":[[1700000000.5,"1"],[1700000001,"2"]]}]}}'
)
_WEB = b"""http_server_config: {headers: {X-Frame-Options: deny}}
rate_limit: {interval: 1s, burst: 20}
basic_auth_users: {}
"""
_SETTINGS = b"""interval = 2
theme = "light"
columns = ["pid", "user", "memory"]
[fleet]
sort = "host"
[columns]
hidden = ["a.b", 'c']
"""
READERS = {
    "allocator snapshot": Reader(lambda: [SNAPSHOT[:1500]], torch_profiles, (InvalidTrace,)),
    "TensorFlow profile": Reader(
        lambda: [PROFILE], lambda data: tensorflow_profiles([(data, 0.0, None)]), (InvalidTrace,)
    ),
    "JAX profile": Reader(lambda: [profile(*SAMPLES)], jax_pprof.profiles, (InvalidTrace,)),
    "memory timeline": Reader(lambda: [_TIMELINE], torch_memory_timeline.profile, (InvalidTrace,)),
    "dcgmi diag": Reader(
        lambda: [json.dumps(one).encode() for one in (FOUR, THREE)], dcgm_diagnostic.read, (InvalidTrace,)
    ),
    "nvidia-smi -q": Reader(
        lambda: [TEXT.format(thermal="Active", failed="No").encode()[:3000], XML.encode()], _text(_smi)
    ),
    "document": Reader(
        lambda: [to_json(full_run(), indent=0).encode(), b'{"schema":"gpuwatch.run/1"}'], from_json, (NotADocument,)
    ),
    "compressed": Reader(
        lambda: [gzip.compress(b"step 1\n" * 90), lzma.compress(b"step 1\n" * 90)],
        lambda data: _drained(decompressed(iter([data[:20], data[20:]]), "train.log")),
        (GpuwatchError,),
    ),
    "recording: stored": Reader(
        lambda: list(_blocks()[:6]), lambda data: block(without_checksum(data)), (DamagedData,)
    ),
    "recording: frames": Reader(_frames, lambda data: list(FrameDecoder().read(data)), (DamagedData,)),
    "recording: GPU time": Reader(
        lambda: [zlib.decompress(gpu_time_and_energy.pack_gpu_time(_gpu_time()))],
        lambda data: gpu_time_and_energy.unpack_gpu_time(zlib.compress(data)),
        (DamagedData,),
    ),
    "recording: means": Reader(
        lambda: [
            zlib.decompress(
                minute_and_hour_means.pack_points(minute_and_hour_means.summarize([machines.many(2, 3)], 60))
            )
        ],
        lambda data: minute_and_hour_means.unpack_points(zlib.compress(data)),
        (DamagedData,),
    ),
    "Prometheus": Reader(
        lambda: [_ANSWER, _MATRIX], _response_decoder.decode, (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
    ),
    "node lines": Reader(
        lambda: [encode_frame("hello", b"{}") + encode_frame("data", b"x" * 60) + b"other\n"],
        lambda data: NodeDecoder().feed(data),
    ),
    "events": Reader(lambda: [b'{"t":0.5,"kind":"result","data":{"a":[1,2.5,null]}}'], decode_event),
    "hosts": Reader(
        lambda: [b"a,me@b,n[1-3,7],rack[1-2]-n[01-16].example.org:22"], _text(parse_hosts), (GpuwatchError,)
    ),
    "filter": Reader(
        lambda: [b'python alice user:alice mem>2GiB time>1h30m cmd:"a b" -xorg gpu:1 cpu>=5% state:idle'],
        _text(process_filter.parse_process_filter),
        (FilterError,),
    ),
    "fleet filter": Reader(
        lambda: [b'node free>=1 -down mem>2GiB model:"H100 80" temp>80'],
        _text(host_filter.parse_host_filter),
        (FilterError,),
    ),
    "settings": Reader(lambda: [_SETTINGS], _text(_settings)),
    "web configuration": Reader(lambda: [_WEB], _text(_web), (GpuwatchError,)),
    "HTML report": Reader(lambda: [_page()], from_json, (NotADocument,)),
}


def mutated(start: bytes, rng: random.Random) -> bytes:
    """A mutation of an input, by bytes and by tokens of its formats."""
    data = bytearray(start)
    for _ in range(rng.choice((1, 1, 2, 3, 8, 30))):
        if not data:
            break
        at = rng.randrange(len(data))
        match rng.randrange(8):
            case 0 | 1:
                data[at] = rng.randrange(256)
            case 2:
                del data[at : at + rng.choice((1, 3, 9, len(data)))]
            case 3:
                data[at:at] = data[at : at + rng.randrange(1, 200)] * rng.choice((1, 2, 50))
            case 4 | 5:
                data[at : at + rng.choice((0, 1, 4))] = rng.choice(TOKENS)
            case 6:
                begin = rng.randrange(len(start))
                data[at:at] = start[begin : begin + rng.randrange(1, 60)]
            case 7:
                data[at : at + 4] = rng.randbytes(4)
    return bytes(data)


def fault(name: str, data: bytes) -> str:
    """What is wrong with the reader's answer; empty if nothing is."""
    reader = READERS[name]
    began = time.process_time()
    try:
        reader.read(data)
    except reader.refuses as error:
        message = getattr(error, "message", None) or str(error)
        if name != "Prometheus" and (len(message) > 400 or "\n" in message):  # which has words of its own
            return f"a message that is not a line: {message[:400]!r}"
    except Exception:  # noqa: BLE001 - whatever it is, it is reported
        return traceback.format_exc()
    took = time.process_time() - began
    return f"it took {took:.1f} s" if took > MOST_SECONDS else ""


def faults(name: str, count: int, seed: int, only: int | None = None) -> Iterator[tuple[int, str]]:
    """The faults of a reader, by number of the input."""
    starts = READERS[name].starts()
    for number in range(count) if only is None else (only,):
        rng = random.Random(f"{name} {seed} {number}")
        wrong = fault(name, mutated(rng.choice(starts), rng))
        if wrong:
            yield number, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--reader", choices=READERS)
    options = parser.parse_args()
    for name in READERS if options.reader is None else (options.reader,):
        began, bad = time.process_time(), 0
        for number, wrong in faults(name, options.count, options.seed, options.only):
            bad += 1
            if bad <= 3:
                print(json.dumps({"reader": name, "number": number, "seed": options.seed, "wrong": wrong[-800:]}))
        print(f"{name}: {options.count:,} inputs, {bad} bad, {time.process_time() - began:.0f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
