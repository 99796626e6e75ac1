"""Masks secrets in texts, lines and command lines, before any format or file sees them.

Masks values of options, assignments, headers, JSON members and variables with a secret's name
(:mod:`gpuwatch.core.masking.secrets_by_name`), what has the form of a secret
(:mod:`gpuwatch.core.masking.secrets_by_shape`), credentials in URLs, private keys, what stands where secrets do
(``secret_places.txt``), and words that look random. Reports are sent to others, so it masks too much rather than too
little. Every expression takes linear time.
"""

from __future__ import annotations

import base64
import math
import re
import shlex
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Final

from gpuwatch.core.masking.secret_likelihood import (
    MASK,
    WORD_AND_NUMBER,
    is_harmless_key_kind,
    is_secret_value,
    looks_like_model_name,
    looks_random,
    looks_secret,
)
from gpuwatch.core.masking.secrets_by_name import mask_named
from gpuwatch.core.masking.secrets_by_shape import without_columns, without_program_passwords, without_tokens
from gpuwatch.core.parsing import lazy, table_rows

__all__ = ["COLOR", "MASK", "mask_command", "mask_keys", "mask_lines", "mask_text", "mask_value"]

_PlacePattern = tuple[str, re.Pattern[str], Any]
_PLAIN_MASK = "_gpuwatch_mask_"
"""Stands for :data:`MASK` where a shell needs no quotes."""
_HARMLESS_VARIABLES = frozenset({"OLDPWD", "SSH_AUTH_SOCK", "KEYMAP", "XAUTHORITY"})

