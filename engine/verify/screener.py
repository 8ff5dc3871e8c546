"""Screening verdicts: quick verdicts on a slot's current files, for its worker alone.

They are not recorded, and no candidate is kept because of one. No other verdict uses their seeds,
keys and orders, so they reveal nothing of the final verdict's inputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.campaign.setup import Setup
from engine.repository import worktree
from engine.repository.clone import Change
from engine.repository.patches import patch as patches
from engine.repository.patches.hygiene import describe_dropped, notes_on_dropped
from engine.verify import gate, harness_client
from engine.verify.fleet import Fleet
from engine.verify.fleet_device import FleetDevice
from engine.verify.verifier import (
    SCREENING,
    VerdictRequest,
    clean_scratch,
    harness_request,
)
from harness.errors import InputError
from harness.formats.text import plain
from harness.isolation import device_lock, guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits
from harness.verdict import COMPILED, Verdict, rejected

ALPHA = 0.05
COPY = Limits(wall_s=60.0)
SHOWN = (COMPILED, "ceiling", "launch", "score", "metric")
"""Kinds of evidence shown to the worker. Others, such as `clock`, would show how nearly a forgery
was detected.
"""
NOTE = "a screening for the slot's worker: it decides nothing, the candidate gets another verdict"


class Screener:
    """Judges a slot's files while its worker still works.

    The worker may change them meanwhile, so a process that has no more rights than the worker
    copies them, and the engine reads only the copy.
    """

    def __init__(self, setup: Setup, fleet: Fleet, *, slot: str, worktree: Path, base: str,
                 scratch: Path, hidden: tuple[str, ...] = ()) -> None:
        self._setup, self._fleet = setup, fleet
        self._slot, self._worktree, self._base = slot, worktree, base
        self._folder, self._hidden = scratch / "screening", hidden

    def __call__(self, cancel: threading.Event, on_wait: Callable[[str], None]) -> Verdict:
        """Return the verdict. Raises KoptError, such as Cancelled."""
        setup, repo = self._setup, self._setup.repo
        try:
            change = self._captured(cancel)
            identity = patches.candidate_id(change.base_tree, change.patch)
            if broken := setup.breach(change.patch):
                return self._for_worker(change, rejected(broken, candidate_id=identity,
                                                         device=setup.device.name))
            tree = self._folder / "tree"
            repo.checkout_tree(change.tree, tree)
            job = VerdictRequest(
                purpose=SCREENING, candidate=identity, slot=self._slot, alpha=ALPHA,
                candidate_tree=change.tree, incumbent_tree=change.base_tree)
            verdict = self._fleet.run(
                "screening", lambda card: self._screen_on(card, job, tree, cancel, on_wait),
                cancel=cancel, on_wait=on_wait, needs_recheck=gate.needs_recheck,
                void_reason=gate.void_reason)
            return self._for_worker(change, verdict)
        finally:
            worktree.remove(self._folder)

    def _captured(self, cancel: threading.Event) -> Change:
        """Copy the files and capture the copy, as the candidate is captured later."""
        worktree.remove(self._folder)
        copy = self._folder / "files" / self._worktree.name  # names its saved index
        copy.parent.mkdir(parents=True)
        outcome = guard.run(
            ["cp", "-R", "-P", "-p", str(self._worktree), str(copy)], cwd=self._worktree,
            limits=COPY, cancel=cancel, name="screening-copy",
            confine=Confine(writable=(str(copy.parent),), cards=False, hidden=self._hidden),
            yields=device_lock.turnstile() if self._setup.device.kind == "cpu" else None)
        if not outcome.ok:
            raise InputError(f"the files cannot be copied: {outcome.describe(COPY)} "
                             f"{plain(outcome.reason_line, 200)}".strip(),
                             fix="do not change them while they are judged")
        change = self._setup.repo.capture(copy, self._base, self._setup.edit)
        if not change:
            left_out = describe_dropped(change.patch.dropped)
            raise InputError("nothing is changed" + (f"; left out {left_out}" if left_out else ""),
                             fix=f"edit {', '.join(self._setup.edit)}")
        return change

    def _screen_on(self, card: FleetDevice, job: VerdictRequest, tree: Path,
                   cancel: threading.Event, on_wait: Callable[[str], None]) -> Verdict:
        scratch = clean_scratch(self._setup, f"screen-{self._fleet.cards.index(card)}")
        request = harness_request(self._setup, job, card.device.id, scratch, tree)
        on_wait("")
        return harness_client.evaluate(
            request, cancel=cancel, warm=card.warm,
            progress=lambda progress: on_wait(
                progress.detail if progress.stage == "waiting" else ""))

    def _for_worker(self, change: Change, verdict: Verdict) -> Verdict:
        """Return the part of a verdict that the worker may see."""
        notes = (NOTE, *notes_on_dropped(change.patch.dropped), *verdict.notes)
        return replace(verdict, effort="quick", notes=notes, evidence=tuple(
            fact for fact in verdict.evidence if fact.kind in SHOWN))
