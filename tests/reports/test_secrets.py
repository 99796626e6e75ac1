"""What must never leave: secrets, however they are written down; and what must stay readable."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.masking.mask_secrets import MASK, mask_keys, mask_text, mask_value
from gpuwatch.core.masking.masked_documents import masked
from gpuwatch.core.model.diagnostic_report import Variable
from tests.every import every
from tests.reports.diagnostics import healthy
from tests.reports.documents import full_run

SECRET = "Zx9QpLm4TtR7"

WRITTEN = (
    "python t.py --password {} --lr 2",
    "python t.py --db-password={}",
    "python t.py --passphrase my long {} --x",
    "python t.py --hf_token {}",
    "python t.py --auth {}",
    "python t.py --api-key '{} b' --z",
    "sshpass -p {} ssh host",
    "mysql -u root -p{} db",
    "curl -u joe:{} http://x",
    "curl -H 'Authorization: Basic {}' x",
    "curl -H 'Authorization: token {}' x",
    'curl -H "X-Api-Key: {}" x',
    "Cookie: session={}; a=b",
    '{{"api_key": "{}", "n": 3}}',
    "{{'auth': {{'token': '{}'}}}}",
    '"{{\\"client_secret\\": \\"{}\\"}}"',
    '{{"password":"{}"}}',
    "git clone https://{}@github.com/x",
    "git clone https://joe:{}@host/x",
    "redis://:{}@h:1/0",
    "DATABASE_URL=postgres://a:{}@h/db",
    "GET https://blob/y?sv=1&sig={}%2Fq8Zt%3D&x=1",
    "GET https://api/y?access_token={}",
    "AccountName=a;AccountKey={};X=1",
    "WANDB_API_KEY={} python t.py",
    "export FOO_TOKEN={}",
    "env MY_PWD={} x",
    "PGPASSWORD={} psql",
    "password: {}",
    "python -c print('password: {}')",
    "python -c \"raise SystemExit('api_key=password: {}')\"",
    "secret: password: {}",
    "auth = db-password: {} x",
    "x='password:{}'",
    "aws_secret_access_key = {}",
    "https://hooks.slack.com/services/T0/B0/{}",
    "-----BEGIN OPENSSH PRIVATE KEY-----{}-----END OPENSSH PRIVATE KEY----- rest",
)
SHAPED = (
    "hf_" + "a1" * 17,
    "ghp_" + "a1" * 18,
    "github_pat_" + "a1" * 20,
    "sk-proj-" + "a1" * 18,
    "xoxb-123456789012-abc",
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + "Sy1" * 12,
    "nvapi-" + "aB3" * 12,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW",
    "q8Zt3LmN0pXvR5sYw7BcKdHj2FgUaEiO9TnQx4Vb6MkS",
)
PLAIN = (
    "max_tokens=4096 num_keys=3 tokenizer=gpt2 TOKENIZERS_PARALLELISM=false",
    "--token-count 5 --key-size=128",
    "monkey=banana author=joe keyboard=de",
    "unexpected token: '<'",
    "KeyError: 'dense/kernel'",
    "undefined symbol: _ZN10tensorflow8OpKernel11TraceStringEPNS_15OpKernelContextEb3AbC9",
    "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 13762 MB memory",
    "GPU-9f3c2a10-1111-2222-3333-444455556666",
    "/opt/Conda3/envs/Train2/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "CUDA_VISIBLE_DEVICES=0,1 TF_FORCE_GPU_ALLOW_GROWTH=true",
    "PWD=/home/joe pin_memory=True spin=3 wandb: Run data is saved locally in 9f86d081",
    "the token is invalid, the secret is required, the password is wrong",
)


@every(WRITTEN)
def test_a_secret_is_masked_however_it_is_written(written: str) -> None:
    text = written.format(SECRET)
    assert SECRET in text
    assert SECRET not in mask_text(text)
    assert MASK in mask_text(text)


@every(SHAPED)
def test_tokens_are_known_by_their_shape_alone(token: str) -> None:
    assert token not in mask_text(f"login with {token} done")


@pytest.mark.parametrize(
    "text",
    [
        "wandb: {}".format("9f86d081884c7d659a2f" * 2),
        "wandb login {}".format("9f86d081884c7d659a2f" * 2),
        "pwd=hunter17SECRET",
        "PIN=9f86d0",
        "the secret is hunter2Winter",
        "password is: hunter2",
        "sshpass -phunter2 ssh joe@host",
    ],
)
def test_values_of_mask_values_are_masked(text: str) -> None:
    assert MASK in mask_text(text)
    assert not {word for word in text.replace("=", " ").split() if any(c.isdigit() for c in word)} & set(
        mask_text(text).replace("=", " ").split()
    )


_KEY = (
    "-----BEGIN PRIVATE KEY-----",
    "q8Zt3LmN0pXvR5sYw7BcKdHj2FgUaEiO9TnQx4Vb6MkSq8Zt3LmN0pXvR5sYw7Bc",
    "/ZdPwpWZ7skz7BcKdHj2FgUaEiO9TnQx4Vb6MkSq8Zt3LmN0pXvR5sYw7BcKdHjE",
    "ieNdweTvQaxCqwywITWtLw==",
    "-----END PRIVATE KEY-----",
)


@pytest.mark.parametrize("prefix", ["", "2026-11-20 13:00:00 train INFO "])
@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_private_key_over_several_lines(prefix: str, cut: int) -> None:
    lines = ["Epoch 1 is", "done", *(prefix + line for line in _KEY[cut:]), "Epoch 2 is done"]
    shown = mask_keys(lines)
    assert shown == ["Epoch 1 is", "done", *[MASK] * (5 - cut), "Epoch 2 is done"]


def test_a_private_key_without_its_end_does_not_swallow_the_log() -> None:
    lines = [
        _KEY[0],
        "Proc-Type: 4,ENCRYPTED",
        *_KEY[1:3],
        *(f"Epoch {number}: loss is 0.5" for number in range(5)),
        "Epoch 6 is done",
        "another line",
    ]
    assert mask_keys(lines)[:4] == [MASK, lines[1], MASK, MASK]
    assert mask_keys(lines)[9:] == ["Epoch 6 is done", "another line"]


@every(PLAIN)
def test_innocent_text_stays(text: str) -> None:
    assert mask_text(text) == text


# What people choose or are given: no spaces, no quotes, no signs that end a word in a shell.
_values = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.+!%^*-]{7,30}[A-Za-z0-9]\Z").filter(
    lambda value: not value.isdigit() and not value.replace(".", "").isdigit()
)


@pytest.mark.thorough
@given(value=_values, written=st.sampled_from(WRITTEN))
def test_any_secret_is_masked(value: str, written: str) -> None:
    shown = mask_text(written.format(value))
    assert value not in shown
    assert mask_text(shown) == shown


@every(
    [
        ("HF_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("DB_PASS", True),
        ("MYSQL_PWD", True),
        ("BASIC_AUTH", True),
        ("SENTRY_DSN", True),
        ("SSH_PRIVATE", True),
        ("OLDPWD", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("GIT_AUTHOR_NAME", False),
        ("CUDA_VISIBLE_DEVICES", False),
        ("COMPASS", False),
        ("BYPASS_CACHE", False),
    ]
)
def test_names_of_variables(name: str, secret: bool) -> None:
    assert (mask_value(name, "aB3xK9zzQ1") == MASK) is secret


@pytest.mark.parametrize("unit", ["token", "--pass-", 'key": "\\', "a-", "key=", "://", "-p ", "passphrase ", "key."])
def test_no_line_makes_the_search_long(unit: str) -> None:
    """Time of twice the length is at most a few times that of the length: nothing squares."""

    def took(count: int) -> float:
        text = unit * count
        started = time.process_time()
        mask_text(text)
        return time.process_time() - started

    took(100)
    short, long = took(1000), took(8000)
    assert long < 40 * short + 0.2


def test_a_document_is_masked_in_every_corner() -> None:
    run = msgspec.structs.replace(
        full_run(),
        title=f"python train.py --token {SECRET}",
        environment={"MY_PASSWORD": SECRET, "EXTRA": f'{{"api_key": "{SECRET}"}}', "CUDA_VISIBLE_DEVICES": "0"},
        settings={
            "api key": msgspec.convert(
                {"asked": SECRET, "effective": SECRET}, type(next(iter(full_run().settings.values())))
            )
        },
        results={"nested": {"deep": [f"password={SECRET}"]}},
        log_tail=(f"I login --password {SECRET}", "MatMul on GPU:0"),
        problems=(f"https://joe:{SECRET}@host",),
    )
    drawn = msgspec.json.encode(masked(run)).decode()
    assert SECRET not in drawn
    assert "MatMul on GPU:0" in drawn
    assert SECRET in msgspec.json.encode(run).decode(), "the original is as it was"


def test_variables_are_masked_by_their_names() -> None:
    variables = (
        Variable(name="CUDA_API_KEY", value=SECRET, effect="unknown"),
        Variable(name="CUDA_VISIBLE_DEVICES", value="0", effect="effect"),
    )
    document = masked(msgspec.structs.replace(healthy(), variables=variables))
    assert [entry.value for entry in document.variables] == [MASK, "0"]
