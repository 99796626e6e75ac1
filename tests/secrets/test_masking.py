"""What masking makes of the corpus, how long it takes, and that no way out lets a secret pass."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from gpuwatch.core.masking.mask_secrets import mask_command, mask_lines, mask_text, mask_value
from gpuwatch.core.masking.redactor import Redactor
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch
from tests.every import every
from tests.forked import run_gpuwatch
from tests.secrets.corpus import INNOCENTS, SECRETS
from tests.secrets.entry import Innocent, Secret


def shown(entry: Secret | Innocent) -> str:
    """An entry as documents have it: variables by name and value, logs and files by lines, arguments in one line."""
    if entry.context == "environment":
        name, _, value = entry.line.partition("=")
        return f"{name}={mask_value(name, value)}"
    if entry.context == "argv":
        return mask_text(entry.line)
    return "\n".join(mask_lines(entry.line.split("\n")))


def as_text(entry: Secret | Innocent) -> str:
    """An entry in one piece, as a crash file has a traceback; variables have no such form."""
    return shown(entry) if entry.context == "environment" else mask_text(entry.line)


@every(
    [
        ("GET https://api.telegram.org/bot4711000815:Qz81mmKq02LLpw93sKd7aaTz/getMe", "Qz81mm"),
        ("\u5bc6\u7801\uff1aqz81mmkq", "qz81mmkq"),
        ('ConvertTo-SecureString "Qz81mmKq" -AsPlainText', "Qz81mmKq"),
        ("net use Z: \\\\nas\\x /user:mia Qz81mmKq", "Qz81mmKq"),
        ("mia:$apr1$Qz81mmKq$Lpw93sKd7aaTzQz81mmKq0", "Lpw93s"),
        ("curl -d key 0123456789abcdef0123456789abcdef-us7", "0123456789abcdef"),
        ('seed_phrase="apple zebra copper"', "zebra"),
        ("snmpwalk -v2c -c Qz81mmKq switch", "Qz81mmKq"),
        ("GET /callback?code=Qz81mmKq02LLpw93sKd7aaTz&state=x", "Qz81mmKq"),
        ("url=https%3A%2F%2Fmia%3AQz81mmKq%40x.io", "Qz81mmKq"),
    ]
)
def test_forms_that_have_no_name_before_the_secret(text: str, masked: str) -> None:
    assert masked in text
    assert masked not in mask_text(text)


@pytest.mark.parametrize(
    "text", ["exit code=1", "GET /x?code=404_not_found_in_cache_7", "paraphrase: the text", "cost $1$", "zone-us1"]
)
def test_what_only_looks_like_them_stays(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.parametrize("mask", [shown, as_text])
def test_secrets_of_the_corpus_are_masked(mask: Callable[[Secret], str]) -> None:
    leaks = [entry.id for entry in SECRETS if any(part in mask(entry) for part in entry.secret)]
    assert leaks == ["twilio-2"], "two arguments of hexadecimal digits, of which the second is a secret"


@pytest.mark.parametrize("mask", [shown, as_text])
def test_innocents_of_the_corpus_stay(mask: Callable[[Innocent], str]) -> None:
    changed = [entry.id for entry in INNOCENTS if mask(entry) != entry.line]
    assert not changed


def test_what_tells_by_its_place_is_masked_in_arguments_too() -> None:
    told = mask_command(["rabbitmqctl", "add_user", "mia", "granite", "--note", "a b", ""])
    assert told == "rabbitmqctl add_user mia ••• --note 'a b' ''"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("wget --password=gran1te https://x.example/a.zip", "wget --password=••• https://x.example/a.zip"),
        ("sbatch --export=ALL,MY_API_KEY=gran1te8 job.sh", "sbatch --export=ALL,MY_API_KEY=••• job.sh"),
        ("wandb login --host=https://w.example gran1te8", "wandb login --host=https://w.example •••"),
        ("rclone copy a :s3,secret_access_key=gran1te8:b/c", "rclone copy a :s3,secret_access_key=•••:b/c"),
    ],
)
def test_what_stands_beside_a_secret_in_a_command_stays(text: str, told: str) -> None:
    assert mask_command(text.split()) == told
    assert mask_text(told) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('Auth { user: "mia", secret_key: Some("hOe3uahOdlJU3SDH") }', 'Auth { user: "mia", secret_key: Some("•••") }'),
        (
            "SQLAuthException: jdbc:x://h/d?UID=mia;PWD=gran1te",
            "SQLAuthException: jdbc:x://h/d?UID=mia;PWD=•••",
        ),
        ("['a', '--password=gran1te', 'https://x']", "['a', '--password=•••', 'https://x']"),
        (
            '{"type": "service_account", "key": "-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----\\n"}',
            '{"type": "service_account", "key": "•••"}',
        ),
        ('hook.sh: {"api_key": ["quartz-lake-2211"], "model": "m"}', 'hook.sh: {"api_key": ["•••"], "model": "m"}'),
    ],
)
def test_what_stands_beside_a_secret_in_a_log_stays(text: str, told: str) -> None:
    assert mask_lines([text, "end"])[0] == told


def test_arguments_in_a_list_are_masked_together() -> None:
    assert mask_lines(["train.py", "--api-key", "aB3xK9zzQ1", "--lr", "0.1"])[2] == "•••"


def test_what_is_masked_stays_as_it_is() -> None:
    for entry in (*SECRETS, *INNOCENTS):
        once = as_text(entry)
        if entry.context != "environment":
            assert mask_text(once) == once, entry.id


UNITS = (
    *("a", "aB3/", "a.", "a-", "a_", "/a", "a=", "a:", "1.", "1:", "a@", "a@b:~/", "abcdef01-", "GPU-", "eyJaaaaaa."),
    *("token", "token=", "token:", "token=(", "token={a", 'token="\\', "key", "key=", "'key", "--password x "),
    *("mysql -p ", "curl -u a:", "http://a@", "://a", "bearer ", "authorization: ", "cookie: a", "<password>"),
    *("token: a", "token: a[", "token: a | a", "ENV ", "ENV token ", "curl -u 'a:", "curl -u 'a", "token =>"),
    *("api_key: [a ", "tokens:\n- a:b\n", "/hooks/a1", "echo a:b ", 'assword\nsend "', 'audit( a0="curl" a1="-u" a2="'),
    *("job's ", "a_1 22.2 ", "project a-b ", "gke_a_", "arn:aws:a:b:123456789012:c/"),
    *("process 1 of a, ", "process 1, 1", "\\", '"', "'", " "),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN CERTIFICATE-----"),
)  # fmt: skip


def redact(text: str) -> None:
    document = {"command": text}
    redactor = Redactor()
    redactor.learn(document)
    redactor.replaced(document)


def seconds(work: Callable[[str], object], text: str) -> float:
    begin = time.process_time()
    work(text)
    return time.process_time() - begin


@pytest.mark.thorough
@every(product([mask_text, redact], UNITS))
def test_sixteen_times_the_length_takes_at_most_forty_times_as_long(work: Callable[[str], object], unit: str) -> None:
    """Nothing squares. Text that is short enough to be measured in noise counts as 2 ms.

    Of five tries one is enough: the first loads what is needed, a busy machine slows others.
    """
    short, long = ((unit * size)[:size] for size in (1024, 16 * 1024))
    limit = 40 * max(min(seconds(work, short) for _ in range(5)), 0.002)
    assert any(seconds(work, long) < limit for _ in range(5))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "unit", ["a", "aB3/", "I0000 token=abc1234567 /home/u/x.py:12 epoch 3 loss=0.4\n", "--api-key aB3xK9 "]
)
def test_a_megabyte_is_masked_in_two_seconds(unit: str) -> None:
    text = (unit * (1 << 20))[: 1 << 20]
    begin = time.process_time()
    mask_text(text)
    assert time.process_time() - begin < 2


def _leaked(text: str, planted: list[Secret]) -> list[str]:
    return [
        entry.id for entry in planted if any(json.dumps(part)[1:-1] in text or part in text for part in entry.whole)
    ]


def test_a_log_full_of_secrets_leaves_through_no_format(tmp_path: Path) -> None:
    planted = [entry for entry in SECRETS if entry.context in ("log", "traceback") and not entry.hard]
    log = tmp_path / "train.log"
    tail = (
        "RuntimeError: CUDA error: out of memory\nfailed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device\n"
    )
    log.write_text("\n".join(entry.line for entry in planted) + "\n" + tail)
    documents = []
    for suffix in ("json", "html", "md", "csv", "txt"):
        target = tmp_path / f"out.{suffix}"
        ended = gpuwatch("explain", str(log), "-o", str(target))
        documents.append(target.read_text() + ended.out + ended.err)
    assert not [found for text in documents if (found := _leaked(text, planted))]


def test_a_program_full_of_secrets_leaves_through_no_document(tmp_path: Path) -> None:
    arguments = [entry for entry in SECRETS if entry.context == "argv" and not entry.hard]
    variables = [entry for entry in SECRETS if entry.context == "environment" and not entry.hard]
    traces = [entry for entry in SECRETS if entry.context == "traceback" and not entry.hard]
    printed = tmp_path / "printed.txt"
    printed.write_text("\n".join(entry.line for entry in traces[-20:]))
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    environment |= dict(entry.line.split("=", 1) for entry in variables)
    (tmp_path / "fails.py").write_text(f"import sys; sys.stderr.write(open({str(printed)!r}).read()); sys.exit(1)")
    command = [sys.executable, str(tmp_path / "fails.py"), *(word for entry in arguments for word in entry.text)]
    document = tmp_path / "run.json"
    ended = run_gpuwatch("run", "-o", str(document), "--", *command, env=environment, text=True)
    assert ended.returncode == 1, ended.stderr
    kept = "".join(path.read_text() for path in (tmp_path / "state").rglob("*.json"))
    assert kept
    planted = [*arguments, *variables, *traces[-20:]]
    assert not _leaked(document.read_text() + kept, planted)
    report = gpuwatch("report", "--json", "--sim", "1x2GiB", environment=environment)
    assert report.out, report.err
    assert not _leaked(report.out, planted)


def test_a_process_full_of_secrets_leaves_through_no_snapshot(sim_machine: Callable[[str], SimMachine]) -> None:
    """On a GPU, with each secret in its command line and in its environment."""
    arguments = [entry for entry in SECRETS if entry.context == "argv" and not entry.hard]
    variables = [entry for entry in SECRETS if entry.context == "environment" and not entry.hard]
    machine = sim_machine("1x2GiB")
    environment = {**machine.environment(os.environ), "CUDA_VISIBLE_DEVICES": "0"}
    secret = environment | dict(entry.line.split("=", 1) for entry in variables)
    code = "import sys; print(len(sys.argv), flush=True); sys.stdin.read()"
    held: list[subprocess.Popen[str]] = []
    documents = []
    try:
        for part in range(0, len(arguments), 20):
            words = [word for entry in arguments[part : part + 20] for word in entry.text]
            held.append(
                subprocess.Popen(
                    [shutil.which(sys.executable) or sys.executable, "-c", code, *words],
                    env=secret,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            assert held[-1].stdout is not None
            held[-1].stdout.readline()  # it has its own command line and environment now
            machine.attach(held[-1].pid, device=0, memory_bytes=32 << 20)
        for command in ("snapshot", "report"):
            ended = gpuwatch(command, "--json", environment=environment)
            assert ended.out, ended.err
            documents.append(ended.out)
    finally:
        for process in held:
            process.kill()
            process.communicate()
    shown = {row["pid"] for row in json.loads(documents[0])["processes"]}
    assert {process.pid for process in held} <= shown
    for document in documents:
        assert document.count("•••") >= 50, "the command lines are there"
        assert not _leaked(document, [*arguments, *variables])


@pytest.mark.parametrize(
    "text",
    [
        "\u5bc6\u7801: Tr0ub4dor-x7",
        "contrase\u00f1a=Tr0ub4dor_x7",
        "mot de passe : maple2iU89",
        "senha: maple2iU89",
        "Temporary password for root: maple+osLUn40",
        "API key must be 40 characters long, yours was db641bdb8060898065932e4b48d448c891b25d5",
    ],
)
def test_passwords_in_other_languages_and_sentences(text: str) -> None:
    shown = mask_text(text)
    assert not [one for one in ("Tr0ub4dor", "maple2iU89", "osLUn40", "db641bdb") if one in shown], shown
    assert "•••" in shown


@every(
    [
        ("poetry config http-basic.lab reader Blue9Kettle", "Blue9Kettle"),
        ("ldapsearch -x -D cn=a,dc=net -w gr4nite -b dc=net", "gr4nite"),
        ("send: 'AUTH PLAIN AG1pYQBncmFuaXRlLTQy'", "AG1pYQBncmFuaXRlLTQy"),
        ('wpa_supplicant: psk="granite-lake-42"', "granite-lake-42"),
        ("sudo -S nvidia-smi -pm 1 <<< 'gr4nite'", "gr4nite"),
        ('Authorization: Digest username="cam", response="0123456789abcdef0123456789abcdef"', "0123456789abcdef"),
        ("net use Z: \\\\\\\\nas\\\\data Gr4nite /user:LAB", "Gr4nite"),
        ("mc alias set lake https://minio.example.org ABCD1234 gr4niteLake", "gr4niteLake"),
        ("the root password on the new box is Granite42 until noon", "Granite42"),
        ("Das Passwort f\u00fcr den Server lautet Granite42", "Granite42"),
        ("\u5bc6\u7801\uff1agranite4242", "granite4242"),
        ("\u30d1\u30b9\u30ef\u30fc\u30c9\u306f granite_4242 \u3067\u3059", "granite_4242"),
        ("POST /rpc?payload=%7B%22password%22%3A%22gr4nite%22%7D", "gr4nite"),
        ("kubectl create secret generic a --from-literal=robot=gr4nite", "gr4nite"),
        ("Recovery codes: ab12c-defgh ij34k-lmnop", "lmnop"),
        ("https://conda.example.org/t/ab-0123-4567-89/acme/linux-64", "ab-0123-4567-89"),
        ("nmcli dev wifi connect Lab password lantern4288", "lantern4288"),
        ("machine hub login mia password lantern42", "lantern42"),
        ("conda config --set upload_token lab-064f3ba965028ce0", "064f3ba965028ce0"),
        ("ca init --password-file=<(echo granite)", "granite"),
        ("openconnect vpn1 --passwd-on-stdin <<< lantern42", "lantern42"),
        ("qpdf --encrypt granite basalt 256 -- a.pdf b.pdf", "granite"),
        ("iscsiadm -m node -o update -n node.session.auth.password -v granite", "granite"),
        ("redfishtool -r bmc1 -u root -p granite Systems", "granite"),
        ("SCRAM-SHA-256$4096:U7l+ebZ5FWOqZ91u1iAbXQ==$" + "Ab1+" * 8 + ":" + "Cd2+" * 8, "ebZ5FWOqZ91u1iAbXQ"),
        ("2FA code: 353749 sent", "353749"),
        ("kubelet bootstrap token gn8od9.202oocft8ooxsov7 expired", "202oocft8ooxsov7"),
        ("PSK (ASCII passphrase): lantern42", "lantern42"),
        ("Zugangsdaten: mia / Granite42", "Granite42"),
        ("hmac.new(b'VdRwZrhBWgrfLq1xGLlDADtC0wLnT6Ij', msg)", "VdRwZrhBWgrf"),
        ("password:\n  value: lantern4288\n  days: 30", "lantern4288"),
        ("secrets:\n  lr: 0.1\n  db: lantern4288", "lantern4288"),
        ('<string name="api_key">a25WGQdP23GiEpiR</string>', "a25WGQdP23GiEpiR"),
        ("op signin lab A3-" + "-".join(["V9B02Q"] * 6), "V9B02Q"),
        ("rabbitmqctl change_password mia gr4nite", "gr4nite"),
        ("expect -c 'expect assword; send \"gr4nite\\r\"'", "gr4nite"),
        (f"state of {'a1' * 7}.atlasv1.{'b2' * 34}", "b2" * 30),
        ("rocommunity granite 10.0.0.0/8", "granite "),
        ("define('DB_PASSWORD', 'granitelake');", "granitelake"),
        ("230 ok\nPASS lantern42", "lantern42"),
        ("a1 LOGIN mia granite", "granite"),
        ('1699.1 [0 hub] "AUTH" "granite"', "granite"),
        ("CREATE USER 'mia'@'%' IDENTIFIED BY 'granite'", "granite"),
        ("mnemonic: " + "able brick cargo dune " * 3 + "ember", "brick"),
        ("wallet private key 0x" + "a1" * 32, "a1" * 32),
        ("recovery key: " + "-".join(["016750"] * 8), "016750"),
        ("license key AB1CD-EF2GH-IJ3KL-MN4OP expired", "EF2GH"),
        ("JSESSIONID=9F3A7C1D5E8B2F4A6C0D9E1B3F5A7C8D", "9F3A7C1D"),
        ('<password encrypted="false">granite42</password>', "granite42"),
        ("<name>fs.s3a.secret.key</name><value>granite42x</value>", "granite42x"),
        ('variable "db_password" { default = "granite42" }', "granite42"),
        ("Incorrect API key provided: q8Zt4mWn2Lr7Vb9X. See the page", "q8Zt4mWn"),
        ("Your API key is q8Zt4mWn2Lr7Vb9X", "q8Zt4mWn"),
        ("temporary password for mia is granite42", "granite42"),
        ("m\u1eadt kh\u1ea9u: granite42; \u03ba\u03c9\u03b4\u03b9\u03ba\u03cc\u03c2: granite42", "granite42"),
        ("user;passwd;role\nmia;granite42;admin", "granite42"),
        ("| db_password | granite42 |", "granite42"),
        ("Password                : granite42", "granite42"),
        ("SET PASSWORD FOR mia = 'granite42'", "granite42"),
        ("requests.get(u, auth=('mia', 'granite42'))", "granite42"),
        ("creds mia:granite42 and radius secret granite42", "granite42"),
        ("Authorization: Basic bWlhOmdyYW5pdGU0Mg== or Basic bWlhOmdyYW5pdGU0Mg==", "bWlhOmdy"),
        ("mia:{SSHA}q8Zt4mWn2Lr7Vb9Xabcdefgh", "q8Zt4mWn"),
        ("token (classic): q8Zt4mWn2Lr7Vb9Xabcd", "q8Zt4mWn"),
        ("printf granite42 | cryptsetup luksOpen a b -", "granite42"),
        ("verification failed for key b51aa2c07d49e3f8. Check it", "b51aa2c07d49"),
        ("InvalidRestAPIKey: LAB_API_KEY Gr4n1teLak3s7Hub is invalid", "Gr4n1teLak3s"),
        ("Command '['mc', 'alias', 'set', 'lab', 'https://m.example', 'mia', 'gr4nite']' failed", "gr4nite"),
        ("Command '['b2', 'account', 'authorize', '0012ab', 'gr4nite']' failed", "gr4nite"),
        ("htpasswd -nb mia gr4nite", "gr4nite"),
        ("iam token t1.9euelZqMz7.q8Zt4mWn2Lr7Vb9Xq8Zt4mWn2Lr7Vb9X expired", "q8Zt4mWn"),
        ("Environment:\n  NCCL_DEBUG:      INFO\n  LAB_PASSWORD:      granite", "granite"),
        ("accesso negato, parola d'ordine: granite42", "granite42"),
        ("kod dost\u0119pu: granite42", "granite42"),
        ('inloggen mislukt met wachtwoord "GraNITElake"', "GraNITElake"),
        ("echo 'gr4nite' | kinit mia@LAB", "gr4nite"),
        ("printf granite | gpg --batch --passphrase-fd 0 -d a", "granite"),
        ("password: !lab granite", "granite"),
        ("restic init --password-command 'echo granite'", "granite"),
        ('export BORG_PASSCOMMAND="printf %s granite"', "granite"),
        ("docker login --password=$(echo granite) lab", "granite"),
        ("Password for 'https://mia@git.example': granite42", "granite42"),
        ("$ read -s PW\ngranite42\n$ ls", "granite42"),
        ("rootpw --plaintext granite", "granite"),
        ('<setting name="SmtpPassword" serializeAs="String"><value>granite</value></setting>', "granite"),
        ("bad cookie connect.sid=s%3Aq8Zt4mWn2Lr7Vb9X", "q8Zt4mWn"),
        ("VNC password set to granite42", "granite42"),
        ("the passphrase you entered, granite42, is wrong", "granite42"),
        ("key must be 32 bytes, got q8Zt4mWn2Lr7Vb9Xq8Zt4mWn2Lr7Vb9X", "q8Zt4mWn"),
        ("API key provided for model gpt: q8Zt4mWn2Lr7Vb9X", "q8Zt4mWn"),
        ("args: {'api_key': ['quartz-lake-2211'], 'port': 8000}", "quartz-lake"),
        ("Namespace(hf_token=('quartz-lake-2211', 'b'), port=8000)", "quartz-lake"),
        ("admin_passwords=['granite', 'basalt']", "basalt"),
        ("server:\n  api_keys:\n    - quartz-lake-2211\n  port: 8000", "quartz-lake"),
        ("chpasswd:\n  expire: false\n  users:\n    - mia:granite\n", "granite"),
        ('chpasswd: {list: ["mia:gran1teLake"], expire: false}', "gran1teLake"),
        ("InvalidURL: nonnumeric port: 'Gran-1te@proxy.example:3128'", "Gran-1te"),
        ("Port could not be cast to integer value as 'gran1teLake'", "gran1teLake"),
        ('could not translate host name "gran1teLake@db.example" to address', "gran1teLake"),
        ("curl -u secret_a120152f2b3ae84d: https://api.example.org", "a120152f"),
        ("Command '['http', '-a', 'a120152f2b3ae84d:', 'https://api.example.org']' failed", "a120152f"),
        ('"Cmd":["curl","-u","mia:gran1te","http://dcgm:9400"]', "gran1te"),
        ("url: /api/webhooks/385688702265645755/GX4uhC1BRxgRCeuHQhpQ", "GX4uhC1BRxgR"),
        (
            "https://a.example/webhook/f1f5b0dc-9cfe-4daa-a702-297f14cc9146/IncomingWebhook/1b67073d2c68",
            "1b67073d2c68",
        ),
        ("url: /services/T03BBQ1QX/B05JH2M9K/kWq81mZx0pLr (Caused by x)", "kWq81mZx0pLr"),
        ("+ echo mia:granite > /etc/passwd-s3fs", "granite"),
        ("+ echo 'gran1teLake' >> ~/.netrc", "gran1teLake"),
        ("::add-mask::granite", "granite"),
        ("##vso[task.setvariable variable=feed;issecret=true]granite", "granite"),
        ('send "granite\\r" to password prompt', "granite"),
        ("expect('assword:')\n    child.sendline('granite')", "granite"),
        ('type=EXECVE msg=audit(1.1:3): argc=3 a0="curl" a1="-u" a2="mia:granite"', "granite"),
        ('type=EXECVE msg=audit(1.1:3): argc=3 a0="x" a1="--password" a2="gran1teLake"', "gran1teLake"),
        (f"msg=audit(1.1:3): proctitle={b'curl -u mia:granite'.hex().upper()}", b"granite".hex().upper()),
        ("smtp_password\n  String is too long [type=long, input_value='Granite42', input_type=str]", "Granite42"),
    ]
)
def test_secrets_by_their_place(line: str, secret: str) -> None:
    assert secret in line
    assert secret not in mask_text(line)


@every(
    [
        "password authentication for this host is SHA256",
        "export DB_PASSWORD=${DB_PASSWORD:?not set}",
        "usage: train.py [--api-key KEY] [--token TOKEN] [--password PASSWORD] [--secret VALUE]",
        "the argument --password requires a value, and --token is not read",
        "rows with secret=False: 12",
        "PASS: 41 of 42 checks; mnemonic: add r0, r1",
        "secrets:\n  lr: 0.1\n  file: ./db.txt",
        "token of module1.multiprocessing7, bc <<< 3+4",
        "PASS tests/hub_2.test.js\n--- PASS: TestHub2",
        "recovery code executed successfully in step 12000000",
        "python train.py -w 8 --epochs 3",
        "lr is 0.001, the passed argument is ResNet50V2",
        "%22model%22%3A%22resnet50%22",
        "train_loss\n  Input should be a number [type=float, input_value='nan', input_type=str]",
        "kubectl create configmap a --from-file=config.yaml",
        "archive is password-protected: 3 of 17 members skipped; token-based: 12 of 40",
        "Missing key transformer.h.0.attn.c_attn.weight; no key model-00001-of-00002.safetensors",
        "token 128009 ends it; key: !!python/tuple [1, 2]; password set to expire in 30 days",
        "key size is 32, got 00000000000000000000000000000000",
        "the token you passed is too long; echo 3 | python train.py",
        "pymsteams.TeamsWebhookException: 400 from the server; InvalidAccessKeyIdException: 403 from sts",
        "sentry_sdk.utils.BadDsn: Unsupported scheme; WebhookDeliveryError: Timeout30s after 3 tries",
        "'stop_tokens': ['</s>', '<|eot_id|>'], 'keys': ['layer1.weight'], 'api_key': [], 'auth': ['sha256']",
        "auth:\n  methods:\n    - oauth2\nimagePullSecrets:\n- name: regcred2\ncredentials:\n  region: us-east-1",
        "nonnumeric port: '31b8'; Port could not be cast to integer value as '8000,8001'; docker run -u 1000: x",
        "RuntimeError: hook /hooks/backward failed; POST /hooks/nightly-2024-05-01 200",
        'failed calling webhook "a.kb.io": Post "https://a-webhook-service.kueue.svc:443/mutate--v1-pod?timeout=10s"',
        "+ echo epoch:40 > /tmp/progress.txt\n+ echo lr:0.0001 > token_log.txt",
        'send "gradients4" to rank 3 timed out; add_mask: expected a mask of shape [8, 128]',
        'type=EXECVE msg=audit(1.1:3): a0="python" a1="train.py" a2="-u" a3="lr:0.01" a4=2F746D702F6120622063',
        "credentials: [REDACTED]; Auth { method: Basic, retries: 3 }",
        "cohere.Client('mistral-7b-instruct-v0.2'); RestClient('lab.Hub2.example-lake')",
        "wandb.init('EleutherAI-gpt-neo-125M'); client = TextClient('Mixtral-8x7B-Instruct-v0.1')",
        "init('ViT-B-32-laion2B-s34B-b79K'); init('stabilityai_StableLM2-1_6b'); Session('Qwen2.5-72B-Instruct-AWQ')",
        "arn:aws:secretsmanager:us-east-1:1:secret:lake-db",
    ]
)
def test_what_stands_in_such_places_and_is_no_secret(line: str) -> None:
    assert mask_text(line) == line
