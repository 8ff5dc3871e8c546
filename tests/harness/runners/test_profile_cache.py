"""An incumbent is profiled once; the verdicts after it are told what was seen then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.compile import compiler_cache
from harness.compile.kernel import Kernel, Place
from harness.runners.kernel_spans import CallProfile, KernelSpan
from harness.runners.profile_cache import ProfileCache
from tests.support.c_case import target as c_target

SEEN = CallProfile(busy_ns=1e4, kernels=(KernelSpan(name="softmax_kernel", launches=1.0, ns=9e3),))


@pytest.fixture
def incumbent(tmp_path: Path) -> Kernel:
    """Return a kernel with a HOME in which something was compiled."""
    target = c_target()
    kernel = Kernel(name="incumbent", target=replace(target, language="triton"), artifact="k.py",
                    sha256="s", identity="one", root="r",
                    place=Place(device="cuda:0", scratch=str(tmp_path),
                                env={"CUDA_VISIBLE_DEVICES": "GPU-1"}))
    kernel.home.joinpath(*compiler_cache.TRITON).mkdir(parents=True)
    return kernel


def test_what_was_seen_of_every_class_is_there_for_the_next(
        incumbent: Kernel, tmp_path: Path) -> None:
    folder, names = tmp_path / "profiles", [one.name for one in incumbent.target.classes]
    assert ProfileCache(folder, incumbent).kept() == {}
    ProfileCache(folder, incumbent).keep(dict.fromkeys(names, SEEN))
    assert ProfileCache(folder, incumbent).kept() == dict.fromkeys(names, SEEN)


def test_a_part_of_a_profile_is_none(incumbent: Kernel, tmp_path: Path) -> None:
    names = [one.name for one in incumbent.target.classes]
    assert len(names) > 1
    ProfileCache(tmp_path, incumbent).keep({names[0]: SEEN})
    assert ProfileCache(tmp_path, incumbent).kept() == {} and not list(tmp_path.glob("*.*"))


OTHERS: dict[str, Callable[[Kernel], Kernel]] = {
    "other code": lambda k: replace(k, identity="two"),
    "another card": lambda k: replace(k, place=replace(
        k.place, env={"CUDA_VISIBLE_DEVICES": "GPU-2"})),
    "another Python": lambda k: replace(k, place=replace(k.place, python="/usr/bin/python3")),
    "another class": lambda k: replace(k, target=replace(
        k.target, classes=k.target.classes[:1])),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_the_same_is_seen_anew(name: str, incumbent: Kernel, tmp_path: Path) -> None:
    names = [one.name for one in incumbent.target.classes]
    ProfileCache(tmp_path, incumbent).keep(dict.fromkeys(names, SEEN))
    assert ProfileCache(tmp_path, OTHERS[name](incumbent)).kept() == {}


def test_without_its_compiled_kernels_it_is_rehearsed_again(
        incumbent: Kernel, tmp_path: Path) -> None:
    names = [one.name for one in incumbent.target.classes]
    ProfileCache(tmp_path, incumbent).keep(dict.fromkeys(names, SEEN))
    incumbent.home.joinpath(*compiler_cache.TRITON).rmdir()
    assert ProfileCache(tmp_path, incumbent).kept() == {}


def test_what_compiles_nothing_needs_no_compiled_kernels(
        incumbent: Kernel, tmp_path: Path) -> None:
    plain = replace(incumbent, target=replace(incumbent.target, language="python"))
    incumbent.home.joinpath(*compiler_cache.TRITON).rmdir()
    names = [one.name for one in incumbent.target.classes]
    ProfileCache(tmp_path, plain).keep(dict.fromkeys(names, SEEN))
    assert ProfileCache(tmp_path, plain).kept() == dict.fromkeys(names, SEEN)


def test_two_incumbents_in_turn_are_both_remembered(incumbent: Kernel, tmp_path: Path) -> None:
    names = [one.name for one in incumbent.target.classes]
    for one in (incumbent, replace(incumbent, identity="the baseline")):
        ProfileCache(tmp_path, one).keep(dict.fromkeys(names, SEEN))
    assert ProfileCache(tmp_path, incumbent).kept()


def test_a_file_that_makes_no_sense_is_none(incumbent: Kernel, tmp_path: Path) -> None:
    names = [one.name for one in incumbent.target.classes]
    ProfileCache(tmp_path, incumbent).keep(dict.fromkeys(names, SEEN))
    [made] = tmp_path.glob("*.json")
    made.write_text('{"even": 1}')
    assert ProfileCache(tmp_path, incumbent).kept() == {}
