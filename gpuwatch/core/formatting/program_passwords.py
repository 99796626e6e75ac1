"""Finds passwords in the options of known programs: ``mysql -pX``, ``curl -u a:X``, ``vault login X``.

``-p`` and ``-u`` mean different things to different programs (``mkdir -p``, ``docker run -u 1000:100``), so they are
read only after a known program, up to the next one or the end of the line.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gpuwatch.core.formatting.lazy_pattern import lazy

_S: Final = r"(?:\\{0,4}[\"'],?\s{1,3}\\{0,4}[\"']?|\s{1,8}|=)"
"""Between an option and its value, on a command line or in a list of arguments as Python prints it."""
_VALUE: Final = r"(?!-|•)((?:\"[^\"\n]*+\"|'[^'\n]*+'|\\.|[^\s\"'\\])++)"
_BEFORE: Final = r"(?<![\w-])"


class Program(NamedTuple):
    """Names of programs, and an expression whose only matched group is the secret in what follows them."""

    names: str
    expression: str


_PORTS: Final = r"(?!\d{1,7}(?![^\s:/,])|/|\./)"
_USER: Final = r"[\w.@\\+-]{0,64}"
_WORD: Final = r"\S{1,200}\s{1,3}"
_OPENED: Final = r"(?:\\{0,4}[\"'],?\s{1,3}|\s{1,8}|=)?"
"""As ``_S``, up to the quote that opens the value."""
_USER_QUOTED: Final = r"[\w.@\\+ -]{0,64}?"


def _user_and(sign: str, options: str) -> str:
    """``-u user:secret``. In quotes, the secret goes up to the quote that closes them."""
    user = rf"{_USER_QUOTED}{sign}(?![/•])"
    return rf"{_BEFORE}(?:{options})(?:" + "|".join(
        (
            rf"{_OPENED}\\{{1,4}}\"{user}([^\"\\\n]++)",
            rf"{_OPENED}\\{{1,4}}'{user}([^'\\\n]++)",
            rf"{_OPENED}\"{user}((?:[^\"\\\n]|\\.)++)",
            rf"{_OPENED}'{user}((?:[^'\\\n]|'\\''|'\"'\"'|\\.)++)",
            rf"{_S}?{_USER}{sign}(?!/){_VALUE})",
        )
    )


_HTTP_USER: Final = _user_and(":", "-u|-U|-a|--user|--proxy-user|--auth|--login")
PROGRAMS: Final = (
    # After "-p " they prompt for the password and the next word is a database, but people type the password there.
    Program(
        "mysql mysqldump mysqladmin mysqlimport mysqlsh mysqlcheck mysqlbinlog mysqlslap mysqlshow mariadb mariadb-dump"
        " mariadb-admin mariadb-backup xtrabackup mycli",
        rf"{_BEFORE}-p(?:{_S}(?=\S{{0,100}}\d))?{_PORTS}{_VALUE}",
    ),
    Program("sshpass psexec winrm mongo mongosh mongodump mongorestore cqlsh", rf"{_BEFORE}-p{_S}?{_PORTS}{_VALUE}"),
    Program(
        "docker podman nerdctl helm oc az skopeo buildah crane cf oras regctl",
        rf"\blogin\b[^\n|]{{0,200}}?{_BEFORE}-p{_S}{_PORTS}{_VALUE}",
    ),
    Program("twine racadm redfishtool", rf"{_BEFORE}-p{_S}{_PORTS}{_VALUE}"),
    Program("7z 7za 7zr 7zz rar unrar", rf"{_BEFORE}-(?:p|hp){_VALUE}"),
    Program("zip unzip sqlcmd bcp ipmitool mosquitto_pub mosquitto_sub", rf"{_BEFORE}-P{_S}?{_VALUE}"),
    Program("ldapsearch ldapadd ldapmodify ldapdelete ldapwhoami ldappasswd", rf"{_BEFORE}-w{_S}{_VALUE}"),
    Program("redis-cli valkey-cli keydb-cli", rf"{_BEFORE}-a{_S}{_VALUE}"),
    Program("openssl", r"\b(?:pass|k):([^\s\"']++)"),
    Program("openssl", rf"{_BEFORE}-k{_S}{_VALUE}"),
    Program("curl wget xh xhs hurl aria2c httpie http https etcdctl", _HTTP_USER),
    Program("smbclient rpcclient net mount.cifs smbmap smbget", _user_and("%", "-U|--user")),
    Program("lftp ncftp", _user_and(",", "-u|--user")),
    Program("lftp ncftp", rf"{_BEFORE}-p{_S}{_VALUE}"),
    Program("xfreerdp xfreerdp3 rdesktop", rf"(?<!\S)(?:/p:|-p{_S}){_VALUE}"),
    Program(
        "vault wandb doppler",
        rf"\blogin\b(?:{_S}--?[\w-]{{1,30}}+(?:=\S{{0,200}})?){{0,4}}{_S}(?:local-)?(?!local-){_VALUE}",
    ),
    Program("ossutil ossutil64 obsutil", rf"{_BEFORE}-k{_S}{_VALUE}"),
    Program("doctl codecov", rf"{_BEFORE}-t{_S}{_VALUE}"),
    Program("mc mcli", rf"\balias\s{{1,3}}set\s{{1,3}}(?:{_WORD}){{2}}{_VALUE}"),
    Program("mc mcli", rf"\balias\s{{1,3}}set\s{{1,3}}(?:{_WORD}){{3}}{_VALUE}"),
    Program("poetry", rf"\bhttp-basic[.\s](?:{_WORD}){{2}}{_VALUE}"),
    Program("kubectl oc", rf"--from-literal{_S}[\w.-]{{1,63}}={_VALUE}"),
    Program("sqlplus sqlldr expdp impdp", r"(?<!\S)[\w$#]{1,40}/([^\s@/]{1,80})(?=@|\s|$)"),
    Program("htpasswd", rf"(?<!\S)-\w{{0,5}}b\w{{0,5}}\s{{1,3}}(?:{_WORD}){{2}}(\S++)"),
    Program("curl", rf"{_BEFORE}(?:-b|--cookie){_S}?[\w.-]{{1,64}}={_VALUE}"),
    Program("snmpwalk snmpget snmpset snmpbulkwalk snmptable", rf"{_BEFORE}-[cAX]{_S}{_VALUE}"),
    Program("ssh-keygen", rf"{_BEFORE}-[NP]{_S}{_VALUE}"),
    Program("oathtool", rf"{_S}([A-Z2-7]{{16,}}+={{0,6}})"),
    Program("rclone", rf"\bobscure{_S}{_VALUE}"),
    Program("rabbitmqctl", rf"\b(?:add_user|change_password|authenticate_user)\s{{1,3}}{_WORD}{_VALUE}"),
    Program("pdftk", rf"\b(?:owner|user|input)_pw\s{{1,3}}{_VALUE}"),
    Program("qpdf", rf"--encrypt\s{{1,3}}{_VALUE}"),
    Program("qpdf", rf"--encrypt\s{{1,3}}{_WORD}{_VALUE}"),
    Program("bw", rf"\b(?:unlock|login)\s{{1,3}}(?:--raw\s{{1,3}})?{_VALUE}"),
    Program("virsh", rf"--base64{_S}{_VALUE}"),
    Program("iscsiadm", rf"password{_S}-v{_S}{_VALUE}"),
    Program("mysqladmin", rf"\bpassword{_S}{_VALUE}"),
    Program("samba-tool", rf"\buser\s{{1,3}}(?:create|add)\s{{1,3}}{_WORD}{_VALUE}"),
)

_BY_NAME: Final[dict[str, tuple[re.Pattern[str], ...]]] = {
    name: tuple(lazy(program.expression) for program in PROGRAMS if name in program.names.split())
    for program in PROGRAMS
    for name in program.names.split()
}
_ENDS = lazy(r"\n|\||&&|;\s")
_WORDS: Final = lazy(r"[\w.-]+")
_LONGEST: Final = 4000
"""Characters of one command line: a program's options end within them."""


