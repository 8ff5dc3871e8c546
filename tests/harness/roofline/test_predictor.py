"""Predictions in verdicts and loops are marked as such; they order trials and decide nothing."""

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
from harness.compile.place import place_on
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import InputError
from harness.formats import quantities
from harness.loop.loop import Forecast, loop
from harness.requests import EvaluateRequest, LoopRequest
from harness.roofline import ceilings
from harness.roofline.predictor import SourcePrediction, card_for, predict_tree, with_predictions
from harness.search.strategy import PredictedOrder
from harness.search.trials import corpus
from harness.search.trials.trial_log import key
from harness.search.trials.trials import LoopResult, SearchJob, Trial
from harness.settings import Settings
from harness.tasks.target import ConfigClass, Target
from harness.verdict import Config, Row, Verdict
from kopt_tui.main import main
from tests.support.kernels.kernel_case import DOUBLE, HEAD, judge, target, tree
from tests.support.paths import EXAMPLES
from tests.support.programs import shared_zygotes

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
    """Compile in forks of one process; `test_triton_aot` covers fresh processes."""
    monkeypatch.setattr(triton_aot, "inspect", shared_zygotes.inspect)


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verdict]:
    folder = tmp_path_factory.mktemp("predicted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOPT_LOCK_DIR", str(folder / "locks"))
        patch.setattr(triton_aot, "inspect", shared_zygotes.inspect)
        yield judge(folder, DOUBLE, of=BIG, predict="h200")


def test_verdict_names_its_prediction_and_the_card(predicted: Verdict) -> None:
    assert predicted.valid and predicted.correct and predicted.latency_kind == "predicted"
    assert predicted.speedup is predicted.speedup_low is predicted.detectable_effect is None
    big, small = predicted.rows
    assert big.latency_us and small.latency_us and big.latency_us > 8 * small.latency_us
    h200 = card_for("h200", "triton")
    assert h200 is not None  # the shapes are those for the card, not `interpret_shape`
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
    """The second verdict also has a row with the values of a measurement."""
    faster = Row(config_class="big", correct=True, outcome="faster", latency_us=1.0, low=0.4,
                 incumbent_us=2.0, log_ratio=0.7, high=0.9, stderr=0.01, pairs=6)
    for verdict in (predicted, replace(predicted, rows=(faster,))):
        ruling = rule(verdict, AUTO)
        assert ruling.kind == "tie" and "prediction" in ruling.reason
    with pytest.raises(ValueError, match="kept on a prediction"):
        Trial(number=1, config={}, correctness="PASS", tag="kept", latency_us=1.0,
              latency_kind="predicted")


def test_candidate_that_the_card_cannot_launch_is_rejected(tmp_path: Path) -> None:
    source = KNOBS.replace("WARPS = 4", "WARPS = 64")
    verdict = judge(tmp_path, source, of=BIG, predict="h200")
    assert not verdict.valid and verdict.latency_us is None
    assert "h200 cannot launch it: double_kernel 2048 threads per block" in (
        verdict.rejected_reason or "")


def test_wrong_candidate_gets_no_prediction(tmp_path: Path) -> None:
    verdict = judge(tmp_path, DOUBLE.replace("2 * tl", "3 * tl"), of=BIG, predict="h200")
    assert verdict.valid and not verdict.correct
    assert verdict.latency_us is None and verdict.latency_kind is None
    assert not any("predict" in note for note in verdict.notes)


def test_missing_prediction_has_a_note_and_changes_no_verdict(tmp_path: Path) -> None:
    card = card_for("H200", "triton")
    assert card is not None
    at = Path(tree(tmp_path / "tree", "def double(x, out):\n    out.copy_(2 * x)\n"))
    place = place_on(inventory.find("cpu"), "triton", scratch=str(tmp_path), python=None, env={})
    prediction = predict_tree(BIG, at, card, place, cold=True)
    assert prediction.latency_us is None and not prediction.reasons
    assert "no Triton kernel" in prediction.note
    verdict = Verdict(valid=True, correct=True, rows=(Row(config_class="big", correct=True),))
    assert with_predictions(verdict, prediction) == verdict
    wrong = replace(verdict, correct=False)
    assert with_predictions(wrong, SourcePrediction(card="h200", latency_us=1.0)) == wrong


@pytest.mark.parametrize(("card", "language", "words"), [
    ("h9000", "triton", "no card 'h9000'"), ("h200", "python", "python target cannot be predicted"),
    ("h200", "c", "c target")])
def test_unknown_card_and_unpredictable_language_are_refused(card: str, language: str, words: str,
                                                             tmp_path: Path) -> None:
    task = target(language=language)
    with pytest.raises(InputError, match=words):
        judge(tmp_path, DOUBLE, of=task, predict=card)
    with pytest.raises(InputError, match=words):
        search(tmp_path / "loop", task=task, predict=card)


@pytest.mark.parametrize("name", ["H200", "h200", "NVIDIA H200", "MI300X", "RTX 4090", "a100-pcie"])
def test_cards_are_found_by_common_names(name: str) -> None:
    found = card_for(name, "triton")
    assert found is not None and found.name.replace("-", "") in name.lower().replace(
        " ", "").replace("-", "")
    assert card_for("", "c") is None


def search(folder: Path, *, task: Target = BIG, predict: str = "", **job: Any) -> LoopResult:
    at = folder / "tree"
    if not at.exists():
        tree(at, KNOBS)
    return loop(task, SearchJob(tree=str(at), reference=str(at), **job), inventory.find("cpu"),
                Settings(scratch=str(folder / "scratch"), predict=predict),
                zygote=shared_zygotes.zygote(task.language))


