"""Secrets of trackers, model vendors, messengers, vaults and other services."""

import string
from collections.abc import Iterator

from tests.secrets.entry import Secret, argv, env, hide, log, text, trace
from tests.secrets.shapes import ALNUM, BASE32, BASE64, BASE64_URL, LOWER_ALNUM, LOWER_HEX, UPPER_ALNUM, Shapes


def learning(m: Shapes) -> Iterator[Secret]:
    """Trackers, model hubs and model vendors."""
    yield env("hugging-face", "HF_TOKEN", m.hugging_face())
    yield argv("hugging-face", "huggingface-cli", "login", "--token", m.hugging_face(), keeps=("login",))
    yield trace(
        "hugging-face",
        f'AutoModel.from_pretrained("meta-llama/Llama-3.1-8B", token="{m.hugging_face()}")',
        "OSError: You are trying to access a gated repo.",
        keeps=("meta-llama/Llama-3.1-8B",),
    )
    yield log("hugging-face", f"login({m.hugging_face()!s}) took 0.2 s", keeps=("took 0.2 s",))
    yield env("openai", "OPENAI_API_KEY", m.openai())
    yield trace("openai", f"openai.api_key = '{m.openai_old()}'", keeps=("openai.api_key",))
    yield log(
        "openai",
        f"AuthenticationError: Incorrect API key provided: {m.openai('sk-svcacct-')}. Code 401",
        keeps=("401",),
    )
    yield argv("openai", "python", "serve.py", "--openai-key", m.openai_old(), "--port", "8000", keeps=("--port 8000",))
    yield env("anthropic", "ANTHROPIC_API_KEY", m.anthropic())
    yield trace("anthropic", f'client = anthropic.Anthropic(api_key="{m.anthropic()}")', keeps=("anthropic.Anthropic",))
    yield log("anthropic", f"x-api-key: {m.anthropic()}\nanthropic-version: 2023-06-01", keeps=("2023-06-01",))
    yield text("anthropic", f"echo {m.anthropic()} | pbcopy")
    yield env("model-vendor", "GROQ_API_KEY", m.some(ALNUM, 52, "gs" + "k_"))
    yield env("model-vendor", "REPLICATE_API_TOKEN", m.some(ALNUM, 37, "r8" + "_"))
    yield log("model-vendor", f"groq client with {m.some(ALNUM, 52, 'gs' + 'k_')} ready")
    yield env("model-vendor", "COHERE_API_KEY", m.some(ALNUM, 40))
    yield trace(
        "model-vendor", f"pinecone.init(api_key='{m.uuid()}', environment='us-west1-gcp')", keeps=("us-west1-gcp",)
    )
    yield text("model-vendor", f"co = cohere.Client('{m.some(ALNUM, 40)}')", hard=True)
    yield env("wandb", "WANDB_API_KEY", m.hex(40))
    yield argv("wandb", "wandb", "login", m.hex(40), hard=True)
    yield trace("wandb", f'wandb.login(key="{m.hex(40)}", relogin=True)', keeps=("relogin=True",))
    yield text("wandb", f"machine api.wandb.ai\n  login user\n  password {m.hex(40)}\n", keeps=("api.wandb.ai",))
    yield argv("wandb", "wandb", "login", "--relogin", f"local-{m.hex(40)}", hard=True)
    yield argv("wandb", "wandb", "login", "--relogin", m.some(ALNUM, 86), hard=True)
    yield env("comet", "COMET_API_KEY", m.some(ALNUM, 25))
    yield trace(
        "comet", f'experiment = Experiment(api_key="{m.some(ALNUM, 25)}", project_name="vision")', keeps=("vision",)
    )
    yield text("comet", f"[comet]\napi_key={m.some(ALNUM, 25)}\nworkspace=lab\n", keeps=("workspace=lab",))
    yield env("neptune", "NEPTUNE_API_TOKEN", m.neptune())
    yield trace(
        "neptune", f'run = neptune.init_run(project="lab/vision", api_token="{m.neptune()}")', keeps=("lab/vision",)
    )
    yield env("kaggle", "KAGGLE_KEY", m.hex(32))
    yield env("kaggle", "KAGGLE_API_TOKEN", m.some(LOWER_HEX, 32, "KGAT" + "_"))
    yield text("kaggle", f'{{"username":"mia","key":"{m.hex(32)}"}}', keeps=("username",), hard=True)
    yield trace("kaggle", f"os.environ['KAGGLE_KEY'] = '{m.hex(32)}'", keeps=("KAGGLE_KEY",))
    yield env("databricks", "DATABRICKS_TOKEN", m.databricks())
    yield text(
        "databricks",
        f"[DEFAULT]\nhost = https://lab.cloud.databricks.com\ntoken = {m.databricks()}\n",
        keeps=("https://lab.cloud.databricks.com",),
    )
    yield log(
        "databricks", f"INFO databricks-connect {m.databricks()} cluster 1122-334455-abcd", keeps=("1122-334455-abcd",)
    )
    yield trace(
        "databricks",
        f"spark = connect('sc://lab.cloud.databricks.com:443/;token={m.databricks()};use_ssl=true')",
        keeps=("lab.cloud.databricks.com",),
    )
    yield env("mlflow", "MLFLOW_TRACKING_PASSWORD", m.password())
    yield env("mlflow", "MLFLOW_TRACKING_TOKEN", m.some(ALNUM, 40))
    yield env(
        "mlflow", "MLFLOW_TRACKING_URI", f"https://mia:{m.password()}@mlflow.example.org", keeps=("mlflow.example.org",)
    )
    yield argv(
        "mlflow",
        "mlflow",
        "server",
        "--backend-store-uri",
        f"postgresql://mlflow:{m.password()}@db/mlflow",
        keeps=("--backend-store-uri",),
    )
    yield env("clearml", "CLEARML_API_SECRET_KEY", m.some(ALNUM, 50))
    yield text(
        "clearml",
        f'credentials {{"access_key" = "LAB0", "secret_key" = "{m.some(ALNUM, 50)}"}}',
        keeps=("credentials",),
    )
    yield argv(
        "ray", "ray", "start", "--address=10.0.0.4:6379", f"--redis-password={m.password(16)}", keeps=("10.0.0.4:6379",)
    )
    yield argv(
        "ray",
        "raylet",
        "--node_ip_address=10.0.0.5",
        f"--redis_password={m.hex(20)}",
        "--num_gpus=8",
        keeps=("--num_gpus=8",),
    )
    yield trace("ray", f"ray.init(address='auto', _redis_password='{m.password()}', num_gpus=2)", keeps=("num_gpus=2",))
    yield env("ray", "RAY_AUTH_TOKEN", m.some(ALNUM, 43))
    yield env("slurm", "SLURM_JWT", m.jwt())
    yield log("slurm", f"SLURM_JWT={m.jwt()}")
    yield argv(
        "slurm",
        "curl",
        "-H",
        f"X-SLURM-USER-TOKEN:{m.jwt()}",
        "http://slurm:6820/slurm/v0.0.40/jobs",
        keeps=("http://slurm:6820/slurm/v0.0.40/jobs",),
    )
    yield argv("jupyter", "jupyter", "lab", "--ip=0.0.0.0", f"--NotebookApp.token={m.hex(48)}", keeps=("--ip=0.0.0.0",))
    yield log("jupyter", f"    http://127.0.0.1:8888/lab?token={m.hex(48)}", keeps=("127.0.0.1:8888/lab",))
    yield argv(
        "jupyter",
        "jupyter-notebook",
        f"--ServerApp.password=argon2:{hide('$argon2id$v=19$' + m.raw(BASE64, 43))}",
        hard=True,
    )
    yield env("jupyter", "JUPYTERHUB_API_TOKEN", m.hex(32))
    yield log("jupyter", f"200 GET /files/a.npz?_xsrf=1&token={m.hex(48)} (mia@10.0.0.9)", keeps=("mia@10.0.0.9",))
    yield env("jupyter", "JPY_API_TOKEN", m.hex(32))
    yield env("label-tools", "ROBOFLOW_API_KEY", m.some(ALNUM, 20))
    yield argv(
        "label-tools",
        "label-studio",
        "start",
        "--username",
        "mia@example.org",
        "--password",
        m.password(10),
        keeps=("mia@example.org",),
    )


