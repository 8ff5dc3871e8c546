"""Threads that go on working after a call are told apart from those that wait for a core."""

from __future__ import annotations

import hashlib
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.child.watch import launches, threads_and_code

CORE = max(os.sched_getaffinity(0))
BUSY = f"import os\nos.sched_setaffinity(0, [{CORE}])\nprint(flush=True)\nwhile True: pass"


@pytest.fixture
def busy_core() -> Iterator[None]:
    """Keep one core busy with three processes."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
              for _ in range(3)]
    for other in others:
        assert other.stdout is not None and other.stdout.readline()
    yield
    for other in others:
        other.kill()
        other.communicate()


def work_while(wanted: Callable[[], bool]) -> threading.Thread:
    """Start a thread on the busy core that works outside of Python while `wanted()` is true.

    The thread seldom waits for the interpreter, since waiting would make it look idle.
    """
    def work() -> None:
        os.sched_setaffinity(0, [CORE])
        while wanted():
            hashlib.pbkdf2_hmac("sha256", b"", b"", 20_000)
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def found(thread: threading.Thread) -> list[str]:
    """Return the findings on this thread alone."""
    return [line for line in threads_and_code.running(set(threads_and_code.tasks())
            - {thread.native_id or 0}) if "thread" in line]


def test_short_lived_thread_is_not_reported_even_on_a_busy_core(busy_core: None) -> None:
    thread = work_while(lambda: time.thread_time() < 0.15)
    assert found(thread) == []
    thread.join()


def test_thread_that_works_on_is_found_on_a_busy_core(busy_core: None) -> None:
    is_done = threading.Event()
    thread = work_while(lambda: not is_done.is_set())
    try:
        assert found(thread) == ["1 thread(s) kept working after the call"]
    finally:
        is_done.set()
        thread.join()


def test_packages_of_another_environment_are_no_foreign_code(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed, kernels = tmp_path / "other/site-packages", tmp_path / "tree"
    monkeypatch.syspath_prepend(str(installed))
    code = threads_and_code.Code(str(kernels / "kernel.py"), str(kernels), native=False)
    mapped = []
    for folder in (installed, kernels):
        folder.mkdir(parents=True)
        (library := folder / f"{folder.name}.so").write_bytes(bytes(mmap.PAGESIZE))
        with library.open("rb") as file:
            mapped.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC))
    assert code.added() == ["runs code of tree.so, which is neither the kernel's nor the system's"]
    for memory in mapped:
        memory.close()


def test_files_of_a_linked_virtual_environment_belong_to_the_interpreter(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "venv/lib/torch/_inductor/reference.py"
    library.parent.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "venv")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "link"))
    for folder in ("venv", "link"):
        file = str(tmp_path / folder / "lib/torch/_inductor/reference.py")
        assert threads_and_code.of_python(file)
        assert not launches.is_file(file, "reference.py")
    assert not threads_and_code.of_python(str(tmp_path / "tree/reference.py"))
    assert launches.is_file(str(tmp_path / "tree/reference.py"), "reference.py")
