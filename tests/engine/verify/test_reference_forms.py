"""A module's bar: which forms of it are measured, and which libraries they call."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from engine.knowledge.page_files import BUILT_IN
from engine.verify import reference_forms
from engine.verify.reference_forms import FORMS
from tests.support.programs import forked_program

ATTENTION, NORM = "torch.nn.functional.scaled_dot_product_attention", "torch.nn.RMSNorm"


@pytest.mark.parametrize(("device", "budget_s", "call", "keys"), [
    ("cpu", None, "torch.softmax", ["compiled"]),
    ("nvidia", None, "torch.softmax", ["compiled", "autotuned"]),
    ("nvidia", None, ATTENTION, ["compiled", "autotuned", "cudnn", "flashinfer-attention"]),
    ("amd", 7200.0, ATTENTION, ["compiled", "autotuned", "aiter-attention"]),
    ("amd", 7200.0, NORM, ["compiled", "autotuned", "aiter-norm"]),
    ("nvidia", 600.0, ATTENTION, ["compiled", "cudnn"]),  # others take most of the budget
])
def test_forms_fit_the_device_the_budget_and_the_module(
        device: str, budget_s: float | None, call: str, keys: list[str]) -> None:
    source = f"import torch\n\nx = {call}\n".encode()
    forms = reference_forms.forms(source, device, lambda name: True, budget_s)
    assert [form.key for form in forms] == keys
    for form in forms:
        text = form.source(source).decode()
        assert text.startswith("import torch\n") and "class ModelNew(Model):" in text
        compile(text, form.key, "exec")
    assert not any(form.library for form in reference_forms.forms(
        source, device, lambda name: False, budget_s)), "only where it is installed"


def test_used_names_of_libraries_are_listed_with_their_source() -> None:
    names = {entry["prefix"]: {*entry["names"]} for entry in yaml.safe_load(
        (BUILT_IN / "api_names.yaml").read_text()) if "prefix" in entry}
    for prefix, listed in names.items():
        used = {name for form in FORMS for name in re.findall(
            rf"(?<![\w.]){re.escape(prefix)}(\w+)", form.body)}
        assert used <= listed, prefix
    assert {f"{form.library}." for form in FORMS if form.library} <= names.keys()


def test_library_computes_what_the_module_does_or_the_form_says_why_not(tmp_path: Path) -> None:
    printed = forked_program.output(Path(__file__).with_name("run_library_forms.py"),
                                    folder=tmp_path, interpret=True)
    results = {tuple(line.split()[:2]): line.split()[2] for line in printed.splitlines()}
    for library in ("flashinfer", "aiter"):
        assert {case: result for (key, case), result in results.items()
                if key == f"{library}-attention"} == {
            **dict.fromkeys(("attention", "causal", "grouped"), "same"),
            **dict.fromkeys(("shifted", "masked"), "call"),
            **dict.fromkeys(("norm", "unscaled", "other"), "scaled_dot_product_attention")}
        assert {case: result for (key, case), result in results.items()
                if key == f"{library}-norm"} == {
            **dict.fromkeys(("attention", "causal", "grouped", "shifted", "masked", "other"),
                            "rms_norm"), "norm": "same", "unscaled": "call"}
