"""`kopt loop`: search a target's knobs; the winner gets a verdict of its own."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import msgspec

from harness.errors import InputError
from harness.knobs import Value
from harness.loop import Job, Trial
from harness.plan import Plan
from harness.requests import LoopRequest
from harness.verdict import Verdict
from kopt_tui.commands import evaluate
from kopt_tui.commands.jsonout import emit
from kopt_tui.commands.parser import Commands, add_json


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a loop found: screening trials, the best configuration, and its fresh verdict."""

    best: dict[str, Value]
    verdict: Verdict
    trials: tuple[Trial, ...]
    space_size: int


def add(sub: Commands) -> None:
    parser = sub.add_parser("loop")
    parser.add_argument("manifest", metavar="MANIFEST", type=Path)
    parser.add_argument("--budget", metavar="N", type=int, default=24,
                        help="how many configurations to try (default 24)")
    parser.add_argument("--seed", metavar="N", type=int, default=0)
    parser.add_argument("--only", metavar="KNOB", action="append", default=[],
                        help="move this knob only; may be repeated")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine import harness_process
    from engine.direct import Direct
    from engine.direct import Trial as Given

    if args.budget < 1:
        raise InputError("--budget must be at least 1")
    with Direct(args.manifest) as direct:
        tree = str(direct.checkout(direct.base))
        result = harness_process.loop(
            LoopRequest(target=direct.target, device=direct.device.id,
                        job=Job(tree=tree, reference=tree, budget=args.budget, seed=args.seed,
                                only=tuple(args.only)), settings=direct.settings(Plan())),
            on_trial=(lambda trial: None) if args.json else _tell)
        assert result is not None  # nothing here cancels it
        request = direct.request(Given(config=result.best), alpha=evaluate.ALPHA)
        verdict = request if isinstance(request, Verdict) else harness_process.evaluate(
            request, progress=evaluate.progress(quiet=args.json))
    if args.json:
        emit(Answer(best=result.best, verdict=verdict, trials=result.trials,
                    space_size=result.space_size))
    else:
        print("\nbest: " + ", ".join(f"{name}={value}" for name, value in result.best.items()))
        evaluate.tell(verdict)
    return 0 if verdict.valid and verdict.correct else 1


def _tell(trial: Trial) -> None:
    gain = trial.reason if trial.log_ratio is None else \
        f"{math.exp(trial.log_ratio):.2f}x (screening)"
    config = ", ".join(f"{name}={value}" for name, value in trial.config.items())
    print(f"{trial.number:4d}  {'keep' if trial.kept else '    '}  {gain:20}  {config}",
          flush=True)
