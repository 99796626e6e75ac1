"""Queries to a Prometheus server: the JSON of its HTTP API, within limits of time and size.

Anything that serves this API works too: Thanos, Mimir, VictoriaMetrics.
"""

from __future__ import annotations

import base64
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import cast

import msgspec

from gpuwatch import __version__
from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.safe_text import printable, shorten

ANSWER_SECONDS = 10.0
"""How long the server has for an answer."""
_READ_BYTES = 1 << 18
_MAX_QUOTED_CHARS = 160
"""Characters of a server's own message that are shown."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One series of an instant query."""

    metric: dict[str, str]
    """Its labels; ``__name__`` is the metric."""
    value: tuple[float, str]
    """Time in seconds since the epoch, and a number as text."""


class Series(msgspec.Struct, frozen=True, gc=False):
    """One series of a range query."""

    metric: dict[str, str]
    values: tuple[tuple[float, str], ...]


class _Vector(msgspec.Struct, tag_field="resultType", tag="vector"):
    result: list[Sample]


class _Matrix(msgspec.Struct, tag_field="resultType", tag="matrix"):
    result: list[Series]


class _Response(msgspec.Struct):
    status: str
    data: _Vector | _Matrix | None = None
    error: str = ""


_response_decoder = msgspec.json.Decoder(_Response)


class NoAnswer(GpuwatchError):
    """The server gave no usable answer: why, in one line."""


