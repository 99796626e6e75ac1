"""Random material in the shape of real credentials (prefix, alphabet, length), as far as these are known.

Nothing here is, or ever was, valid. Prefixes are split where a scanner would know them by the prefix alone.
"""

import base64
import json
import random
import string

from tests.secrets.entry import hide

LOWER_HEX = "0123456789abcdef"
ALNUM = string.ascii_letters + string.digits
LOWER_ALNUM = string.ascii_lowercase + string.digits
UPPER_ALNUM = string.ascii_uppercase + string.digits
BASE64 = ALNUM + "+/"
BASE64_URL = ALNUM + "-_"
BASE32 = string.ascii_uppercase + "234567"
# Of age's keys (BIP 173): no 1, B, I or O.
BECH32 = "".join(char for char in string.digits + string.ascii_uppercase if char not in "1BIO")
DASHES = "-" * 5


class Shapes:
    """Makes credentials; the same seed makes the same ones. Functions whose name begins with raw_ set no marks."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def raw(self, alphabet: str, length: int) -> str:
        """Random characters, the first and last of them never a sign."""
        inner = "".join(self.random.choices(alphabet, k=length))
        ends = [char for char in alphabet if char.isalnum()]
        return self.random.choice(ends) + inner[1:-1] + self.random.choice(ends) if length > 1 else inner

    def some(self, alphabet: str, length: int, prefix: str = "", end: str = "") -> str:
        """Marked: prefix, random characters, end."""
        return hide(prefix + self.raw(alphabet, length) + end)

    def raw_password(self, length: int = 12) -> str:
        """Letters and digits, both for certain, no sign."""
        return (
            self.raw(string.ascii_letters, 1)
            + self.raw(ALNUM, length - 3)
            + self.raw("23456789", 1)
            + self.raw("ABCXYZ", 1)
        )

    def password(self, length: int = 12) -> str:
        """Marked: letters and digits."""
        return hide(self.raw_password(length))

    def hex(self, length: int) -> str:
        """Marked: lower-case hexadecimal."""
        return self.some(LOWER_HEX, length)

    def raw_base64(self, size: int) -> str:
        """So many bytes in base64."""
        return base64.b64encode(self.random.randbytes(size)).decode()

    def uuid(self) -> str:
        """Marked: a UUID of version 4 (Heroku's and Azure's older keys have its shape)."""
        return hide(self.raw_uuid())

    def raw_uuid(self) -> str:
        """A UUID of version 4."""
        digits = self.raw(LOWER_HEX, 32)
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def basic(self, user: str = "mia") -> str:
        """Marked: what follows `Basic`."""
        return hide(base64.b64encode(f"{user}:{self.raw_password()}".encode()).decode())

    def raw_jwt(self, issuer: str = "https://login.example.org") -> str:
        """A JSON web token: three parts in base64url (RFC 7519)."""
        parts = ({"alg": "RS256", "typ": "JWT"}, {"iss": issuer, "sub": "mia", "exp": 1999999999})
        encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
        return ".".join((*encoded, self.raw(BASE64_URL, 86)))

    def jwt(self) -> str:
        """Marked: a JSON web token."""
        return hide(self.raw_jwt())

    def raw_pem(self, kind: str, lines: int, width: int = 64) -> list[str]:
        """The lines of a private key; those of the body are marked."""
        label = (f"{kind} " if kind else "") + "PRIVATE" + " KEY"
        body = [self.some(BASE64, width) for _ in range(lines - 1)] + [self.some(BASE64, width - 22, end="==")]
        return [f"{DASHES}BEGIN {label}{DASHES}", *body, f"{DASHES}END {label}{DASHES}"]

    def pem(self, kind: str, lines: int, width: int = 64, newline: str = "\n") -> str:
        """A private key with its lines joined."""
        return newline.join(self.raw_pem(kind, lines, width)) + newline

    def aws_secret(self) -> str:
        return self.some(BASE64, 40)

    def aws_id(self) -> str:
        """The access key's id: a name rather than a secret, so it is not marked."""
        return "AK" + "IA" + self.raw(BASE32, 16)

    def aws_session(self) -> str:
        return self.some(BASE64, 180, "IQoJb3JpZ2luX2Vj")

    def google_api(self) -> str:
        return self.some(BASE64_URL, 35, "AI" + "za")

    def google_oauth(self) -> str:
        return self.some(BASE64_URL, 140, "ya" + "29.a0")

    def azure_key(self) -> str:
        return hide(self.raw_base64(64))

    def azure_client(self) -> str:
        return hide(self.raw(ALNUM, 3) + "8Q~" + self.raw(BASE64_URL, 34))

    def github(self, letter: str = "p") -> str:
        return self.some(ALNUM, 36, "gh" + letter + "_")

    def github_fine(self) -> str:
        return hide("github" + "_pat_" + self.raw(ALNUM, 22) + "_" + self.raw(ALNUM, 59))

    def gitlab(self, prefix: str = "glpat") -> str:
        return self.some(BASE64_URL, 20, prefix + "-")

    def slack(self, letter: str = "b") -> str:
        digits = string.digits
        return hide("-".join(("xox" + letter, self.raw(digits, 12), self.raw(digits, 13), self.raw(ALNUM, 24))))

    def discord(self) -> str:
        first = base64.b64encode(self.raw("123456789", 18).encode()).decode()
        return hide(".".join((first, self.raw(ALNUM, 6), self.raw(BASE64_URL, 38))))

    def telegram(self) -> str:
        """The bot's id is public, only what follows it is marked."""
        return self.raw("123456789", 10) + ":" + hide("AA" + self.raw(BASE64_URL, 33))

    def hugging_face(self) -> str:
        return self.some(string.ascii_letters, 34, "hf" + "_")

    def openai(self, prefix: str = "sk-proj-") -> str:
        return self.some(ALNUM, 74, prefix, end="T3" + "BlbkFJ" + self.raw(ALNUM, 74))

    def openai_old(self) -> str:
        return self.some(ALNUM, 20, "sk" + "-", end="T3" + "BlbkFJ" + self.raw(ALNUM, 20))

    def anthropic(self) -> str:
        return self.some(BASE64_URL, 93, "sk" + "-ant-api03-", end="AA")

    def neptune(self) -> str:
        content = {
            "api_address": "https://app.neptune.ai",
            "api_url": "https://app.neptune.ai",
            "api_key": self.raw_uuid(),
        }
        return hide(base64.b64encode(json.dumps(content).encode()).decode())

    def databricks(self) -> str:
        return self.some(LOWER_HEX, 32, "da" + "pi", end="-2")

    def digitalocean(self, letter: str = "p") -> str:
        return self.some(LOWER_HEX, 64, "do" + letter + "_v1_")

    def shopify(self, prefix: str = "shpat") -> str:
        return self.some(LOWER_HEX, 32, prefix + "_")

    def stripe(self, prefix: str = "sk_live") -> str:
        return self.some(ALNUM, 24, prefix + "_")

    def sendgrid(self) -> str:
        return hide(".".join(("S" + "G", self.raw(BASE64_URL, 22), self.raw(BASE64_URL, 43))))

    def vault(self) -> str:
        return self.some(BASE64_URL, 92, "hv" + "s.")

    def pypi(self) -> str:
        return self.some(BASE64_URL, 160, "py" + "pi-AgEIcHlwaS5vcmc")

    def npm(self) -> str:
        return self.some(ALNUM, 36, "npm" + "_")

    def ngc(self) -> str:
        return self.some(BASE64_URL, 64, "nv" + "api-")

    def slack_app(self) -> str:
        digits = string.digits
        parts = ("xap" + "p", "1", self.raw(UPPER_ALNUM, 11), self.raw(digits, 13), self.raw(LOWER_HEX, 64))
        return hide("-".join(parts))

    def age(self) -> str:
        return self.some(BECH32, 58, "AGE-SECRET" + "-KEY-1")
