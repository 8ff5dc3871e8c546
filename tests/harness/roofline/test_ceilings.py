"""A device's ceilings give the physical floor; those of the CPU are measured once and cached."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.formats.json_codec import to_json
from harness.roofline import ceilings
from harness.roofline.ceilings import Ceilings, Level
from harness.tasks.target import Arg, ConfigClass, Target

CEILINGS = Ceilings(gflops=100.0, copy_gb_per_s=10.0, levels=(
    Level(1e4, 400.0), Level(1e6, 100.0), Level(1e9, 10.0)))


@pytest.mark.parametrize(("flops", "moved", "us"), [
    (1e6, 0, 10.0),                 # 1 MFLOP at 100 GFLOP/s
    (0, 1e4, 0.025),                # 10 kB from the first cache
    (0, 1e6, 10.0),                 # 1 MB from the second
    (0, 1e8, 1e4),                  # 100 MB from memory
    (1e6, 1e4, 10.0), (1e3, 1e6, 10.0), (0, 0, 0.0),
])
def test_floor_is_the_longer_of_compute_time_and_transfer_time(flops: float, moved: float,
                                                               us: float) -> None:
    assert CEILINGS.floor_us(flops, moved) == pytest.approx(us)


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_more_work_never_lowers_the_floor(flops: float, moved: float) -> None:
    assert CEILINGS.floor_us(2 * flops, moved) >= CEILINGS.floor_us(flops, moved)
    assert CEILINGS.floor_us(flops, 2 * moved) >= CEILINGS.floor_us(flops, moved)


def test_floor_of_a_class_follows_from_its_own_shape() -> None:
    task = Target(op="x", language="c", source="x.c", entry="x", reference="r.py", flops="2*n",
                  args=(Arg(name="a", dtype="float32", shape=("n",)),
                        Arg(name="o", dtype="float32", shape=("n",), role="output"),
                        Arg(name="n", dtype="int64", value="n")),
                  classes=(ConfigClass(name="c", shape={"n": 10**6}),))
    assert ceilings.floor_us(CEILINGS, task, task.classes[0]) == pytest.approx(8e6 / 10.0 / 1e3)


def test_cpu_ceilings_are_measured_once_and_plausible(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    measured = ceilings.of_cpu("this cpu", tmp_path / "scratch")
    assert 1 < measured.gflops < 1e6 and math.isfinite(measured.gflops)
    assert [level.bytes for level in measured.levels] == sorted(
        level.bytes for level in measured.levels)
    assert all(0.5 < level.gb_per_s < 1e5 for level in measured.levels)
    assert measured.copy_gb_per_s <= measured.levels[-1].gb_per_s
    cached = list((tmp_path / "cache" / "kopt").iterdir())
    assert len(cached) == 1
    cached[0].write_bytes(to_json(replace(measured, gflops=0.5)))
    assert ceilings.of_cpu("this cpu", tmp_path / "scratch").gflops == 0.5
    cached[0].write_bytes(b"{ broken")
    assert ceilings.of_cpu("this cpu", tmp_path / "scratch").gflops > 1
