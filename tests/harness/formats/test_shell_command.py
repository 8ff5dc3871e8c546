"""A command runs as a shell would run it; only one that needs a shell gets one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from harness.formats import shell_command


@pytest.mark.parametrize(("command", "variables", "argv"), [
    ("python bench.py", {}, ["python", "bench.py"]),
    ("TURBO_BACKEND=TRITON N='1 2' python bench.py x=1",
     {"TURBO_BACKEND": "TRITON", "N": "1 2"}, ["python", "bench.py", "x=1"]),
    ("A= ./run", {"A": ""}, ["./run"]),
    ("make\n", {}, ["make"]),
    ("python -c 'import os; print(\"$1\")' a#b", {},
     ["python", "-c", 'import os; print("$1")', "a#b"])])
def test_command_without_shell_syntax_runs_directly(
        command: str, variables: dict[str, str], argv: list[str]) -> None:
    assert shell_command.split(command) == (variables, argv)


@pytest.mark.parametrize("command", [
    "mkdir -p x && cc a.c", "run > log 2>&1", "run | tee log", "a; b", "run $HOME", 'run "$HOME"',
    "run `date`", "ls *.c", "ls ?.c", "ls [ab].c", "run ~/x", "A=~/x run", "run # fast", "a\nb",
    "a \\\n b", "cd build", ". ./env.sh", "(run)"])
def test_command_with_shell_syntax_runs_in_a_shell(command: str) -> None:
    assert shell_command.split(command) == ({}, ["/bin/sh", "-c", command])


@pytest.mark.parametrize("command", [
    "printf %s, a 'b c' \"d'e\" f\\ g", "printf %s, 'a*' \\* x=1", "V='1 2' printenv V",
    "printf %s, \"a;b\" '$V' a'b'\"c\"", "W=1 V=$W-2 sh -c 'echo $V'"])
def test_split_command_prints_what_a_shell_prints(command: str, tmp_path: Path) -> None:
    def output(argv: list[str], **variables: str) -> bytes:
        return subprocess.run(argv, cwd=tmp_path, env=os.environ | variables, check=True,
                              capture_output=True).stdout

    variables, argv = shell_command.split(command)
    assert output(argv, **variables) == output(["/bin/sh", "-c", command])


@pytest.mark.parametrize("command", [
    *(f"printf %s {place}" for place in (
        "{v}", '"{v}"', "'{v}'", '"$(printf %s {v})"', '"$(printf %s "{v}")"',
        """"$(printf %s '{v}')\"""", '"$( (printf %s "$(printf %s {v})") )"',
        'a#{v}', '"\\"#{v}"', '"a\'b"{v}')),
    ": ; printf %s {v}", '$NOTHING printf %s "{v}"', "# (\nprintf %s {v}"])
def test_filled_value_stays_one_shell_word_in_any_quoting(command: str) -> None:
    value = "/a  b/$(touch x)'\"`;\\"
    filled = shell_command.fill(command, {"v": value})
    done = subprocess.run(shell_command.split(filled)[1], capture_output=True, check=True)
    assert done.stdout.decode().endswith(value)


@pytest.mark.parametrize(("command", "place"), [
    ("run `cat {v}`", "backticks"), ('run "`cat {v}`"', "backticks"),
    ("run # {v}", "a comment"), ("run <<END\n{v}\nEND", "a here-document")])
def test_value_is_refused_where_no_quoting_keeps_it_one_word(command: str, place: str) -> None:
    with pytest.raises(ValueError, match=f"{{v}} stands in {place}, where it cannot be quoted"):
        shell_command.fill(command, {"v": "x"})
    assert shell_command.fill(command, {"other": "x"}) == command


def test_doubled_braces_become_single_braces() -> None:
    assert shell_command.fill("echo ${{HOME}} '{{x}}' {word}", {"word": "w"}) == \
        "echo ${HOME} '{x}' w"


@pytest.mark.parametrize(("command", "message"), [
    ("sh 'a", "not well quoted"),
    ("a; sh 'b", "no closing '"), ('a "$(b', 'no closing )'),
    ("A=1", "runs nothing"), ("", "runs nothing")])
def test_command_without_a_program_is_refused(command: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        shell_command.split(command)
