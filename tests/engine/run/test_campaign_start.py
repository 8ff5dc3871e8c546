"""The start of a campaign: the canary, the compiler cache, disk room and submodules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.campaign import baseline_cache
from engine.campaign import setup as campaigns
from engine.journal.decoded.recorded import verdict_of
from engine.repository.campaign_repo import BEST_FILE
from engine.run import host
from engine.verify import canary
from harness.benchmark.verdict.canary_check import SHOWN
from harness.errors import InputError
from harness.verdict import Verdict
from tests.support import repos
from tests.support.benchmarks import benchmark_case
from tests.support.engines import campaigns as kernels
from tests.support.engines.campaigns import campaign, candidates, reading, run


def create(root: Path, files: dict[str, str] | None = None, **fields: Any) -> campaigns.Setup:
    return campaigns.create(root / "w", benchmark_case.one_round(root / "p", files, **fields))


def hand_in(setup: campaigns.Setup, cost: float) -> None:
    benchmark_case.patch(Path(setup.manifest.project) / "manifest.yaml",
                         setup.folder.inbox / "faster.patch",
                         kernel_py=benchmark_case.kernel(cost))


def canaries(setup: campaigns.Setup) -> list[Verdict]:
    with reading(setup) as reader:
        return [verdict_of(row) for row in reader.verdicts(setup.id)
                if row.purpose == canary.PURPOSE]


def warnings(setup: campaigns.Setup) -> str:
    with reading(setup) as reader:
        return "\n".join(event.payload.decode() for event in reader.events(campaign=setup.id)
                         if event.kind == "warning")


@pytest.mark.slow
def test_benchmark_that_runs_another_copy_ends_campaign_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "kernel.py").write_text(benchmark_case.KERNEL)
    first = f"import sys\nsys.path.insert(0, {str(tmp_path / 'site')!r})\n"
    setup = create(tmp_path, {"bench.py": first + benchmark_case.BENCH})
    hand_in(setup, 50.0)
    for _ in range(2):  # every new start reports it
        engine = run(setup)
        assert isinstance(engine.error, InputError)
        ended = campaign(setup)
        assert ended.state == "failed" and "\n" not in ended.reason
        assert "the benchmark does not run the files that candidates change" in ended.reason
    assert candidates(setup) == []


@pytest.mark.slow
def test_canary_runs_once_and_the_compiler_cache_is_kept(tmp_path: Path) -> None:
    compiles = ("import os\nplace = os.environ['TRITON_CACHE_DIR']\nos.makedirs(place, "
                "exist_ok=True)\nopen(os.path.join(place, 'compiled'), 'w').write('x')\n")
    setup = create(tmp_path, {"kernel.py": benchmark_case.kernel(100.0, compiles)},
                   git_commit=False)
    hand_in(setup, 50.0)
    user = tmp_path / "p"
    before = {p: p.read_bytes() for p in user.rglob("*") if p.is_file()}
    assert run(setup).error is None
    [kept] = candidates(setup, "kept")
    assert (setup.folder.path / BEST_FILE).read_text() == f"{kept.commit}\n"
    assert {p: p.read_bytes() for p in user.rglob("*") if p.is_file()} == before
    [verdict] = canaries(setup)
    assert [fact.kind for fact in verdict.evidence] == [SHOWN] and not verdict.valid
    assert verdict.incumbent_tree == setup.base_tree  # a later start finds it, and runs none
    compiled = baseline_cache.cache_folder(setup.folder.path) / "triton" / "compiled"
    assert compiled.read_text() == "x"
    assert run(campaigns.open_campaign(setup.workspace, setup.id)).error is None
    assert len(canaries(setup)) == 1 and "canary" not in warnings(setup)


@pytest.mark.slow
def test_disk_budget_ends_campaign_before_a_round(tmp_path: Path) -> None:
    setup = kernels.create_with_patch(tmp_path, budget={"pairs": 4, "disk_gb": 0.00001})
    run(setup)
    ended = campaign(setup)
    assert ended.state == "failed" and "its budget is 10 KiB" in ended.reason
    assert kernels.slots(setup) == {}


def test_missing_submodule_is_a_warning_at_creation(tmp_path: Path) -> None:
    manifest = kernels.project(tmp_path / "p", carry=["*.o"])
    user = manifest.parent
    repos.git(user, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},deps/lib")
    repos.git(user, "commit", "-q", "-m", "submodule")
    (user / "deps" / "lib").mkdir(parents=True)  # as git leaves a submodule without a checkout
    with pytest.raises(InputError, match=r"has no files that match \*\.o"):
        campaigns.create(tmp_path / "w", manifest)
    assert not list((tmp_path / "w").glob("scale*"))
    (user / "built.o").write_text("object")
    setup = campaigns.create(tmp_path / "w", manifest)
    assert "from every checkout: deps/lib" in warnings(setup)
    assert (setup.tree(setup.repo.base) / "built.o").read_text() == "object"


def test_source_in_submodule_is_refused(tmp_path: Path) -> None:
    manifest = kernels.project(tmp_path / "p", task={"source": "deps/lib/scale.c"})
    repos.git(manifest.parent, "update-index", "--add", "--cacheinfo",
              f"160000,{'1' * 40},deps/lib")
    repos.git(manifest.parent, "commit", "-q", "-m", "submodule")
    (manifest.parent / "deps" / "lib").mkdir(parents=True)
    with pytest.raises(InputError, match="lies in the submodule deps/lib"):
        campaigns.create(tmp_path / "w", manifest)


def test_resume_of_a_campaign_whose_benchmark_fails_says_that_it_failed_again(
        tmp_path: Path) -> None:
    setup = create(tmp_path, {"bench.py": "raise SystemExit('no data')\n"})
    assert "no data" in str(run(setup).error) and campaign(setup).state == "failed"
    code, out, err = kernels.command("resume", "--wait", "100", workspace=setup.workspace)
    assert (code, err) == (1, "")
    words = " ".join(out.split())
    assert f"resume {setup.id}: refused: the campaign failed again: the incumbent's own " \
        "benchmark: exited with 1: no data; kopt run MANIFEST begins a new one" in words
    kernels.until(lambda: host.owner(setup.workspace, setup.id) is None)
    assert "not answered yet" not in kernels.command("status", workspace=setup.workspace)[1]
