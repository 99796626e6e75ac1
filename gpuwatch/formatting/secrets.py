"""Secrets out of one text: a command line, a variable, a line of a log.

Masked are values behind options, assignments, headers and members of JSON whose name speaks of a secret;
credentials and signatures in URLs; private keys; and words that have the shape of a well-known token, or
that look random as nothing else does. Rather too much than too little: what is masked here is sent away.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

MASK = "•••"

_SECRET_NAME = re.compile(
    r"TOKEN(?!IZ)|KEY(?!BOARD)|SECRET|PASSW|PASSPHRASE|(?<![A-Z])PASS(?![A-Z])|CREDENTIAL|COOKIE|PRIVATE|SIGNATURE"
    r"|(?<![A-Z])AUTH(?!OR(?!IZ))|(?<=[A-Z0-9_])PWD|(?<![A-Z])DSN|CONNECTION_?STRING|WEBHOOK",
    re.IGNORECASE,
)
_NO_SECRET = frozenset({"OLDPWD", "SSH_AUTH_SOCK", "KEYMAP", "XAUTHORITY"})

# A name that can only be that of a secret, and one that can also be that of a count or a mode.
_STRONG = (
    r"(?:secret|passw(?:or)?d?|passphrase|passwd|(?<=[\w-])pwd|credentials?|api[-_]?key|access[-_]?key|private[-_]?key"
    r"|account[-_]?key|auth[-_]?token|access[-_]?token|bearer|client[-_]?secret|_pass|signature)"
)
_NAME = r"[\w.-]{0,40}"
"""Bounded, so that no line of a log can make the search long."""
_QUOTED = r"\"[^\"]*\"|'[^']*'"
# "--password x y -z": where the arguments of a command line begin and end is no longer known.
_PASSPHRASE = re.compile(
    r"(?<![\w-])(--?[\w-]{0,40}(?:passw(?:or)?d|passphrase|passwd)[\w-]{0,40}(?:=|\s+))"
    rf"(?!--)({_QUOTED}|[^\s\"']\S*(?:[ ]+(?![-\"'])[^\s=]+(?![^\s]*=))*)",
    re.IGNORECASE,
)
_OPTION = re.compile(
    r"(?<![\w-])(--?[\w-]{0,40}(?:token|secret|credential|key|auth|signature|cookie|bearer)[\w-]{0,40}(?:=|\s+(?=[^\s-])))"
    rf"({_QUOTED}|\S+)",
    re.IGNORECASE,
)
_NAMED_AGAIN = rf"(?![\w-]{{0,40}}{_STRONG}s?\s*[:=]\s)"
"""Not where the value is itself the name of a secret: "key=password: x" has its secret behind the colon."""
_ASSIGNED = re.compile(
    rf"((?<!-){_NAME}(?:{_STRONG}|token|key|auth|cookie){_NAME}\s?=\s?)(?!=){_NAMED_AGAIN}({_QUOTED}|[^\s,;&\"']+)",
    re.IGNORECASE,
)
_MEMBER = re.compile(
    rf"(\\{{0,8}}[\"']{_NAME}(?:{_STRONG}|token|key|auth|cookie){_NAME}\\{{0,8}}[\"']\s*:\s*)"
    r"(\\{1,8}\"[^\"\\]*\\{1,8}\"|\"(?:[^\"\\]|\\.)*\"|\\{0,8}'[^']*'|[^\s,}\]\[{\"'\\]+)",
    re.IGNORECASE,
)
_TOLD = re.compile(
    rf"([\w-]{{0,40}}(?:{_STRONG}s?\s*:\s+|passw(?:or)?d\s*:|passphrase\s*:)){_NAMED_AGAIN}({_QUOTED}|[^\s,;\"']+)",
    re.IGNORECASE,
)
_QUERY = re.compile(
    r"([?&;](?:[\w.-]{0,40}(?:token|secret|passw|pwd|key|auth|sig|signature|credential)[\w.-]{0,40})=)([^&\s\"'<>;]+)",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"\b((?:proxy-)?authorization|x-[\w-]{0,40}(?:key|token|auth|secret)|(?:set-)?cookie|api-key)(\\{0,8}[\"']?\s*[:=]\s*\\*[\"']?)"
    r"((?:basic|bearer|token|digest|negotiate|aws4-hmac-sha256)\s+)?([^\r\n\"'\\]+)",
    re.IGNORECASE,
)
_URL = re.compile(r"(\b[a-zA-Z][\w+.-]*://)[^\s/@:\"']*(?::[^\s/\"']*)?@")
_PASSWORD = re.compile(
    r"(?<![\w-])(-p\s+(?!\d{1,7}(?![^\s:/,])|-|/|\./|no:)|--(?:pass|pwd|pw)(?:=|\s+))"
    rf"({_QUOTED}|\S+)"
)
# "-p 8080:80" is a port, "-p 4711" a process, "-p /x" a path, "-p no:x" a plugin.
_LOGIN = re.compile(r"(?<![\w-])((?:-u|--user|--auth|--login)(?:=|\s+)[\w.@-]+:)(\S+)")
_ATTACHED = re.compile(r"(\b(?:mysql|mariadb|sshpass)[\w-]*\b.*?\s-p)([^\s-]\S*)")
_BEARER = re.compile(r"(\b[Bb]earer\s+)[^\s\"']+")
_PRIVATE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")
_KEY_LINE = re.compile(r"(?:^|\s)[A-Za-z0-9+/]{16,76}={0,2}\s*$")
_KEY_LINES = 200
"""A key of 16384 bits has fewer; a beginning without an end must not swallow a whole log."""
_SHAPED = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|sk-[\w-]{20,}|[rsp]k_(?:live|test)_\w{10,}|xox[abeprs]-[\w-]{8,}|xapp-[\w-]{8,}|A[KS]IA[A-Z0-9]{16}"
    r"|AIza[\w-]{30,}|ya29\.[\w.-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)*|npm_[A-Za-z0-9]{20,}|pypi-[\w-]{20,}"
    r"|dckr_pat_[\w-]{16,}|nvapi-[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|r8_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{20,}"
    r"|AGE-SECRET-KEY-\w+|b3BlbnNzaC1rZXktdjE[\w+/=]*|MI[IC][\w+/=]{40,})(?![A-Za-z0-9])"
)
_WANDB = re.compile(r"(\bwandb\b[^\n]{0,40}?[\s:=])([0-9a-f]{40})(?![0-9a-f])")
_SHORT_NAME = re.compile(r"((?<![\w-])(?:pwd|pin|passcode|otp)\s?[=:]\s?)(?![/~.])([^\s,;&\"']+)", re.IGNORECASE)
"""PWD=/home/x is a folder, pin_memory another word."""
_SAID = re.compile(
    r"(\b(?i:passw(?:or)?d|passphrase|secret|token|api[ _-]?key|access key)\s+is:?\s+)(?=\S*\d|\S*[a-z][A-Z])(\S+)"
)
_SLACK_HOOK = re.compile(r"(hooks\.slack\.com/services/)[\w/-]+")
_LONG = re.compile(r"(?<![\w+/.-])(?![/~_])[A-Za-z0-9+/_-]{40,}={0,2}(?![\w+/-])")
_RANDOM_BITS, _RANDOM_BITS_WITH_SLASH = 4.5, 4.75
"""Bits of entropy in each character; base64 of 40 random characters has about 4.8, names and paths below 4.4."""
_AWS = 40
"""The length of a secret key of AWS, slashes and all."""
_SLASH_FROM = 56
"""A word with slashes must be longer to be base64 rather than a path."""
_HINT = re.compile(
    r"token|secret|pass|pwd|pin|otp|wandb|credential|key|auth|cookie|signature|sig=|bearer|-p|-u|--user|--login|--pw|://|-----BEGIN",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"\d{1,9}|[Tt]rue|[Ff]alse|[Nn]one|[Nn]ull|\d*\.\d+|on|off|auto|yes|no")
_COUNTED = re.compile(r"tokeniz|keyboard|keymap|keyword|max_?key|num_?key|author(?!iz)|monkey|tokens\b", re.IGNORECASE)


def secret_name(name: str) -> bool:
    """Whether values under this name are not shown."""
    return name not in _NO_SECRET and _SECRET_NAME.search(name) is not None


def mask_text(text: str) -> str:
    """``text`` without credentials, whatever it is: a command line, a variable's value, a line of a log."""
    if len(text) < 4:
        return text
    if _HINT.search(text):
        text = _named(text)
    text = _SHAPED.sub(MASK, text)
    return _LONG.sub(_random, text) if len(text) >= 40 else text


