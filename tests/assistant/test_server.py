"""``gpuwatch mcp`` as a client sees it: the SDK's own client over real pipes, on simulated GPUs."""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import psutil
import pytest

pytest.importorskip("mcp")

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from gpuwatch.core import input_size_limits
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.machine.history.saved_runs import RunStore
from gpuwatch.share.assistant.tool_results import MAX_BYTES
from gpuwatch.sim import faults
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch
from tests.recording.make_fixture import FOLDER
from tests.reports.documents import full_run
from tests.waiting import wait_for

Machine = Callable[[str], SimMachine]
READ_ONLY = ["snapshot", "doctor", "explain_log", "list_causes", "cause", "find_free_gpus", "usage", "compare"]
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of"
    " which 1.12 GiB is free. Process 4711 has 10.00 GiB memory in use. Of the allocated memory 11.00 GiB is allocated"
    " by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.\n"
)
HOLD = """
import sys
from tests.sim.cuda_client import allocate, use
use(0)
print(allocate(6 << 30)[0], flush=True)
sys.stdin.read()
"""


@asynccontextmanager
async def connected(
    environment: dict[str, str], *arguments: str, errors: TextIO | None = None
) -> AsyncIterator[Client]:
    # As clients do, the server gets little of the environment: here, what was given.
    command = ["-i", *(f"{name}={value}" for name, value in environment.items())]
    started = StdioServerParameters(
        command="/usr/bin/env", args=[*command, sys.executable, "-m", "gpuwatch", "mcp", *arguments]
    )
    async with Client(stdio_client(started, errlog=errors or sys.stderr)) as client:
        await client.list_tools()  # from now on, the client checks answers against the tools' schemas
        yield client


