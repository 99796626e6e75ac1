"""Finds secrets by their names: options, assignments, JSON members, Python source, headers.

A scan instead of one large expression: it goes from hint to hint (``token``, ``passw``), takes the name around it, and
examines what follows. Nothing is examined twice, so the time is linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import Final

from gpuwatch.core.masking.secret_likelihood import (
    MASK,
    MAX_CALL_CHARS,
    MAX_NAME_CHARS,
    OTHER_LANGUAGES,
    WORD_AND_NUMBER,
    Strength,
    is_harmless_key_kind,
    is_placeholder,
    is_secret,
    looks_random,
    looks_secret,
    secret_strength,
)
from gpuwatch.core.parsing import lazy, word_set

_HINTS: Final = word_set("""
token key secret phrase pass pwd credential creds cookie private signature auth login dsn appid
connectionstring connection_string webhook bearer sword contrasena senha wachtwoord adgangskode salasana
kennwort heslo lozinka parola kodeord kata_sandi clave chave sessionid phpsessid dockerconfigjson rootpw
""")
_HINT_WORDS: Final = ("sig", "pin", "otp", "pw", "pat")
"""Hints only as whole words: not ``pin`` in ``spinning``."""
_NAME_END = lazy(r"[\w.-]*+")
_NAME_CHARS = frozenset("_.-")


_PASSWORD_STATUS = lazy(
    r"(?i:incorrect|wrong|expired|denied|rejected|failed|mismatch(?:ed)?|unknown|must|cannot|not|too|please|does)"
    r"(?=[\s.,;!)]|$)|(?<=\n)(?:\w+://|[A-Za-z][\w.-]{0,60}:\s)"
)
"""What programs print after "password:" that is no password; in the line below, an argument or another name."""
_ANSI = r"(?:\x1b\[[\d;]{0,8}m|\[/[a-z ]{0,20}\])*+"
"""Colors: codes of a terminal, or closing tags of rich."""
_CLOSING = lazy(rf"{_ANSI}(\\{{0,8}}[\"'])?\s{{0,3}}\]?")
_LITERAL_OPENS = r"[rRbBfFuU]{0,2}[\"'](?!\s|$|[,;)\]}])"
_TYPE_NAME = r"[A-Za-z_][\w.]{0,40}+(?:\[[\w.\[\]| ,]{0,60}\])?"
# "key: str = x"; base64 ends in "=" too, without a blank before it and with nothing behind it.
_TYPE = rf":\s{{0,3}}{_TYPE_NAME}(?:[ \t]?\|[ \t]?{_TYPE_NAME}){{0,4}}"
_SPACED = rf"[ \t]{{1,3}}(?==(?!=)[ \t]{{0,3}}(?:{_LITERAL_OPENS}|[^\s\"']))"
_CLOSE = rf"(?==(?!=)(?:{_LITERAL_OPENS}|[\w(\[{{$•]))"


def _assign(before_sign: str) -> re.Pattern[str]:
    return lazy(
        rf"{_ANSI}(?:[ \t]{{4,40}}|\s{{0,3}})(?:{_TYPE}{before_sign})?"
        rf"(?:=>|:?=|\\{{1,2}}u003[dD]|%(?:25)?3D)(?!=)\s{{0,3}}{_ANSI}"
    )


_ASSIGN = _assign(f"(?:{_SPACED}|{_CLOSE})")
_ASSIGN_HEADER = _assign(_SPACED)
"""Not ``Cookie: name=x``, whose other values are secret too."""
_COLON = lazy(
    rf"{_ANSI}(?:[ \t.]{{4,40}}|\s{{0,3}})(?:\([\w ]{{1,20}}\))?[:\uff1a\u4e3a\u662f]{_ANSI}"
    rf"([ \t]{{4,40}}|\s{{0,3}}){_ANSI}"
    r"(?:![\w!/.-]{0,40}[ \t]{1,4}(?=\S))?(?:[|>][+-]?[ \t]*\n[ \t]*)?"
)
_COMMA = lazy(r",\s{0,3}|a\d{1,3}=")
"""Between two of a list, or of the numbered arguments of Linux's audit log: ``a1="-p" a2="x"``."""
_TUPLE = lazy(r"(?:\s{0,3},\s{0,3}\w{1,40}){1,4}\s{0,3}=(?!=)\s{0,3}")
_BLANK = lazy(r"[ \t]{1,8}\\\n[ \t]{0,40}(?!\s)|[ \t]{1,8}(?!\s)|[ \t]{0,8}\n[ \t]{1,8}(?!\s)")
_BLANKS = lazy(r"[ \t]{1,8}(?=\S)")
_REST_OF_LINE = lazy(r"[^\r\n]*+")
_OPTION = lazy(r"--[\w-]{0,60}(?:[\s=]|$)|-[A-Za-z][A-Za-z-]{0,40}(?:[\s=]|$)")
_SET_BY_BLANK = lazy(
    r"(?:^|[\n;&]|[:\]] )[ \t]{0,8}(?:ENV|setenv|SetEnv|set[ \t]-[a-zA-Z]{1,4})[ \t]{1,4}$"
    r"|\bconfig(?:ure)?[ \t](?:--)?(?:set|add)[ \t]{1,4}$"
)
"""Before a name: a Dockerfile, csh, Apache and fish set a variable without a sign, ``npm config set`` a setting."""
_MAX_CHARS_BEFORE_SET = 24
_IS_VERB = lazy(
    r"\s{1,3}(?:(?:(?:is|was|has been) )?(?:re)?(?:set|changed) to|is|was|ist|lautet|est|es|\u00e8|\u00e9)"
    r"\s?:?\s{1,3}(?!\s)"
)
_OWNER_AND_SIGN = lazy(
    r"\s(?:(?:for|of|FOR) (?:the )?(?:user |key )?"
    r"(?:'[^'\n]{1,200}'|\"[^\"\n]{1,200}\"|[^\s'\"]{1,200}?)\s?(?::(?!//)|=| is| was)"
    r"|(?:provided|given|used|received|supplied|sent|entered)(?: [\w./-]{1,40}){0,4}\s?[:=])[ \t]{0,3}(?=\S)"
)
"""``password for root: x``, ``API key provided: x``."""
_NEXT_ARGUMENT = lazy(r"\n(?!-)")
_VALUE_FIELD = lazy(
    r"\\{0,8}[\"']?(?:,?\s{0,12}\\{0,8}[\"']?values?|\s{0,3}\{[^{}]{0,200}?\b(?:default|value))\\{0,8}[\"']?\s{0,3}[:=]\s{0,3}"
    r"|(?:\"?[^<>\n]{0,60}|</(?:name|key))>\s{0,12}<(?:value|string)>",
    re.IGNORECASE,
)
_QUOTE = lazy(r"[rRbBfFuU]{0,2}(\\{0,8})(\"\"\"|'''|[\"'])")
_QUOTED_REST = {
    '"': lazy(r"(?:[^\"\\\n]|\\.)*+"),
    "'": lazy(r"(?:[^'\\\n]|\\.)*+"),
    '"""': lazy(r"(?:[^\"\\]|\\.|\"(?!\"\"))*+", re.DOTALL),
    "'''": lazy(r"(?:[^'\\]|\\.|'(?!''))*+", re.DOTALL),
}
_ESCAPED_REST = _QUOTED_REST | {'"': lazy(r"[^\"\\\n]*+"), "'": lazy(r"[^'\\\n]*+")}
# Inside a word; a quote followed by a blank ends what began before the name.
_QUOTED_PIECE = r"\"(?:[^\"\\\s]|\\.)*+\"|'(?:[^'\\\s]|\\.)*+'|\\."
_BARE = lazy(
    rf"(?:{_QUOTED_PIECE}|[^\s\"'\\,;&)\]}}<>{{]|\{{[^{{}}\n]{{0,200}}\}}|\{{|[,;)\]}}](?![\s,;)\]}}'\"]|$|\w{{1,40}}\s?[=:]))++"
)
_ARGUMENT = lazy(rf"(?:{_QUOTED_PIECE}|[^\s\"'\\]|\\$|[\"'](?=\S))++")
_LITERAL = lazy(r"[rRbBfFuU]{0,2}(\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+')")
_NOT_A_VALUE = lazy(r"[a-z]{2,20} [a-z]{2,20}\b|[Tt]ests?(?=[A-Z_/.\d])|\d{1,9} ")
"""``pass: forward and backward``, ``PASS: TestAllReduce``."""
_TAG = lazy(r"(?: [\w:]{1,20}=\"[^\"<>]{0,60}\"){0,4}(?:>|&gt;)")
_NEXT_CELL = lazy(r"[ \t]{0,40}(?:[|\u2502\u2503\u2551][ \t]{0,8}|\t{1,4})([^\s|\u2502\u2503\u2551]{6,200})")
"""The next cell of a table, or the word behind a tab."""
_CALL_START = lazy(r"[\w.]{0,80}[(\[{]")
_ATTRIBUTE_CHAIN = lazy(
    r"(?:self|cls|args|cfg|config|opts|options|params|settings|request|ctx|os|hparams|flags|FLAGS)\.[\w.]{1,80}"
)
_SCHEME = lazy(r"(?:basic|bearer|token|digest|negotiate|apikey|aws4-hmac-sha256)\s+", re.IGNORECASE)
_MAPPING = lazy(r":[ \t]{0,8}\n(?=([ \t]{1,24})[\w.-]{1,60}:[ \t]{1,8}\S)")
_LIST = lazy(r"[\[(](?=\s{0,12}[\"'\w])[^\[\](){}]{1,400}[\])]")
_LIST_ITEM = lazy(r"[\"']([^\"'\n]{4,200})[\"']|(?<=[\[,\s])([^\s\"',\[\](){}]{6,200})(?=[\],\s])")
_LIST_BELOW = lazy(
    r":[ \t]{0,8}\n(?:[ \t]{1,24}[\w.-]{1,40}:[ \t]{0,4}(?:\||true|false)?\n){0,4}"
    r"(?:(?:[ \t]{0,24}- |[ \t]{1,24}(?=[\w.-]{1,40}:\S))[^\n]{1,200}(?:\n|$)){1,40}"
)
"""A list of YAML, also one or two names deeper, or lines with ``user:password``."""
_ITEM_BELOW = lazy(r"\n[ \t]{0,24}(?:- )?[\"']?([^\s\"']{4,200})[\"']?(?=\n|$)")
_USER = lazy(r"(?!sha\d)[\w.@-]{1,64}:(?![/:])")  # before a password: ana:x
_MAPPING_MEMBER = lazy(r"([ \t]{1,24})[\w.-]{1,60}:[ \t]{1,8}[\"']?([^\s\"']++)[^\n]*+(?:\n|$)")
_NAMES_BEFORE_BARE_VALUE = frozenset({"password", "passwd", "passphrase"})
"""What .netrc and many programs have before a password, without a sign."""
_VERB_AFTER_OPTION = lazy(
    r"(?:requires?|is|are|was|must|needs?|expects?|takes|cannot|can|and|or|has|option|argument|flag)(?=[\s,.;]|$)"
)
"""What follows the name of an option in a sentence about it."""
_USAGE_PLACEHOLDERS = frozenset({"VALUE", "STRING", "STR", "TEXT", "PASS", "SECRET"})
"""Stands for a value in a program's usage, beside parts of the option's own name."""
_LINE = lazy(r"[^\r\n\"'\\]*+")
_MORE_WORDS = lazy(r"(?:[ ]{1,4}(?![-\"'])[^\s=\"']++(?![=\"']))*+")
_NAME = lazy(r"[a-z_.]+|[A-Z]+_[A-Z_]+")
_ANOTHER_NAME = lazy(r"([\w-]{1,60}+)\s?[:=]\s")
_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "cookies"})


