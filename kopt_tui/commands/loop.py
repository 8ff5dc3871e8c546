"""`kopt loop`: search a target's knobs, then give the best configuration a verdict of its own.

Trials are recorded in the workspace, `loops/<name>/`: the same command continues with them.
"""

from __future__ import annotations

import argparse
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from engine.campaign.setup import device_word
from engine.journal import database
from engine.run.one_shot import OneShot, OneShotCandidate
from engine.verify import harness_client
from harness.errors import Cancelled, InputError
from harness.formats import quantities
from harness.formats.quantities import counted
from harness.loop import loop as harness_loop
from harness.requests import LoopRequest, Progress, ReportedLoopRequest
from harness.search.space.knobs import config_words
from harness.search.trials import corpus, trial_log
from harness.search.trials.trials import MOST_TRIALS, LoopResult, SearchJob, Trial
from harness.tasks.target import Target
from harness.timing.plan import Plan
from harness.verdict import Config, Verdict
from kopt_tui.cli.gpu_gate import Gate, card_name, measure, open_target
from kopt_tui.cli.output import exit_code, print_json, print_note, print_verdict
from kopt_tui.cli.parser import add_json, add_manifest, add_predict, count, workspace_of
from kopt_tui.cli.stage_line import WaitPrinter
from kopt_tui.cli.text_lines import print_text
from kopt_tui.commands import evaluate
from kopt_tui.snapshot import phrases


class LoopAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A search: its trials are screening values, `verdict` is that on the best configuration."""

    best: Config
    verdict: Verdict | None
    """null if the command was stopped before the verdict."""
    trials: tuple[Trial, ...]
    space_size: int
    earlier: int
    """How many of the trials were recorded by earlier runs of the command."""
    record: str
    results_tsv: str
    corpus: str | None
    notes: tuple[str, ...]
    stopped: bool


LOOPS = "loops"
USUAL_TRIALS, MOST_SWEPT = 24, 256
INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""


def add(parser: argparse.ArgumentParser) -> None:
    add_manifest(parser)
    parser.add_argument("--budget", metavar="N", type=int, default=None,
                        help=f"how many configurations to try (default {USUAL_TRIALS}; all of a "
                        f"Triton kernel with at most {MOST_SWEPT} on a GPU)")
    parser.add_argument("--seed", metavar="N", type=count, default=0,
                        help="seed of the search (default 0)")
    parser.add_argument("--only", metavar="KNOB", action="append", default=[],
                        help="change only this knob; may be repeated")
    parser.add_argument("--fresh", action="store_true",
                        help="start again instead of continuing with the recorded trials")
    add_predict(parser)
    add_json(parser, LoopAnswer)


def run(args: argparse.Namespace) -> int:
    if args.budget is not None and not 0 < args.budget <= MOST_TRIALS:
        raise InputError(f"--budget must be from 1 to {MOST_TRIALS}")
    with _cancelled_by_signals() as cancel, open_target(args.manifest) as one_shot:
        return LoopRun(one_shot, args, cancel).run()

TRIALS = ("each trial: a short measurement against the default (screening), kept if it is the best "
          "so far; the last one kept is then judged")


class LoopRun:
    """One run of the search and of the verdict on what it found, until `cancel` is set."""

    def __init__(self, one_shot: OneShot, args: argparse.Namespace,
                 cancel: threading.Event) -> None:
        self._one_shot, self._args, self._cancel = one_shot, args, cancel
        self._quiet: bool = args.json
        self._request = _request(one_shot, args)
        self._record = Path(self._request.job.record)
        self._gate = Gate(one_shot, quiet=self._quiet, cancel=cancel)

    def run(self) -> int:
        """Search, measure the best, print both, and return the exit code."""
        print_note(f"trials in {self._record / 'results.tsv'}")
        result = self._search() or self._recorded_result()
        verdict = None if self._cancel.is_set() else self._measure(result)
        if self._cancel.is_set():  # set during the measurement
            verdict = None
        if self._quiet:
            print_json(LoopAnswer(
                best=result.best, verdict=verdict, trials=result.trials,
                space_size=result.space_size, earlier=result.earlier, record=str(self._record),
                results_tsv=str(self._record / "results.tsv"),
                corpus=self._request.job.corpus or None, notes=result.notes,
                stopped=self._cancel.is_set()))
        elif result.trials:
            print(f"\nbest: {phrases.clean(config_words(result.best))}"
                  if result.log_ratio is not None else "\nno best configuration: none was timed")
        if verdict is None:
            print_note(f"stopped after {counted(len(result.trials), 'recorded trial')}; repeat "
                       "the command to continue" + " (without --fresh)" * self._args.fresh)
            return INTERRUPTED
        if not self._quiet:
            print_verdict(verdict)
            if (verdict.speedup_low or 0.0) > 1.0:
                print_text(f"next: write these values into {self._one_shot.source.path}, or start "
                           "kopt run, which looks for more and commits what it keeps")
            elif verdict.correct and verdict.speedup is not None:
                print_text("next: leave the present values; the verdict confirms no gain over them")
        return exit_code(verdict)

    def _search(self) -> LoopResult | None:
        """Return the result of the search, None if it was stopped."""
        waits = WaitPrinter()
        default = self._one_shot.source.space(self._request.job.only).default

        heading = [TRIALS]

        def on_trial(trial: Trial) -> None:
            if not self._quiet:
                if heading:
                    print_text(heading.pop())
                _print_trial(trial, is_default=trial.config == dict(default))

        def on_progress(line: Progress) -> None:
            if line.stage == "note":
                print_note(line.detail)
            elif not self._quiet:
                waits.show(line)

        with suppress(Cancelled), self._gate.card("loop") as device:
            return harness_client.loop(replace(self._request, device=device.id),
                                       on_trial=on_trial, progress=on_progress,
                                       cancel=self._cancel)
        return None

    def _recorded_result(self) -> LoopResult:
        """Return the result of a stopped search, from its recorded trials."""
        trials = trial_log.recorded(self._record)
        kept = [trial for trial in trials if trial.kept]
        space = self._one_shot.source.space(self._request.job.only)
        note = harness_loop.nothing_worked(trials, space.default)
        if note:
            print_note(note)
        return LoopResult(best=kept[-1].config if kept else dict(space.default), source="",
                          log_ratio=kept[-1].log_ratio if kept else None, trials=trials,
                          space_size=space.size, notes=(note,) if note else ())

    def _measure(self, result: LoopResult) -> Verdict | None:
        """Return the verdict on the best configuration, None if it was stopped."""
        request = self._one_shot.request(OneShotCandidate(config=result.best),
                                         alpha=evaluate.ALPHA)
        with suppress(Cancelled):
            return measure(request, self._gate, predict=self._request.settings.predict,
                           quiet=self._quiet, cancel=self._cancel)
        return None


def _request(one_shot: OneShot, args: argparse.Namespace) -> LoopRequest | ReportedLoopRequest:
    workspace = workspace_of(args).resolve()
    database.make_workspace(workspace)
    target, device = one_shot.judged.target, one_shot.judged.device
    tree = str(one_shot.judged.tree(one_shot.judged.base_tree))
    one_shot.source.space(tuple(args.only))  # raises for a source without knobs
    job = SearchJob(tree=tree, reference=tree, budget=args.budget or _budget(one_shot, args.only),
                    seed=args.seed, only=tuple(args.only), fresh=args.fresh)
    settings = replace(one_shot.settings(Plan()),
                       predict=card_name(args.predict, one_shot.language))
    key = trial_log.key(target, job, device, settings)
    stem = f"{target.op}_{target.language or 'command'}_{device_word(device)}"
    name = f"{re.sub(r'[^A-Za-z0-9_]+', '-', stem)[:60]}_{key}"
    job = replace(job, record=str(workspace / LOOPS / name))
    if isinstance(target, Target):
        return LoopRequest(target=target, device=device.id, settings=settings,
                           job=replace(job, corpus=str(workspace / corpus.FILE)))
    return ReportedLoopRequest(target=target, device=device.id, settings=settings, job=job)


def _budget(one_shot: OneShot, only: Sequence[str]) -> int:
    """Return how many configurations to try: USUAL_TRIALS or, on a GPU, a small Triton space."""
    swept = one_shot.source.configurations(only, MOST_SWEPT) \
        if one_shot.judged.device.kind != "cpu" and one_shot.language == "triton" else ()
    return max(USUAL_TRIALS, len(swept))


@contextmanager
def _cancelled_by_signals() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets; the next Ctrl-C interrupts as usual.

    Further SIGTERMs do nothing: `timeout` sends two at once, to the process and to its group.
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


def _print_trial(trial: Trial, *, is_default: bool) -> None:
    if trial.latency_kind == "predicted":
        outcome = f"{quantities.latency(trial.latency_us)} (predicted)"
    elif trial.log_ratio is None:
        outcome = trial.reason or ("correct, not timed" if trial.correct else "")
    else:
        outcome = f"{quantities.speedup_of_log(trial.log_ratio)} (screening)"
    tag = trial.tag if trial.tag != "tried" else ""
    config = config_words(trial.config) + (", the default" if is_default else "")
    print_text(phrases.clean(f"{trial.number:4d}  {tag:8}  {outcome:20}  {config}"), indent=38)
