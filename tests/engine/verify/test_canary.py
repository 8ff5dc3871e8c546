"""kopt refuses a campaign if its benchmark does not run the files that candidates change."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from engine.campaign.setup import create
from engine.repository.campaign_repo import CampaignRepo
from engine.verify import canary, harness_client
from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.verdict import canary_check as harness_canary
from harness.devices import inventory
from harness.errors import InputError
from harness.formats import yaml_document
from harness.requests import EvaluateRequest, ReportedRequest
from harness.settings import Settings, Trees
from harness.tasks.target import Target
from harness.verdict import Evidence, Row, Verdict, rejected
from tests.support import repos
from tests.support.benchmarks.benchmark_case import BENCH, FILES, KERNEL, PLAN, TARGET
from tests.support.engines import campaigns

EDIT = ("kernel.py",)


def commit(root: Path, files: dict[str, str]) -> CampaignRepo:
    repos.project(root / "user", files)
    return CampaignRepo.create(root / "campaign", "rms", root / "user")


def run_canary(repo: CampaignRepo, root: Path, target: CommandTarget = TARGET, *,
               edit: tuple[str, ...] = EDIT, test_command: str = "",
               frozen: tuple[str, ...] = ("bench.py",), kernel: str = "", runs: int = 1,
           ) -> tuple[str, ...]:
    """Run the canary as a campaign does at its baseline, with the real harness in this process."""
    def ask(tree: str) -> Verdict:
        judged.append(tree)
        folders = {name: root / f"{name}-{len(judged)}" for name in ("candidate", "incumbent")}
        for name, version in (("candidate", tree), ("incumbent", repo.base)):
            repo.checkout_tree(version, folders[name])
        trees = Trees(candidate=str(folders["candidate"]), incumbent=str(folders["incumbent"]),
                      reference=str(folders["incumbent"]))
        return harness_canary.check_canary(target, trees, inventory.find("cpu"), Settings(
            scratch=str(root / "scratch"), plan=PLAN, canary="broken", test_command=test_command))

    judged: list[str] = []
    warnings = canary.check(ask, repo, repo.base, edit=edit, frozen=frozen, kernel=kernel)
    assert len(judged) == runs
    return warnings


def test_benchmark_that_reads_the_editable_file_is_accepted_after_one_run(tmp_path: Path) -> None:
    assert run_canary(commit(tmp_path, FILES), tmp_path) == ()


def installed(root: Path) -> str:
    """Install the kernel as a package; return the lines that make Python find it first."""
    (root / "site").mkdir()
    (root / "site" / "kernel.py").write_text(KERNEL)
    return f"import sys\nsys.path.insert(0, {str(root / 'site')!r})\n"


def test_benchmark_of_installed_package_is_refused(tmp_path: Path) -> None:
    """Otherwise every candidate would measure 1.00x, since none is ever imported."""
    repo = commit(tmp_path, {**FILES, "bench.py": installed(tmp_path) + BENCH})
    with pytest.raises(InputError, match="the benchmark does not run the files that candidates "
                                         r"change: it passes with kernel\.py broken") as refusal:
        run_canary(repo, tmp_path)
    assert "\n" not in str(refusal.value) and "edit" in str(refusal.value)


def test_campaign_may_start_if_the_benchmark_reads_one_of_the_editable_files(
        tmp_path: Path) -> None:
    repo = commit(tmp_path, {**FILES, "other.py": "x = 1\n", "third.py": "y = 1\n"})
    assert [text.partition(":")[0] for text in run_canary(
        repo, tmp_path, edit=("*.py",), kernel="kernel.py", runs=4)] == [
        "the benchmark does not read other.py", "the benchmark does not read third.py"]
    with pytest.raises(InputError, match=r"with other\.py, third\.py broken"):
        run_canary(repo, tmp_path / "again", edit=("other.py", "third.py"))


def test_unread_kernel_is_refused_and_another_unread_file_warned_about(tmp_path: Path) -> None:
    """A helper is read from the tree, the kernel from a package: no candidate is ever measured."""
    repo = commit(tmp_path, {**FILES, "helper.py": "X = 1\n", "bench.py": (
        "import helper\n" + installed(tmp_path) + BENCH)})
    with pytest.raises(InputError, match=r"it passes with kernel\.py broken"):
        run_canary(repo, tmp_path, edit=("kernel.py", "helper.py"), kernel="kernel.py")
    [warning] = run_canary(repo, tmp_path / "b", edit=("kernel.py", "helper.py"),
                           kernel="helper.py", runs=3)
    assert warning.startswith("the benchmark does not read kernel.py: candidates' changes there")


def test_all_files_are_broken_at_once_then_the_kernel_and_some_others_alone(tmp_path: Path) -> None:
    files = ["README.md", *(f"a{n}.py" for n in range(9)), "k.py"]
    repo = commit(tmp_path, dict.fromkeys(files, "x\n"))
    judged: list[set[str]] = []

    def ask(tree: str) -> Verdict:
        judged.append({name for name in files
                      if repo.read(tree, name) != repo.read(repo.base, name)})
        return rejected("no")

    assert canary.check(ask, repo, repo.base, edit=("**",), frozen=(), kernel="k.py") == ()
    assert judged == [set(files), {"k.py"}, *({f"a{n}.py"} for n in range(canary.MOST_ALONE - 1))]


def test_compiler_cache_is_dropped_and_the_file_tried_again_before_it_counts_as_unread(
        tmp_path: Path) -> None:
    repo = commit(tmp_path, {"k.py": "x\n", "helper.py": "y\n"})
    alone, dropped = canary.broken(repo, repo.base, ("k.py",)), list[bool]()

    def drop() -> bool:
        dropped.append(not dropped)
        return dropped[-1]

    def ask(tree: str) -> Verdict:
        passes = tree == alone and not dropped
        return Verdict(valid=True, correct=True) if passes else rejected("no")

    assert canary.check(ask, repo, repo.base, edit=("*.py",), frozen=(), kernel="k.py",
                        drop_cache=drop) == (canary.STALE,)
    assert dropped == [True]


GCC = "gcc -O1 -shared -fPIC -o {out} scale.c"
C_BENCH = """\
import ctypes, csv
scale = ctypes.CDLL({lib!r}).scale
scale.restype = ctypes.c_double
with open("bench.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["n", "err", "fwd_us", "bwd_us"])
    for n in (1, 2):
        writer.writerow([n, 0, scale() * n, scale() * n])
"""


@pytest.mark.parametrize(("lib", "seen"), [("./lib.so", True), ("{root}/lib.so", False)])
def test_failed_build_does_not_prove_that_the_benchmark_runs_the_file(tmp_path: Path, lib: str,
                                                        seen: bool) -> None:
    """Both builds read the source; in the second case the benchmark loads an installed library."""
    lib = lib.format(root=tmp_path)
    files = {"scale.c": "double scale(void) { return 100.0; }\n",
             "bench.py": C_BENCH.format(lib=lib)}
    repo = commit(tmp_path, files)
    subprocess.run(GCC.format(out=tmp_path / "lib.so").split(), cwd=tmp_path / "user", check=True)
    target = replace(TARGET, build_command=GCC.format(out="lib.so"))
    if seen:
        assert run_canary(repo, tmp_path, target, edit=("scale.c",)) == ()
    else:
        with pytest.raises(InputError, match=r"passes with scale\.c broken"):
            run_canary(repo, tmp_path, target, edit=("scale.c",))


CAUGHT = """\
try:
    import kernel
except Exception:
    class kernel:
        COST = 100.0
        err = staticmethod(lambda m: {err})
        spoil = staticmethod(lambda rows: {rows})
"""


@pytest.mark.slow
@pytest.mark.parametrize(("err", "rows", "seen"), [
    ("1", "rows", True),             # a row that says FAIL
    ("0", "rows[:-1]", True),        # a missing row
    ("0", "rows", False),            # a fall-back implementation
])
def test_benchmark_that_catches_errors_is_accepted_only_if_its_rows_show_the_breakage(
        tmp_path: Path, err: str, rows: str, seen: bool) -> None:
    caught = BENCH.replace("import kernel\n", CAUGHT.format(err=err, rows=rows))
    repo = commit(tmp_path, {**FILES, "bench.py": caught})
    if seen:
        assert run_canary(repo, tmp_path) == ()
    else:
        with pytest.raises(InputError, match="does not run the files"):
            run_canary(repo, tmp_path)


def test_test_command_that_imports_another_copy_is_warned_about(tmp_path: Path) -> None:
    files = {**FILES, "check.py": installed(tmp_path) + "import kernel\n",
             "honest.py": "import kernel\n"}
    repo = commit(tmp_path, files)
    [warning] = run_canary(repo, tmp_path, test_command="python check.py")
    assert "does not test them" in warning
    assert run_canary(repo, tmp_path / "b", test_command="python honest.py") == ()


def test_canary_request_reaches_harness_process(tmp_path: Path) -> None:
    """The setting `canary` is sent by request file to a harness process, as in a campaign."""
    repo = commit(tmp_path, FILES)
    tree = canary.broken(repo, repo.base, EDIT)
    folders = []
    for name, version in (("candidate", tree), ("incumbent", repo.base)):
        repo.checkout_tree(version, tmp_path / name)
        folders.append(str(tmp_path / name))
    verdict = harness_client.evaluate(ReportedRequest(
        target=TARGET, device=inventory.find("cpu").id,
        trees=Trees(candidate=folders[0], incumbent=folders[1], reference=folders[1]),
        settings=Settings(scratch=str(tmp_path / "scratch"), canary="broken")))
    assert not canary.unseen(verdict) and not verdict.valid
    assert "SyntaxError" in (verdict.rejected_reason or "")


@pytest.mark.parametrize("name", ["k.py", "k.c", "k.sh", "k.yaml", "k.json", "k.toml", "k.cpp"])
def test_broken_copy_is_invalid_in_every_language(tmp_path: Path, name: str) -> None:
    import json
    import tomllib

    path = tmp_path / name
    path.write_bytes(canary.BROKEN)
    text = path.read_text()
    checks = {
        "py": lambda: ast.parse(text), "json": lambda: json.loads(text),
        "toml": lambda: tomllib.loads(text), "yaml": lambda: yaml_document.parse(text, name),
        "sh": lambda: subprocess.run(["sh", "-n", path], check=True, capture_output=True),
        **dict.fromkeys(("c", "cpp"), lambda: subprocess.run(
            ["gcc", "-fsyntax-only", path], check=True, capture_output=True)),
    }
    with pytest.raises((SyntaxError, ValueError, InputError, subprocess.CalledProcessError)):
        checks[name.rpartition(".")[2]]()


def test_only_editable_files_are_broken(tmp_path: Path) -> None:
    repo = commit(tmp_path, {"src/a.py": "a\n", "src/ü b.py": "b\n", "bench.py": "c\n",
                                "kv_cache/k.cu": "k\n", "src/frozen.py": "f\n"})
    names = canary.watched(repo, repo.base, ("src/**", "kv_cache/**"), ("src/frozen.py",))
    assert set(names) == {"src/a.py", "src/ü b.py", "kv_cache/k.cu"}
    tree = canary.broken(repo, repo.base, names)
    differ = {name for name in repo.files(tree)
              if repo.read(tree, name) != repo.read(repo.base, name)}
    assert differ == set(names) and set(repo.files(tree)) == set(repo.files(repo.base))
    assert repo.best == repo.base and not repo.log(repo.best, repo.base)


def test_kernel_source_needs_no_canary(tmp_path: Path) -> None:
    """kopt loads the kernel by path and hash; an installed package can shadow only other files."""
    repo = commit(tmp_path, {"kernel.py": "k\n", "lib/helper.py": "h\n"})
    def judge(tree: str) -> Verdict:
        raise AssertionError("nothing was to be judged")
    assert canary.check(judge, repo, repo.base, edit=("kernel.py",), frozen=(),
                        source="kernel.py") == ()
    right = Verdict(valid=True, correct=True, rows=(Row(config_class="a", correct=True),))
    [warning] = canary.check(lambda tree: right, repo, repo.base, edit=("**/*.py",),
                             frozen=(), source="kernel.py")
    assert warning.startswith("the kernel does not use lib/helper.py: candidates' changes there")


@pytest.mark.parametrize(("verdict", "unseen"), [
    (rejected("no", ), False),
    (Verdict(valid=True, correct=False), False),
    (Verdict(valid=True, correct=True), True),
    (replace(rejected("x"), evidence=(Evidence(kind=harness_canary.SHOWN, detail=""),)), False),
    (replace(rejected("x"), evidence=(Evidence(kind=harness_canary.UNSEEN, detail=""),)), True),
])
def test_breakage_is_unseen_if_the_verdict_is_correct_or_states_it(
        verdict: Verdict, unseen: bool) -> None:
    assert canary.unseen(verdict) is unseen


@pytest.mark.slow
@pytest.mark.parametrize("used", [True, False])
def test_unused_header_is_warned_about(tmp_path: Path, used: bool) -> None:
    """Uses a real campaign's setup and a real verdict on the broken tree."""
    include = '#include "util.h"\n' if used else ""
    manifest = campaigns.project(tmp_path / "p", kernel=include + campaigns.KERNEL,
                                 edit=["scale.c", "util.h"])
    repos.commit(manifest.parent, {"util.h": "#define UTIL 1\n"}, "a header")
    setup = create(tmp_path / "w", manifest)

    def ask(tree: str) -> Verdict:
        assert isinstance(setup.target, Target)
        return harness_client.evaluate(EvaluateRequest(
            target=setup.target, device=setup.device.id,
            trees=Trees(candidate=str(setup.tree(tree)), incumbent=str(setup.tree(base)),
                        reference=str(setup.tree(base))),
            settings=Settings(scratch=str(tmp_path / "scratch"), canary="broken")))

    base = setup.repo.base
    warnings = canary.check_campaign(setup, ask)
    assert [text.partition(":")[0] for text in warnings] == (
        [] if used else ["the kernel does not use util.h"])