def mask_named(text: str) -> str:
    """``text`` with the values of secret names masked."""
    shown: list[str] = []
    copied_to = position = 0
    for hint_start, hint_end in _hint_positions(text):
        if hint_start < position:
            continue
        start, end = _name_around(text, hint_start, hint_end, position)
        position = end
        if text.startswith("(", end) and text.endswith("login", hint_start, hint_end):
            spans, position = _literal_spans(text, end)  # server.login("mia", "x")
        else:
            spans, position = _spans_after_name(text, start, end)
        for begin, stop in spans:
            if begin < stop:
                # As many lines as before: lines are masked together and told apart again.
                shown += (text[copied_to:begin], MASK, "\n" * text.count("\n", begin, stop))
                copied_to = stop
        position = max(position, end, copied_to)
    return "".join((*shown, text[copied_to:])) if shown else text


def _hint_positions(text: str) -> list[tuple[int, int]]:
    """Positions of the hints. Searching for each is much faster than one expression for all."""
    lowered = text.lower()
    if len(lowered) != len(text):  # lowering some letters gives two
        lowered = "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
    found: list[tuple[int, int]] = []
    for hint in (*_HINTS, *_HINT_WORDS, *(() if text.isascii() else OTHER_LANGUAGES)):
        position = lowered.find(hint)
        while position >= 0:
            end = position + len(hint)
            if hint not in _HINT_WORDS or not (
                lowered[position - 1 : position].isalpha() or lowered[end : end + 1].isalpha()
            ):
                found.append((position, end))
            position = lowered.find(hint, end)
    found.sort()
    return found


