"""A line names OpenMP pragmas that a build ignores, and integers that are drawn from 0 and 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign import task_notes
from engine.repository.clone import Clone
from engine.run.one_shot import OneShot
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget
from harness.tasks.target import Arg, ConfigClass, Target
from tests.support import repos
from tests.support.engines import campaigns

PARALLEL = campaigns.KERNEL.replace("    for (", "#pragma omp parallel for\n    for (", 1)
NOTE = "the OpenMP pragmas of scale.c are ignored, as `build` lacks -fopenmp: " \
    "write build: [-O2, -fopenmp] in the task"


@pytest.mark.parametrize(("kernel", "build", "notes"), [
    (PARALLEL, ["-O2"], [NOTE]), (PARALLEL, ["-O2", "-fopenmp"], []),
    (campaigns.KERNEL + "// #pragma omp\n", ["-O2"], []),
    (campaigns.KERNEL + "/*\n#pragma omp simd\n*/\n", ["-O2"], [])])
def test_campaign_and_single_verdict_name_ignored_pragmas(
        kernel: str, build: list[str], notes: list[str], tmp_path: Path) -> None:
    path = campaigns.project(tmp_path / "p", kernel=kernel, task={"build": build})
    with OneShot(path) as one_shot:
        assert one_shot.notes == notes
    setup = campaigns.create(tmp_path / "c", kernel=kernel, task={"build": build})
    with campaigns.reading(setup) as reader:
        warnings = [event.payload.decode() if isinstance(event.payload, bytes) else event.payload
                    for event in reader.events_of(setup.id, "warning")]
    assert [any(note in warning for warning in warnings) for note in notes] == [True] * len(notes)
    assert any("OpenMP" in warning for warning in warnings) == bool(notes)


@pytest.mark.parametrize(("build", "files", "is_noted"), [
    ("cc -O2 -o b scale.c", {}, True), ("cc -O2 -fopenmp -o b scale.c", {}, False),
    ("make", {"Makefile": "b: scale.c\n\tcc -o b scale.c\n"}, True),
    ("make", {"Makefile": "CFLAGS = -O2 -fopenmp\n"}, False),
    ("cmake --build build", {"CMakeLists.txt": "find_package(OpenMP)"}, False)])
def test_build_command_without_openmp_is_named(
        build: str, files: dict[str, str], is_noted: bool, tmp_path: Path) -> None:
    clone = Clone(repos.project(tmp_path / "p", {"scale.c": PARALLEL, **files}) / ".git")
    target = CommandTarget(op="scale", command="./b > b.txt", csv="b.txt", metrics=(),
                           check=CheckColumn(column="ok"), build_command=build, source="scale.c",
                           language="c")
    notes = task_notes.of_target(target, clone, "HEAD")
    assert [note.startswith("the OpenMP pragmas of scale.c are ignored, as neither build_command "
                            "nor a file of the build has -fopenmp") for note in notes] == \
        [True] * is_noted


def test_integers_without_a_range_are_named(tmp_path: Path) -> None:
    clone = Clone(repos.project(tmp_path / "p", {"scale.c": campaigns.KERNEL}) / ".git")
    args = (Arg(name="out", dtype="float32", shape=("n",), role="output"),
            Arg(name="kept", dtype="int8", shape=("n",), low=0, high=2),
            Arg(name="at", dtype="int32", shape=("n",)))
    task = Target(op="scale", language="c", source="scale.c", entry="scale", args=args,
                  reference="reference.py:scale", classes=(ConfigClass(name="a", shape={"n": 8}),))
    [note] = task_notes.of_target(task, clone, "HEAD")
    assert note.startswith("drawn from 0 and 1 only, as the task gives no range: at; ")
