"""Runs a command on every node of a Ray cluster; a process of its own, since Ray is large and stays loaded.

``python -m gpuwatch.fleet.cluster.ray_driver ADDRESS COMMAND`` with the command as JSON. Prints the frames of all
nodes. A line ``end NODE`` on stdin ends one of them, the end of stdin all.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

from gpuwatch.core.safe_text import last_line
from gpuwatch.fleet.cluster.node_protocol import NO_NODE, FrameKind, encode_frame, why_no_answer

_stdout_lock = threading.Lock()
_CONNECT_SECONDS = 10.0


def _run_on_node(command: list[str]) -> Iterator[bytes | tuple[int, bytes]]:
    """On a node: the lines that the command prints, then its exit code and the end of its messages.

    Ray sends this function as it is: nothing here may refer to this module.
    """
    import contextlib
    import os
    import subprocess
    import tempfile

    environment = dict(os.environ)
    if environment.get("CUDA_VISIBLE_DEVICES") == "":  # Ray's, for a task that reserves no GPU
        del environment["CUDA_VISIBLE_DEVICES"]
    with tempfile.TemporaryFile() as messages:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                start_new_session=True,
                env=environment,
            )
        except FileNotFoundError:
            yield 127, b""
            return
        except PermissionError:
            yield 126, b""
            return
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(b"gpuwatch\n")  # node_agent.GREETING
                process.stdin.flush()
            while line := process.stdout.readline(4096):
                yield line
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            try:
                code = process.wait(14)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        size = messages.seek(0, 2)
        messages.seek(max(size - 4096, 0))
        yield code, messages.read()


def _send_frame(kind: FrameKind, node: str, text: str = "") -> None:
    _write(encode_frame(kind, text.encode(), node=node))


def _write(data: bytes) -> None:
    with _stdout_lock:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _node_names(nodes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A name for each node: its host's, with the start of its id where several are on one host."""
    hosts = Counter(str(node.get("NodeManagerHostname")) for node in nodes)
    by_name = {}
    for node in nodes:
        host = "".join(str(node.get("NodeManagerHostname") or node.get("NodeManagerAddress")).split()) or "node"
        by_name[host if hosts[host] == 1 else f"{host}-{str(node.get('NodeID'))[:6]}"] = node
    return by_name


class _NodeReader(threading.Thread):
    """Passes on what one node sends."""

    def __init__(self, name: str, output: Any) -> None:
        super().__init__(daemon=True)
        self.node = name
        self.output = output

    def run(self) -> None:
        import ray

        has_ended = False
        try:
            for reference in self.output:
                line = ray.get(reference)
                if isinstance(line, tuple):
                    if not has_ended:
                        code, messages = line
                        _send_frame("lost", self.node, why_no_answer(code, messages.decode(errors="replace")))
                    return
                parts = line.split(b" ", 2)
                if len(parts) == 3 and parts[1] == NO_NODE.encode():
                    has_ended = has_ended or parts[2].startswith(b"end ")
                    _write(b" ".join((parts[0], self.node.encode(), parts[2])))
        except Exception as error:  # noqa: BLE001  # whatever became of this node, the others go on
            _send_frame("lost", self.node, _ray_error_text(error))


def _ray_error_text(error: Exception) -> str:
    """Ray's error in words; its own have no name of a node and many lines."""
    name = type(error).__name__
    if name in ("TaskUnschedulableError", "NodeDiedError", "RaySystemError", "ObjectLostError", "OwnerDiedError"):
        return "Ray lost this node"
    if name in ("WorkerCrashedError", "LocalRayletDiedError", "RayTaskError(WorkerCrashedError)"):
        return "Ray's worker or node died there"
    if name == "TaskCancelledError":
        return "ended"
    last = last_line(str(error))
    return f"{name}: {last}" if last else name


def _why_unreachable(address: str) -> str:
    """Why nothing listens at ``host:port``, which Ray itself tries for minutes; empty if something does."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return ""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
            return ""
    except (OSError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)


def main() -> int:
    """Drives the cluster; returns when every node has answered or was ended."""
    address, command = sys.argv[1], json.loads(sys.argv[2])
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    except ImportError:
        print("ray is not installed here (pip install 'gpuwatch-tui[ray]')", file=sys.stderr)
        return 1
    if unreachable := _why_unreachable(address):
        print(f"no Ray cluster at {address}: {unreachable}", file=sys.stderr)
        return 1
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except Exception as error:  # noqa: BLE001  # ConnectionError, or one of Ray's many
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        print(f"no Ray cluster at {address}: {lines[0]}", file=sys.stderr)
        return 1
    remote_function = ray.remote(num_cpus=0, max_retries=0)(_run_on_node)
    threads: dict[str, _NodeReader] = {}
    for name, node in _node_names(ray.nodes()).items():
        alive = bool(node.get("Alive"))
        _send_frame("node", name, "" if alive else "Ray lists it as dead")
        if alive:
            strategy = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            lines = remote_function.options(num_returns="streaming", scheduling_strategy=strategy).remote(command)
            threads[name] = _NodeReader(name, lines)
            threads[name].start()
    threading.Thread(target=_end_nodes_on_request, args=(threads,), daemon=True).start()
    for thread in threads.values():
        thread.join()
    ray.shutdown()
    return 0


def _end_nodes_on_request(threads: dict[str, _NodeReader]) -> None:
    """Ends nodes as stdin asks for it."""
    import ray

    for line in sys.stdin:
        word, _, node = line.strip().partition(" ")
        if word == "end" and node in threads:
            ray.cancel(threads[node].output)
    for thread in threads.values():
        if thread.is_alive():
            ray.cancel(thread.output)


if __name__ == "__main__":
    sys.exit(main())