def _name_around(text: str, hint_start: int, hint_end: int, since: int) -> tuple[int, int]:
    """The complete name that contains a hint, such as ``DB_PASSWORD`` around ``pass``."""
    start = hint_start
    lowest = max(since, start - MAX_NAME_CHARS)
    while start > lowest and (text[start - 1].isalnum() or text[start - 1] in _NAME_CHARS):
        start -= 1
    if start > 0 and text[start - 1] == "\x1b":
        start = hint_start
    found = _NAME_END.match(text, hint_end)
    return start, found.end() if found else hint_end


_Spans = list[tuple[int, int]]


def _spans_after_name(text: str, start: int, end: int) -> tuple[_Spans, int]:
    if text.startswith("://", max(0, start - 3)):
        return [], end  # a host and its port: https://auth-service:443
    if text[max(0, start - 3) : start].endswith(("…", "...")):  # the start of the name is cut off
        match = _ASSIGN.match(text, end)
        value = _BARE.match(text, match.end()) if match else None
        if value is not None and _looks_like_password(value[0]):
            return [value.span()], value.end()
    name = text[start:end]
    strength = secret_strength(name.rstrip(".-"))
    if (
        strength is Strength.WEAK
        and text.startswith(" ", start - 1)
        and is_harmless_key_kind(_word_before(text, start - 1))
    ):
        strength = Strength.NONE  # "public key: x"
    if (
        strength is Strength.WEAK
        and name.lower() == "key"
        and secret_strength(f"{_word_before(text, start - 1)}_key") > strength
    ):
        strength = Strength.FIRM  # "API key is x"
    return _secret_spans(text, start, end, name, strength) if strength else ([], end)


