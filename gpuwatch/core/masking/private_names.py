"""Which names in a text ``--redact`` replaces: what tells that they name a user, host, job or file.

Most stand after a word that tells what they are (``nodeName: x``, ``--job-name x``, ``pod "x"``), one of
:data:`FIELD_NOUNS`. A name that only its place in a line reveals has a row in ``private_names.txt``: its
kind, what a line must contain to be searched, and a pattern whose groups are names. Ids, addresses and paths,
which their form shows, are in :mod:`gpuwatch.core.masking.address_and_path_patterns`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from gpuwatch.core.masking.public_names import COMMON_WORDS, KNOWN_OWNERS, NUMBERED_WORDS
from gpuwatch.core.parsing import lazy, table_rows, word_set

USER_FIELDS = word_set("user username USER LOGNAME USERNAME SUDO_USER SLURM_JOB_USER JUPYTERHUB_USER")
"""Fields and variables that name a user."""
HOST_FIELDS = word_set("host node hostname HOSTNAME HOST SLURMD_NODENAME SLURM_NODELIST MASTER_ADDR NODE_NAME")
ID_VARIABLES = lazy(r"(?:SLURM_|PBS_|LSB_|JOB_|POD_|KUBERNETES_|WANDB_|MLFLOW_)\w*")
NODE_STEMS = word_set("gpu node worker cpu server host machine compute box login cn")
"""Before a number of two digits or more: hosts."""
MIN_LONG_NUMBER_DIGITS = 8
"""Digits from which a number is no pid, port or count."""
_NAME = r"[A-Za-z_][\w.-]{0,63}"
_LIKE_HOST = r"(?=[A-Za-z-]{0,62}\d)[A-Za-z][A-Za-z0-9-]{2,62}(?:\.[A-Za-z][\w-]*){0,8}"
"""A name with a number in it, in places where other words may stand, too."""
_HOST = r"[A-Za-z](?:[\w.-]{0,61}\w)?(?:\[[\d,-]+\])?"
_PERSON = r"[A-Z][\w'-]+(?: [A-Z][\w.'-]+){1,2}"
FIELD_NOUNS = {
    "user": (
        "user acct login logname owner author account submitter requester assignee committer maintainer principal",
        "creator|submittedby|submitted_by|requested_by|startedby|started_by|createdby|created_by|launched_by|owned_by"
        "|github_actor|assigned_to|mail-user|run_as",
    ),
    "host": (
        "host computer domain workgroup fqdn",
        "master_addr|masteraddr|main_process_ip|submit_host|exec_host|exec_vnode|rdzv_endpoint|rdzv-endpoint",
    ),
    "job": (
        "pod namespace project experiment exp deployment statefulset daemonset",
        "rdzv_id|rdzv-id|submission_id|submission-id|service account|serviceaccount|stepid",
    ),
    "id": (
        "bucket database tenant organisation organization org team workspace entity cluster subscription",
        "resource_group|resourcegroup|resource-group|resource group|key vault"
        "|github_repository|ci_project_path|conda_default_env|singularity_name"
        "|runner_description|wandb_group|wandb-group|log_group|ssid",
    ),
    "serial": ("serial", "service tag|asset tag|board id|boardid|imei|s/n|serialnumber"),
    "image": ("image repository repo", ""),
}
"""By kind: nouns that end the name of a field, alone or with ``name``, ``id``, ``list`` behind, and whole ends."""
_NOUNS_OF_OTHER_THINGS = {
    "user": "role",
    "host": "node server machine peer instance alias gateway worker master head controller endpoint remote nodes",
    "job": "reservation job runner run container service release queue study sweep artifact workflow",
}
"""Nouns of other things, too: a name has a digit, a hyphen or an underscore, or ``name`` stands behind the noun."""
_KIND_OF_NOUN = {noun: kind for kind, (nouns, _) in FIELD_NOUNS.items() for noun in nouns.split()}
_KIND_OF_NOUN |= {end: kind for kind, (_, ends) in FIELD_NOUNS.items() for end in ends.split("|") if end}
_KIND_OF_OTHER_NOUN = {noun: kind for kind, nouns in _NOUNS_OF_OTHER_THINGS.items() for noun in nouns.split()}
_NOUN = lazy("|".join(sorted(map(re.escape, _KIND_OF_NOUN | _KIND_OF_OTHER_NOUN), key=len, reverse=True)))
_AFTER_NOUN = lazy(
    r"(?P<more>[ _.-]?(?:names?|ids?|list|addr|login|host|hosts|number|no|path|description)|s|\(s\))?+(?![\w-])"
    r"(?:(?P<sign>[\"'\\\])]{0,4}[ \t]{0,60}(?:[. ]{2,60}:|=>|[:=]|\\u003d)[ \t]{0,30})|(?P<tag>>)"
    r"|(?P<blank>[ \t]{1,4}))"
    r"(?P<open>[\"'\\<\[(\u2018]{0,4})(?:\d{1,3}\*)?(?P<value>\w(?:[\w.:/@+-]*\w)?(?:\[[\d,-]+\])?)"
    r"(?P<close>[\"'\\>\u2019]?)(?P<next>\(?.?)"
)
_MORE_HOSTS = lazy(
    rf"[\"'\\]{{0,2}}(?::\w+|=\d+|/\d+)*(?:\*\d+)?\)?[\"'\\]{{0,2}}[,+ ] ?\(?[\"'\\]{{0,2}}(?:\d+\*)?({_LIKE_HOST})"
)
_NOT_A_NAME = lazy(
    r"(?:self|cls|args|cfg|config|opts?|options|params|settings|ctx|os|hparams|flags|FLAGS|tf|torch|np)\.\w.*"
    r"|0x[0-9a-f]{1,15}|\d*\.\d+(?:\.\d+)?|None|True|False"
)
"""An attribute, an address, a version."""
_SCHEME = lazy(r"[a-z]{2,8}:/{1,2}")
_NAME_FORM = lazy(r"(?=[A-Za-z_.-]*\d|[A-Za-z\d.-]+_|[A-Za-z0-9]+-[A-Za-z0-9]+)[A-Za-z][\w.-]*")


_ARGUMENTS = lazy(r"\[((?:'[^'\n]*'|\"[^\"\n]*\")(?:, (?:'[^'\n]*'|\"[^\"\n]*\"))+)\]")
_SEPARATOR = lazy(r"['\"], ['\"]")
_HEADINGS = lazy(
    r" *(?=[A-Z%+].*\b(?:PID|JOBID|COMMAND|CMD|ST|STATE|STATUS|TIME|PARTITION|NAME|TTY|CPU|MEM)\b)"
    r"(?:[A-Z%+][A-Z0-9%()_/:+-]*(?: +|$)){2,20}$"
)
_HEADING_KIND = {"USER": "user", "OWNER": "user", "LOGIN": "user", "USERNAME": "user", "HOST": "host", "NODE": "host"}
_NUMBERED_NAME = lazy(r"([A-Za-z]+)(?:[-_.]?[\d.]+[A-Za-z]{0,2})*")
_HYPHENS = lazy(r"[a-z]+(?:-[a-z0-9]+)+")
_HEX_DIGITS = lazy(r"[a-f\d-]+")
_NODE_NAME = lazy(
    r"(?:[a-z]{2,}(?:-[a-z]+)*-?\d{2,5}|[a-z]{2,}(?:-[a-z]{1,12}){0,3}\d*(?:-(?!v\d)[a-z]?\d{1,5}){1,5})[a-z]?(?:\.[a-z][\w.-]*)?"
)
_BEFORE_NOUN = lazy(r"(?:\b(?:of|by|as|for|from|to|user|to the|that)|^|[:;(,.]) ?(?:the )?$", re.IGNORECASE)
_AFTER_NAME = lazy(
    r"[ .,;:)'\u2019]*(?:$|\n|[.,;:)'\u2019] ?"
    r"|\s(?:is|has|may|does|did|was|not|exceeded|for|uses?|holds?|on|from|at|in|lost|died|went|failed|exited|timed)\b)"
)
USER_AT_HOST = lazy(
    rf"(?<![\w.+/@-])({_NAME})@(?!v?\d|@|GLIBC|CXX)([A-Za-z][\w-]{{1,63}})(?![\w-]|[\w.-]*/|\.(?:service|socket|target))"
)
"""``alice@node07``, in prompts and commands of ssh."""
HOST_AFTER_AT = lazy(r"(?<=[\w.-])@([\w.-]{1,255}+):[~/]", re.ASCII)
SHELL_PROMPT = lazy(r"(?<![\w./])([A-Za-z][\w.-]{0,63})@[\w.-]{1,255}+:[~/]")
USER_OF_PROCESS = lazy(
    r"\bprocess \d{1,9}(?:, \d{1,9}){0,99} of ([A-Za-z_][\w.-]{0,63}(?:, [A-Za-z_][\w.-]{0,63}){0,99}?)"
    r"(?=,? (?:held|or)\b|;|$)"
    r"|\bpid \d{1,9}(?: \(|, )([A-Za-z_][\w.-]{0,63})\)"
)
"""How ``diagnosis.memory.memory_holders`` names the owner of a process, which may have exited since."""


class FoundName(NamedTuple):
    """A private name in a text."""

    kind: str
    """A kind of :data:`FIELD_NOUNS` or of a row of ``private_names.txt``."""
    name: str
    context: str
    """The name with the words that show what it is, for a name that is a plain word elsewhere; empty without such."""


def names_in(text: str) -> Iterator[FoundName]:
    """The private names in ``text``."""
    # Arguments as Python prints them are also searched as the command line that they are.
    text += "".join("\n" + _SEPARATOR.sub(" ", match[1][1:-1]) for match in _ARGUMENTS.finditer(text))
    line_patterns = [pattern for kind, _, pattern in private_name_rows() if kind == "line"]
    columns: dict[int, str] = {}
    for line in text.split("\n"):
        if _HEADINGS.match(line):
            columns = {
                position: _HEADING_KIND[name] for position, name in enumerate(line.split()) if name in _HEADING_KIND
            }
        elif columns:
            cells = line.split()
            if len(cells) <= max(columns):
                columns = {}
            for position, kind in columns.items():
                if re.fullmatch(rf"{_NAME}\+?", cells[position]):
                    yield FoundName(kind, cells[position].rstrip("+"), "")
        for pattern in line_patterns:
            if (line_match := pattern.match(line)) is not None:
                for kind, name in line_match.groupdict().items():
                    yield FoundName(kind.partition("_")[0], name or "none", "")
    yield from _named_values(text)
    for kind, hints, pattern in private_name_rows():
        if kind == "line":
            continue
        seen = -1
        for begin, end in _lines_with(text, hints, with_next_line=kind.endswith("+")):
            if begin > seen:
                seen = begin
                for match in pattern.finditer(text, begin, end):
                    for name in match.groups():
                        if name:
                            yield FoundName(kind.rstrip("+"), name, match[0])


def _lines_with(text: str, hints: tuple[str, ...], *, with_next_line: bool) -> list[tuple[int, int]]:
    """Where the lines with a hint begin and end; with ``with_next_line``, each with the line below it."""
    found: dict[int, int] = {}
    for hint in hints:
        position = text.find(hint)
        while position >= 0:
            end = text.find("\n", position)
            end = text.find("\n", end + 1) if with_next_line and end >= 0 else end
            end = end if end >= 0 else len(text)
            found[text.rfind("\n", 0, position) + 1] = end
            position = text.find(hint, end)
    return sorted(found.items())


def _named_values(text: str) -> Iterator[FoundName]:
    """``nodeName: x``, ``--job-name x``, ``"user": "x"``, ``pod "x"``, ``<serial>x``."""
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text
    for noun_match in _NOUN.finditer(lowered):
        start, end = noun_match.span()
        before = text[start - 1 : start]
        if before.isalnum() and not (before.islower() and text[start].isupper()):
            continue
        match = _AFTER_NOUN.match(lowered, end)
        if match is None or (match["tag"] and before not in ("<", "_")):
            continue
        if match["blank"] and not match["open"]:
            begin = start
            while begin and (text[begin - 1].isalnum() or text[begin - 1] in "-_"):
                begin -= 1
            if not text.startswith("--", begin):
                yield from _names_after_noun(text, noun_match[0], start, match)
                continue
        yield from _names_in_value(text, noun_match[0], start, match)


def _names_in_value(text: str, noun: str, start: int, match: re.Match[str]) -> Iterator[FoundName]:
    begin, end = match.span("value")
    value, next_char = text[begin:end], match["next"]
    kind = _KIND_OF_NOUN.get(noun) or _KIND_OF_OTHER_NOUN[noun]
    if kind == "host":
        value = _SCHEME.sub("", value).partition("/")[0].partition(":")[0]
        begin = text.find(value, begin)
        end = begin + len(value)
    elif next_char[:1] in ("=", "[", "{") or (next_char[:1] == "(" and not next_char[1:].isdigit()):
        return
    if (_NOT_A_NAME.fullmatch(value) and kind != "serial") or (
        text.startswith("/", start - 1) and noun in ("job", "host")
    ):
        return
    whole = text[start:end]
    if value.lower() in COMMON_WORDS and not (
        match["sign"] and (match["open"] or "=" in match["sign"] or not next_char.strip())
    ):
        return
    if match["blank"] and value.isupper() and value.isalpha():
        return  # the usage of a program: --name NAME
    if "(" in match["open"] and not _looks_like_host(value) and (noun in _KIND_OF_OTHER_NOUN or value[0].isupper()):
        return  # "Error from server (Forbidden)"
    if value[0].isupper() and value[1:].islower() and not match["open"] and text[end : end + 1] == " ":
        return  # a sentence after a colon
    is_certain = noun in _KIND_OF_NOUN or (match["more"] or "").strip(" _.-") in (
        "name",
        "id",
        "list",
        "addr",
        "host",
        "hosts",
    )
    if kind == "host":
        is_certain = is_certain or bool(noun in ("machine", "server") and match["open"] and not match["sign"])
        if (is_certain and "_" not in value) or _looks_like_host(value):
            yield FoundName(kind, value, whole)
        position = end
        while next_host := _MORE_HOSTS.match(text, position):
            position = next_host.end()
            if not is_numbered_name(next_host[1]):
                yield FoundName(kind, next_host[1], next_host[1])
    elif kind == "image":
        if "/" in value:
            yield FoundName(kind, value, whole)
    elif (
        is_certain
        or _NAME_FORM.fullmatch(value)
        or (match["open"] and not match["sign"] and noun != "run")
        or value.isdigit()
    ):
        for part in value.split("/") if kind in ("job", "id") and value.count("/") == 1 else (value,):
            if "/" not in part and not (kind == "serial" and ":" in part):
                yield FoundName(kind, part, whole)


def _looks_like_host(name: str) -> bool:
    return (
        bool(re.fullmatch(_HOST, name))
        and "_" not in name
        and not is_numbered_name(name)
        and any(map(str.isdigit, name))
    )


def looks_like_node_in_sentence(name: str) -> bool:
    """Whether a word between others may be the name of a node, and is not of words that programs have."""
    words = [part.rstrip("0123456789") for part in name.partition(".")[0].split("-")]
    known = [word in COMMON_WORDS or word in NUMBERED_WORDS for word in words if len(word) > 1]
    hosts = any(word in NODE_STEMS for word in words)
    return bool(_NODE_NAME.fullmatch(name) or _HYPHENS.fullmatch(name)) and not (
        is_numbered_name(name) or _HEX_DIGITS.fullmatch(name) or (known and known[0] and not hosts)
    )


def is_numbered_name(name: str) -> bool:
    """Whether a name is of what programs number, such as ``rank3``, or a model or type, such as ``resnet50``."""
    stem = _NUMBERED_NAME.fullmatch(name)
    word = stem[1].lower() if stem else ""
    if word in NODE_STEMS and re.search(r"\d\d", name):
        return False
    return word in NUMBERED_WORDS or word in COMMON_WORDS


def _names_after_noun(text: str, noun: str, start: int, match: re.Match[str]) -> Iterator[FoundName]:
    """``of user x``, ``node gpu07 is down``, ``entity x not found``: what follows a noun in a sentence."""
    begin, end = match.span("value")
    name = text[begin:end].partition(":")[0]
    kind = _KIND_OF_NOUN.get(noun) or _KIND_OF_OTHER_NOUN[noun]
    if name.lower() in COMMON_WORDS or match["next"][:1] in ("(", "=", "[") or match["more"] not in (None, "", "s"):
        return
    if kind == "host":
        name = name.partition("/")[0]
        if looks_like_node_in_sentence(name) or (_looks_like_host(name) and _AFTER_NAME.match(text, end)):
            yield FoundName(kind, name, name)
    elif kind == "user":
        is_user_name = (
            re.fullmatch(_NAME, name)
            and len(name) > 2
            and not name[0].isupper()
            and noun in ("user", "owner", "account")
        )
        if is_user_name and (_BEFORE_NOUN.search(text[max(0, start - 12) : start]) or _AFTER_NAME.match(text, end)):
            yield FoundName(kind, name, name)
    elif kind == "serial":
        if re.fullmatch(r"(?=[A-Z]*\d)[A-Z0-9]{8,20}", name):
            yield FoundName(kind, name, name)
    elif kind in ("job", "id"):
        sentence_goes_on = noun in _KIND_OF_NOUN and (
            _AFTER_NAME.match(text, end) or text.startswith((" of ", " could "), end)
        )
        is_named = "-" in name and (
            noun == "bucket" or (sentence_goes_on and COMMON_WORDS.isdisjoint(name.lower().split("-")))
        )
        numbered = any(map(str.isdigit, name)) or name.count("-") > 1 or "_" in name or is_named
        if (noun == "entity" and ("/" in name or text.startswith((" not ", " does "), end))) or (
            "/" not in name and numbered and _NAME_FORM.fullmatch(name) and not is_numbered_name(name)
        ):
            for part in name.split("/"):
                yield FoundName(kind, part, part)


@cache
def private_name_rows() -> tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...]:
    """The rows of ``private_names.txt``; those of whole lines have the kind ``line``."""
    parts = {"NAME": _NAME, "LIKE HOST": _LIKE_HOST, "HOST": _HOST, "PERSON": _PERSON, "KNOWN OWNERS": KNOWN_OWNERS}
    found = []
    for kind, hints, text in table_rows(__file__, "private_names.txt"):
        for name, part in parts.items():
            text = text.replace(f"<{name}>", part)
        found.append((kind, tuple(hints.split("|")), lazy(text, re.MULTILINE)))
    return tuple(found)
