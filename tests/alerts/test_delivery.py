"""Commands, webhooks and notifications: real processes, a real server, and nothing that could delay sampling."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
from msgspec.structs import replace

from gpuwatch.core.errors import UsageError
from gpuwatch.core.model.alert import Alert
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.json_codec import schema_of
from gpuwatch.session import alert_delivery
from gpuwatch.session.alert_delivery import (
    MAX_WAITING_ALERTS,
    AlertCommand,
    DeliveryThread,
    Webhook,
    checked_url,
    escape_sequence,
    masked_url,
    notification_text,
)
from gpuwatch.session.alerts import Alerts
from tests.alerts.test_onsets import HOT
from tests.every import every
from tests.ui import machines
from tests.ui.machines import NOON
from tests.waiting import remains, wait_for

ALERT = Alert(phase="onset", at=NOON, host="node07", simulated=False, finding=HOT, device_index=0)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_delivery, "RETRY_SECONDS", (0.01, 0.01))


class Sent:
    """A channel, and the failures that it reports."""

    def __init__(self, delivery: AlertCommand | Webhook) -> None:
        self.failures = list[str]()
        self.channel = DeliveryThread(delivery, self.failures.append)

    def send(self, alert: Alert = ALERT) -> None:
        began = time.monotonic()
        self.channel.send(alert)
        assert time.monotonic() - began < 0.5


@pytest.fixture
def started() -> Iterator[Callable[[AlertCommand | Webhook], Sent]]:
    every: list[Sent] = []
    before = set(psutil.Process().children())

    def start(delivery: AlertCommand | Webhook) -> Sent:
        every.append(Sent(delivery))
        return every[-1]

    yield start
    for sent in every:
        sent.channel.close()
    assert set(psutil.Process().children()) <= before, "no process is left, not even a zombie"


Start = Callable[[AlertCommand | Webhook], Sent]


# Commands


def test_a_command_gets_the_finding(started: Start, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sent = started(
        AlertCommand(f"cat > {out}.json; env | grep ^GPUWATCH_ALERT_ | sort > {out}.tmp; mv {out}.tmp {out}")
    )
    sent.send()
    wait_for(out.exists)
    document = json.loads((tmp_path / "out.json").read_text())
    jsonschema.validate(document, schema_of("alert"))
    assert (document["phase"], document["finding"]["id"], document["host"]) == ("onset", "throttle.thermal", "node07")
    assert out.read_text().splitlines() == [
        "GPUWATCH_ALERT_CAUSE=throttle.thermal", "GPUWATCH_ALERT_GPU=0", "GPUWATCH_ALERT_PHASE=onset",
        "GPUWATCH_ALERT_PID=", "GPUWATCH_ALERT_SEVERITY=warning",
    ]  # fmt: skip
    assert sent.failures == []


def test_nothing_of_a_finding_reaches_the_shell(started: Start, tmp_path: Path) -> None:
    evil = f"$(touch {tmp_path}/a) `touch {tmp_path}/b`; touch {tmp_path}/c\n' \" | touch {tmp_path}/d"
    sent = started(AlertCommand(f'cat > /dev/null; echo "$GPUWATCH_ALERT_CAUSE $GPUWATCH_ALERT_GPU" > {tmp_path}/done'))
    sent.send(replace(ALERT, host=evil, finding=replace(HOT, title=evil, evidence=(evil,), action=evil)))
    wait_for((tmp_path / "done").exists)
    assert [path.name for path in tmp_path.iterdir()] == ["done"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("exit 3", "--on-finding: the command failed with exit code 3"),
        ("gpuwatch-no-such-command", "--on-finding: the command was not found (exit code 127)"),
        ("kill -9 $$", "--on-finding: the command was ended by signal 9"),
    ],
)
def test_a_command_that_fails_is_one_event(started: Start, command: str, message: str) -> None:
    sent = started(AlertCommand(command))
    for _ in range(5):
        sent.send()
    wait_for(lambda: sent.failures)
    remains(lambda: sent.failures == [message], 0.3)


def test_a_command_that_hangs_is_ended_with_all_that_it_started(
    started: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_delivery, "COMMAND_SECONDS", 0.5)
    sent = started(AlertCommand(f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/child; wait; wait"))
    sent.send()
    wait_for(lambda: sent.failures)
    assert sent.failures == ["--on-finding: the command ran for 0.5 s and was stopped"]
    assert_gone(int((tmp_path / "child").read_text()))


def assert_gone(pid: int) -> None:
    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    wait_for(gone)


def test_the_end_of_gpuwatch_ends_a_command(started: Start, tmp_path: Path) -> None:
    sent = started(AlertCommand(f"echo $$ > {tmp_path}/tmp; mv {tmp_path}/tmp {tmp_path}/pid; sleep 600"))
    sent.send()
    sent.send()
    wait_for((tmp_path / "pid").exists)
    began = time.monotonic()
    sent.channel.close()
    assert time.monotonic() - began < 3
    assert_gone(int((tmp_path / "pid").read_text()))
    assert sent.failures == []


def test_a_queue_that_is_full_drops_and_says_so(started: Start) -> None:
    sent = started(AlertCommand("sleep 600"))
    for _ in range(MAX_WAITING_ALERTS + 10):
        sent.send()
    assert sent.failures == [f"--on-finding: {MAX_WAITING_ALERTS} alerts are waiting; more are dropped"]


def test_its_output_is_discarded(capfd: pytest.CaptureFixture[str], started: Start, tmp_path: Path) -> None:
    sent = started(AlertCommand(f"echo out; echo err >&2; touch {tmp_path}/done"))
    sent.send()
    wait_for((tmp_path / "done").exists)
    sent.channel.close()
    assert capfd.readouterr() == ("", "")


# Webhooks


class Server(http.server.ThreadingHTTPServer):
    """Answers with the codes of a list, then 204."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.codes = list[int]()
        self.bodies = list[Any]()
        self.paths = list[str]()
        self.delay = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook/s3cret?token=abc"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        assert self.headers["Content-Type"] == "application/json"
        self.server.bodies.append(json.loads(self.rfile.read(length)))
        self.server.paths.append(self.path)
        time.sleep(self.server.delay)  # a slow server
        self.send_response(self.server.codes.pop(0) if self.server.codes else 204)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_webhook_gets_the_finding(started: Start, server: Server) -> None:
    sent = started(Webhook(server.url))
    sent.send()
    (body,) = wait_for(lambda: server.bodies)
    jsonschema.validate(body, schema_of("alert"))
    assert server.paths == ["/hook/s3cret?token=abc"]
    assert sent.failures == []


