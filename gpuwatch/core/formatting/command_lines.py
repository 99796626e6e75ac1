"""Command lines as a person reads them: which program one runs, without launchers and folders; which are gpuwatch's."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def without_folder(command: str) -> str:
    """The command line with the program's name instead of its path: ``python train.py``."""
    program, space, rest = command.partition(" ")
    name = program.rpartition("/")[2]
    # The name of a kernel's thread may have a slash too: [kworker/0:1].
    return f"{name}{space}{rest}" if name and not program.startswith("[") else command


_INTERPRETERS = ("python", "pypy", "bash", "sh")
_LAUNCHERS = {
    **dict.fromkeys(("torchrun", "deepspeed", "srun", "mpirun", "mpiexec", "horovodrun"), ""),
    **dict.fromkeys(("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"), ""),
    **dict.fromkeys(("env", "nohup", "nice", "numactl"), ""),
    **dict.fromkeys(("uv", "conda", "mamba", "poetry"), "run"),
    "accelerate": "launch",
}
"""Programs and modules that start another program, which is what a person looks for, and the subcommand that does."""
_OPTIONS_WITH_VALUE = ("-W", "-X", "--rcfile", "--init-file")
"""Options of interpreters that have a value of their own."""


@lru_cache(maxsize=4096)
def without_launcher(command: str) -> str:
    """The command line from the script or module on: ``train.py --bs 64`` of ``torchrun --nnodes 2 train.py --bs 64``
    and of ``/usr/bin/python3 -u /srv/train.py --bs 64``, ``pkg.mod --x`` of ``python -m pkg.mod --x``.

    An interpreter or launcher of which no script is recognized stays: ``python -c …``.
    """
    words = command.split(" ")
    at = _program_index(words, 0)
    return without_folder(" ".join(words[at:]))


def _program_index(words: list[str], at: int) -> int:
    """Where the program begins that a command line runs in the end, whose first word is at ``at``."""
    name = _file_name(words[at])
    interpreted = name.rstrip("0123456789.") in _INTERPRETERS
    if not interpreted and (name not in _LAUNCHERS or _LAUNCHERS[name] not in ("", *words[at + 1 : at + 2])):
        return at
    option = ""
    for place in range(at + 1 + bool(not interpreted and _LAUNCHERS[name]), len(words)):
        word = words[place]
        if option in ("-m", "--module"):
            return _program_index(words, place)
        if interpreted and word == "-c":
            return at
        if word.startswith("-") or not word:
            option = word
        elif (option in _OPTIONS_WITH_VALUE) if interpreted else ("=" in word or not _may_be_program(word, option)):
            option = ""  # the value of an option, or of a variable
        else:
            return _program_index(words, place)
    return at


def _may_be_program(word: str, option: str) -> bool:
    """Whether a word of a launcher is the program, not the value of the ``option`` before it, which may have none."""
    name = _file_name(word)
    known = name in _LAUNCHERS or name.rstrip("0123456789.") in _INTERPRETERS or name.endswith((".py", ".sh"))
    return known or not (word[0].isdigit() or (option.startswith("-") and option != "--" and "=" not in option))


def _file_name(word: str) -> str:
    return word.rpartition("/")[2] or word


def program_in_command(command: str) -> str:
    """What a command line runs: ``train.py`` of ``/usr/bin/python3 -u train.py --bs 64``, a module after ``-m``."""
    name = _file_name(without_launcher(command.strip()).partition(" ")[0])
    return "gpuwatch probe" if name == PROBE_SERVER_FILE else name


PROBE_SERVER_FILE = "_gpuwatch_fork_server.py"
"""The file whose processes run probes."""
HELPER_MARK = "# helper of gpuwatch"
"""The first line of programs that gpuwatch runs for itself."""


def is_own_command(command: str | None) -> bool:
    """Whether a command line is that of a helper or a probe of gpuwatch: nobody's program."""
    return command is not None and (HELPER_MARK in command or PROBE_SERVER_FILE in command)
