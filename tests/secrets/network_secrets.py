"""Secrets that hosts show to each other: private keys, URLs, headers, .netrc."""

import base64
from collections.abc import Iterator

from tests.secrets.entry import Secret, argv, env, hide, log, text, trace
from tests.secrets.shapes import BASE64, DASHES, Shapes


def keys(m: Shapes) -> Iterator[Secret]:
    """Private keys: whole, cut, narrow, on one line."""
    yield text("pem", m.pem("RSA", 6))
    yield text("pem", m.pem("EC", 3))
    yield log("pem", f"loaded key:\n{m.pem('', 5)}INFO ready", keeps=("INFO ready",))
    yield text("pem", m.pem("DSA", 3).replace("\n", "\r\n"))
    yield text("ssh-private-key", m.pem("OPENSSH", 6, 70))
    yield env("ssh-private-key", "SSH_PRIVATE_KEY", m.pem("OPENSSH", 4, 70).rstrip())
    yield trace(
        "ssh-private-key",
        f"paramiko.Ed25519Key.from_private_key(io.StringIO('{m.pem('OPENSSH', 3, 70, chr(92) + 'n')}'))",
        "paramiko.ssh_exception.SSHException: not a valid key",
        keeps=("paramiko.Ed25519Key",),
    )
    yield text("pem-encrypted", m.pem("ENCRYPTED", 4))
    lines = m.raw_pem("RSA", 3)
    lines[1:1] = ["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-256-CBC,9F3A", ""]
    yield text("pem-encrypted", "\n".join(lines))
    yield text("pem-narrow", m.pem("EC", 6, 32))
    yield text("pem-narrow", m.pem("", 12, 30))
    yield log("pem-narrow", "\n".join(f"    {line}" for line in m.raw_pem("RSA", 6, 40)), hard=True)
    yield env("pem-one-line", "TLS_KEY", m.pem("", 3, newline="\\n"))
    yield log(
        "pem-one-line", f'{{"key": "{m.pem("RSA", 4, newline=chr(92) + "n")}", "port": 8443}}', keeps=('"port": 8443',)
    )
    yield log("pem-one-line", f"key={m.pem('EC', 3, newline=' ')}loaded", hard=True)
    yield env("pem-one-line", "JWT_KEY_B64", base64.b64encode(m.pem("", 3).encode()).decode(), hard=True)
    yield text("pem-cut", "\n".join(m.raw_pem("RSA", 6)[:5]))
    yield log("pem-cut", "\n".join(m.raw_pem("", 5)[:3]) + "\n... 14 lines more", keeps=("14 lines more",))
    yield log("pem-cut", "…\n" + "\n".join(m.raw_pem("RSA", 4)[2:]), hard=True)
    yield text(
        "pem-pgp",
        f"{DASHES}BEGIN PGP PRIVATE" + f" KEY BLOCK{DASHES}\n\n{m.some(BASE64, 64)}\n{m.some(BASE64, 64)}\n=aB3d\n"
        f"{DASHES}END PGP PRIVATE" + f" KEY BLOCK{DASHES}",
    )
    yield text(
        "putty-key",
        f"PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 2\n{m.some(BASE64, 64)}\n{m.some(BASE64, 20)}\n",
        hard=True,
    )


