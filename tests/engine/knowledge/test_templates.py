"""Triton templates: correct in the interpreter, compiled for two GPUs, names on their pages."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from engine.knowledge import page_library
from engine.knowledge.page_files import BUILT_IN
from harness.search.space.tunable_source import TunableSource
from tests.support.programs import forked_program

TRITON = BUILT_IN / "backend" / "triton"
TABLE = yaml.load((TRITON / "templates.yaml").read_text(),
                  Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
TEMPLATES = TABLE["templates"]
EACH = pytest.mark.parametrize("template", TEMPLATES, ids=[t["name"] for t in TEMPLATES])
ALL_CASES = 100


def _run(mode: str, case_limit: int, tmp_path: Path, *names: str) -> str:
    """Run the checking program on at most `case_limit` cases of a template; return its output."""
    return forked_program.output(
        Path(__file__).with_name("run_templates.py"), mode, str(case_limit), *names,
        folder=tmp_path, interpret=mode != "compile")


def test_templates_compute_what_pytorch_computes_in_float64(tmp_path: Path) -> None:
    assert _run("run", 1, tmp_path).split() == [template["name"] for template in TEMPLATES]


@pytest.mark.slow
def test_lines_inserted_at_a_mark_change_the_input_or_the_result(tmp_path: Path) -> None:
    assert _run("marks", 1, tmp_path).split() == [template["name"] for template in TEMPLATES]


def test_expressions_compute_what_their_targets_compute(tmp_path: Path) -> None:
    printed = _run("expressions", 1, tmp_path).split()
    assert printed == [rule["targets"][0] for rule in TABLE["expressions"]]


def test_templates_of_different_kinds_compile_for_two_gpus(tmp_path: Path) -> None:
    assert _run("compile", 1, tmp_path, "norm", "gemm").split() == ["norm", "gemm"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["run", "compile"])
@EACH
def test_every_case_of_a_template_is_right_and_compiles_for_two_gpus(template: dict, mode: str,
                                                                     tmp_path: Path) -> None:
    assert _run(mode, ALL_CASES, tmp_path, template["name"]).split() == [template["name"]]


@EACH
def test_template_has_knobs_an_entry_and_only_names_that_begin_with_its_own(template: dict) -> None:
    name, text = template["name"], (TRITON / f"{template['name']}.py").read_text()
    source = TunableSource.parse(text, language="triton", path=f"{name}.py")
    assert source.knobs
    names: list[str] = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    assert name in names
    assert all(each == name or each.lower().startswith(f"{name}_") for each in names), names


@EACH
def test_template_has_the_marks_that_its_table_entry_names(template: dict) -> None:
    text = (TRITON / f"{template['name']}.py").read_text()
    marks = set(re.findall(r"# kopt: (prologue|epilogue) (\w+)", text))
    assert marks == set(template.get("fuses", {}).items())
    assert ("# kopt: operands" in text) == bool(marks)


@EACH
def test_page_of_a_template_names_it(template: dict) -> None:
    page = page_library.load(None).find(template["page"])
    assert f"`knowledge/backend/triton/{template['name']}.py`" in page.text


def test_every_template_file_is_in_the_table() -> None:
    assert {path.name for path in TRITON.glob("*.py")} == {f"{t['name']}.py" for t in TEMPLATES}
