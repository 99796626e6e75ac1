"""The web configuration file of Prometheus's exporters: TLS, client certificates, users, headers, rate limit.

Its format is that of prometheus/exporter-toolkit (docs/web-configuration.md). A setting that cannot be kept here is an
error, never ignored. File and certificates are read again when they change; while they are wrong, the last ones hold.
"""

from __future__ import annotations

import re
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.safe_text import printable, shorten

_TLS_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH_TYPES = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    # Asks for a certificate, and lets everyone in.
    "RequestClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
# Go's names of the cipher suites of TLS 1.2 (crypto/tls.CipherSuites), and OpenSSL's.
_CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
# Their suites of TLS 1.3 cannot be chosen, in Go neither.
_CIPHERS |= dict.fromkeys(("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"), "")
_CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
_HEADER_NAMES = (
    "Content-Security-Policy",
    "X-Frame-Options",
    "X-Content-Type-Options",
    "X-XSS-Protection",
    "Strict-Transport-Security",
)
_TOP_LEVEL_TYPES = dict.fromkeys(("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"), dict)
# Go's time.ParseDuration
_DURATION_PARTS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ns|us|µs|ms|s|m|h)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_FILE_SETTINGS = ("cert", "key", "client_ca")
_TLS_SETTING_TYPES: dict[str, type] = {
    **dict.fromkeys((*_FILE_SETTINGS, *(f"{key}_file" for key in _FILE_SETTINGS)), str),
    **dict.fromkeys(("client_auth_type", "min_version", "max_version"), str),
    **dict.fromkeys(("client_allowed_sans", "cipher_suites", "curve_preferences"), list),
    "prefer_server_cipher_suites": bool,
}


class WebSettings(NamedTuple):
    """What a web configuration asks for, checked; by default neither TLS nor users."""

    tls_context: ssl.SSLContext | None = None
    users: Mapping[str, str] = {}
    """Hash of the password by name."""
    headers: Mapping[str, str] = {}
    allowed_names: frozenset[str] = frozenset()
    """Subject alternative names of which a client's certificate must have one."""
    rate_interval: float = 0.0
    """Seconds between requests in the long run; 0: no limit."""
    rate_burst: int = 0
    """How many requests may come at once."""

    @property
    def protected(self) -> bool:
        """Whether only some may read."""
        return bool(self.users) or (self.tls_context is not None and self.tls_context.verify_mode is ssl.CERT_REQUIRED)


class WebConfig:
    """A web configuration file, read again when it changes."""

    def __init__(self, path: Path | None, log: Callable[[str], None] = lambda text: None) -> None:
        """Reads the file (None: neither TLS nor users). ``log`` is called with errors in later versions of it.

        Raises:
            UsageError: it cannot be used.
        """
        self._path, self._log = path, log
        self._lock = threading.Lock()
        self._files: tuple[Path, ...] = ()
        self._file_stamps: tuple[object, ...] = ()
        self._settings = WebSettings()
        if path is not None:
            self._settings, self._files = _read_config(path)
            self._file_stamps = self._read_file_stamps()

    @property
    def settings(self) -> WebSettings:
        if self._path is None:
            return self._settings
        with self._lock:
            file_stamps = self._read_file_stamps()
            if file_stamps != self._file_stamps:
                self._file_stamps = file_stamps
                try:
                    self._settings, self._files = _read_config(self._path)
                except UsageError as error:
                    self._log(f"gpuwatch: {error.message}; its last valid version remains in effect")
                else:
                    self._file_stamps = self._read_file_stamps()
            return self._settings

    def _read_file_stamps(self) -> tuple[object, ...]:
        """What tells whether a file has changed."""
        return tuple(map(_file_stamp, self._files))