def mask_keys(lines: Sequence[str]) -> list[str]:
    """Lines that belong together, without private keys: no line of a key looks like one by itself.

    A key is masked from its first line to its last; from the start of ``lines`` where its first is cut off.
    """
    shown = list(lines)
    since: int | None = None
    for number, line in enumerate(lines):
        if _KEY_BEGINS.search(line):
            since = number
        if _KEY_ENDS.search(line):
            begin = since
            if begin is None:
                begin = number
                # The last line of a key is as short as it comes.
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
            if number - since < _KEY_LINES and (number == since or not line.strip() or _KEY_LINE.search(line)):
                shown[number] = MASK
            elif ":" not in line or number - since >= _KEY_LINES:  # "Proc-Type: 4,ENCRYPTED" stands in some
                since = None
    return shown


def _named(text: str) -> str:
    if "-----BEGIN" in text:
        text = _PRIVATE.sub(MASK, text)
    if "@" in text:
        text = _URL.sub(rf"\1{MASK}@", text)
    text = _HEADER.sub(lambda match: f"{match[1]}{match[2]}{match[3] or ''}{MASK}", text)
    text = _BEARER.sub(rf"\1{MASK}", text)
    text = _SLACK_HOOK.sub(rf"\1{MASK}", text)
    text = _QUERY.sub(rf"\1{MASK}", text)
    text = _MEMBER.sub(_member, text)
    text = _PASSPHRASE.sub(rf"\1{MASK}", text)
    text = _OPTION.sub(_value, text)
    text = _ASSIGNED.sub(_value, text)
    text = _TOLD.sub(_value, text)
    text = _SAID.sub(rf"\1{MASK}", text)
    text = _SHORT_NAME.sub(rf"\1{MASK}", text)
    text = _WANDB.sub(rf"\1{MASK}", text)
    if "-" in text:
        text = _PASSWORD.sub(rf"\1{MASK}", text)
        text = _LOGIN.sub(rf"\1{MASK}", text)
        text = _ATTACHED.sub(rf"\1{MASK}", text)
    return text