async def answer(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    text = result.content[0].text
    assert not result.is_error, text
    assert json.loads(text) == result.structured_content
    assert len(text.encode()) <= MAX_BYTES
    return result.structured_content


async def refusal(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    assert result.is_error, result.structured_content
    assert result.structured_content is None
    text: str = result.content[0].text
    assert len(text) < 1000
    assert "\n" not in text
    return text


async def test_every_reading_tool(sim_machine: Machine, tmp_path: Path) -> None:
    environment = sim_machine("2x24GiB").environment(os.environ)
    state = tmp_path / "state"
    environment["XDG_STATE_HOME"] = str(state)
    recording = state / "gpuwatch" / "recordings" / f"{os.uname().nodename}.gpuwatch"
    recording.parent.mkdir(parents=True)
    shutil.copy(FOLDER / "recording-3.gpuwatch", recording)
    for folder in (state, state / "gpuwatch", recording.parent):
        folder.chmod(0o700)
    RunStore(state / "gpuwatch" / "runs").save(full_run())
    log = tmp_path / "train.log"
    log.write_text(OOM)
    async with connected(environment) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == READ_ONLY
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        assert all(tool.output_schema and tool.description and tool.title for tool in tools)

        now = await answer(client, "snapshot")
        assert [device["index"] for device in now["devices"]] == [0, 1]
        assert now["devices"][0]["readings"]["memory.total_bytes"] == 24 << 30
        assert [one.split(";")[0] for one in now["left_out"]] == ["devices.readings: 60 of 94"]
        full = await answer(client, "snapshot", metrics="all", topology=True)
        assert len(full["devices"][0]["readings"]) > 40
        assert full["topology"]["connections"]
        assert full["left_out"] == []

        free = await answer(client, "find_free_gpus", count=2, free_gib=20)
        assert [one["index"] for one in free["chosen"]] == [0, 1]
        error = await refusal(client, "find_free_gpus", free_gib=30)
        assert re.findall("[0-9.]+ GiB", error) == ["30.0 GiB", "24.0 GiB"]
        assert "2 GPUs, not 3" in await refusal(client, "find_free_gpus", count=3)

        causes = await answer(client, "list_causes")
        assert [one["id"] for one in causes["causes"]] == list(CAUSES)
        page = await answer(client, "cause", id="memory.fragmented")
        assert "## What it is" in page["markdown"]
        assert "memory.model-too-large" in await refusal(client, "cause", id="oom")

        for arguments in ({"text": OOM}, {"path": str(log)}):
            found = await answer(client, "explain_log", **arguments)
            assert found["primary"].startswith("memory.")
            assert found["findings"][0]["evidence"]
            assert found["source"] == (str(log) if "path" in arguments else None)

        used = await answer(client, "usage", by="command")
        assert used["schema"] == "gpuwatch.usage/1"
        assert used["groups"]
        assert "not a time" in await refusal(client, "usage", since="yesterday-ish")

        runs = await answer(client, "compare")
        assert [run["config"] for run in runs["runs"]] == [full_run().config]
        assert "no saved run of nothing" in await refusal(client, "compare", configs=["nothing"])
        saved = next((state / "gpuwatch" / "runs").glob("*.json"))
        shutil.copy(saved, tmp_path / "run.json")
        both = await answer(client, "compare", paths=[str(tmp_path / "run.json")] * 2)
        assert len(both["runs"]) == 2
        (tmp_path / "other.json").write_text("[1, 2]")
        error = await refusal(client, "compare", paths=[str(tmp_path / "run.json"), str(tmp_path / "other.json")])
        assert error.startswith(f"{tmp_path}/other.json is not ")

        assert "gpuwatch mcp --allow-work" in await refusal(client, "try", command=["true"])
        assert "no such tool: shell" in await refusal(client, "shell", command="ls")


async def test_work_only_where_it_is_allowed_and_no_hostile_arguments(sim_machine: Machine) -> None:
    environment = sim_machine("1x24GiB").environment(os.environ)
    async with connected(environment, "--allow-work") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == [*READ_ONLY, "probe", "try"]
        for name in ("probe", "try"):
            assert tools[name].annotations.read_only_hint is False
            assert tools[name].annotations.destructive_hint is True
        assert "unknown configuration '--all'" in await refusal(client, "probe", configs=["--all"])
        tried = await answer(
            client,
            "try",
            command=["sh", "-c", "echo done; exit 0"],
            configs=["CUDA_MODULE_LOADING=LAZY"],
            rounds=1,
            budget_seconds=60,
            folder="/",
        )
        assert tried["schema"] == "gpuwatch.try/1"
        assert tried["trials"]
        assert "is not a folder" in await refusal(client, "try", command=["true"], folder="/no/such")
        await hostile_arguments_are_errors_at_once(client)


@pytest.mark.tensorflow
async def test_probe_and_doctor_with_tensorflow(sim_machine: Machine) -> None:
    environment = sim_machine("1x2GiB").environment(os.environ)
    async with connected(environment, "--allow-work") as client:
        run = await answer(client, "probe", configs=["growth"], seconds=0.1)
        assert (run["schema"], run["config"]) == ("gpuwatch.run/1", "growth")
        doctor = await answer(client, "doctor")
        assert doctor["checks"]


async def test_no_secret_leaves(sim_machine: Machine, tmp_path: Path) -> None:
    """Secrets in a command line, in logs, in documents and in the environment: in no answer, and not on stderr."""
    canary = "hf_" + "kTqZbWvYxRmNcLpDsFgH" + "jKaSdQwErTyUiO"
    environment = sim_machine("1x24GiB").environment(os.environ)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, f"--token={canary}", "--password", f"{canary}x"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "0\n"
        log = tmp_path / "train.log"
        log.write_text(f"export HF_TOKEN={canary}\nRuntimeError: CUDA error: {canary} out of memory\n{OOM}")
        run = full_run()
        RunStore(tmp_path / "state" / "gpuwatch" / "runs").save(run)
        seen = []
        environment |= {"HF_TOKEN": canary, "XDG_STATE_HOME": str(tmp_path / "state"), "WANDB_API_KEY": canary}
        with (tmp_path / "stderr").open("w+") as errors:
            async with connected(environment, "--allow-work", errors=errors) as client:
                rows = await answer(client, "snapshot", metrics="all")
                assert rows["processes"][0]["pid"] == holder.pid
                assert rows["processes"][0]["readings"]["gpu_memory_bytes"] >= 6 << 30
                seen += [rows, await answer(client, "find_free_gpus", idle=True)]
                assert seen[-1]["chosen"] == []
                assert str(holder.pid) in seen[-1]["refused"][0]["reason"]
                seen += [await answer(client, "explain_log", text=log.read_text())]
                seen += [await answer(client, "explain_log", path=str(log)), await answer(client, "compare")]
                seen += [await answer(client, "doctor", framework="torch")]
                seen += [
                    await answer(
                        client,
                        "try",
                        command=["sh", "-c", f"echo {canary} $HF_TOKEN; exit 3", f"--token={canary}"],
                        configs=["default"],
                        rounds=1,
                    )
                ]
                seen += [await refusal(client, "cause", id=canary), await refusal(client, "usage", since=canary)]
            errors.seek(0)
            seen += [errors.read()]
        assert not [one for one in seen if canary in json.dumps(one)]
    finally:
        holder.kill()
        holder.communicate()


async def test_redacted_answers_name_no_user(sim_machine: Machine, tmp_path: Path) -> None:
    environment = sim_machine("1x24GiB").environment(os.environ)
    (tmp_path / "alice-7391").mkdir()
    environment["XDG_STATE_HOME"] = str(tmp_path / "alice-7391")
    log = tmp_path / "alice-7391" / "train.log"
    log.write_text(f"File {log}\n{OOM}")
    environment["CUDA_VISIBLE_DEVICES"] = "-1"
    async with connected(environment, "--redact", "--python", sys.executable) as client:
        doctor = await answer(client, "doctor", framework="torch")
        assert doctor["schema"] == "gpuwatch.doctor/1"
        assert doctor["checks"]
        assert doctor["findings"]
        seen = [doctor, await answer(client, "snapshot"), await answer(client, "explain_log", path=str(log))]
        seen += [await refusal(client, "explain_log", path=str(log.parent / "none.log"))]
        seen += [await refusal(client, "usage")]
        assert not re.search(rf"\b{re.escape(os.uname().nodename)}\b", json.dumps(seen))
    assert "alice-7391" not in json.dumps(seen)


async def test_a_hanging_driver_is_said_in_time(sim_machine: Machine) -> None:
    machine = sim_machine("1x24GiB")
    async with connected(machine.environment(os.environ)) as client:
        assert (await answer(client, "snapshot"))["driver"]
        faults.hang(machine, None)
        began = time.monotonic()
        hung = await answer(client, "snapshot")
        assert time.monotonic() - began < 12
        assert hung["driver"] is None
        assert hung["devices"] == []
        if "no sample within 8 s" in hung["problems"][0]["detail"]:  # it could not run just then, on this busy machine
            hung = await answer(client, "snapshot")
        assert "did not answer within 8 s" in hung["problems"][0]["detail"]
        assert [found["id"] for found in hung["findings"]] == ["driver.bad-state"]
        assert (await answer(client, "list_causes"))["causes"], "what needs no driver answers"
        assert "did not answer" in await refusal(client, "find_free_gpus")
        machine.clear_faults()
        until = time.monotonic() + 60
        while (await answer(client, "snapshot"))["driver"] is None:
            assert time.monotonic() < until


async def test_without_a_driver() -> None:
    async with connected(dict(os.environ)) as client:
        found = await answer(client, "snapshot")
        assert (found["driver"], found["devices"]) == (None, [])
        assert found["problems"]
        assert await refusal(client, "find_free_gpus")


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("snapshot", {"processes": -1}),
    ("snapshot", {"processes": 10**40}),
    ("snapshot", {"metrics": "all; rm -rf /"}),
    ("snapshot", {"deadline": 1e9}),
    ("doctor", {"framework": "--python=/bin/sh"}),
    ("doctor", {"python": "/bin/sh"}),
    ("explain_log", {}),
    ("explain_log", {"text": "x", "path": "y"}),
    ("explain_log", {"text": ""}),
    ("explain_log", {"text": "x" * ((1 << 20) + 1)}),
    ("explain_log", {"path": "/etc/shadow"}),
    ("explain_log", {"path": "/proc/self/environ"}),
    ("explain_log", {"path": "/dev/zero"}),
    ("explain_log", {"path": "-"}),
    ("explain_log", {"path": "a\0b.log"}),
    ("cause", {"id": "../../../../etc/passwd"}),
    ("cause", {"id": ["memory.fragmented"]}),
    ("cause", {}),
    ("find_free_gpus", {"count": 0}),
    ("find_free_gpus", {"free_gib": -3}),
    ("find_free_gpus", {"free_gib": "20GiB"}),
    ("usage", {"since": "--output=/tmp/x"}),
    ("usage", {"since": "x\0y"}),
    ("usage", {"by": "secret"}),
    ("compare", {"paths": ["/etc/passwd"]}),
    ("compare", {"paths": ["--help"]}),
    ("compare", {"configs": ["a"] * 21}),
    ("probe", {"configs": []}),
    ("probe", {"configs": ["growth"], "seconds": 1e6}),
    ("probe", {"configs": ["growth"], "python": "/bin/sh"}),
    ("probe", {"configs": ["x\0"]}),
    ("try", {"command": []}),
    ("try", {"command": "rm -rf /"}),
    ("try", {"command": ["true\0"], "configs": ["default"]}),
    ("try", {"command": ["true"], "folder": "/\0"}),
]


async def hostile_arguments_are_errors_at_once(client: Client) -> None:
    for name, arguments in HOSTILE:
        began = time.monotonic()
        await refusal(client, name, **arguments)
        assert time.monotonic() - began < 20, (name, arguments)
    assert (await answer(client, "list_causes"))["causes"]


INITIALIZE = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    '"clientInfo":{"name":"test","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)


def raw(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "mcp"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_is_no_message_is_passed_over(sim_machine: Machine) -> None:
    """Any bytes: other clients, attackers and broken pipes write them, also without end. The next is answered."""
    dice = random.Random(7)
    hostile = [dice.randbytes(dice.randrange(300)).replace(b"\n", b"") for _ in range(200)]
    hostile += [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"[]",
        b"null",
        b"1e999",
        b'"',
        b'{"jsonrpc":"2.0"}',
        b"\xff\xfe",
        b"\0" * 99,
    ]
    calls = [
        {"id": 10**400, "method": "tools/call"},
        {"id": None, "method": "tools/call"},
        {"id": 50, "method": "tools/call", "params": []},
        {"id": 51, "method": "tools/call", "params": {"name": 7}},
        {"id": 52, "method": "tools/call", "params": {"name": "cause", "arguments": {"id": "\ud800"}}},
        {"id": 53, "method": "tools/call", "params": {"name": "x" * 100_000}},
        {"id": 54, "method": "no/such/method"},
        {"method": "notifications/cancelled", "params": {"requestId": 99}},
        {"id": 55, "result": {}},
    ]
    hostile += [json.dumps({"jsonrpc": "2.0"} | call).encode() for call in calls]
    dice.shuffle(hostile)
    server = raw(sim_machine("1x24GiB").environment(os.environ))
    last = '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"list_causes"}}\n'
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(INITIALIZE + "this is no JSON\n[]\n{}\n")
    server.stdin.write('{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"cause","arguments":{"id":"')
    for _ in range(40):
        server.stdin.write("x" * (1 << 20))
    server.stdin.write('"}}}\n' + last % 78)
    server.stdin.flush()
    answers = {}
    while 78 not in answers or 77 not in answers:
        message = json.loads(server.stdout.readline())
        answers[message.get("id")] = message
    assert answers[77]["error"]["message"] == f"the message is longer than {input_size_limits.MCP_MESSAGE.size_text}"
    assert not answers[78]["result"]["isError"]
    assert psutil.Process(server.pid).memory_info().rss < 200 << 20
    server.stdin.buffer.write(b"\n".join(hostile) + b"\n" + (last % 99).encode())
    server.stdin.flush()
    while (message := json.loads(server.stdout.readline())).get("id") != 99:
        assert "error" in message or message["result"].get("isError"), message
    assert not message["result"]["isError"]
    out, err = server.communicate(timeout=30)
    assert server.returncode == 0
    assert all(json.loads(line) for line in out.splitlines())
    assert "Traceback" not in err


@pytest.mark.parametrize("how", ["end of input", "SIGTERM"])
def test_a_client_that_does_not_read_keeps_nobody(sim_machine: Machine, how: str) -> None:
    server = raw(sim_machine("1x24GiB").environment(os.environ))
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(INITIALIZE)
    for number in range(2, 200):
        server.stdin.write(
            f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"list_causes"}}}}\n'
        )
    server.stdin.flush()
    pipe = server.stdout
    room = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    wait_for(
        lambda: int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder) >= room // 2,
        "the pipe to fill",
    )
    if how == "end of input":
        server.stdin.close()
        server.stdin = None
    else:
        server.terminate()
    try:
        assert server.wait(15) == (0 if how == "end of input" else 143)
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("how", ["end of input", "SIGINT", "SIGTERM"])
def test_it_ends_with_all_it_started(sim_machine: Machine, how: str) -> None:
    server = raw(sim_machine("1x24GiB").environment(os.environ))
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(INITIALIZE)
    server.stdin.write('{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"snapshot"}}\n')
    server.stdin.flush()
    while json.loads(server.stdout.readline()).get("id") != 2:
        pass
    server.stdin.write('{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"doctor"}}\n')
    server.stdin.flush()
    children: list[psutil.Process] = []

    def both() -> bool:
        children[:] = psutil.Process(server.pid).children(recursive=True)
        return len(children) >= 2

    wait_for(both, "the collector and the doctor")
    if how != "end of input":
        server.send_signal(getattr(signal, how))
    out, err = server.communicate(timeout=30)
    assert server.returncode == {"end of input": 0, "SIGINT": 130, "SIGTERM": 143}[how]
    assert err.strip() == ""
    assert all(json.loads(line) for line in out.splitlines())
    _, alive = psutil.wait_procs(children, timeout=15)
    assert not alive


@pytest.mark.parametrize("module", ["anyio", "mcp", "mcp_types"])
def test_without_the_extra(module: str, tmp_path: Path) -> None:
    """Which of its packages is imported first does not matter."""
    (tmp_path / f"{module}.py").write_text(
        f"raise ModuleNotFoundError(\"No module named '{module}'\", name='{module}')"
    )
    done = gpuwatch("mcp", environment={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (done.code, done.out) == (1, "")
    assert done.err == "gpuwatch: gpuwatch mcp needs the MCP SDK, version 2 (pip install 'gpuwatch-tui[mcp]')\n"
