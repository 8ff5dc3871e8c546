"""Tests the real-training transfer check of a round and the audit of a campaign (rule 11)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.history import history
from engine.journal.read import Reader
from engine.records import transfer_audit
from engine.records.transfer_audit import Audit, KeptRound, check
from harness.verdict import Row, TraceStep, Transfer, Verdict
from tests.support.dashboards import records_case as case
from tests.support.dashboards import samples
from tests.support.dashboards.records_case import KEPT

LATER = "l" * 40


def audit_of(bucket: str, **fields: Any) -> Transfer:
    decision = "ACCEPT-as-real" if bucket.startswith("K") else \
        "ACCEPT-with-asterisk" if bucket == "W1" else "REJECT-as-overfit"
    values: dict[str, Any] = {"bucket": bucket, "decision": decision, "reason": "why"}
    return Transfer(**(values | fields))


def steps(hits: int, total: int = 8) -> tuple[TraceStep, ...]:
    return tuple(TraceStep(step=n, weight_hits=int(n < hits), other_hits=0) for n in range(total))


def verdict(speedup: float | None, audited: Transfer | None) -> Verdict:
    timed = {} if speedup is not None else {"latency_us": None, "latency_kind": None}
    return samples.verdict(speedup=speedup, speedup_low=None, speedup_high=None, transfer=audited,
                           **timed)


@pytest.mark.parametrize(("rule", "audited", "measured", "real"), [
    ("K1 kernel-internal: as measured", audit_of("K1"), 1.5, 1.5),
    ("K2 layout variants: as measured", audit_of("K2"), 1.2, 1.2),
    ("K3 fusion into one launch: as measured", audit_of("K3"), 2.0, 2.0),
    ("K4 data flow inside one call: as measured", audit_of("K4"), 1.1, 1.1),
    ("W1 hits once in forward and backward: half of the calls", audit_of("W1", hit_rates=steps(8)),
     2.0, 1 / 0.75),
    ("W1 hits in every other step: a quarter of the calls", audit_of("W1", hit_rates=steps(4)),
     2.0, 1 / 0.875),
    ("W1 never hits: nothing", audit_of("W1", hit_rates=steps(0)), 2.0, 1.0),
    ("W1 without a trace: about 1.5 % a step at most", audit_of("W1", hit_rates=()), 2.0, 1.015),
    ("W1 without a trace, less than that measured", audit_of("W1", hit_rates=()), 1.01, 1.01),
    ("W2 cache of an activation: nothing", audit_of("W2"), 3.0, 1.0),
    ("W3 memo over other tensors: nothing", audit_of("W3"), 3.0, 1.0),
    ("rejected as over-fit, whatever its bucket",
     audit_of("W1", decision="REJECT-as-overfit", hit_rates=steps(1)), 3.0, 1.0),
    ("a regression carries over", audit_of("K1"), 0.8, 0.8),
    ("not timed: unknown", audit_of("K1"), None, None),
    ("not audited: as measured, which the audit does not count", None, 1.4, 1.4),
], ids=lambda value: value.split(":")[0] if isinstance(value, str) else "")
def test_estimated_real_gain_follows_the_bucket(rule: str, audited: Transfer | None,
                                                measured: float | None,
                                                real: float | None) -> None:
    result = check(verdict(measured, audited))
    assert (None if result.real is None else math.exp(result.real)) == \
        (None if real is None else pytest.approx(real)), rule
    assert result.derivation


@given(speedup=st.floats(0.2, 50), hits=st.integers(0, 8))
def test_weight_cache_is_never_worth_more_than_measured(speedup: float, hits: int) -> None:
    result = check(verdict(speedup, audit_of("W1", hit_rates=steps(hits))))
    assert result.real is not None and result.real <= max(0.0, math.log(speedup)) + 1e-9


FIELDS = ("bucket: ", "cache key", "id audit", "hit rate", "skew robustness: ",
          "benchmark gain: ", "estimated real gain: ", "decision: ")


@pytest.mark.parametrize("audited", [
    audit_of("K1"), audit_of("W1", cache_keys=("k.py:7: cache[id(w), w._version]",),
                             hit_rates=steps(8), id_audit="w (weight) by id, _version"),
    audit_of("W2", hit_rates=()), None], ids=["K1", "W1", "W2", "not audited"])
@pytest.mark.parametrize("kept", [True, False])
def test_transfer_section_has_every_field(audited: Transfer | None, kept: bool,
                                          tmp_path: Path) -> None:
    """Bucket, cache key, id audit, hit rate, skew, both gains, and the decision."""
    records, writer = case.begin(tmp_path, 2)
    if kept:
        case.keep(writer, records.folder, 2, "c1", KEPT, transfer=audited)
    else:
        case.reject(writer, records.folder, 2, "c1", "no", transfer=audited, valid=True,
                    correct=True)
    writer.end_round("rms", 2, outcome="keep" if kept else "tie", summary="one")
    records.write_all(Reader(tmp_path))
    text = (records.folder.round(2) / "summary.md").read_text()
    section = text.split("## Real-training transfer check")[1].split("\n## ")[0]
    if audited is None and not kept:
        assert "- nothing to check" in section
        return
    lines = section.strip().splitlines()
    for field in FIELDS:
        assert sum(field in line for line in lines) == 1, field
    words = ("ACCEPT-as-real", "ACCEPT-with-asterisk", "REJECT-as-overfit")
    assert lines[-1].startswith("- decision: ") and any(word in lines[-1] for word in words)


def test_transfer_section_shows_hits_and_skew() -> None:
    rows = (Row(config_class="skewed", correct=True, latency_us=1.0, log_ratio=math.log(1.02)),
            Row(config_class="n=4 skew<=0", correct=True, latency_us=1.0, log_ratio=math.log(1.1)),
            Row(config_class="even", correct=True, latency_us=1.0, log_ratio=math.log(1.4)))
    result = check(samples.verdict(rows=rows, transfer=audit_of(
        "W1", hit_rates=steps(6), skew=("k.py:3: constexpr M_per_group",))))
    assert result.hit_rate == "weights hit in 6 of 8 steps, other caches in 0 of 8"
    assert result.skew == "k.py:3: constexpr M_per_group; class skewed 1.02x (2.0% faster)"


def test_round_checks_kept_candidates_or_else_the_fastest(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2, 3, 4)
    case.keep(writer, records.folder, 2, "kept", KEPT, speedup=1.1, transfer=audit_of("K1"))
    case.lose(writer, records.folder, 3, "lost")
    case.reject(writer, records.folder, 4, "plain", "does not compile")
    case.reject(writer, records.folder, 4, "cached", "over-fit", transfer=audit_of("W2"))
    past = history.read(Reader(tmp_path), "rms")
    chosen = [transfer_audit.of_round(past, n) for n in (1, 2, 3, 4)]
    names = [[name for name, _ in checks] for checks in chosen]
    assert names == [[], ["kept"], ["lost"], ["cached"]]
    assert chosen[3][0][1].decision == "REJECT-as-overfit"


def test_round_with_two_keeps_checks_both(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    case.keep(writer, records.folder, 2, "first", KEPT, transfer=audit_of("W1", hit_rates=steps(8)))
    case.keep(writer, records.folder, 2, "second", LATER, transfer=audit_of("K2"))
    writer.end_round("rms", 2, outcome="keep", summary="2 kept", best_speedup=2.0)
    records.write_all(Reader(tmp_path))
    text = (records.folder.round(2) / "summary.md").read_text().split("transfer check")[1]
    assert text.index("- candidate: first") < text.index("- bucket: W1") < \
        text.index("- candidate: second") < text.index("- bucket: K2")


def kept(bucket: str, speedup: float, **fields: Any) -> KeptRound:
    audited = None if bucket == "-" else audit_of(bucket, **fields)
    return KeptRound(round=2, commit=KEPT, check=check(verdict(speedup, audited)))


@pytest.mark.parametrize(("rule", "gains", "headline", "s_real", "w_real", "verdict_words"), [
    ("S_real is the sum of the K rounds", [("K1", 1.2), ("K3", 1.5)], 1.8, 1.8, 1.0,
     "not inflated"),
    ("W_real is bounded", [("K1", 1.2), ("W1", 1.5)], 1.8, 1.2, 1.015, "headline is inflated"),
    ("R_real counts as nothing", [("K1", 1.2), ("W2", 1.5)], 1.8, 1.2, 1.0,
     "headline is inflated"),
    ("a gap of 1 % is none", [("K1", 1.5)], 1.5 * 1.01, 1.5, 1.0, "not inflated"),
    ("more than 1 % is inflation", [("K1", 1.5)], 1.5 * 1.011, 1.5, 1.0, "headline is inflated"),
    ("the headline counts where the rounds add up to more", [("K1", 1.3), ("K2", 1.3)], 1.5,
     1.69, 1.0, "the headline counts"),
    ("a gain without audit is not believed", [("K1", 1.2), ("-", 1.5)], 1.8, 1.2, 1.0,
     "headline is inflated"),
    ("without a headline the gap is unknown", [("K1", 1.2)], None, 1.2, 1.0, "not known"),
    ("without any audit nothing is attributed", [("-", 1.2), ("-", 1.5)], 1.8, 1.0, 1.0,
     "not attributed"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_audit_attributes_the_headline(rule: str, gains: list[tuple[str, float]],
                                       headline: float | None, s_real: float, w_real: float,
                                       verdict_words: str) -> None:
    audit = Audit(kept=tuple(kept(bucket, speedup, **({"hit_rates": ()} if bucket == "W1" else {}))
                             for bucket, speedup in gains),
                  headline=None if headline is None else math.log(headline))
    assert math.exp(audit.s_real) == pytest.approx(s_real), rule
    assert math.exp(audit.w_real) == pytest.approx(w_real)
    assert verdict_words in audit.inflation_verdict()
    assert [name.split(" (")[0].split(",")[0] for name, _ in audit.facts] == [
        "S_real", "W_real", "R_real", "real-training equivalent", "headline", "inflation gap"]


@pytest.mark.parametrize(("gains", "low", "advice"), [
    ([("W2", 1.5)], 1.45, "roll back round 2"),
    ([("-", 1.5)], 1.45, "review rounds 2 by hand"),
    ([("K1", 1.45)], 1.40, ""),  # the interval of the gap includes zero
    ([("K1", 1.2)], 1.45, "report the real-training equivalent"),
    ([("K1", 1.5)], 1.45, ""),
])
def test_audit_gives_advice(gains: list[tuple[str, float]], low: float,
                            advice: str) -> None:
    audit = Audit(kept=tuple(kept(*gain) for gain in gains), headline=math.log(1.5),
                  low=math.log(low), high=math.log(1.6))
    lines = list(audit.advice())
    assert len(lines) == bool(advice)
    assert not advice or advice in lines[0]


@pytest.mark.parametrize(("upper", "words"), [
    (0.05, "+4.4%: not inflated, noise explains the gap"),
    (0.0, "+4.4%: the headline is inflated")])
def test_gap_is_inflation_only_if_its_interval_excludes_zero(upper: float, words: str) -> None:
    kept_round = kept("K1", 1.5)
    check = msgspec.structs.replace(kept_round.check, upper=upper)
    audit = Audit(kept=(msgspec.structs.replace(kept_round, check=check),),
                  headline=math.log(1.5 * 1.044), low=math.log(1.5 * 1.02), high=math.log(1.6))
    assert audit.inflation_verdict() == words


def test_believed_gain_never_exceeds_the_headline() -> None:
    audit = Audit(kept=(kept("K1", 3.5), kept("K2", 3.51)), headline=math.log(10.61),
                  low=math.log(10.2), high=math.log(11.0))
    assert math.exp(audit.believed) == pytest.approx(10.61)
    assert ("real-training equivalent (S_real and W_real, at most the headline)", "10.6x") \
        in audit.facts


def test_headline_without_audit_is_not_attributed() -> None:
    """Each round is named once, and nothing unknown has a number."""
    audit = Audit(kept=(kept("-", 1.2), kept("-", 1.5)), headline=math.log(1.8))
    assert "is inflated" not in audit.inflation_verdict()
    assert next(audit.advice()).startswith("review rounds 2 by hand")
    assert audit.facts[0] == ("S_real (kernels: K1-K4)", "not attributed")


def test_audit_is_made_from_the_journal(tmp_path: Path) -> None:
    """It lists each kept round, and the measured headline rather than the product of gains."""
    records, writer = case.begin(tmp_path)
    for n, (name, commit, bucket) in enumerate((("a", KEPT, "K1"), ("b", LATER, "W1")), 2):
        writer.start_round(samples.round_(n))
        case.keep(writer, records.folder, n, name, commit, speedup=1.5,
                  transfer=audit_of(bucket, **({"hit_rates": steps(8)} if bucket == "W1" else {})))
    case.headline(writer, KEPT, 1.49)
    case.headline(writer, LATER, 2.1)
    writer.event("rms", "campaign.stop", LATER, reason="enough")
    audit = transfer_audit.of(history.read(Reader(tmp_path), "rms"))
    assert [(each.round, each.commit, each.check.bucket) for each in audit.kept] == [
        (2, KEPT, "K1"), (3, LATER, "W1")]
    assert audit.headline is not None and math.exp(audit.headline) == pytest.approx(2.1)
    assert math.exp(audit.w_real) == pytest.approx(1.2)
    assert "headline is inflated" in audit.inflation_verdict()
    records.write_all(Reader(tmp_path))
    for file in (records.folder.log, records.folder.report, records.folder.page):
        text = file.read_text()
        assert "Real-training applicability audit" in text and "S_real" in text
        assert "1.20x (20.0% faster)" in text and "inflation gap" in text


def test_campaign_without_keep_has_nothing_to_audit(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path)
    writer.event("rms", "campaign.stop", "b0", reason="enough")
    records.write_all(Reader(tmp_path))
    for file in (records.folder.log, records.folder.report, records.folder.page):
        assert "Nothing was kept: there is nothing to audit." in file.read_text()


def test_gain_whose_interval_includes_1_has_no_number(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    case.reject(writer, records.folder, 2, "c1", "no", transfer=audit_of("K1"),
                valid=True, correct=True, rejected_reason=None, latency_us=10.0,
                latency_kind="measured-cpu", speedup=0.99, speedup_low=0.93, speedup_high=1.07)
    writer.end_round("rms", 2, outcome="tie", summary="one")
    records.write_all(Reader(tmp_path))
    text = (records.folder.round(2) / "summary.md").read_text().split("transfer check")[1]
    assert "estimated real gain: uncertain: the measured interval includes no gain" in text
    assert "0.99x" not in text.split("\n## ")[0]
    assert "- decision: ACCEPT-as-real, and not kept, for reasons other than the audit (" in text
