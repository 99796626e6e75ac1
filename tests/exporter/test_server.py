"""The HTTP server: what it answers, to whom, and how many."""

from __future__ import annotations

import base64
import gzip
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.share.exporter import http_server as server_module
from gpuwatch.share.exporter.http_server import Address, MetricsServer
from gpuwatch.share.exporter.metric_series import ScrapeContent
from gpuwatch.share.exporter.metrics_page import MetricsPage
from gpuwatch.share.exporter.web_config import WebConfig
from tests.exporter.certificates import Authority
from tests.exporter.machines import OPTIONS, device, snapshot

PAGE = MetricsPage(ScrapeContent(snapshot(device()), driver_answers=True), OPTIONS, 0.0)
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
Serve = Callable[..., MetricsServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    started: list[MetricsServer] = []

    def start(
        page: Callable[[], MetricsPage] = lambda: PAGE, address: str = "127.0.0.1:0", **options: object
    ) -> MetricsServer:
        server = MetricsServer(Address(address), page, **{"max_requests": 40, **options})  # type: ignore[arg-type]
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


def connection(server: MetricsServer) -> http.client.HTTPConnection:
    host, port = server.server_address[:2]
    return http.client.HTTPConnection(str(host), int(port), timeout=10)


def get(server: MetricsServer, path: str = "/metrics", method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    client = connection(server)
    client.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
    response = client.getresponse()
    response.body = response.read()  # type: ignore[attr-defined]
    client.close()
    return response


def body(response: http.client.HTTPResponse) -> bytes:
    found: bytes = response.body  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "text/plain"),
        ("*/*", "text/plain"),
        (PROMETHEUS, "application/openmetrics-text"),
        ("text/plain;version=0.0.4;q=1,application/openmetrics-text;q=0.5", "text/plain"),
        ("application/openmetrics-text;q=0", "text/plain"),
        ("application/openmetrics-text;q=nonsense", "text/plain"),
        ("APPLICATION/OPENMETRICS-TEXT; version=1.0.0", "application/openmetrics-text"),
    ],
)
def test_the_format_is_the_one_that_is_wanted(serve: Serve, accept: str, form: str) -> None:
    response = get(serve(), Accept=accept)
    assert response.status == 200
    assert (response.getheader("Content-Type") or "").startswith(form)
    assert body(response).endswith(b"# EOF\n") == form.startswith("application")


