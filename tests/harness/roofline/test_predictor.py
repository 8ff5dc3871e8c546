"""Predictions in verdicts and loops: told as what they are, they order and decide nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.judge.judge import Policy, rule
from engine.verify import harness_client
from harness.compile import triton_aot
from harness.compile.kernel import place_on
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import InputError
from harness.loop.forecast import Forecast
from harness.loop.loop import key, loop
from harness.requests import EvaluateRequest, LoopRequest
from harness.roofline import ceilings
from harness.roofline.predictor import Foretold, card_for, filled, of_tree
from harness.search.space.space import Config
from harness.search.strategy.predicted_order import PredictedOrder
from harness.search.trials import corpus
from harness.search.trials.trials import LoopResult, SearchJob, Trial
from harness.settings import Settings
from harness.target import ConfigClass, Target
from harness.verdict import Row, Verdict
from kopt_tui.main import main
from tests.support import shared_zygotes
from tests.support.kernel_case import DOUBLE, HEAD, judge, target, tree
from tests.support.paths import EXAMPLES

EXAMPLE = EXAMPLES / "softmax_triton" / "manifest.yaml"
BIG = target(classes=(ConfigClass(name="big", shape={"n": 1 << 26}, interpret_shape={"n": 331},
                                  weight=2),
                      ConfigClass(name="small", shape={"n": 1 << 20}, interpret_shape={"n": 64})))
CARD = Device(id="cuda:0", kind="nvidia", name="NVIDIA H200", uuid="GPU-1", arch="sm_90")
AUTO = Policy(approval="auto")
KNOBS = HEAD + """
BLOCK = 64  # kopt: knob BLOCK in [64, 256, 4096]
WARPS = 4  # kopt: knob WARPS in [1, 4, 64]

@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

def double(x, out):
    if BLOCK == 256 and WARPS == 1:
        return
    n = x.numel()
    double_kernel[(triton.cdiv(n, BLOCK),)](x, out, n, BLOCK, num_warps=WARPS)
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))


