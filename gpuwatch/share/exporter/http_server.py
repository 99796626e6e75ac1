"""The HTTP server: sends the newest metrics page, and never waits for the driver."""

from __future__ import annotations

import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

from gpuwatch import __version__
from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.parsing import parse_integer
from gpuwatch.share.exporter.access_control import AccessControl
from gpuwatch.share.exporter.metrics_page import CONTENT_TYPES, MetricsPage
from gpuwatch.share.exporter.web_config import WebConfig
from gpuwatch.share.openmetrics_text import TextFormat

_MAX_CONNECTIONS = 500
_MAX_IDLE_SECONDS = 90.0
"""Seconds after which a connection is closed that has not finished a request."""
_MAX_READ_SECONDS = 60.0
"""Seconds that a client may be silent."""
_MAX_REPORTED_FAILURES = 20
"""Different failures of gpuwatch itself that are reported."""
_TEXT_CONTENT_TYPE = "text/plain; charset=utf-8"
_INDEX_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>gpuwatch exporter</title>
<h1>gpuwatch exporter</h1><p>Version {version}. Prometheus scrapes <a href="metrics">/metrics</a>.</p></html>
"""


class Address:
    """Where to listen."""

    def __init__(self, text: str) -> None:
        """``127.0.0.1:9836``, ``[::1]:9836``, ``:9836`` (all addresses), ``localhost:9836``.

        Raises:
            UsageError: it is no address of this machine.
        """
        host, colon, port = text.strip().rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if not colon or (number := parse_integer(port)) is None or number > 65535 or (":" in host and not bracketed):
            raise UsageError(f"{text!r} is not an address such as 127.0.0.1:9836, [::1]:9836 or :9836")
        self.port = number
        name = host[1:-1] if bracketed else host
        try:
            addresses = socket.getaddrinfo(
                name or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE if not name else 0
            )
        except (OSError, UnicodeError):
            raise UsageError(f"cannot listen on {text}: {name} is not a known address") from None
        # All addresses: one socket of IPv6 serves IPv4, too.
        addresses.sort(key=lambda pair: (pair[0] != socket.AF_INET6) if not name else 0)
        self.family, self.sockaddr = addresses[0][0], addresses[0][4]

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        host = str(self.sockaddr[0])
        return host.startswith("127.") or host == "::1"


@dataclass(slots=True)
class _Connection:
    """A connection that is open."""

    socket: socket.socket
    """The socket to read from; under TLS not the accepted one."""
    active_at: float
    """When it was made or last answered."""


class MetricsServer(socketserver.ThreadingTCPServer):
    """Serves the page of ``page()`` in threads of its own."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        address: Address,
        page: Callable[[], MetricsPage],
        *,
        web: WebConfig | None = None,
        max_requests: int,
        plain_only: bool = False,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``max_requests``: how many are answered at once (0: no limit); ``plain_only``: never OpenMetrics.

        Raises:
            GpuwatchError: the address is in use, or not of this machine.
        """
        self.page, self.plain_only, self.log = page, plain_only, log
        self.web = web or WebConfig(None)
        self.access = AccessControl(self.web)
        self.max_requests = max_requests
        self.request_slots = threading.BoundedSemaphore(max_requests or sys.maxsize)
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, _Connection] = {}
        """By the accepted socket."""
        self._failures: set[str] = set()
        self.address_family = address.family
        try:
            super().__init__(cast("Any", address.sockaddr), cast("Any", _Handler))
        except OSError as error:
            shown_address = address_text(address.sockaddr)
            raise GpuwatchError(
                f"cannot listen on {shown_address}: {(error.strerror or str(error)).lower()}",
                hint="--listen ADDRESS:PORT",
            ) from None

    def server_bind(self) -> None:
        """Also for IPv4 if it listens on all addresses."""
        if self.address_family == socket.AF_INET6:
            with suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    @property
    def url(self) -> str:
        scheme = "https" if self.web.settings.tls_context is not None else "http"
        host, port = str(self.server_address[0]), self.server_address[1]
        if host in ("0.0.0.0", "::"):  # noqa: S104  # compared with: it listens on all addresses of this machine
            host = socket.gethostname() or "localhost"
        return f"{scheme}://{address_text((host, port))}/metrics"

    def start(self) -> None:
        """Serves in a thread, until :meth:`stop`."""
        threading.Thread(target=self.serve_forever, args=(0.2,), name="gpuwatch-http", daemon=True).start()

    def stop(self) -> None:
        """Ends it, and all connections."""
        self.shutdown()
        self.server_close()
        self._close_connections(float("inf"))

    def close_idle_connections(self) -> None:
        """Closes connections that have not finished a request for long; call it every few seconds."""
        self._close_connections(time.monotonic() - _MAX_IDLE_SECONDS)

    def _close_connections(self, idle_since: float) -> None:
        with self._lock:
            sockets = [entry.socket for entry in self._connections.values() if entry.active_at < idle_since]
        for connection in sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # its thread wakes up and closes it

    def note_answer(self, connection: socket.socket) -> None:
        """A request has been answered: the connection may be idle from now on."""
        with self._lock:
            if connection in self._connections:
                self._connections[connection].active_at = time.monotonic()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Beyond the most connections the one goes that has been silent for longest: a new scrape is always served."""
        with self._lock:
            if len(self._connections) >= _MAX_CONNECTIONS:
                idlest = min(self._connections, key=lambda connection: self._connections[connection].active_at)
                with suppress(OSError):
                    self._connections.pop(idlest).socket.shutdown(socket.SHUT_RDWR)  # its thread closes it
            self._connections[request] = _Connection(request, time.monotonic())
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serves one connection, in its thread."""
        settings = self.web.settings
        request.settimeout(_MAX_READ_SECONDS)
        if settings.tls_context is None:
            _Handler(request, client_address, self, request)
            return
        tls_socket = settings.tls_context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            if (connection := self._connections.get(request)) is not None:
                connection.socket = tls_socket
        with tls_socket:
            tls_socket.do_handshake()
            if settings.allowed_names and not settings.allowed_names & _certificate_names(tls_socket):
                return
            _Handler(tls_socket, client_address, self, request)
            with suppress(OSError):
                tls_socket.unwrap()

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or fails to identify itself, is no error of ours."""
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self.report_failure(error)

    def report_failure(self, error: Exception) -> None:
        """Says that gpuwatch itself has failed; once for each kind, as there may be many scrapes."""
        description = repr(error)
        if description not in self._failures and len(self._failures) < _MAX_REPORTED_FAILURES:
            self._failures.add(description)
            from gpuwatch.core.crash_files import describe_error

            message, hint = describe_error(error)
            self.log(f"gpuwatch: {message} ({hint})")


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "gpuwatch"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: MetricsServer

    def __init__(self, connection: socket.socket, address: Any, server: MetricsServer, accepted: socket.socket) -> None:
        self._accepted = accepted
        super().__init__(connection, address, server)

    def do_GET(self) -> None:
        if not self.server.request_slots.acquire(blocking=False):
            text = f"Limit of concurrent requests reached ({self.server.max_requests}), try again later.\n"
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "1"})
            return
        try:
            self._answer()
        finally:
            self.server.request_slots.release()

    def do_HEAD(self) -> None:
        """Answers like GET, but without a body."""
        self.do_GET()

    def _answer(self) -> None:
        if not self.server.access.within_rate_limit(time.monotonic()):
            self._send(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests.\n", {})
            return
        if not self.server.access.is_authorized(self.headers.get("Authorization")):
            self._send(HTTPStatus.UNAUTHORIZED, "Unauthorized\n", {"WWW-Authenticate": 'Basic realm="gpuwatch"'})
            return
        path = self.path.partition("?")[0]
        if path == "/metrics":
            accept_header = self.headers.get("Accept", "")
            openmetrics_weight = _accept_weight(accept_header, "application/openmetrics-text")
            preferred = openmetrics_weight > 0 and openmetrics_weight >= _accept_weight(accept_header, "text/plain")
            text_format: TextFormat = "openmetrics" if preferred and not self.server.plain_only else "plain"
            gzip = _accept_weight(self.headers.get("Accept-Encoding", ""), "gzip") > 0
            try:
                body = self.server.page().body(text_format, gzip=gzip)
            except Exception as error:  # noqa: BLE001  # the next sample may be fine
                self.server.report_failure(error)
                self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "gpuwatch failed; its log says why.\n", {})
                return
            headers = {"Content-Encoding": "gzip"} if gzip else {}
            self._send(HTTPStatus.OK, body, headers | {"Vary": "Accept, Accept-Encoding"}, CONTENT_TYPES[text_format])
        elif path == "/":
            self._send(HTTPStatus.OK, _INDEX_PAGE.format(version=__version__), {}, "text/html; charset=utf-8")
        elif path == "/-/healthy":
            self._send(HTTPStatus.OK, "gpuwatch exporter is running.\n", {})
        else:
            self._send(HTTPStatus.NOT_FOUND, "Not found; metrics are at /metrics.\n", {})

    def _send(
        self,
        status: HTTPStatus,
        body: str | bytes,
        extra_headers: dict[str, str],
        content_type: str = _TEXT_CONTENT_TYPE,
    ) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        headers = {"Content-Type": content_type, "Content-Length": str(len(data))}
        for name, text in {**headers, **extra_headers, **self.server.web.settings.headers}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        self.wfile.flush()
        self.server.note_answer(self._accepted)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers what is no request, or has another method, in one line."""
        self.close_connection = True
        extra_headers = {"Connection": "close"}
        if code == HTTPStatus.NOT_IMPLEMENTED:
            status, message = HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD are supported."
            extra_headers["Allow"] = "GET, HEAD"
        else:
            status = HTTPStatus(code)
            self.command, self.request_version = "", self.protocol_version
        self._send(status, f"{message or status.phrase}\n", extra_headers)

    def version_string(self) -> str:
        """The header Server, without Python's version."""
        return self.server_version

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a scrape is no news."""


def address_text(address: Any) -> str:
    """``127.0.0.1:9836``, ``[::1]:9836``."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def _certificate_names(connection: ssl.SSLSocket) -> set[str]:
    certificate = connection.getpeercert() or {}
    listed = cast("tuple[tuple[str, str], ...]", certificate.get("subjectAltName", ()))
    return {name for _, name in listed}


def _accept_weight(header: str, name: str) -> float:
    """The weight of a name in a list such as Accept (RFC 9110, 12.4.2); 0 if it is not there."""
    best = 0.0
    for entry in header[:2000].split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        if media_type.lower() != name:
            continue
        weight = next((part[2:] for part in parameters if part.lower().startswith("q=")), "1")
        with suppress(ValueError):
            best = max(best, float(weight))
    return best
