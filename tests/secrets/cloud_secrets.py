"""Secrets that clouds, code hosts and package indexes hand out."""

from collections.abc import Iterator

from tests.secrets.entry import Secret, argv, env, hide, log, text, trace
from tests.secrets.shapes import ALNUM, BASE64_URL, LOWER_HEX, UPPER_ALNUM, Shapes


def clouds(m: Shapes) -> Iterator[Secret]:
    """Amazon, Google, Microsoft and smaller clouds."""
    yield env("aws", "AWS_SECRET_ACCESS_KEY", m.aws_secret())
    yield env("aws", "AWS_SESSION_TOKEN", m.aws_session())
    yield argv(
        "aws", "aws", "configure", "set", "aws_secret_access_key", m.aws_secret(), keeps=("configure",), hard=True
    )
    yield text(
        "aws",
        f"[default]\naws_access_key_id = {m.aws_id()}\naws_secret_access_key = {m.aws_secret()}\n"
        "region = eu-central-1\n",
        keeps=("[default]", "region = eu-central-1"),
    )
    yield trace(
        "aws",
        f"s3 = boto3.client('s3', 'eu-west-1', aws_access_key_id='{m.aws_id()}', "
        f"aws_secret_access_key='{m.aws_secret()}')",
        keeps=("boto3.client", "eu-west-1"),
    )
    yield log("aws", f'{{"AccessKeyId": "{m.aws_id()}", "SecretAccessKey": "{m.aws_secret()}", "Expiration": "2026"}}')
    key = "\\n".join(m.raw_pem("", 4)) + "\\n"
    yield text(
        "gcp-service-account",
        '{\n  "type": "service_account",\n  "project_id": "vision-42",\n'
        f'  "private_key_id": "{m.raw(LOWER_HEX, 40)}",\n  "private_key": "{key}",\n'
        '  "client_email": "train@vision-42.iam.gserviceaccount.com"\n}',
        keeps=("vision-42", "service_account"),
    )
    key = "\\n".join(m.raw_pem("", 3)) + "\\n"
    yield env("gcp-service-account", "GOOGLE_CREDENTIALS", f'{{"type":"service_account","private_key":"{key}"}}')
    key = "\\n".join(m.raw_pem("", 3)) + "\\n"
    yield trace(
        "gcp-service-account",
        f"creds = Credentials.from_service_account_info({{'private_key': '{key}', 'project_id': 'vision-42'}})",
        "google.auth.exceptions.MalformedError: missing fields token_uri, client_email",
    )
    yield env("gcp-api-key", "GEMINI_API_KEY", m.google_api())
    yield log(
        "gcp-api-key",
        f"GET https://maps.googleapis.com/maps/api/geocode/json?address=Bern&key={m.google_api()} 200",
        keeps=("maps.googleapis.com", "address=Bern"),
    )
    yield trace("gcp-api-key", f'genai.configure(api_key="{m.google_api()}")', keeps=("genai.configure",))
    yield text(
        "gcp-oauth",
        f"curl -H 'Authorization: Bearer {m.google_oauth()}' https://storage.googleapis.com/b/o",
        keeps=("storage.googleapis.com",),
    )
    yield log("gcp-oauth", f"refreshing credentials: access token {m.google_oauth()} expires in 3599 s", hard=True)
    yield text(
        "gcp-oauth",
        f'{{"client_id":"1.apps.googleusercontent.com","client_secret":"{m.some(BASE64_URL, 28, "GOC" + "SPX-")}",'
        f'"refresh_token":"{m.some(BASE64_URL, 80, "1//0")}","type":"authorized_user"}}',
        keeps=("1.apps.googleusercontent.com",),
    )
    yield env("azure-storage", "AZURE_STORAGE_KEY", m.azure_key())
    yield env(
        "azure-storage",
        "AZURE_STORAGE_CONNECTION_STRING",
        f"DefaultEndpointsProtocol=https;AccountName=mldata;AccountKey={m.azure_key()};EndpointSuffix=core.windows.net",
        keeps=("AccountName=mldata", "core.windows.net"),
    )
    yield argv(
        "azure-storage",
        "az",
        "storage",
        "blob",
        "list",
        "--account-name",
        "mldata",
        "--account-key",
        m.azure_key(),
        keeps=("mldata",),
    )
    yield log(
        "azure-sas",
        "GET https://mldata.blob.core.windows.net/sets/train.tfrecord?sv=2023-11-03&sr=b&sp=r&se=2026-12-01T00:00:00Z"
        f"&sig={m.some(ALNUM, 40)}%3D 403",
        keeps=("mldata.blob.core.windows.net", "train.tfrecord"),
    )
    yield argv(
        "azure-sas",
        "azcopy",
        "copy",
        f"https://mldata.blob.core.windows.net/sets?sp=rl&sv=2023-11-03&sr=c&sig={m.some(ALNUM, 18)}%2F"
        f"{m.some(ALNUM, 22)}%3D",
        "/data/sets",
        "--recursive",
        keeps=("/data/sets", "--recursive"),
    )
    yield env("azure-client", "AZURE_CLIENT_SECRET", m.azure_client())
    yield argv(
        "azure-client",
        "az",
        "login",
        "--service-principal",
        "-u",
        "app",
        "-p",
        m.azure_client(),
        "--tenant",
        "t1",
        keeps=("--tenant",),
        hard=True,
    )
    yield env("digitalocean", "DIGITALOCEAN_ACCESS_TOKEN", m.digitalocean())
    yield log("digitalocean", f"doctl: using {m.digitalocean('o')} for droplet gpu-h100x1")
    yield argv("digitalocean", "doctl", "auth", "init", "-t", m.digitalocean(), hard=True)
    yield text("digitalocean", f"- name: s3\n  context: default\n  access: {m.digitalocean('r')}\n", hard=True)
    yield env("cloudflare", "CLOUDFLARE_API_TOKEN", m.some(BASE64_URL, 40))
    yield argv("cloudflare", "cloudflared", "tunnel", "run", "--token", hide(m.raw_base64(120)), keeps=("tunnel",))
    yield log("cloudflare", f"X-Auth-Email: mia@example.org\nX-Auth-Key: {m.hex(37)}", keeps=("mia@example.org",))
    yield env("heroku", "HEROKU_API_KEY", m.uuid())
    yield text(
        "heroku", f"machine api.heroku.com\n  login mia@example.org\n  password {m.uuid()}\n", keeps=("api.heroku.com",)
    )
    yield env("minio", "MINIO_ROOT_PASSWORD", m.password())
    yield trace(
        "minio",
        f"fs = s3fs.S3FileSystem(key='mlflow', secret='{m.password(20)}', endpoint_url='http://minio:9000')",
        keeps=("http://minio:9000",),
    )
    yield argv(
        "minio",
        "mc",
        "alias",
        "set",
        "lab",
        "http://minio:9000",
        "mlflow",
        m.password(16),
        keeps=("http://minio:9000",),
        hard=True,
    )
    yield argv(
        "minio",
        "s3cmd",
        f"--access_key={m.aws_id()}",
        f"--secret_key={m.aws_secret()}",
        "ls",
        "s3://sets",
        keeps=("s3://sets",),
    )
    yield env("cloud-gpu", "RUNPOD_API_KEY", m.some(UPPER_ALNUM, 40, "rpa" + "_"))
    yield env("cloud-gpu", "LAMBDA_API_KEY", hide(f"secret_gpubox_{m.raw(LOWER_HEX, 32)}.{m.raw(ALNUM, 24)}"))
    yield env("ngc", "NGC_API_KEY", m.ngc())
    yield argv(
        "ngc",
        "docker",
        "login",
        "nvcr.io",
        "-u",
        "$oauthtoken",
        "-p",
        m.ngc(),
        keeps=("nvcr.io",),
    )
    yield trace(
        "ngc",
        f'client = OpenAI(base_url="https://integrate.api.nvidia.com/v1", api_key="{m.ngc()}")',
        keeps=("https://integrate.api.nvidia.com/v1",),
    )
    yield log("ngc", f"ngc config: current apikey {m.ngc()}")


