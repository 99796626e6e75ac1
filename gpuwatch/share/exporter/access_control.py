"""Which requests the exporter answers: those within the rate limit, with the name and password of a user."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import threading

from gpuwatch.share.exporter.web_config import WebConfig

_UNKNOWN_USER_HASH = "$2b$10$5yyahqD4U.TYz5ht3JnphObXQpQ7u7U8hEcPdzZKszH2KbbYcBWfy"
"""The hash that the password of an unknown user is compared with, so that the time does not tell who is known."""
_CACHE_KEY_SALT = os.urandom(32)
_MAX_CACHED_PASSWORDS = 100
"""Passwords whose comparison is remembered: bcrypt is slow on purpose."""


class AccessControl:
    """Checks requests by the current settings of a web configuration."""

    def __init__(self, config: WebConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._password_results: dict[bytes, bool] = {}
        self._requests_left = 0.0
        """Requests that the limit of the rate allows now (token bucket)."""
        self._requests_counted_at = float("-inf")
        """When they were counted, by the monotonic clock."""

    def within_rate_limit(self, now: float) -> bool:
        """Whether the limit of the rate lets a request through at this moment of the monotonic clock (token bucket)."""
        settings = self._config.settings
        if not settings.rate_interval:
            return True
        with self._lock:
            self._requests_left = min(
                self._requests_left + (now - self._requests_counted_at) / settings.rate_interval, settings.rate_burst
            )
            self._requests_counted_at = now
            if self._requests_left < 1:
                return False
            self._requests_left -= 1
            return True

    def is_authorized(self, authorization: str | None) -> bool:
        """Whether a request with this header (Basic, RFC 7617) may be answered."""
        users = self._config.settings.users
        if not users:
            return True
        scheme, _, encoded = (authorization or "").partition(" ")
        try:
            name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        if scheme.lower() != "basic" or not colon:
            return False
        matches = self._password_matches(name, password, users.get(name, _UNKNOWN_USER_HASH))
        return matches and name in users

    def _password_matches(self, name: str, password: str, hashed: str) -> bool:
        import bcrypt

        key = hmac.digest(_CACHE_KEY_SALT, "\0".join((name, hashed, password)).encode(), "sha256")
        is_correct = self._password_results.get(key)
        if is_correct is None:
            # bcrypt itself ignores what is behind 72 bytes; newer versions of the library refuse such passwords.
            is_correct = bcrypt.checkpw(password.encode()[:72], hashed.encode())
            with self._lock:
                while len(self._password_results) >= _MAX_CACHED_PASSWORDS:
                    del self._password_results[next(iter(self._password_results))]
                self._password_results[key] = is_correct
        return is_correct