def _file_stamp(path: Path) -> object:
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read_config(path: Path) -> tuple[WebSettings, tuple[Path, ...]]:
    """The settings of the file; its path, and those of the files that it names."""
    name = printable_path(path)
    try:
        import yaml
    except ImportError:
        raise UsageError(
            "a web configuration needs two more packages", hint="pip install 'gpuwatch-tui[exporter]'"
        ) from None
    try:
        with path.open("rb") as file:
            content = file.read(input_size_limits.WEB_CONFIGURATION.bytes + 1)
        if len(content) > input_size_limits.WEB_CONFIGURATION.bytes:
            raise UsageError(f"cannot read {name}: {input_size_limits.WEB_CONFIGURATION.too_large}")
        document = yaml.safe_load(content.decode())
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}") from None
    except RecursionError:
        raise UsageError(f"{name} is not YAML: it is nested too deeply") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise UsageError(f"{name} is not YAML{line}") from None
    try:
        config = _check_table(document if document is not None else {}, _TOP_LEVEL_TYPES, "")
        http_setting_types = {"http2": bool, "headers": dict}
        http_server = _check_table(config.get("http_server_config") or {}, http_setting_types, "http_server_config.")
        headers = _check_table(
            http_server.get("headers") or {}, dict.fromkeys(_HEADER_NAMES, str), "http_server_config.headers."
        )
        if any("\n" in text or "\r" in text for text in headers.values()):
            raise _ConfigError("a header has more than one line")
        users = _parse_users(config.get("basic_auth_users") or {})
        rate = _check_table(config.get("rate_limit") or {}, {"interval": object, "burst": int}, "rate_limit.")
        rate_limit = {"rate_interval": _parse_duration(rate.get("interval", 0)), "rate_burst": rate.get("burst", 0)}
        if "tls_server_config" not in config:
            return WebSettings(None, users, headers, **rate_limit), (path,)
        tls = _check_table(config["tls_server_config"] or {}, _TLS_SETTING_TYPES, "tls_server_config.")
        context, files = _tls_context(tls, path.parent)
        allowed_names = frozenset(tls.get("client_allowed_sans", ()))
        return WebSettings(context, users, headers, allowed_names, **rate_limit), (path, *files)
    except _ConfigError as error:
        raise UsageError(f"{name}: {shorten(printable(str(error)), 200)}") from None


class _ConfigError(Exception):
    """Raised for an error in the file; the message names it."""


def _check_table(table: object, types: Mapping[str, type], prefix: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise _ConfigError(f"{prefix.rstrip('.') or 'the file'} is not a mapping")
    for key, setting in table.items():
        if key not in types:
            raise _ConfigError(f"{prefix}{key} is not supported")
        if setting is not None and not isinstance(setting, types[key]):
            raise _ConfigError(f"{prefix}{key} has the wrong type")
    return {key: setting for key, setting in table.items() if setting is not None}


def _parse_duration(text: object) -> float:
    """Seconds of ``1m30s``."""
    parts = _DURATION_PARTS.findall(text) if isinstance(text, str) else []
    if text == 0 or text == "0":
        return 0.0
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise _ConfigError("rate_limit.interval is not a duration such as 1s")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)


def _parse_users(table: Mapping[object, object]) -> dict[str, str]:
    users: dict[str, str] = {}
    for name, hashed in table.items():
        if not isinstance(name, str) or not isinstance(hashed, str):
            raise _ConfigError("basic_auth_users: names and hashes are strings")
        users[name] = hashed
    if users:
        try:
            import bcrypt
        except ImportError:
            raise _ConfigError("users need the package bcrypt: pip install 'gpuwatch-tui[exporter]'") from None
        for name, hashed in users.items():
            try:
                bcrypt.checkpw(b"", _cheapest_hash(hashed))
            except ValueError:
                raise _ConfigError(f"basic_auth_users: the password of {name} is not a bcrypt hash") from None
    return users


def _cheapest_hash(hashed: str) -> bytes:
    parts = hashed.split("$")
    if len(parts) != 4 or not parts[2].isdecimal() or not 4 <= int(parts[2]) <= 31:
        raise ValueError(hashed)
    return "$".join((parts[0], parts[1], "04", parts[3])).encode()


