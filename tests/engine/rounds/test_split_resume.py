"""Splits of real kernels: after `kill -9`, and of a gain that only another one made diverge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engines import campaigns
from tests.support.engines.repair_case import decisions, is_killed

KERNEL = """\
#include <stdint.h>

#define LARGE 64  /* kopt: knob LARGE in [2, 64] turns of sign for large inputs */
#define SMALL 16  /* kopt: knob SMALL in [2, 16, 256] turns for small ones */

void scale(const float *x, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float value = x[i] * 2.0f;
        for (int64_t turn = 0; turn < (n > 10000 ? LARGE : SMALL); turn++) {
            value *= -1.0f;
            __asm__ volatile("" : "+x"(value));
        }
        out[i] = value;
    }
}
"""
DIVERGES = KERNEL.replace("LARGE 64", "LARGE 2").replace("SMALL 16", "SMALL 256").replace(
    "x[i] * 2.0f", "x[i] + x[i]")
TASK = {"classes": [{"name": "small", "shape": {"n": 3000}},
                    {"name": "large", "shape": {"n": 40000}}]}


@pytest.mark.slow
def test_killed_split_is_finished_by_next_engine(tmp_path: Path) -> None:
    setup = campaigns.create_with_patch(
        tmp_path, kernel=KERNEL, pool={"slots": 1, "backends": ["inbox", "split"]},
        task=TASK)
    campaigns.hand_in(setup, DIVERGES)
    assert is_killed(setup)
    [(kind, why)] = decisions(setup)
    assert kind == "split" and why.endswith("retried for the classes that gain")
    assert campaigns.run(setup).error is None
    made = decisions(setup)
    assert [kind for kind, _ in made] == ["split", "keep"], made
    [kept] = campaigns.candidates(setup, "kept")
    assert kept.hypothesis.endswith("only where it gains")
    source = setup.repo.read(setup.repo.best, "scale.c").decode()
    assert "n >= 40000" in source and "LARGE_v1 2" in source
    campaigns.consistent(setup)


BOTH = KERNEL.replace("#define SMALL", "#define FIXED 0  /* turns for small ones, if any */\n"
                      "// one line that both keep\n// and another\n#define SMALL").replace(
    "LARGE : SMALL", "LARGE : FIXED ? FIXED : SMALL").replace("[2, 64]", "[2, 40, 64]")
FIRST = BOTH.replace("SMALL 16", "SMALL 2")
"""Twice as fast: 4 times for small inputs."""
SECOND = BOTH.replace("LARGE 64", "LARGE 40").replace("FIXED 0", "FIXED 8")
"""1.5 times as fast, for both sizes; on top of FIRST, slower for small inputs."""


@pytest.mark.slow
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_gain_that_diverges_on_the_new_best_is_split(tmp_path: Path, is_interrupted: bool) -> None:
    setup = campaigns.create_with_patch(
        tmp_path, kernel=BOTH, pool={"slots": 2, "backends": ["inbox", "split"]},
        task=TASK)
    campaigns.hand_in(setup, FIRST)
    campaigns.hand_in(setup, SECOND, "second")
    if is_interrupted:
        assert is_killed(setup)
        assert decisions(setup)[-1][0] == "split"
    assert campaigns.run(setup).error is None
    made = [kind for kind, _ in decisions(setup)]
    assert sorted(made) == ["keep", "keep", "runner-up", "split"], decisions(setup)
    source = setup.repo.read(setup.repo.best, "scale.c").decode()
    assert "SMALL 2" in source and "LARGE_v1 40" in source and "n >= 40000" in source
    assert len(campaigns.consistent(setup)) == 2
