"""Shapes are weighted by call counts: in verdicts, in a kernel's classes and in campaigns."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.campaign import shape_weights
from engine.campaign.setup import open_campaign
from engine.manifest.load import load as load_manifest
from engine.run.one_shot import OneShot, OneShotCandidate
from harness.call_trace import weights
from harness.errors import InputError
from harness.formats import yaml_document
from harness.tasks.target import Target
from harness.tasks.task_file import load
from tests.support.benchmarks import benchmark_case
from tests.support.benchmarks.benchmark_case import PARTLY, target
from tests.support.benchmarks.table_case import weights_of
from tests.support.engines import campaigns

# Verdicts of the real harness


def test_gain_is_weighted_by_calls(tmp_path: Path) -> None:
    verdict = benchmark_case.judge(tmp_path, PARTLY, wanted=target(
        weights=weights_of("m,n,calls", "64,32,1", "128,32,1", "128,64,1", "256,64,7")))
    assert verdict.speedup == pytest.approx(2 ** 0.7, rel=5e-3)
    assert {row.config_class: row.weight for row in verdict.rows}["m=256 n=64"] == 7.0


@pytest.mark.slow
def test_quick_command_without_weighted_rows_defers_to_full_benchmark(tmp_path: Path) -> None:
    verdict = benchmark_case.judge(
        tmp_path, benchmark_case.kernel(50.0), wanted=target(
            quick_command="python bench.py --quick", weights=weights_of("m,calls", "256,7")))
    assert verdict.speedup == pytest.approx(2, rel=1e-2) and len(verdict.rows) == 4
    assert "no row of the quick command is named in the weights: judged by the full command" \
        in verdict.notes
    assert any("do not name 3 of 4 rows" in note for note in verdict.notes)


# Classes of a kernel

CLASSES = [{"name": "a", "shape": {"n": 100, "k": 1}}, {"name": "b", "shape": {"n": 200, "k": 1}},
           {"name": "c", "shape": {"n": 200, "k": 2}, "weight": 99.0}]
OF_CLASSES: list[tuple[tuple[str, ...], tuple[float, ...], int]] = [
    (("n,k,calls", "100,1,3", "200,1,4", "200,2,5"), (3, 4, 5), 0),
    (("k,n,calls", "2,200,5", "1,100,3"), (3, 3, 5), 1),
    (("n,calls", "100,3", "200,5"), (3, 2.5, 2.5), 0),
    (("n,k,calls", "200,2,5", "300,2,5"), (5, 5, 5), 2),
]


def load_task(tmp_path: Path) -> Target:
    path = tmp_path / "task.yaml"
    path.write_text(yaml_document.dump({**campaigns.TASK, "classes": CLASSES}))
    return load(path)


@pytest.mark.parametrize(("lines", "expected", "note_count"), OF_CLASSES)
def test_class_weight_is_the_number_of_calls_of_its_shapes(
        lines: tuple[str, ...], expected: tuple[float, ...], note_count: int,
        tmp_path: Path) -> None:
    weighted, messages = weights.weighted(load_task(tmp_path), weights_of(*lines))
    assert tuple(row_class.weight for row_class in weighted.classes) == expected
    assert len(messages) == note_count
    assert weighted.classes[0].shape == {"n": 100, "k": 1}


@pytest.mark.parametrize(("lines", "message"), [
    (("n,kk,calls", "100,1,3"), "target.weights: no class has the dimension 'kk' (did you mean 'k"),
    (("n,zzz,calls", "100,1,3"), "target.weights: no class has the dimension 'zzz' (known: n, k)"),
    (("n,k,calls", "100,9,3"), "target.weights: the weights match no class: they have shapes like "
                               "n=100 k=9, but a is n=100 k=1 (trace"),
])
def test_weights_of_other_shapes_are_refused(lines: tuple[str, ...], message: str,
                                             tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        weights.weighted(load_task(tmp_path), weights_of(*lines))
    assert str(caught.value).startswith(message)


# Campaigns

def benchmark_manifest(root: Path, text: str | None, **fields: Any) -> Path:
    made = benchmark_case.project(
        root / "p", target={**benchmark_case.MANIFEST["target"], "weights": "calls.csv"},
        **{"approval": "auto", "max_iterations": 1, "decision": {"alpha": 0.2, "looks": 4},
           "pool": {"slots": 1, "backends": ["inbox"]}, **fields})
    if text is not None:
        (root / "p" / "calls.csv").write_text(text)
    return made


def kernel_manifest(root: Path, text: str) -> Path:
    made = campaigns.project(root / "p", task={"classes": [
        {"name": "small", "shape": {"n": 300}}, {"name": "large", "shape": {"n": 3000}}]},
        target={"kind": "kernel", "task": "task.yaml", "weights": str(root / "calls.csv")})
    (root / "calls.csv").write_text(text)
    return made


@pytest.mark.parametrize(("text", "message"), [
    (None, "calls.csv: the file of weights does not exist (set target.weights in the manifest"),
    ("m,n\n1,2\n", "calls.csv: has no column 'calls'"),
    ("m,calls\n64,-1\n", "calls.csv:2: calls is '-1'"),
    ("m,fwd_us,calls\n64,1,1\n", "target.weights: 'fwd_us' is not a config column")])
def test_bad_weights_prevent_campaign_start(text: str | None, message: str, tmp_path: Path) -> None:
    path = benchmark_manifest(tmp_path, text)
    for begin in (lambda: campaigns.campaigns.create(tmp_path / "w", path), lambda: OneShot(path)):
        with pytest.raises(InputError) as caught:
            begin()
        assert message in str(caught.value)
    assert not [path for path in (tmp_path / "w").glob("*") if path.is_dir()]


@pytest.mark.parametrize(("weights_path", "message"), [
    ("~nosuchuser/w", "'~nosuchuser/w': the weights cannot be read: Could not determine home"),
    (".", "the weights cannot be read: Is a directory"),
    ("/dev/zero", "/dev/zero: is larger than 4 MiB")])
def test_error_about_unreadable_weights_is_one_line(weights_path: str, message: str,
                                                    tmp_path: Path) -> None:
    path = benchmark_case.project(
        tmp_path / "p", target={**benchmark_case.MANIFEST["target"], "weights": weights_path})
    with memory_limited(2 << 30), pytest.raises(InputError) as caught:
        shape_weights.read(load_manifest(path))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@contextmanager
def memory_limited(more_bytes: int) -> Iterator[None]:
    """Let this process allocate at most `more_bytes` more bytes of memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_campaign_keeps_its_initial_weights(tmp_path: Path) -> None:
    path = kernel_manifest(tmp_path, "n,calls\n3000,9\n7,1\n")
    setup = campaigns.campaigns.create(tmp_path / "w", path)
    with campaigns.reading(setup) as reader:
        [event] = reader.events_of(setup.id, "weights")
        message = b" ".join(event.payload for event in reader.events_of(setup.id, "warning"))
    assert event.ref == weights_of("n,calls", "3000,9", "7,1", "").sha256
    assert b"do not name 1 of 2 rows" in message and b"10.0% of the calls, not measured" in message
    (tmp_path / "calls.csv").write_text("n,calls\n300,1000\n")
    setup.folder.manifest.write_text(
        setup.folder.manifest.read_text().replace(str(tmp_path / "calls.csv"), '""'))
    again = open_campaign(tmp_path / "w", setup.id)
    assert again.manifest.target.weights == ""
    for opened in (setup, again):
        assert isinstance(opened.target, Target)
        assert [row_class.weight for row_class in opened.target.classes] == [9.0, 9.0]
    for spoil in (lambda file: file.write_text("n,calls\n300,1\n"), lambda file: file.unlink()):
        spoil(setup.folder.path / shape_weights.NAME)
        with pytest.raises(InputError, match="not those that the campaign started with"):
            open_campaign(tmp_path / "w", setup.id)