def _word_before(text: str, end: int) -> str:
    return text[max(0, end - 24) : end].rpartition(" ")[2]


def _secret_spans(text: str, start: int, end: int, name: str, strength: Strength) -> tuple[_Spans, int]:
    """The secret spans after a name, and where the search continues."""
    is_option = name.startswith("-")
    if text[max(0, start - 4) : start].endswith(("<", "&lt;")) and (
        tag := _TAG.match(text, end)
    ):  # <password>x</password>
        stop = text.find("<" if tag[0].endswith(">") else "&lt;", tag.end(), tag.end() + MAX_CALL_CHARS)
        return ([(tag.end(), stop)] if stop > 0 and is_secret(strength, name, text[tag.end() : stop]) else []), end
    closing = _CLOSING.match(text, end)
    quoted = closing is not None and closing[1] is not None
    after = closing.end() if closing is not None and (quoted or "]" in closing[0]) else end
    is_header = name.lower() in _HEADERS
    if match := (_ASSIGN_HEADER if is_header else _ASSIGN).match(text, after):
        return _value_at(text, match.end(), name, strength, option=is_option)
    if quoted and text.startswith(">", after):  # <string name="api_key">x</string>
        stop = text.find("<", after, after + MAX_CALL_CHARS)
        return ([(after + 1, stop)] if stop > 0 and is_secret(strength, name, text[after + 1 : stop]) else []), after
    if strength >= Strength.FIRM and text.startswith(":", after) and (match := _LIST_BELOW.match(text, after)):
        return _list_spans(text, match, _ITEM_BELOW, name, strength)
    if strength is Strength.STRONG and (match := _MAPPING.match(text, after)):
        return _mapping_spans(text, match)
    if match := _COLON.match(text, after):
        if match[1] and not quoted and _PASSWORD_STATUS.match(text, match.end()):
            return [], match.end()
        if is_header:
            return _value_at(text, match.end(), name, strength)
        if name.lower() == "pass" and match[1] and _NOT_A_VALUE.match(text, match.end()):
            return [], match.end()
        if not quoted and strength < Strength.STRONG:
            strength = Strength.WEAK
        if not match[1] and not quoted and name.isascii() and "passw" not in name.lower() and name.lower() != "pass":
            strength = Strength.WEAK
        return _value_at(text, match.end(), name, strength, member=True)
    if quoted and (match := _COMMA.match(text, after)):
        quote = _QUOTE.match(text, match.end())
        if quote is not None:
            spans, stop = _value_at(text, match.end(), name, strength)
            inner = text[spans[0][0] : spans[0][1]] if spans else ""
            if not is_option and not looks_secret(inner):
                return _value_of_name_field(text, name, strength, after)
            return spans, stop
    if is_option and (match := _BLANK.match(text, end)):
        if _OPTION.match(text, match.end()) or _VERB_AFTER_OPTION.match(text, match.end()):
            return [], match.end()
        return _argument_span(text, match.end(), name, strength)
    if is_option and (match := _NEXT_ARGUMENT.match(text, end)):
        return _value_at(text, match.end(), name, Strength.WEAK)
    if (
        strength >= Strength.FIRM
        and (match := _OWNER_AND_SIGN.match(text, end))
        and not _PASSWORD_STATUS.match(text, match.end())
    ):
        return _value_at(
            text, match.end(), name, strength if strength is Strength.STRONG else Strength.WEAK, member=True
        )
    if text.startswith("(", end) and strength is Strength.STRONG and not quoted:  # set_password("mia", "x")
        return _literal_spans(text, end)
    if strength >= Strength.FIRM and (match := _NEXT_CELL.match(text, end)):
        if _looks_like_password(match[1]) or WORD_AND_NUMBER.fullmatch(match[1]):
            return [match.span(1)], match.end()
        return [], end
    if strength >= Strength.FIRM and (match := _IS_VERB.match(text, end)):
        secret = _BARE.match(text, match.end())
        if secret is not None and len(secret[0]) >= 5 and (looks_secret(secret[0]) or any(map(str.isdigit, secret[0]))):
            return [secret.span()], secret.end()
        return [], match.end()
    if not quoted and (match := _TUPLE.match(text, end)):
        return _literal_spans(text, match.end())
    if (
        strength >= Strength.FIRM
        and not quoted
        and _SET_BY_BLANK.search(text, max(0, start - _MAX_CHARS_BEFORE_SET), start)
    ):
        return _spans_after_set(text, start, end, name, strength)
    if strength is Strength.STRONG and (match := _BLANK.match(text, end)):
        # "login mia password x", "setenv LAB_PASSWORD x"
        quote = _QUOTE.match(text, match.end())
        if quote is not None and not quote[1]:
            literal = _QUOTED_REST[quote[2]].match(text, quote.end())
            if literal is not None and looks_secret(literal[0].replace(" ", "")) and not secret_strength(literal[0]):
                return [literal.span()], literal.end()
        word = _BARE.match(text, match.end())
        if word is not None and (
            _looks_like_password(word[0]) or (name in _NAMES_BEFORE_BARE_VALUE and WORD_AND_NUMBER.fullmatch(word[0]))
        ):
            return [word.span()], word.end()
    if (match := _BLANK.match(text, end)) and (word := _BARE.match(text, match.end())) and looks_random(word[0]):
        # "for key x", "LAB_KEY x is revoked"; names in braces are examined on their own
        return ([], match.end()) if word[0][0] == "{" else ([word.span()], word.end())
    return _value_of_name_field(text, name, strength, after)