def services(m: Shapes) -> Iterator[Secret]:
    """Messages, money, monitoring, vaults."""
    hooks = "https://hooks.slack.com/services/T02AB3CD4/B05EF6GH7/"
    yield env("slack", "SLACK_BOT_TOKEN", m.slack())
    yield log("slack", f"posting to {hooks}{m.some(ALNUM, 24)} failed: 404", keeps=("hooks.slack.com",))
    yield trace("slack", f'WebClient(token="{m.slack("p")}").chat_postMessage(channel="#gpu")', keeps=("#gpu",))
    yield text(
        "slack",
        f"app: {m.slack_app()}",
    )
    yield env("discord", "DISCORD_BOT", m.discord())
    yield trace("discord", f'bot.run("{m.discord()}")', keeps=("bot.run",))
    yield log(
        "discord",
        f"POST https://discord.com/api/webhooks/{m.raw('123456789', 18)}/{m.some(BASE64_URL, 68)} 204",
        keeps=("discord.com/api/webhooks",),
    )
    yield log("discord", f"Improper login {m.discord()} has been passed")
    yield log(
        "telegram", f"POST https://api.telegram.org/bot{m.telegram()}/sendMessage 200", keeps=("api.telegram.org",)
    )
    yield trace("telegram", f"updater = Updater('{m.telegram()}')", keeps=("Updater",))
    yield argv("telegram", "python", "notify.py", m.telegram(), "-100123", keeps=("notify.py",))
    yield env("telegram", "TG_BOT", m.telegram())
    yield env("shopify", "SHOPIFY_ACCESS_TOKEN", m.shopify())
    yield log("shopify", f"X-Shopify-Access-Token: {m.shopify('shpca')}")
    yield text("shopify", f"shop.connect({m.shopify('shpss')})")
    yield env("twilio", "TWILIO_AUTH_TOKEN", m.hex(32))
    yield trace("twilio", f'client = Client("{"A" + "C" + m.raw(LOWER_HEX, 32)}", "{m.hex(32)}")', hard=True)
    yield log("twilio", f"TWILIO_API_SECRET={m.some(ALNUM, 32)} sid={'S' + 'K' + m.raw(LOWER_HEX, 32)}")
    yield env("stripe", "STRIPE_SECRET", m.stripe())
    yield log("stripe", f"No such customer; request made with {m.stripe('rk_live')}", keeps=("No such customer",))
    yield trace("stripe", f"stripe.api_key = '{m.stripe('sk_test')}'", keeps=("stripe.api_key",))
    yield text("stripe", f'"endpoint_secret": "{m.some(ALNUM, 32, "wh" + "sec_")}"')
    yield env("sendgrid", "SENDGRID_API_KEY", m.sendgrid())
    yield log("sendgrid", f"mail: 401 with {m.sendgrid()}", keeps=("401",))
    yield env("mailgun", "MAILGUN_API_KEY", hide(f"{m.raw(LOWER_HEX, 32)}-{m.raw(LOWER_HEX, 8)}-{m.raw(LOWER_HEX, 8)}"))
    yield argv(
        "mailgun",
        "curl",
        "-s",
        "--user",
        f"api:{m.some(LOWER_HEX, 32, 'key' + '-')}",
        "https://api.mailgun.net/v3",
        keeps=("https://api.mailgun.net/v3",),
    )
    yield env("vault", "VAULT_TOKEN", m.vault())
    yield log("vault", f"token             {m.vault()}\ntoken_accessor    hmac", hard=True)
    yield argv("vault", "vault", "login", m.vault(), keeps=("login",))
    yield text("vault", f"vault unwrap {m.some(BASE64_URL, 92, 'hv' + 'b.')}", keeps=("vault unwrap",))
    yield argv(
        "vault",
        "curl",
        "-H",
        f"X-Vault-Token: {m.some(ALNUM, 24, 's.')}",
        "http://vault:8200/v1/sys",
        keeps=("vault:8200",),
    )
    yield env("datadog", "DD_API_KEY", m.hex(32))
    yield env("datadog", "DD_APP_KEY", m.hex(40))
    yield text("datadog", f"api_key: {m.hex(32)}\nsite: datadoghq.eu\n", keeps=("site: datadoghq.eu",))
    yield env("new-relic", "NEW_RELIC_LICENSE_KEY", m.some(LOWER_HEX, 36, end="NR" + "AL"))
    yield log("new-relic", f"agent: {m.some(UPPER_ALNUM, 27, 'NR' + 'AK-')} refused", keeps=("refused",))
    yield env(
        "sentry", "SENTRY_DSN", f"https://{m.hex(32)}@o42.ingest.sentry.io/4501", keeps=("o42.ingest.sentry.io/4501",)
    )
    yield trace(
        "sentry",
        f'sentry_sdk.init(dsn="https://{m.hex(32)}@sentry.example.org/3", traces_sample_rate=0.1)',
        keeps=("sentry.example.org/3", "traces_sample_rate=0.1"),
    )
    yield env("grafana", "GRAFANA_TOKEN", hide("gl" + "sa_" + m.raw(ALNUM, 32) + "_" + m.raw(LOWER_HEX, 8)))
    yield log(
        "grafana",
        f"provisioning with {hide('gl' + 'sa_' + m.raw(ALNUM, 32) + '_' + m.raw(LOWER_HEX, 8))}",
        keeps=("provisioning",),
    )
    yield env("grafana", "GF_SECURITY_ADMIN_PASSWORD", m.password(9))
    yield argv(
        "grafana",
        "influx",
        "query",
        "--host",
        "http://influx:8086",
        "--token",
        m.some(BASE64_URL, 86, end="=="),
        keeps=("http://influx:8086",),
    )
    yield env(
        "terraform", "TF_TOKEN_app_terraform_io", hide(f"{m.raw(ALNUM, 14)}.atlas" + f"v1.{m.raw(BASE64_URL, 67)}")
    )
    yield argv(
        "terraform",
        "terraform",
        "apply",
        "-var",
        f"db_password={m.password()}",
        "-auto-approve",
        keeps=("-auto-approve",),
    )
    yield env("tailscale", "TS_AUTHKEY", hide("tskey" + f"-auth-{m.raw(ALNUM, 17)}-{m.raw(ALNUM, 32)}"))
    yield argv(
        "tailscale", "tailscale", "up", f"--authkey={hide('tskey' + f'-auth-{m.raw(ALNUM, 17)}-{m.raw(ALNUM, 32)}')}"
    )
    yield env("work-tools", "NOTION_TOKEN", m.some(ALNUM, 46, "nt" + "n_"))
    yield log("work-tools", f"linear: {m.some(ALNUM, 40, 'lin' + '_api_')} has expired", keeps=("has expired",))
    yield argv("work-tools", "figma-export", m.some(BASE64_URL, 40, "fi" + "gd_"), "icons")
    yield text("otp", f"otpauth://totp/Lab:mia?secret={m.some(BASE32, 32)}&issuer=Lab", keeps=("issuer=Lab",))
    yield argv("otp", "oathtool", "--totp", "-b", m.some(BASE32, 32), hard=True)
    yield env("snowflake", "SNOWFLAKE_PASSWORD", m.password())
    yield trace(
        "snowflake",
        f"snowflake.connector.connect(user='mia', password='{m.password()}', account='lab-eu')",
        keeps=("account='lab-eu'",),
    )
    yield text(
        "age",
        f"# created: 2026-01-01\n# public key: age1{m.raw(LOWER_ALNUM, 58)}\n{m.age()}\n",
        keeps=("# public key",),
    )
    yield env("age", "SOPS_AGE_KEY", m.age())
    yield trace("age", f"key = '{m.age()}'", keeps=("key = ",))
    yield log("sops", f"sops exec: SOPS_AGE_KEY={m.age()} python train.py", keeps=("python train.py",))
    yield text("sops", f"db:\n    password: {m.password()}\nsops:\n    version: 3.9.0\n", keeps=("version: 3.9.0",))
    yield text(
        "wireguard",
        f"[Interface]\nPrivateKey = {hide(m.raw_base64(32))}\nAddress = 10.8.0.2/24\n",
        keeps=("10.8.0.2/24",),
    )
    yield text(
        "wireguard", f"[Peer]\nPublicKey = {m.raw_base64(32)}\nPresharedKey = {hide(m.raw_base64(32))}\n", hard=True
    )
    yield env("digits", "OTP_PIN", hide(m.raw(string.digits, 6)), hard=True)
    yield argv(
        "digits",
        "pkcs11-tool",
        "--login",
        "--pin",
        hide(m.raw(string.digits, 8)),
        "--list-objects",
        keeps=("--list-objects",),
    )
