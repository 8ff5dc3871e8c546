"""A real campaign keeps its verdicts' raw outputs; its journal suffices to rewrite its records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.campaign import artifacts
from engine.campaign import setup as campaigns
from engine.campaign.artifacts import Artifacts
from engine.journal.decoded.recorded import verdict_of
from harness.benchmark.verdict import whole_program
from tests.support import repos
from tests.support.benchmarks import benchmark_case
from tests.support.benchmarks.benchmark_case import kernel
from tests.support.engines.campaigns import campaign, candidates, reading, run
from tests.support.programs.command_line import answer, error_text, harmless, kopt

pytestmark = pytest.mark.slow
TEST = """\
import kernel, sys
print("tests of \\x1b[31mthe kernel")
if hasattr(kernel, "UNTESTED"):
    sys.exit("assertion 7 failed")
"""
PROGRAM = """\
import kernel
print(f"step 1 tokens/s: 3.0")
print(f"done, tokens/s: {1e6 / (900 + 3 * kernel.COST)}")
"""
PATCHES = {
    "faster": kernel(80.0), "slower": kernel(130.0),
    "wrong": "print('\\x1b]0;title\\x07 wrong on purpose')\n" + kernel(50.0).replace(
        "return 0", "return int(m == 128)"),
    "untested": kernel(90.0, "UNTESTED = True\n")}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> campaigns.Setup:
    """Run one campaign that keeps a candidate and loses four."""
    root = tmp_path_factory.mktemp("campaign")
    manifest = benchmark_case.project(
        root / "p", approval="auto", max_iterations=2, test_command="python test_norm.py",
        pool={"slots": 2, "backends": ["inbox"]}, decision={"alpha": 0.2, "looks": 8},
        e2e_command="python program.py", e2e_metric="tokens/s")
    repos.commit(root / "p", {"test_norm.py": TEST, "program.py": PROGRAM, "README.md": "a norm\n"})
    made = campaigns.create(root / "w", manifest)
    for name, text in PATCHES.items():
        benchmark_case.patch(manifest, made.folder.inbox / f"{name}.patch", kernel_py=text)
    benchmark_case.patch(manifest, made.folder.inbox / "outside.patch", README_md="not a norm\n")
    run(made)
    return made


def test_gain_is_kept_and_slower_wrong_or_forbidden_changes_are_not(setup: campaigns.Setup) -> None:
    ended = campaign(setup)
    assert ended.state == "finished", ended.reason
    assert 1.2 < (ended.speedup or 0.0) < 1.3
    states = {c.hypothesis: (c.state, c.reason) for c in candidates(setup)}
    assert states["submitted: faster.patch"][0] == "kept"
    assert states["submitted: outside.patch"][1] == "README.md matches no edit glob"
    with reading(setup) as reader:
        kinds = {d.candidate: d.kind for d in reader.decisions(setup.id)}
        verdicts = [verdict_of(row) for row in reader.verdicts(setup.id)]
    by_name = {c.hypothesis: kinds[c.id] for c in candidates(setup)}
    assert by_name["submitted: slower.patch"] == "regression"
    assert by_name["submitted: wrong.patch"] == "reject"
    assert {v.latency_kind for v in verdicts if v.correct} == {"reported"}
    program = next(v for v in verdicts if v.rows and v.rows[0].config_class == whole_program.CLASS)
    assert abs((program.speedup or 0.0) - 1200 / 1140) < 1e-6 and program.rows[0].pairs == 3
    with reading(setup) as reader:
        [event] = reader.events_of(setup.id, "e2e")
    assert json.loads(event.payload)["message"].startswith("end to end 1.05x")
    kept = setup.folder.performance.read_text()
    assert "faster.patch" in kept


def first_archive_of(setup: campaigns.Setup, name: str) -> tuple[str, Artifacts, dict[str, bytes]]:
    """Return a candidate's id, its first archive and the files in it."""
    found = {entry.hypothesis: entry.id for entry in candidates(setup)
             if not entry.form_of}[f"submitted: {name}.patch"]
    with reading(setup) as reader:
        stored = next(archive for archive in artifacts.of_campaign(reader, setup.id)
                      if archive.candidate == found)
    return found, stored, dict(artifacts.read(setup.folder.path, stored))


