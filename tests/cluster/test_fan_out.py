"""Nodes that hang, die, print garbage or lie: each is a row with its reason, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.fleet.cluster.fan_out import fan_out
from gpuwatch.fleet.cluster.node_protocol import encode_frame
from tests.cluster.nodes import Nodes, agent, one, running, shell, wait_for_none
from tests.every import every
from tests.waiting import wait_for


def test_what_a_command_prints_comes_home() -> None:
    reply = one(agent("sh", "-c", "echo '{\"a\": 1}'; echo progress >&2; exit 3"))
    assert (reply.state, reply.exit_code, reply.document) == ("ok", 3, b'{"a": 1}\n')
    assert reply.messages == "progress\n"
    assert reply.host == os.uname().nodename
    assert reply.took_seconds is not None


def test_a_large_document_comes_home_whole() -> None:
    reply = one(agent(sys.executable, "-c", "print('x' * 20_000_000)"))
    assert reply.document == b"x" * 20_000_000 + b"\n"


HELLO = encode_frame("hello", json.dumps({"version": "9", "host": "h"}).encode()).decode().strip()


@every(
    [
        (shell("exit 7"), "no-answer", "exit code 7"),
        (shell("echo 'it is on fire' >&2; exit 7"), "no-answer", "exit code 7: it is on fire"),
        (shell("gpuwatch-that-is-not-there"), "no-answer", "gpuwatch was not found there"),
        (shell("exit 126"), "no-answer", "gpuwatch cannot be executed there"),
        (shell("echo \"gpuwatch: no such command: 'node'\" >&2; exit 2"), "no-answer", "its gpuwatch is too old"),
        (shell("kill -9 $$"), "no-answer", "killed by SIGKILL"),
        (("gpuwatch-that-is-not-there",), "no-answer", "gpuwatch-that-is-not-there cannot be started"),
        (shell(f"echo '{HELLO}'"), "failed", "the connection was lost"),
        (shell(f"echo '{HELLO}'; kill -9 $$"), "failed", "the connection was lost"),
        (agent("sh", "-c", "kill -SEGV $$"), "failed", "killed by SIGSEGV"),
        (shell("yes"), "failed", f"prints more than {input_size_limits.NODE_CHATTER.size_text} of other output"),
        (
            shell("cat /dev/zero"),
            "failed",
            f"prints more than {input_size_limits.NODE_CHATTER.size_text} of other output",
        ),
    ]
)
def test_reasons(command: tuple[str, ...], state: str, reason: str) -> None:
    reply = one(command)
    assert reply.state == state
    assert reply.reason.startswith(reason)


def test_a_node_that_says_nothing_is_given_up() -> None:
    reply = one(shell("exec sleep 1234.51"), start_seconds=0.5)
    assert (reply.state, reply.reason) == ("timed-out", "no answer after 0.5 s")
    wait_for_none("1234.51")


def test_a_command_that_hangs_is_ended_there() -> None:
    script = "trap '' INT TERM; sleep 1234.52 & setsid sleep 1234.52 & sleep 1234.52"
    began = time.monotonic()
    reply = one(agent("sh", "-c", script), seconds=0.5)
    assert (reply.state, reply.reason) == ("timed-out", "not finished after 0.5 s")
    assert time.monotonic() - began < 25
    wait_for_none("1234.52")


def test_what_a_command_leaves_behind_is_ended() -> None:
    reply = one(agent("sh", "-c", "setsid sleep 1234.53 & echo done"))
    assert (reply.state, reply.document) == ("ok", b"done\n")
    wait_for_none("1234.53")


def sent(document: bytes, **end: object) -> tuple[str, ...]:
    """A node that sends these frames."""
    frames = [
        *HELLO.splitlines(),
        encode_frame("data", document).decode(),
        encode_frame("end", json.dumps(end).encode()).decode(),
    ]
    return (sys.executable, "-c", f"print({chr(10).join(frames)!r})")


@pytest.mark.parametrize(
    ("document", "end", "reason"),
    [
        (zlib.compress(b"x"), {"exit_code": 0, "bytes": 2}, "only part of its answer arrived"),
        (b"no zlib at all", {"exit_code": 0, "bytes": 2}, "only part of its answer arrived"),
        (zlib.compress(b"x"), {}, "only part of its answer arrived"),
        (
            zlib.compress(bytes(input_size_limits.DOCUMENT.bytes + 10)),
            {"exit_code": 0, "bytes": input_size_limits.DOCUMENT.bytes + 10},
            "its answer is too large",
        ),
        (zlib.compress(b"x"), {"signal": 9, "bytes": 1}, "killed by SIGKILL"),
        (zlib.compress(b"x"), {"signal": 10**9, "exit_code": -4, "bytes": 7}, "only part of its answer arrived"),
    ],
)
def test_answers_that_are_not_whole(document: bytes, end: dict[str, object], reason: str) -> None:
    reply = one(sent(document, **end))
    assert (reply.state, reply.reason) == ("failed", reason)
    assert reply.document == b""


def test_what_a_node_says_is_one_harmless_line_without_secrets() -> None:
    secret = "ghp_" + "a1B2" * 9
    reply = one(shell(f"printf 'token={secret} \\033[31mred\\033[0m \\033]0;t\\007 x\\n' >&2; exit 9"))
    assert secret not in reply.reason
    assert "\x1b" not in reply.reason
    assert "\x07" not in reply.reason
    assert "red" in reply.reason
    long = one(shell("yes long | head -c 100000 | tr '\\n' ' ' >&2; exit 9"))
    assert len(long.reason) <= 300


def test_lies_about_who_answers() -> None:
    hello = (
        encode_frame("hello", json.dumps({"version": ["x"], "host": "\x1b[2J" + "h" * 300}).encode()).decode().strip()
    )
    reply = one(shell(f"echo '{hello}'"))
    assert reply.version is None
    assert reply.host is not None
    assert "\x1b" not in reply.host
    assert len(reply.host) <= 80


def test_one_bad_node_costs_the_others_nothing() -> None:
    good = agent("echo", "{}")
    bad = (shell("exit 7"), shell("yes"), ("not-there",))
    replies, _ = fan_out(Nodes(good, *bad, good, down=[("n9", "drained in Slurm")]), [], seconds=20)
    states = {reply.node: reply.state for reply in replies}
    assert states == {
        **{"n1": "ok", "n5": "ok"},
        **{"n2": "no-answer", "n3": "failed", "n4": "no-answer", "n9": "no-answer"},
    }


def test_more_nodes_than_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwatch.fleet.cluster.fan_out.MAX_PARALLEL_JOBS", 3)
    most = 0

    def look(replies: object) -> None:
        nonlocal most
        most = max(most, sum(reply.state in ("starting", "running") for reply in replies))  # type: ignore[attr-defined]

    replies, _ = fan_out(Nodes(*[shell("sleep 0.2; exit 1")] * 9), [], seconds=20, on_change=look)
    assert len(replies) == 9
    assert most == 3


def test_a_launcher_without_nodes_is_an_error() -> None:
    with pytest.raises(GpuwatchError):
        fan_out(Nodes(), [], seconds=1)


@pytest.mark.slow
def test_four_nodes_take_little_longer_than_one() -> None:
    def took(count: int) -> float:
        began = time.monotonic()
        replies, _ = fan_out(Nodes(*[agent("sleep", "5")] * count), [], seconds=30)
        assert [reply.state for reply in replies] == ["ok"] * count
        return time.monotonic() - began

    assert took(4) <= 1.3 * took(1)


DRIVER = """
import sys
from gpuwatch.fleet.cluster.fan_out import fan_out
from tests.cluster.nodes import Nodes, agent
script = "setsid sleep " + sys.argv[1] + " & exec sleep " + sys.argv[1]
if "stubborn" in sys.argv:
    script = "trap '' INT TERM; " + script
