"""`kopt loop`: search a target's knobs; the winner gets a verdict of its own.

Its trials are kept in the workspace, `loops/<name>/`: the same command goes on with them.
"""

from __future__ import annotations

import argparse
import math
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.errors import Cancelled, InputError
from harness.requests import LoopRequest, Progress
from harness.search.space.knobs import Value
from harness.search.trials.trials import MOST_TRIALS, LoopResult, SearchJob, Trial
from harness.timing.plan import Plan
from harness.verdict import Verdict
from kopt_tui.cli.json_output import emit
from kopt_tui.cli.parser import Commands, add_json, add_predict
from kopt_tui.commands import evaluate
from kopt_tui.snapshot import phrases

if TYPE_CHECKING:
    from engine.run.one_shot import OneShot
    from kopt_tui.cli.gpu_gate import Gate

LOOPS = "loops"
INTERRUPTED = 130
"""Exit code of what a person interrupts, as shells have it."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a loop found: screening trials, the best configuration, and its fresh verdict, None
    if it was stopped. `earlier` counts the trials that an earlier start made.
    """

    best: dict[str, Value]
    verdict: Verdict | None
    trials: tuple[Trial, ...]
    space_size: int
    earlier: int
    record: str
    results_tsv: str
    corpus: str
    notes: tuple[str, ...]
    stopped: bool = False


