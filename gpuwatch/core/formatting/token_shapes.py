"""Tokens known by their shape: prefix, alphabet and length.

The vendors publish the shapes, or all of their tokens show them; each has its source. A shape with a common prefix has
its exact length, so that no ordinary word fits.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_HEX = "0-9a-f"
_ALNUM = "A-Za-z0-9"
_WORD = r"\w"
_URL = r"\w-"
"""The alphabet of base64url."""
_UPPER = "A-Z0-9"


class Shape(NamedTuple):
    """``prefixes`` followed by at least ``least`` characters of ``alphabet``; by exactly so many where ``exact``."""

    prefixes: tuple[str, ...]
    alphabet: str
    least: int
    source: str
    exact: bool = False


SHAPES: Final = (
    Shape(("hf_", "api_org_"), _ALNUM, 16, "huggingface.co/docs/hub/security-tokens"),
    Shape(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), _ALNUM, 16, "docs.github.com: GitHub's token formats"),
    Shape(("github_pat_",), _WORD, 20, "docs.github.com: GitHub's token formats"),
    Shape(
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-", "gloas-", "glimt-"),
        r"\w.-",
        16,
        "docs.gitlab.com/security/tokens: token prefixes",
    ),
    Shape(("sk-",), _URL, 20, "platform.openai.com, docs.anthropic.com: keys of their APIs"),
    Shape(("gsk_", "xai-"), _ALNUM, 20, "console.groq.com, docs.x.ai"),
    Shape(("r8_",), _ALNUM, 20, "replicate.com/docs: API tokens"),
    Shape(("nvapi-",), _URL, 20, "docs.nvidia.com/ngc: API keys"),
    Shape(("wandb_v1_",), _WORD, 20, "docs.wandb.ai: API keys of 2025"),
    Shape(("sk_live_", "sk_test_", "rk_live_", "rk_test_", "pk_live_", "pk_test_"), _WORD, 10, "docs.stripe.com/keys"),
    Shape(("whsec_",), r"\w+/=", 20, "docs.stripe.com/webhooks"),
    Shape(
        ("xoxb-", "xoxa-", "xoxp-", "xoxr-", "xoxs-", "xoxe-", "xoxe.", "xoxc-", "xoxd-", "xapp-"),
        r"\w.%-",
        8,
        "docs.slack.dev: token types",
    ),
    Shape(
        ("AKIA", "ASIA", "ABIA", "ACCA", "AROA", "AIDA"),
        _UPPER,
        16,
        "docs.aws.amazon.com/IAM: unique identifiers",
        True,
    ),
    Shape(("AIza",), _URL, 30, "cloud.google.com/docs/authentication/api-keys"),
    Shape(("ya29.", "1//0"), r"\w.-", 16, "developers.google.com/identity/protocols/oauth2"),
    Shape(("GOCSPX-",), _URL, 20, "developers.google.com/identity: client secrets"),
    Shape(("GOOG1",), _UPPER, 20, "cloud.google.com/storage: HMAC keys"),
    Shape(("npm_",), _ALNUM, 20, "docs.npmjs.com: access tokens"),
    Shape(("pypi-", "testpypi-"), _URL, 20, "pypi.org/help: API tokens"),
    Shape(("dckr_pat_", "dckr_oat_"), _URL, 16, "docs.docker.com: access tokens"),
    Shape(("SG.",), r"\w.-", 32, "docs.sendgrid.com: API keys"),
    Shape(("key-",), _HEX, 32, "documentation.mailgun.com: API keys", True),
    Shape(("AGE-SECRET-KEY-",), _UPPER, 8, "age-encryption.org"),
    Shape(("b3BlbnNzaC1rZXktdjE",), r"\w+/=", 0, "PROTOCOL.key of OpenSSH: base64 of openssh-key-v1"),
    Shape(("dop_v1_", "doo_v1_", "dor_v1_"), _HEX, 32, "docs.digitalocean.com: personal access tokens"),
    Shape(("hvs.", "hvb.", "hvr."), _URL, 20, "developer.hashicorp.com/vault/docs/concepts/tokens"),
    Shape(("s.",), _ALNUM, 24, "developer.hashicorp.com/vault: tokens before 1.10", True),
    Shape(("dapi", "dose", "dkea"), _HEX, 32, "docs.databricks.com: personal access tokens", True),
    Shape(("shpat_", "shpss_", "shpca_", "shppa_"), "0-9a-fA-F", 32, "shopify.dev: access tokens"),
    Shape(("SK", "AC"), _HEX, 32, "twilio.com/docs: API key and account SIDs", True),
    Shape(("glsa_", "glc_"), r"\w+/=-", 20, "grafana.com/docs: service account tokens"),
    Shape(("squ_", "sqp_", "sqa_"), _HEX, 40, "docs.sonarsource.com: tokens", True),
    Shape(("lin_api_", "lin_oauth_"), _ALNUM, 20, "linear.app/developers"),
    Shape(("ntn_",), _ALNUM, 20, "developers.notion.com"),
    Shape(("secret_",), "A-Za-z0-9.", 40, "developers.notion.com: before 2024; docs.lambda.ai: API keys"),
    Shape(("figd_",), _URL, 20, "figma.com/developers: personal access tokens"),
    Shape(("pul-",), _HEX, 32, "pulumi.com/docs: access tokens"),
    Shape(("dp.pt.", "dp.st.", "dp.ct.", "dp.sa."), r"\w.-", 20, "docs.doppler.com: auth tokens"),
    Shape(("ATATT", "ATCTT", "ATBB"), r"\w=-", 20, "support.atlassian.com: API tokens"),
    Shape(("NRAK-", "NRJS-", "NRII-"), r"\w-", 19, "docs.newrelic.com: API keys"),
    Shape(("sntrys_", "sntryu_"), r"\w+/=", 20, "docs.sentry.io: auth tokens"),
    Shape(("EAAA",), _ALNUM, 40, "developers.facebook.com, developer.squareup.com: access tokens"),
    Shape(("PMAK-",), "0-9a-f-", 40, "learning.postman.com: API keys"),
    Shape(("rubygems_",), _HEX, 40, "guides.rubygems.org: API keys"),
    Shape(("cio",), _ALNUM, 32, "doc.rust-lang.org/cargo: crates.io tokens", True),
    Shape(("dt0c01.",), r"A-Z0-9.", 40, "docs.dynatrace.com: access tokens"),
    Shape(("v1.0-",), "0-9a-f-", 100, "developers.cloudflare.com: origin CA keys"),
    Shape(("FlyV1 ", "fm1_", "fm2_"), r"\w+/=,-", 40, "fly.io/docs: access tokens"),
    Shape(("rpa_",), _ALNUM, 30, "docs.runpod.io: API keys"),
    Shape(("KGAT_",), _ALNUM, 20, "kaggle.com/docs/api: tokens"),
    Shape(("pplx-", "fw_", "jina_"), _ALNUM, 24, "docs.perplexity.ai, fireworks.ai, jina.ai: API keys"),
    Shape(("lsv2_pt_", "lsv2_sk_"), _WORD, 20, "docs.smith.langchain.com: API keys"),
    Shape(("pcsk_",), _WORD, 20, "docs.pinecone.io: API keys"),
    Shape(("sgp_",), _WORD, 40, "sourcegraph.com/docs: access tokens"),
    Shape(("sbp_",), _HEX, 40, "supabase.com/docs: personal access tokens", True),
    Shape(("ak-", "as-"), _ALNUM, 22, "modal.com/docs: token id and secret", True),
    Shape(("pat",), "A-Za-z0-9.", 79, "airtable.com/developers: personal access tokens", True),
    Shape(("A3-",), "A-Z0-9-", 29, "support.1password.com: Secret Key"),
    Shape(("tskey-",), _URL, 16, "tailscale.com/kb: keys"),
)


_BESIDE: Final[dict[tuple[str, ...], str]] = {("SK", "AC"): r"(?:[\"',:\s]{1,6}[0-9a-f]{32}(?![0-9a-f]))?"}
"""Twilio's secret has no prefix, but follows its identifier."""


