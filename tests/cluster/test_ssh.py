"""The command line of ssh and lists of hosts."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from gpuwatch.core.errors import UsageError
from gpuwatch.fleet.host_list import MAX_HOSTS, parse_hosts, parse_ssh_hosts
from gpuwatch.fleet.ssh_command import ssh_command, ssh_failure
from tests.every import every


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", ["a"]),
        ("a,b,c", ["a", "b", "c"]),
        (" a , b ", ["a", "b"]),
        ("b,a,b", ["b", "a"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[1-2,7],m", ["n1", "n2", "n7", "m"]),
        ("n[08-11].x", ["n08.x", "n09.x", "n10.x", "n11.x"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("me@n[1-2]:2222", ["me@n1:2222", "me@n2:2222"]),
    ],
)
def test_hosts_are_expanded_in_order_and_each_once(text: str, hosts: list[str]) -> None:
    assert parse_hosts(text) == hosts
    assert parse_ssh_hosts(text) == hosts


@every(
    [
        *("", " ", ",", "a,,b", "a,", "n[1-", "n1-3]", "n[[1-2]]", "n[]", "n[a-c]", "n[3-1]", "n[1-2-3]", "n[-1]"),
        *("n[1-1000000]", "r[1-100]n[1-100]", "n[1-999999999]r[1-999999999]", "n" + "[1]" * 9999),
    ]
)
def test_lists_that_are_none_are_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_hosts(text)


def test_repeated_numbers_end_at_the_bound() -> None:
    with pytest.raises(UsageError, match="more than"):
        parse_hosts("n[" + "1," * 200 + "1]" + "n[" + "1," * 200 + "1]")


def test_as_many_hosts_as_allowed() -> None:
    assert len(parse_hosts(f"n[1-{MAX_HOSTS}]")) == MAX_HOSTS


@pytest.mark.parametrize("text", ["-oProxyCommand=x", "a b", "a;b", "$(x)", "me@-x", "a\nb", "a\x1b[2J", "@a", "é"])
def test_names_that_are_no_hosts_are_errors(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_ssh_hosts(text)
    assert "\n" not in error.value.message
    assert "\x1b" not in error.value.message


def test_nothing_is_asked_and_no_connection_is_shared() -> None:
    line = ssh_command("me@n1", ["true"])
    assert line[0] == "ssh"
    assert {"BatchMode=yes", "ConnectTimeout=10", "ControlMaster=no", "ControlPath=none"} <= set(line)
    assert line[-3:] == ["--", "me@n1", "true"]


def test_port() -> None:
    line = ssh_command("n1:2222", ["true"])
    assert line[line.index("-p") + 1] == "2222"
    assert line[-2] == "n1"
    assert "-p" not in ssh_command("fe80::1", ["true"])


HOSTILE = ["gpuwatch", "try", "--", "sh", "-c", "echo 'a b' $HOME \"$(id)\" `id`; # x", "", "*", "a\nb", "~", "é", "!x"]


def test_arguments_arrive_as_they_were_given() -> None:
    """A shell splits what ssh joined with spaces."""
    command = ["printf", "%s\\0", *HOSTILE]
    seen = subprocess.run(["sh", "-c", ssh_command("n1", command)[-1]], capture_output=True, check=True).stdout
    assert seen.decode().split("\0")[:-1] == HOSTILE
    assert shlex.split(ssh_command("n1", command)[-1]) == command


@every(
    [
        ("ssh: Could not resolve hostname n9: Name or service not known\n", "host not found"),
        ("ssh: connect to host n1 port 22: Connection timed out\n", "no answer to ssh"),
        ("Connection timed out during banner exchange\n", "no answer to ssh"),
        ("ssh: connect to host n1 port 22: Connection refused\n", "refuses ssh connections"),
        ("me@n1: Permission denied (publickey,password).\n", "ssh was refused: it accepts none of your keys"),
        ("Host key verification failed.\n", "its host key is not known: log in once manually"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n",
            "its host key changed: compare it before you trust it",
        ),
        ("Timeout, server n1 not responding.\n", "stopped answering"),
        ("something\n\nnew went wrong\n", "new went wrong"),
        ("", ""),
    ]
)
def test_failures_in_words(stderr: str, reason: str) -> None:
    assert ssh_failure(stderr) == reason
