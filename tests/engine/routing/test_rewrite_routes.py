"""Routes follow the op's class, and one line says what is left out and why."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from engine.routing.op_class import classify
from engine.routing.rewrite_routes import Routing, is_installed, route
from engine.routing.translation_pairs import LANGUAGES, PAIRS, PARITY, pair
from engine.subagents import subagent_registry
from engine.subagents.subagent import Subagent


def subagent(name: str, target: str, source: str = "") -> Subagent:
    return Subagent(name=name, description=name, system_prompt=name, target_language=target,
                    source_language=source, requires=(target,))


SUBAGENTS = {each.name: each for each in (
    *(subagent(f"{language}-kernel-rewrite", language) for language in LANGUAGES),
    subagent("triton-to-tilelang", "tilelang", "triton"),
    Subagent(name="general-kernel-optimization", description="", system_prompt=""))}


def routed(op: str, device: Any = "amd", source: Any = "pytorch", absent: tuple[str, ...] = (),
           **fields: Any) -> Routing:
    return route(classify([op]), source, device, SUBAGENTS,
                 installed=lambda name: name not in absent, **fields)


def test_missing_language_is_named_in_one_line() -> None:
    found = routed("attention", "nvidia", absent=("triton", "cute-dsl", "cuda-cpp"))
    assert str(found) == "routed to TileLang: attention ('attention' in attention); " \
                         "Triton and CuTe DSL and CUDA C++ are not installed"
    assert str(routed("rmsnorm", absent=("flydsl",))) == \
        "routed to TileLang: norm ('rmsnorm' in rmsnorm); FlyDSL is not installed"
    assert str(routed("gdn", absent=("flydsl",))).startswith(
        "no agent rewrites it in another language: ")


@pytest.mark.parametrize(("op", "languages"), [
    ("linear_attn", ["flydsl"]), ("attention", ["tilelang"]), ("moe", ["flydsl", "ck", "asm"]),
    ("gemm", ["flydsl", "ck", "asm"]), ("norm", ["flydsl", "tilelang"])])
def test_routes_keep_the_order_of_the_class(op: str, languages: list[str]) -> None:
    assert [each.language for each in routed(op).routes] == languages


def test_source_is_not_rewritten_into_its_own_language() -> None:
    found = routed("gemm", "nvidia", "triton")
    assert "triton-kernel-rewrite" not in [each.subagent for each in found.routes]
    assert "the source is already Triton" in str(found)
    assert "the source is already CUDA C++" in str(routed("gemm", "nvidia", "cuda"))


def test_translator_of_the_source_comes_after_the_general_subagents() -> None:
    found = routed("gemm", "nvidia", "triton")
    assert [each.subagent for each in found.routes] == [
        "tilelang-kernel-rewrite", "cute-dsl-kernel-rewrite", "cuda-cpp-kernel-rewrite",
        "triton-to-tilelang"]


def test_source_that_is_not_python_gets_no_python_language() -> None:
    found = routed("gemm", source="hip", hosts=("any",))
    assert [each.language for each in found.routes] == ["ck", "asm"]
    assert "FlyDSL needs a Python source" in str(found)


def test_attempts_without_a_gain_end_a_translation() -> None:
    twice = {"tilelang-kernel-rewrite": 3, "triton-to-tilelang": 2}
    assert [each.subagent for each in routed("attention", source="triton", spent=twice).routes] == [
        "triton-to-tilelang"]
    thrice = dict.fromkeys(twice, 3)
    assert "TileLang was tried 3 times without a gain" in str(
        routed("attention", source="triton", spent=thrice))


def test_languages_that_a_person_names_replace_the_order() -> None:
    assert [each.language for each in routed("attention", languages=("ck",)).routes] == ["ck"]
    assert routed("attention", languages=()).routes == ()


def test_kernel_on_the_cpu_is_not_rewritten() -> None:
    assert str(routed("gemm", "cpu")) == "no agent rewrites it in another language: " \
        "the kernel runs on the CPU; the op is GEMM ('gemm' in gemm)"


def test_unknown_class_of_an_op_is_stated() -> None:
    assert str(routed("rowscale", "cpu")).endswith("the CPU; the op's class is unknown")


def test_language_without_a_subagent_is_left_out() -> None:
    found = route(classify(["gdn"]), "triton", "amd", {}, installed=lambda name: True)
    assert found.left_out == ("no subagent writes FlyDSL",)


SEED = {("pytorch", "flydsl"), ("triton", "flydsl"), ("ck", "flydsl"), ("hip", "flydsl"),
        ("tilelang", "flydsl"), ("pytorch", "tilelang"), ("triton", "tilelang"),
        ("ck", "tilelang"), ("hip", "tilelang"), ("flydsl", "tilelang")}


def test_every_pair_has_a_candidate_name_a_gate_and_a_limit() -> None:
    keys = [(translation.source, translation.target) for translation in PAIRS]
    more = {(source, target) for source in ("pytorch", "cuda", "triton")
            for target in ("triton", "tilelang", "cute-dsl", "cuda-cpp")
            if (source, target) not in (("triton", "triton"), ("cuda", "cuda-cpp"))}
    assert set(keys) == SEED | more and len(keys) == len(set(keys))
    for translation in PAIRS:
        assert translation.target in LANGUAGES and PARITY[translation.parity]
        assert 1 <= translation.attempts <= 3
        text = translation.brief("rmsnorm", "src/norm.py", may_add=False)
        assert translation.candidate.format(entry="rmsnorm") in text and "`norm.py`" in text


def test_every_pair_and_language_has_a_subagent_of_kopt() -> None:
    shipped = subagent_registry.load(None).subagents.values()
    assert {(translation.source, translation.target) for translation in PAIRS} == {
        (each.source_language, each.target_language) for each in shipped if each.source_language}
    assert {each.target_language for each in shipped
            if each.target_language and not each.source_language} == set(LANGUAGES)


def test_candidate_gets_a_file_of_its_own_where_files_may_be_added() -> None:
    translation = pair("triton", "tilelang")
    assert translation is not None
    assert "`norm_tilelang.py`" in translation.brief("rmsnorm", "src/norm.py", may_add=True)


def test_gate_is_the_projects_own_check_where_its_benchmark_judges() -> None:
    translation = pair("ck", "tilelang")
    assert translation is not None
    own = translation.brief("", "op.py", may_add=True)
    assert PARITY["benchmark"] in own and PARITY["kernel"] not in own
    assert "`op_tilelang`" in own and "- The function that is called now stays the entry" in own
    assert PARITY["kernel"] in translation.brief("op", "op.py", may_add=True)


def test_a_module_gets_a_new_class_and_keeps_its_own() -> None:
    translation = pair("pytorch", "triton")
    assert translation is not None
    of_module = translation.brief("Model", "norm.py", may_add=False, is_module=True)
    assert "`norm_triton`" in of_module and "- `ModelNew(Model)` becomes the entry" in of_module
    assert "- `norm` stays the entry, with its signature; it calls" in translation.brief(
        "norm", "norm.py", may_add=False)


def test_requirement_is_a_program_or_a_package_of_the_target() -> None:
    assert is_installed("sh") and is_installed("msgspec") and is_installed("no-such|sh")
    assert not is_installed("no_such_package")
    assert is_installed("json", sys.executable) and not is_installed("json", "/no/python")
