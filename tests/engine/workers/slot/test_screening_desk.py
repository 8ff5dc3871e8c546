"""`kopt evaluate` in a slot: a confined process asks, the engine answers all but forgeries."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.workers.protocol import SlotKopt
from engine.workers.slot import screening_desk
from engine.workers.slot.screening_desk import ScreeningDesk
from harness.errors import EnvironmentFault
from harness.isolation import guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits, ProcessOutcome
from harness.verdict import Verdict, rejected
from tests.support.programs.processes import until

OnWait = Callable[[str], None]
RIGHT = Verdict(valid=True, correct=True)


class Screens:
    """A desk whose screenings return or raise `verdict`, at once or when `released` is set."""

    def __init__(self, root: Path, *, most: int = 3, spacing_s: float = 0.0, allowed: int = 99,
                 verdict: Verdict | Exception = RIGHT) -> None:
        self.root, self.home = root, root / "slot" / "home"
        self.home.mkdir(parents=True)
        self.verdict, self.released = verdict, threading.Event()
        self.released.set()
        self.running = self.most_running = 0
        self.ticks: list[str] = []
        self._allowed = allowed
        self.desk = ScreeningDesk(
            self._screen, most=most, spacing_s=spacing_s, allow=self._allow,
            tick=lambda stage, detail, *_: self.ticks.append(f"{stage} {detail}"))

    def _allow(self) -> bool:
        self._allowed -= 1
        return self._allowed >= 0

    def _screen(self, cancel: threading.Event, on_wait: OnWait) -> Verdict:
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        on_wait("waiting for cpu")
        while not self.released.wait(0.01) and not cancel.is_set():
            pass
        self.running -= 1
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict

    @contextmanager
    def opened(self) -> Iterator[SlotKopt]:
        with self.desk.opened(self.root / "slot" / "kopt", self.home) as kopt:
            assert kopt is not None
            yield kopt

    def shell(self, kopt: SlotKopt | None, script: str,
              hidden: tuple[str, ...] = ()) -> ProcessOutcome:
        """Run a script as the slot's worker does."""
        outcome = guard.run(
            ["/bin/sh", "-c", script], cwd=self.home, limits=Limits(wall_s=60.0),
            env=screening_desk.environment(kopt, guard.clean_env(home=self.home)),
            confine=Confine(writable=(str(self.home),), cards=False, hidden=hidden))
        assert outcome.ended == "exit", outcome
        return outcome


def error_in(outcome: ProcessOutcome) -> str:
    """Return the error that stdout states as JSON and stderr in one line."""
    what: str = json.loads(outcome.stdout)["error"]["what"]
    assert what in outcome.stderr.decode() and outcome.stderr.count(b"\n") == 1
    return what


@pytest.mark.parametrize(("verdict", "code"), [
    (RIGHT, 0), (rejected("wrong"), 1),
    (Verdict(valid=True), 1), (EnvironmentFault("no device"), 3), (ValueError("a \x1b[1mbug"), 3)])
def test_command_prints_the_verdict_and_exits_as_kopt_evaluate_does(
        tmp_path: Path, verdict: Verdict | Exception, code: int) -> None:
    screens = Screens(tmp_path, verdict=verdict)
    with screens.opened() as kopt:
        outcome = screens.shell(kopt, "exec sh -lc 'kopt evaluate --json'")
    assert outcome.returncode == code, outcome
    if isinstance(verdict, Verdict):
        said = json.loads(outcome.stdout)
        assert (said["valid"], said["rejected_reason"]) == (verdict.valid, verdict.rejected_reason)
        assert screens.ticks[:1] == ["screening 1 of 3"] and outcome.stderr == b""
    else:
        assert error_in(outcome) in ("no device", "internal error: ValueError: a bug")


@pytest.mark.parametrize(("words", "told"), [
    ("", "kopt is not available"), ("propose --json", "kopt propose is not"),
    ("approve 12", "kopt approve is not"), ("evaluate --patch x", "--patch is not available")])
def test_command_says_in_one_line_what_a_slot_cannot_do(
        tmp_path: Path, words: str, told: str) -> None:
    screens = Screens(tmp_path)
    with screens.opened() as kopt:
        outcome = screens.shell(kopt, f"kopt {words}")
    assert outcome.returncode == 2 and error_in(outcome).startswith(told)
    assert screens.desk.count == 0


def test_screening_beyond_the_limits_of_an_attempt_is_refused_in_one_line(tmp_path: Path) -> None:
    screens = Screens(tmp_path / "a", most=2, spacing_s=0.3)
    with screens.opened() as kopt:
        began = time.monotonic()
        outcomes = [screens.shell(kopt, "kopt evaluate m.yaml --json") for _ in range(3)]
        assert time.monotonic() - began >= 0.3
    assert [outcome.returncode for outcome in outcomes] == [0, 0, 1]
    assert error_in(outcomes[2]) == "an attempt may have at most 2 screenings"
    poor = Screens(tmp_path / "b", allowed=1)
    with poor.opened() as kopt:
        codes = [poor.shell(kopt, "kopt evaluate").returncode for _ in range(2)]
    assert codes == [0, 1] and poor.desk.count == 1


