"""Programs run as ``gpuwatch try`` runs them, with what they report about the setting and their steps."""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpuwatch.experiment.probing.launch_program import with_watch_hook
from gpuwatch.experiment.probing.received_events import ReceivedEvents
from tests.forked import python_forked


class Tried(NamedTuple):
    """A program that has ended."""

    done: subprocess.CompletedProcess[str]
    states: list[ReceivedEvents]
    """Of each process that reported anything, in the order of their connections."""

    @property
    def state(self) -> ReceivedEvents:
        return self.states[0]


def tried(
    command: list[str],
    environment: Mapping[str, str] = os.environ,
    *,
    trial: Mapping[str, Any] | None = None,
    watched: bool = True,
    fork: bool = False,
    seconds: float = 200,
) -> Tried:
    """Runs ``python command`` to its end; ``trial``: the contents of GPUWATCH_TRIAL, None to watch it alone.

    ``fork``: in a fork of an interpreter that has imported TensorFlow, see :mod:`tests.forked`.
    """
    name = f"test-{os.getpid()}-{secrets.token_hex(4)}"
    states: list[ReceivedEvents] = []
    threads: list[threading.Thread] = []

    ended = threading.Event()

    def listen() -> None:
        # Until the program has ended and nothing waits to be accepted.
        while True:
            last = ended.is_set()
            if not select.select([listener], [], [], 0.05)[0]:
                if last:
                    return
                continue
            connection, _ = listener.accept()
            state = ReceivedEvents()
            states.append(state)
            thread = threading.Thread(target=take, args=(connection, state))
            threads.append(thread)
            thread.start()

    def take(connection: socket.socket, state: ReceivedEvents) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                state.take_line(line)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + name)
        listener.listen(16)
        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        own = {"GPUWATCH_WATCH": name} if watched else {}
        if trial is not None:
            own["GPUWATCH_TRIAL"] = json.dumps(trial)
        around = with_watch_hook({**environment, **own})
        try:
            if fork:
                code, out, err = python_forked(*command, environment=around, imported_with=environment, timeout=seconds)
                done = subprocess.CompletedProcess(command, code, out, err)
            else:
                done = subprocess.run(
                    [sys.executable, *command],
                    env=around,
                    capture_output=True,
                    text=True,
                    timeout=seconds,
                    check=False,
                )
        finally:
            ended.set()
            listening.join(10)
        for thread in threads:
            thread.join(10)
    return Tried(done, states)
