"""Where a text names a user, host, job or id: a field, an option, a noun before it, a command, the form of a line.

Most names stand after a word that tells what they are (``nodeName: x``, ``--job-name x``, ``pod "x"``): :data:`NOUNS`
has these words. What only its place tells is a row of ``private_names.txt``: its kind, what such a line has (others
are not searched) and a pattern whose groups are names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gpuwatch.core.formatting.lazy_pattern import lazy
from gpuwatch.core.formatting.public_names import COMMON_WORDS, COUNTED, NODE_STEMS

_NAME = r"[A-Za-z_][\w.-]{0,63}"
_LIKE_HOST = r"(?=[A-Za-z-]{0,62}\d)[A-Za-z][A-Za-z0-9-]{2,62}(?:\.[A-Za-z][\w-]*){0,8}"
"""A name with a number in it, in places where other words may stand, too."""
_HOST = r"[A-Za-z](?:[\w.-]{0,61}\w)?(?:\[[\d,-]+\])?"
_PERSON = r"[A-Z][\w'-]+(?: [A-Z][\w.'-]+){1,2}"
_KNOWN_OWNERS = (
    "docs|blog|models|datasets|spaces|papers|api|join|settings|huggingface|meta-llama|facebook|google|openai|openai-community"
    "|microsoft|nvidia|mistralai|Qwen|deepseek-ai|stabilityai|EleutherAI|bigscience|tiiuae|google-bert|sentence-transformers"
    "|HuggingFaceH4|HuggingFaceTB|allenai|black-forest-labs|runwayml|TheBloke|unsloth|timm|laion|tensorflow|pytorch|NVIDIA"
)
"""Of models that everybody uses, and pages of the site itself."""

NOUNS = {
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
        "resource_group|resourcegroup|resource-group|github_repository|ci_project_path|conda_default_env|singularity_name"
        "|runner_description|wandb_group|wandb-group|log_group|ssid",
    ),
    "serial": ("serial", "service tag|asset tag|board id|boardid|imei|s/n|serialnumber"),
    "image": ("image repository repo", ""),
}
"""By kind: nouns that end the name of a field, alone or with ``name``, ``id``, ``list`` behind, and whole ends."""
_NEEDS_FORM = {
    "user": "role",
    "host": "node server machine peer instance alias gateway worker master head controller endpoint remote nodes",
    "job": "reservation job runner run container service release queue study sweep artifact workflow",
}
"""Nouns of other things, too: a name has a digit, a hyphen or an underscore, or ``name`` stands behind the noun."""
_KIND = {noun: kind for kind, (nouns, _) in NOUNS.items() for noun in nouns.split()}
_KIND |= {end: kind for kind, (_, ends) in NOUNS.items() for end in ends.split("|") if end}
_FORM_KIND = {noun: kind for kind, nouns in _NEEDS_FORM.items() for noun in nouns.split()}
_NOUN = lazy("|".join(sorted(map(re.escape, _KIND | _FORM_KIND), key=len, reverse=True)))
_AFTER = lazy(
    r"(?P<more>[ _.-]?(?:names?|ids?|list|addr|login|host|hosts|number|no|path|description)|s|\(s\))?+(?![\w-])"
    r"(?:(?P<sign>[\"'\\\])]{0,4}[ \t]{0,60}(?:[. ]{2,60}:|=>|[:=]|\\u003d)[ \t]{0,30})|(?P<tag>>)"
    r"|(?P<blank>[ \t]{1,4}))"
    r"(?P<open>[\"'\\<\[(\u2018]{0,4})(?:\d{1,3}\*)?(?P<value>\w(?:[\w.:/@+-]*\w)?(?:\[[\d,-]+\])?)"
    r"(?P<close>[\"'\\>\u2019]?)(?P<next>\(?.?)"
)
_MORE_HOSTS = lazy(
    rf"[\"'\\]{{0,2}}(?::\w+|=\d+|/\d+)*(?:\*\d+)?\)?[\"'\\]{{0,2}}[,+ ] ?\(?[\"'\\]{{0,2}}(?:\d+\*)?({_LIKE_HOST})"
)
_NO_NAME = lazy(
    r"(?:self|cls|args|cfg|config|opts?|options|params|settings|ctx|os|hparams|flags|FLAGS|tf|torch|np)\.\w.*"
    r"|0x[0-9a-f]{1,15}|\d*\.\d+(?:\.\d+)?|None|True|False"
)
"""An attribute, an address, a version."""
_SCHEME = lazy(r"[a-z]{2,8}:/{1,2}")
_FORM = lazy(r"(?=[A-Za-z_.-]*\d|[A-Za-z\d.-]+_|[A-Za-z0-9]+-[A-Za-z0-9]+)[A-Za-z][\w.-]*")


def names_in(text: str) -> Iterator[tuple[str, str, str]]:
    """Kind and name of what ``text`` names, and the name with what tells it, for names that are words elsewhere."""
    forms = [pattern for kind, _, pattern in rows() if kind == "line"]
    for line in text.split("\n"):
        for pattern in forms:
            if (form := pattern.match(line)) is not None:
                for kind, name in form.groupdict().items():
                    yield kind.partition("_")[0], name or "none", ""
    yield from _named(text)
    for kind, hints, pattern in rows():
        if kind == "line":
            continue
        seen = -1
        for begin, end in _lines_with(text, hints):
            if begin > seen:
                seen = begin
                for match in pattern.finditer(text, begin, end):
                    for name in match.groups():
                        if name:
                            yield kind, name, match[0]


def _lines_with(text: str, hints: tuple[str, ...]) -> list[tuple[int, int]]:
    found: dict[int, int] = {}
    for hint in hints:
        at = text.find(hint)
        while at >= 0:
            end = text.find("\n", at)
            end = end if end >= 0 else len(text)
            found[text.rfind("\n", 0, at) + 1] = end
            at = text.find(hint, end)
    return sorted(found.items())


def _named(text: str) -> Iterator[tuple[str, str, str]]:
    """``nodeName: x``, ``--job-name x``, ``"user": "x"``, ``pod "x"``, ``<serial>x``."""
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text
    for hit in _NOUN.finditer(lowered):
        start, end = hit.span()
        before = text[start - 1 : start]
        if before.isalnum() and not (before.islower() and text[start].isupper()):
            continue
        match = _AFTER.match(lowered, end)
        if match is None or (match["tag"] and before not in ("<", "_")):
            continue
        if match["blank"] and not match["open"]:
            begin = start
            while begin and (text[begin - 1].isalnum() or text[begin - 1] in "-_"):
                begin -= 1
            if not text.startswith("--", begin):
                yield from _after_noun(text, hit[0], start, match)
                continue
        yield from _value(text, hit[0], start, match)


def _value(text: str, noun: str, start: int, match: re.Match[str]) -> Iterator[tuple[str, str, str]]:
    begin, end = match.span("value")
    value, then = text[begin:end], match["next"]
    kind = _KIND.get(noun) or _FORM_KIND[noun]
    if kind == "host":
        value = _SCHEME.sub("", value).partition("/")[0].partition(":")[0]
        begin = text.find(value, begin)
        end = begin + len(value)
    elif then[:1] in ("=", "[", "{") or (then[:1] == "(" and not then[1:].isdigit()):
        return
    if (_NO_NAME.fullmatch(value) and kind != "serial") or (
        text.startswith("/", start - 1) and noun in ("job", "host")
    ):
        return
    whole = text[start:end]
    if value.lower() in COMMON_WORDS and not (
        match["sign"] and (match["open"] or "=" in match["sign"] or not then.strip())
    ):
        return
    if match["blank"] and value.isupper() and value.isalpha():
        return  # the usage of a program: --name NAME
    if value[0].isupper() and value[1:].islower() and not match["open"] and text[end : end + 1] == " ":
        return  # a sentence after a colon
    sure = noun in _KIND or (match["more"] or "").strip(" _.-") in ("name", "id", "list", "addr", "host", "hosts")
    if kind == "host":
        if (sure and "_" not in value) or _like_host(value):
            yield kind, value, whole
        at = end
        while more := _MORE_HOSTS.match(text, at):
            at = more.end()
            if not counted(more[1]):
                yield kind, more[1], more[1]
    elif kind == "image":
        if "/" in value:
            yield kind, value, whole
    elif sure or _FORM.fullmatch(value) or (match["open"] and not match["sign"] and noun != "run") or value.isdigit():
        for part in value.split("/") if kind in ("job", "id") and value.count("/") == 1 else (value,):
            if "/" not in part and not (kind == "serial" and ":" in part):
                yield kind, part, whole


_STEM = lazy(r"([A-Za-z]+)(?:[-_.]?[\d.]+[A-Za-z]{0,2})*")
_HYPHENS = lazy(r"[a-z]+(?:-[a-z0-9]+)+")
_HEX = lazy(r"[a-f\d-]+")
_NODE = lazy(
    r"(?:[a-z]{2,}(?:-[a-z]+)*-?\d{2,5}|[a-z]{2,}(?:-[a-z]{1,12}){0,3}\d*(?:-(?!v\d)[a-z]?\d{1,5}){1,5})[a-z]?(?:\.[a-z][\w.-]*)?"
)


def _like_host(name: str) -> bool:
    return bool(re.fullmatch(_HOST, name)) and "_" not in name and not counted(name) and any(map(str.isdigit, name))


def like_node(name: str) -> bool:
    """Whether a word between others may be the name of a node, and is not of words that programs have."""
    words = [part.rstrip("0123456789") for part in name.partition(".")[0].split("-")]
    known = [word in COMMON_WORDS or word in COUNTED for word in words if len(word) > 1]
    hosts = any(word in NODE_STEMS for word in words)
    return bool(_NODE.fullmatch(name) or _HYPHENS.fullmatch(name)) and not (
        counted(name) or _HEX.fullmatch(name) or (known and known[0] and not hosts)
    )


def counted(name: str) -> bool:
    """Whether a name is of what programs number, such as ``rank3``, or a model or type, such as ``resnet50``."""
    stem = _STEM.fullmatch(name)
    word = stem[1].lower() if stem else ""
    if word in NODE_STEMS and re.search(r"\d\d", name):
        return False
    return word in COUNTED or word in COMMON_WORDS


_OF = lazy(r"(?:\b(?:of|by|as|for|from|to|user|to the|that)|^|[:;(,.]) ?(?:the )?$", re.IGNORECASE)
_THEN = lazy(
    r"[ .,;:)'\u2019]*(?:$|\n|[.,;:)'\u2019] ?"
    r"|\s(?:is|has|may|does|did|was|not|exceeded|for|uses?|holds?|on|from|at|in|lost|died|went|failed|exited|timed)\b)"
)


def _after_noun(text: str, noun: str, start: int, match: re.Match[str]) -> Iterator[tuple[str, str, str]]:
    """``of user x``, ``node gpu07 is down``, ``entity x not found``: what follows a noun in a sentence."""
    begin, end = match.span("value")
    name = text[begin:end].partition(":")[0]
    kind = _KIND.get(noun) or _FORM_KIND[noun]
    if name.lower() in COMMON_WORDS or match["next"][:1] in ("(", "=", "[") or match["more"] not in (None, "", "s"):
        return
    if kind == "host":
        name = name.partition("/")[0]
        if like_node(name) or (_like_host(name) and _THEN.match(text, end)):
            yield kind, name, name
    elif kind == "user":
        good = (
            re.fullmatch(_NAME, name)
            and len(name) > 2
            and not name[0].isupper()
            and noun in ("user", "owner", "account")
        )
        if good and (_OF.search(text[max(0, start - 12) : start]) or _THEN.match(text, end)):
            yield kind, name, name
    elif kind == "serial":
        if re.fullmatch(r"(?=[A-Z]*\d)[A-Z0-9]{8,20}", name):
            yield kind, name, name
    elif kind in ("job", "id"):
        numbered = (
            any(map(str.isdigit, name)) or name.count("-") > 1 or "_" in name or (noun == "bucket" and "-" in name)
        )
        if (noun == "entity" and ("/" in name or text.startswith((" not ", " does "), end))) or (
            "/" not in name and numbered and _FORM.fullmatch(name) and not counted(name)
        ):
            for part in name.split("/"):
                yield kind, part, part


@cache
def rows() -> tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...]:
    """The rows of ``private_names.txt``; those of whole lines have the kind ``line``."""
    parts = {"NAME": _NAME, "LIKE HOST": _LIKE_HOST, "HOST": _HOST, "PERSON": _PERSON, "KNOWN OWNERS": _KNOWN_OWNERS}
    found = []
    for line in Path(__file__).with_name("private_names.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            kind, hints, text = line.split("\t")
            for name, part in parts.items():
                text = text.replace(f"<{name}>", part)
            found.append((kind, tuple(hints.split("|")), lazy(text, re.MULTILINE)))
    return tuple(found)


AT = lazy(
    rf"(?<![\w.+/@-])({_NAME})@(?!v?\d|@|GLIBC|CXX)([A-Za-z][\w-]{{1,63}})(?![\w-]|[\w.-]*/|\.(?:service|socket|target))"
)
"""``alice@node07``, in prompts and commands of ssh."""
HOST_AT = lazy(r"(?<=[\w.-])@([\w.-]{1,255}+):[~/]", re.ASCII)
PROMPT = lazy(r"(?<![\w./])([A-Za-z][\w.-]{0,63})@[\w.-]{1,255}+:[~/]")
USER_IN_TEXT = lazy(
    r"\bprocess \d{1,9}(?:, \d{1,9}){0,99} of ([A-Za-z_][\w.-]{0,63}(?:, [A-Za-z_][\w.-]{0,63}){0,99}?)"
    r"(?=,? (?:held|or)\b|;|$)"
    r"|\bpid \d{1,9}(?: \(|, )([A-Za-z_][\w.-]{0,63})\)"
)
"""How ``diagnosis.memory.memory_holders`` names the owner of a process, which may have exited since."""
