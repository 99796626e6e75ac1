"""A server that is not there, refuses, or is hostile: one line each, within time and size."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import UsageError
from gpuwatch.fleet.prometheus_api import NoAnswer, Prometheus
from tests.fleet.prometheus_server import FakePrometheus, served


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    with served() as running:
        yield running


def why(server: Prometheus) -> str:
    with pytest.raises(NoAnswer) as error:
        server.query("up")
    assert error.value.message.startswith(f"{server.name}: ")
    assert "\n" not in error.value.message
    return error.value.message.removeprefix(f"{server.name}: ")


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert why(Prometheus(url)) == "connection refused"


def test_no_such_host() -> None:
    assert why(Prometheus("http://prometheus.invalid:9090")) in ("host not found", "no answer in time")


def test_user_and_password_of_the_address(fake: FakePrometheus) -> None:
    fake.user = "ops:p@ss:word"
    assert why(Prometheus(fake.url)) == "authentication required: a user and password, or a token (401)"
    server = Prometheus(fake.url.replace("http://", "http://ops:p%40ss%3Aword@"))
    assert server.query("up") == []
    assert "ops" not in server.name
    assert Prometheus(fake.url.replace("http://", "http://ops@"), password="p@ss:word").query("up") == []


def test_headers_and_token(fake: FakePrometheus, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("abc\n")
    server = Prometheus(fake.url, headers={"X-Scope-OrgID": "lab"}, token_file=token)
    server.query("up")
    token.write_text("def\n")
    server.query("up")
    sent = [{name.lower(): value for name, value in one.items()} for one in fake.headers]
    assert [one["authorization"] for one in sent] == ["Bearer abc", "Bearer def"], "read anew for each query"
    assert sent[0]["x-scope-orgid"] == "lab"
    token.unlink()
    with pytest.raises(NoAnswer, match="the bearer token cannot be read: No such file"):
        server.query("up")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>hello</html>", "not a Prometheus response"),
        (b"[" * 100_000, "not a Prometheus response"),
        (b'{"status":"error","error":"too many\\nsamples \\u001b[2J"}', "too many samples \\x1b[2J"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "its answer is not a vector"),
        (
            b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}',
            "not a Prometheus response",
        ),
        ((500, b"oops"), "HTTP error 500"),
        ((422, b'{"status":"error","error":"query timed out"}'), "query timed out (422)"),
        ((403, b""), "access denied (403)"),
    ],
)
def test_answers_that_are_none(fake: FakePrometheus, body: bytes | tuple[int, bytes], reason: str) -> None:
    fake.answer = lambda query: body
    assert why(Prometheus(fake.url)) == reason


def test_an_answer_that_unpacks_to_too_much(fake: FakePrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_size_limits, "PROMETHEUS", input_size_limits.PROMETHEUS._replace(bytes=1 << 20))
    fake.answer = lambda query: b" " * (8 << 20)
    assert len(gzip.compress(b" " * (8 << 20), 1)) < 1 << 20, "small on the wire"
    assert "larger than 1 MiB" in why(Prometheus(fake.url))


def test_a_server_that_sends_a_byte_at_a_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def drip() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
                while not ended.wait(0.05):
                    try:
                        client.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        assert why(Prometheus(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.6)) == "no answer in time"
        assert time.monotonic() - began < 5
        ended.set()
        thread.join()


def test_something_that_does_not_speak_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65536)
                client.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        assert why(Prometheus(f"http://127.0.0.1:{listener.getsockname()[1]}")) == "it does not speak HTTP"
        thread.join()


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://a b", "http://x:99999", "http://[::1", "http://x\n"])
def test_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="needs the address of a server"):
        Prometheus(url)


def test_secrets_do_not_follow_a_redirect(fake: FakePrometheus) -> None:
    with served() as other:
        server = Prometheus(fake.url.replace("http://", "http://u:p@"))
        fake.answer = lambda query: (302, json.dumps({}).encode())
        with pytest.raises(NoAnswer):
            server.query("up")
        assert not other.headers


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("prometheus:9090", "prometheus:9090"),
        ("https://user:pw@prom.example/graph", "prom.example"),
        ("http://[::1]:9090/prefix/", "[::1]:9090/prefix"),
        ("http://mimir/prometheus/api/v1", "mimir/prometheus"),
    ],
)
def test_names(url: str, name: str) -> None:
    assert Prometheus(url).name == name
