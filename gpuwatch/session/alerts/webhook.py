"""Posts each alert as JSON to a URL. Certificates are verified, redirects refused, and the URL is never shown whole."""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from gpuwatch import __version__
from gpuwatch.core.errors import UsageError
from gpuwatch.core.model.findings import Alert
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.core.safe_text import printable
from gpuwatch.session.alerts.delivery_thread import DeliveryFailed

TIMEOUT_SECONDS = 10.0
"""Seconds without an answer."""
RETRY_SECONDS = (1.0, 4.0)
"""Seconds before the second and the third attempt, which is the last."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead anywhere, and would become a GET without the alert."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Webhook:
    """``--webhook URL``."""

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
            with self._opener.open(request, timeout=TIMEOUT_SECONDS):
                return "", False
        except urllib.error.HTTPError as error:
            error.close()
            return f"the server answered {error.code}", error.code < 500 and error.code not in (408, 429)
        except (OSError, http.client.HTTPException, ValueError) as error:  # urllib's URLError is an OSError
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                return f"no answer within {TIMEOUT_SECONDS:g} s", False
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
