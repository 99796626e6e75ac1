"""How alerts are delivered: by a command, a webhook or the terminal, each in a thread of its own."""

from __future__ import annotations

import http.client
import os
import queue
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

from gpuwatch import __version__
from gpuwatch.core.errors import UsageError
from gpuwatch.core.model.alert import Alert
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.core.safe_text import printable

MAX_WAITING_ALERTS = 100
"""Alerts that may wait; more are dropped, and reported as a failure."""
_LAST_DELIVERY_SECONDS = 3.0
"""Seconds that the end of gpuwatch waits for a delivery."""
COMMAND_SECONDS = 30.0
"""Seconds after which a command is ended."""
_GRACE_SECONDS = 1.0
"""Seconds from SIGTERM to SIGKILL."""
WEBHOOK_SECONDS = 10.0
"""Seconds that a webhook's server has to answer."""
RETRY_SECONDS = (1.0, 4.0)
"""Seconds before the second and the third attempt to reach a webhook; the third is the last."""
_OSC_777_TERMINALS = ("foot", "rxvt", "konsole")
"""Terminals, by the start of TERM, that support OSC 777 but not OSC 9."""
_TMUX_QUERY = ("tmux", "show-options", "-pAv", "allow-passthrough")
"""What holds in this pane, wherever it was set."""
_TMUX_SECONDS = 2.0
"""Seconds that tmux has to answer."""


class DeliveryFailed(Exception):
    """An alert could not be delivered; the message says why, without anything secret."""


class Delivery(Protocol):
    """Delivers alerts, one after the other."""

    name: str
    """What it is called in events: ``--on-finding``, ``webhook``."""

    def deliver(self, alert: Alert) -> None:
        """Delivers one; :class:`DeliveryFailed` if that fails."""
        ...

    def cancel(self) -> None:
        """Ends what :meth:`deliver` is doing, and all that it would do; called from another thread."""
        ...