_COMMON_USERS: Final = frozenset(["git", "hg", "svn", "anonymous", "root", "ubuntu", "ec2-user", "user"])
_CREDENTIALS = lazy(r"://([^\s/@:\"'<>?#]{0,256})(:[^\s/\"'<>]{0,512})?@")
_PLACEHOLDERS = lazy(r":?(?:\{[^{}]{0,60}\}|\$\{?\w{1,60}\}?|•+|\*+|:){0,3}")
"""A placeholder of a format string."""
_PGPASS = lazy(
    r"(?:^|(?<=\s))([\w.*-]{1,100}:(?:\d{1,5}|\*):[\w*-]{1,64}:[\w.*-]{1,64}:)(?=\S{0,200}\d)([^\s:]{6,200})$",
    re.MULTILINE,
)
"""host:port:database:user:password (PostgreSQL's documentation, libpq: the password file)."""
_KUBERNETES = lazy(r"^([ \t]{0,40})((?:stringD|d)ata:[ \t]{0,8}\n)((?:\1[ \t]{1,8}[^\s:]{1,253}:[^\n]*+\n?)++)", re.M)
"""The values of a Secret, which are base64 or plain text."""
_MEMBER = lazy(r"(:[ \t]{0,8})[^\s][^\n]*")
_HEX_KEY = lazy(
    r"(?<!\w)(\w{1,30}[ _-])?((?:key|secret|token|seed)(?: is)?[ \t:=]{1,4}(?:0x)?)([0-9a-f]{64})(?![0-9a-f])",
    re.IGNORECASE,
)
_PRIVATE = lazy(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----(?:\\n)?|\Z)", re.DOTALL)
_KEY_START = lazy(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_END = lazy(r"-----END [A-Z ]*PRIVATE KEY-----")
_KEY_LINE = lazy(r"(?:^|\s)[A-Za-z0-9+/]{16,76}={0,2}\s*$")
_BASE64 = lazy(r"[A-Za-z0-9+/]+={0,2}")
_PUTTY_LINES = lazy(r"\bPrivate-Lines: (\d{1,4})\b")
_MAX_KEY_LINES = 200
"""Most lines of a key (16384 bits have fewer), so that a start without an end does not mask a whole log."""
_STATED_KEY = lazy(r"(\b[Kk]ey\b[^\n]{0,60}?\b(?:was|got|is):? ['\"]?)([0-9A-Za-z+/_-]{32,88}={0,2})(?![\w=])")
_TYPED_AT_PROMPT = lazy(
    r"^((?:(?:(?:\S{1,20} )?(?:[Ee]nter|[Tt]ype|[Rr]epeat|[Vv]erify) [^\n:]{0,40})?"
    r"[Pp]ass(?:word|phrase|code)[^\n]{0,100}"
    r"|[^\n]{0,100}\bread (?:-\w{1,4} ){0,3}-\w{0,3}s\w{0,3}\b[^\n]{0,100})\n)([^\s]{6,64})$",
    re.MULTILINE,
)
"""Text echoed after a prompt, or typed after ``read -s``."""
_CLIENT_ARGUMENT = lazy(
    r"(\b(?:\w{0,40}(?:Client|Api|API|Session)|login|authenticate|init|AES\.new|hmac\.new|Fernet|AESGCM)\(\s?b?['\"])([A-Za-z0-9._-]{20,200})(?=['\"]\s?[,)])"
)
"""``cohere.Client('x')``: a key is the first argument."""
_CALLS_WITH_SECRET = ("login(", "authenticate(", "AES", "hmac", "Fernet")
"""Those whose first argument is a secret even if it is made of words."""
COLOR = lazy(r"\x1b\[[\d;]{0,16}m")
"""What sets a terminal's color."""
_MIN_BASE64_CHARS = 24
_BASE64_WORD = lazy(
    r"(?<![\w+/.-])(?=[A-Za-z0-9+/]{0,40}[A-Z])(?:[A-Za-z0-9+/]{4}){6,500}+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?(?![\w+/=])"
)
"""What may be base64 of ``NAME=value``."""
_LONG_WORD = lazy(r"(?<![\w+/.-])(?![/~_])[A-Za-z0-9+/_-]{40,}+={0,2}(?![\w+/-])")
_RANDOM_BITS, _RANDOM_BITS_WITH_SLASH = 4.5, 4.75
"""Bits of entropy in each character; base64 of 40 random characters has about 4.8, names and paths below 4.4."""
_AWS_SECRET_CHARS = 40
"""The length of a secret key of AWS, including slashes."""
_MIN_CHARS_WITH_SLASH = 56
"""A word with slashes must be longer to be base64 rather than a path."""
_CHECKSUM = lazy(r"sha(?:1|224|256|384|512)[-:_]", re.IGNORECASE)
_PUBLIC_BEFORE = lazy(r"(?:\bpeer|public[ _-]?key|fingerprint|digest|\bsha\d{1,3})\W{0,4}$", re.IGNORECASE)
"""What precedes public random numbers: public keys, checksums."""
_SSH_PUBLIC_KEY = lazy(r"AAAA(?:[BC]3Nza|E2Vj|Gnnr|InNr)")
"""The start of SSH public keys: length and name of the algorithm."""
_PUBLIC_BLOCK = lazy(r"(-----BEGIN (?![A-Z ]{0,40}PRIVATE)[A-Z0-9 ]{1,40}-----[^-]*+-----END [A-Z0-9 ]{1,40}-----)")


def mask_value(name: str, value: str) -> str:
    """The value of a variable, masked whole if its name is that of a secret and it is not empty, a count or a path."""
    if name in _HARMLESS_VARIABLES:
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
    words = [f"({position})" if not word or re.search(r"\s", word) else word for position, word in enumerate(shown)]
    line = mask_text(" ".join(words)).split(" ")
    if len(line) == len(words):
        shown = [new if MASK in new else old for new, old in zip(line, shown, strict=True)]
    for position, (name, value) in enumerate(pairwise(shown), start=1):
        if name.startswith("-") and "=" not in name and not value.startswith("-") and is_secret_value(name, value):
            shown[position] = MASK  # quotes in it end nothing
    return shlex.join(argument.replace(MASK, _PLAIN_MASK) for argument in shown).replace(_PLAIN_MASK, MASK)


def mask_text(text: str) -> str:
    """``text`` with its secrets masked: a command line, a variable's value, a log line."""
    if len(text) < 4:
        return text
    return _masked_from_cache(text) if len(text) <= _MAX_CACHED_CHARS else _masked_with_keys(text)


def _masked_with_keys(text: str) -> str:
    if "-----BEGIN" in text or "PRIVATE KEY-----" in text or "Private-Lines:" in text:
        text = _PRIVATE.sub(MASK, text)
        if "\n" in text:
            text = "\n".join(mask_keys(text.split("\n")))
        parts = _PUBLIC_BLOCK.split(text)
        return "".join(part if number % 2 else _masked_lines(part) for number, part in enumerate(parts))
    return _masked_lines(text)


_MAX_CACHED_CHARS: Final = 256
"""The longest text that is remembered: a document holds the same states, reasons and UUIDs a hundred times."""
_masked_from_cache = lru_cache(2048)(_masked_with_keys)


def _masked_lines(text: str) -> str:
    if "\x1b[" not in text:
        return _masked_by_places(text)
    # Colors within a name hide it: what is found without them decides.
    colored, plain = _masked_by_places(text), _masked_by_places(COLOR.sub("", text))
    return plain if plain.count(MASK) > colored.count(MASK) else colored


def _masked_by_places(text: str) -> str:
    in_lines, across = _place_patterns()
    for hint, expression, replacement in in_lines:
        if hint in text:
            text = _replace_in_lines(text, hint, expression, replacement)
    for hint, expression, replacement in across:
        if hint in text:
            text = expression.sub(replacement, text)
    if text.count(":") > 3:
        text = _PGPASS.sub(rf"\1{MASK}", text)
    # First, because a header of one argument is masked up to the next quote, with the program's name.
    text = without_program_passwords(text)
    text = without_tokens(mask_named(text))
    if "\n" in text:
        text = without_columns(text)
    if len(text) >= _MIN_BASE64_CHARS:
        text = _BASE64_WORD.sub(lambda m: MASK if MASK in mask_named(_text_in_base64(m[0])) else m[0], text)
    return _LONG_WORD.sub(_mask_if_random, text) if len(text) >= 40 else text


@cache
def _place_patterns() -> tuple[list[_PlacePattern], list[_PlacePattern]]:
    """The rows of ``secret_places.txt`` and what follows them here: those within a line, those across lines."""
    found: tuple[list[_PlacePattern], list[_PlacePattern]] = ([], [])
    for text, *hints in table_rows(__file__, "secret_places.txt"):
        expression = lazy(text, re.MULTILINE)
        for hint in hints:
            found[hint[0] == "+"].append((hint.lstrip("+"), expression, rf"\1{MASK}"))
    return [*found[0], *_LINE_PATTERNS], [*_MULTILINE_PATTERNS, *found[1]]


def _replace_in_lines(text: str, hint: str, expression: re.Pattern[str], replacement: Any) -> str:
    """``text`` with the expression replaced in the lines that have the hint."""
    if len(text) <= _MAX_CACHED_CHARS:
        return expression.sub(replacement, text)
    shown: list[str] = []
    copied_to, position = 0, text.find(hint)
    while position >= 0:
        begin = text.rfind("\n", 0, position) + 1
        end = text.find("\n", position)
        end = end if end >= 0 else len(text)
        line = text[begin:end]
        new = expression.sub(replacement, line)
        if new is not line and new != line:
            shown += (text[copied_to:begin], new)
            copied_to = end
        position = text.find(hint, end)
    return "".join((*shown, text[copied_to:])) if shown else text


def _mask_credentials(match: re.Match[str]) -> str:
    user, password = match[1], match[2]
    if password is None and user in _COMMON_USERS:
        return match[0]
    if _PLACEHOLDERS.fullmatch(user) and _PLACEHOLDERS.fullmatch(password or ""):
        return match[0]
    return f"://{MASK}@"


def _mask_typed(match: re.Match[str]) -> str:
    sure = looks_secret(match[2]) or WORD_AND_NUMBER.fullmatch(match[2])
    return match[1] + (MASK if sure and ":" not in match[2] else match[2])


def _mask_client_argument(match: re.Match[str]) -> str:
    kinds = (str.islower, str.isupper, str.isdigit)
    random = all(any(map(kind, match[2])) for kind in kinds) and match[2].count(".") < 2
    is_name = looks_like_model_name(match[2]) and not match[1].startswith(_CALLS_WITH_SECRET)
    return match[1] + (MASK if random and not is_name and looks_secret(match[2]) else match[2])


def _text_in_base64(text: str) -> str:
    """What stands in base64; empty if it is no text."""
    try:
        plain = base64.b64decode(text).decode()
    except ValueError:
        return ""
    return plain if plain.isprintable() else ""


def _mask_hex_arguments(match: re.Match[str]) -> str:
    plain = bytes.fromhex(match[2]).decode("ascii", "replace").rstrip("\0")
    return match[1] + (MASK if MASK in mask_command(plain.split("\0")) else match[2])


def _mask_hex_key(match: re.Match[str]) -> str:
    before = match[1] or ""
    return match[0] if is_harmless_key_kind(before) else f"{before}{match[2]}{MASK}"


_LINE_PATTERNS: Final = (
    ("ass", lazy(r"(\b[Pp]ass(?:word|phrase)\): )(\S{6,64})"), _mask_typed),
    ("<<<", lazy(r"(<<<\s?[\"']?)([^\s\"'$]{8,64})"), _mask_typed),
    ("('", _CLIENT_ARGUMENT, _mask_client_argument),
    ('("', _CLIENT_ARGUMENT, _mask_client_argument),
    ("(b", _CLIENT_ARGUMENT, _mask_client_argument),
    *(
        (hint, _HEX_KEY, _mask_hex_key)
        for hint in ("key", "Key", "KEY", "ecret", "ECRET", "oken", "OKEN", "eed", "EED")
    ),
    ("ey", _STATED_KEY, lambda match: match[1] + (MASK if looks_random(match[2]) else match[2])),
    (
        "asic ",
        lazy(r"(\b[Bb]asic )([A-Za-z0-9+/]{8,}={0,2})"),
        lambda m: m[1] + (MASK if ":" in _text_in_base64(m[2]) else m[2]),
    ),
    ("://", _CREDENTIALS, _mask_credentials),
    # Linux writes arguments with blanks or between NULs so (auditd's documentation: ausearch --interpret).
    ("audit(", lazy(r"(\b(?:proctitle|a\d{1,3})=)((?:[0-9A-F]{2}){4,4000})(?![\w\"'])"), _mask_hex_arguments),
)
"""A text that must occur in a line, an expression, and its replacement."""
_MULTILINE_PATTERNS: Final = (
    ("ass", _TYPED_AT_PROMPT, _mask_typed),
    ("read -", _TYPED_AT_PROMPT, _mask_typed),
    ("kind: Secret", _KUBERNETES, lambda m: m[1] + m[2] + _MEMBER.sub(rf"\1{MASK}", m[3])),
)


def mask_keys(lines: Sequence[str]) -> list[str]:
    """Masks private keys in lines that belong together: a line of a key does not look like one by itself.

    A key is masked from its first line to its last; from the start of ``lines`` if its first is cut off.
    """
    lines = [_PRIVATE.sub(MASK, line) if _KEY_END.search(line) else line for line in lines]
    shown = list(lines)
    key_start: int | None = None
    prefix = putty = 0
    for number, line in enumerate(lines):
        if match := _PUTTY_LINES.search(line):
            putty = min(int(match[1]), _MAX_KEY_LINES)
        elif putty:
            putty -= 1
            shown[number] = MASK
            continue
        if begins := _KEY_START.search(line):
            key_start, prefix = number, begins.start()
        if _KEY_END.search(line):
            begin = key_start
            if begin is None:
                begin = number
                # The last line of a key may be short.
                while begin and number - begin < _MAX_KEY_LINES:
                    above = lines[begin - 1].strip()
                    if not _KEY_LINE.search(above) and (begin < number or " " in above):
                        break
                    begin -= 1
            shown[begin : number + 1] = [MASK] * (number + 1 - begin)
            key_start = None
        elif key_start is not None:
            if number - key_start < _MAX_KEY_LINES and (
                number == key_start or not line.strip() or _is_key_line(line, prefix)
            ):
                shown[number] = MASK
            elif ":" not in line or number - key_start >= _MAX_KEY_LINES:  # some keys have "Proc-Type: 4,ENCRYPTED"
                key_start = None
    return shown


def _is_key_line(line: str, prefix: int) -> bool:
    """Whether a line belongs to a key, after a prefix as long as that of the key's first line."""
    return bool(_KEY_LINE.search(line) or _BASE64.fullmatch(line[prefix:].strip()))


def _mask_if_random(match: re.Match[str]) -> str:
    """The mask, if the word looks random."""
    word = match[0]
    if _CHECKSUM.match(word) or _SSH_PUBLIC_KEY.match(word):
        return word
    if _PUBLIC_BEFORE.search(match.string[max(0, match.start() - 24) : match.start()]):
        return word
    kinds = (any(c.islower() for c in word), any(c.isupper() for c in word), any(c.isdigit() for c in word))
    path_like = "/" in word and len(word) != _AWS_SECRET_CHARS
    if not all(kinds) or (path_like and len(word) < _MIN_CHARS_WITH_SLASH):
        return word
    counts = [word.count(char) for char in set(word)]
    bits = -sum(count / len(word) * math.log2(count / len(word)) for count in counts)
    return MASK if bits >= (_RANDOM_BITS_WITH_SLASH if path_like else _RANDOM_BITS) else word
