"""Secrets in arguments of a command, which a shell's quotes would split; and where a secret has no name beside it."""

from __future__ import annotations

import base64

import pytest

from gpuwatch.core.masking.mask_secrets import MASK, mask_command, mask_text

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
        f"yes '{S}' | sudo -S apt upgrade",
        f"cat <<< '{S}' | sudo -S ls",
        f"+ echo {S}\n+ sudo -S nvidia-smi -r",
        f"https://hub.lab.org/user/mia/lab?tkn={S}",
        f"https://hub.lab.org/x?page=2&access_tkn={S}&y=1",
        f"GET /events?jwt={S} HTTP/1.1",
        f"http://10.0.0.5:8080/?apitok={S}",
        f"https://x.org/d?a=1&sid={S}",
        f"https://sso.x.org/login?ticket=ST-1856339-{S}",
        f"printf '%s' {S} | docker login -u mia --password-stdin",
        f"Password:\n{S}",
        f"run --api-key \\\n    {S} \\\n    --epochs 3",
        f"skopeo copy --src-creds mia:{S} a b",
        f"apiVersion: v1\nkind: Secret\ndata:\n  a: {S}\n  b: {S}\nmetadata:\n  name: db",
        f"signing key {HEX}",
        "co = cohere.Client('NiR1QeahYuhPuRnPPN2fUjYV4YmgEtaV')".replace("NiR1QeahYuhPuRnPPN2fUjYV4YmgEtaV", f"{S}{S}"),
        f"TOGETHER_API_KEY is set to {HEX}",
        f"AZURE_DEVOPS_EXT_PAT={HEX[:52]}",
        f"ossutil config -i id -k {S}",
        f"https://open.feishu.cn/open-apis/bot/v2/hook/{HEX}",
        f"Le mot de passe est : {S}",
        f"La contrase\u00f1a del servidor es {S}",
        f"base64 env: {base64.b64encode(f'DB_PASSWORD={S}'.encode()).decode()}",
        f"Enter passphrase for key '/home/x/.ssh/id': copper-{S}",
        f"RuntimeError: db.example.org:5432:train:mia:{S}",
        f"| user | password |\n|---|---|\n| mia | {S} |",
        f"user,password,role\nmia,{S},admin",
        f'"user","password"\n"mia","{S}"',
        f"host\tuser\tdb_password\ngpu1\tmia\t{S}",
        f" id | user | password\n----+------+---------\n  1 | mia  | {S}",
        f"   user   password\n0  mia  {S}",
        f"\u2503 name \u2503 token \u2503\n\u2521\u2501\u2547\u2501\u2529\n\u2502 prod \u2502 {HEX} \u2502",
        f"<td>password</td><td>{S}</td>",
        f"\x1b[32mpass\x1b[1mword\x1b[0m: {S}",
        f"[bold]token[/bold]={S}",
        f'{{"cmd": "export API_TOKEN\\u003d{S}"}}',
        f"password%3D{S}%26user%3Dmia",
        f'token = """\n{S}\n"""',
        f"Enter passphrase for key '/x/id_ed25519': \n{S}",
        f"Kennwort: {S}",
        f"la password \u00e8 {S}",
        f"credentials: mia / {S}",
        f"Invalid API Key '{HEX}' provided",
        f"401 Unauthorized for token {HEX}",
        f"WOLFRAM_APPID = {HEX[:32]}",
        f"GET /oauth/callback?state={HEX}&scope=email 302",
        f"token_accessor      {HEX}",
        f"schtasks /create /tn x /ru mia /rp {S}",
        f"net user mia {S} /add",
        f"etcdctl --user root:{S} get x",
        f"wandb: Paste an API key from your profile and hit enter: {HEX[:40]}",
        f"https://x.webhook.office.com/webhookb2/{HEX}/IncomingWebhook/y",
    ],
)
def test_secrets_of_more_places_are_masked(text: str) -> None:
    shown = mask_text(text)
    assert S not in shown
    assert HEX[:32] not in shown
    assert MASK in shown


@pytest.mark.fast
@pytest.mark.parametrize(
    "text",
    [
        f"cache key {HEX}",
        f"sha256 {HEX}",
        "echo done | tee log.txt",
        "echo $PASSWORD | sudo -S true",
        "yes | sudo apt install x",
        "+ echo hello1\n+ sudo nvidia-smi",
        "https://x.org/browse?ticket=OPS-12345&page=2",
        "https://x.org/?ticket=123456&tok=llama3&task=train1a",
        "https://x.org/?token_count=1200&max_tokens=4096&risk=9a8b7c6d",
        "kind: Deployment\ndata:\n  a: b",
        "kind: Secret\nmetadata:\n  name: db",
    ],
)
def test_what_is_no_secret_there_stays(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.fast
@pytest.mark.parametrize(
    "text",
    [
        "token,probability\nHello2,0.31\nWorld,0.11",
        "| model | token |\n|---|---|\n| Llama-3.1-8B | eos2024 |",
        "key,value\nlearning_rate,1e-4x",
        "step  tokens  loss\n   1   40960  2.31",
        "| setting | password | note |\n|---|---|---|\n| default | none | \u2013 |",
        "Please enter your password\nLoading checkpoint",
        "Enter password\nEpoch 1/10",
        "token counts: 1024, state=running",
        "GET /v1/jobs?state=COMPLETED2024run",
        "credentials: /home/mia/creds",
        "\x1b[32mEpoch\x1b[0m 1: loss=0.3, token_acc=0.7",
        "Loading tokenizer, key layer_24",
        "PWD=/",
        "pass: forward and backward both finished",
        "patience=3, pat: 5",
        "login('mia')",
        "PWD=/app",
        "public key: age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p",
    ],
)
def test_tables_and_prompts_without_a_secret_stay(text: str) -> None:
    assert mask_text(text) == text
