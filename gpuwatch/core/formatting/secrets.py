"""Masks secrets in one text: a command line, a variable, a log line.

Masks values of options, assignments, headers and JSON members with a secret's name
(:mod:`gpuwatch.core.formatting.named_secrets`), passwords in options of known programs
(:mod:`gpuwatch.core.formatting.program_passwords`), credentials and signatures in URLs, private keys, well-known tokens
(:mod:`gpuwatch.core.formatting.token_shapes`), and words that look random. Reports are sent to others, so it masks too
much rather than too little. Every expression takes linear time.
"""

from __future__ import annotations

import base64
import math
import re
import shlex
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from gpuwatch.core.formatting.lazy_pattern import lazy
from gpuwatch.core.formatting.named_secrets import MASK, WORD_AND_NUMBER, mask_named
from gpuwatch.core.formatting.program_passwords import without_program_passwords
from gpuwatch.core.formatting.secret_columns import mask_columns
from gpuwatch.core.formatting.secret_names import is_secret_value, looks_secret, public_key
from gpuwatch.core.formatting.token_shapes import without_tokens

__all__ = ["COLOUR", "MASK", "mask_command", "mask_keys", "mask_lines", "mask_text", "mask_value"]

_PLAIN_MASK = "_gpuwatch_mask_"
"""Stands for :data:`MASK` where a shell needs no quotes."""
_NO_SECRET = frozenset({"OLDPWD", "SSH_AUTH_SOCK", "KEYMAP", "XAUTHORITY"})

