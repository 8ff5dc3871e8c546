"""Each runner process has its own folder; it finds only code that its kernel's check compiled."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import pytest

from harness.compile import compiler_cache
from harness.compile.kernel import Kernel
from harness.compile.place import Place
from harness.isolation import guard
from harness.isolation.rpc import Peer, PeerError
from harness.runners.process_home import ProcessHome
from harness.runners.runner_pool import RunnerPool
from harness.runners.session import PYTHON_LIMITS
from tests.harness.runners.test_runner_pool import make_kernel
from tests.support.kernels import kernel_case
from tests.support.kernels.c_case import target

confined = pytest.mark.skipif(bool(guard.confinement_problem()), reason="needs namespaces")

COUNTS = '''
import os, tempfile
here = [os.environ["HOME"], tempfile.gettempdir(), os.getcwd(), os.environ["XDG_CACHE_HOME"],
        os.path.dirname(os.environ["HOME"])]
found = []
for folder in here:
    if os.path.isdir(folder):
        found += [name for name in os.listdir(folder) if name.startswith("count")]
for folder in here:
    try:
        os.makedirs(folder, exist_ok=True)
        open(os.path.join(folder, "count"), "a").write("1")
    except OSError:
        pass
if found:
    raise RuntimeError(f"seen: {found}")
def double(x, out): pass
'''
COMPILES = '''
import os
for name, variable in (("A" * 52, "TRITON_CACHE_DIR"), ("built", "TORCH_EXTENSIONS_DIR")):
    folder = os.path.join(os.environ[variable], name)
    if os.path.exists(folder):
        files = sorted(os.listdir(folder))
        text = open(os.path.join(folder, "k.json")).read()
        raise RuntimeError(f"found {files} {text} at {os.environ[variable]}")
for name, variable in (("A" * 52, "TRITON_CACHE_DIR"), ("built", "TORCH_EXTENSIONS_DIR")):
    folder = os.path.join(os.environ[variable], name)
    os.makedirs(folder)
    open(os.path.join(folder, "k.json"), "w").write("code")
def double(x, out): pass
'''


def pool() -> RunnerPool:
    return RunnerPool(PYTHON_LIMITS)


def test_files_of_a_process_are_hidden_from_later_and_concurrent_processes(tmp_path: Path) -> None:
    built = make_kernel(tmp_path, source=COUNTS)
    with pool() as runners:
        for _ in range(2):
            runners.start(built).close()
        peers = runners.start_all([built, built])  # at the same time
        for peer in peers:
            peer.close()


def test_a_folder_is_removed_with_its_process(tmp_path: Path) -> None:
    built = make_kernel(tmp_path, source=COUNTS)
    with pool() as runners:
        peer = runners.start(built)
        [home] = (tmp_path / "runners").iterdir()
        assert len(home.name) == 32
        peer.close()
        assert not (tmp_path / "runners").exists()
        killed = runners.start(built)
        killed.kill()
    assert not (tmp_path / "runners").exists()
    assert not list(tmp_path.rglob("count*"))


def test_the_folder_of_a_crashed_process_is_removed(tmp_path: Path) -> None:
    built = make_kernel(tmp_path, source="open('left', 'w')\nraise ValueError('broken')\n")
    with pool() as runners:
        with pytest.raises(PeerError, match="broken"):
            runners.start(built)
        assert not (tmp_path / "runners").exists()


def found_by(runners: RunnerPool, kernel: Kernel) -> str:
    """Return the error of a new timed process that found compiled code, empty if it found none."""
    try:
        runners.start_all([kernel])[0].close()
    except PeerError as error:
        return error.what
    return ""


def test_code_compiled_during_the_check_is_shared_with_timed_processes(tmp_path: Path) -> None:
    built = make_kernel(tmp_path, source=COMPILES)
    with pool() as runners:
        runners.start(built).close()
        found = found_by(runners, built)
    assert "found ['__grp__k.json', 'k.json'] code" in found


def test_code_compiled_in_a_timed_process_is_not_shared(tmp_path: Path) -> None:
    built = make_kernel(tmp_path, source=COMPILES)
    with pool() as runners:
        assert found_by(runners, built) == ""
        assert found_by(runners, built) == ""
        runners.start(built).close()  # a check, but after the kernel was timed
        assert found_by(runners, built) == ""


def test_compiled_code_is_not_shared_with_other_kernels(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    with pool() as runners:
        runners.start(make_kernel(one, source=COMPILES)).close()
        assert found_by(runners, make_kernel(one, "incumbent", COMPILES)) == ""


@confined
def test_a_cache_appears_at_the_same_path_in_each_process(tmp_path: Path) -> None:
    built = make_kernel(tmp_path, source=COMPILES)
    with pool() as runners:
        runners.start(built).close()
        found = found_by(runners, built)
    assert found.endswith(f"at {built.home / 'jit' / 'triton'}")


WRITES = '''
import os
for folder in {folders}:
    try:
        open(os.path.join(folder, "kopt-test-{name}"), "w")
    except OSError:
        continue
    raise RuntimeError(f"wrote to {{folder}}")
def double(x, out): pass
'''


@confined
@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "{home}", "{home}/jit/..", "{runners}"])
def test_a_confined_process_writes_to_no_shared_folder(folder: str, tmp_path: Path) -> None:
    plain = make_kernel(tmp_path)
    folder = folder.format(home=plain.home, runners=tmp_path / "runners")
    built = make_kernel(tmp_path, source=WRITES.format(folders=[folder], name=os.getpid()))
    with pool() as runners:
        runners.start(built).close()


@confined
def test_each_process_has_its_own_dev_shm(tmp_path: Path) -> None:
    source = "import os\nassert not os.listdir('/dev/shm')\nopen('/dev/shm/count', 'w')\n" \
        "def double(x, out): pass\n"
    built = make_kernel(tmp_path, source=source)
    with pool() as runners:
        for peer in runners.start_all([built, built]):
            peer.close()


@confined
def test_the_folders_of_other_processes_are_hidden(tmp_path: Path) -> None:
    source = "import os\nhome = os.environ['HOME']\n" \
        "assert os.listdir(os.path.dirname(home)) == [os.path.basename(home)]\n" \
        "def double(x, out): pass\n"
    built = make_kernel(tmp_path, source=source)
    with pool() as runners:
        peers = runners.start_all([built, built])
        assert len(list((tmp_path / "runners").iterdir())) == 2
        for peer in peers:
            peer.close()


@confined
def test_a_scratch_folder_in_shared_memory_works(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        built = make_kernel(Path(folder), source=COMPILES)
        with pool() as runners:
            runners.start(built).close()
            assert "found" in found_by(runners, built)


def test_unconfined_processes_have_their_own_caches_too(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "confinement_problem", lambda: "no namespaces")
    built = make_kernel(tmp_path, source=COMPILES)
    with pool() as runners:
        runners.starter.confined = False
        runners.start(built).close()
        found = found_by(runners, built)
    assert "found ['__grp__k.json', 'k.json'] code" in found and "/runners/" in found


def test_links_that_a_process_leaves_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("not for candidates")
    source = f"import os\nos.symlink({str(secret)!r}, os.environ['TORCH_EXTENSIONS_DIR'])\n" \
        "def double(x, out): pass\n"
    built = make_kernel(tmp_path, source=source)
    with pool() as runners:
        runners.start(built).close()
    assert not list((built.home / compiler_cache.FOLDER).rglob("*"))


def test_a_c_kernel_has_no_caches(tmp_path: Path) -> None:
    kernel = Kernel(name="candidate", target=target(), artifact="k.so", sha256="s", identity="i",
                    root="r", place=Place(device="cpu", scratch=str(tmp_path)))
    home = ProcessHome(kernel, confined=True, frozen=(), lock=threading.Lock())
    home.seed(kernel)
    assert not any(home.path.iterdir()) and home.confine().binds == ()
    home.remove()
    assert not home.path.exists()


def test_peer_announces_that_its_process_is_ending_and_that_it_has_ended(tmp_path: Path) -> None:
    announced: list[str] = []
    peer = Peer("run.runner", cwd=tmp_path, limits=PYTHON_LIMITS, bare=True,
                on_ending=lambda: announced.append("ending"),
                on_ended=lambda: announced.append("ended"))
    peer.close()
    assert announced == ["ending", "ended"]


def test_compiled_code_of_candidate_and_incumbent_is_kept_apart(tmp_path: Path) -> None:
    source = "import os\nbuilt = os.path.join(os.environ['TORCH_EXTENSIONS_DIR'], 'built')\n" \
        "os.makedirs(built, exist_ok=True)\nopen(os.path.join(built, '{name}'), 'w')\n" \
        "def double(x, out):\n    out.copy_(2 * x)\n"
    verdict = kernel_case.judge(
        tmp_path, source.format(name="new"), source.format(name="old"),
        of=kernel_case.target(language="python"))
    assert verdict.valid and verdict.correct, verdict
    kept = {side: sorted(path.name for path in (tmp_path / "scratch").glob(
        f"home-{side}/jit/extensions/built/*")) for side in ("candidate", "incumbent")}
    assert kept == {"candidate": ["new"], "incumbent": ["old"]}
