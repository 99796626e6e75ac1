"""What each end of a program means and what helps, by topic of its log line or by signal."""

from __future__ import annotations

import signal

from gpuwatch.explain.diagnosis.rules.meanings import Meaning, by_key
from gpuwatch.explain.logs import reported_ends

PEER = "ended.peer"
WAITED = "ended.nccl-timeout"
NCCL_INTERNAL = "ended.nccl-internal"
"""NCCL's "internal error", as it also calls a connection that another rank closed."""
HOST_MEMORY = reported_ends.HOST_MEMORY
WORKER = "ended.worker"
TENSORRT = "ended.tensorrt"
ENDINGS: dict[str, Meaning] = by_key("ends")
"""By topic, for failures with a log line of their own: of several in a log the first tells most."""
SIGNALS: dict[signal.Signals, Meaning] = {signal.Signals[name]: row for name, row in by_key("signals").items()}
"""Signals that end programs."""
