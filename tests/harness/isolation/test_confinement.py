"""A confined process writes, reaches, sees and signals nothing but its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.child.supervise import confine as namespaces
from harness.isolation import device_lock, guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits, ProcessOutcome
from tests.support.programs.processes import mark, python

SLEEP = "import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))


needs_confinement = pytest.mark.skipif(bool(guard.confinement_problem()),
                                       reason=f"cannot confine: {guard.confinement_problem()}")


def run(code: str, tmp_path: Path, *arguments: str, limits: Limits | None = None,
        confine: Confine | None = None) -> ProcessOutcome:
    return guard.run(python(code, *arguments), cwd=tmp_path, limits=limits or Limits(wall_s=20),
                     confine=confine)


def confined(code: str, tmp_path: Path, *arguments: str, network: bool = False,
             limits: Limits | None = None) -> ProcessOutcome:
    return run(code, tmp_path, *arguments, limits=limits,
               confine=Confine(writable=(str(tmp_path),), network=network, required=True))


@needs_confinement
def test_process_cannot_open_the_journal_of_the_workspace_that_it_works_in(tmp_path: Path) -> None:
    (room := tmp_path / "w" / "campaign" / "scratch").mkdir(parents=True)
    names = ("kopt.db", "kopt.db-wal", "kopt.db-shm", "corpus.jsonl")
    for name in names:
        (tmp_path / "w" / name).write_text(name)
    code = ("import sys\nfor name in sys.argv[1:]:\n    try:\n        print(open(name).read())\n"
            "    except PermissionError:\n        print('refused')")
    outcome = guard.run(python(code, *(f"../../{name}" for name in names)), cwd=room,
                        limits=Limits(wall_s=20),
                        confine=Confine(writable=(str(room),), required=True))
    assert outcome.stdout.decode().split() == ["refused"] * 3 + ["corpus.jsonl"]


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


@needs_confinement
def test_hidden_folders_are_empty_and_hidden_files_cannot_be_opened(tmp_path: Path) -> None:
    inside, folder, file = tmp_path / "inside", tmp_path / "folder", tmp_path / "file"
    inside.mkdir()
    folder.mkdir()
    for path in (folder / "x", file):
        path.write_text("content")
    code = ("import os, sys\nprint(os.listdir(sys.argv[1]))\n"
            "try: open(sys.argv[2])\nexcept OSError as error: print(error.strerror)")
    outcome = run(code, inside, str(folder), str(file), confine=Confine(
        writable=(str(inside),), hidden=(str(folder), str(file), str(tmp_path / "no such")),
        required=True))
    assert outcome.stdout.decode().split("\n")[:2] == ["[]", "Permission denied"], outcome
    assert file.read_text() == "content"


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
def test_confined_process_opens_its_own_cards_or_all_if_none_of_them_exists(
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
def test_confined_process_has_terminals_of_its_own_and_reaches_no_other(tmp_path: Path) -> None:
    above, below = os.openpty()
    code = ("import os, sys\n"
            "try: os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_NOCTTY), b'hello')\n"
            "except OSError: print('refused')\n"
            "own, end = os.openpty()\nos.write(end, b'mine')\nprint(os.read(own, 4).decode())")
    outcome = confined(code, tmp_path, os.ttyname(below))
    assert outcome.stdout.decode().split() == ["refused", "mine"], outcome
    os.set_blocking(above, False)
    with pytest.raises(BlockingIOError):
        os.read(above, 5)
    os.close(above)
    os.close(below)


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


def test_confined_process_cannot_reach_device_locks(tmp_path: Path) -> None:
    """Otherwise a job could stop every measurement on the machine, including its own."""
    with device_lock.acquire("gpu-99"):
        code = f"import os; print(os.listdir({str(device_lock.lock_directory())!r}))"
        outcome = run(code, tmp_path, confine=Confine(writable=(str(tmp_path),), required=True))
        assert "gpu-99.turn" in run(code, tmp_path).stdout.decode()
    if guard.confinement_problem():
        pytest.skip(guard.confinement_problem())
    assert outcome.stdout == b"[]\n"
