"""The guard enforces limits, leaves no process behind and confines a job, with real processes."""

from __future__ import annotations

import resource
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.isolation import device_lock, guard, shared_zygotes
from harness.isolation.confinement import Confine
from harness.isolation.guard import Guarded
from harness.isolation.process_outcome import Limits, ProcessOutcome
from harness.isolation.shared_zygotes import SUPERVISORS
from tests.support.programs.guard_case import DAEMON, SLEEP
from tests.support.programs.processes import mark, marked, python, until


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))


def run(code: str, tmp_path: Path, *arguments: str, limits: Limits | None = None,
        confine: Confine | None = None) -> ProcessOutcome:
    return guard.run(python(code, *arguments), cwd=tmp_path, limits=limits or Limits(wall_s=20),
                     confine=confine)


@pytest.mark.parametrize("code", [0, 1, 7, 127])
def test_exit_code_is_reported(code: int, tmp_path: Path) -> None:
    outcome = run(f"import sys; print('out'); print('err', file=sys.stderr); sys.exit({code})",
                  tmp_path)
    assert (outcome.ended, outcome.returncode, outcome.ok) == ("exit", code, code == 0)
    assert (outcome.stdout, outcome.stderr) == (b"out\n", b"err\n")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL, signal.SIGINT])
def test_signal_is_reported_as_a_crash_by_name(number: signal.Signals, tmp_path: Path) -> None:
    code = ("import os, signal\n"
            f"signal.signal({int(number)}, signal.SIG_DFL) if {int(number)} != 9 else 0\n"
            f"os.kill(os.getpid(), {int(number)})")
    for outcome in (run(code, tmp_path),
                    run(code, tmp_path, confine=Confine(writable=(str(tmp_path),)))):
        assert not outcome.ok
        assert outcome.describe(Limits()) == f"crashed ({number.name})"


def test_missing_program_or_folder_is_exit_code_127(tmp_path: Path) -> None:
    assert guard.run(["/nowhere/program"], cwd=tmp_path).returncode == 127
    missing = guard.run(["true"], cwd=tmp_path / "missing")
    assert missing.returncode == 127
    assert b"cannot start true" in missing.stderr


@pytest.mark.parametrize("how", ["sleep", "spin", "ignores signals"])
def test_wall_limit_ends_the_job(how: str, tmp_path: Path) -> None:
    code = {"sleep": SLEEP, "spin": "while True: pass",
            "ignores signals": "import signal\nfor n in range(1, 65):\n  try:\n"
                               "    signal.signal(n, signal.SIG_IGN)\n  except Exception: pass\n"
                               "while True: pass"}[how]
    limits = Limits(wall_s=0.4)
    outcome = run(code, tmp_path, limits=limits)
    assert outcome.ended == "timeout"
    assert outcome.describe(limits) == "ran past its limit of 0.4 s"
    assert 0.4 <= outcome.wall_s < 60


def test_cancel_and_kill_end_the_job(tmp_path: Path) -> None:
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    outcome = guard.run(python(SLEEP), cwd=tmp_path, cancel=cancel)
    assert outcome.ended == "killed" and outcome.wall_s < 60
    with Guarded(python(SLEEP), cwd=tmp_path, env=guard.clean_env()) as guarded:
        with pytest.raises(TimeoutError):
            guarded.wait(timeout_s=0.2)
        guarded.kill()
        assert guarded.wait().ended == "killed"