def _spans_after_set(text: str, start: int, end: int, name: str, strength: Strength) -> tuple[_Spans, int]:
    """``ENV API_TOKEN x``: the value is the rest of the line; in shells, one argument."""
    match = _BLANKS.match(text, end)
    if match is None:
        return [], end
    if _QUOTE.match(text, match.end()) or text[max(0, start - 4) : start].strip() != "ENV":
        return _argument_span(text, match.end(), name, strength)
    line = _REST_OF_LINE.match(text, match.end())
    value = line[0].rstrip() if line else ""
    return ([(match.end(), match.end() + len(value))] if is_secret(strength, name, value) else []), match.end()


def _mapping_spans(text: str, mapping: re.Match[str]) -> tuple[_Spans, int]:
    """``password:`` and an indented mapping below it, as YAML has it: values that look like secrets."""
    spans: _Spans = []
    position = mapping.start(1)
    while (member := _MAPPING_MEMBER.match(text, position)) and member[1] == mapping[1]:
        if _looks_like_password(member[2]) or WORD_AND_NUMBER.fullmatch(member[2]):
            spans.append(member.span(2))
        position = member.end()
    return spans, position


def _list_spans(
    text: str, found: re.Match[str], item: re.Pattern[str], name: str, strength: Strength
) -> tuple[_Spans, int]:
    """``api_keys: ["x", "ana:x"]``: what looks like a secret in the list of such a name; for passwords, any word."""
    spans: _Spans = []
    for match in item.finditer(text, *found.span()):
        begin, stop = match.span(match.lastindex or 0)
        begin = user.end() if (user := _USER.match(text, begin, stop)) else begin
        value = text[begin:stop]
        likely = looks_secret(value) or (len(value) >= 8 and "." not in value and any(map(str.isdigit, value)))
        is_secret_name = secret_strength(value) and _NAME.fullmatch(value)
        if (
            (likely or "passw" in name.lower())
            and ":" not in value
            and not is_secret_name
            and is_secret(strength, name, value)
        ):
            spans.append((begin, stop))
    return spans, spans[-1][1] if spans else found.start()


