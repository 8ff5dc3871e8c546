"""The table of strategies names only what exists and advises on each limit; records count use."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from engine.history import time_growth
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.knowledge import page_files, page_library, strategy_record, strategy_table
from engine.knowledge.strategy_record import NO_RECORD, StrategyRecord
from engine.knowledge.strategy_table import StrategyPlace, strategies
from engine.routing.source_language import KERNEL_TYPES
from engine.routing.translation_pairs import LANGUAGES
from engine.transformations import transformation_registry
from tests.support.dashboards import samples
from tests.support.paths import ROOT

LIMITERS = ("memory", "compute", "latency", "narrow vectors", "not vectorised", "short launches",
            "time in copy_kernel", "fixed cost", "cost per n", "growth beyond n",
            "unexplained time", "does not compile", "shared memory", "register spills",
            "matrix instructions", "narrow loads", "idle multiprocessors", "occupancy")


def test_every_name_in_a_row_exists() -> None:
    transformations = {each.name for each in transformation_registry.TRANSFORMATIONS}
    templates = {path.name.split(".")[0] for path in (page_files.BUILT_IN / "backend").rglob("*")
                 if path.is_file() and path.parent.name != "backend"}
    rules = tomllib.loads((ROOT / "engine" / "routing" / "op_rules.toml").read_text())
    ops = {rule["name"] for rule in rules["op"]}
    pages = {page.name for page in page_library.built_in()}
    kinds = {name.partition("/")[0] for name in pages}
    for row in strategies():
        assert set(row.transformations) <= transformations, row.key
        assert set(row.templates) <= templates, row.key
        assert set(row.ops) <= ops, row.key
        assert set(row.languages) <= {*KERNEL_TYPES, *KERNEL_TYPES.values(), *LANGUAGES, "c"}
        assert re.compile(row.against) and re.compile(row.knobs)
        for source in row.source.split("; "):
            known = source in pages or source in kinds or (ROOT / source).exists()
            assert known or re.match(r"[A-Z]\w+ [\d.]+|glibc [\d.]+", source), (
                row.key, source)


def test_every_transformation_is_in_a_row() -> None:
    named = {name for row in strategies() for name in row.transformations}
    assert {each.name for each in transformation_registry.TRANSFORMATIONS} == named


def test_every_template_is_in_a_row() -> None:
    """Otherwise its gains on a card count for no strategy."""
    named = {name for row in strategies() for name in row.templates}
    backend = page_files.BUILT_IN / "backend"
    files = [*backend.glob("c/*.c.in"), *backend.glob("triton/*.py")]
    assert {file.name.partition(".")[0] for file in files} == named


@pytest.mark.parametrize("limiter", LIMITERS)
def test_every_limit_has_advice(limiter: str) -> None:
    row = strategy_table.shown(limiter)
    assert row is not None and row.shows
    assert strategy_table.advice(limiter, "n") != strategy_table.UNKNOWN_LIMIT
    assert "{" not in strategy_table.advice(limiter, "n")
    assert time_growth.unknown().advice == strategy_table.advice("unexplained time")


def test_rows_are_chosen_by_limit_op_language_and_device() -> None:
    c = StrategyPlace(op="GEMM", language="c")
    keys = [row.key for row in strategy_table.against("memory", c)]
    assert "jammed-products" in keys and "grid-order" not in keys
    assert keys.index("bytes-once") < keys.index("software-pipeline")  # for any limit: last
    gpu = StrategyPlace(op="norm", language="triton", on_gpu=True)
    keys = [row.key for row in strategy_table.against("memory", gpu)]
    assert "rows-in-flight" in keys and "jammed-products" not in keys and "layout" not in keys
    assert next(row.key for row in strategy_table.against("", c)) == "jammed-products"


@pytest.mark.parametrize(("cause", "symptom", "key"), [
    ("rms_kernel: 62 % of its stalls are Long Scoreboard", "Long Scoreboard", "software-pipeline"),
    ("s_waitcnt vmcnt(0) before the products takes 40 %", "vmcnt", "software-pipeline"),
    ("short_scoreboard stalls, 8 bank conflicts a load", "short_scoreboard", "bank-conflicts"),
    ("warps wait at the barrier", "barrier", "barriers"),
    ("12 registers spilled to local memory", "spill", "register-spills"),
    ("loads are uncoalesced", "uncoalesced", "vector-access"),
    ("the last wave fills 9 of 132", "last wave", "idle-multiprocessors")])
def test_symptom_that_a_profile_shows_finds_its_strategy(cause: str, symptom: str,
                                                         key: str) -> None:
    found = [(text, row.key) for text, row in strategy_table.seen_in(
        cause, StrategyPlace(language="triton", on_gpu=True))]
    assert found == [(symptom, key)]


def test_symptoms_of_a_gpu_are_not_looked_for_on_a_cpu() -> None:
    assert not list(strategy_table.seen_in("bank conflicts", StrategyPlace(language="c")))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with a campaign on a CPU and one on an H200."""
    writer = Writer(tmp_path)
    for campaign, gpu in (("one", "cpu"), ("two", "h200")):
        writer.add_campaign(samples.campaign(campaign, gpu=gpu))
        writer.start_round(samples.round_(1, campaign))
        slots = [samples.slot(f"planned-{n}", 1, campaign, kind="planned", backend="transform",
                              option="c-accumulators", idea="independent-chains", limiter="memory")
                 for n in (1, 2, 3)]
        slots.append(samples.slot("planned-4", 1, campaign, kind="planned", limiter="memory",
                                  knobs=("A",)))
        writer.put_slots(slots)
        for n, (kind, speedup) in enumerate((("keep", 1.2), ("tie", 1.0), ("keep", 2.0),
                                             ("regression", 0.9)), 1):
            name = f"{campaign}{n}"
            writer.add_candidate(samples.candidate(name, campaign, slot=f"planned-{n}"))
            number = writer.add_verdict(campaign, name, samples.verdict(name, speedup=speedup),
                                        purpose="verify")
            writer.add_decision(campaign, name, kind, "r", round=1, actor="engine", verdict=number)
    writer.close()
    return tmp_path


