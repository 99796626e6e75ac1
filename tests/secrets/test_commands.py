"""Secrets in arguments of a command, which a shell's quotes would split; and where a secret has no name beside it."""

from __future__ import annotations

import pytest

from gpuwatch.core.formatting.secrets import MASK, mask_command, mask_text

S = "Tr0ub4dor3x"
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


@pytest.mark.fast
@pytest.mark.parametrize(
    "arguments",
    [
        ["python", "-c", f"connect(host='x', password='{S}')"],
        ["python", "-c", f'connect(host="x", password="{S}")'],
        ["python", "t.py", f"--config={{'password': '{S}'}}"],
        ["python", "-c", f"passwd = '{S}'"],
        ["bash", "-c", f"mysql -p'{S}' db"],
        ["bash", "-c", f'export LAB_TOKEN="{S}"; python t.py'],
        ["python", "t.py", "--password", f"it's {S}"],
        ["python", "t.py", f"API_KEY={S}"],
    ],
)
def test_each_argument_is_masked_before_quotes_are_put_around_it(arguments: list[str]) -> None:
    shown = mask_command(arguments)
    assert S not in shown
    assert MASK in shown
    assert shown.startswith(arguments[0])


@pytest.mark.fast
def test_a_command_without_secrets_is_as_it_is_typed() -> None:
    assert mask_command(["python", "t.py", "--name", "it's fine", "-n", "3"]) == (
        "python t.py --name 'it'\"'\"'s fine' -n 3"
    )


@pytest.mark.fast
@pytest.mark.parametrize(
    "text",
    [
        f"login failed with password {S}",
        f"echo {S} | sudo -S apt update",
        f"printf '%s' {S} | docker login -u mia --password-stdin",
        f"Password:\n{S}",
        f"run --api-key \\\n    {S} \\\n    --epochs 3",
        f"skopeo copy --src-creds mia:{S} a b",
        f"apiVersion: v1\nkind: Secret\ndata:\n  a: {S}\n  b: {S}\nmetadata:\n  name: db",
        f"signing key {HEX}",
    ],
)
def test_secrets_of_more_places_are_masked(text: str) -> None:
    shown = mask_text(text)
    assert S not in shown
    assert HEX not in shown


@pytest.mark.fast
@pytest.mark.parametrize(
    "text",
    [
        f"cache key {HEX}",
        f"sha256 {HEX}",
        "echo done | tee log.txt",
        "echo $PASSWORD | sudo -S true",
        "kind: Deployment\ndata:\n  a: b",
        "kind: Secret\nmetadata:\n  name: db",
    ],
)
def test_what_is_no_secret_there_stays(text: str) -> None:
    assert mask_text(text) == text
