"""Replaces users, hosts, paths, addresses and ids in the texts of one document, each by the same name everywhere.

``alice`` becomes ``user-1`` in fields, paths, command lines and log lines. System folders, CUDA libraries and the
folders of frameworks stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from gpuwatch.core.masking import address_and_path_patterns as patterns
from gpuwatch.core.masking import private_names as private
from gpuwatch.core.masking import public_names as public
from gpuwatch.core.masking.mask_secrets import COLOR
from gpuwatch.core.masking.private_names import is_numbered_name, looks_like_node_in_sentence, names_in
from gpuwatch.core.model.json_codec import enumerated_values
from gpuwatch.core.parsing import lazy

_MAX_CONTEXT_CHARS = 160
"""Characters before a number that tell what it is."""
_WORD_START = lazy(r"[A-Za-z0-9]+|[^A-Za-z0-9\s][A-Za-z0-9]*")
"""The start of a word, by which it is looked up."""
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "0.0.0.0")  # noqa: S104  # compared with
_DIGITS_AND_DOTS = lazy(r"[\d.]+")
_NUMBERED_HOST = lazy(r"([A-Za-z][A-Za-z-]{2,30})\d{2,6}")
_SIBLING_HOST = lazy(r"([A-Za-z][A-Za-z-]{2,30})(?:\d{2,6}|\[[\d,-]+\])(?![A-Za-z0-9])")
_MIN_SERIAL_CHARS = 6
_MIN_JOB_DIGITS = 6
"""Digits from which the number of a job is replaced wherever it stands."""
_BEFORE_NAME = lazy(r"\S{1,40}\s{0,9}$")
_ALPHANUMERIC_RUN = lazy(r"[A-Za-z0-9]+")
_PUBLIC_ENDS = tuple(f".{site}" for site in public.PUBLIC_HOSTS)
_PATH_FIELDS = frozenset({"interpreter", "path", "shadows", "folder", "source"})


class Redactor:
    """The replacements made in one document."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, str]] = {}
        self._name_counts: dict[str, int] = {}
        """How many names of each kind were given."""
        self._replacements: dict[str, str] = {}
        self._lengths_by_start: dict[str, list[int]] = {}
        """Lengths of the words with the same start, longest first."""
        self._other_starts: list[str] = []
        """Those starts that are no letters and digits."""
        self._gpus: dict[str, list[str]] = {}
        """Known UUIDs of GPUs by their first four characters."""
        self._full_names: dict[str, str] = {}
        """Names with blanks, which paths may have, too."""
        self._used_pseudonyms: set[str] = set()
        self._host_stems: set[str] = set()
        """Names of numbered hosts without their numbers: ``node17`` means that ``node18`` is a host, too."""

    # Finding what to replace

    def learn(self, value: Any) -> None:
        """Finds users, hosts, containers and files by the fields and paths that name them."""
        for key, text in _texts_with_fields(value):
            if key == "uuid":
                self.redacted_text(text)  # numbered in the order of the devices, not of log lines
        texts = [(key, COLOR.sub("", text) if "\x1b[" in text else text) for key, text in _texts_with_fields(value)]
        for key, text in texts:
            self._learn_field(key, text)
        self._learn_text("\n".join(f"{key}={text}" if key.isupper() else text for key, text in texts))
        for key, text in texts:
            self._learn_paths(key, text)
        lengths: dict[str, set[int]] = {}
        for word in self._replacements:
            begins = _WORD_START.match(word)
            if begins is not None:
                lengths.setdefault(begins[0], set()).add(len(word))
        self._lengths_by_start = {begins: sorted(found, reverse=True) for begins, found in lengths.items()}
        self._other_starts = [begins for begins in lengths if not begins[0].isalnum()]

    def _learn_field(self, key: str, text: str) -> None:
        if key in private.USER_FIELDS:
            self._replace_word("user", text)
        elif key in private.HOST_FIELDS:
            self._learn_host(text)
        elif key == "container":
            self._replace_word("id", text.rpartition(" ")[2])
        elif key == "identity.serial":
            self._replace_word("serial", text)
        elif private.ID_VARIABLES.fullmatch(key) and not text.isdigit():
            self._replace_word("id", text)

    def _learn_text(self, text: str) -> None:
        """What the form of all texts together names, one line after the other."""
        for found in names_in(text):
            self._learn_name(found.kind, found.name, found.context)
        if "@" in text:
            for match in private.HOST_AFTER_AT.finditer(text):
                self._learn_host(match[1])
            for match in private.USER_AT_HOST.finditer(text):
                if not match[1].startswith(public.SYSTEMD_UNIT_PREFIXES) and not public.MAIL_PROVIDER.match(
                    text, match.start(2)
                ):
                    self._learn_address(match[1], match[2])
            for match in patterns.MAIL.finditer(text):
                if match[0][-1].isalpha():
                    self._learn_address(*match[0].rsplit("@", 1))
            for match in private.SHELL_PROMPT.finditer(text):
                self._replace_word("user", match[1])
        for match in private.USER_OF_PROCESS.finditer(text):
            for user in (match[1] or match[2]).split(", "):
                self._replace_word("user", user)

    def _learn_address(self, person: str, site: str) -> None:
        """An address names its person and its site elsewhere, too."""
        if not person.startswith(public.SYSTEMD_UNIT_PREFIXES) and person not in public.ROLE_MAILBOXES:
            self._replace_word("user", person)
        self._learn_host(site)

    def _learn_paths(self, key: str, text: str) -> None:
        for match in patterns.PATH.finditer(text):
            if not _is_device(match):
                self._replaced_path(match[2], home=match[1] == "~")
        if key == "command":
            self._replaced_command(text)

    def _learn_name(self, kind: str, text: str, whole: str) -> None:
        """Replaces a name from now on; ``whole``: the name with the words that show what it is."""
        text = text.rstrip(".")
        lowered = text.lower()
        if lowered in public.WORD_NAMES or lowered in public.NOT_NAMES or _is_system_account(kind, text):
            return
        if _is_short_number(kind, text):
            if kind == "job" and len(text) > 3:
                self._replace_in_place(kind, text, whole)
            return
        if kind == "node":
            if looks_like_node_in_sentence(text):
                self._learn_host(text, whole)
        elif kind == "peer" and (
            lowered in public.COMMON_WORDS or lowered in public.KNOWN_NAMES or is_numbered_name(text)
        ):
            return
        elif kind in ("host", "peer"):
            for host in text.split(",") if "[" not in text else (text,):
                self._learn_host(host.partition(":")[0], whole)
        elif kind == "serial" and (":" in text or len(text) < _MIN_SERIAL_CHARS):
            return  # the kernel calls PCI addresses so
        elif kind == "image":
            self._learn_image(text)
        elif "/" not in text or (kind == "repository" and not f"/{lowered}".startswith(public.PUBLIC_REPOSITORIES)):
            if (
                lowered in public.COMMON_WORDS
                or lowered in public.KNOWN_NAMES
                or (kind in ("user", "job") and is_numbered_name(text))
            ):
                self._replace_in_place(kind, text, whole)
            else:
                self._replace_word(kind, text)

    def _replace_in_place(self, kind: str, text: str, whole: str) -> None:
        """A name that is a word elsewhere is replaced where it stands with what tells it."""
        before, _, _ = whole.rpartition(text)
        tells = _BEFORE_NAME.search(before)
        if tells and (tells[0][-1] in "=:\"'<([/" or tells[0].startswith("-") or not text.isalpha()):
            self._replacements.setdefault(tells[0] + text, tells[0] + self.pseudonym(kind, text))

    def _learn_image(self, text: str) -> None:
        """Registry and folders of a container image; its last name often tells what is in it."""
        *folders, _ = text.split("/")
        for place, folder in enumerate(folders):
            name = folder.partition(":")[0]
            if name not in public.PUBLIC_IMAGES and not name.endswith(public.PUBLIC_SITES):
                self._learn_host(name) if not place and "." in name else self._replace_word("dir", name)

    def _learn_host(self, text: str, whole: str = "") -> None:
        if (
            _is_public(text)
            or public.SCRIPT_FILE.fullmatch(text)
            or text.lower().startswith(_LOCAL_HOSTS)
            or _DIGITS_AND_DOTS.fullmatch(text)
        ):
            return
        if text.lower() in public.COMMON_WORDS:
            self._replace_in_place("host", text, whole)
            return
        name = self._replace_word("host", text)
        self._remember(text.lower(), name)
        short, dot, domain = text.partition(".")
        if dot and not short.isdigit():
            self._names["host"][short] = name
            self._remember(short, name)
            if domain.count(".") and not _is_public(domain):
                self._replace_word("domain", domain)
        if (numbered := _NUMBERED_HOST.fullmatch(short)) and numbered[1].strip(
            "-"
        ).lower() not in public.NUMBERED_WORDS:
            self._host_stems.add(numbered[1])

    def _replace_word(self, kind: str, text: str) -> str:
        name = self.pseudonym(kind, text)
        self._remember(text, name)
        return name

    def _remember(self, text: str, name: str) -> None:
        kind = name.rpartition("-")[0]
        if (
            len(text) > 1
            and text.lower() not in public.WORD_NAMES
            and text != name
            and not _is_short_number(kind, text)
        ):
            self._replacements.setdefault(text, name)
            if " " in text and name.startswith("user"):
                self._full_names.setdefault(text, name)

    def pseudonym(self, kind: str, text: str) -> str:
        """The replacement for ``text``; the same at every call."""
        known = self._names.setdefault(kind, {})
        if text in self._used_pseudonyms or _is_system_account(kind, text):
            return text
        if text not in known:
            self._name_counts[kind] = self._name_counts.get(kind, 0) + 1
            known[text] = f"{kind}-{self._name_counts[kind]}"
            self._used_pseudonyms.add(known[text])
        return known[text]

    # Replacing

    def replaced(self, value: Any, key: str = "") -> Any:
        """``value`` with everything private replaced."""
        if isinstance(value, str):
            return self._replaced_field(key, value)
        if isinstance(value, dict):
            fields = ((name, self.replaced(item, _field_name(value, str(name)))) for name, item in value.items())
            # Amounts are kept by UUID, parents by pid.
            return {patterns.GPU_UUID.sub(self._gpu, n) if isinstance(n, str) else n: item for n, item in fields}
        if isinstance(value, (list, tuple)):
            return [self.replaced(item, key) for item in value]
        return value

    def _replaced_field(self, key: str, text: str) -> str:
        if "version" in key or key in ("schema", "id", "severity", "certainty", "kernel", "taken_at", "started_at"):
            return text
        if not text or text in enumerated_values().get(key, ()):
            return text
        if key in private.USER_FIELDS:
            return self.pseudonym("user", text)
        if key in private.HOST_FIELDS and text != "localhost":
            return self.pseudonym("host", text)
        if key == "identity.serial":
            return self.pseudonym("serial", text)
        if key == "container":
            kind, space, number = text.rpartition(" ")
            return f"{kind}{space}{self.pseudonym('id', number)}"
        if key in _PATH_FIELDS and text.startswith("/"):
            return self._replaced_path(text)
        if key == "command":
            text = self._replaced_command(text)
        return self.redacted_text(text)

    def redacted_text(self, text: str) -> str:
        """A text with everything private replaced, and without colors, which hide where a name begins."""
        if "\x1b[" in text:
            text = COLOR.sub("", text)
        for name, other in self._full_names.items():
            text = text.replace(name, other)
        if "@" in text:
            text = patterns.MAIL.sub(lambda match: self.pseudonym("mail", match[0]), text)
        if "://" in text:
            text = patterns.URL.sub(self._url, text)
        if "GPU-" in text or "MIG-" in text:
            text = patterns.GPU_UUID.sub(self._gpu, text)
        if ":" in text or "-" in text or "." in text:
            text = patterns.MAC.sub(lambda match: self.pseudonym("mac", match[0].lower()), text)
        if "." in text:
            text = patterns.FQDN.sub(lambda m: m[0] if _is_public(m[0]) else self.pseudonym("host", m[0]), text)
        text = patterns.LONG_ID.sub(self._long_id, text)
        text = patterns.IPV4.sub(self._ipv4, text)
        if ":" in text:
            text = patterns.IPV6.sub(self._ipv6, text)
        if "/" in text:
            text = patterns.PATH.sub(
                lambda m: m[0] if _is_device(m) else m[1] + self._replaced_path(m[2], home=m[1] == "~"), text
            )
        if "\\\\" in text:
            text = patterns.WINDOWS_SHARE.sub(
                lambda m: m[1] + self.pseudonym("host", m[2]) + self._replaced_windows_path(m[3]), text
            )
        if "\\" in text:
            text = patterns.WINDOWS_PATH.sub(lambda m: m[1] + self._replaced_windows_path(m[2]), text)
        return self._replace_words(text) if self._lengths_by_start else text

    def _replace_words(self, text: str) -> str:
        """Looks up each word instead of searching for every known one: a document may name many files."""
        without_names = self._lengths_by_start.keys().isdisjoint(_ALPHANUMERIC_RUN.findall(text)) and not any(
            sign in text for sign in self._other_starts
        )
        if without_names and not any(stem in text for stem in self._host_stems):
            return text
        shown: list[str] = []
        copied_to = position = 0
        while match := _WORD_START.search(text, position):
            start, position = match.start(), match.end() if match[0][0].isalnum() else match.start() + 1
            if start and _is_word(text[start - 1]):
                continue
            for length in self._lengths_by_start.get(match[0], ()):
                end = start + length
                word = text[start:end]
                if word in self._replacements and not _is_word(text[end : end + 1]):
                    shown += (text[copied_to:start], self._replacements[word])
                    copied_to = position = end
                    break
            else:
                if (
                    self._host_stems
                    and (sibling := _SIBLING_HOST.match(text, start))
                    and sibling[1] in self._host_stems
                ):
                    shown += (text[copied_to:start], self.pseudonym("host", sibling[0]))
                    copied_to = position = sibling.end()
        return "".join((*shown, text[copied_to:])) if shown else text

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

    def _replaced_windows_path(self, path: str) -> str:
        sign = "\\\\" if "\\\\" in path else "\\"
        return self._replaced_path(path.replace(sign, "/")).replace("/", sign)

    def _url(self, match: re.Match[str]) -> str:
        scheme, site, rest = match[1], match[2], match[3]
        if scheme == "file://":
            return f"{scheme}{site}{self._replaced_path(rest)}"
        credentials, at_sign, address = site.rpartition("@")
        host, colon, port = address.partition(":")
        if any(host == known or host.endswith(f".{known}") for known in public.PUBLIC_SITES):
            return match[0]
        if host in ("github.com", "www.github.com") and rest.lower().startswith(public.PUBLIC_REPOSITORIES):
            return match[0]
        if host and host not in _LOCAL_HOSTS:
            host = host if _is_public(host) else self.pseudonym("host", host)
        if not public.SERVER_ROUTE.fullmatch(rest):
            rest = (
                self._replaced_path(rest.partition("?")[0]) if host in _LOCAL_HOSTS else "/…" if len(rest) > 1 else rest
            )
        return f"{scheme}{credentials}{at_sign}{host}{colon}{port}{rest}"

    def _ipv4(self, match: re.Match[str]) -> str:
        address = match[0]
        if any(int(part) > 255 for part in address.split(".")) or public.VERSION_BEFORE.search(_text_before(match)):
            return address
        if address.startswith(("127.", "255.")) or address in ("0.0.0.0", *public.PUBLIC_ADDRESSES):  # noqa: S104  # compared with
            return address
        return self.pseudonym("ip", address)

    def _long_id(self, match: re.Match[str]) -> str:
        listed = match.string.startswith("  ", match.end()) and len(match[0]) in (32, 40, 64, 128)  # by md5sum
        fingerprint = "-" not in match[0] and (listed or public.CHECKSUM_BEFORE.search(_text_before(match)))
        return match[0] if fingerprint else self.pseudonym("id", match[0])

    def _ipv6(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv6Address(match[0])
        except ValueError:
            return match[0]
        return match[0] if address.is_loopback or address.is_unspecified else self.pseudonym("ip", match[0].lower())

    def _replaced_path(self, path: str, *, home: bool = False) -> str:
        if public.SERVER_ROUTE.fullmatch(path):
            return path
        temporary = patterns.TEMPORARY_FOLDER.match(path)
        if temporary is None and (
            path.startswith(tuple(f"{place}/" for place in public.SYSTEM_FOLDERS)) or path in public.SYSTEM_FOLDERS
        ):
            return path
        first_below_temporary = temporary.group().count("/") if temporary is not None else None
        sources = public.FRAMEWORK_SOURCES.search(path)
        if sources is not None:
            return self._replaced_path(path[: sources.start()].rstrip("/")) + path[max(sources.start() - 1, 0) :]
        parts = path.split("/")
        shown: list[str] = []
        for position, part in enumerate(parts):
            before = parts[position - 1] if position else ""
            if before in ("site-packages", "dist-packages") and part.startswith(public.KNOWN_PACKAGES):
                return "/".join([*shown, *parts[position:]])
            if before.lower() in ("home", "users") and not home and part:
                shown.append(self._replace_word("user", part))
            elif position == first_below_temporary and position < len(parts) - 1 and part:
                shown.append(self._names.get("user", {}).get(part) or self.pseudonym("dir", part))
            elif first_below_temporary is not None and position < first_below_temporary:
                shown.append(part)
            else:
                shown.append(self._replaced_component(part, last=position == len(parts) - 1))
        return "/".join(shown)

    def _replaced_component(self, part: str, *, last: bool) -> str:
        if (
            not part
            or part in self._used_pseudonyms
            or part.lower().rstrip(".") in public.COMMON_PATH_PARTS
            or public.COMMON_PATH_PART_FORM.fullmatch(part)
        ):
            return part
        if part in self._names.get("user", {}):
            return self._names["user"][part]
        stem, dot, suffix = part.rpartition(".")
        if last and dot and stem and suffix.isalnum() and len(suffix) <= 8:
            name = f"{self.pseudonym('file', part)}.{suffix}"
            self._remember(part, name)
            return name
        return self.pseudonym("dir", part)

    def _replaced_command(self, command: str) -> str:
        """Replaces the words of a command line that are files."""
        return "".join(
            self._replaced_argument(word) if word.strip() and not word.startswith("/") else word
            for word in re.split(r"(\s+)", command)
        )

    def _replaced_argument(self, word: str) -> str:
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        if not value or value.startswith(("/", "~/", "-")) or "://" in value or public.PUBLIC_NAME.fullmatch(value):
            return word
        if "/" in value or public.SCRIPT_FILE.fullmatch(value):
            value = self._replaced_path(value)
        return f"{option}{equals}{value}"


def _text_before(match: re.Match[str]) -> str:
    return match.string[max(0, match.start() - _MAX_CONTEXT_CHARS) : match.start()]


def _is_public(host: str) -> bool:
    return bool(public.MAIL_PROVIDER.match(host)) or f".{host.lower()}".endswith(_PUBLIC_ENDS)


def _is_system_account(kind: str, text: str) -> bool:
    return kind in ("user", "group") and text in public.SYSTEM_ACCOUNTS


def _is_short_number(kind: str, text: str) -> bool:
    """Whether a text is a number with too few digits to name something wherever it stands."""
    return text.isdigit() and len(text) < (_MIN_JOB_DIGITS if kind == "job" else private.MIN_LONG_NUMBER_DIGITS)


def _is_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _is_device(match: re.Match[str]) -> bool:
    return match[3] == ":" and match[2].lstrip("/").lower() in public.TENSORFLOW_DEVICES


def _field_name(entry: dict[str, Any], name: str) -> str:
    """The title of a watched program is its command line."""
    return "command" if name == "title" and entry.get("group") == "run" else name


def _texts_with_fields(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts_with_fields(item, _field_name(value, str(name)))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts_with_fields(item, key)
