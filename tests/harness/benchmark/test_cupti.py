"""The real kernel-time library runs in real processes, with a stand-in for CUPTI and no GPU."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.benchmark.kernel_time import cupti as kernel_time
from harness.benchmark.kernel_time.cupti import CuptiProfiler, parse
from harness.benchmark.kernel_time.profile import (
    MOST_FILES,
    KernelLaunches,
    KernelProfile,
    KernelTimeUnavailable,
)
from harness.benchmark.runs.workdir import CommandEnvironment, WorkingCopy
from harness.errors import Cancelled
from tests.support.benchmarks import kernel_time_case as case

HEAD = "kopt-kernel-time\t1\t26\t1\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a CUPTI and a program that loads the library."""
    folder = tmp_path_factory.mktemp("made")
    return case.cupti(folder), case.compiled(folder, case.HOST, "host")


def seen(folder: Path, made: tuple[Path, Path], kernels: str, *, processes: int = 1,
         cupti: Path | None = None, env: dict[str, str] | None = None) -> KernelProfile:
    """Run the program in a working copy, under the guard."""
    ours, host = made
    (folder / "tree").mkdir()
    (folder / "tree" / "kernels.txt").write_text(kernels)
    side = WorkingCopy(
        "candidate", folder / "tree", folder / "side", CommandEnvironment(env=env or {})
    )
    try:
        return CuptiProfiler([str(cupti or ours)]).observe(
            side, partial(side.run, f"{host} {processes}"))[1]
    finally:
        assert side.environment.env == (env or {}) and not any(side.home.glob("kernel-time-*"))


KERNELS = case.launched(("gemm", 700, 9000), ("void f<int, 2>(float *)", 400, 1500, 3),
                        ("flush", 100, 200))


@pytest.mark.parametrize("processes", [1, 3])
def test_records_of_all_processes_are_summed_by_name(
        processes: int, made: tuple[Path, Path], tmp_path: Path) -> None:
    assert seen(tmp_path, made, KERNELS, processes=processes) == {
        "gemm": KernelLaunches(
            launches=700 * processes,
            total_ns=6_300_000 * processes,
            least_ns=9000,
            blocks=5600 * processes,
        ),
        "void f<int, 2>(float *)": KernelLaunches(
            launches=400 * processes,
            total_ns=600_000 * processes,
            least_ns=1500,
            blocks=1200 * processes,
        ),
        "flush": KernelLaunches(
            launches=100 * processes,
            total_ns=20_000 * processes,
            least_ns=200,
            blocks=800 * processes,
        ),
    }


def test_unknown_cupti_version_gives_no_names(
        made: tuple[Path, Path], tmp_path: Path) -> None:
    found = seen(tmp_path, made, KERNELS, env={"FAKE_VERSION": "140000", "FAKE_WILD": "1"})
    assert found == {
        "": KernelLaunches(launches=1200, total_ns=6_920_000, least_ns=200, blocks=7600)
    }


@pytest.mark.parametrize(("env", "why"), [
    ({"FAKE_BUSY": "39"}, "CUPTI is taken: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)"),
    ({"FAKE_DROPPED": "3"}, "CUPTI lost kernels: 3"),
    ({"FAKE_ZERO": "1"}, "CUPTI lost kernels: 1"),
    ({"FAKE_FLUSH": "39"}, "CUPTI does not give its records: "
                           "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)"),
    ({"FAKE_TAKEN": "1"}, "CUPTI has not given all records back: another profiler may have them")])