def texts(files: dict[str, bytes], ending: str) -> list[str]:
    return [data.decode() for name, data in files.items() if name.endswith(ending)]


def test_every_verdict_leaves_its_output_below_its_round(setup: campaigns.Setup) -> None:
    """Kept, slower, wrong and failed candidates, and the baseline."""
    with reading(setup) as reader:
        stored = artifacts.of_campaign(reader, setup.id)
        rounds = {entry.id: entry.round for entry in candidates(setup)
                  if "outside" not in entry.hypothesis}  # rejected before a build
    assert {archive.candidate for archive in stored} >= {"baseline", *rounds}
    for archive in stored:
        n = rounds.get(archive.candidate, archive.round)
        assert (setup.folder.path / archive.path).stat().st_size == archive.bytes
        assert archive.path.startswith(f"rounds/round-{n}/artifacts")
        assert archive.files == len(artifacts.read(setup.folder.path, archive))


def test_archive_has_tables_failed_rows_and_what_tests_printed(setup: campaigns.Setup) -> None:
    _, _, kept = first_archive_of(setup, "faster")
    assert len(texts(kept, "candidate.csv")) >= 3 and len(texts(kept, "incumbent.csv")) >= 3
    assert "fwd_us" in texts(kept, "candidate.csv")[0]
    assert texts(kept, "tests.stdout") == ["tests of \x1b[31mthe kernel\n"]
    runs = kept["runs.tsv"].decode().splitlines()
    assert any(line.split("\t")[1:3] == ["tests", "exited with 0"] for line in runs)
    _, _, wrong = first_archive_of(setup, "wrong")
    failed = texts(wrong, "failed-rows.tsv")[0].splitlines()
    assert failed[0].startswith("row\twhy\t") and all("err is '1'" in row for row in failed[1:])
    assert "wrong on purpose" in texts(wrong, "candidate.stdout")[0]
    _, _, untested = first_archive_of(setup, "untested")
    assert texts(untested, "tests.stderr") == ["assertion 7 failed\n"]


def test_index_lists_the_archives_of_its_round(setup: campaigns.Setup) -> None:
    _, stored, _ = first_archive_of(setup, "faster")
    index = (setup.folder.path / stored.path).with_name("index.md").read_text()
    assert f"| {Path(stored.path).name} |" in index and "| kept |" in index


def test_logs_of_a_candidate_show_what_failed(setup: campaigns.Setup) -> None:
    workspace = setup.workspace
    for name, words in (("wrong", "err is '1'"), ("untested", "assertion 7 failed")):
        candidate, stored, files = first_archive_of(setup, name)
        printed = kopt("logs", candidate[:10], workspace=workspace)
        assert printed.returncode == 0, printed.stderr
        assert words in printed.stdout and stored.path in printed.stdout
        assert all(file in printed.stdout for file in files) and harmless(printed.stdout)
    listed = answer(kopt("logs", candidate, "--json", workspace=workspace))
    assert listed["candidate"] == candidate
    assert {file["name"] for file in listed["outputs"][0]["files"]} == set(files)


def test_logs_print_one_file_without_control_characters(setup: campaigns.Setup) -> None:
    candidate, _, files = first_archive_of(setup, "wrong")
    name = next(name for name in files if name.endswith("candidate.stdout"))
    printed = kopt("logs", candidate, "--file", name, workspace=setup.workspace)
    assert "wrong on purpose" in printed.stdout and harmless(printed.stdout)
    raw = kopt("logs", candidate, "--file", name, "--json", workspace=setup.workspace)
    assert "\x1b" not in raw.stdout and json.loads(raw.stdout)["text"] == files[name].decode()
    missing = kopt("logs", candidate, "--file", "x", workspace=setup.workspace)
    assert missing.returncode == 2 and "has no output 'x'" in error_text(missing)