@pytest.mark.slow
def test_loop_follows_predictions_and_keeps_none(tmp_path: Path) -> None:
    """The default comes first, then the fastest predictions; unlaunchable ones are rejected."""
    paths: dict[str, Any] = {"record": str(tmp_path / "record"),
                             "corpus": str(tmp_path / "corpus.jsonl")}
    first = search(tmp_path, predict="h200", budget=3, **paths)
    assert first.trials[0].config == {"BLOCK": 64, "WARPS": 4}
    whole = search(tmp_path, predict="h200", budget=9, **paths)
    assert whole.trials[:3] == first.trials and whole.earlier == 3 and len(whole.trials) == 9
    right = [trial for trial in whole.trials if trial.correct]
    assert [trial.latency_kind for trial in right] == ["predicted"] * len(right)
    times = [trial.latency_us or 0.0 for trial in right[1:]]
    assert times == sorted(times) and len(times) >= 4 and times[-1] > times[0]
    for trial in right:
        assert trial.tag == "tried" and trial.log_ratio is None
        assert trial.roofline_us and trial.pct_of_roofline
    rejected = [trial for trial in whole.trials if trial.correctness == "REJECTED"]
    assert {trial.config["WARPS"] for trial in rejected} == {64} and len(rejected) == 3
    assert all("h200 cannot launch it" in trial.reason for trial in rejected)
    [wrong] = [trial for trial in whole.trials if trial.correctness == "FAIL"]
    assert wrong.config == {"BLOCK": 256, "WARPS": 1} and wrong.latency_us is None
    assert whole.best == {"BLOCK": 64, "WARPS": 4} and whole.log_ratio is None
    assert "nothing is kept on a prediction" in whole.notes[-1]
    rows = (tmp_path / "record" / "results.tsv").read_text().splitlines()[1:]
    assert all("\th200\t" in row for row in rows) and "; predicted" in rows[0]
    records = corpus.read(tmp_path / "corpus.jsonl").records  # failures only, no predictions
    assert {record.device for record in records} == {"h200"} and len(records) == 4
    assert all(record.latency_us is None for record in records)


def test_loop_without_a_predicted_card_predicts_nothing(tmp_path: Path) -> None:
    result = search(tmp_path, budget=2)
    assert [trial.latency_us for trial in result.trials] == [None, None] and not result.notes
    assert [trial.tag for trial in result.trials] == ["kept", "tried"]
    settings = Settings(scratch=str(tmp_path))
    job = SearchJob(tree="", reference="")
    names = {key(BIG, job, CARD, replace(settings, predict=name)) for name in ("", "h200", "l4")}
    assert len(names) == 3  # a record's key contains the predicted card


def test_machine_with_a_card_predicts_only_for_that_card(tmp_path: Path) -> None:
    """A measured trial keeps its ratio; a predicted one gets the ratio to the first prediction."""
    settings = Settings(scratch=str(tmp_path), predict="l4")
    job = SearchJob(tree=str(tmp_path), reference="")
    with pytest.raises(InputError, match=f"this machine measures on {CARD.name}"):
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
    """A strategy that plans three configurations; later ones depend on the number of results."""

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


def test_planned_configurations_are_sorted_and_later_proposals_keep_their_order() -> None:
    requests: list[Sequence[Config]] = []

    def expect(configs: Sequence[Config]) -> list[float]:
        requests.append(configs)
        return [math.inf if config["A"] == 1 else float(str(config["A"])) for config in configs]

    guide = PredictedOrder(Scripted(), expect)
    assert guide.planned() == [{"A": 3}, {"A": 1}, {"A": 2}]
    seen = []
    while (config := guide.ask()) is not None:
        seen.append(config["A"])
        guide.tell(config, None)
    assert seen == [2, 3, 1, 30, 40] and len(requests) == 1


@pytest.mark.slow
def test_predict_option_reaches_the_evaluation_and_the_loop(
        capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        predicted: Verdict) -> None:
    """After a loop, it also reaches the verdict on the loop's best."""
    cards: list[str] = []

    def evaluated(request: EvaluateRequest, **_: object) -> Verdict:
        cards.append(request.settings.predict)
        return predicted

    def searched(request: LoopRequest, **_: object) -> LoopResult:
        cards.append(request.settings.predict)
        return LoopResult(best={}, log_ratio=None, source="", trials=(), space_size=1)

    monkeypatch.setattr(harness_client, "evaluate", evaluated)
    monkeypatch.setattr(harness_client, "loop", searched)
    assert main(["evaluate", str(EXAMPLE), "--predict", "MI300X", "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["latency_kind"], verdict["speedup"]) == ("predicted", None)
    assert main(["evaluate", str(EXAMPLE), "--predict", "RTX 4090"]) == 0
    summary_line = f"✓ correct, not measured; {quantities.latency(predicted.latency_us)} predicted"
    assert summary_line in capsys.readouterr().out
    assert main(["loop", str(EXAMPLE), "--predict", "H200", "--json",
                 "--workspace", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["latency_kind"] == "predicted"
    assert cards == ["mi300x", "rtx4090", "h200", "h200"]
    for verb in ("evaluate", "loop"):
        assert main([verb, str(EXAMPLE), "--predict", "H9"]) == 2
        assert "no card 'H9'" in capsys.readouterr().err
