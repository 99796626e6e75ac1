"""Runs one command on every node at once, and collects the replies. Nothing that a node sends can stall that."""

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
from gpuwatch.core.safe_text import last_line, printable, shorten
from gpuwatch.fleet.cluster.launchers import Job, Launcher
from gpuwatch.fleet.cluster.node_agent import GREETING
from gpuwatch.fleet.cluster.node_protocol import NO_NODE, Frame, NodeDecoder, why_no_answer

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
ReplyState = Literal["waiting", "starting", "running", "ok", "failed", "no-answer", "timed-out", "interrupted"]
"""``ok``: the command ended and all that it wrote came home, whatever its exit code."""
UNFINISHED: frozenset[ReplyState] = frozenset({"waiting", "starting", "running"})


@dataclass
class NodeReply:
    """State, document and messages of one node."""

    node: str
    state: ReplyState = "waiting"
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

    def set_state(self, state: ReplyState, reason: str = "") -> None:
        """Changes the state, unless it has ended."""
        if self.state in UNFINISHED:
            self.state, self.reason, self.since = state, safe_line(reason), time.monotonic()


def safe_line(text: str, most: int = 300) -> str:
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
    running = _FanOut(launcher, seconds, start_seconds or launcher.start_seconds, on_change)
    for node, why in plan.down:
        running.reply(node).set_state("no-answer", why)
    for job in plan.jobs:
        if job.node is not None:
            running.reply(job.node)
    interrupted = running.run(list(plan.jobs))
    if not running.replies:
        raise GpuwatchError(running.failure or "the launcher named no nodes")
    return list(running.replies.values()), interrupted