def _looks_like_password(value: str) -> bool:
    return looks_secret(value) and any(map(str.isdigit, value)) and "=" not in value and ":" not in value


def _value_of_name_field(text: str, name: str, strength: Strength, after: int) -> tuple[_Spans, int]:
    """``{"name": "DB_PASSWORD", "value": "x"}``: the name is a value itself."""
    match = _VALUE_FIELD.match(text, after) if strength >= Strength.FIRM else None
    if match is None:
        return [], after
    return _value_at(text, match.end(), name, strength, member=True)


def _value_at(
    text: str, position: int, name: str, strength: Strength, *, option: bool = False, member: bool = False
) -> tuple[_Spans, int]:
    """The value at ``position``: a literal, a call or list with literals, or a bare word."""
    header = name.lower() in _HEADERS
    quote = _QUOTE.match(text, position)
    if quote is not None:
        begin = quote.end()
        rest = (_ESCAPED_REST if quote[1] else _QUOTED_REST)[quote[2]]
        found = rest.match(text, begin)
        stop = found.end() if found else begin
        if header and (scheme := _SCHEME.match(text, begin, stop)):
            begin = scheme.end()
        value = text[begin:stop]
        if value[:1] in (")", "]", ",", ";"):  # the quote ends the text around the name: input("Password: ")
            return [], position
        if not is_secret(strength, name, value):
            return [], begin
        spans = [(begin, stop)]
        # 'a'\''b': a shell joins the pieces
        more = stop + len(quote[1]) + len(quote[2])
        if text.startswith("\\'", more) or text.startswith("'\"", more):
            tail = _ARGUMENT.match(text, more)
            if tail is not None:
                spans.append((tail.start(), tail.end()))
        return spans, spans[-1][1]
    if header:
        if scheme := _SCHEME.match(text, position):
            position = scheme.end()
        if _CALL_START.match(text, position):
            return _literal_spans(text, position)
        line = _LINE.match(text, position)
        stop = line.end() if line else position
        return ([(position, stop)] if not is_placeholder(text[position:stop].strip()) else []), stop
    if strength >= Strength.FIRM and (listed := _LIST.match(text, position)) and not is_placeholder(listed[0]):
        spans, stop = _list_spans(text, listed, _LIST_ITEM, name, strength)
        return (spans, stop) if spans else _literal_spans(text, position)
    call = _CALL_START.match(text, position)
    if (
        call is not None
        and not (call[0] == "{" and name.lower().endswith("pwd"))
        and not _is_password_with_bracket(text, call)
    ):
        return _literal_spans(text, position)
    if not option and (chain := _ATTRIBUTE_CHAIN.match(text, position)):
        return [], chain.end()
    again = _ANOTHER_NAME.match(text, position)
    if again is not None and secret_strength(again[1]):
        return [], position
    found = (_ARGUMENT if option else _BARE).match(text, position)
    if found is None:
        return [], position
    value, begin, stop = found[0], found.start(), found.end()
    whole = value.rstrip(",)]")
    if option and whole[-1:] in ("'", '"') and whole.count(whole[-1]) % 2:  # the quote opened before the option
        value, stop = whole[:-1], begin + len(whole) - 1
    if member and value.endswith("."):
        value, stop = value[:-1], stop - 1
    bare = value.strip("\"'")
    if bare[0:1] in ("$", "{") and is_placeholder(bare):  # ${DB_PASSWORD:?not set}: the name in it has no value
        return [], stop
    if is_placeholder(bare.rstrip(":")) or value.startswith(f"{MASK}:"):
        return [], begin
    if not is_secret(strength, name, bare) or (not option and secret_strength(bare) and _NAME.fullmatch(bare)):
        return [], begin
    return [(begin, stop)], stop