class Prometheus:
    """A Prometheus server. ``password``: of the user in ``url``, if that has none.

    ``headers`` go with each query, but not to another address that the server redirects to. ``token_file`` holds a
    bearer token and is read for each query, as tokens are renewed.

    Raises:
        UsageError: ``url`` is not the address of a server.
    """

    def __init__(
        self,
        url: str,
        *,
        password: str = "",
        headers: Mapping[str, str] | None = None,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        timeout: float = ANSWER_SECONDS,
    ) -> None:
        self.address, self.name, user = _parse_address(url, password)
        """Without user and password."""
        self._headers = dict(headers or {})
        if user:
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._token_file = token_file
        self._timeout = timeout
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"--prometheus-ca: {error.strerror or error}") from None
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def query(self, expression: str) -> list[Sample]:
        """The series of an instant query; :class:`NoAnswer` if there is no usable answer."""
        data = self._request("query", {"query": expression})
        if not isinstance(data, _Vector):
            raise self._no_answer("its answer is not a vector")
        return data.result

    def query_range(self, expression: str, begin: float, end: float, step: float) -> list[Series]:
        """The series of a range query; times are in seconds since the epoch."""
        parameters = {"query": expression, "start": f"{begin:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        data = self._request("query_range", parameters)
        if not isinstance(data, _Matrix):
            raise self._no_answer("its answer is not a matrix")
        return data.result

    def _request(self, endpoint: str, parameters: Mapping[str, str]) -> _Vector | _Matrix | None:
        parameters = {**parameters, "timeout": f"{self._timeout:g}s"}
        request = urllib.request.Request(f"{self.address}/api/v1/{endpoint}?{urllib.parse.urlencode(parameters)}")  # noqa: S310  # http or https, see _address
        request.add_header("Accept", "application/json")
        request.add_header("Accept-Encoding", "gzip")
        request.add_header("User-Agent", f"gpuwatch/{__version__}")
        for name, value in {**self._headers, **self._authorization()}.items():
            request.add_unredirected_header(name, value)
        deadline = time.monotonic() + self._timeout
        try:
            with cast("HTTPResponse", self._opener.open(request, timeout=self._timeout)) as response:
                body = self._read_body(response, deadline)
        except urllib.error.HTTPError as error:
            raise self._no_answer(self._refusal(error, deadline)) from None
        except (OSError, HTTPException, ValueError) as error:
            raise self._no_answer(_failure_reason(error)) from None
        try:
            answer = _response_decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise self._no_answer("not a Prometheus response") from None
        if answer.status != "success":
            raise self._no_answer(_shortened(answer.error) or "the query failed")
        return answer.data

    def _authorization(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        try:
            with self._token_file.open(encoding="ascii") as file:
                token = file.read(input_size_limits.TOKEN.bytes + 1).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
            raise NoAnswer(f"the bearer token cannot be read: {reason}") from None
        if len(token) > input_size_limits.TOKEN.bytes:
            raise NoAnswer(f"the bearer token file cannot be read: {input_size_limits.TOKEN.too_large}")
        if not token or not token.isprintable():
            raise NoAnswer("the bearer token file is empty")
        return {"Authorization": f"Bearer {token}"}

    def _read_body(self, response: HTTPResponse, deadline: float) -> bytes:
        """The answer, unpacked; OSError if it is too long or takes too long."""
        limit = input_size_limits.PROMETHEUS
        decompressor = zlib.decompressobj(31) if response.headers.get("Content-Encoding") == "gzip" else None
        parts, size = [], 0
        while chunk := response.read1(_READ_BYTES):
            if decompressor is not None:
                try:
                    chunk = decompressor.decompress(chunk, limit.bytes - size + 1)
                except zlib.error:
                    raise OSError("its answer is damaged") from None
            parts.append(chunk)
            size += len(chunk)
            if size > limit.bytes:
                raise OSError(f"its answer is larger than {limit.size_text}")
            if time.monotonic() > deadline:
                raise TimeoutError
        return b"".join(parts)

    def _refusal(self, error: urllib.error.HTTPError, deadline: float) -> str:
        """Why the server refused, in its own words if it has any."""
        reasons = {401: "authentication required: a user and password, or a token (401)", 403: "access denied (403)"}
        if error.code in reasons:
            return reasons[error.code]
        try:
            message = _response_decoder.decode(self._read_body(cast("HTTPResponse", error), deadline)).error
        except (OSError, HTTPException, ValueError, AttributeError, RecursionError):
            message = ""
        return f"{_shortened(message)} ({error.code})" if message else f"HTTP error {error.code}"

    def _no_answer(self, why: str) -> NoAnswer:
        return NoAnswer(f"{self.name}: {why}")


def _parse_address(url: str, password: str) -> tuple[str, str, str]:
    """The base of all requests, the server's name for the user, and ``user:password``."""
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urllib.parse.urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, None
    if parts is None or not host or parts.scheme not in ("http", "https") or not text.isprintable() or " " in text:
        raise UsageError("--prometheus needs the address of a server", hint="for example http://prometheus:9090")
    if parts.query or parts.fragment:
        raise UsageError("--prometheus takes an address without ? and #", hint="for example http://prometheus:9090")
    bracketed_host = f"[{host}]" if ":" in host else host
    netloc = f"{bracketed_host}:{port}" if port is not None else bracketed_host
    path = parts.path.rstrip("/").removesuffix("/api/v1").removesuffix("/graph")
    credentials = ""
    if parts.username is not None:
        secret = urllib.parse.unquote(parts.password) if parts.password else password
        credentials = f"{urllib.parse.unquote(parts.username)}:{secret}"
    return (f"{parts.scheme}://{netloc}{urllib.parse.quote(path, safe='/%')}", f"{netloc}{path}", credentials)


def _shortened(text: str) -> str:
    return printable(shorten(" ".join(text.split()), _MAX_QUOTED_CHARS))


def _failure_reason(error: Exception) -> str:
    """Why there was no answer, in a few words."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    if isinstance(cause, socket.gaierror):
        return "host not found"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {_shortened(cause.verify_message)}"
    if isinstance(cause, ssl.SSLError):
        return "TLS failed: is it https?"
    if isinstance(cause, HTTPException):
        return "it does not speak HTTP"
    if isinstance(cause, OSError) and cause.strerror:
        return _shortened(cause.strerror.lower())
    return _shortened(str(cause)) or "no answer"
