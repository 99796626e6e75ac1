"""The web configuration file: what is in it holds, or it is refused in one line."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from gpuwatch.core.errors import UsageError
from gpuwatch.share.exporter.access_control import AccessControl
from gpuwatch.share.exporter.web_config import WebConfig
from tests.exporter.certificates import Authority

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
"""The sample of exporter-toolkit's documentation."""
TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Authority(tmp_path / "ca").issue("localhost", tmp_path / "server")
    return tmp_path


def read(folder: Path, text: str) -> WebConfig:
    path = folder / "web.yml"
    path.write_text(text)
    return WebConfig(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "web.yml is not YAML (line "),
        ("- a", "the file is not a mapping"),
        ("tls_config:\n  cert_file: a", "tls_config is not supported"),
        ("tls_server_config: 7", "tls_server_config has the wrong type"),
        ("tls_server_config:\n  key_file: server.key", "cert_file is missing"),
        ("tls_server_config:\n  cert_file: server.crt", "key_file is missing"),
        ("tls_server_config:\n  cert_file: none.crt\n  key_file: server.key", "none.crt: No such file"),
        ("tls_server_config:\n  cert_file: web.yml\n  key_file: server.key", "cannot use the certificate"),
        ("tls_server_config:\n  cert_file: ca.crt\n  key_file: server.key", "key values mismatch"),
        (TLS + "  cert: x", "cert and cert_file cannot be combined"),
        (TLS + "  min_version: SSL30", "min_version: SSL30 is not supported (supported: TLS10"),
        (TLS + "  client_auth_type: RequireAnyClientCert", "client_auth_type: RequireAnyClientCert is not supported"),
        (TLS + "  client_auth_type: RequireAndVerifyClientCert", "client_ca_file is missing"),
        (TLS + "  client_ca_file: ca.crt", "client_ca_file needs client_auth_type"),
        (TLS + "  client_allowed_sans: [a]", "client_allowed_sans needs client_auth_type"),
        (TLS + "  cipher_suites: [RC4]", "cipher_suites: RC4 is not supported"),
        (TLS + "  curve_preferences: [CurveP256, X25519]", "only one curve"),
        (TLS + "  sni: true", "tls_server_config.sni is not supported"),
        ("basic_auth_users:\n  alice: secret", "the password of alice is not a bcrypt hash"),
        ("basic_auth_users:\n  alice: $2b$99$abc", "the password of alice is not a bcrypt hash"),
        ("basic_auth_users:\n  1: 2", "names and hashes are strings"),
        ("http_server_config:\n  headers:\n    Set-Cookie: a", "headers.Set-Cookie is not supported"),
        ('http_server_config:\n  headers:\n    X-Frame-Options: "a\\nb: c"', "more than one line"),
        ("rate_limit:\n  interval: soon\n  burst: 1", "rate_limit.interval is not a duration"),
        ("rate_limit:\n  interval: 1\n  burst: 1", "rate_limit.interval is not a duration"),
        ("rate_limit:\n  burst: many", "rate_limit.burst has the wrong type"),
    ],
)
def test_what_cannot_be_kept_is_an_error(folder: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        read(folder, text)
    assert says in error.value.message
    assert "\n" not in error.value.message
    assert "secret" not in error.value.message


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        WebConfig(tmp_path / "none.yml")
    (tmp_path / "web.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"web\.yml is not YAML"):
        WebConfig(tmp_path / "web.yml")


def test_an_empty_file_asks_for_nothing(folder: Path) -> None:
    config = read(folder, "")
    assert config.settings.tls_context is None
    assert AccessControl(config).is_authorized(None)
    assert not config.settings.protected


def test_settings_of_tls_hold(folder: Path) -> None:
    more = "  min_version: TLS13\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]\n"
    more += "  curve_preferences: [CurveP256]\n  prefer_server_cipher_suites: false\n"
    context = read(folder, TLS + more).settings.tls_context
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    assert not context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    old = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}
    assert old == {"ECDHE-ECDSA-AES128-GCM-SHA256"}
    default = read(folder, TLS).settings.tls_context
    assert default is not None
    assert default.minimum_version == ssl.TLSVersion.TLSv1_2


def test_certificates_may_stand_in_the_file_itself(folder: Path) -> None:
    def block(name: str) -> str:
        return "|\n" + "".join(f"    {line}\n" for line in (folder / name).read_text().splitlines())

    config = read(folder, f"tls_server_config:\n  cert: {block('server.crt')}  key: {block('server.key')}")
    assert config.settings.tls_context is not None


def test_hashes_of_other_tools_are_taken(folder: Path) -> None:
    config = read(folder, f"basic_auth_users:\n  alice: {HASH}\n")
    assert config.settings.protected
    assert config.settings.users == {"alice": HASH}


def test_a_password_is_compared_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import bcrypt

    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    access = AccessControl(read(folder, f"basic_auth_users:\n  alice: {hashed}\n"))
    compared: list[bytes] = []
    real = bcrypt.checkpw

    def counted(password: bytes, known: bytes) -> bool:
        compared.append(password)
        return real(password, known)

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    right, wrong = "Basic YWxpY2U6c2VjcmV0", "Basic YWxpY2U6d3Jvbmc="
    assert [access.is_authorized(right) for _ in range(3)] == [True] * 3
    assert [access.is_authorized(wrong) for _ in range(3)] == [False] * 3
    assert compared == [b"secret", b"wrong"]
    monkeypatch.setattr("gpuwatch.share.exporter.access_control._UNKNOWN_USER_HASH", hashed)
    assert not access.is_authorized("Basic Ym9iOnNlY3JldA==")  # bob, with the password of nobody
    assert len(compared) == 3


def test_users_change_with_the_file(folder: Path) -> None:
    said: list[str] = []
    path = folder / "web.yml"
    path.write_text("")
    access = AccessControl(WebConfig(path, said.append))
    assert access.is_authorized(None)
    path.write_text(f"basic_auth_users:\n  alice: {HASH}\n")
    assert not access.is_authorized(None)
    path.write_text("basic_auth_users: [")
    assert not access.is_authorized(None)
    path.unlink()
    assert not access.is_authorized(None)
    assert len(said) == 2
    assert all("remains in effect" in line for line in said)


def test_the_rate_is_limited(folder: Path) -> None:
    config = read(folder, "rate_limit:\n  interval: 1m30s\n  burst: 2\n")
    assert config.settings.rate_interval == 90
    access = AccessControl(config)
    assert [access.within_rate_limit(1000.0) for _ in range(3)] == [True, True, False]
    assert not access.within_rate_limit(1080.0)
    assert access.within_rate_limit(1095.0)
    assert not access.within_rate_limit(1096.0)
    free = AccessControl(read(folder, "rate_limit:\n  interval: 0\n  burst: 0\n"))
    assert all(free.within_rate_limit(1000.0) for _ in range(100))
