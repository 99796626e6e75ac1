"""Pickles that want more than plain data. Mutations of real ones: tests/safety/mutated_inputs.py."""

from __future__ import annotations

import pickle
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from gpuwatch.explain.traces import InvalidTrace
from gpuwatch.explain.traces.memory_profiles import torch_profiles
from gpuwatch.explain.traces.safe_pickle import load
from tests.traces.profiles import encoded

SNAPSHOT = (Path(__file__).parent / "fixtures/torch-2.15.pickle").read_bytes()
PROFILE = encoded([(1000, 256, "A", "[64]"), (2000, 512, "B", "[128]"), (1000, 256), (3000, 128, "C", "[0]")])
MOST_SECONDS = 5.0
"""Of processor time for one input; the slowest names one list two million times."""
EVENTS = frozenset({"exec", "compile", "import", "marshal.loads", "os.system", "subprocess.Popen", "pickle.find_class"})
"""What nothing here may cause, by Python's audit events."""


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("__import__('os').system('touch /tmp/it-ran')",)


class _Builds:
    def __setstate__(self, state: Any) -> None:
        raise AssertionError("it was built")


def _nested(depth: int, protocol: int) -> bytes:
    return pickle.PROTO + bytes([protocol]) + b"(" * depth + b"t" * depth + b"."


def _shared(times: int) -> bytes:
    """A list that has the one before it ten times, and so on: few bytes, 10**times entries for who walks it."""
    one = b"\x80\x04]\x94"
    for number in range(times):
        one += b"]\x94(" + b"h" + bytes([number]) * 1 + (b"h" + bytes([number])) * 9 + b"e"
    return one + b"."


def handmade() -> dict[str, bytes]:
    """Inputs that are known to hurt careless readers."""
    return {
        "reduce": pickle.dumps(_Runs()),
        "build": pickle.dumps(_Builds()),
        "global": b"cos\nsystem\n(S'touch /tmp/it-ran'\ntR.",
        "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x14touch /tmp/it-ran000\x85R.",
        "inst": b"(\x8c\x14touch /tmp/it-ran000ios\nsystem\n.",
        "extension": b"\x80\x04\x82\x01.",
        "persistent": b"Pit\n.",
        "set": pickle.dumps({1, 2}, 4),
        "frozenset": pickle.dumps(frozenset([1]), 4),
        "bytearray": pickle.dumps(bytearray(b"1"), 5),
        "buffer": b"\x80\x05\x97.",
        "huge text": b"\x80\x04X\xff\xff\xff\xff.",
        "huge bytes": b"\x80\x04B\xff\xff\xff\xff.",
        "huge frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.",
        "huge memo": b"\x80\x04Nr\xff\xff\xff\xff0j\xff\xff\xff\xff.",
        "huge number": b"\x80\x04\x8a\xff" + b"\x7f" * 255 + b".",
        "whole keys": pickle.dumps({1: 2}, 4),
        "colliding keys": pickle.dumps({(1 << 61) - 1: 1, 0: 2}, 4),
        "itself": b"\x80\x04]\x94h\x00a.",
        "itself in a snapshot": _of({"segments": b"]\x94h\x00a", "device_traces": b"]"}),
        "shared": _shared(12),
        "shared in a snapshot": _of({"segments": _shared(12)[2:-1], "device_traces": b"]"}),
        "deep": _nested(9_000, 4),
        "too deep": _nested(20_000, 4),
        "deep tuples": b"\x80\x04)" + b"\x85" * 100_000 + b".",
        "no stop": b"\x80\x04N",
        "empty": b"",
        "nothing on the stack": b"\x80\x04.",
        "marks alone": b"\x80\x04" + b"(" * 100_000,
        "memo alone": b"\x80\x04N" + b"\x94" * 100_000 + b".",
        "unknown protocol": b"\x80\xff.",
        "wrong kinds": _of({"segments": b"K\x01", "device_traces": b"N"}),
        "wrong entries": _of({"segments": b"](K\x01N\x88}e", "device_traces": b"](K\x01](K\x01}ee"}),
    }


def _of(parts: dict[str, bytes]) -> bytes:
    body = b"".join(b"\x8c" + bytes([len(name)]) + name.encode() + value for name, value in parts.items())
    return b"\x80\x04}(" + body + b"u."


def problem(data: bytes) -> str:
    """What is wrong with the answer of the readers; empty if nothing is."""
    began = time.process_time()
    try:
        load(data)
        torch_profiles(data)
    except InvalidTrace as error:
        if len(str(error)) > 200 or "\n" in str(error):
            return f"a message that is not a line: {error}"
    except Exception:  # noqa: BLE001 - whatever it is, it is reported
        return traceback.format_exc()
    took = time.process_time() - began
    return f"it took {took:.1f} s" if took > MOST_SECONDS else ""


class Watched:
    """Python's audit events while the readers run; hooks cannot be removed, so one is kept for all."""

    heard: list[str]
    on = False

    def __init__(self) -> None:
        self.heard = []
        b"a".decode("raw-unicode-escape", "replace")  # a codec is imported at its first use
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: Any) -> None:
        if self.on and event in EVENTS:
            self.heard.append(event)
