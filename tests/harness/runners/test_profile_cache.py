"""An incumbent is profiled once; later verdicts use the saved profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.compile import compiler_cache
from harness.compile.kernel import Kernel
from harness.compile.place import Place
from harness.runners.kernel_spans import CallProfile, KernelSpan
from harness.runners.profile_cache import ProfileCache
from tests.support.kernels.c_case import target as c_target

PROFILE = CallProfile(busy_ns=1e4, kernels=(
    KernelSpan(name="softmax_kernel", launches=1.0, ns=9e3),))


@pytest.fixture
def incumbent(tmp_path: Path) -> Kernel:
    """Return a kernel with compiled Triton kernels in its HOME."""
    target = c_target()
    kernel = Kernel(name="incumbent", target=replace(target, language="triton"), artifact="k.py",
                    sha256="s", identity="one", root="r",
                    place=Place(device="cuda:0", scratch=str(tmp_path),
                                env={"CUDA_VISIBLE_DEVICES": "GPU-1"}))
    kernel.home.joinpath(*compiler_cache.TRITON).mkdir(parents=True)
    return kernel


def test_profile_of_all_classes_is_loaded_again(
        incumbent: Kernel, tmp_path: Path) -> None:
    folder, names = tmp_path / "profiles", [entry.name for entry in incumbent.target.classes]
    assert ProfileCache(folder, incumbent).load() == {}
    ProfileCache(folder, incumbent).save(dict.fromkeys(names, PROFILE))
    assert ProfileCache(folder, incumbent).load() == dict.fromkeys(names, PROFILE)


def test_incomplete_profile_is_not_saved(incumbent: Kernel, tmp_path: Path) -> None:
    names = [entry.name for entry in incumbent.target.classes]
    assert len(names) > 1
    ProfileCache(tmp_path, incumbent).save({names[0]: PROFILE})
    assert ProfileCache(tmp_path, incumbent).load() == {} and not list(tmp_path.glob("*.*"))


OTHERS: dict[str, Callable[[Kernel], Kernel]] = {
    "other code": lambda k: replace(k, identity="two"),
    "another card": lambda k: replace(k, place=replace(
        k.place, env={"CUDA_VISIBLE_DEVICES": "GPU-2"})),
    "another Python": lambda k: replace(k, place=replace(k.place, python="/usr/bin/python3")),
    "another class": lambda k: replace(k, target=replace(
        k.target, classes=k.target.classes[:1])),
}


@pytest.mark.parametrize("name", OTHERS)
def test_profile_is_not_loaded_for_other_code_card_python_or_classes(
        name: str, incumbent: Kernel, tmp_path: Path) -> None:
    names = [entry.name for entry in incumbent.target.classes]
    ProfileCache(tmp_path, incumbent).save(dict.fromkeys(names, PROFILE))
    assert ProfileCache(tmp_path, OTHERS[name](incumbent)).load() == {}


def test_profile_without_compiled_kernels_is_not_loaded(
        incumbent: Kernel, tmp_path: Path) -> None:
    names = [entry.name for entry in incumbent.target.classes]
    ProfileCache(tmp_path, incumbent).save(dict.fromkeys(names, PROFILE))
    incumbent.home.joinpath(*compiler_cache.TRITON).rmdir()
    assert ProfileCache(tmp_path, incumbent).load() == {}


def test_profile_of_a_kernel_that_compiles_nothing_is_loaded(
        incumbent: Kernel, tmp_path: Path) -> None:
    plain = replace(incumbent, target=replace(incumbent.target, language="python"))
    incumbent.home.joinpath(*compiler_cache.TRITON).rmdir()
    names = [entry.name for entry in incumbent.target.classes]
    ProfileCache(tmp_path, plain).save(dict.fromkeys(names, PROFILE))
    assert ProfileCache(tmp_path, plain).load() == dict.fromkeys(names, PROFILE)


def test_profiles_of_several_incumbents_are_kept(incumbent: Kernel, tmp_path: Path) -> None:
    names = [entry.name for entry in incumbent.target.classes]
    for kernel in (incumbent, replace(incumbent, identity="the baseline")):
        ProfileCache(tmp_path, kernel).save(dict.fromkeys(names, PROFILE))
    assert ProfileCache(tmp_path, incumbent).load()


def test_invalid_profile_file_is_ignored(incumbent: Kernel, tmp_path: Path) -> None:
    names = [entry.name for entry in incumbent.target.classes]
    ProfileCache(tmp_path, incumbent).save(dict.fromkeys(names, PROFILE))
    [path] = tmp_path.glob("*.json")
    path.write_text('{"even": 1}')
    assert ProfileCache(tmp_path, incumbent).load() == {}