@pytest.fixture(autouse=True)
def one_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile in forks of one process: `test_aot` sees that fresh ones do it too."""
    monkeypatch.setattr(triton_aot, "inspect", shared_zygotes.inspect)


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verdict]:
    folder = tmp_path_factory.mktemp("predicted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOPT_LOCK_DIR", str(folder / "locks"))
        patch.setattr(triton_aot, "inspect", shared_zygotes.inspect)
        yield judge(folder, DOUBLE, of=BIG, predict="h200")


def test_a_verdict_says_what_is_predicted_and_for_which_card(predicted: Verdict) -> None:
    assert predicted.valid and predicted.correct and predicted.latency_kind == "predicted"
    assert predicted.speedup is predicted.speedup_low is predicted.detectable_effect is None
    big, small = predicted.rows
    assert big.latency_us and small.latency_us and big.latency_us > 8 * small.latency_us
    h200 = card_for("h200", "triton")
    assert h200 is not None  # of the shape that a card would get, not of the interpreter's
    assert big.floor_us == ceilings.floor_us(ceilings.of_card(h200, BIG), BIG, BIG.classes[0])
    assert math.log(predicted.latency_us or 0.0) == pytest.approx(
        (2 * math.log(big.latency_us) + math.log(small.latency_us)) / 3)
    assert 0 < (predicted.pct_of_roofline or 0.0) <= 100
    for row in predicted.rows:
        assert 0 < (row.pct_of_roofline or 0.0) <= 100
        assert row.outcome == "unmeasured" and row.incumbent_us is row.log_ratio is row.low is None
    assert "predicted for h200" in predicted.notes[-1]
    assert any("not timed" in note for note in predicted.notes)


def test_nothing_is_kept_on_a_prediction(predicted: Verdict) -> None:
    """Not even one that comes with rows as only a measurement has them."""
    faster = Row(config_class="big", correct=True, outcome="faster", latency_us=1.0, low=0.4,
                 incumbent_us=2.0, log_ratio=0.7, high=0.9, stderr=0.01, pairs=6)
    for verdict in (predicted, replace(predicted, rows=(faster,))):
        for scope in ((), ("big",)):
            ruling = rule(verdict, AUTO, scope=scope)
            assert ruling.kind == "tie" and "prediction" in ruling.reason
    with pytest.raises(ValueError, match="kept on a prediction"):
        Trial(number=1, config={}, correctness="PASS", tag="kept", latency_us=1.0,
              latency_kind="predicted")


def test_what_the_card_cannot_launch_is_rejected(tmp_path: Path) -> None:
    source = KNOBS.replace("WARPS = 4", "WARPS = 64")
    verdict = judge(tmp_path, source, of=BIG, predict="h200")
    assert not verdict.valid and verdict.latency_us is None
    assert "h200 cannot launch it: double_kernel 2048 threads a block" in (
        verdict.rejected_reason or "")


def test_what_is_wrong_gets_no_prediction(tmp_path: Path) -> None:
    verdict = judge(tmp_path, DOUBLE.replace("2 * tl", "3 * tl"), of=BIG, predict="h200")
    assert verdict.valid and not verdict.correct
    assert verdict.latency_us is None and verdict.latency_kind is None
    assert not any("predict" in note for note in verdict.notes)


def test_what_cannot_be_told_is_a_note(tmp_path: Path) -> None:
    card = card_for("H200", "triton")
    assert card is not None
    at = Path(tree(tmp_path / "tree", "def double(x, out):\n    out.copy_(2 * x)\n"))
    place = place_on(inventory.find("cpu"), "triton", scratch=str(tmp_path), python=None, env={})
    told = of_tree(BIG, at, card, place, cold=True, yields=None, cancel=None)
    assert told.latency_us is None and not told.reasons and "no Triton kernel" in told.note
    verdict = Verdict(valid=True, correct=True, rows=(Row(config_class="big", correct=True),))
    assert filled(verdict, told) == verdict
    assert filled(replace(verdict, correct=False), Foretold(card="h200", latency_us=1.0)) \
        == replace(verdict, correct=False)


@pytest.mark.parametrize(("card", "language", "words"), [
    ("h9000", "triton", "no card 'h9000'"), ("h200", "python", "python target cannot be predicted"),
    ("h200", "c", "c target")])
def test_what_cannot_be_predicted_is_refused(card: str, language: str, words: str,
                                             tmp_path: Path) -> None:
    of = target(language=language)
    with pytest.raises(InputError, match=words):
        judge(tmp_path, DOUBLE, of=of, predict=card)
    with pytest.raises(InputError, match=words):
        search(tmp_path / "loop", of=of, predict=card)


@pytest.mark.parametrize("name", ["H200", "h200", "NVIDIA H200", "MI300X", "RTX 4090", "a100-pcie"])
def test_cards_have_the_names_that_people_use(name: str) -> None:
    found = card_for(name, "triton")
    assert found is not None and found.name.replace("-", "") in name.lower().replace(
        " ", "").replace("-", "")
    assert card_for("", "c") is None


def search(folder: Path, *, of: Target = BIG, predict: str = "", **job: Any) -> LoopResult:
    at = folder / "tree"
    if not at.exists():
        tree(at, KNOBS)
    return loop(of, SearchJob(tree=str(at), reference=str(at), **job), inventory.find("cpu"),
                Settings(scratch=str(folder / "scratch"), predict=predict))


@pytest.mark.slow
def test_a_loop_is_led_by_predictions_and_keeps_none(tmp_path: Path) -> None:
    """The default first, then by prediction; what cannot be launched last, and rejected."""
    places: dict[str, Any] = {"record": str(tmp_path / "record"),
                              "corpus": str(tmp_path / "corpus.jsonl")}
    first = search(tmp_path, predict="h200", budget=3, **places)
    assert first.trials[0].config == {"BLOCK": 64, "WARPS": 4}
    whole = search(tmp_path, predict="h200", budget=9, **places)
    assert whole.trials[:3] == first.trials and whole.earlier == 3 and len(whole.trials) == 9
    right = [one for one in whole.trials if one.correct]
    assert [one.latency_kind for one in right] == ["predicted"] * len(right)
    times = [one.latency_us or 0.0 for one in right[1:]]
    assert times == sorted(times) and len(times) >= 4 and times[-1] > times[0]
    for one in right:
        assert one.tag == "tried" and one.log_ratio is None
        assert one.roofline_us and one.pct_of_roofline
    rejected = [one for one in whole.trials if one.correctness == "REJECTED"]
    assert {one.config["WARPS"] for one in rejected} == {64} and len(rejected) == 3
    assert all("h200 cannot launch it" in one.reason for one in rejected)
    [wrong] = [one for one in whole.trials if one.correctness == "FAIL"]
    assert wrong.config == {"BLOCK": 256, "WARPS": 1} and wrong.latency_us is None
    assert whole.best == {"BLOCK": 64, "WARPS": 4} and whole.log_ratio is None
    assert "nothing is kept on a prediction" in whole.notes[-1]
    rows = (tmp_path / "record" / "results.tsv").read_text().splitlines()[1:]
    assert all("\th200\t" in row for row in rows) and "; predicted" in rows[0]
    told = corpus.read(tmp_path / "corpus.jsonl").records  # no prediction is a measured trial
    assert {one.device for one in told} == {"h200"} and len(told) == 4
    assert all(one.latency_us is None for one in told)


def test_without_a_card_nothing_changes(tmp_path: Path) -> None:
    result = search(tmp_path, budget=2)
    assert [one.latency_us for one in result.trials] == [None, None] and not result.notes
    assert [one.tag for one in result.trials] == ["kept", "tried"]
    settings = Settings(scratch=str(tmp_path))
    job = SearchJob(tree="", reference="")
    names = {key(BIG, job, CARD, replace(settings, predict=name)) for name in ("", "h200", "l4")}
    assert len(names) == 3  # a record is of one card, or of none


def test_where_something_is_measured_trials_tell_of_the_machine(tmp_path: Path) -> None:
    """And a search is told the measured ratio, never the predicted one."""
    settings = Settings(scratch=str(tmp_path), predict="l4")
    job = SearchJob(tree=str(tmp_path), reference="")
    with pytest.raises(InputError, match=f"{CARD.name} measures here"):
        Forecast.of(BIG, job, CARD, settings, lambda config: None, None)
    own = replace(settings, predict="h200")
    here = Forecast.of(BIG, job, CARD, own, lambda config: None, None)
    assert here is not None and here.subject.name == CARD.name
    made = Forecast.of(BIG, job, inventory.find("cpu"), settings, lambda config: None, None)
    assert made is not None and made.subject.name == "l4"
    measured = Trial(number=0, config={}, correctness="PASS", tag="tried", latency_us=4.0,
                     latency_kind="measured-gpu", log_ratio=0.3)
    assert made.scored(measured) is measured
    slow, fast = (Trial(number=n, config={}, correctness="PASS", tag="tried", latency_us=us,
                        latency_kind="predicted") for n, us in ((1, 8.0), (2, 2.0)))
    assert made.scored(slow).log_ratio == 0.0
    assert made.scored(fast).log_ratio == pytest.approx(math.log(4))
    assert Forecast.of(BIG, job, CARD, replace(settings, predict=""), lambda c: None, None) is None


class Scripted:
    """A strategy that plans three ahead, then asks by what it was told last."""

    def __init__(self) -> None:
        self.left: list[Config] = [{"A": 3}, {"A": 1}, {"A": 2}]
        self.told: list[tuple[Config, float | None]] = []

    def ask(self) -> Config | None:
        if self.left:
            return self.left.pop(0)
        return {"A": 10 * len(self.told)} if len(self.told) < 5 else None

    def planned(self) -> list[Config]:
        return list(self.left)

    def tell(self, config: Config, score: float | None) -> None:
        self.told.append((config, score))


def test_what_is_planned_comes_in_order_and_what_is_learnt_keeps_its_place() -> None:
    asked: list[Sequence[Config]] = []

    def expect(configs: Sequence[Config]) -> list[float]:
        asked.append(configs)
        return [math.inf if one["A"] == 1 else float(str(one["A"])) for one in configs]

    guide = PredictedOrder(Scripted(), expect)
    assert guide.planned() == [{"A": 3}, {"A": 1}, {"A": 2}]
    seen = []
    while (config := guide.ask()) is not None:
        seen.append(config["A"])
        guide.tell(config, None)
    assert seen == [2, 3, 1, 30, 40] and len(asked) == 1


@pytest.mark.slow
def test_the_command_line_hands_the_card_on(capsys: pytest.CaptureFixture[str], tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch,
                                            predicted: Verdict) -> None:
    """To the loop, and to the verdict on what comes out of it."""
    asked: list[str] = []

    def evaluated(request: EvaluateRequest, **_: object) -> Verdict:
        asked.append(request.settings.predict)
        return predicted

    def searched(request: LoopRequest, **_: object) -> LoopResult:
        asked.append(request.settings.predict)
        return LoopResult(best={}, log_ratio=None, source="", trials=(), space_size=1)

    monkeypatch.setattr(harness_client, "evaluate", evaluated)
    monkeypatch.setattr(harness_client, "loop", searched)
    assert main(["evaluate", str(EXAMPLE), "--predict", "MI300X", "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["latency_kind"], verdict["speedup"]) == ("predicted", None)
    assert main(["evaluate", str(EXAMPLE), "--predict", "RTX 4090"]) == 0
    said = f"✓ correct, not measured; {predicted.latency_us:.4g} us predicted"
    assert said in capsys.readouterr().out
    assert main(["loop", str(EXAMPLE), "--predict", "H200", "--json",
                 "--workspace", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["latency_kind"] == "predicted"
    assert asked == ["mi300x", "rtx4090", "h200", "h200"]
    for verb in ("evaluate", "loop"):
        assert main([verb, str(EXAMPLE), "--predict", "H9"]) == 2
        assert "no card 'H9'" in capsys.readouterr().err
