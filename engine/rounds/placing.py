"""Commits the fastest gain on the tip, and tries the other gains again on it.

The tip is the last commit of the waiting line, else the best. A gain on the best that conflicts
with the waiting line is deferred until the line is decided, or replaces it if it is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.context import EngineContext
from engine.failpoint import failpoint
from engine.history import waiting_line
from engine.history.waiting_line import Line
from engine.journal.records import COMMITTED, Candidate
from engine.judge import candidate as candidates
from engine.judge.candidate import CandidateTree, JudgedCandidate
from engine.lineage import provisional
from engine.records.writer import Records
from engine.rounds.active_round import RoundSlots
from engine.verify.verifier import VerdictRequest
from harness.errors import InputError, KoptError

CHALLENGE = "challenge"
"""Purpose of a verdict on a gain against a waiting line that it conflicts with."""


@dataclass(frozen=True)
class Placing:
    """Places gains: at the end of a round, and after a person's decision."""

    slots: RoundSlots
    records: Records
    retry: Callable[[JudgedCandidate], bool] = lambda _: False
    """Begins a repair or a split of a rebased gain that is none; returns whether it began."""

    @property
    def context(self) -> EngineContext:
        return self.slots.context

    def place_verified(self) -> None:
        """Place the gains that are on no line, such as those built on a rejected gain."""
        self.place(self.judged(self.context.reader.candidates(
            self.context.setup.id, states=("verified",))))

    def place(self, gains: Iterable[JudgedCandidate]) -> None:
        """Commit the fastest gain on the tip, then try the others on it, the fastest first."""
        pending, repo = {gain.entry.id: gain for gain in gains}, self.context.setup.repo
        while pending:
            tip, tree = repo.tip, repo.tree_of(repo.tip)
            gain = max(pending.values(), key=lambda gain: (
                gain.entry.candidate.base_tree == tree, gain.verdict.speedup or 0.0))
            del pending[gain.entry.id]
            if gain.entry.candidate.base_tree != tree:
                pending |= {retried.entry.id: retried for retried in self._try_on_tip(gain)}
                continue
            state = self.slots.keeper.place(gain.on(tip), refuse=self.slots.refuse)
            if state in COMMITTED:
                self.slots.end_slot_of(gain.entry.candidate, state, gain.ruling.reason)

    def judged(self, verified: Iterable[Candidate]) -> list[JudgedCandidate]:
        """Return recorded gains with their verdicts; close candidates that cannot be read."""
        gains = []
        for candidate in verified:
            try:
                judged = self.slots.keeper.rulings.judged_before(
                    candidates.load(self.context.setup, candidate))
            except InputError as error:
                self.slots.move(candidate, "closed", "failed", str(error))
                continue
            if judged is not None and judged.is_gain:
                gains.append(judged)
        return gains

    def _try_on_tip(self, gain: JudgedCandidate) -> list[JudgedCandidate]:
        """Rebase a gain on the tip and judge it there; return the gains to place next."""
        entry, setup = gain.entry, self.context.setup
        line = waiting_line.read(self.context.reader, setup.id)
        is_on_best = entry.candidate.base_tree == setup.repo.tree_of(setup.repo.best)
        waiting_id = line[0].id[:12] if line and is_on_best else ""
        if waiting_id and (forms := self._tried_on(line, entry)):
            if forms[-1].state != "closed":  # a killed engine had begun to try it
                self.slots.refuse(entry, "runner-up", _tried_again(forms[-1]),
                                  verdict=gain.verdict_id)
            return []
        try:
            moved = candidates.rebase(setup, entry, setup.repo.tip)
            why = "the new best already contains this change"
        except InputError:
            moved = None
            why = "does not apply without the gain that it builds on, which is not kept"
            if self._has_base_on_line(entry):
                why = "conflicts with " + ("a gain that waits for approval" if line else
                                           "what was kept")
            if waiting_id and self._beats(gain, line):
                released = provisional.release(
                    self.context.writer, self.context.reader, setup.repo,
                    f"it conflicts with {entry.id[:12]}, which is faster")
                self.place([gain])
                return self.judged(released)
        if moved is not None:
            return self._judge_moved(gain, moved, waiting_id)
        if waiting_id:
            self.slots.defer(gain, f"conflicts with {waiting_id}, which waits for approval"
                             if why.startswith("conflicts") else
                             f"{waiting_id} waits for approval: {why}")
        else:
            self.slots.refuse(entry, "runner-up", why, verdict=gain.verdict_id)
        return []

    def _has_base_on_line(self, entry: CandidateTree) -> bool:
        """Return whether the baseline or a kept or waiting commit has the tree of a gain's base."""
        repo = self.context.setup.repo
        return any(repo.has_tree(commit, entry.candidate.base_tree)
                   for commit in (repo.base, *repo.log(repo.tip, repo.base)))

    def _tried_on(self, line: Line, entry: CandidateTree) -> list[Candidate]:
        """Return the forms of a gain that were rebased onto a commit of the line."""
        trees = {self.context.setup.repo.tree_of(member.commit) for member in line}
        return [other for other in self.context.reader.candidates(self.context.setup.id)
                if other.form_of == entry.id and other.base_tree in trees]

    def _judge_moved(self, gain: JudgedCandidate, moved: CandidateTree,
                     waiting_id: str) -> list[JudgedCandidate]:
        """Judge a rebased gain; if it is none and `waiting_id` waits, defer the original gain."""
        entry, writer, slots = gain.entry, self.context.writer, self.slots
        tried = _tried_again(moved.candidate)
        with writer.transaction():
            is_new = writer.add_candidate(moved.candidate, form_of=entry.id)
            failpoint("retry.captured")
            if is_new and not waiting_id:
                slots.keeper.refuse(entry, "runner-up", tried, verdict=gain.verdict_id)
        judged = None if is_new else self._reopened(moved)
        if not is_new and judged is None:
            slots.refuse(entry, "runner-up",
                         f"rebased onto the new best, it is {slots.keeper.known_as(moved.id)}",
                         verdict=gain.verdict_id)
            return []
        slots.tick(entry.candidate, "retrying on the new best")
        try:
            judged = judged or slots.keeper.rulings.judge(moved, "verify")
        except KoptError as fault:
            slots.take_fault(moved, fault)
            return []
        self.records.verdict(moved.candidate.round, judged)
        if judged.is_gain:
            with writer.transaction():
                if waiting_id or not is_new:
                    slots.keeper.refuse(entry, "runner-up", tried, verdict=gain.verdict_id)
                writer.set_candidate_state(self.context.setup.id, moved.id, "verified",
                                           reason=judged.ruling.reason,
                                           base=moved.candidate.base_commit)
            return [judged]
        if not waiting_id and self.retry(judged):
            return []
        slots.close(judged)
        if waiting_id:
            slots.defer(gain, f"{waiting_id} waits for approval: rebased onto it, this is a "
                              f"{judged.ruling.kind}")
        return []

    def _reopened(self, moved: CandidateTree) -> JudgedCandidate | None:
        """Return a known gain that lost only to another gain, None for any other candidate."""
        reader, campaign = self.context.reader, self.context.setup.id
        known = reader.candidate(moved.id, campaign)
        newest = reader.newest_decision(campaign, moved.id)
        if known.state != "closed" or newest is None or newest.kind != "runner-up":
            return None
        judged = self.slots.keeper.rulings.judged_before(moved)
        return judged if judged is not None and judged.is_gain else None

    def _beats(self, gain: JudgedCandidate, line: Line) -> bool:
        """Return whether a gain is faster than a line that it conflicts with, measured directly.

        A gain that is no faster than the line's first gain, or has lost to the line already, is
        not measured.
        """
        context, repo = self.context, self.context.setup.repo
        first = context.reader.newest_verdict(context.setup.id, line[0].id)
        if first is None or (gain.verdict.speedup or 0.0) <= (first.speedup or 0.0):
            return False
        trees = {repo.tree_of(member.commit) for member in line}
        if any(row.purpose == CHALLENGE and row.incumbent_tree in trees for row in
               context.reader.verdicts(context.setup.id, candidate=gain.entry.id)):
            return False
        verdict = context.verdict(VerdictRequest(
            purpose=CHALLENGE, candidate=gain.entry.id, slot="", candidate_tree=gain.entry.tree,
            incumbent_tree=repo.tree_of(repo.tip), alpha=context.alpha()))
        return self.slots.keeper.rulings.record(gain.entry, verdict, CHALLENGE).is_gain


def _tried_again(form: Candidate) -> str:
    return f"tried again on {form.base_commit[:12]} as {form.id}"