def test_single_verdict_reads_current_weights(tmp_path: Path) -> None:
    path = kernel_manifest(tmp_path, "n,calls\n3000,9\n")
    with OneShot(path) as direct:
        assert [row_class.weight for row_class in direct.judged.target.classes] == [9.0, 9.0]
        [note] = direct.notes
        direct.candidate(OneShotCandidate(config={"NO": 1, "PASSES": 1}))
        assert direct.notes == [note, "no knob 'NO': ignored"]
    (tmp_path / "calls.csv").write_text("n,calls\n3000,9\n300,1\n")
    with OneShot(path) as direct:
        assert [row_class.weight for row_class in direct.judged.target.classes] == [
            1.0,
            9.0,
        ] and not direct.notes


@pytest.mark.slow
def test_benchmark_campaign_is_scored_by_calls(tmp_path: Path) -> None:
    path = benchmark_manifest(tmp_path, "m,n,calls\n64,32,1\n128,32,1\n128,64,1\n256,64,7\n")
    setup = campaigns.campaigns.create(tmp_path / "w", path)
    (tmp_path / "p" / "calls.csv").unlink()
    benchmark_case.patch(path, setup.folder.inbox / "partly.patch", kernel_py=PARTLY)
    campaigns.run(setup)
    ended = campaigns.campaign(setup)
    assert ended.speedup == pytest.approx(2 ** 0.7, rel=1e-2), ended.reason
    assert "partly.patch" in (setup.folder.path / "performance.md").read_text()


def test_weights_without_matching_row_end_campaign_with_reason(tmp_path: Path) -> None:
    path = benchmark_manifest(tmp_path, "m,n,calls\n1,1,1\n")
    setup = campaigns.campaigns.create(tmp_path / "w", path)
    campaigns.run(setup)
    ended = campaigns.campaign(setup)
    assert "weights match no row of the benchmark: they have shapes like m=1 n=1" in ended.reason
    assert ended.speedup is None