def test_one_screening_of_a_slot_runs_at_a_time(tmp_path: Path) -> None:
    screens = Screens(tmp_path, most=20)
    with screens.opened() as kopt:
        outcome = screens.shell(kopt, "for i in 1 2 3 4 5; do kopt evaluate & done; wait")
    assert outcome.stdout.count(b'"valid":true') == 5
    assert (screens.desk.count, screens.most_running) == (5, 1)


def test_screening_of_a_command_that_was_killed_ends(tmp_path: Path) -> None:
    screens = Screens(tmp_path)
    screens.released.clear()
    with screens.opened() as kopt:
        screens.shell(kopt, "timeout 1 kopt evaluate; true")
        until(lambda: not screens.running)
        screens.released.set()
        assert screens.shell(kopt, "kopt evaluate").returncode == 0


def test_screening_that_takes_too_long_says_what_it_waited_for(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening_desk, "LIMIT_S", 0.2)
    screens = Screens(tmp_path)
    screens.released.clear()
    with screens.opened() as kopt:
        outcome = screens.shell(kopt, "kopt evaluate --json")
    assert (outcome.returncode, error_in(outcome)) == (3, "no verdict within 0 s: waiting for cpu")


def test_nothing_is_answered_after_the_attempt(tmp_path: Path) -> None:
    screens = Screens(tmp_path)
    screens.released.clear()
    with screens.opened() as kopt:
        thread = threading.Thread(target=screens.shell, args=(kopt, "kopt evaluate"))
        thread.start()
        until(lambda: screens.running == 1)
        began = time.monotonic()
    assert time.monotonic() - began < 2.0
    thread.join()
    outcome = screens.shell(kopt, "kopt evaluate --json")
    assert outcome.returncode == 3 and "no verdict" in error_in(outcome)
    assert screens.shell(None, f"{kopt.folder}/kopt evaluate").returncode == 3


FORGE = """
import array, os, socket, sys
os.chdir(sys.argv[1])
ask = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ask.settimeout(0.2)
token = os.environ["KOPT_SLOT"].encode()
pairs = [socket.socketpair() for _ in range(3)]
def send(data, *fds):
    try:
        ask.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                    if fds else [], 0, "ask")
    except OSError as error:
        assert error.errno in (None, 11, 90), error   # the queue is full; too long
ours, theirs = socket.socketpair()
for data in (b"", b"x", token[:-1], token + b"x", b"\\0" * 64, b"\\xff" * 32, token * 5000):
    send(data, theirs.fileno())
send(token)
send(token, os.open("/dev/zero", os.O_RDONLY))
send(token, os.open(".", os.O_RDONLY))
other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
send(token, other.fileno())
send(token, *[pair[0].fileno() for pair in pairs] * 60)
for number in range(300):
    send(b"y" * 2000, theirs.fileno())
theirs.close()
print(ours.recv(10))
"""


@pytest.mark.slow
def test_forged_requests_are_not_answered_and_the_next_real_one_is(tmp_path: Path) -> None:
    screens = Screens(tmp_path, most=2)
    with screens.opened() as kopt:
        before = time.process_time()
        outcome = screens.shell(kopt, f"{sys.executable} -c '{FORGE}' {kopt.folder}")
        assert time.process_time() - before < 2.0
        assert (outcome.returncode, outcome.stdout) == (0, b"b''\n"), outcome
        assert screens.desk.count <= 1  # a pair that was sent many times over may be one request
        assert screens.shell(kopt, "kopt evaluate --json").returncode == 0


def test_another_slot_reaches_neither_the_socket_nor_an_answer(tmp_path: Path) -> None:
    mine, other = Screens(tmp_path / "slots" / "mine"), Screens(tmp_path / "slots" / "other")
    with mine.opened() as kopt, other.opened() as others:
        stolen = SlotKopt(folder=others.folder, token=kopt.token, most=1)
        seen = mine.shell(stolen, "kopt evaluate --json")
        assert seen.returncode == 3 and "has ended this attempt" in error_in(seen)
        if guard.confinement_problem():
            pytest.skip("slots cannot be hidden from one another here")
        hidden = mine.shell(others, f"ls {tmp_path}/slots; cd {others.folder}; kopt evaluate",
                            hidden=(str(tmp_path / "slots"),))
        assert hidden.stdout == b"mine\n" and hidden.returncode == 127
    assert other.desk.count == 0