def network(m: Shapes) -> Iterator[Secret]:
    """URLs, headers, .netrc."""
    yield argv(
        "url-userinfo",
        "git",
        "pull",
        f"https://mia:{m.password()}@git.example.org/x.git",
        keeps=("git.example.org/x.git",),
    )
    yield log(
        "url-userinfo",
        f"proxy http://proxyuser:{m.password()}@proxy.example.org:3128 refused",
        keeps=("proxy.example.org:3128",),
    )
    yield env("url-userinfo", "HTTPS_PROXY", f"http://mia:{m.password()}@10.1.2.3:3128", keeps=("10.1.2.3:3128",))
    yield log(
        "url-userinfo",
        f"open ftp://mia:{hide(m.raw_password(6) + '%40' + m.raw_password(6))}@files.example.org/a",
        keeps=("files.example.org/a",),
    )
    yield text("url-userinfo", f"s3://{m.aws_id()}:{m.aws_secret()}@sets/train", hard=True)
    yield log(
        "url-userinfo",
        f"clone ssh://git:{hide(m.raw_password(7) + '@' + m.raw_password(6))}@git.example.org:22/x",
        hard=True,
    )
    yield log(
        "url-query",
        f"GET https://api.example.org/v1/jobs?page=2&access_token={m.password(30)}&limit=5 200",
        keeps=("page=2", "limit=5"),
    )
    yield trace(
        "url-query", f"requests.get('https://api.example.org/x?api_key={m.password(24)}&q=gpu')", keeps=("q=gpu",)
    )
    yield log(
        "url-query",
        f"wss://hub.example.org/api/kernels/1/channels?session_id=3&token={m.hex(32)}",
        keeps=("session_id=3",),
    )
    yield log(
        "url-query",
        "https://sets.s3.amazonaws.com/a.tar?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=3600"
        f"&X-Amz-Signature={m.hex(64)}",
        keeps=("sets.s3.amazonaws.com/a.tar",),
    )
    yield log(
        "url-query",
        f"302 https://app.example.org/cb#access_token={m.password(30)}&token_type=bearer",
        keeps=("app.example.org",),
    )
    yield text(
        "url-query",
        f"https://storage.googleapis.com/sets/a?X-Goog-Expires=900&X-Goog-Signature={m.hex(256)}",
        keeps=("storage.googleapis.com/sets/a",),
    )
    yield log("http-basic", f"> Authorization: Basic {m.basic()}\n> Accept: */*", keeps=("Accept: */*",))
    yield argv(
        "http-basic",
        "curl",
        "--header",
        f"authorization: basic {m.basic()}",
        "https://x.example.org",
        keeps=("x.example.org",),
    )
    yield trace(
        "http-basic",
        f"r = requests.get(URL, headers={{'Authorization': 'Basic {m.basic()}'}})",
        keeps=("requests.get(URL",),
    )
    yield log("http-basic", f"Proxy-Authorization: Basic {m.basic()}")
    yield log(
        "http-bearer",
        f"send: b'GET / HTTP/1.1\\r\\nAuthorization: Bearer {m.password(40)}\\r\\nHost: x\\r\\n'",
        keeps=("Host: x",),
    )
    yield trace(
        "http-bearer",
        f'headers = {{"authorization": "Bearer {m.password(28)}", "accept": "json"}}',
        keeps=('"accept": "json"',),
    )
    yield argv(
        "http-bearer",
        "grpcurl",
        "-H",
        f"authorization: Bearer {m.jwt()}",
        "triton:8001",
        "list",
        keeps=("triton:8001 list",),
    )
    yield log("http-bearer", f"header Bearer {m.password(32)} rejected", keeps=("rejected",))
    yield log("cookie", f"Cookie: _xsrf=2|ab; sessionid={m.password(32)}; theme=dark", hard=True)
    yield log("cookie", f"Set-Cookie: session={m.password(40)}; Path=/; HttpOnly", keeps=("Set-Cookie",))
    yield trace(
        "cookie", f"requests.get(url, cookies={{'sessionid': '{m.password(32)}'}}, timeout=3)", keeps=("timeout=3",)
    )
    yield argv(
        "cookie",
        "wget",
        "--header",
        f"Cookie: auth={m.password(24)}",
        "https://sets.example.org",
        keeps=("sets.example.org",),
    )
    yield log("api-key-header", f"X-Api-Key: {m.password(24)}\nUser-Agent: tritonclient", keeps=("tritonclient",))
    yield trace(
        "api-key-header",
        f"session.headers.update({{'X-API-KEY': '{m.password(24)}'}})",
        keeps=("session.headers.update",),
    )
    yield log(
        "api-key-header",
        f"headers=[('x-auth-token', '{m.password(24)}'), ('accept', '*/*')]",
        keeps=("('accept', '*/*')",),
    )
    yield argv(
        "api-key-header",
        "curl",
        "-HX-Auth-Token:" + m.password(20),
        "https://api.example.org",
        keeps=("api.example.org",),
    )
    yield text(
        "netrc",
        f"machine api.example.org login mia password {m.password()}\n",
        keeps=("machine api.example.org", "login mia"),
    )
    yield text("netrc", f"default\n\tlogin anonymous\n\tpassword\n\t{m.password()}\n", hard=True)
    yield log(
        "netrc",
        f"netrc: machine urs.earthdata.nasa.gov login mia password {m.password(9)} account x",
        keeps=("urs.earthdata",),
    )
    yield text(
        "netrc", f'machine h login mia password "{m.password(6)} {m.password(7)}"\n', keeps=("machine h",), hard=True
    )
    yield env("mail", "SMTP_PASSWORD", m.password())
    yield trace(
        "mail",
        f"server.login('mia@example.org', '{m.password(16)}')",
        "smtplib.SMTPAuthenticationError: (535, b'5.7.8')",
        keeps=("server.login",),
        hard=True,
    )
    yield env("jwt", "SERVICE", m.jwt())
    yield log("jwt", f"jwt expired: {m.jwt()}", keeps=("jwt expired",))
    yield trace("jwt", f"claims = jwt.decode('{m.jwt()}', verify=False)", keeps=("verify=False",))
    yield argv("jwt", "python", "client.py", m.jwt(), "--once", keeps=("--once",))
