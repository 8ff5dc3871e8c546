"""The guard enforces limits, leaves no process behind and confines a job, with real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.child.supervise import confine as namespaces
from harness.isolation import device_lock, guard
from harness.isolation.guard import Confine, Guarded, Limits, ProcessOutcome
from tests.support.paths import ROOT
from tests.support.processes import alive, kill, mark, marked, owner, python, resident, until

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c",
                                  "import time; time.sleep(600)", sys.argv[1]])
    os._exit(0)
os.wait()
"""
SLEEP = "import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))


def confinement_error() -> str:
    """Return why this machine cannot confine a process; empty if it can."""
    program = ROOT / "harness" / "child" / "supervise" / "confine.py"
    process = subprocess.run([sys.executable, "-I", "-S", str(program)], capture_output=True,
                             text=True, timeout=20)
    return process.stdout.strip() if process.returncode else ""


needs_confinement = pytest.mark.skipif(bool(confinement_error()),
                                       reason=f"cannot confine: {confinement_error()}")


def run(code: str, tmp_path: Path, *arguments: str, limits: Limits | None = None,
        confine: Confine | None = None) -> ProcessOutcome:
    return guard.run(python(code, *arguments), cwd=tmp_path, limits=limits or Limits(wall_s=20),
                     confine=confine)


def confined(code: str, tmp_path: Path, *arguments: str, network: bool = False,
             limits: Limits | None = None) -> ProcessOutcome:
    return run(code, tmp_path, *arguments, limits=limits,
               confine=Confine(writable=(str(tmp_path),), network=network, required=True))


# How a job ends


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


# Limits


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


def test_file_size_is_limited(tmp_path: Path) -> None:
    outcome = run("f = open('big', 'wb')\nwhile True: f.write(b'x' * (1 << 16)); f.flush()",
                  tmp_path, limits=Limits(wall_s=20, file_bytes=1 << 20))
    assert not outcome.ok
    assert (tmp_path / "big").stat().st_size <= 1 << 20


# Processes that a job leaves behind


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


OWNER = """
import sys
from pathlib import Path
from harness.isolation import guard
from harness.isolation import device_lock as lock
from harness.isolation.guard import Confine, Limits
folder, marker, confine = sys.argv[1], sys.argv[2], sys.argv[3] == "confine"
with lock.acquire("cpu") as held:
    print("locked", flush=True)
    guard.run([sys.executable, "-I", "-S", "-c", %r, marker], cwd=Path(folder), lock=held,
              confine=Confine(writable=(folder,)) if confine else None)
""" % (DAEMON + "held = bytearray(b'1') * 300_000_000\n" + SLEEP)


@pytest.mark.parametrize("confine", ["confine", "open"])
def test_killed_owner_frees_the_lock_only_after_its_job_is_dead(
        confine: str, tmp_path: Path) -> None:
    marker = mark()
    with owner(OWNER, str(tmp_path), marker, confine) as process:
        assert until(lambda: len(marked(marker)) >= 3)  # the owner, the job, its daemon
        assert device_lock.holder("cpu") == process.pid
        kill(process.pid)
        seen_alive = 0
        while device_lock.holder("cpu") is not None:
            seen_alive += 1
        assert marked(marker) == {}, "the lock was free while a process still ran"
    assert seen_alive


def test_lock_passed_before_the_job_starts_is_held_to_its_end(tmp_path: Path) -> None:
    started = tmp_path / "started"
    held = device_lock.acquire("cpu")
    with Guarded(python(f"open({str(started)!r}, 'w'); {SLEEP}"), cwd=tmp_path,
                 env=guard.clean_env()) as guarded:
        guarded.hold(held)
        assert until(started.exists)
        held.release()
        assert device_lock.holder("cpu") is not None
        guarded.kill()
        guarded.wait()
    assert until(lambda: device_lock.holder("cpu") is None)


