"""A process has one zygote of each kind, replaced if it dies; a fork starts its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from harness.isolation import guard, shared_zygotes
from harness.isolation.zygote_client import ZygoteKind
from tests.support.programs.forked_command import exit_code
from tests.support.programs.processes import alive, kill, until

PROGRAM = "import json, os, sys; print(json.dumps([os.getenv('A'), sys.argv[1:], [" \
    "os.read(int(word), 9).decode() for word in sys.argv[2:]], 'wave' in sys.modules]))"


def kind(**env: str) -> ZygoteKind:
    return ZygoteKind(python=sys.executable, language="", modules=("wave",),
                      env=tuple(env.items()))


def pid_of(wanted: ZygoteKind) -> int:
    zygote = shared_zygotes.zygote(wanted)
    assert zygote is not None and zygote._process is not None
    return zygote._process.pid


def test_zygote_of_a_kind_is_used_until_it_dies_or_its_variables_change() -> None:
    first = pid_of(kind(A="1"))
    assert pid_of(kind(A="1")) == first
    kill(first)
    assert until(lambda: not alive(first))
    second = pid_of(kind(A="1"))
    assert second != first
    third = pid_of(kind(A="2"))
    assert third != second and not alive(second) and pid_of(kind(A="2")) == third


def test_fork_starts_its_own_zygote_which_ends_with_the_fork(tmp_path: Path) -> None:
    own, written = pid_of(kind()), tmp_path / "pid"
    assert exit_code(lambda: written.write_text(str(pid_of(kind())))) == 0
    other = int(written.read_text())
    assert other != own and until(lambda: not alive(other))
    assert pid_of(kind()) == own and alive(own)


def test_forked_program_has_its_arguments_variables_and_passed_descriptors(tmp_path: Path) -> None:
    (program := tmp_path / "program.py").write_text(PROGRAM)
    pairs = [os.pipe() for _ in range(3)]
    reads = [read for read, _ in pairs[::-1]]
    for number, (_, write) in enumerate(pairs):
        os.write(write, b"%d" % number)
    words = ["word", *map(str, reads)]
    outcome = guard.run(["false"], cwd=tmp_path, env={"A": "3"}, pass_fds=reads, words=words,
                        zygote=shared_zygotes.zygote(kind()), program=str(program))
    for descriptor in sum(pairs, ()):
        os.close(descriptor)
    assert outcome.ok and json.loads(outcome.stdout) == ["3", words, ["2", "1", "0"], True]