def _value(match: re.Match[str]) -> str:
    """Masked, unless the name is that of a count and the value a number."""
    name, value = match[1], match[2]
    if _COUNTED.search(name) or (_PLAIN.fullmatch(value) and not re.search(_STRONG, name, re.IGNORECASE)):
        return match[0]
    return f"{name}{MASK}"


def _member(match: re.Match[str]) -> str:
    name, value = match[1], match[2]
    if _COUNTED.search(name) or (_PLAIN.fullmatch(value) and not re.search(_STRONG, name, re.IGNORECASE)):
        return match[0]
    quotes = re.match(r"\\*[\"']", value)
    quote = quotes[0] if quotes else '"'
    return f"{name}{quote}{MASK}{quote}"


def _random(match: re.Match[str]) -> str:
    """Masked, if it looks like nothing but chance."""
    word = match[0]
    kinds = (any(c.islower() for c in word), any(c.isupper() for c in word), any(c.isdigit() for c in word))
    path_like = "/" in word and len(word) != _AWS
    if not all(kinds) or (path_like and len(word) < _SLASH_FROM):
        return word
    counts = [word.count(char) for char in set(word)]
    bits = -sum(count / len(word) * math.log2(count / len(word)) for count in counts)
    return MASK if bits >= (_RANDOM_BITS_WITH_SLASH if path_like else _RANDOM_BITS) else word
