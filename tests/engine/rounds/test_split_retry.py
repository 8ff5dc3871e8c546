"""A candidate that only some classes gain from is split: only those classes use it."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from engine.rounds import retries
from engine.split.languages import conditions
from engine.split.languages.c_language import C
from engine.split.specialise import merge
from engine.task import RepairRequest, SplitRequest, Task
from engine.workers import kernel_split
from engine.workers.kernel_split import split_by_candidate
from harness.errors import Refused
from tests.support.searches import kernel_split_case, split_case
from tests.support.searches.divergent_candidate import TASK, entry, verdict
from tests.support.searches.split_case import built, divided, group, start, tile_taken

OLD = split_case.KERNEL
WIDE = OLD.replace("#include <stdint.h>", "#include <stdint.h>\n#include <string.h>").replace(
    "TILE 32", "TILE 256").replace(
    "    double sum = 0;\n", "    double sum = 0, kept[1];\n    memset(kept, 0, sizeof kept);\n")
"""A change of an author: other code, other knobs, one more header."""
ONCE = divided(OLD, group("context <= 8", {"context": 8, "heads": 1}, TILE=4))
SEARCH = msgspec.structs.replace(TASK, backend="search")


def merged(old: str, new: str, condition: str = "context >= 1024", **point: int) -> str:
    return merge(old, new, conditions.parse(condition), [{"context": 1024, "heads": 1, **point}],
                 ["context=1024"])


def test_candidates_kernel_serves_classes_it_speeds_up(tmp_path: Path) -> None:
    source = merged(OLD, WIDE)
    library = built(tmp_path, source)
    assert [tile_taken(library, size, 2) for size in (8, 1023, 1024, 4096)] == [32, 32, 256, 256]
    assert start(source) == {"TILE": 32, "START": 16, "TILE_v1": 256}
    assert source.count("memset") == 1 and source.count("count_head(int64_t") == 1
    assert "context >= 1024: total_v1 (a candidate's own), class context=1024" in source


def test_split_source_gets_one_more_branch(tmp_path: Path) -> None:
    twice = merged(ONCE, ONCE.replace("TILE 32", "TILE 256"))
    library = built(tmp_path, twice)
    assert [tile_taken(library, size, 1) for size in (8, 64, 1024)] == [4, 32, 256]
    thrice = merged(twice, twice.replace("TILE_v2 256", "TILE_v2 4"), "heads >= 3", heads=3)
    library = built(tmp_path, thrice)
    assert [tile_taken(library, 1024, heads) for heads in (1, 3)] == [256, 4]


REFUSED = {
    "nothing": (OLD, OLD, "changes no function"),
    "a comment": (OLD, OLD.replace("The one entry", "An entry"), "changes no function"),
    "the signature": (OLD, WIDE.replace("const int64_t heads", "int64_t heads"),
                      "changes the signature of total"),
    "a pragma for all": (OLD, "#pragma GCC optimize(\"O3\")\n" + WIDE, "a pragma for the whole"),
    "the dispatch": (ONCE, WIDE, "changes the dispatch itself"),
    "a kernel that the class does not take": (
        ONCE, ONCE.replace("TILE_v1 4", "TILE_v1 256"), "does not change the kernel"),
    "a function without the column": (
        OLD.replace("int64_t context", "int64_t length").replace("context", "length"),
        WIDE.replace("int64_t context", "int64_t length").replace("context", "length"),
        "takes context as an integer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_source_that_is_not_a_variant_is_refused(name: str) -> None:
    old, new, words = REFUSED[name]
    with pytest.raises(Refused, match=words):
        merged(old, new)


@pytest.mark.parametrize(("name", "expected"), [
    ("context=4096", ({"context": 4096},)),
    ("context=4096 heads=3 dtype=fp16", ({"context": 4096, "heads": 3},)),
    ("context=4096.0", ({"context": 4096},)), ("a=-1", ({"a": -1},)), ("a=0.5", ()),
    ("context<=64", ({"context": -conditions.FAR}, {"context": 64})),
    ("64<context<=1024", ({"context": 65}, {"context": 1024})),
    ("context>1024", ({"context": 1025}, {"context": conditions.FAR})),
    ("mtp=4 context>1024", ({"mtp": 4, "context": 1025}, {"mtp": 4, "context": conditions.FAR})),
    ("small", ()), ("all", ()), ("", ())])
def test_class_name_selects_its_rows(name: str, expected: tuple[dict[str, int], ...]) -> None:
    assert conditions.corners(name) == expected


EXPECTED_CONDITIONS = {
    "values": (("context=1024", "context=4096"), ("context=8",), (), "context >= 1024"),
    "ranges": (("context>64",), ("context<=8", "8<context<=64"), (), "context >= 65"),
    "the middle of ranges": (("8<context<=64",), ("context<=8", "context>64"), (),
                             "context >= 9 && context <= 64"),
    "two columns": (("context=1024 heads=3",), ("context=1024 heads=1", "context=8 heads=3"), (),
                    "context >= 1024 && heads >= 3"),
    "a tie stays with the old kernel": (("context=4096",), ("context=8",), ("context=1024",),
                                        "context >= 4096"),
    "or goes along where nothing else is to be had": (
        ("context=8", "context=1024"), ("context=4096",), ("context=64",), "context <= 1024"),
}


@pytest.mark.parametrize("name", EXPECTED_CONDITIONS)
def test_condition_is_derived_from_class_names(name: str) -> None:
    faster, slower, others, expected = EXPECTED_CONDITIONS[name]
    request = SplitRequest(candidate="c1", tree="", faster=faster, slower=slower, others=others)
    _, condition = split_by_candidate(OLD, WIDE, request, split_case.TARGET)
    assert str(condition) == expected


def test_indistinguishable_classes_are_not_split() -> None:
    request = SplitRequest(candidate="c1", tree="", faster=("tall",), slower=("wide",))
    with pytest.raises(Refused, match="no condition on a parameter separates tall from wide"):
        split_by_candidate(OLD, WIDE, request, split_case.TARGET)


def test_kernel_classes_are_distinguished_by_sizes() -> None:
    old = kernel_split_case.KERNEL
    request = SplitRequest(candidate="c1", tree="", faster=("large",), slower=("small",))
    text, condition = split_by_candidate(old, old.replace("TILE 64", "TILE 4096"), request,
                                         kernel_split_case.TARGET)
    assert str(condition) == "n >= 40000" and len(C().read(text)[1]) == 1


def test_worker_writes_split_without_search(tmp_path: Path) -> None:
    bench = split_case.bench(tmp_path)
    tree = split_case.project(tmp_path / "candidate", total_c=WIDE)
    task = Task(slot="p", kind="planned", backend="split", hypothesis="", bottleneck="", seed=1,
                trials=0, split=SplitRequest(
                    candidate="c1", tree=str(tree), faster=("context=1024",),
                    slower=("context=8",)))
    report = kernel_split.work(task, bench, lambda *_: None, threading.Event())
    assert report.ok and report.summary == \
        "candidate c1 where context >= 1024, the old kernel elsewhere"
    assert (Path(bench.worktree) / "total.c").read_text() == merged(OLD, WIDE)


NEXT_SPLITS = {
    "one gains and one loses": (TASK, verdict(a="faster", b="slower", c="tie"), ["total.c"], True),
    "nobody loses": (TASK, verdict(a="faster", b="tie"), ["total.c"], False),
    "nobody gains": (TASK, verdict(a="tie", b="slower"), ["total.c"], False),
    "it is wrong": (TASK, verdict(a="faster", b="slower", c="broken"), ["total.c"], False),
    "it changes two files": (SEARCH, verdict(a="faster", b="slower"), ["total.c", "x.c"], False),
    "it changes another file": (SEARCH, verdict(a="faster", b="slower"), ["x.c"], False),
}


@pytest.mark.parametrize("name", NEXT_SPLITS)
def test_divergent_candidate_is_given_to_split(name: str) -> None:
    task, candidate_verdict, paths, expected = NEXT_SPLITS[name]
    again = retries.next_split(task, entry(*paths), Path("/t"), candidate_verdict, "total.c")
    assert (again is not None) == expected
    if again is not None:
        assert again.split == SplitRequest(candidate="c1", tree="/t", faster=("a",), slower=("b",),
                                           others=("c",), changed=("total.c",))
        assert again.backend == "split" and again.slot == TASK.slot
        with_repair = msgspec.structs.replace(task, repair=RepairRequest(
            attempt=1, of=3, candidate="c0", tree="/wrong", changed=("total.c",), deleted=(),
            complaint="it was wrong"))  # a repair's task does not reach the split
        assert (
            retries.next_split(with_repair, entry(*paths), Path("/t"), candidate_verdict, "total.c")
            == again
        )
        assert (
            retries.next_split(again, entry(*paths), Path("/t"), candidate_verdict, "total.c")
            is None
        )
