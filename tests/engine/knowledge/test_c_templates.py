"""Each C template computes what numpy computes in float64, also for rows shorter than a vector."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

from bench import c_templates
from engine.knowledge import page_library
from engine.workers import template as c_template

TEMPLATES = c_template.templates("c")
SHAPES = ({"rows": 3, "cols": 5, "m": 3, "n": 5, "k": 7},
          {"rows": 37, "cols": 133, "m": 9, "n": 67, "k": 33},
          {"rows": 1, "cols": 64, "m": 40, "n": 67, "k": 33})


@pytest.mark.parametrize("template", TEMPLATES, ids=[each.name for each in TEMPLATES])
def test_c_template_computes_what_numpy_computes_in_float64(template: c_template.Template,
                                                            tmp_path: Path) -> None:
    text = re.sub(r"@(\w+)@", r"\1", template.text.partition("\n")[2])
    entry = c_templates.build(text, tmp_path, "entry")
    for shape in SHAPES:
        arrays = c_templates.arrays(template, shape)
        [out] = [arrays[name] for name, _, role in template.parameters if role == "output"]
        inputs = [arrays[name].astype(np.float64) for name, _, role in template.parameters
                  if role == "input"]
        out.fill(np.nan)
        entry(*(ctypes.c_void_p(value.ctypes.data) if isinstance(value, np.ndarray) else value
                for value in arrays.values()))
        expected = c_templates.EXPECTED[template.name](*inputs)
        assert np.allclose(out, expected, rtol=2e-5, atol=2e-5)


def test_c_page_names_every_template() -> None:
    text = page_library.load(None).find("backend/c").text
    assert all(f"`{template.name}`" in text for template in TEMPLATES)