class _RunningJob:
    """The process of a job; ``node`` is None if it serves all nodes."""

    def __init__(self, job: Job, process: subprocess.Popen[bytes]) -> None:
        self.node = job.node
        self.process = process
        assert process.stdin is not None
        self.stdin = process.stdin
        self.decoder = NodeDecoder()
        self.messages = b""
        self.started_at = time.monotonic()
        self.open_pipes = 2
        self.stdin_closed_at: float | None = None
        """When its stdin was closed, which asks it to end."""
        kill_after = _STDIN_CLOSED_SECONDS + _SIGTERM_SECONDS
        self.signals_left = [(_STDIN_CLOSED_SECONDS, signal.SIGTERM), (kill_after, signal.SIGKILL)]

    def write_stdin(self, line: bytes) -> None:
        with suppress(OSError, ValueError):
            self.stdin.write(line)
            self.stdin.flush()

    def close_stdin(self) -> None:
        if self.stdin_closed_at is None:
            self.stdin_closed_at = time.monotonic()
            with suppress(OSError):
                self.stdin.close()

    def terminate_now(self) -> None:
        """Sends SIGTERM at once: an agent passes that on (``node_agent``)."""
        self.stdin_closed_at = time.monotonic()
        self.signals_left = [(0.0, signal.SIGTERM), (_HURRIED_SIGTERM_SECONDS, signal.SIGKILL)]

    def signal_group(self, number: int) -> None:
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
    """The jobs of one command, and the replies so far."""

    def __init__(
        self, launcher: Launcher, seconds: float, start_seconds: float, on_change: Callable[[Sequence[NodeReply]], None]
    ) -> None:
        self._launcher = launcher
        self._seconds, self._start_seconds = seconds, start_seconds
        self._on_change = on_change
        self._documents: dict[str, bytes] = {}
        """What came of each node's document, compressed."""
        self._stderr: dict[str, bytes] = {}
        self._jobs: list[_RunningJob] = []
        self.replies: dict[str, NodeReply] = {}
        self.failure = ""
        """Why a job that serves all nodes failed before it named one."""

    def reply(self, node: str) -> NodeReply:
        return self.replies.setdefault(node, NodeReply(node))

    def run(self, jobs: list[Job]) -> bool:
        """Runs the jobs; True if Ctrl+C ended that."""
        with selectors.DefaultSelector() as selector:
            try:
                while jobs or self._jobs:
                    while jobs and len(self._jobs) < MAX_PARALLEL_JOBS:
                        self._start(jobs.pop(0), selector)
                    self._read(selector, 0.1)
                    self._check_timeouts()
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
                self.reply(job.node).set_state("no-answer", why)
            return
        running = _RunningJob(job, process)
        self._jobs.append(running)
        running.write_stdin(GREETING)
        assert process.stdout is not None
        assert process.stderr is not None
        selector.register(process.stdout, selectors.EVENT_READ, (running, True))
        selector.register(process.stderr, selectors.EVENT_READ, (running, False))
        if job.node is not None:
            self.reply(job.node).set_state("starting")

    def _read(self, selector: selectors.BaseSelector, seconds: float) -> None:
        for key, _ in selector.select(seconds):
            job, is_stdout = key.data
            try:
                data = os.read(key.fd, _READ_BYTES)
            except OSError:
                data = b""
            if not data:
                selector.unregister(key.fileobj)
                job.open_pipes -= 1
            elif is_stdout:
                self._read_frames(job, data)
            else:
                job.messages = (job.messages + data)[-_MAX_MESSAGE_BYTES:]
                if job.node is not None and b"queued and waiting" in data:  # Slurm's, of a job that must wait
                    self.reply(job.node).progress = "queued"
        for job in [job for job in self._jobs if job.process.poll() is not None]:
            ended = time.monotonic()
            if job.open_pipes and job.stdin_closed_at is None:
                job.stdin_closed_at = ended  # something that it started still holds its pipes
            if not job.open_pipes or ended - (job.stdin_closed_at or ended) > _SIGTERM_SECONDS:
                for key in [key for key in selector.get_map().values() if key.data[0] is job]:
                    selector.unregister(key.fileobj)
                self._jobs.remove(job)
                self._handle_job_exit(job)

    def _read_frames(self, job: _RunningJob, data: bytes) -> None:
        for frame in job.decoder.feed(data):
            name = frame.node if job.node is None else job.node
            if name == NO_NODE or (name not in self.replies and len(self.replies) >= MAX_NODES):
                continue
            self._apply_frame(self.reply(safe_line(name, 80)), frame)
        limit = input_size_limits.NODE_CHATTER
        if job.decoder.other_bytes > limit.bytes and job.stdin_closed_at is None:
            for reply in self._replies(job):
                reply.set_state("failed", f"prints more than {limit.size_text} of other output")
            job.close_stdin()
            job.terminate_now()

    def _apply_frame(self, reply: NodeReply, frame: Frame) -> None:
        node = reply.node
        if reply.state not in UNFINISHED:
            return
        if frame.kind == "hello":
            facts: dict[str, object] = _decode_json(frame.payload, dict)
            reply.version, reply.host = _short_text(facts.get("version")), _short_text(facts.get("host"))
            if reply.state != "running":
                reply.progress = ""
                reply.set_state("running")
        elif frame.kind == "node":
            reason = frame.payload.decode(errors="replace")
            reply.set_state("no-answer" if reason else "starting", reason)
        elif frame.kind == "lost":
            reason = frame.payload.decode(errors="replace")
            reply.set_state("failed" if reply.state == "running" else "no-answer", reason)
        elif frame.kind == "progress":
            reply.progress = safe_line(frame.payload.decode(errors="replace"), 120)
        elif frame.kind == "stderr":
            self._stderr[node] = (self._stderr.get(node, b"") + frame.payload)[-_MAX_MESSAGE_BYTES:]
        elif frame.kind == "data":
            received = self._documents.get(node, b"")
            if len(received) <= input_size_limits.DOCUMENT.bytes:
                self._documents[node] = received + frame.payload
        else:
            self._finish_reply(reply, _decode_json(frame.payload, _End))

    def _finish_reply(self, reply: NodeReply, end: _End) -> None:
        """Handles the end of the command on a node."""
        reply.exit_code, reply.took_seconds = end.exit_code, end.took_seconds
        reply.messages = self._stderr.pop(reply.node, b"").decode(errors="replace")
        limit = input_size_limits.DOCUMENT.bytes
        try:
            document = zlib.decompressobj().decompress(self._documents.pop(reply.node, b""), limit + 1)
        except zlib.error:
            document = None
        if end.signal is not None:
            reply.set_state("failed", f"killed by {signal_name(end.signal)}")
        elif document is None or end.bytes != len(document):
            is_too_large = document is not None and len(document) > limit
            reply.set_state("failed", "its answer is too large" if is_too_large else "only part of its answer arrived")
        else:
            reply.document = document
            reply.set_state("ok")

    def _check_timeouts(self) -> None:
        now = time.monotonic()
        for job in self._jobs:
            if job.stdin_closed_at is not None:
                while job.signals_left and now - job.stdin_closed_at > job.signals_left[0][0]:
                    job.signal_group(job.signals_left.pop(0)[1])
                continue
            for reply in self._replies(job):
                if reply.state == "starting" and now - reply.since > self._start_seconds:
                    state = "still queued" if reply.progress == "queued" else "no answer"
                    self._end_late(job, reply, f"{state} after {self._start_seconds:g} s")
                elif reply.state == "running" and now - reply.since > self._seconds:
                    self._end_late(job, reply, f"not finished after {self._seconds:g} s")
            if job.node is None and not self.replies and now - job.started_at > self._start_seconds:
                self.failure = f"no nodes after {self._start_seconds:g} s"
                job.close_stdin()

    def _end_late(self, job: _RunningJob, reply: NodeReply, why: str) -> None:
        reply.set_state("timed-out", why)
        if job.node is None:
            job.write_stdin(f"end {reply.node}\n".encode())
        else:
            job.close_stdin()
            if reply.version is None:
                job.terminate_now()

    def _replies(self, job: _RunningJob) -> list[NodeReply]:
        return list(self.replies.values()) if job.node is None else [self.replies[job.node]]

    def _handle_job_exit(self, job: _RunningJob) -> None:
        """Handles the end of a job's process: nodes that it has not reported have failed."""
        job.close_stdin()
        if job.open_pipes:  # what it left behind
            job.signal_group(signal.SIGKILL)
        code = job.process.returncode
        messages = (job.decoder.other_output + job.messages).decode(errors="replace")
        for reply in self._replies(job):
            answered = reply.state == "running"
            reply.messages = reply.messages or self._stderr.pop(reply.node, b"").decode(errors="replace") or messages
            reply.set_state("failed" if answered else "no-answer", self._why_failed(code, messages, answered=answered))
        if job.node is None and not self.replies:
            self.failure = self.failure or safe_line(last_line(messages)) or f"the launcher ended with exit code {code}"

    def _why_failed(self, code: int, messages: str, *, answered: bool) -> str:
        if reason := self._launcher.failure_reason(code, messages):
            return reason
        if answered:
            return "the connection was lost"
        return f"killed by {signal_name(-code)}" if code < 0 else why_no_answer(code, messages)

    def _end_all(self, selector: selectors.BaseSelector) -> None:
        """Ends all jobs, and waits for that; a second Ctrl+C hurries."""
        for reply in self.replies.values():
            reply.set_state("interrupted", "interrupted")
        for job in self._jobs:
            job.close_stdin()
        while self._jobs:
            try:
                self._read(selector, 0.1)
                self._check_timeouts()
            except KeyboardInterrupt:
                for job in self._jobs:
                    job.terminate_now()


def _decode_json(payload: bytes, kind: type[_T]) -> _T:
    """JSON from a node; what is not of this kind counts as empty."""
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return kind()


def _short_text(value: object) -> str | None:
    return (safe_line(value, 80) or None) if isinstance(value, str) else None