def test_compat_is_never_openmetrics(serve: Serve) -> None:
    response = get(serve(plain_only=True), Accept=PROMETHEUS)
    assert (response.getheader("Content-Type") or "").startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize(
    ("encoding", "packed"), [("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("", False)]
)
def test_compressed_if_that_is_accepted(serve: Serve, encoding: str, packed: bool) -> None:
    response = get(serve(), Accept_Encoding=encoding)
    assert (response.getheader("Content-Encoding") == "gzip") == packed
    assert b"gpuwatch_gpu_info" in (gzip.decompress(body(response)) if packed else body(response))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/-/healthy", 200),
        ("GET", "/metrics?collect[]=x", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/nothing", 404),
        ("GET", "/../../etc/passwd", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/metrics", 405),
    ],
)
def test_paths_and_methods(serve: Serve, method: str, path: str, status: int) -> None:
    response = get(serve(), path, method)
    assert response.status == status
    assert response.getheader("Server") == "gpuwatch"
    assert (body(response) == b"") == (method == "HEAD")
    assert int(response.getheader("Content-Length") or 0) > 0


@pytest.mark.parametrize(
    "request_text", [b"nonsense\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\r\n\r\n"]
)
def test_what_is_no_request_gets_an_error_and_the_server_goes_on(serve: Serve, request_text: bytes) -> None:
    said: list[str] = []
    server = serve(log=said.append)
    with socket.create_connection(server.server_address[:2], timeout=10) as client:  # type: ignore[arg-type]
        client.sendall(request_text)
        assert client.recv(1000).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 505 "))
    assert get(server).status == 200
    assert said == []


def test_a_failure_of_gpuwatch_itself_is_told_once(serve: Serve) -> None:
    said: list[str] = []

    def broken() -> MetricsPage:
        raise KeyError("of a test")

    server = serve(broken, log=said.append)
    for _ in range(3):
        response = get(server)
        assert response.status == 500
        assert b"of a test" not in body(response)
    assert get(server, "/-/healthy").status == 200
    assert len(said) == 1
    assert "KeyError" in said[0]


def test_a_connection_is_kept_for_the_next_scrape(serve: Serve) -> None:
    client = connection(serve())
    for _ in range(3):
        client.request("GET", "/metrics")
        assert b"gpuwatch_gpu_info" in client.getresponse().read()
    assert client.sock is not None
    client.close()


def test_more_requests_than_allowed_get_503(serve: Serve) -> None:
    inside, go_on = threading.Semaphore(0), threading.Event()

    def slow() -> MetricsPage:
        inside.release()
        assert go_on.wait(10)
        return PAGE

    server = serve(slow, max_requests=2)
    codes: list[int] = []
    waiting = [threading.Thread(target=lambda: codes.append(get(server).status)) for _ in range(2)]
    for one in waiting:
        one.start()
        assert inside.acquire(timeout=10)
    refused = get(server)
    assert refused.status == 503
    assert refused.getheader("Retry-After") == "1"
    go_on.set()
    for one in waiting:
        one.join(10)
    assert codes == [200, 200]
    assert get(server).status == 200


def test_many_scrape_at_once(serve: Serve) -> None:
    server = serve(max_requests=0)
    codes: list[int] = []
    clients = [threading.Thread(target=lambda: codes.append(get(server).status)) for _ in range(100)]
    for one in clients:
        one.start()
    for one in clients:
        one.join(30)
    assert codes == [200] * 100


def test_who_says_nothing_is_sent_away(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_MAX_IDLE_SECONDS", 0.2)
    server = serve()
    with socket.create_connection(server.server_address[:2], timeout=10) as client:  # type: ignore[arg-type]
        client.sendall(b"GET /metr")
        time.sleep(0.3)  # longer than a client may be silent
        server.close_idle_connections()
        assert client.recv(1000) == b""
    assert get(server).status == 200


def test_beyond_the_limit_the_longest_silent_connection_goes(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_MAX_CONNECTIONS", 3)
    server = serve()
    held = [socket.create_connection(server.server_address[:2], timeout=10) for _ in range(8)]  # type: ignore[arg-type]
    assert get(server).status == 200  # at once, though all that are open say nothing
    assert [one.recv(10) for one in held[:5]] == [b""] * 5
    assert len(server._connections) <= 3
    for one in held:
        one.close()


@pytest.mark.parametrize("text", ["9836", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "::1:9836", "a:b", "[::1:9836"])
def test_what_is_no_address_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address such as"):
        Address(text)


def test_unknown_hosts_and_used_ports_are_said(serve: Serve) -> None:
    with pytest.raises(UsageError, match="not a known address"):
        Address("no-such-host.invalid:1")
    port = serve().server_address[1]
    with pytest.raises(GpuwatchError, match=f"cannot listen on 127.0.0.1:{port}: address already in use"):
        MetricsServer(Address(f"127.0.0.1:{port}"), lambda: PAGE, max_requests=1)
    with pytest.raises(GpuwatchError, match=r"cannot listen on 203\.0\.113\.1:9836: cannot assign"):
        MetricsServer(Address("203.0.113.1:9836"), lambda: PAGE, max_requests=1)


def test_loopback_is_known() -> None:
    assert Address("127.0.0.1:1").loopback
    assert Address("[::1]:1").loopback
    assert not Address(":1").loopback
    assert not Address("0.0.0.0:1").loopback


def test_all_addresses_are_those_of_both_protocols(serve: Serve) -> None:
    port = serve(address=":0").server_address[1]
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, port), timeout=10) as client:
            client.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200")


# Users and TLS


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def with_users(folder: Path) -> WebConfig:
    import bcrypt

    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    path = folder / "web.yml"
    path.write_text(
        f"basic_auth_users:\n  alice: {hashed}\nhttp_server_config:\n  headers:\n    X-Frame-Options: deny\n"
    )
    return WebConfig(path)


def test_a_limited_rate(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text("rate_limit:\n  interval: 1h\n  burst: 2\n")
    server = serve(web=WebConfig(path))
    assert [get(server).status for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("", 401),
        (basic("alice", "secret"), 200),
        (basic("alice", "wrong"), 401),
        (basic("bob", "secret"), 401),
        (basic("", ""), 401),
        ("Basic !!!", 401),
        ("Bearer " + base64.b64encode(b"alice:secret").decode(), 401),
        (basic("alice", "s" * 5000), 401),
        (basic("alice", "sécrèt\0"), 401),
    ],
)
def test_users_need_their_password(serve: Serve, tmp_path: Path, authorization: str, status: int) -> None:
    server = serve(web=with_users(tmp_path))
    for path in ("/metrics", "/", "/nothing"):
        response = get(server, path, Authorization=authorization)
        assert response.status == (404 if path == "/nothing" and status == 200 else status)
        assert response.getheader("X-Frame-Options") == "deny"
        assert (response.getheader("WWW-Authenticate") is not None) == (status == 401)
        assert b"gpuwatch_gpu" not in body(response) or status == 200


def tls_get(server: MetricsServer, context: ssl.SSLContext) -> bytes:
    client = http.client.HTTPSConnection("localhost", server.server_address[1], context=context, timeout=10)
    client.request("GET", "/metrics")
    text = client.getresponse().read()
    client.close()
    return text


def write_tls(folder: Path, authority: Authority, more: str = "") -> Path:
    authority.issue("localhost", folder / "server")
    path = folder / "web.yml"
    path.write_text(f"tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n{more}")
    return path


def test_tls_with_a_certificate_that_is_replaced(serve: Serve, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    said: list[str] = []
    server = serve(web=WebConfig(write_tls(tmp_path, authority), said.append))
    assert server.url.startswith("https://")
    assert b"gpuwatch_gpu_info" in tls_get(server, authority.trusting())
    other = Authority(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        tls_get(server, other.trusting())
    (tmp_path / "server.key").write_text("half written")
    assert b"gpuwatch_gpu_info" in tls_get(server, authority.trusting())
    assert len(said) == 1
    assert "cannot use the certificate" in said[0]
    other.issue("localhost", tmp_path / "server")
    assert b"gpuwatch_gpu_info" in tls_get(server, other.trusting())
    with pytest.raises(ssl.SSLCertVerificationError):
        tls_get(server, authority.trusting())


def test_plain_http_to_tls_gets_nothing(serve: Serve, tmp_path: Path) -> None:
    said: list[str] = []
    server = serve(web=WebConfig(write_tls(tmp_path, Authority(tmp_path / "ca"))), log=said.append)
    with pytest.raises((http.client.HTTPException, OSError)):
        get(server)
    assert said == []


def test_clients_must_have_a_certificate(serve: Serve, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "ca"), Authority(tmp_path / "stranger")
    more = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n"
    server = serve(web=WebConfig(write_tls(tmp_path, authority, more)))
    assert server.web.settings.protected
    with pytest.raises((ssl.SSLError, OSError)):
        tls_get(server, authority.trusting())
    foreign = authority.trusting()
    foreign.load_cert_chain(*stranger.issue("prometheus", tmp_path / "foreign"))
    with pytest.raises((ssl.SSLError, OSError)):
        tls_get(server, foreign)
    known = authority.trusting()
    known.load_cert_chain(*authority.issue("prometheus", tmp_path / "client"))
    assert b"gpuwatch_gpu_info" in tls_get(server, known)


def test_only_certain_clients(serve: Serve, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    more = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n"
    more += "  client_allowed_sans: [prometheus]\n"
    server = serve(web=WebConfig(write_tls(tmp_path, authority, more)))
    for name, allowed in (("prometheus", True), ("mallory", False)):
        context = authority.trusting()
        context.load_cert_chain(*authority.issue(name, tmp_path / name))
        if allowed:
            assert b"gpuwatch_gpu_info" in tls_get(server, context)
        else:
            with pytest.raises((http.client.HTTPException, OSError)):
                tls_get(server, context)
