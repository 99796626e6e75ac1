"""Runs one command on every node at once, and gathers what comes home. Nothing a node sends can harm or stall that."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

import msgspec

from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.masking.mask_secrets import mask_text
from gpuwatch.core.model.run import signal_name
from gpuwatch.core.safe_text import printable, shorten
from gpuwatch.fleet.cluster.launchers import Job, Launcher
from gpuwatch.fleet.cluster.node_agent import GREETING
from gpuwatch.fleet.cluster.node_protocol import NO_NODE, Decoder, Frame, why_no_answer
from gpuwatch.fleet.ssh_hosts import last_line

MAX_PARALLEL_JOBS = 64
"""Jobs that run at the same time; further nodes wait."""
MAX_NODES = 4096
_MAX_MESSAGE_BYTES = 32 << 10
"""Bytes kept of a node's messages: the last ones."""
_READ_BYTES = 1 << 16
_STDIN_CLOSED_SECONDS = 15.0
"""Seconds that a job has to end after its stdin has: the command there needs up to 11 (``node_agent``)."""
_SIGTERM_SECONDS = 3.0
_HURRIED_SIGTERM_SECONDS = 4.0
"""Seconds from SIGTERM to SIGKILL after a second Ctrl+C, and where gpuwatch never answered."""

_T = TypeVar("_T")
State = Literal["waiting", "starting", "running", "ok", "failed", "no-answer", "timed-out", "interrupted"]
"""``ok``: the command ended and all that it wrote came home, whatever its exit code."""
OPEN: frozenset[State] = frozenset({"waiting", "starting", "running"})


@dataclass
class NodeReply:
    """State, document and messages of one node."""

    node: str
    state: State = "waiting"
    reason: str = ""
    progress: str = ""
    """What it does now, as one harmless line."""
    host: str | None = None
    version: str | None = None
    exit_code: int | None = None
    took_seconds: float | None = None
    document: bytes = b""
    messages: str = ""
    """The end of what it wrote to stderr, and of other output."""
    since: float = field(default_factory=time.monotonic)
    """When it came into this state."""

    def becomes(self, state: State, reason: str = "") -> None:
        """Changes the state, unless it has ended."""
        if self.state in OPEN:
            self.state, self.reason, self.since = state, one_line(reason), time.monotonic()


def one_line(text: str, most: int = 300) -> str:
    """A text from a node as one short line without secrets and control characters."""
    return shorten(printable(" ".join(mask_text(text[: 4 * most]).split())), most)


def fan_out(
    launcher: Launcher,
    arguments: Sequence[str],
    *,
    seconds: float,
    start_seconds: float | None = None,
    on_change: Callable[[Sequence[NodeReply]], None] = lambda replies: None,
) -> tuple[list[NodeReply], bool]:
    """The replies of all nodes, in the launcher's order, and whether Ctrl+C ended it early.

    ``seconds``: how long a node has from gpuwatch's answer to the end of the command; ``start_seconds``: until that
    answer (default: the launcher's). ``on_change`` is called a few times a second. All that was started has ended
    when this returns or raises.
    """
    plan = launcher.plan(arguments)
    work = _FanOut(launcher, seconds, start_seconds or launcher.start_seconds, on_change)
    for node, why in plan.down:
        work.reply(node).becomes("no-answer", why)
    for job in plan.jobs:
        if job.node is not None:
            work.reply(job.node)
    interrupted = work.run(list(plan.jobs))
    if not work.replies:
        raise GpuwatchError(work.failure or "the launcher named no nodes")
    return list(work.replies.values()), interrupted


class _Running:
    """A job and its process."""

    def __init__(self, job: Job, process: subprocess.Popen[bytes]) -> None:
        self.job = job
        self.process = process
        assert process.stdin is not None
        self.stdin = process.stdin
        self.decoder = Decoder()
        self.messages = b""
        self.began = time.monotonic()
        self.streams = 2
        self.closed_at: float | None = None
        """When its stdin was closed, which asks it to end."""
        self.signals = [
            (_STDIN_CLOSED_SECONDS, signal.SIGTERM),
            (_STDIN_CLOSED_SECONDS + _SIGTERM_SECONDS, signal.SIGKILL),
        ]

    def tell(self, line: bytes) -> None:
        with suppress(OSError, ValueError):
            self.stdin.write(line)
            self.stdin.flush()

    def close(self) -> None:
        if self.closed_at is None:
            self.closed_at = time.monotonic()
            with suppress(OSError):
                self.stdin.close()

    def hurry(self) -> None:
        """Ends it now: an agent passes that on (``node_agent``)."""
        self.closed_at = time.monotonic()
        self.signals = [(0.0, signal.SIGTERM), (_HURRIED_SIGTERM_SECONDS, signal.SIGKILL)]

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class _End(msgspec.Struct):
    """How the command ended on a node (``node_agent``)."""

    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    signal: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    bytes: int | None = None
    """Size of the document before it was compressed."""
    took_seconds: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] | None = None


