"""Candidates start with the baseline's compiled code, unless that hides their changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign import baseline_cache
from engine.repository.campaign_repo import CampaignRepo
from engine.verify import canary
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.runs.workdir import CommandEnvironment, WorkingCopy
from harness.benchmark.verdict import canary_check as harness_canary
from harness.compile import compiler_cache
from harness.devices import inventory
from harness.isolation import guard
from harness.settings import Settings, Trees
from harness.verdict import Verdict, rejected
from tests.support import repos
from tests.support.benchmarks.benchmark_case import BENCH, FILES, KERNEL, judge, kernel, target


def settings_for(campaign: Path, purpose: str) -> dict[str, str]:
    """Return the cache settings of a campaign's verdict for a purpose."""
    return {"warm_cache": baseline_cache.warm_for(campaign, purpose),
            "keep_cache": baseline_cache.keep_for(campaign, purpose)}


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


COMPILES = """\
import os
cache = os.path.join(os.environ["TRITON_CACHE_DIR"], "compiled")
"""


NEEDS_WARM = COMPILES + "assert open(cache).read() == 'by the baseline', 'cold'\n"


def test_candidate_starts_with_the_baselines_compiled_code(tmp_path: Path) -> None:
    base = kernel(100.0, COMPILES + "os.makedirs(os.path.dirname(cache), exist_ok=True)\n"
                  "if not os.path.exists(cache): open(cache, 'w').write('by the baseline')\n")
    settings = settings_for(tmp_path, baseline_cache.BASELINE)
    assert judge(tmp_path / "1", base, incumbent=base, **settings).correct
    assert contents(baseline_cache.cache_folder(tmp_path))["triton/compiled"] == "by the baseline"
    settings = settings_for(tmp_path, "verify")
    candidate = kernel(50.0, NEEDS_WARM + "open(cache, 'r+').write('BY ANOTHER')\n")
    for name in ("candidate", "next"):  # what the first one writes, the second does not see
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.py").write_text(candidate)
        side = WorkingCopy(name, tmp_path / name, tmp_path / f"of-{name}",
                    CommandEnvironment(warm=settings["warm_cache"]))
        side.run("python kernel.py")
        with pytest.raises(BenchmarkFault, match="cold"):
            side.run("python kernel.py")
    with pytest.raises(BenchmarkFault, match="No such file"):
        WorkingCopy("cold", tmp_path / "next", tmp_path / "of-cold", CommandEnvironment()).run(
            "python kernel.py"
        )


COLD = """\
import os, time
os.makedirs(os.environ["TRITON_CACHE_DIR"], exist_ok=True)
cache = os.path.join(os.environ["TRITON_CACHE_DIR"], "tries")
with open(cache, "a") as file: file.write("x")
if os.path.getsize(cache) <= {slow}: time.sleep(1000)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("slow", "correct"), [(1, True), (2, False)])
def test_cold_compile_that_times_out_is_tried_once_more(tmp_path: Path, slow: int,
                                                        correct: bool) -> None:
    verdict = judge(tmp_path, kernel(50.0, COLD.format(slow=slow)), wanted=target(timeout_s=1.0))
    assert verdict.correct is correct
    assert correct or verdict.rejected_reason == "ran past its limit of 1 s"


@pytest.mark.slow
def test_hanging_run_with_a_warm_cache_is_not_repeated(tmp_path: Path) -> None:
    hangs = COLD.format(slow=0) + "if os.path.getsize(cache) == 2: time.sleep(1000)\n"
    verdict = judge(tmp_path, kernel(50.0, hangs), wanted=target(timeout_s=1.0))
    assert verdict.rejected_reason == "ran past its limit of 1 s"


@pytest.mark.parametrize(("language", "verdict", "again"), [
    ("triton", rejected("class a: ran past its limit of 300 s"), True),
    ("python", rejected("load: ran past its limit of 180 s"), True),
    ("c", rejected("class a: ran past its limit of 40 s"), False),
    ("triton", rejected("class a: crashed (SIGSEGV)"), False),
    ("triton", Verdict(valid=True, correct=False), False),
])
def test_only_kernels_that_timed_out_cold_are_judged_again(language: str, verdict: Verdict,
                                                           again: bool) -> None:
    assert baseline_cache.may_be_cold_timeout(verdict, language) is again


BY_NAME = """\
import os, pathlib
place = pathlib.Path(os.environ["AITER_JIT_DIR"]) / "kernel.py"
if not place.exists():
    source = pathlib.Path("kernel.py").read_text()
    compile(source, "kernel.py", "exec")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(source)
import sys
sys.path.insert(0, str(place.parent))
"""


@pytest.mark.slow
def test_cache_that_hides_changes_is_dropped(tmp_path: Path) -> None:
    """Seeded with it, every candidate would run the baseline's library."""
    bench = BY_NAME + BENCH
    files = {"bench.py": bench}
    assert judge(tmp_path / "base", KERNEL, files=files,
                 **settings_for(tmp_path, baseline_cache.BASELINE)).correct
    repo = CampaignRepo.create(tmp_path / "c", "rms", repos.project(
        tmp_path / "user", {**FILES, "bench.py": bench}))
    asked: list[dict[str, str]] = []

    def ask(tree: str) -> Verdict:
        asked.append(settings_for(tmp_path, canary.PURPOSE))
        place = tmp_path / f"tree-{len(asked)}"
        repo.checkout_tree(tree, place / "broken")
        repo.checkout_tree(repo.base, place / "whole")
        trees = Trees(candidate=str(place / "broken"), incumbent=str(place / "whole"),
                      reference=str(place / "whole"))
        return harness_canary.check_canary(target(), trees, inventory.find("cpu"), Settings(
            scratch=str(place / "scratch"), canary="broken", **asked[-1]))

    warnings = canary.check(ask, repo, repo.base, edit=("kernel.py",), frozen=("bench.py",),
                            drop_cache=lambda: baseline_cache.drop(tmp_path))
    assert warnings == (canary.STALE,) and len(asked) == 2
    faster = judge(tmp_path / "after", kernel(50.0), files=files,
                   **settings_for(tmp_path, "verify"))
    assert faster.speedup == pytest.approx(2.0, rel=0.05)


@pytest.mark.slow
def test_installed_triton_reads_its_cache_from_the_copy(tmp_path: Path) -> None:
    """Uses the cache manager of the installed Triton."""
    pytest.importorskip("triton")
    write = ("from triton.runtime.cache import FileCacheManager as F\nf = F('ab' * 32)\n"
             "path = f.put(b'cubin', 'k.cubin')\nf.put_group('k.json', {'k.cubin': path})\n")
    read = ("from triton.runtime.cache import FileCacheManager as F\nf = F('ab' * 32)\n"
            "print(f.get_group('k.json')['k.cubin'])\n")
    import sys
    for home, code in ((tmp_path / "base", write), (tmp_path / "slot", read)):
        home.mkdir()
        if home.name == "slot":
            baseline_cache.seed(tmp_path, home)
        outcome = guard.run([sys.executable, "-c", code], cwd=home,
                            env=guard.clean_env(compiler_cache.private({}, home), home=home))
        assert outcome.ok, outcome.stderr.decode()
        baseline_cache.keep(tmp_path, tmp_path / "base")
    assert outcome.stdout.decode().startswith(str(tmp_path / "slot"))