def _tls_context(tls: Mapping[str, Any], folder: Path) -> tuple[ssl.SSLContext, list[Path]]:
    files: list[Path] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _openssl_value(tls.get("min_version", "TLS12"), _TLS_VERSIONS, "min_version")
    context.maximum_version = _openssl_value(tls.get("max_version", "TLS13"), _TLS_VERSIONS, "max_version")
    client_auth = _openssl_value(tls.get("client_auth_type", ""), _CLIENT_AUTH_TYPES, "client_auth_type")
    with _setting_file(tls, "cert", folder, files) as cert, _setting_file(tls, "key", folder, files) as key:
        if cert is None or key is None:
            raise _ConfigError(f"tls_server_config: {'cert_file' if cert is None else 'key_file'} is missing")
        try:
            # An encrypted key must not ask at a terminal.
            context.load_cert_chain(cert, key, password=_refuse_password_prompt)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise _ConfigError(f"cannot use the certificate: {_error_text(error)}") from None
    with _setting_file(tls, "client_ca", folder, files) as ca:
        if ca is None and client_auth is not ssl.CERT_NONE:
            raise _ConfigError("tls_server_config: client_ca_file is missing")
        if ca is not None and client_auth is ssl.CERT_NONE:
            raise _ConfigError("tls_server_config: client_ca_file needs client_auth_type: RequireAndVerifyClientCert")
        if ca is not None:
            try:
                context.load_verify_locations(ca)
            except OSError as error:
                raise _ConfigError(f"cannot use the client CA: {_error_text(error)}") from None
    context.verify_mode = client_auth
    if tls.get("client_allowed_sans") and client_auth is not ssl.CERT_REQUIRED:
        raise _ConfigError("client_allowed_sans needs client_auth_type: RequireAndVerifyClientCert")
    _set_ciphers_and_curves(context, tls)
    return context, files


def _set_ciphers_and_curves(context: ssl.SSLContext, tls: Mapping[str, Any]) -> None:
    chosen = [_openssl_value(name, _CIPHERS, "cipher_suites") for name in tls.get("cipher_suites", ())]
    if any(chosen):
        context.set_ciphers(":".join(filter(None, chosen)))
    if tls.get("prefer_server_cipher_suites", True):
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    curves = [_openssl_value(name, _CURVES, "curve_preferences") for name in tls.get("curve_preferences", ())]
    if len(curves) > 1:
        raise _ConfigError("curve_preferences: only one curve is supported here")
    for curve in curves:
        context.set_ecdh_curve(curve)


def _openssl_value(name: object, choices: Mapping[str, Any], key: str) -> Any:
    """What OpenSSL calls the choice that Go calls ``name``."""
    if not isinstance(name, str) or name not in choices:
        supported = ", ".join(choice for choice in choices if choice)
        raise _ConfigError(f"{key}: {name} is not supported (supported: {supported})")
    return choices[name]


@contextmanager
def _setting_file(tls: Mapping[str, Any], key: str, folder: Path, files: list[Path]) -> Iterator[Path | None]:
    """The file of a setting: named, or made of the text that stands in the settings for as long as it is needed."""
    content, file_setting = tls.get(key), tls.get(f"{key}_file")
    if content is not None and file_setting is not None:
        raise _ConfigError(f"tls_server_config: {key} and {key}_file cannot be combined")
    if content is not None:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:  # private by its mode
            file.write(content)
            file.flush()
            yield Path(file.name)
        return
    if file_setting is None:
        yield None
        return
    path = folder / file_setting
    files.append(path)
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise _ConfigError(f"cannot read {printable_path(path)}: {error.strerror or error}") from None
    yield path


def _refuse_password_prompt() -> str:
    raise ValueError("the key is encrypted")


def _error_text(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