class _FanOut:
    def __init__(
        self, launcher: Launcher, seconds: float, start_seconds: float, on_change: Callable[[Sequence[NodeReply]], None]
    ) -> None:
        self._launcher = launcher
        self._seconds, self._start_seconds = seconds, start_seconds
        self._on_change = on_change
        self._documents: dict[str, bytes] = {}
        """What came of each node's document, compressed."""
        self._stderr: dict[str, bytes] = {}
        self._running: list[_Running] = []
        self.replies: dict[str, NodeReply] = {}
        self.failure = ""
        """Why a job that serves all nodes failed before it named one."""

    def reply(self, node: str) -> NodeReply:
        return self.replies.setdefault(node, NodeReply(node))

    def run(self, jobs: list[Job]) -> bool:
        """Runs the jobs; True if Ctrl+C ended that."""
        with selectors.DefaultSelector() as selector:
            try:
                while jobs or self._running:
                    while jobs and len(self._running) < MAX_PARALLEL_JOBS:
                        self._start(jobs.pop(0), selector)
                    self._read(selector, 0.1)
                    self._check_time()
                    self._on_change(list(self.replies.values()))
            except BaseException as error:
                self._end_all(selector)
                if not isinstance(error, KeyboardInterrupt):
                    raise
                return True
        return False

    def _start(self, job: Job, selector: selectors.BaseSelector) -> None:
        try:
            process = subprocess.Popen(
                job.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl+C reaches gpuwatch alone, which ends them in order
            )
        except OSError as error:
            why = f"{job.command[0]} cannot be started: {error.strerror}"
            self.failure = why
            if job.node is not None:
                self.reply(job.node).becomes("no-answer", why)
            return
        running = _Running(job, process)
        self._running.append(running)
        running.tell(GREETING)
        assert process.stdout is not None
        assert process.stderr is not None
        selector.register(process.stdout, selectors.EVENT_READ, (running, True))
        selector.register(process.stderr, selectors.EVENT_READ, (running, False))
        if job.node is not None:
            self.reply(job.node).becomes("starting")

    def _read(self, selector: selectors.BaseSelector, seconds: float) -> None:
        for key, _ in selector.select(seconds):
            running, is_stdout = key.data
            try:
                data = os.read(key.fd, _READ_BYTES)
            except OSError:
                data = b""
            if not data:
                selector.unregister(key.fileobj)
                running.streams -= 1
            elif is_stdout:
                self._frames(running, data)
            else:
                running.messages = (running.messages + data)[-_MAX_MESSAGE_BYTES:]
                if running.job.node is not None and b"queued and waiting" in data:  # Slurm's, of a job that must wait
                    self.reply(running.job.node).progress = "queued"
        for running in [running for running in self._running if running.process.poll() is not None]:
            ended = time.monotonic()
            if running.streams and running.closed_at is None:
                running.closed_at = ended  # something that it started still holds its pipes
            if not running.streams or ended - (running.closed_at or ended) > _SIGTERM_SECONDS:
                for key in [key for key in selector.get_map().values() if key.data[0] is running]:
                    selector.unregister(key.fileobj)
                self._running.remove(running)
                self._ended(running)

    def _frames(self, running: _Running, data: bytes) -> None:
        for frame in running.decoder.feed(data):
            name = frame.node if running.job.node is None else running.job.node
            if name == NO_NODE or (name not in self.replies and len(self.replies) >= MAX_NODES):
                continue
            self._frame(self.reply(one_line(name, 80)), frame)
        if running.decoder.other_bytes > input_size_limits.NODE_CHATTER.bytes and running.closed_at is None:
            for reply in self._replies(running):
                reply.becomes("failed", f"prints more than {input_size_limits.NODE_CHATTER.most} of other output")
            running.close()
            running.hurry()

    def _frame(self, reply: NodeReply, frame: Frame) -> None:
        node = reply.node
        if reply.state not in OPEN:
            return
        if frame.kind == "hello":
            facts: dict[str, object] = _decoded(frame.payload, dict)
            reply.version, reply.host = _text(facts.get("version")), _text(facts.get("host"))
            if reply.state != "running":
                reply.progress = ""
                reply.becomes("running")
        elif frame.kind == "node":
            reason = frame.payload.decode(errors="replace")
            reply.becomes("no-answer" if reason else "starting", reason)
        elif frame.kind == "lost":
            reason = frame.payload.decode(errors="replace")
            reply.becomes("failed" if reply.state == "running" else "no-answer", reason)
        elif frame.kind == "progress":
            reply.progress = one_line(frame.payload.decode(errors="replace"), 120)
        elif frame.kind == "stderr":
            self._stderr[node] = (self._stderr.get(node, b"") + frame.payload)[-_MAX_MESSAGE_BYTES:]
        elif frame.kind == "data":
            before = self._documents.get(node, b"")
            if len(before) <= input_size_limits.DOCUMENT.bytes:
                self._documents[node] = before + frame.payload
        else:
            self._finished(reply, _decoded(frame.payload, _End))

    def _finished(self, reply: NodeReply, end: _End) -> None:
        """Handles the end of the command on a node."""
        reply.exit_code, reply.took_seconds = end.exit_code, end.took_seconds
        reply.messages = self._stderr.pop(reply.node, b"").decode(errors="replace")
        limit = input_size_limits.DOCUMENT.bytes
        try:
            document = zlib.decompressobj().decompress(self._documents.pop(reply.node, b""), limit + 1)
        except zlib.error:
            document = None
        if end.signal is not None:
            reply.becomes("failed", f"killed by {signal_name(end.signal)}")
        elif document is None or end.bytes != len(document):
            large = document is not None and len(document) > limit
            reply.becomes("failed", "its answer is too large" if large else "only part of its answer arrived")
        else:
            reply.document = document
            reply.becomes("ok")

    def _check_time(self) -> None:
        now = time.monotonic()
        for running in self._running:
            if running.closed_at is not None:
                while running.signals and now - running.closed_at > running.signals[0][0]:
                    running.signal(running.signals.pop(0)[1])
                continue
            for reply in self._replies(running):
                if reply.state == "starting" and now - reply.since > self._start_seconds:
                    state = "still queued" if reply.progress == "queued" else "no answer"
                    self._end_late(running, reply, f"{state} after {self._start_seconds:g} s")
                elif reply.state == "running" and now - reply.since > self._seconds:
                    self._end_late(running, reply, f"not finished after {self._seconds:g} s")
            if running.job.node is None and not self.replies and now - running.began > self._start_seconds:
                self.failure = f"no nodes after {self._start_seconds:g} s"
                running.close()

    def _end_late(self, running: _Running, reply: NodeReply, why: str) -> None:
        reply.becomes("timed-out", why)
        if running.job.node is None:
            running.tell(f"end {reply.node}\n".encode())
        else:
            running.close()
            if reply.version is None:
                running.hurry()

    def _replies(self, running: _Running) -> list[NodeReply]:
        node = running.job.node
        return list(self.replies.values()) if node is None else [self.replies[node]]

    def _ended(self, running: _Running) -> None:
        """Handles the end of a job's process: nodes that it has not reported have failed."""
        running.close()
        if running.streams:  # what it left behind
            running.signal(signal.SIGKILL)
        code = running.process.returncode
        messages = (running.decoder.other_output + running.messages).decode(errors="replace")
        for reply in self._replies(running):
            answered = reply.state == "running"
            reply.messages = reply.messages or self._stderr.pop(reply.node, b"").decode(errors="replace") or messages
            reply.becomes("failed" if answered else "no-answer", self._why_failed(code, messages, answered=answered))
        if running.job.node is None and not self.replies:
            self.failure = self.failure or one_line(last_line(messages)) or f"the launcher ended with exit code {code}"

    def _why_failed(self, code: int, messages: str, *, answered: bool) -> str:
        if reason := self._launcher.reason(code, messages):
            return reason
        if answered:
            return "the connection was lost"
        return f"killed by {signal_name(-code)}" if code < 0 else why_no_answer(code, messages)

    def _end_all(self, selector: selectors.BaseSelector) -> None:
        """Ends all jobs, and waits for that; a second Ctrl+C hurries."""
        for reply in self.replies.values():
            reply.becomes("interrupted", "interrupted")
        for running in self._running:
            running.close()
        while self._running:
            try:
                self._read(selector, 0.1)
                self._check_time()
            except KeyboardInterrupt:
                for running in self._running:
                    running.hurry()


def _decoded(payload: bytes, kind: type[_T]) -> _T:
    """JSON from a node; what is not of this kind counts as empty."""
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return kind()


def _text(value: object) -> str | None:
    return (one_line(value, 80) or None) if isinstance(value, str) else None