def _compiled(shape: Shape) -> re.Pattern[str]:
    length = f"{{{shape.least}}}(?![A-Za-z0-9])" if shape.exact else f"{{{shape.least},}}+"
    return re.compile(f"[{shape.alphabet}]{length}{_BESIDE.get(shape.prefixes, '')}")


_RESTS: Final = (
    *((prefix, _compiled(shape)) for shape in SHAPES for prefix in shape.prefixes),
    # JSON Web Tokens (RFC 7519): two or three parts of base64url, the first of which begins with {".
    ("eyJ", re.compile(r"(?<![\w-]eyJ)[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]++)*+")),
    # Keys in DER (RFC 5958) as base64 in one line.
    *((prefix, re.compile(r"[\w+/]{40,}+={0,2}")) for prefix in ("MII", "MIC")),
)
_DISCORD = re.compile(r"[MNO](?<![\w-].)[\w-]{22,27}\.[\w-]{5,7}\.[\w-]{27,45}")
"""The id of the bot, the time and a signature, each in base64url (discord.com/developers: authentication)."""
_TERRAFORM = re.compile(r"(?<![\w.-])[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}+")
"""developer.hashicorp.com/terraform/cloud-docs: API tokens."""
_BOOTSTRAP = re.compile(r"(?<![\w.])(?=[a-z]{0,5}\d)[a-z0-9]{6}\.(?=[a-z]{0,15}\d)[a-z0-9]{16}(?![\w.])")
"""kubernetes.io/docs: bootstrap tokens."""
_TELEGRAM = re.compile(r"(?<!\d)\d{8,10}:AA[\w-]{32,34}(?![\w-])")
"""The id of the bot and 35 characters (core.telegram.org/bots/api)."""


def without_tokens(text: str, mask: str) -> str:
    """``text`` with ``mask`` in place of tokens. Takes linear time."""
    spans = []
    for prefix, rest in _RESTS:
        at = text.find(prefix)
        while at >= 0:
            end = at + len(prefix)
            if not (at and text[at - 1].isalnum() and text[at - 1].isascii()) and (match := rest.match(text, end)):
                spans.append((at, match.end()))
                end = match.end()
            at = text.find(prefix, end)
    if text.count(".") > 1:
        spans += (match.span() for match in _DISCORD.finditer(text))
    if "token" in text:
        spans += (match.span() for match in _BOOTSTRAP.finditer(text))
    if ".atlasv1." in text:
        spans += (match.span() for match in _TERRAFORM.finditer(text))
    if ":AA" in text:
        spans += (match.span() for match in _TELEGRAM.finditer(text))
    if not spans:
        return text
    shown: list[str] = []
    done = 0
    for begin, end in sorted(spans):
        if begin >= done:
            shown += (text[done:begin], mask)
        done = max(done, end)
    return "".join((*shown, text[done:]))