NESTED = """
import sys
from pathlib import Path
from harness.isolation import guard
from harness.isolation import device_lock as lock
folder, marker, depth = sys.argv[1], sys.argv[2], int(sys.argv[3])
if depth == 0:
    held = lock.acquire("cpu")
    guard.run([sys.executable, "-I", "-S", "-c", %r, marker + "-job"], cwd=Path(folder), lock=held)
else:
    env = guard.clean_env({"KOPT_LOCK_DIR": sys.argv[4], "PYTHONPATH": sys.argv[5]})
    guard.run([sys.executable, "-c", sys.argv[6], folder, marker, str(depth - 1), *sys.argv[4:]],
              cwd=Path(folder), env=env)
""" % (DAEMON + "held = bytearray(b'1') * 300_000_000\n" + SLEEP)


@pytest.mark.parametrize("victim", ["owner", "inner supervisor", "outer supervisor"])
def test_nested_guards_die_together(victim: str, tmp_path: Path) -> None:
    marker = mark()
    root = str(ROOT)
    with owner(NESTED, str(tmp_path), marker, "2", os.environ["KOPT_LOCK_DIR"], root,
               NESTED) as process:
        assert until(lambda: len(marked(marker)) >= 5)
        assert until(lambda: max(map(resident, marked(marker + "-job"))) > 300_000_000)
        jobs = marked(marker + "-job")
        if victim == "owner":
            kill(process.pid)
        else:
            chain = supervisors(process.pid)
            assert len(chain) == 3
            kill(chain[-1] if victim == "inner supervisor" else chain[0])
        assert until(lambda: device_lock.holder("cpu") is None)
        if victim == "owner":
            assert not [pid for pid in jobs if alive(pid)], "the lock was free too early"
        assert until(lambda: not [pid for pid in marked(marker) if pid != process.pid])
        process.wait(timeout=20)


def supervisors(pid: int) -> list[int]:
    """Return the pids of the supervisors below a process, outermost first."""
    pids = []
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text()
                                          .rsplit(") ", 1)[1].split()[1])
            except OSError:
                continue
    for child in sorted(marked("supervisor")):
        above = child
        while above in parents and above != pid:
            above = parents[above]
        if above == pid:
            pids.append(child)
    return pids


@pytest.mark.parametrize("confine", [False, True])
def test_killed_supervisor_leaves_no_process(confine: bool, tmp_path: Path) -> None:
    marker = mark()
    with Guarded(python(SLEEP, marker), cwd=tmp_path, env=guard.clean_env(),
                 confine=Confine(writable=(str(tmp_path),)) if confine else None) as guarded:
        assert until(lambda: len(marked(marker)) == 1)
        kill(guarded.pid)
        outcome = guarded.wait()
    assert (outcome.ended, outcome.returncode) == ("killed", None)
    assert until(lambda: not marked(marker))


def test_job_that_kills_its_supervisor_dies(tmp_path: Path) -> None:
    marker = mark()
    code = "import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(600)"
    assert run(code, tmp_path, marker).ended == "killed"
    assert until(lambda: not marked(marker))


# What a job sees


def test_environment_has_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KEY", "a-secret-of-ours")
    monkeypatch.setenv("LD_PRELOAD", "")
    code = ("import json, os\nup = open('/proc/%d/environ' % os.getppid()).read()\n"
            "print(json.dumps([dict(os.environ), up]))")
    env, above = json.loads(run(code, tmp_path).stdout)
    assert "AGENT_KEY" not in env
    assert "a-secret-of-ours" not in above
    assert set(env) <= {*guard.INHERITED, "PYTHONDONTWRITEBYTECODE", "LC_CTYPE"}


def test_job_inherits_only_standard_descriptors_and_an_empty_stdin(tmp_path: Path) -> None:
    extra = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(extra, True)
    code = ("import os, sys\nprint(sorted(set(map(int, os.listdir('/proc/self/fd'))) - {3}), "
            "os.readlink('/proc/self/fd/0'), len(sys.stdin.read()))")
    with device_lock.acquire("cpu") as held:
        outcome = guard.run(python(code), cwd=tmp_path, lock=held, yields=None)
    os.close(extra)
    assert outcome.stdout == b"[0, 1, 2] /dev/null 0\n"