def test_record_counts_slots_and_their_kept_gains_by_card(workspace: Path) -> None:
    reader = Reader(workspace)
    records = strategy_record.of_card(reader, "h200")
    expected = StrategyRecord(tried=3, kept=2, gain=1.6)
    assert records["c-accumulators"] == records["independent-chains"] == expected
    assert records["memory"] == StrategyRecord(tried=1)
    assert strategy_record.of_card(reader)["c-accumulators"].tried == 6
    assert strategy_record.of_card(reader, "mi300x") == {}
    assert str(expected) == "tried 3, kept 2, median 1.60x" and str(NO_RECORD) == "not tried"
    assert records["memory"].chance < NO_RECORD.chance < expected.chance
    reader.close()


def test_brief_lists_rows_for_these_limits_with_their_records(workspace: Path) -> None:
    reader = Reader(workspace)
    text = strategy_record.brief(["memory"], StrategyPlace(op="norm", language="c"),
                                 strategy_record.of_card(reader, "cpu"))
    reader.close()
    first, *others = [line for line in text.splitlines() if line.startswith("- ")]
    assert "here tried 3, kept 2, median 1.60x" in first and len(others) < strategy_record.LISTED
    texts = [line.partition(" (expected")[0] for line in (first, *others)]
    assert len(set(texts)) == len(texts)
    assert strategy_record.brief([], StrategyPlace(), {}) == ""


def test_brief_on_symptoms_lists_each_row_once_with_its_record() -> None:
    place = StrategyPlace(op="norm", language="cuda", on_gpu=True)
    text = strategy_record.brief_on_symptoms(
        ["8 bank conflicts a load", "bank conflicts of stores", "it spills"], place,
        {"register-spills": StrategyRecord(tried=3, kept=2, gain=1.6)})
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert [line.partition(":")[0] for line in lines] == [
        "- against spill", "- against bank conflict"]
    assert "here tried 3, kept 2, median 1.60x" in lines[0] and "here not tried" in lines[1]
    assert strategy_record.brief_on_symptoms(["nothing known"], place, {}) == ""