def _is_password_with_bracket(text: str, call: re.Match[str]) -> bool:
    """Whether what looks like a call is a password with a bracket: nothing closes it on this line."""
    if call[0][-1] == "[" and looks_secret(call[0][:-1]):
        return True
    closing = {"(": ")", "[": "]", "{": "}"}[call[0][-1]]
    line = text.find("\n", call.end(), call.end() + MAX_CALL_CHARS)
    return text.find(closing, call.end(), line if line >= 0 else call.end() + MAX_CALL_CHARS) < 0 and call[0][:-1] != ""


def _argument_span(text: str, position: int, name: str, strength: Strength) -> tuple[_Spans, int]:
    """What follows an option on a command line; a passphrase may have unquoted blanks."""
    quote = _QUOTE.match(text, position)
    if quote is not None and not quote[1]:
        return _value_at(text, position, name, strength)
    found = _ARGUMENT.match(text, position)
    if found is None:
        return [], position
    stop = found.end()
    value = found[0].rstrip("]})|,")
    metavar = value.isupper() and (value in _USAGE_PLACEHOLDERS or value.lower() in name.lower())
    if metavar or not is_secret(strength, name, found[0]):
        return [], position
    if "passw" in name.lower() or "passphrase" in name.lower():
        more = _MORE_WORDS.match(text, stop)
        stop = more.end() if more else stop
    return [(position, stop)], stop


def _literal_spans(text: str, position: int) -> tuple[_Spans, int]:
    """Literals that look like secrets in the call, list or right-hand side at ``position``."""
    limit = min(len(text), position + MAX_CALL_CHARS)
    line = text.find("\n", position, limit)
    limit = limit if line < 0 else line
    spans: _Spans = []
    if text.find('"', position, limit) < 0 and text.find("'", position, limit) < 0:
        return spans, position
    for literal in _LITERAL.finditer(text, position, limit):
        begin, stop = literal.start(1) + 1, literal.end() - 1
        begin = user.end() if (user := _USER.match(text, begin, stop)) else begin
        value = text[begin:stop]
        is_random = len(value) >= 8 and " " not in value and ":" not in value and looks_secret(value)
        if is_random or _looks_like_password(value):
            spans.append((begin, stop))
    # Names before the last literal are done; others are examined on their own.
    return spans, spans[-1][1] if spans else position