class DeliveryThread:
    """Delivers alerts in a thread that begins with the first one."""

    def __init__(self, delivery: Delivery, report_failure: Callable[[str], None]) -> None:
        """``report_failure``: is told the first of several failures in a row, from the thread."""
        self._delivery = delivery
        self._report_failure = report_failure
        self._queue: queue.Queue[Alert | None] = queue.Queue(MAX_WAITING_ALERTS)
        self._thread: threading.Thread | None = None
        self._is_failing = False
        self._is_closed = False

    def send(self, alert: Alert) -> None:
        """Queues an alert; never waits."""
        if self._is_closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"gpuwatch {self._delivery.name}", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(alert)
        except queue.Full:
            self._note_failure(f"{MAX_WAITING_ALERTS} alerts are waiting; more are dropped")

    def close(self) -> None:
        """Ends it; what still waits is dropped."""
        self._is_closed = True
        self._delivery.cancel()
        if self._thread is not None:
            with suppress(queue.Full):  # else the thread sees at the next alert that it is closed
                self._queue.put_nowait(None)
            self._thread.join(_LAST_DELIVERY_SECONDS)

    def _run(self) -> None:
        while (alert := self._queue.get()) is not None:
            if self._is_closed:
                return
            try:
                self._delivery.deliver(alert)
                self._is_failing = False
            except DeliveryFailed as error:
                if not self._is_closed:
                    self._note_failure(str(error))

    def _note_failure(self, reason: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._report_failure(f"{self._delivery.name}: {reason}")


class AlertCommand:
    """``--on-finding COMMAND``: runs a command of the user for each alert.

    Only the user's own words reach the shell: what is known of the finding goes to stdin as JSON, and a few facts from
    closed lists into the environment.
    """

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
            process.communicate(to_json(alert, indent=0).encode("utf-8", "backslashreplace"), COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            self._terminate(process)
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
            raise DeliveryFailed(f"the command ran for {COMMAND_SECONDS:g} s and was stopped") from None
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


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead anywhere, and would become a GET without the alert."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Webhook:
    """``--webhook URL``: posts each alert as JSON.

    Certificates are verified, redirects refused, and the URL is never shown whole.
    """

    def __init__(self, url: str) -> None:
        """``url``: one that :func:`checked_url` accepts."""
        self._url = url
        self._cancelled = threading.Event()
        self.name = f"webhook {masked_url(url)}"
        self._opener = urllib.request.build_opener(_NoRedirect)

    def deliver(self, alert: Alert) -> None:
        """Posts it, up to three times where that may help."""
        body = to_json(alert, indent=0).encode("utf-8", "backslashreplace")
        for pause in (*RETRY_SECONDS, None):
            failure, is_final = self._post(body)
            if not failure or self._cancelled.is_set():
                return
            if is_final or pause is None:
                raise DeliveryFailed(failure)
            if self._cancelled.wait(pause):
                return

    def cancel(self) -> None:
        self._cancelled.set()

    def _post(self, body: bytes) -> tuple[str, bool]:
        """Why it failed, and whether another attempt would too; empty if it did not."""
        headers = {"Content-Type": "application/json", "User-Agent": f"gpuwatch/{__version__}"}
        request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")  # noqa: S310  # http or https: see checked_url
        try:
            with self._opener.open(request, timeout=WEBHOOK_SECONDS):
                return "", False
        except urllib.error.HTTPError as error:
            error.close()
            return f"the server answered {error.code}", error.code < 500 and error.code not in (408, 429)
        except (OSError, http.client.HTTPException, ValueError) as error:  # urllib's URLError is an OSError
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                return f"no answer within {WEBHOOK_SECONDS:g} s", False
            error_text = reason.strerror if isinstance(reason, OSError) and reason.strerror else type(reason).__name__
            return printable(f"no connection: {error_text}"), False


def checked_url(url: str) -> str:
    """The URL; :class:`UsageError` if it is none of http and https."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid or any(text.isspace() or not text.isprintable() for text in url):
        raise UsageError(
            "--webhook takes a URL that begins with http:// or https://", hint="see gpuwatch record --help"
        )
    return url


def masked_url(url: str) -> str:
    """The URL as it may be shown: paths, queries and users of webhooks are secrets."""
    parts = urlsplit(url)
    return printable(f"{parts.scheme}://{parts.hostname}")


def notification_text(alert: Alert) -> str:
    """Text of a notification: the title of the cause, from our list, and the index of the GPU."""
    title = CAUSES.get(alert.finding.id, "a finding")
    gpu = "" if alert.device_index is None else f"GPU {alert.device_index}: "
    text = f"gpuwatch: {gpu}{title}" + (" (resolved)" if alert.phase == "end" else "")
    return "".join(character for character in text if character.isprintable() and character not in ";\\")


class TerminalNotification:
    """``--notify``: desktop notifications by OSC 9 and OSC 777, which many terminals show, and others ignore.

    Only words of ours are sent: what a program on the machine could choose never reaches the terminal. OSC 9 followed
    by ``4;`` would be a progress bar, so a text never begins with it. tmux may have to be asked, which takes time.
    """

    name = "--notify"

    def __init__(self, write: Callable[[str], None], environment: Mapping[str, str]) -> None:
        self._write = write
        self._environment = environment

    def deliver(self, alert: Alert) -> None:
        if sequence := escape_sequence(alert, self._environment):
            self._write(sequence)

    def cancel(self) -> None:
        """A notification is too short to be ended."""


def escape_sequence(alert: Alert, environment: Mapping[str, str]) -> str:
    """What to write to the terminal; empty where it would not arrive."""
    term = environment.get("TERM", "")
    in_tmux = bool(environment.get("TMUX")) or term.startswith("tmux")
    if term in ("", "dumb", "linux", "unknown") or (not in_tmux and (environment.get("STY") or term == "screen")):
        return ""
    text = notification_text(alert)
    body = f"777;notify;gpuwatch;{text}" if term.startswith(_OSC_777_TERMINALS) else f"9;{text}"
    sequence = f"\x1b]{body}\x1b\\"
    if not in_tmux:
        return sequence
    if not _tmux_lets_through():
        return ""
    # tmux: escapes inside are doubled.
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"


def _tmux_lets_through() -> bool:
    try:
        result = subprocess.run(_TMUX_QUERY, capture_output=True, text=True, timeout=_TMUX_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0 and result.stdout.strip() in ("on", "all")
