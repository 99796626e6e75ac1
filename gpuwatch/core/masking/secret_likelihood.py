"""How likely a name is that of a secret, and a value a secret: ``HF_TOKEN``, ``--db-password``; not ``pad_token``."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Final

from gpuwatch.core.parsing import lazy, word_set

MASK: Final = "•••"
MAX_NAME_CHARS: Final = 80
"""Characters of the longest name; how far a scan goes back."""
MAX_CALL_CHARS: Final = 400
"""Characters of a call or a list after a name that are searched for literals."""
OTHER_LANGUAGES: Final = tuple(
    word.replace("_", " ")
    for word in word_set(
        "contrase\u00f1a \u5bc6\u7801 \u5bc6\u78bc \u53e3\u4ee4 \u30d1\u30b9\u30ef\u30fc\u30c9 "
        "\ube44\ubc00\ubc88\ud638 \uc554\ud638 \u043f\u0430\u0440\u043e\u043b has\u0142o l\u00f6senord jelsz\u00f3 "
        "\u015fifre m\u1eadt_kh\u1ea9u \u03ba\u03c9\u03b4\u03b9\u03ba\u03cc \u05e1\u05d9\u05e1\u05de "
        "\u0643\u0644\u0645\u0629_\u0627\u0644\u0645\u0631\u0648\u0631 "
        "\u0643\u0644\u0645\u0629_\u0627\u0644\u0633\u0631 \u0631\u0645\u0632_\u0639\u0628\u0648\u0631 "
        "\u092a\u093e\u0938\u0935\u0930\u094d\u0921 \u0e23\u0e2b\u0e31\u0e2a\u0e1c\u0e48\u0e32\u0e19 "
        "\u043b\u043e\u0437\u0438\u043d\u043a parol\u0103 sala_s\u00f5na slapta\u017eod mot_de_passe"
    )
)
"""Words for "password" of languages that have other letters or blanks in it."""


class Strength(IntEnum):
    """How likely a name is that of a secret."""

    NONE = 0
    WEAK = 1
    """``key``, ``signature``: a secret only if the value looks like one."""
    FIRM = 2
    """``token``: a secret unless the value is a number, a switch or a placeholder."""
    STRONG = 3
    """``password``: a secret whatever the value is, unless there is none."""


_PARTS = lazy(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_KEY_KINDS = word_set("""
api access secret private account auth encryption signing license licence service storage subscription master ssh
client consumer app application aes hmac shared deploy webhook wandb tls ssl pre presigned gpg deployment user
project org server session
""")
_HARMLESS_KEY_KINDS = word_set("""
sort group monitor embedding primary public foreign partition metric num max min cache dict config index order
row column label feature image batch input output state random prng rng map lookup join search answer host values
known trusted host registry reg hot short
""")
_TOKENIZER_WORDS = word_set("""
eos bos pad unk mask sep cls stop start end special image audio text prompt next new first last max min num per n
total top input output completion prefix suffix decoder forced begin beginning padding separator additional
remaining used prompt cached context reserved unexpected valid invalid csrfless by single
""")
_ATTRIBUTE_WORDS = word_set("""
command cmd program script helper manager provider
type types id ids len length lens size sizes count counts num number timeout ttl expiry expires expiration prompt
policy mode index indices format version enabled required stdin def defs name names limit budget rate usage error
errors value values heads board map embedding embeddings classification logits mask ring rings per s method
algorithm alg schema style hint field level strategy column columns file path dir folder location url uri
endpoint host port store protected based less free only wise fd
""")
_OTHER_NOUNS = word_set("file path dir folder location exception error warning fault failure")
_WORDS_WITH_PASS = word_set("bypass compass trespass encompass surpass getpass")
_SECRET_KEY = lazy(
    r"(?:api|access|secret|private|account|auth|encrypt|encryption|signing|license|ssh|master|client)keys?"
)
_EXCEPTION_NAME = lazy(
    r"(?:[\w.]*\.)?(?:Bad|Invalid|Missing|No|Wrong|Expired|Incorrect|Unknown|Unsupported|Malformed)(?:[A-Z][a-z]+)+"
)
"""``BadDsn``, ``InvalidToken``: exceptions, whose message stands behind a colon."""
_STRONG_WORD = lazy(
    r"passw|passphrase|secret|credential|apikey|accesskey|privatekey|authtoken|accesstoken|webhook|connectionstring"
    r"|authorization|clientsecret|seedphrase|recoveryphrase"
)


@lru_cache(4096)
def secret_strength(name: str) -> Strength:
    """How likely values of ``name`` are secret, in any spelling: ``HF_TOKEN``, ``apiKey``, ``--db-password``."""
    if len(name) > MAX_NAME_CHARS:
        name = name[-MAX_NAME_CHARS:]
    parts = [part.lower() for part in _PARTS.findall(name)]
    if not name.isascii() and any(word in name.lower() for word in OTHER_LANGUAGES):
        return Strength.STRONG
    if not parts:
        return Strength.NONE
    last, together = parts[-1], "".join(parts)
    if last in _OTHER_NOUNS and len(parts) > 1:
        return Strength.NONE
    if _EXCEPTION_NAME.fullmatch(name):
        return Strength.WEAK
    strong = _STRONG_WORD.search(together)
    if strong and not (
        last in _ATTRIBUTE_WORDS and len(parts) > 1 and not together.endswith(("accesskeyid", "privatekeyid"))
    ):
        return Strength.STRONG
    if "webhook" in together:
        return Strength.STRONG
    if last in _ATTRIBUTE_WORDS and len(parts) > 1:
        return Strength.NONE
    return max(_part_strength(parts, index) for index in range(len(parts)))


_PASSWORDS = word_set(
    "pwd pw dsn bearer passcode creds passe contrasena senha wachtwoord adgangskode salasana kennwort heslo lozinka"
    " parola passord kodeord geslo sandi motdepasse rootpw clave sifre jsessionid phpsessid dockerconfigjson"
)


def _part_strength(parts: list[str], index: int) -> Strength:
    part, before = parts[index], parts[index - 1] if index else ""
    is_last = index + 1 == len(parts)
    if part in _PASSWORDS or (is_last and part in ("otp", "pin")):
        return Strength.STRONG
    if part.endswith(("pass", "pwd")) and part not in _WORDS_WITH_PASS:
        return Strength.STRONG if is_last else Strength.NONE
    if part == "token" or part.endswith("token"):
        return Strength.NONE if before in _TOKENIZER_WORDS else Strength.FIRM
    if part == "pat" and is_last:
        return Strength.FIRM if index else Strength.WEAK
    if part in ("auth", "authentication"):
        return Strength.FIRM
    if part in ("cookie", "cookies", "private"):
        return Strength.FIRM if is_last else Strength.NONE
    if part in ("sig", "signature", "appid", "chave", "sessionid"):
        return Strength.WEAK
    if part in ("key", "keys"):
        if before in _SECRET_KEY_KINDS:
            return Strength.STRONG
        return Strength.NONE if before in _HARMLESS_KEY_KINDS else Strength.WEAK
    return Strength.STRONG if _SECRET_KEY.fullmatch(part) else Strength.NONE


_NO_VALUE_WORD = lazy(
    r"(?i:none|null|true|false|nil|undefined|empty|unset|missing|invalid|required|yes|no|on|off|auto)"
)
_NUMBER = lazy(r"[-+]?\d{1,9}|\d*\.\d+|\d+\.")
_PLACEHOLDER = lazy(
    r"\$?\{[^{}]{0,60}\}|\$[A-Za-z_]\w{0,60}|\$\([^()]{0,60}\)|%\(\w{1,40}\)s|%s|<[\w /|-]{0,40}>"
    r"|\[\w{1,20}\]|\*+|[xX]{3,}|•+|\.{3}|…"
)
_WORD = r"(?:[a-z]{2,24}\d{0,5}(?:[a-z]\d?)?|[a-z]?\d{1,4}|[a-z])"
_WORDS = lazy(
    rf"(?!\d){_WORD}(?:[_./:-]{_WORD}){{0,12}}|[A-Z]{{1,24}}\d{{0,3}}(?:_[A-Z]{{1,24}}\d{{0,3}}){{0,12}}"
    r"|[A-Z]?[a-z]{1,24}(?:[A-Z][a-z]{1,24}){0,5}\d{0,3}"
)
WORD_AND_NUMBER = lazy(r"[A-Za-z]{5,24}\d{2,5}")
"""What people choose: a word and a number."""
_PATH = lazy(r"(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]*)*+|[A-Za-z]:\\[^\s]{1,200}")


def is_harmless_key_kind(before: str) -> bool:
    """Whether a key with this word before it is none of a lock: ``cache key``, ``public key``."""
    return before.strip(" _-").lower() in _HARMLESS_KEY_KINDS


def looks_secret(value: str) -> bool:
    """Whether a value looks like a password rather than a word, a number or a path."""
    if len(value) < 6 or is_placeholder(value) or _NUMBER.fullmatch(value):
        return False
    if len(value) <= MAX_CALL_CHARS and (_WORDS.fullmatch(value) or _PATH.fullmatch(value)):
        return False
    digits = any(char.isdigit() for char in value)
    letters = sum(char.isalpha() for char in value)
    return (digits and letters > 1) or (
        len(value) >= 8 and any(map(str.isupper, value)) and any(map(str.islower, value))
    )


_CAMEL_CASE = r"(?:[A-Z]{0,5}[a-z]{2,}+){1,5}[A-Z]{0,3}"
_NAME_PART = (
    rf"(?:(?:{_CAMEL_CASE}|[A-Z]{{1,8}}|[A-Za-z]{{1,2}}|\d{{1,3}}x)?\d{{1,4}}(?:[A-Za-z]|bit)?"
    rf"|{_CAMEL_CASE}|[A-Z]{{1,8}}|[A-Za-z]{{1,3}})"
)
_NAME_OF_PARTS = lazy(rf"(?=.*[A-Za-z][a-z]{{3}}){_NAME_PART}(?:[_.-]{_NAME_PART}){{1,12}}")


def looks_like_model_name(value: str) -> bool:
    """Whether a value is of words and short numbers with hyphens or dots between: ``EleutherAI-gpt-neo-125M``."""
    return bool(_NAME_OF_PARTS.fullmatch(value))


_LONG_RUN = lazy(r"[A-Za-z0-9]{16,}")
_LETTER_DIGIT_CHANGE = lazy(r"[A-Za-z]\d|\d[A-Za-z]")


def looks_random(value: str) -> bool:
    """Whether a part of a value goes to and fro between letters and digits, as no word and no name of a file does."""
    return looks_secret(value) and any(len(_LETTER_DIGIT_CHANGE.findall(run)) > 2 for run in _LONG_RUN.findall(value))


def _is_path(value: str) -> bool:
    """Whether a value is a path, not base64 with slashes."""
    if len(value) > MAX_CALL_CHARS or not _PATH.fullmatch(value) or value.count("/") + value.count("\\") < 2:
        return False
    return not any(len(part) >= 16 and looks_secret(part) and "." not in part for part in value.split("/"))


def is_placeholder(value: str) -> bool:
    """Whether a value is empty, a placeholder or a word such as ``none``."""
    if not value or _NO_VALUE_WORD.fullmatch(value):
        return True
    return (
        len(value) < 80 and bool(_PLACEHOLDER.fullmatch(value)) and not (value[0] == "{" and looks_secret(value[1:-1]))
    )


def is_secret_value(name: str, value: str) -> bool:
    """Whether to mask the whole value of a variable because of its name."""
    return is_secret(secret_strength(name), name, value)


def is_secret(strength: Strength, name: str, value: str) -> bool:
    """Whether to mask the whole value of a name whose strength is known."""
    if not strength or is_placeholder(value) or (name == "PWD" and (value == "/" or _PATH.fullmatch(value))):
        return False
    if len(value) > MAX_CALL_CHARS and not any(map(str.isspace, value)):
        return True  # masked whole
    if strength is Strength.WEAK:
        return looks_secret(value) and " " not in value and not value.startswith("/job:")  # a TensorFlow device
    if (strength is Strength.FIRM or any(part in name.lower() for part in ("pwd", "credential", "key"))) and _is_path(
        value
    ):
        return False
    return strength is Strength.STRONG or not _NUMBER.fullmatch(value)