def test_logs_show_the_baseline_and_the_campaign(setup: campaigns.Setup) -> None:
    assert "baseline.tar.gz" in kopt("logs", "baseline", workspace=setup.workspace).stdout
    assert "Round 1: baseline" in kopt("logs", setup.id, workspace=setup.workspace).stdout
    nothing = kopt("logs", "zzz", workspace=setup.workspace)
    assert nothing.returncode == 2 and "no campaign or candidate" in error_text(nothing)


def records(setup: campaigns.Setup) -> dict[Path, bytes]:
    """Return all files that kopt writes of a campaign for people, but raw outputs."""
    folder = setup.folder.path
    paths = [*folder.glob("*.md"), *folder.glob("*.html"), *folder.glob("*.tsv"),
             *(folder / "logs").glob("*.md"), *(folder / "rounds").rglob("*"),
             *(setup.workspace / "historical_experience").rglob("*.md")]
    return {path: path.read_bytes() for path in paths
            if path.is_file() and not path.name.endswith((".tar.gz", ".log"))}


@pytest.mark.parametrize("writer", ["verb", "next engine"])
def test_deleted_records_are_written_again_with_the_same_bytes(setup: campaigns.Setup,
                                                               writer: str) -> None:
    before = records(setup)
    names = {path.name for path in before}
    assert names >= {"performance.md", "results.tsv", "optimize.md", "performance_trend.md",
                     "report.md", "report.html", "summary.md", "index.md", "tips.md", "kernel.py"}
    for path in before:
        path.unlink()
    if writer == "verb":
        done = kopt("report", setup.id, "--records", workspace=setup.workspace)
        assert done.returncode == 0, done.stderr
    else:
        run(setup, decide_only=True)
    after = records(setup)
    assert {path: after.get(path) for path in before} == before


def test_kept_commit_has_the_records_of_its_keep(setup: campaigns.Setup) -> None:
    """performance.md, the log and the verdict lie in the commit, below .kopt/<campaign>."""
    candidate, _, _ = first_archive_of(setup, "faster")
    project, branch = Path(setup.manifest.project), f"optimize/{setup.id}"
    changed = repos.git(project, "diff", "--name-only", "HEAD", branch).split()
    folder = f".kopt/{setup.id}"
    assert changed == [f"{folder}/logs/optimize.md", f"{folder}/performance.md",
                       f"{folder}/verdicts/{candidate}.json", "kernel.py"]
    page = repos.git(project, "show", f"{branch}:{folder}/performance.md")
    row = next(line for line in page.splitlines() if "| this commit |" in line)
    assert "| keep |" in row and "1.25x" in row
    verdict = json.loads(repos.git(project, "show", f"{branch}:{folder}/verdicts/{candidate}.json"))
    assert verdict["correct"] and verdict["speedup"] > 1.2
    assert f"\nRun: {setup.id}" in repos.git(project, "log", "-1", "--format=%B", branch)
    patch = kopt("merge", setup.id, "--patch", workspace=setup.workspace).stdout
    assert "+COST = 80.0" in patch and ".kopt" not in patch


def test_phases_have_one_name_in_status_and_records(setup: campaigns.Setup) -> None:
    with reading(setup) as reader:
        texts = [json.loads(event.payload)["phase"]
                 for event in reader.events_of(setup.id, "campaign.state")]
    seen = [text.partition(":")[0] for text in texts if text]
    order = list(dict.fromkeys(seen))
    assert order == ["PREPARE_ENVIRONMENT", "READ_HISTORICAL_TIPS", "BASELINE", "ANALYZE",
                     "OPTIMIZE", "VALIDATE", "REPORT"]
    assert "OPTIMIZE: round 2" in texts and "VALIDATE: round 2" in texts
    for page in (setup.folder.log, setup.folder.round(2) / "summary.md"):
        lines = [line.removeprefix("- phases: ") for line in page.read_text().splitlines()
                 if line.startswith("- phases: ")]
        assert ["BASELINE", "ANALYZE", "OPTIMIZE", "VALIDATE"] in [
            [part.split()[0] for part in line.split(", ")] for line in lines]  # a canary came first