# What a confined job reaches


@needs_confinement
@pytest.mark.parametrize("target", [
    "/etc/kopt-test", "/tmp/kopt-test", "{home}/kopt-test", "/var/tmp/kopt-test", "{beside}",
    "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper",
    "/dev/kopt-test", "/dev/kmsg",
])
def test_confined_process_writes_only_in_its_folder(target: str, tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    path = target.format(home=Path.home(), beside=tmp_path / "beside")
    code = ("import os, sys\n"
            "try:\n  fd = os.open(sys.argv[1], os.O_WRONLY | (0 if os.path.exists(sys.argv[1]) "
            "else os.O_CREAT))\n"
            "except OSError as e: print('refused')\nelse: print('opened')\n"
            "open('mine', 'w').write('x')")
    outcome = confined(code, room, path)
    assert outcome.stdout == b"refused\n"
    assert (room / "mine").read_text() == "x"


@needs_confinement
def test_confined_process_opens_no_block_device(tmp_path: Path) -> None:
    code = ("import os, stat\nopened = []\nfor base, _, names in os.walk('/dev'):\n"
            "  for name in names:\n    path = os.path.join(base, name)\n    try:\n"
            "      if stat.S_ISBLK(os.stat(path).st_mode) or name in ('mem', 'kvm', 'fuse', "
            "'loop-control'):\n        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))\n"
            "        opened.append(path)\n    except OSError: pass\n"
            "for path in ('/dev/null', '/dev/zero', '/dev/urandom'):\n"
            "  with open(path, 'r+b', buffering=0) as f: f.write(b'x'); f.read(1)\n"
            "print(opened)")
    outcome = confined(code, tmp_path)
    assert outcome.stdout == b"[]\n", outcome.stderr


@pytest.mark.parametrize(("nodes", "opened"), [
    ((), ["nvidia-caps", "nvidia0", "nvidia1", "nvidia12", "nvidiactl"]),
    (("nvidia1",), ["nvidia-caps", "nvidia1", "nvidiactl"]),
    (("nvidia0", "nvidia12"), ["nvidia-caps", "nvidia0", "nvidia12", "nvidiactl"]),
    (("nvidia7",), ["nvidia-caps", "nvidia0", "nvidia1", "nvidia12", "nvidiactl"]),
])
def test_confined_process_opens_only_its_own_cards(
        nodes: tuple[str, ...], opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    devices = ["nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-caps"]
    monkeypatch.setattr(namespaces.glob, "glob", lambda _: [f"/dev/{name}" for name in devices])
    assert sorted(namespaces._devices(["nvidia*"], nodes)) == [f"/dev/{name}" for name in opened]


@needs_confinement
def test_confined_process_cannot_undo_the_confinement(tmp_path: Path) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def remount():
    return libc.mount(b"none", b"/", None, 0x1000 | 0x20, None)  # MS_BIND | MS_REMOUNT
results = [remount(), libc.umount2(b"/dev/shm", 2)]
if libc.unshare(0x10000000 | 0x00020000) == 0:  # new user and mount namespaces: still locked
    results.append(remount())
    try:
        os.close(os.open("/etc/kopt-test", os.O_CREAT | os.O_WRONLY))
        results.append(0)
    except OSError:
        results.append(-1)
print(all(r != 0 for r in results), results)
"""
    assert confined(code, tmp_path).stdout.startswith(b"True")


@needs_confinement
def test_confined_process_reaches_no_network_and_no_foreign_socket(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        unix.bind(str(folder / "sock"))
        unix.listen()
        code = ("import socket, sys\nfor family, at in ((socket.AF_INET, ('127.0.0.1', "
                "int(sys.argv[1]))), (socket.AF_UNIX, sys.argv[2])):\n"
                "  try:\n    socket.socket(family).connect(at); print('connected')\n"
                "  except OSError: print('refused')\na, b = socket.socketpair(); a.send(b'x')\n")
        port = str(tcp.getsockname()[1])
        outcome = confined(code, tmp_path, port, str(folder / "sock"))
        assert (outcome.stdout, outcome.returncode) == (b"refused\nrefused\n", 0), outcome.stderr
        with_network = confined(code, tmp_path, port, str(folder / "sock"), network=True)
        assert with_network.stdout.splitlines()[0] == b"connected"


@needs_confinement
def test_confined_process_sees_and_signals_only_its_own_processes(tmp_path: Path) -> None:
    marker = mark()
    with subprocess.Popen([sys.executable, "-c", SLEEP, marker]) as other:
        code = ("import os, signal, sys\npids = [p for p in os.listdir('/proc') if p.isdigit()]\n"
                "print(len(pids), flush=True)\n"
                "try: os.kill(int(sys.argv[1]), 0); print('seen', flush=True)\n"
                "except ProcessLookupError: print('unseen', flush=True)\n"
                "try: os.getpid() < 9 and os.kill(-1, signal.SIGKILL)\n"
                "except ProcessLookupError: pass\n"
                "os.kill(1, signal.SIGKILL)\nprint('alive', flush=True)")
        outcome = confined(code, tmp_path, str(other.pid))
        assert outcome.stdout == b"2\nunseen\nalive\n", outcome
        assert other.poll() is None
        other.kill()


@needs_confinement
def test_shared_memory_is_private_and_small(tmp_path: Path) -> None:
    name = f"/dev/shm/{mark()}"
    code = ("import os, sys\nopen(sys.argv[1], 'w').write('x')\nprint(os.listdir('/dev/shm'), "
            "os.statvfs('/dev/shm').f_blocks * os.statvfs('/dev/shm').f_frsize <= 1 << 30)")
    outcome = confined(code, tmp_path, name)
    assert outcome.stdout.decode() == f"{[Path(name).name]} True\n"
    assert not Path(name).exists()


@needs_confinement
def test_working_folder_in_shared_memory_is_available(tmp_path: Path) -> None:
    """With TMPDIR=/dev/shm, the job sees its own folder there and no other."""
    code = """
import os, sys
os.chdir(sys.argv[1])
print(open("../given").read(), sorted(os.listdir("/dev/shm")) == [sys.argv[2]])
open("made", "w").write("here")
for path in ("../given", "../new"):
    try:
        open(path, "a")
        print("written")
    except OSError:
        print("read-only")
"""
    with (tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
          tempfile.TemporaryDirectory(dir="/dev/shm")):
        (Path(folder) / "given").write_text("given")
        work = Path(folder) / "work"
        work.mkdir()
        outcome = confined(code, work, str(work), Path(folder).name)
        assert outcome.stdout == b"given True\nread-only\nread-only\n", outcome
        assert (work / "made").read_text() == "here"


def test_missing_confinement_is_reported_and_fatal_only_if_required(tmp_path: Path) -> None:
    missing = Confine(writable=(str(tmp_path / "missing"),))
    outcome = run("print('ran')", tmp_path, confine=missing)
    assert outcome.stdout == b"ran\n"
    assert outcome.stderr.startswith(b"kopt: not confined: ")
    required = Confine(writable=(str(tmp_path / "missing"),), required=True)
    assert run("print('ran')", tmp_path, confine=required).returncode == 127


# Time spent stopped


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


def test_confined_process_cannot_reach_device_locks(tmp_path: Path) -> None:
    """Otherwise a job could stop every measurement on the machine, including its own."""
    with device_lock.acquire("gpu-99"):
        code = f"import os; print(os.listdir({str(device_lock.lock_directory())!r}))"
        outcome = run(code, tmp_path, confine=Confine(writable=(str(tmp_path),), required=True))
        assert "gpu-99.turn" in run(code, tmp_path).stdout.decode()
    if guard.confinement_problem():
        pytest.skip(guard.confinement_problem())
    assert outcome.stdout == b"[]\n"