def test_cupti_failures_are_reported(env: dict[str, str], why: str,
                                     made: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(KernelTimeUnavailable) as raised:
        seen(tmp_path, made, case.launched(("gemm", 700 if "FAKE_TAKEN" in env else 3, 100)),
             env=env)
    assert raised.value.what == why


def test_process_ending_without_exit_handlers_is_reported(
        made: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(KernelTimeUnavailable, match="incomplete: a process ended without"):
        seen(tmp_path, made, KERNELS, processes=2, env={"HOST_LEAVES": "1"})


def test_long_names_with_equal_start_stay_apart(made: tuple[Path, Path],
                                                tmp_path: Path) -> None:
    found = seen(tmp_path, made, case.launched(*(("f" * 450 + end, 3, ns) for end, ns in (
        ("<int>", 100), ("<float>", 200), ("", 300)))))
    assert sorted(kernel.mean_ns for kernel in found.values()) == [100, 200, 300]
    assert {name[:280] for name in found} == {"f" * 280}


def test_run_without_kernels_or_cupti_is_unavailable(made: tuple[Path, Path],
                                                     tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.raises(KernelTimeUnavailable, match="no kernel was launched"):
        seen(tmp_path / "a", made, "")
    with pytest.raises(KernelTimeUnavailable,
                       match=r"^CUPTI (was not found: no|does not record kernels: CUPTI_)"):
        seen(tmp_path / "b", made, KERNELS, cupti=Path("/nowhere/libcupti.so.12"))


def test_wrong_library_or_no_cuda_is_reported(made: tuple[Path, Path],
                                              tmp_path: Path) -> None:
    empty = case.compiled(tmp_path, "int nothing;", "libcupti.so.12", "-shared", "-fPIC")
    with pytest.raises(KernelTimeUnavailable, match="CUPTI has no function: cuptiGetVersion"):
        seen(tmp_path, made, KERNELS, cupti=empty)
    side = WorkingCopy("other", tmp_path / "tree", tmp_path / "other", CommandEnvironment())
    with pytest.raises(KernelTimeUnavailable, match="no process of the command loaded CUDA"):
        kernel_time.CuptiProfiler([]).observe(side, partial(side.run, "true"))


def test_output_path_is_not_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    side = WorkingCopy("candidate", tmp_path / "tree", tmp_path / "side", CommandEnvironment())

    def work() -> None:
        (folder,) = side.home.glob("kernel-time-*")
        assert "CUDA_INJECTION64_PATH" in side.environment.env
        assert not any(str(folder) in value for value in side.environment.env.values())

    with pytest.raises(KernelTimeUnavailable, match="no process of the command loaded CUDA"):
        kernel_time.CuptiProfiler([]).observe(side, work)


def test_any_output_path_can_be_compiled_in(made: tuple[Path, Path], tmp_path: Path) -> None:
    odd = tmp_path / "a \"b\" \\n??= é1"
    odd.mkdir()
    assert seen(odd, made, KERNELS).keys() == {"gemm", "void f<int, 2>(float *)", "flush"}


def test_real_cupti_without_driver_reports_reason(made: tuple[Path, Path],
                                                  tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    real = [path for path in kernel_time.cupti_libraries() if "libcupti.so.12" in path]
    if not real:
        pytest.skip("no CUPTI 12 is installed here")
    with pytest.raises(KernelTimeUnavailable,
                       match="CUPTI does not record kernels: CUPTI_ERROR_NOT_INITIAL"):
        seen(tmp_path, made, KERNELS, cupti=Path(real[0]))


def test_cupti_next_to_torch_is_preferred(tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "venv/lib/python3.11/site-packages"
    files = [packages / "nvidia/cuda_cupti/lib/libcupti.so.12",
             packages / "triton/backends/nvidia/lib/cupti/libcupti.so.12",
             tmp_path / "cuda/extras/CUPTI/lib64/libcupti.so.11.8"]
    for path in (*files, tmp_path / "venv/bin/python", packages / "nvidia/x/lib/libother.so.12"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    found = kernel_time.cupti_libraries(str(tmp_path / "venv/bin/python"))
    assert [path for path in found if path.startswith(str(tmp_path))] == [str(f) for f in files]


@pytest.mark.parametrize(("text", "why"), [
    ("", "incomplete"), (HEAD, "incomplete"), (f"{HEAD}kernel\t1\t5\t5\t1\tf\n", "incomplete"),
    (f"{HEAD}kernel\t1\t5\t5\t1\tf\nend", "incomplete"),
    ("kopt-kernel-time\t2\t26\t1\nend\n", "incomplete"),
    (f"{HEAD}end\nkernel\t1\t5\t5\t1\tf\nend\n", "malformed"),
    (f"{HEAD}kernel\t1\t5\t5\tf\nend\n", "malformed"),
    (f"{HEAD}kernel\t-1\t5\t5\t1\tf\nend\n", "malformed"),
    (f"{HEAD}kernel\t{'9' * 30}\t5\t5\t1\tf\nend\n", "malformed"),
    (f"{HEAD}kernel\t\u0661\t5\t5\t1\tf\nend\n", "malformed"),
    (f"{HEAD}kernel\t0\t5\t0\t1\tf\nend\n", "contradict"),
    (f"{HEAD}kernel\t2\t5\t3\t2\tf\nend\n", "contradict"),
    (f"{HEAD}kernel\t2\t6\t3\t1\tf\nend\n", "contradict"),
    (f"{HEAD}why\t\x1b[31mbusy\nend\n", "busy"), (f"{HEAD}lost\t7\nend\n", "lost kernels: 7")])
def test_invalid_profile_is_refused(text: str, why: str) -> None:
    with pytest.raises(KernelTimeUnavailable, match=why):
        parse(text)


def test_valid_profile_is_parsed() -> None:
    assert parse(f"{HEAD}end\n") == {}
    assert parse(f"{HEAD}kernel\t2\t7\t3\t2\t\x1b[1mf\tg\nkernel\t1\t2\t2\t4\tf g\nend\n") == {
        "f g": KernelLaunches(launches=3, total_ns=9, least_ns=2, blocks=6)}


@given(st.one_of(st.text(), st.lists(st.sampled_from(
    ["kernel", "why", "lost", "end", "\t", "\n", "1", "5", "99", "f", HEAD, "\x1b[2J", "\u202e"]
)).map("".join)))
def test_any_text_parses_or_is_unavailable(text: str) -> None:
    for whole in (text, f"{HEAD}{text}\nend\n"):
        try:
            found = parse(whole)
        except KernelTimeUnavailable as error:
            assert "\x1b" not in error.what and "\u202e" not in error.what
            continue
        for name, kernel in found.items():
            assert "\x1b" not in name and "\u202e" not in name and "\n" not in name
            assert 0 < kernel.least_ns <= kernel.mean_ns and kernel.launches <= kernel.blocks


@given(st.dictionaries(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1),
                       st.tuples(st.integers(1, 10**6), st.integers(1, 10**9))))
def test_profile_round_trips(kernels: dict[str, tuple[int, int]]) -> None:
    lines = "".join(f"kernel\t{n}\t{n * ns}\t{ns}\t{n}\t{name}\n"
                    for name, (n, ns) in kernels.items())
    assert parse(f"{HEAD}{lines}end\n") == {
        name: KernelLaunches(launches=n, total_ns=n * ns, least_ns=ns, blocks=n)
        for name, (n, ns) in kernels.items()}


def test_forged_profile_folder_is_refused(tmp_path: Path) -> None:
    def why(folder: Path) -> str:
        with pytest.raises(KernelTimeUnavailable) as raised:
            CuptiProfiler.files.profile(folder)
        return raised.value.what

    (tmp_path / "secret").write_text(f"{HEAD}why\tsecret\nend\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "k.1.0").symlink_to(tmp_path / "secret")
    assert "secret" not in why(tmp_path / "a")
    (tmp_path / "b").symlink_to(tmp_path)
    assert "secret" not in why(tmp_path / "b")
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "c" / "k.1.0")
    assert why(tmp_path / "c") == "CUPTI's files cannot be read: not a plain file"
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "k.1.0").write_text("x" * (CuptiProfiler.files.file_bytes + 1))
    assert why(tmp_path / "d") == "CUPTI's output is too large"
    for number in range(MOST_FILES + 1):
        (tmp_path / "d" / f"k.{number}.0").touch()
    assert why(tmp_path / "d") == "too many processes"
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "k.1.0").write_text(f"{HEAD}kernel\t1\t5\t5\t1\tf\nend\n")
    (tmp_path / "e" / "k.forged").touch()
    assert why(tmp_path / "e") == "CUPTI's folder holds other files"
    assert why(tmp_path / "none").startswith("CUPTI's files are gone")


LINE = "kernel\t1\t5\t5\t1\tf\n"


def test_oversized_profile_is_refused(tmp_path: Path) -> None:
    many = kernel_time.MOST_LINES
    parse(f"{HEAD}{LINE * (many - 2)}end\n")
    with pytest.raises(KernelTimeUnavailable, match="too large"):
        parse(f"{HEAD}{LINE * many}end\n")
    text = f"{HEAD}{LINE.replace('f', 'f' * 2000) * 2000}end\n"
    for number in range(5):
        (tmp_path / f"k.{number}.0").write_text(text)
    with pytest.raises(KernelTimeUnavailable, match="too large"):
        CuptiProfiler.files.profile(tmp_path)


def test_reading_a_profile_can_be_cancelled(tmp_path: Path) -> None:
    (tmp_path / "k.1.0").write_text(f"{HEAD}{LINE}end\n")
    cancel = threading.Event()
    assert CuptiProfiler.files.profile(tmp_path, cancel)
    cancel.set()
    with pytest.raises(Cancelled):
        CuptiProfiler.files.profile(tmp_path, cancel)