def test_it_is_tried_again_where_that_helps(started: Start, server: Server) -> None:
    server.codes = [503, 429]
    sent = started(Webhook(server.url))
    sent.send()
    wait_for(lambda: len(server.bodies) == 3)
    remains(lambda: sent.failures == [] and len(server.bodies) == 3, 0.1)


@pytest.mark.parametrize(("codes", "posts", "why"), [([500] * 3, 3, 500), ([404], 1, 404), ([302], 1, 302)])
def test_a_server_that_refuses_is_one_event(
    started: Start, server: Server, codes: list[int], posts: int, why: int
) -> None:
    server.codes = codes
    sent = started(Webhook(server.url))
    sent.send()
    wait_for(lambda: sent.failures)
    assert sent.failures[0].endswith(f" {why}")
    assert len(server.bodies) == posts
    assert "/elsewhere" not in server.paths


def test_a_server_that_does_not_answer(started: Start, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_delivery, "WEBHOOK_SECONDS", 0.2)
    server.delay = 2.0
    sent = started(Webhook(server.url))
    sent.send()
    wait_for(lambda: sent.failures)
    assert sent.failures[0].endswith("no answer within 0.2 s")


def test_no_server(started: Start, server: Server) -> None:
    url = server.url
    server.shutdown()
    server.server_close()
    sent = started(Webhook(url))
    sent.send()
    wait_for(lambda: sent.failures)
    assert sent.failures == ["webhook http://127.0.0.1: no connection: Connection refused"]


