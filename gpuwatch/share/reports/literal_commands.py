"""Commands and settings in a sentence: readers copy them, so no format may change them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_QUOTED = r"\"[^\"]{1,80}\"|'[^']{1,80}'"
_ARGUMENT = rf"(?:{_QUOTED}|[\w./:=@%+\[\]{{}}*,-]*[\w/\]}}*])"
_COMMAND = re.compile(
    rf"\bexport [A-Z][A-Z0-9_]*=(?:{_QUOTED}|[\w./:,+-]*\w)"
    r"|\bunset [A-Z][A-Z0-9_]+\b"
    rf"|(?:(?<![\w/])/[\w./+@-]+ -m )?\bpip (?:install|uninstall)(?: -{{1,2}}[\w-]+)*(?: {_ARGUMENT})"
    r"|\bgpuwatch run -- python train\.py"
    r"|\bgpuwatch sim fault clear\b"
    r"|\bgpuwatch cause [a-z][\w.-]*\w"
    r"|\bgpuwatch (?:probe|doctor|report|explain|compare)\b"
    r"(?: (?:-o|--(?:group|config|python|framework|output|sim|memory-limit|fraction)) [\w./=-]*\w| --?[a-z][\w-]*)*"
    r"|\bnvidia-smi(?: -d [A-Z][A-Z,_]*[A-Z]\b| -[\w-]+(?: \d)?)+"
    r"|\bdocker run(?: --[\w-]+(?:[ =][\w-]+)?)+(?: IMAGE)?"
    r"|\bsudo fuser(?: -\w+)? /[\w/]+"
    r"|\bdmesg(?: \| grep -i [\w]+)?"
    rf"|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+=(?:{_QUOTED}|[\w./:+-][\w./:,+=-]*[\w+]|[\w+-]+)"
    r"|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b"
)
_UNSET = re.compile(r"Unset ([A-Z][A-Z0-9_]+)\b")
_COMMAND_STARTS = ("export ", "unset ", "pip ", "/", "gpuwatch ", "nvidia-smi ", "docker ")


def split_commands(text: str) -> Iterator[tuple[str, bool]]:
    """The pieces of the text; True for code."""
    position = 0
    for match in _COMMAND.finditer(text):
        if match.start() > position:
            yield text[position : match.start()], False
        yield match[0], True
        position = match.end()
    if position < len(text):
        yield text[position:], False


def command_to_paste(text: str) -> str | None:
    """What to paste into a shell of a text: its first command, else an assignment, exported so that programs see it;
    None where there is none."""
    commands = [piece for piece, is_code in split_commands(text) if is_code]
    if (match := _UNSET.match(text)) is not None:
        return f"unset {match[1]}"  # a sentence that begins with the command
    command = next((piece for piece in commands if piece.startswith(_COMMAND_STARTS)), None)
    return command or next((f"export {piece}" for piece in commands if "=" in piece), None)