def test_output_beyond_its_limit_does_not_fill_memory(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = "import os\nblock = b'x' * (1 << 20)\nwhile True: os.write(1, block); os.write(2, block)"
    limits = Limits(wall_s=60, output_bytes=1 << 20)
    supervisors: list[int] = []
    with Guarded(python(code), cwd=tmp_path, env=guard.clean_env(), limits=limits) as guarded:
        outcome = guarded.wait()
        supervisors.append(guarded.pid)
    assert outcome.ended == "output"
    assert outcome.describe(limits) == "printed more than 1024 KiB"
    assert len(outcome.stdout) + len(outcome.stderr) <= 2 << 20
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 32 << 10


def test_unread_output_does_not_block_the_job(tmp_path: Path) -> None:
    code = "import os\nfor _ in range(64): os.write(1, b'x' * (1 << 20))\nopen('done', 'w')"
    limits = Limits(wall_s=20, output_bytes=1 << 30)
    with Guarded(python(code), cwd=tmp_path, env=guard.clean_env(), limits=limits) as guarded:
        assert until((tmp_path / "done").exists)
        assert not until(lambda: not Path(f"/proc/{guarded.pid}").exists(), 3.0), "dropped output"
        assert len(guarded.wait().stdout) == 64 << 20


def test_complete_lines_are_delivered(tmp_path: Path) -> None:
    lines: list[bytes] = []
    guard.run(python("import os\nos.write(1, b'a\\nb'); os.write(1, b'c\\nlast')"), cwd=tmp_path,
              on_line=lines.append)
    assert lines[:2] == [b"a", b"bc"]


@pytest.mark.parametrize("where", ["itself", "a child"])
def test_memory_limit_counts_children(where: str, tmp_path: Path) -> None:
    hog = "import time\nb = []\nwhile True: b.append(bytearray(8 << 20)); time.sleep(0.002)"
    code = hog if where == "itself" else \
        f"import os, time\nif os.fork():\n  time.sleep(600)\nexec({hog!r})"
    limits = Limits(wall_s=30, memory_bytes=200 << 20)
    outcome = run(code, tmp_path, limits=limits)
    assert outcome.ended == "memory"
    assert outcome.describe(limits) == "took more than 200 MiB of memory"
    assert 200 << 20 < outcome.peak_bytes < 2 << 30


def test_memory_that_processes_share_counts_once(tmp_path: Path) -> None:
    code = """import os, time
held, children = b"x" * (64 << 20), []
while len(children) < 4:
    children.append(os.fork())
    if not children[-1]:
        time.sleep(1.5)  # counted several times
        os._exit(0)
for child in children:
    os.waitpid(child, 0)"""
    outcome = run(code, tmp_path, limits=Limits(wall_s=30, memory_bytes=200 << 20))
    assert outcome.ended == "exit" and outcome.ok
    assert 64 << 20 < outcome.peak_bytes < 200 << 20, "it was counted meanwhile"


def test_file_size_is_limited(tmp_path: Path) -> None:
    outcome = run("f = open('big', 'wb')\nwhile True: f.write(b'x' * (1 << 16)); f.flush()",
                  tmp_path, limits=Limits(wall_s=20, file_bytes=1 << 20))
    assert not outcome.ok
    assert (tmp_path / "big").stat().st_size <= 1 << 20


@pytest.mark.parametrize("confine", [False, True])
def test_daemon_does_not_outlive_the_job(confine: bool, tmp_path: Path) -> None:
    marker = mark()
    outcome = run(DAEMON, tmp_path, marker,
                  confine=Confine(writable=(str(tmp_path),)) if confine else None)
    assert outcome.ended == "exit"
    assert outcome.leftover == 1
    assert marked(marker) == {}


def test_job_without_daemons_has_no_leftover(tmp_path: Path) -> None:
    for confine in (None, Confine(writable=(str(tmp_path),))):
        assert run("import os\nif os.fork() == 0: os._exit(0)\nos.wait()", tmp_path,
                   confine=confine).leftover == 0


@pytest.mark.parametrize("confine", [False, True])
def test_number_of_processes_is_limited(confine: bool, tmp_path: Path) -> None:
    marker = mark()
    code = "import os, time\nfor _ in range(9): os.fork()\ntime.sleep(600)"  # would start 512
    limits = Limits(wall_s=20, processes=60)
    outcome = run(code, tmp_path, marker, limits=limits,
                  confine=Confine(writable=(str(tmp_path),)) if confine else None)
    assert outcome.describe(limits) == "started more than 60 processes"
    assert marked(marker) == {}


def test_job_that_kills_its_supervisor_dies(tmp_path: Path) -> None:
    marker = mark()
    code = "import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(600)"
    assert run(code, tmp_path, marker).ended == "killed"
    assert until(lambda: not marked(marker))


def test_time_spent_stopped_does_not_count(tmp_path: Path) -> None:
    code = "import os, time\nopen('up', 'w')\nwhile not os.path.exists('go'): time.sleep(0.001)"
    limits = Limits(wall_s=2.0)
    with Guarded(python(code), cwd=tmp_path, env=guard.clean_env(), limits=limits,
                 yields=device_lock.turnstile()) as guarded:
        assert until((tmp_path / "up").exists)
        with device_lock.acquire("cpu"):
            (tmp_path / "go").touch()
            assert not until(lambda: guarded._process.poll() is not None, 2.5)
        outcome = guarded.wait()
    assert outcome.ended == "exit", outcome
    assert outcome.returncode == 0
    assert outcome.stopped_s > 2.3


def test_two_threads_may_wait_for_one_process(tmp_path: Path) -> None:
    with Guarded(python(SLEEP), cwd=tmp_path, env=guard.clean_env()) as guarded, \
            ThreadPoolExecutor(2) as threads:
        first = threads.submit(guarded.wait)
        with pytest.raises(TimeoutError):
            guarded.wait(timeout_s=0.2)
        second = threads.submit(guarded.wait)
        guarded.kill()
        assert first.result() is second.result() is guarded.wait()
    assert first.result().ended == "killed"


@pytest.mark.parametrize(("first_s", "later_s"), [(600.0, 0.5), (0.8, 2.5)])
def test_wall_limit_may_be_lowered_and_raised_while_the_job_runs(
        first_s: float, later_s: float, tmp_path: Path) -> None:
    present = [first_s]

    def started(line: bytes) -> None:
        present[0] = later_s

    with Guarded(python(f"print('on', flush=True)\n{SLEEP}"), cwd=tmp_path, env=guard.clean_env(),
                 on_line=started, wall_s=lambda: present[0]) as guarded:
        outcome = guarded.wait()
    assert outcome.ended == "timeout" and later_s <= outcome.wall_s < 60
    assert outcome.describe(guarded.limits) == f"ran past its limit of {later_s:g} s"


def test_programs_of_forked_supervisors_have_addresses_of_their_own(tmp_path: Path) -> None:
    """Times depend on where code and data lie: process pairs average that out."""
    seen = {next(line for line in guard.run(["cat", "/proc/self/maps"], cwd=tmp_path)
                 .stdout.splitlines() if b"libc" in line) for _ in range(3)}
    assert len(seen) > 1


def test_passed_descriptors_have_the_numbers_that_arguments_name(tmp_path: Path) -> None:
    files = [(tmp_path / name).open("w+") for name in ("first", "second", "third")]
    numbers = [file.fileno() for file in files[::-1]]
    code = "import os, sys\nfor n in sys.argv[1:]: os.write(int(n), n.encode())\n" \
           "print(sorted(map(int, os.listdir('/proc/self/fd'))))"
    for confine in (None, Confine(writable=(str(tmp_path),))):
        outcome = guard.run(python(code, *map(str, numbers)), cwd=tmp_path, pass_fds=numbers,
                            confine=confine)
        assert outcome.ok, outcome
        inherited = set(map(int, outcome.stdout.strip(b"[]\n").split(b",")))
        assert len(inherited - {0, 1, 2, *numbers}) == 1, "the folder that is listed, and no more"
    assert [(tmp_path / file.name).read_text() for file in files] == [
        str(file.fileno()) * 2 for file in files]


def test_job_starts_after_the_process_that_forks_supervisors_was_killed(tmp_path: Path) -> None:
    assert guard.run(["true"], cwd=tmp_path).ok
    bare = shared_zygotes.zygote(SUPERVISORS)
    assert bare is not None and bare._process is not None
    bare._process.kill()
    bare._process.wait()
    assert guard.run(["true"], cwd=tmp_path).ok


def test_job_starts_with_more_descriptors_than_a_fork_is_sent(tmp_path: Path) -> None:
    files = [(tmp_path / str(number)).open("w+") for number in range(40)]
    numbers = [file.fileno() for file in files]
    code = "import os, sys\nfor n in sys.argv[1:]: os.write(int(n), n.encode())"
    assert guard.run(python(code, *map(str, numbers)), cwd=tmp_path, pass_fds=numbers).ok
    assert [(tmp_path / file.name).read_text() for file in files] == [*map(str, numbers)]