_USER_ONLY: Final = frozenset(["git", "hg", "svn", "anonymous", "root", "ubuntu", "ec2-user", "user"])
_CREDENTIALS = lazy(r"://([^\s/@:\"'<>?#]{0,256})(:[^\s/\"'<>]{0,512})?@")
_HOLDERS = lazy(r":?(?:\{[^{}]{0,60}\}|\$\{?\w{1,60}\}?|•+|\*+|:){0,3}")
"""A placeholder of a format string."""
_PGPASS = lazy(
    r"(?:^|(?<=\s))([\w.*-]{1,100}:(?:\d{1,5}|\*):[\w*-]{1,64}:[\w.*-]{1,64}:)(?=\S{0,200}\d)([^\s:]{6,200})$",
    re.MULTILINE,
)
"""host:port:database:user:password (PostgreSQL's documentation, libpq: the password file)."""
_ORACLE = lazy(r"(jdbc:oracle:\w{1,8}:[^/\s]{1,64}/)([^@\s]{1,128})(?=@)")
_BEARER = lazy(r"(\b[Bb]earer\s{1,4})(?![A-Za-z_]{1,30}=\w)((?=[^\s\"']{0,200}\d)[^\s\"']{8,}+|[^\s\"']{24,}+)")
_PIPED = lazy(
    r"(\b(?:echo|printf)(?:\s{1,4}-[neE]{1,3}|\s{1,4}[\"']%s(?:\\n)?[\"']){0,2}\s{1,4})(?!\$)([^\s|][^|\n]{0,200}?)"
    r"(?=\s{0,4}\|[^|\n]{0,200}(?:\bsudo\b[^|\n]{0,40}\s-\w{0,4}S\b|--password-stdin|\s--stdin\b|\bchpasswd\b))"
)
"""A password that a shell writes to the program that asks for it."""
_KUBERNETES = lazy(r"^([ \t]{0,40})((?:stringD|d)ata:[ \t]{0,8}\n)((?:\1[ \t]{1,8}[^\s:]{1,253}:[^\n]*+\n?)++)", re.M)
"""The values of a Secret, which are base64 or plain text."""
_MEMBER = lazy(r"(:[ \t]{0,8})[^\s][^\n]*")
_HEX_KEY = lazy(
    r"(?<!\w)(\w{1,30}[ _-])?((?:key|secret|token|seed)(?: is)?[ \t:=]{1,4}(?:0x)?)([0-9a-f]{64})(?![0-9a-f])",
    re.IGNORECASE,
)
_PRIVATE = lazy(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_KEY_BEGINS = lazy(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS = lazy(r"-----END [A-Z ]*PRIVATE KEY-----")
_KEY_LINE = lazy(r"(?:^|\s)[A-Za-z0-9+/]{16,76}={0,2}\s*$")
_BASE64 = lazy(r"[A-Za-z0-9+/]+={0,2}")
_PUTTY_LINES = lazy(r"\bPrivate-Lines: (\d{1,4})\b")
_KEY_LINES = 200
"""Most lines of a key (16384 bits have fewer), so that a start without an end does not mask a whole log."""
_WANDB = lazy(r"(\bwandb\b(?:[^\n]{0,40}?|[^\n]{0,160}?hit enter)[\s:=]{1,3})([0-9a-f]{40})(?![0-9a-f])")
_TOLD_KEY = lazy(r"(\b[Kk]ey\b[^\n]{0,60}?\b(?:was|got|is):? ['\"]?)([0-9a-f]{32,64})(?![0-9a-f])")
_SAID = lazy(
    r"(\b(?:[Pp]ass(?:word|wort|code)|[Cc]ontrase\u00f1a|[Ss]enha|mot de passe)\b[^\n.:;=\"']{1,60}?"
    r"\b(?:is|ist|lautet|es|est|\u00e9)\s)(?=[^\s,;]{0,60}\d)"
    r"(?=[^\s,;]{0,60}[A-Z])[^\s,;]{8,64}"
)
"""``root password on the new box is X``."""
_ASKED = lazy(
    r"^((?:\S{1,20} )?(?:[Ee]nter|[Tt]ype|[Rr]epeat|[Vv]erify) [^\n:]{0,40}[Pp]ass(?:word|phrase|code)[^\n]{0,100}\n)"
    r"([^\s]{6,64})$",
    re.MULTILINE,
)
"""What is echoed after a prompt."""
_PASSPHRASE = lazy(r"(\bpassphrase for (?:key )?['\"]?[^\s'\":]{1,200}['\"]?: {1,3})(?![\w ]{0,40}(?:$|\n))\S{8,200}")
_CLIENT = lazy(
    r"(\b(?:\w{0,40}(?:Client|Api|API|Session)|login|authenticate|init|AES\.new|hmac\.new|Fernet|AESGCM)\(\s?b?['\"])([A-Za-z0-9._-]{20,200})(?=['\"]\s?[,)])"
)
"""``cohere.Client('x')``: a key is the first argument."""
_QUOTED_KEY = lazy(
    r"(\b(?:[Aa][Pp][Ii][ _-]?[Kk]ey|[Tt]oken) ['\"]?)(?=[A-Za-z]{0,60}\d)(?=\d{0,20}[A-Za-z])[A-Za-z0-9]{24,}+"
)
"""``Invalid API key 'x'``, ``401 for token x``."""
_PHRASE = lazy(
    r"(\b(?:(?:[Ss]eed|[Rr]ecovery) (?:phrase|words|codes?|key|password)|[Mm]nemonic)[\"']?\s?[:=]\s?[\"']?)"
    r"((?:[a-z]{3,8} ){11,23}[a-z]{3,8}|(?:[A-Z0-9]{4,6}-){3,8}[A-Z0-9]{4,6}"
    r"|(?:(?=[\w-]{0,23}\d)[\w-]{8,24}[ ,]{0,2}){1,16})"
)
_SHARED = lazy(
    r"(\b(?:[Cc]redentials|Zugangsdaten|[Cc]redenciales|[Ii]dentifiants):? [\w.@-]{1,60} ?/ ?)(?=\S{0,60}\d)\S{6,64}"
)
"""``credentials: mia / x``."""
COLOUR = lazy(r"\x1b\[[\d;]{0,16}m")
"""What sets a terminal's colour."""
_HOOK = lazy(
    r"((?:hooks\.slack\.com/services/|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/))[\w/@-]++"
)
_LEAST_ENCODED = 24
_ENCODED = lazy(
    r"(?<![\w+/.-])(?=[A-Za-z0-9+/]{0,40}[A-Z])(?:[A-Za-z0-9+/]{4}){6,500}+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?(?![\w+/=])"
)
"""What may be base64 of ``NAME=value``."""
_LONG = lazy(r"(?<![\w+/.-])(?![/~_])[A-Za-z0-9+/_-]{40,}+={0,2}(?![\w+/-])")
_RANDOM_BITS, _RANDOM_BITS_WITH_SLASH = 4.5, 4.75
"""Bits of entropy in each character; base64 of 40 random characters has about 4.8, names and paths below 4.4."""
_AWS = 40
"""The length of a secret key of AWS, including slashes."""
_SLASH_FROM = 56
"""A word with slashes must be longer to be base64 rather than a path."""
_CHECKSUM = lazy(r"sha(?:1|224|256|384|512)[-:_]", re.IGNORECASE)
_OPEN_BEFORE = lazy(r"(?:\bpeer|public[ _-]?key|fingerprint|digest|\bsha\d{1,3})\W{0,4}$", re.IGNORECASE)
"""What precedes public random numbers: public keys, checksums."""
_PUBLIC = lazy(r"AAAA(?:[BC]3Nza|E2Vj|Gnnr|InNr)")
"""The start of SSH public keys: length and name of the algorithm."""
_PUBLIC_BLOCK = lazy(r"(-----BEGIN (?![A-Z ]{0,40}PRIVATE)[A-Z0-9 ]{1,40}-----[^-]*+-----END [A-Z0-9 ]{1,40}-----)")


def mask_value(name: str, value: str) -> str:
    """The value of a variable, masked whole if its name is that of a secret and it is not empty, a count or a path."""
    if name in _NO_SECRET:
        return value
    return MASK if is_secret_value(name, value) else mask_text(value)


def mask_lines(lines: Sequence[str]) -> list[str]:
    """Masks lines or arguments together: a name and its value may be in two of them."""
    lines = mask_keys(lines) if any("PRIVATE KEY-----" in line or "Private-Lines:" in line for line in lines) else lines
    together = mask_text("\n".join(lines)).split("\n")
    if len(together) == len(lines):
        return together
    return [mask_text(line) for line in lines]  # some contain line breaks


def mask_command(arguments: Sequence[str]) -> str:
    """A command line with its secrets masked. Each argument is masked before quotes are put around and into it."""
    shown = mask_lines([mask_text(argument) for argument in arguments])
    # As one line, too: programs whose arguments tell by their place. Those with blanks stand for themselves.
    words = [f"({at})" if not word or re.search(r"\s", word) else word for at, word in enumerate(shown)]
    line = mask_text(" ".join(words)).split(" ")
    if len(line) == len(words):
        shown = [new if MASK in new else old for new, old in zip(line, shown, strict=True)]
    for at, (name, value) in enumerate(pairwise(shown), start=1):
        if name.startswith("-") and not value.startswith("-") and is_secret_value(name, value):
            shown[at] = MASK  # quotes in it end nothing
    return shlex.join(argument.replace(MASK, _PLAIN_MASK) for argument in shown).replace(_PLAIN_MASK, MASK)


def mask_text(text: str) -> str:
    """``text`` with its secrets masked: a command line, a variable's value, a log line."""
    if len(text) < 4:
        return text
    return _remembered(text) if len(text) <= _REPEATED else _with_keys(text)


def _with_keys(text: str) -> str:
    if "-----BEGIN" in text or "PRIVATE KEY-----" in text or "Private-Lines:" in text:
        text = _PRIVATE.sub(MASK, text)
        if "\n" in text:
            text = "\n".join(mask_keys(text.split("\n")))
        parts = _PUBLIC_BLOCK.split(text)
        return "".join(part if number % 2 else _masked(part) for number, part in enumerate(parts))
    return _masked(text)


_REPEATED: Final = 256
"""The longest text that is remembered: a document holds the same states, reasons and UUIDs a hundred times."""
_remembered = lru_cache(2048)(_with_keys)


def _masked(text: str) -> str:
    if "\x1b[" not in text:
        return _searched(text)
    # Colours within a name hide it: what is found without them decides.
    coloured, plain = _searched(text), _searched(COLOUR.sub("", text))
    return plain if plain.count(MASK) > coloured.count(MASK) else coloured


def _searched(text: str) -> str:
    for hint, expression, replacement in _EXPRESSIONS:
        if hint in text:
            text = expression.sub(replacement, text)
    if text.count(":") > 3:
        text = _PGPASS.sub(rf"\1{MASK}", text)
    # First, because a header of one argument is masked up to the next quote, with the program's name.
    text = without_program_passwords(text, MASK)
    text = without_tokens(mask_named(text), MASK)
    if "\n" in text:
        text = mask_columns(text, MASK)
    if len(text) > 64:
        text = _HEX_KEY.sub(_hex_key, text)
    if "wandb" in text:
        text = _WANDB.sub(rf"\1{MASK}", text)
    if "ey" in text and len(text) > 40:
        text = _TOLD_KEY.sub(rf"\1{MASK}", text)
    if len(text) >= _LEAST_ENCODED:
        text = _ENCODED.sub(_encoded, text)
    return _LONG.sub(_random, text) if len(text) >= 40 else text


def _credentials(match: re.Match[str]) -> str:
    user, password = match[1], match[2]
    if password is None and user in _USER_ONLY:
        return match[0]
    if _HOLDERS.fullmatch(user) and _HOLDERS.fullmatch(password or ""):
        return match[0]
    return f"://{MASK}@"


def _answer(match: re.Match[str]) -> str:
    sure = looks_secret(match[2]) or WORD_AND_NUMBER.fullmatch(match[2])
    return match[1] + (MASK if sure and ":" not in match[2] else match[2])


def _client(match: re.Match[str]) -> str:
    kinds = (str.islower, str.isupper, str.isdigit)
    random = all(any(map(kind, match[2])) for kind in kinds) and match[2].count(".") < 2
    return match[1] + (MASK if random and looks_secret(match[2]) else match[2])


def _encoded(match: re.Match[str]) -> str:
    try:
        plain = base64.b64decode(match[0], validate=True).decode("ascii")
    except ValueError:
        return match[0]
    return MASK if plain.isprintable() and MASK in mask_named(plain) else match[0]


def _of_secret(match: re.Match[str]) -> str:
    return match[1] + match[2] + _MEMBER.sub(rf"\1{MASK}", match[3])


def _hex_key(match: re.Match[str]) -> str:
    before = match[1] or ""
    return match[0] if public_key(before) else f"{before}{match[2]}{MASK}"


_EXPRESSIONS: Final = (
    ("bot", lazy(r"(/bot\d{6,12}:)[\w-]{20,}+"), rf"\1{MASK}"),
    ("code=", lazy(r"([?&]code=)(?=[^&\s]{0,200}\d)(?!\d{3}_)[\w./~-]{20,}+"), rf"\1{MASK}"),
    (
        "%3A%2F%2F",
        lazy(r"(%3A%2F%2F(?:(?!%3A|%2F|%40)[\w.%~-]){0,64}%3A)(?:(?!%2F|%40)[\w.%~+-]){1,128}(?=%40)"),
        rf"\1{MASK}",
    ),
    ("SecureString", lazy(r"(\bConvertTo-SecureString(?: -String)? [\"'])[^\"'\n$]+"), rf"\1{MASK}"),
    ("/user:", lazy(r"(\bnet use .{0,200}?/user:\S{1,64} )(?!/)\S+"), rf"\1{MASK}"),
    ("net use", lazy(r"(\bnet use \S{1,4} \S{3,120} )(?![/*-])\S+(?= /user:)"), rf"\1{MASK}"),
    (
        "send ",  # expect(1)
        lazy(r"(assword[^\n]{0,80}?\bsend (?:-- )?\\{0,4}[\"'{])[^\"'\\}\n]{3,200}"),
        rf"\1{MASK}",
    ),
    ("<<<", lazy(r"(\bsudo\b[^\n<]{0,40}\s-\w{0,4}S\b[^\n<]{0,200}<<<\s?[\"']?)(?!\$)[^\s\"']{3,}"), rf"\1{MASK}"),
    ("/rp ", lazy(r"(\bschtasks\b[^\n]{0,300}? /rp )\S+"), rf"\1{MASK}"),
    ("net user ", lazy(r"(\bnet user \S{1,64} )(?![/*])\S+(?= /(?:add|active|domain))"), rf"\1{MASK}"),
    (
        "state=",
        lazy(r"((?:callback|oauth2?|authorize)\S{0,400}?[?&]state=)(?=[^&\s]{0,200}\d)[\w./~%-]{16,}+"),
        rf"\1{MASK}",
    ),
    ("accessor", lazy(r"(\baccessor[\"']?\s{0,3}[:=]?\s{1,12}[\"']?)[A-Za-z0-9.]{20,}+"), rf"\1{MASK}"),
    ("_accessor", lazy(r"(\w_accessor[\"']?\s{0,3}[:=]?\s{1,12}[\"']?)[A-Za-z0-9.]{20,}+"), rf"\1{MASK}"),
    ("edentials", _SHARED, rf"\1{MASK}"),
    (" / ", _SHARED, rf"\1{MASK}"),
    (
        "</t",
        lazy(
            r"(?i)(<t[dh]>(?:\w{0,20}[ _])?(?:passw(?:or)?d|token|secret|api[ _-]?key)</t[dh]>\s{0,9}<td>)[^<\n]{4,200}"
        ),
        rf"\1{MASK}",
    ),
    ("ass", _ASKED, _answer),
    ("ass", lazy(r"(\b[Pp]ass(?:word|phrase)\): )(\S{6,64})"), _answer),
    ("<(", lazy(r"((?i:pass|secret|token|key)[\w-]{0,30}[= ]<\((?:echo|printf)(?: -n)? )[^)\n$]+"), rf"\1{MASK}"),
    ("<<<", lazy(r"(<<<\s?[\"']?)([^\s\"'$]{8,64})"), _answer),
    (
        " code",
        lazy(r"(\b(?:2FA|MFA|OTP|[Vv]erification|[Oo]ne-time|[Ll]ogin|[Ss]ecurity) code(?: is)?:? )\d{4,8}\b"),
        rf"\1{MASK}",
    ),
    ("SCRAM-", lazy(r"(\bSCRAM-SHA-\d{1,3}\$\d{1,7}:)[\w+/=]{16,}\$[\w+/=]{20,}:[\w+/=]{20,}"), rf"\1{MASK}"),
    ("ey ", _QUOTED_KEY, rf"\1{MASK}"),
    ("oken ", _QUOTED_KEY, rf"\1{MASK}"),
    ("AUTH ", lazy(r"(\bAUTH (?:PLAIN|LOGIN|CRAM-MD5|XOAUTH2) )[A-Za-z0-9+/]{8,}+={0,2}"), rf"\1{MASK}"),
    ("psk", lazy(r"(\bpsk\s?=\s?[\"']?)[^\s\"']{8,64}"), rf"\1{MASK}"),
    ("response=", lazy(r"(\b[Dd]igest [^\n]{0,400}?\bresponse=[\"']?)[0-9a-f]{32,64}"), rf"\1{MASK}"),
    (
        "%22%3A",
        lazy(r"(%22(?i:passw(?:or)?d|pwd|secret|token|api_?key)%22%3A(?:%20)?%22)(?:(?!%22)[^\s&]){1,200}"),
        rf"\1{MASK}",
    ),
    (
        "\u30d1\u30b9\u30ef\u30fc\u30c9",
        lazy(r"(\u30d1\u30b9\u30ef\u30fc\u30c9\u306f\s{0,2})(?=[!-~]{0,60}\d)[!-~]{6,64}"),
        rf"\1{MASK}",
    ),
    ("ass", _SAID, rf"\1{MASK}"),
    ("contrase", _SAID, rf"\1{MASK}"),
    ("senha", _SAID, rf"\1{MASK}"),
    ("passphrase for", _PASSPHRASE, rf"\1{MASK}"),
    ("(", _CLIENT, _client),
    ("phrase", _PHRASE, rf"\1{MASK}"),
    ("ecovery ", _PHRASE, rf"\1{MASK}"),
    ("nemonic", _PHRASE, rf"\1{MASK}"),
    (
        "icen",
        lazy(
            r"(\b(?i:licen[sc]e)[ _-][Kk]ey[\"']?\s?[:=]?\s?[\"']?)"
            r"[A-Z0-9]{4,6}(?:-[A-Z0-9]{4,6}){3,7}(?![\w-])"
        ),
        rf"\1{MASK}",
    ),
    ("community", lazy(r"(\br[ow]community6?[ \t]{1,8})\S{3,64}"), rf"\1{MASK}"),
    (
        "define(",
        lazy(
            r"(\bdefine\(\s?[\"'](?=\w{0,60}(?i:pass|pwd|secret|token|key|salt))\w{1,60}[\"'],\s{0,3}[\"'])[^\"'\n]{4,400}"
        ),
        rf"\1{MASK}",
    ),
    ("IDENTIFIED", lazy(r"(\bIDENTIFIED (?:WITH \S{1,40} )?(?:BY|AS) (?:PASSWORD )?')[^'\n]{1,200}"), rf"\1{MASK}"),
    # What clients of FTP, POP3, IMAP and Redis send.
    ("PASS ", lazy(r"^((?:[<>C:\- ]{0,8})PASS )(?=\S{0,60}\d)[^\s_./:]{4,64}$", re.MULTILINE), rf"\1{MASK}"),
    ("LOGIN ", lazy(r"(\b[A-Za-z]{0,4}\d{1,6} LOGIN \S{1,64} )\S{4,64}$", re.MULTILINE), rf"\1{MASK}"),
    ('"AUTH"', lazy(r"(\"AUTH\"(?: \"[^\"\n]{1,64}\")? \")[^\"\n]{1,200}(?=\"(?:\s|$))"), rf"\1{MASK}"),
    ("/t/", lazy(r"(\bconda\.[\w.-]{2,60}/t/)[^/\s]{8,}"), rf"\1{MASK}"),
    (
        "input_value=",
        lazy(r"((?i:passw|secret|token|api_key)\w{0,20}\n {1,4}[^\n]{0,200}\binput_value=[\"'])[^\"'\n]+"),
        rf"\1{MASK}",
    ),
    ("-us", lazy(r"(?<![0-9a-f])()[0-9a-f]{32}(?=-us\d{1,2}\b)"), rf"\1{MASK}"),
    ("$", lazy(r"(\$(?:apr1|[1256]|2[abxy]|y|argon2id?)\$)[\w./$=,+-]{20,}+"), rf"\1{MASK}"),
    ("|", _PIPED, rf"\1{MASK}"),
    ("kind: Secret", _KUBERNETES, _of_secret),
    ("://", _CREDENTIALS, _credentials),
    ("hook", _HOOK, rf"\1{MASK}"),
    ("jdbc:oracle", _ORACLE, rf"\1{MASK}"),
    ("earer", _BEARER, rf"\1{MASK}"),
)
"""A text that must occur, an expression, and its replacement."""


def mask_keys(lines: Sequence[str]) -> list[str]:
    """Masks private keys in lines that belong together: a line of a key does not look like one by itself.

    A key is masked from its first line to its last; from the start of ``lines`` if its first is cut off.
    """
    shown = list(lines)
    since: int | None = None
    prefix = putty = 0
    for number, line in enumerate(lines):
        if match := _PUTTY_LINES.search(line):
            putty = min(int(match[1]), _KEY_LINES)
        elif putty:
            putty -= 1
            shown[number] = MASK
            continue
        if begins := _KEY_BEGINS.search(line):
            since, prefix = number, begins.start()
        if _KEY_ENDS.search(line):
            begin = since
            if begin is None:
                begin = number
                # The last line of a key may be short.
                while (
                    begin
                    and number - begin < _KEY_LINES
                    and (
                        _KEY_LINE.search(lines[begin - 1]) or (begin == number and " " not in lines[begin - 1].strip())
                    )
                ):
                    begin -= 1
            shown[begin : number + 1] = [MASK] * (number + 1 - begin)
            since = None
        elif since is not None:
            if number - since < _KEY_LINES and (number == since or not line.strip() or _is_key_line(line, prefix)):
                shown[number] = MASK
            elif ":" not in line or number - since >= _KEY_LINES:  # some keys have "Proc-Type: 4,ENCRYPTED"
                since = None
    return shown


def _is_key_line(line: str, prefix: int) -> bool:
    """Whether a line belongs to a key, after a prefix as long as that of the key's first line."""
    return bool(_KEY_LINE.search(line) or _BASE64.fullmatch(line[prefix:].strip()))


def _random(match: re.Match[str]) -> str:
    """The mask, if the word looks random."""
    word = match[0]
    if _CHECKSUM.match(word) or _PUBLIC.match(word):
        return word
    if _OPEN_BEFORE.search(match.string[max(0, match.start() - 24) : match.start()]):
        return word
    kinds = (any(c.islower() for c in word), any(c.isupper() for c in word), any(c.isdigit() for c in word))
    path_like = "/" in word and len(word) != _AWS
    if not all(kinds) or (path_like and len(word) < _SLASH_FROM):
        return word
    counts = [word.count(char) for char in set(word)]
    bits = -sum(count / len(word) * math.log2(count / len(word)) for count in counts)
    return MASK if bits >= (_RANDOM_BITS_WITH_SLASH if path_like else _RANDOM_BITS) else word