def test_certificates_are_verified(started: Start, server: Server, tmp_path: Path) -> None:
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")],
        capture_output=True, check=False,
    ) if Path("/usr/bin/openssl").exists() else None  # fmt: skip
    if made is None or made.returncode:
        pytest.skip("openssl makes no certificate here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    sent = started(Webhook(server.url.replace("http:", "https:")))
    sent.send()
    wait_for(lambda: sent.failures)
    assert "no connection" in sent.failures[0]
    assert server.bodies == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/y", "x", "http://", "http://a b/", "http://a:99999/"])
def test_only_http(url: str) -> None:
    with pytest.raises(UsageError):
        checked_url(url)


def test_the_url_is_never_shown_whole() -> None:
    assert masked_url("https://user:pw@hooks.example.com:8443/T0/B0/secret?x=y") == "https://hooks.example.com"


# Notifications


def test_a_notification_has_our_words_only() -> None:
    evil = replace(HOT, title="\x1b]0;evil\x07 4;3;50", evidence=("\x07",))
    written = escape_sequence(replace(ALERT, host="\x1bx", finding=evil), {"TERM": "xterm-256color"})
    assert written == f"\x1b]9;gpuwatch: GPU 0: {CAUSES['throttle.thermal']}\x1b\\"
    foreign = replace(ALERT, finding=replace(HOT, id="4;1;\x1b\\evil"))
    assert escape_sequence(foreign, {"TERM": "xterm"}) == "\x1b]9;gpuwatch: GPU 0: a finding\x1b\\"


@every(list(CAUSES))
def test_it_is_never_a_progress_bar(cause: str) -> None:
    for phase in ("onset", "end"):
        text = notification_text(replace(ALERT, phase=phase, finding=replace(HOT, id=cause)))
        assert text.startswith("gpuwatch: ")
        assert not re.search(r"[\x00-\x1f\x7f-\x9f;\\]", text)


@pytest.mark.parametrize(
    ("environment", "lets", "start"),
    [
        ({"TERM": "foot"}, True, "\x1b]777;notify;gpuwatch;gpuwatch: "),
        ({"TERM": "xterm-kitty"}, True, "\x1b]9;gpuwatch: "),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x"}, True, "\x1bPtmux;\x1b\x1b]9;gpuwatch: "),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x"}, False, ""),
        ({"TERM": "screen", "STY": "1"}, True, ""),
        ({"TERM": "linux"}, True, ""),
        ({}, True, ""),
    ],
)
def test_terminals(environment: dict[str, str], lets: bool, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_delivery, "_tmux_lets_through", lambda: lets)
    written = escape_sequence(ALERT, environment)
    assert written.startswith(start)
    assert bool(written) == bool(start)
    assert written == "" or written.endswith("\x1b\\")


def test_notifications_are_off_unless_asked_for() -> None:
    written: list[str] = []
    for notify in (False, True):
        alerts = Alerts(notify=notify)
        alerts.write_to(written.append)
        alerts.observe((HOT,), machines.pair())
        if notify and os.environ.get("TERM") not in (None, "", "dumb"):
            wait_for(lambda: written)
        alerts.close()
        assert notify or not written


def test_failures_become_events(tmp_path: Path) -> None:
    alerts = Alerts(command="exit 1")
    alerts.observe((HOT,), machines.pair())
    (event,) = wait_for(alerts.events)
    assert (event.kind, event.severity) == ("alert.failed", "warning")
    assert event.text.endswith("exit code 1")
    alerts.close()
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