def add(sub: Commands) -> None:
    parser = sub.add_parser("loop")
    parser.add_argument("manifest", metavar="MANIFEST", type=Path)
    parser.add_argument("--budget", metavar="N", type=int, default=24,
                        help="how many configurations to try (default 24)")
    parser.add_argument("--seed", metavar="N", type=int, default=0)
    parser.add_argument("--only", metavar="KNOB", action="append", default=[],
                        help="move this knob only; may be repeated")
    parser.add_argument("--fresh", action="store_true",
                        help="start anew instead of going on with the trials recorded")
    add_predict(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if not 0 < args.budget <= MOST_TRIALS:
        raise InputError(f"--budget must be from 1 to {MOST_TRIALS}")
    if args.seed < 0:
        raise InputError("--seed must be 0 or more")
    with _cancelled_by_signals() as cancel:
        return _run(args, cancel)


def _run(args: argparse.Namespace, cancel: threading.Event) -> int:
    from engine.run.one_shot import OneShot
    from kopt_tui.cli.gpu_gate import Gate

    with OneShot(args.manifest) as direct:
        request = _request(direct, args)
        record = Path(request.job.record)
        _say(f"trials in {record / 'results.tsv'}")
        gate = Gate(direct, quiet=args.json, cancel=cancel)
        found = _search(request, gate, cancel, quiet=args.json) or _so_far(direct, request)
        verdict = None if cancel.is_set() else _verdict(direct, request, found, gate, cancel,
                                                        quiet=args.json)
    stopped = cancel.is_set()
    if args.json:
        emit(Answer(best=found.best, verdict=None if stopped else verdict, trials=found.trials,
                    space_size=found.space_size, earlier=found.earlier, notes=found.notes,
                    record=str(record), results_tsv=str(record / "results.tsv"),
                    corpus=request.job.corpus, stopped=stopped))
    elif found.trials:
        print("\nbest: " + phrases.clean(_config(found.best)))
    if stopped or verdict is None:
        _say(f"stopped; {len(found.trials)} trials are recorded, the same command goes on with "
             "them" + " (without --fresh)" * args.fresh)
        return INTERRUPTED
    if not args.json:
        evaluate.tell(verdict)
    return evaluate.answer(verdict)


def _request(direct: OneShot, args: argparse.Namespace) -> LoopRequest:
    from engine.campaign.setup import device_word
    from harness.loop import loop as harness_loop
    from harness.search.trials import corpus
    from kopt_tui.cli.workspace import workspace_of

    workspace = workspace_of(args).resolve()
    tree = str(direct.judged.tree(direct.judged.base_tree))
    job = SearchJob(
        tree=tree,
        reference=tree,
        budget=args.budget,
        seed=args.seed,
        only=tuple(args.only),
        fresh=args.fresh,
        corpus=str(workspace / corpus.FILE),
    )
    settings = replace(direct.settings(Plan()), predict=evaluate.card_name(
        args.predict, direct.target.language))
    key = harness_loop.key(direct.target, job, direct.judged.device, settings)
    stem = f"{direct.target.op}_{direct.target.language}_{device_word(direct.judged.device)}"
    name = f"{re.sub(r'[^A-Za-z0-9_]+', '-', stem)[:60]}_{key}"
    return LoopRequest(target=direct.target, device=direct.judged.device.id, settings=settings,
                       job=replace(job, record=str(workspace / LOOPS / name)))


def _search(request: LoopRequest, gate: Gate, cancel: threading.Event, *,
            quiet: bool) -> LoopResult | None:
    """Return where the loop ended, None if it was stopped."""
    from engine.verify import harness_client

    def on_trial(trial: Trial) -> None:
        if not quiet:
            _tell(trial)

    def on_progress(line: Progress) -> None:
        if line.stage == "note":
            _say(line.detail)

    with suppress(Cancelled), gate.card("loop") as device:
        return harness_client.loop(replace(request, device=device.id), on_trial=on_trial,
                                    progress=on_progress, cancel=cancel)
    return None


def _so_far(direct: OneShot, request: LoopRequest) -> LoopResult:
    """Return where a loop that was stopped is, as its record tells."""
    from harness.loop.loop import nothing_worked
    from harness.search.trials import trial_log

    trials = trial_log.recorded(Path(request.job.record))
    kept = [trial for trial in trials if trial.kept]
    space = direct.source.space(request.job.only)
    note = nothing_worked(trials, space.default)
    if note:
        _say(note)
    return LoopResult(best=kept[-1].config if kept else dict(space.default), source="",
                      log_ratio=kept[-1].log_ratio if kept else None, trials=trials,
                      space_size=space.size, notes=(note,) if note else ())


def _verdict(direct: OneShot, searched: LoopRequest, result: LoopResult, gate: Gate,
             cancel: threading.Event, *, quiet: bool) -> Verdict | None:
    """Return the verdict on what was found best, None if it was stopped."""
    from engine.run.one_shot import OneShotCandidate as Given
    from engine.verify import harness_client

    request = direct.request(Given(config=result.best), alpha=evaluate.ALPHA)
    if isinstance(request, Verdict):
        return request
    request = replace(request, settings=replace(request.settings,
                                                predict=searched.settings.predict))
    with suppress(Cancelled), gate.card("verdict") as device:
        verdict = harness_client.evaluate(replace(request, device=device.id), cancel=cancel,
                                           progress=evaluate.progress(quiet=quiet))
        return replace(verdict, notes=(*evaluate.beside(verdict), *verdict.notes))
    return None


@contextmanager
def _cancelled_by_signals() -> Iterator[threading.Event]:
    """Yield what the first Ctrl-C or SIGTERM sets; a Ctrl-C after it interrupts as usual.

    More SIGTERMs change nothing: `timeout` sends two at once, to a process and to its group.
    """
    cancel = threading.Event()

    def stop(*_: object) -> None:
        cancel.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield cancel
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(trial: Trial) -> None:
    gain = f"{trial.latency_us:.4g} us (predicted)" if trial.latency_kind == "predicted" else \
        trial.reason if trial.log_ratio is None else \
        f"{math.exp(trial.log_ratio):.2f}x (screening)"
    tag = trial.tag if trial.tag != "tried" else ""
    print(phrases.clean(f"{trial.number:4d}  {tag:8}  {gain:20}  {_config(trial.config)}"),
          flush=True)


def _config(config: dict[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in config.items())


def _say(text: str) -> None:
    print(f"kopt: {phrases.clean(text)}", file=sys.stderr, flush=True)
