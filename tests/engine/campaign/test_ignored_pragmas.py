"""A C source with OpenMP pragmas whose task compiles it without -fopenmp is named in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.run.one_shot import OneShot
from tests.support import campaigns

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
