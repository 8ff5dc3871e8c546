"""The audit reads CUDA and HIP sources by the rules of C and by rules for streams and launches."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.audit import audit
from tests.support.judging.audit_case import audited_change
from tests.support.kernels import device_case
from tests.support.kernels.device_case import LAUNCHER

CALL = "    twice_kernel<<<"
AT = "int i ="


@pytest.mark.parametrize(("before", "added", "finding"), [
    (CALL, 'fopen("/etc/passwd", "r");', ("flag", "files", "fopen")),
    (CALL, 'asm volatile("syscall");', ("reject", "hidden-code", "makes a system call")),
    (CALL, "cudaStream_t s; cudaStreamCreate(&s);", ("flag", "threads", "side stream")),
    (CALL, "hipStream_t s = hipStreamPerThread;", ("flag", "threads", "side stream")),
    (CALL, "float *t; cudaMalloc(&t, 4);", ("note", "memo", "allocates GPU memory")),
    (CALL, "static const float *last; if (last == x) return; last = x;",
     ("reject", "over-fit", "recognises a tensor")),
    (CALL, "cublasSgemm(0);", ("flag", "delegation", "a library's computation")),
    (CALL, 'dlsym(0, "cudaEventRecord");', ("flag", "hidden-code", "indirectly")),
    (AT, "if (clock64() & 1) return;", ("flag", "timing", "clock64")),
    (AT, 'asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));', ("flag", "timing", "clock")),
    ("#define TILE", "__device__ float kept[4];\n", ("note", "memo", "keeps memory")),
    ("#define TILE", '#include "/tmp/other.h"\n', ("reject", "new-dependency", "other.h")),
    ("#define TILE", '__attribute__((constructor)) static void go() {}\n',
     ("flag", "hidden-code", "when it is loaded"))])
@pytest.mark.parametrize("suffix", ["cu", "hip"])
def test_added_code_in_a_device_source_is_reported(
        before: str, added: str, finding: tuple[str, str, str], suffix: str,
        tmp_path: Path) -> None:
    assert before in LAUNCHER
    target = device_case.target(launch=None, source=f"kernel.{suffix}",
                                language="cuda" if suffix == "cu" else "hip")
    trees = [device_case.tree(tmp_path / name, source) for name, source in (
        ("candidate", LAUNCHER.replace(before, added + before)), ("baseline", LAUNCHER))]
    for tree in trees:
        (tree / "kernel.cu").rename(tree / f"kernel.{suffix}")
    findings, _ = audit(audited_change(target, *trees))
    severity, rule, words = finding
    assert any((each.severity, each.rule) == (severity, rule) and words in each.detail
               for each in findings), findings


def test_changed_knob_and_toolkit_headers_cause_no_finding(tmp_path: Path) -> None:
    headers = "#include <cuda_bf16.h>\n#include <cooperative_groups.h>\n#include <cub/cub.cuh>\n"
    candidate = device_case.tree(tmp_path / "one", headers + LAUNCHER.replace("256", "512"))
    baseline = device_case.tree(tmp_path / "two", LAUNCHER)
    assert audit(audited_change(device_case.target(launch=None), candidate, baseline))[0] == []