def code_hosts(m: Shapes) -> Iterator[Secret]:
    """Where code and packages come from."""
    yield env("github", "GITHUB_TOKEN", m.github())
    yield log(
        "github",
        f"fatal: unable to access 'https://{m.github('o')}@github.com/lab/net.git/': 403",
        keeps=("lab/net.git",),
    )
    yield argv(
        "github",
        "git",
        "clone",
        f"https://x-access-token:{m.github('s')}@github.com/lab/net.git",
        keeps=("github.com/lab/net.git",),
    )
    yield trace("github", f'repo = Github("{m.github("u")}").get_repo("lab/net")', keeps=("lab/net",))
    yield env("github-fine-grained", "GH_TOKEN", m.github_fine())
    yield log("github-fine-grained", f"token {m.github_fine()} lacks the scope 'repo'", keeps=("lacks the scope",))
    yield text("github-fine-grained", f"  Logged in, tokens: [{m.github_fine()}, {m.github_fine()}]")
    yield env("gitlab", "GL_PAT", m.gitlab())
    yield argv(
        "gitlab",
        "git",
        "clone",
        f"https://oauth2:{m.gitlab()}@gitlab.example.org/ml/net.git",
        keeps=("gitlab.example.org/ml/net.git",),
    )
    yield log("gitlab", f"PRIVATE-TOKEN: {m.gitlab()}")
    yield argv(
        "gitlab",
        "gitlab-runner",
        "register",
        "--url",
        "https://gitlab.example.org",
        "-r",
        m.gitlab("glrt"),
        keeps=("https://gitlab.example.org",),
    )
    yield env("gitlab-job", "CI_JOB_TOKEN", m.some(ALNUM, 20, "gl" + "cbt-64_"))
    yield env("gitlab-job", "CI_REGISTRY_PASSWORD", m.some(ALNUM, 20, "gl" + "cbt-64_"))
    yield env("pypi", "TWINE_PASSWORD", m.pypi())
    yield argv(
        "pypi", "twine", "upload", "-u", "__token__", "-p", m.pypi(), "dist/net-1.0.whl", keeps=("dist/net-1.0.whl",)
    )
    yield log("pypi", f"Uploading net-1.0.whl with {m.pypi()}", keeps=("net-1.0.whl",))
    yield text(
        "pypirc",
        f"[pypi]\nrepository = https://pypi.example.org\nusername = mia\npassword = {m.password()}\n",
        keeps=("https://pypi.example.org", "username"),
    )
    yield text(
        "pypirc",
        f"[distutils]\nindex-servers =\n  lab\n[lab]\nusername: ci\npassword: {m.password(9)}",
        keeps=("[lab]",),
    )
    yield env("npm", "NPM_TOKEN", m.npm())
    yield log("npm", f"npm ERR! 401 Unauthorized {m.npm()}", keeps=("401 Unauthorized",))
    yield text("npmrc", f"//registry.example.org/:_authToken={m.uuid()}\n", keeps=("registry.example.org",))
    yield text(
        "npmrc",
        f"registry=https://npm.example.org/\n_auth={m.basic()}\nalways-auth=true\n",
        keeps=("always-auth=true",),
    )
    yield text(
        "npmrc",
        f"//npm.example.org/:_password={hide(m.raw_base64(15))}\n//npm.example.org/:username=mia\n",
        keeps=("username=mia",),
    )
    yield argv(
        "pip-index",
        "pip",
        "install",
        "--extra-index-url",
        f"https://ci:{m.password()}@pypi.example.org/simple",
        "net",
        keeps=("pypi.example.org/simple",),
    )
    yield env(
        "pip-index",
        "PIP_INDEX_URL",
        f"https://__token__:{m.password(20)}@pkgs.example.org/simple",
        keeps=("pkgs.example.org/simple",),
    )
    yield log(
        "pip-index",
        f"Looking in indexes: https://pypi.org/simple, https://mia:{m.password()}@pypi.example.org/simple",
        keeps=("https://pypi.org/simple",),
    )
    yield text("pip-index", f"[global]\nindex-url = https://{m.password(30)}@pypi.example.org/simple\n", hard=True)
    yield argv(
        "docker-login",
        "docker",
        "login",
        "-u",
        "mia",
        "-p",
        m.password(),
        "registry.example.org",
        keeps=("registry.example.org",),
    )
    yield argv(
        "docker-login",
        "docker",
        "login",
        "--username=mia",
        f"--password={m.some(BASE64_URL, 27, 'dckr' + '_pat_')}",
        keeps=("--username=mia",),
    )
    yield text("docker-login", f"podman login -u mia -p '{m.password()}' quay.io", keeps=("quay.io",))
    yield argv(
        "docker-login",
        "singularity",
        "remote",
        "login",
        "--username",
        "mia",
        "--password",
        m.password(),
        "docker://ghcr.io",
    )
    yield text(
        "docker-config",
        f'{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{m.basic()}"}}}}}}',
        keeps=("https://index.docker.io/v1/",),
    )
    yield env("docker-config", "DOCKER_AUTH_CONFIG", f'{{"auths":{{"nvcr.io":{{"auth":"{m.basic("$oauthtoken")}"}}}}}}')
    yield argv(
        "docker-run",
        "docker",
        "run",
        "--gpus",
        "all",
        "-e",
        f"WANDB_API_KEY={m.hex(40)}",
        "-e",
        "EPOCHS=3",
        "lab/net:1",
        keeps=("EPOCHS=3", "lab/net:1"),
    )
    yield argv(
        "docker-run", "docker", "run", f"--env=DB_PASSWORD={m.password()}", "--rm", "lab/net:1", keeps=("lab/net:1",)
    )
    yield text("docker-run", f"ENV HF_TOKEN {m.hugging_face()}\nCMD python train.py", keeps=("CMD python train.py",))
    yield argv(
        "docker-run", "docker", "build", "--build-arg", f"PIP_PASSWORD={m.password(8)}", ".", keeps=("--build-arg",)
    )
    yield argv(
        "git-remote",
        "git",
        "remote",
        "set-url",
        "origin",
        f"https://mia:{m.password()}@git.example.org/net",
        keeps=("git.example.org/net",),
    )
    yield argv(
        "git-remote",
        "git",
        "-c",
        f"http.extraheader=AUTHORIZATION: basic {m.basic('x-access-token')}",
        "fetch",
        keeps=("fetch",),
    )
    yield log(
        "git-remote",
        f"Cloning into 'net'...\nremote: https://{m.password(24)}:x-oauth-basic@github.com/lab/net",
        hard=True,
    )
    yield env("atlassian", "JIRA_API_TOKEN", m.some(BASE64_URL, 180, "ATA" + "TT3xFfGF0", end="=1A2B3C4D"))
    yield trace(
        "atlassian",
        f"JIRA('https://lab.atlassian.net', basic_auth=('mia@example.org', '{m.some(ALNUM, 24)}'))",
        keeps=("https://lab.atlassian.net",),
        hard=True,
    )
