"""A verdict on a module also shows eager PyTorch, compilers and libraries; they decide nothing."""

from __future__ import annotations

import math

from engine.verify import reference_lines
from harness.verdict import REFERENCE_LINE, Row, Verdict, rejected


def verdict(latency_us: float, incumbent_us: float, *, log_ratio: float | None = None,
            stderr: float = 0.01) -> Verdict:
    paired = math.log(incumbent_us / latency_us) if log_ratio is None else log_ratio
    row = Row(config_class="full", correct=True, latency_us=latency_us, incumbent_us=incumbent_us,
              outcome="tie", log_ratio=paired, low=paired - 10 * stderr, high=paired + 10 * stderr,
              stderr=stderr, pairs=4)
    return Verdict(valid=True, correct=True, latency_us=latency_us, latency_kind="measured-cpu",
                   rows=(row,), speedup=1.0, speedup_low=0.9, speedup_high=1.1)


def lines(shown: Verdict) -> list[str]:
    return [fact.detail for fact in shown.evidence if fact.kind == REFERENCE_LINE]


def test_verdict_shows_its_ratios_to_eager_and_torch_compile() -> None:
    references = reference_lines.of_verdicts({"compiled": verdict(18.6, 40.0)}, {"full": 40.0})
    shown = reference_lines.with_lines(verdict(20.0, 25.0), references)
    assert lines(shown) == ["full: 2.00x of eager (40.0 us), 0.93x of torch.compile (18.6 us), "
                            "below the bar; measured on this device"]
    assert (shown.speedup, shown.correct) == (1.0, True)


def test_only_the_ratio_to_the_module_counts_where_calls_are_launched_in_another_way() -> None:
    references = reference_lines.of_verdicts({"compiled": verdict(93.0, 200.0)}, {"full": 40.0})
    assert lines(reference_lines.with_lines(verdict(20.0, 25.0), references)) == [
        "full: 2.00x of eager (40.0 us), 0.93x of torch.compile (18.6 us), below the bar; "
        "measured on this device"]


def test_verdict_that_has_its_lines_already_is_unchanged() -> None:
    references = reference_lines.of_verdicts({"compiled": verdict(18.6, 40.0)}, {"full": 40.0})
    recorded = reference_lines.with_lines(verdict(20.0, 25.0), references)
    assert reference_lines.with_lines(recorded, references) == recorded


def test_failing_torch_compile_leaves_the_ratio_to_eager() -> None:
    references = reference_lines.of_verdicts({"compiled": rejected("no C++ compiler")},
                                             {"full": 40.0})
    assert lines(reference_lines.with_lines(verdict(20.0, 25.0), references)) == [
        "full: 2.00x of eager (40.0 us); measured on this device",
        "torch.compile is not a reference here: no C++ compiler"]


def test_incorrect_candidate_gets_no_line() -> None:
    wrong = Verdict(valid=True, correct=False, rows=())
    references = reference_lines.of_verdicts({"compiled": verdict(1.0, 2.0)}, {"full": 2.0})
    assert reference_lines.with_lines(wrong, references) == wrong


def test_fastest_of_compilers_and_libraries_is_the_bar() -> None:
    references = reference_lines.of_verdicts({
        "compiled": verdict(18.6, 40.0), "autotuned": verdict(22.0, 40.0),
        "cudnn": rejected("No available kernel")}, {"full": 40.0})
    shown = reference_lines.with_lines(verdict(20.0, 25.0), references)
    assert lines(shown) == [
        "full: 2.00x of eager (40.0 us), 0.93x of torch.compile (18.6 us), below the bar, "
        "1.10x of torch.compile max-autotune (22.0 us); measured on this device",
        "cuDNN attention is not a reference here: No available kernel"]
    assert references.standing(shown.rows) == "below the bar in 1 of 1 classes (torch.compile)"
    assert references.standing(verdict(18.0, 25.0).rows) == \
        "above the bar (torch.compile, torch.compile max-autotune)"
    assert references.standing(verdict(18.5, 25.0).rows) == \
        "level with the bar within the noise (torch.compile, torch.compile max-autotune)"
    assert references.standing(rejected("wrong").rows) == ""


def test_noisy_measurement_of_a_bar_puts_nothing_above_it() -> None:
    """One slow pair made torch.compile 23 times slower than eager PyTorch on a busy CPU."""
    references = reference_lines.of_verdicts(
        {"compiled": verdict(18125.0, 789.0, log_ratio=-1.296, stderr=0.99)}, {"full": 349.0})
    shown = reference_lines.with_lines(verdict(349.0, 349.0), references)
    assert lines(shown) == ["full: 1.00x of eager (349 us), 3.65x of torch.compile (1.28 ms), "
                            "uncertain; measured on this device"]
    assert references.standing(shown.rows) == "level with the bar within the noise (torch.compile)"
