"""Replaces users, hosts, paths, addresses and ids in a document, each by the same name everywhere.

``alice`` becomes ``user-1`` in fields, paths, command lines and log lines. System folders, CUDA libraries and the
folders of frameworks stay. Secrets are masked first (:mod:`gpuwatch.core.masking.mask_secrets`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from gpuwatch.core.formatting.lazy_pattern import lazy
from gpuwatch.core.masking import private_names as names
from gpuwatch.core.masking.mask_secrets import COLOR, masked
from gpuwatch.core.masking.private_names import is_numbered_name, looks_like_node, names_in
from gpuwatch.core.model.json_codec import enumerated_values

_D = TypeVar("_D", bound=msgspec.Struct)

NOTE = (
    "Redacted: users, hosts, paths, addresses and ids are replaced where a field or the form of the text identifies "
    "them. A name that nothing identifies may remain: read this before you send it."
)
"""What a redacted output says of itself, in its first lines."""

_MAX_CONTEXT_CHARS = 160
"""Characters before a number that tell what it is."""
_BEGINS = lazy(r"[A-Za-z0-9]+|[^A-Za-z0-9\s][A-Za-z0-9]*")
"""The start of a word, by which it is looked up."""
_HERE = ("localhost", "127.0.0.1", "0.0.0.0")  # noqa: S104  # compared with
_NUMBERS = lazy(r"[\d.]+")
_NUMBERED = lazy(r"([A-Za-z][A-Za-z-]{2,30})\d{2,6}")
_SIBLING = lazy(r"([A-Za-z][A-Za-z-]{2,30})(?:\d{2,6}|\[[\d,-]+\])(?![A-Za-z0-9])")
_MIN_SERIAL_CHARS = 6
_MIN_JOB_DIGITS = 6
"""Digits from which the number of a job is replaced wherever it stands."""
_BEFORE_NAME = lazy(r"\S{1,40}\s{0,9}$")
_RUNS = lazy(r"[A-Za-z0-9]+")
_NAMES_PATHS = frozenset({"interpreter", "path", "shadows", "folder", "source"})


def redacted(document: _D) -> _D:
    """A copy without secrets, users, hosts, paths, addresses and ids."""
    plain = msgspec.to_builtins(masked(document))
    redactor = Redactor()
    redactor.learn(plain)
    fields: dict[str, Any] = redactor.replaced(plain)
    if "redacted" in fields:
        fields["redacted"] = True
    return msgspec.convert(fields, type(document))


def masked_for_sending(document: _D, *, redact: bool = False) -> _D:
    """The document as it may leave this machine: secrets masked; with ``redact`` also :func:`redacted`."""
    return redacted(document) if redact else masked(document)


class Redactor:
    """The replacements made in one document."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, str]] = {}
        self._taken: dict[str, int] = {}
        """How many names of each kind were given."""
        self._of_word: dict[str, str] = {}
        self._lengths: dict[str, list[int]] = {}
        """Lengths of the words with the same start, longest first."""
        self._signs: list[str] = []
        """Those starts that are no letters and digits."""
        self._gpus: dict[str, list[str]] = {}
        """Known UUIDs of GPUs by their first four characters."""
        self._persons: dict[str, str] = {}
        """Names with blanks, which paths may have, too."""
        self._given: set[str] = set()
        self._stems: set[str] = set()
        """Names of numbered hosts without their numbers: ``node17`` means that ``node18`` is a host, too."""

    # Finding what to replace

    def learn(self, value: Any) -> None:
        """Finds users, hosts, containers and files by the fields and paths that name them."""
        for key, text in _texts(value):
            if key == "uuid":
                self.text(text)  # numbered in the order of the devices, not of log lines
        texts = [(key, COLOR.sub("", text) if "\x1b[" in text else text) for key, text in _texts(value)]
        for key, text in texts:
            self._field_names(key, text)
        self._text_names("\n".join(f"{key}={text}" if key.isupper() else text for key, text in texts))
        for key, text in texts:
            self._learn(key, text)
        lengths: dict[str, set[int]] = {}
        for word in self._of_word:
            begins = _BEGINS.match(word)
            if begins is not None:
                lengths.setdefault(begins[0], set()).add(len(word))
        self._lengths = {begins: sorted(found, reverse=True) for begins, found in lengths.items()}
        self._signs = [begins for begins in lengths if not begins[0].isalnum()]

    def _field_names(self, key: str, text: str) -> None:
        if key in names.USERS:
            self._word("user", text)
        elif key in names.HOSTS:
            self._host(text)
        elif key == "container":
            self._word("id", text.rpartition(" ")[2])
        elif key == "identity.serial":
            self._word("serial", text)
        elif names.ID_VARIABLES.fullmatch(key) and not text.isdigit():
            self._word("id", text)

    def _text_names(self, text: str) -> None:
        """What the form of all texts together names, one line after the other."""
        for kind, name, whole in names_in(text):
            self._said(kind, name, whole)
        if "@" in text:
            for match in names.HOST_AT.finditer(text):
                self._host(match[1])
            for match in names.USER_AT_HOST.finditer(text):
                if not match[1].startswith(names.SYSTEMD_UNIT_PREFIXES):
                    self._address(match[1], match[2])
            for match in names.MAIL.finditer(text):
                if match[0][-1].isalpha():
                    self._address(*match[0].rsplit("@", 1))
            for match in names.PROMPT.finditer(text):
                self._word("user", match[1])
        for match in names.USER_IN_TEXT.finditer(text):
            for user in (match[1] or match[2]).split(", "):
                self._word("user", user)

    def _address(self, person: str, site: str) -> None:
        """An address names its person and its site elsewhere, too."""
        if not person.startswith(names.SYSTEMD_UNIT_PREFIXES) and person not in names.ROLE_MAILBOXES:
            self._word("user", person)
        if not site.endswith(names.PUBLIC_MAIL):
            self._host(site)

    def _learn(self, key: str, text: str) -> None:
        for match in names.PATH.finditer(text):
            if not _is_device(match):
                self._path(match[2], home=match[1] == "~")
        if key == "command":
            self._command(text)

    def _said(self, kind: str, text: str, whole: str) -> None:
        """Takes a name that a text tells. ``whole``: with the words that tell it."""
        text = text.rstrip(".")
        lowered = text.lower()
        if (
            lowered in names.NAMES_THAT_ARE_WORDS
            or lowered in names.PLAIN
            or (kind in ("user", "group") and text in names.NOBODY)
        ):
            return
        if text.isdigit() and len(text) < (_MIN_JOB_DIGITS if kind == "job" else names.MIN_LONG_NUMBER_DIGITS):
            if kind == "job" and len(text) > 3:
                self._in_place(kind, text, whole)
            return
        if kind == "node":
            if looks_like_node(text):
                self._host(text, whole)
        elif kind == "peer" and (lowered in names.COMMON_WORDS or lowered in names.KNOWN or is_numbered_name(text)):
            return
        elif kind in ("host", "peer"):
            for host in text.split(",") if "[" not in text else (text,):
                self._host(host.partition(":")[0], whole)
        elif kind == "serial" and (":" in text or len(text) < _MIN_SERIAL_CHARS):
            return  # the kernel calls PCI addresses so
        elif kind == "image":
            self._image(text)
        elif "/" not in text or (kind == "repository" and not f"/{lowered}".startswith(names.PUBLIC_REPOSITORIES)):
            if (
                lowered in names.COMMON_WORDS
                or lowered in names.KNOWN
                or (kind in ("user", "job") and is_numbered_name(text))
            ):
                self._in_place(kind, text, whole)
            else:
                self._word(kind, text)

    def _in_place(self, kind: str, text: str, whole: str) -> None:
        """A name that is a word elsewhere is replaced where it stands with what tells it."""
        before, _, _ = whole.rpartition(text)
        tells = _BEFORE_NAME.search(before)
        if tells and (tells[0][-1] in "=:\"'<([/" or tells[0].startswith("-") or not text.isalpha()):
            self._of_word.setdefault(tells[0] + text, tells[0] + self.name(kind, text))

    def _image(self, text: str) -> None:
        """Registry and folders of a container image; its last name often tells what is in it."""
        *folders, _ = text.split("/")
        for place, folder in enumerate(folders):
            name = folder.partition(":")[0]
            if name not in names.PUBLIC_IMAGES and not name.endswith(names.PUBLIC):
                self._host(name) if not place and "." in name else self._word("dir", name)

    def _host(self, text: str, whole: str = "") -> None:
        if (
            _is_public(text)
            or names.SCRIPT.fullmatch(text)
            or text.lower().startswith(_HERE)
            or _NUMBERS.fullmatch(text)
        ):
            return
        if text.lower() in names.COMMON_WORDS:
            self._in_place("host", text, whole)
            return
        name = self._word("host", text)
        self._remember(text.lower(), name)
        short, dot, domain = text.partition(".")
        if dot and not short.isdigit():
            self._names["host"][short] = name
            self._remember(short, name)
            if domain.count(".") and not _is_public(domain):
                self._word("domain", domain)
        if (numbered := _NUMBERED.fullmatch(short)) and numbered[1].strip("-").lower() not in names.COUNTED:
            self._stems.add(numbered[1])

    def _word(self, kind: str, text: str) -> str:
        name = self.name(kind, text)
        self._remember(text, name)
        return name

    def _remember(self, text: str, name: str) -> None:
        number = text.isdigit() and len(text) < (
            _MIN_JOB_DIGITS if name.startswith("job") else names.MIN_LONG_NUMBER_DIGITS
        )
        if len(text) > 1 and text.lower() not in names.NAMES_THAT_ARE_WORDS and not number and text != name:
            self._of_word.setdefault(text, name)
            if " " in text and name.startswith("user"):
                self._persons.setdefault(text, name)

    def name(self, kind: str, text: str) -> str:
        """The replacement for ``text``; the same at every call."""
        known = self._names.setdefault(kind, {})
        if text in self._given:
            return text
        if kind in ("user", "group") and text in names.NOBODY:
            return text
        if text not in known:
            self._taken[kind] = self._taken.get(kind, 0) + 1
            known[text] = f"{kind}-{self._taken[kind]}"
            self._given.add(known[text])
        return known[text]

    # Replacing

    def replaced(self, value: Any, key: str = "") -> Any:
        """``value`` with everything private replaced."""
        if isinstance(value, str):
            return self._field(key, value)
        if isinstance(value, dict):
            return {self._name(name): self.replaced(item, _key(value, str(name))) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.replaced(item, key) for item in value]
        return value

    def _name(self, name: Any) -> Any:
        """A key of a mapping: amounts are kept by UUID."""
        return (
            names.GPU_UUID.sub(self._gpu, name)
            if isinstance(name, str) and ("GPU-" in name or "MIG-" in name)
            else name
        )

    def _field(self, key: str, text: str) -> str:
        if "version" in key or key in ("schema", "id", "severity", "certainty", "kernel", "taken_at", "started_at"):
            return text
        if not text or text in enumerated_values().get(key, ()):
            return text
        if key in names.USERS:
            return self.name("user", text)
        if key in names.HOSTS and text != "localhost":
            return self.name("host", text)
        if key == "identity.serial":
            return self.name("serial", text)
        if key == "container":
            kind, space, number = text.rpartition(" ")
            return f"{kind}{space}{self.name('id', number)}"
        if key in _NAMES_PATHS and text.startswith("/"):
            return self._path(text)
        if key == "command":
            text = self._command(text)
        return self.text(text)

    def text(self, text: str) -> str:
        """A text with everything private replaced, and without colors, which hide where a name begins."""
        if "\x1b[" in text:
            text = COLOR.sub("", text)
        for name, other in self._persons.items():
            text = text.replace(name, other)
        if "@" in text:
            text = names.MAIL.sub(lambda match: self.name("mail", match[0]), text)
        if "://" in text:
            text = names.URL.sub(self._url, text)
        if "GPU-" in text or "MIG-" in text:
            text = names.GPU_UUID.sub(self._gpu, text)
        if ":" in text or "-" in text or "." in text:
            text = names.MAC.sub(lambda match: self.name("mac", match[0].lower()), text)
        if "." in text:
            text = names.FQDN.sub(self._fqdn, text)
        text = names.LONG_ID.sub(self._long_id, text)
        text = names.IPV4.sub(self._ipv4, text)
        if ":" in text:
            text = names.IPV6.sub(self._ipv6, text)
        if "/" in text:
            text = names.PATH.sub(lambda m: m[0] if _is_device(m) else m[1] + self._path(m[2], home=m[1] == "~"), text)
        if "\\\\" in text:
            text = names.UNC.sub(lambda m: m[1] + self.name("host", m[2]) + self._windows_path(m[3]), text)
        if "\\" in text:
            text = names.DRIVE.sub(lambda m: m[1] + self._windows_path(m[2]), text)
        return self._without_words(text) if self._lengths else text

    def _without_words(self, text: str) -> str:
        """Looks up each word instead of searching for every known one: a document may name many files."""
        free = self._lengths.keys().isdisjoint(_RUNS.findall(text)) and not any(sign in text for sign in self._signs)
        if free and not any(stem in text for stem in self._stems):
            return text
        shown: list[str] = []
        done = at = 0
        while match := _BEGINS.search(text, at):
            start, at = match.start(), match.end() if match[0][0].isalnum() else match.start() + 1
            if start and _is_word(text[start - 1]):
                continue
            for length in self._lengths.get(match[0], ()):
                end = start + length
                word = text[start:end]
                if word in self._of_word and not _is_word(text[end : end + 1]):
                    shown += (text[done:start], self._of_word[word])
                    done = at = end
                    break
            else:
                if self._stems and (sibling := _SIBLING.match(text, start)) and sibling[1] in self._stems:
                    shown += (text[done:start], self.name("host", sibling[0]))
                    done = at = sibling.end()
        return "".join((*shown, text[done:])) if shown else text

    def _gpu(self, match: re.Match[str]) -> str:
        kind, number = match[1], match[2].lower()
        known = self._names.setdefault(kind[:3], {})
        # CUDA accepts the start of a UUID.
        alike = self._gpus.setdefault(kind[:3] + number[:4], [])
        whole = number if number in known else ""
        whole = whole or next((full for full in alike if full.startswith(number) or number.startswith(full)), number)
        if whole not in known:
            known[whole] = str(len(known) + 1)
            alike.append(whole)
        return f"{kind}-…-{known[whole]}"

    def _windows_path(self, path: str) -> str:
        sign = "\\\\" if "\\\\" in path else "\\"
        return self._path(path.replace(sign, "/")).replace("/", sign)

    def _url(self, match: re.Match[str]) -> str:
        scheme, site, rest = match[1], match[2], match[3]
        if scheme == "file://":
            return f"{scheme}{site}{self._path(rest)}"
        credentials, at, address = site.rpartition("@")
        host, colon, port = address.partition(":")
        if any(host == site or host.endswith(f".{site}") for site in names.PUBLIC):
            return match[0]
        if host in ("github.com", "www.github.com") and rest.lower().startswith(names.PUBLIC_REPOSITORIES):
            return match[0]
        if host and host not in _HERE:
            host = host if _is_public(host) else self.name("host", host)
        if not names.ROUTE.fullmatch(rest):
            rest = self._path(rest.partition("?")[0]) if host in _HERE else "/…" if len(rest) > 1 else rest
        return f"{scheme}{credentials}{at}{host}{colon}{port}{rest}"

    def _fqdn(self, match: re.Match[str]) -> str:
        host = match[0]
        return host if _is_public(host) else self.name("host", host)

    def _ipv4(self, match: re.Match[str]) -> str:
        address = match[0]
        if any(int(part) > 255 for part in address.split(".")) or names.VERSION_BEFORE.search(_text_before(match)):
            return address
        if address.startswith(("127.", "255.")) or address in ("0.0.0.0", *names.PUBLIC_ADDRESSES):  # noqa: S104  # compared with
            return address
        return self.name("ip", address)

    def _long_id(self, match: re.Match[str]) -> str:
        listed = match.string.startswith("  ", match.end()) and len(match[0]) in (32, 40, 64, 128)  # by md5sum
        fingerprint = "-" not in match[0] and (listed or names.CHECKSUM_BEFORE.search(_text_before(match)))
        return match[0] if fingerprint else self.name("id", match[0])

    def _ipv6(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv6Address(match[0])
        except ValueError:
            return match[0]
        return match[0] if address.is_loopback or address.is_unspecified else self.name("ip", match[0].lower())

    def _path(self, path: str, *, home: bool = False) -> str:
        if names.ROUTE.fullmatch(path):
            return path
        temporary = names.TEMPORARY.match(path)
        if temporary is None and (
            path.startswith(tuple(f"{place}/" for place in names.SYSTEM_FOLDERS)) or path in names.SYSTEM_FOLDERS
        ):
            return path
        chosen = temporary.group().count("/") if temporary is not None else None
        sources = names.SOURCES.search(path)
        if sources is not None:
            return self._path(path[: sources.start()].rstrip("/")) + path[max(sources.start() - 1, 0) :]
        parts = path.split("/")
        shown: list[str] = []
        for at, part in enumerate(parts):
            before = parts[at - 1] if at else ""
            if before in ("site-packages", "dist-packages") and part.startswith(names.PACKAGES):
                return "/".join([*shown, *parts[at:]])
            if before.lower() in ("home", "users") and not home and part:
                shown.append(self._word("user", part))
            elif at == chosen and at < len(parts) - 1 and part:
                shown.append(self._names.get("user", {}).get(part) or self.name("dir", part))
            elif chosen is not None and at < chosen:
                shown.append(part)
            else:
                shown.append(self._component(part, last=at == len(parts) - 1))
        return "/".join(shown)

    def _component(self, part: str, *, last: bool) -> str:
        if (
            not part
            or part in self._given
            or part.lower().rstrip(".") in names.COMMON
            or names.LIKE_COMMON.fullmatch(part)
        ):
            return part
        if part in self._names.get("user", {}):
            return self._names["user"][part]
        stem, dot, suffix = part.rpartition(".")
        if last and dot and stem and suffix.isalnum() and len(suffix) <= 8:
            name = f"{self.name('file', part)}.{suffix}"
            self._remember(part, name)
            return name
        return self.name("dir", part)

    def _command(self, command: str) -> str:
        """Replaces the words of a command line that are files."""
        return "".join(
            self._argument(word) if word.strip() and not word.startswith("/") else word
            for word in re.split(r"(\s+)", command)
        )

    def _argument(self, word: str) -> str:
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        if not value or value.startswith(("/", "~/", "-")) or "://" in value or names.PUBLIC_NAME.fullmatch(value):
            return word
        if "/" in value or names.SCRIPT.fullmatch(value):
            value = self._path(value)
        return f"{option}{equals}{value}"


def _text_before(match: re.Match[str]) -> str:
    return match.string[max(0, match.start() - _MAX_CONTEXT_CHARS) : match.start()]


def _is_public(host: str) -> bool:
    return f".{host.lower()}".endswith(tuple(f".{site}" for site in names.PUBLIC_HOSTS))


def _is_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _is_device(match: re.Match[str]) -> bool:
    return match[3] == ":" and match[2].lstrip("/").lower() in names.DEVICES


def _key(entry: dict[str, Any], name: str) -> str:
    """The title of a watched program is its command line."""
    return "command" if name == "title" and entry.get("group") == "run" else name


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, _key(value, str(name)))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item, key)