nodes = [agent("sh", "-c", script), agent("sleep", sys.argv[1])]
if "stubborn" in sys.argv:  # a launcher that does not notice the end of its input
    nodes.append(("sh", "-c", "sleep " + sys.argv[1]))
nodes = Nodes(*nodes)
replies, interrupted = fan_out(nodes, [], seconds=600)
print(interrupted, *[reply.state for reply in replies])
"""


def interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)


def interrupt_twice(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)  # somebody presses it again
    process.send_signal(signal.SIGINT)


def terminate(process: subprocess.Popen[str]) -> None:
    process.terminate()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mark", "end"), [("1234.61", interrupt), ("1234.62", interrupt_twice), ("1234.63", terminate), ("1234.64", kill)]
)
def test_whatever_ends_gpuwatch_nothing_is_left(mark: str, end: Callable[[subprocess.Popen[str]], None]) -> None:
    stubborn = ["stubborn"] if end is interrupt_twice else []
    code = "import gpuwatch.cli.exit_signals as p; p.handle_exit_signals()\n" + DRIVER
    with subprocess.Popen(
        [sys.executable, "-c", code, mark, *stubborn],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        # gpuwatch and two agents name it in their command lines, and what those run: three times sleep.
        wait_for(lambda: len(running(mark)) >= 6, pause=0.05)
        end(process)
        assert process.stdout is not None
        output = process.stdout.read()
    wait_for_none(mark, 20)
    if end in (interrupt, interrupt_twice):
        assert output.split() == ["True", *["interrupted"] * (3 if stubborn else 2)]
