"""Runs a command of the user for each alert.

Only the user's own words reach the shell: what is known of the finding goes to stdin as JSON, and a few facts from
closed lists into the environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress

from gpuwatch.core.model.findings import Alert
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.session.alerts.delivery_thread import DeliveryFailed

DEADLINE_SECONDS = 30.0
"""Seconds after which a command is ended."""
_GRACE_SECONDS = 1.0
"""Seconds from SIGTERM to SIGKILL."""


class AlertCommand:
    """``--on-finding COMMAND``."""

    name = "--on-finding"

    def __init__(self, command: str) -> None:
        """``command``: for ``/bin/sh -c``."""
        self._command = command
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False

    def deliver(self, alert: Alert) -> None:
        with self._lock:
            if self._cancelled:
                return
            try:
                # A session of its own: all that it starts can be ended, and no key of the terminal reaches it.
                process = self._process = subprocess.Popen(
                    ["/bin/sh", "-c", self._command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=os.environ | alert_environment(alert),
                    start_new_session=True,
                )
            except OSError as error:
                raise DeliveryFailed(f"cannot start /bin/sh: {error.strerror or error}") from error
        try:
            process.communicate(to_json(alert, indent=0).encode("utf-8", "backslashreplace"), DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            self._terminate(process)
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
            raise DeliveryFailed(f"the command ran for {DEADLINE_SECONDS:g} s and was stopped") from None
        finally:
            self._process = None
        _signal(process, signal.SIGKILL)  # what it left behind in its group
        if process.returncode == 127:
            raise DeliveryFailed("the command was not found (exit code 127)")
        if process.returncode > 0:
            raise DeliveryFailed(f"the command failed with exit code {process.returncode}")
        if process.returncode < 0 and not self._cancelled:
            raise DeliveryFailed(f"the command was ended by signal {-process.returncode}")

    def cancel(self) -> None:
        """Ends the command that runs, and starts no more."""
        with self._lock:
            self._cancelled = True
            process = self._process
        if process is not None:
            self._terminate(process)

    def _terminate(self, process: subprocess.Popen[bytes]) -> None:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def alert_environment(alert: Alert) -> dict[str, str]:
    """The environment of a command: words of ours and numbers, nothing that a program on the machine could choose."""
    return {
        "GPUWATCH_ALERT_PHASE": alert.phase,
        "GPUWATCH_ALERT_CAUSE": alert.finding.id,
        "GPUWATCH_ALERT_SEVERITY": alert.finding.severity,
        "GPUWATCH_ALERT_GPU": "" if alert.device_index is None else str(alert.device_index),
        "GPUWATCH_ALERT_PID": "" if alert.finding.pid is None else str(alert.finding.pid),
    }