def without_program_passwords(text: str, mask: str) -> str:
    """``text`` with ``mask`` in place of passwords in options of known programs. Takes linear time."""
    hits = _programs(text)
    if not hits:
        return text
    spans: set[tuple[int, int]] = set()
    for number, (start, name) in enumerate(hits):
        begin = start + len(name)
        limit = min(len(text), begin + _LONGEST)
        if number + 1 < len(hits):
            limit = min(limit, hits[number + 1][0])
        end = _ENDS.search(text, begin, limit)
        limit = end.start() if end else limit
        for expression in _BY_NAME[name]:
            spans.update(match.span(match.lastindex or 0) for match in expression.finditer(text, begin, limit))
    shown: list[str] = []
    done = 0
    for begin, stop in sorted(spans):
        if begin < done or stop <= begin:
            continue
        while begin < stop and text[begin] in "\"'\\":
            begin += 1
        while stop > begin and text[stop - 1] in "\"'\\,)]":
            stop -= 1
        shown += (text[done:begin], mask)
        done = stop
    return "".join((*shown, text[done:]))


def _programs(text: str) -> list[tuple[int, str]]:
    """Where names of known programs are; the longer of two at one place comes last."""
    found = []
    for name in _BY_NAME.keys() & set(_WORDS.findall(text)):
        at = text.find(name)
        while at >= 0:
            end = at + len(name)
            before, after = text[at - 1 : at], text[end : end + 1]
            component = text[max(0, at - 3) : at].lower() == "dc="  # of a domain in LDAP: dc=net
            if not (
                component or before.isalnum() or before in tuple("_.-") or after.isalnum() or after in tuple("_.:/=-")
            ):
                found.append((at, name))
            at = text.find(name, end)
    return sorted(found)
