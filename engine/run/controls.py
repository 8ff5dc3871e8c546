"""Requests of people to a running campaign: approve, reject, pause, resume, stop."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.context import EngineContext
from engine.journal.records import Candidate, Control
from engine.judge import candidate as candidates
from engine.lineage.promote import Keeper
from engine.verify.fleet_device import NoDeviceAvailable
from harness.errors import InputError, KoptError


@dataclass
class ControlHandler:
    """Reads open controls and answers each; approvals wait for `decide`, between verdicts."""

    context: EngineContext
    since: float
    """When this engine took the campaign: an earlier pause or stop was for another engine."""
    decide_only: bool = False
    paused: bool = False
    stop_reason: str = ""
    approvals: list[Control] = field(default_factory=list)

    def look(self) -> None:
        """Apply what can be applied at once, and collect approvals for `decide`."""
        known = {control.id for control in self.approvals}
        for control in self.context.writer.open_controls(self.context.setup.id):
            if control.id in known:
                continue
            if control.verb == "approve":
                self.approvals.append(control)
            else:
                self.context.writer.finish_control(control.id, self._apply(control))

    def _apply(self, control: Control) -> str:
        if control.verb != "reject" and self.decide_only:
            return "refused: no engine runs the campaign, this one only approves and rejects"
        if control.verb in ("pause", "stop") and control.at < self.since:
            return "refused: the engine that it was meant for has ended"
        match control.verb:
            case "pause":
                self.paused = True
                return "paused as soon as the round ends"
            case "resume":
                self.paused = False
                return "resumed"
            case "stop":
                self.stop_reason = f"stopped by {control.by}"
                self.context.stop.set()
                return "stopping"
            case "reject":
                return self._reject(control)
            case _:
                return f"refused: unknown request {control.verb!r}"

    def _reject(self, control: Control) -> str:
        candidate = self._waiting(control)
        if isinstance(candidate, str):
            return candidate
        writer, campaign = self.context.writer, self.context.setup.id
        with writer.transaction():
            writer.add_decision(campaign, candidate.id, "reject", f"rejected by {control.by}",
                                round=self.context.round, actor=control.by)
            writer.set_candidate_state(campaign, candidate.id, "closed",
                                       reason=f"rejected by {control.by}")
        return "rejected"

    def decide(self, keeper: Keeper) -> bool:
        """Carry out the collected approvals; return whether a candidate was kept."""
        kept = False
        while self.approvals:
            control = self.approvals.pop(0)
            try:
                outcome = self._approve(control, keeper)
            except NoDeviceAvailable:
                self.approvals.insert(0, control)  # stays open: the next engine carries it out
                raise
            except KoptError as error:
                outcome = f"refused: {error}"
            self.context.writer.finish_control(control.id, outcome)
            kept = kept or outcome.startswith("kept")
        return kept

    def _approve(self, control: Control, keeper: Keeper) -> str:
        """Keep a waiting candidate; one whose base has moved is rebased and measured again."""
        candidate = self._waiting(control)
        if isinstance(candidate, str):
            return candidate
        setup = self.context.setup
        entry = candidates.load(setup, candidate)
        if candidate.base_commit == setup.repo.best:
            before = keeper.judged_before(entry)
            if before is None:
                return "refused: it has no recorded verdict"
            return "kept" if keeper.keep(before, actor=control.by) else self._refusal(entry.id)
        try:
            moved = candidates.rebase(setup, entry, setup.repo.best, self.context.round)
        except InputError:
            reason = "conflicts with what was kept since"
            keeper.refuse(entry, "runner-up", reason, actor=control.by)
            return f"refused: it {reason}"
        if moved is None:
            keeper.refuse(entry, "tie", "the best already contains this change", actor=control.by)
            return "refused: the best already contains this change"
        if not self.context.writer.add_candidate(moved.candidate, form_of=entry.id) and \
                keeper.kept_before(moved.id):
            reason = f"its change on the best is {keeper.known_as(moved.id)}"
            keeper.refuse(entry, "runner-up", reason, actor=control.by)
            return f"refused: {reason}"
        judged = keeper.judge(moved, "verify")
        keeper.refuse(entry, "runner-up", f"its base had moved; measured again as {moved.id}",
                      actor=control.by)
        if not judged.is_gain:
            keeper.close(judged, actor=control.by)
            return f"refused: on the new best it is a {judged.ruling.kind}: " \
                   f"{judged.ruling.reason}"
        if not keeper.keep(judged, actor=control.by):
            return self._refusal(moved.id)
        return f"kept as {moved.id}, measured again on the new best"

    def _refusal(self, identity: str) -> str:
        return f"refused: {self.context.reader.candidate(identity, self.context.setup.id).reason}"

    def _waiting(self, control: Control) -> Candidate | str:
        """Return the candidate of a control, or the answer if it cannot be decided on."""
        matching = [candidate for candidate in
                    self.context.reader.candidates(self.context.setup.id)
                    if candidate.id == control.candidate]
        if not matching:
            return f"refused: no candidate {control.candidate!r}"
        candidate = matching[0]
        if candidate.state != "waiting":
            return f"refused: candidate {candidate.id} is {candidate.state}, not waiting"
        if control.expected_base and control.expected_base not in (
                candidate.base_commit, candidate.base_tree):
            return "refused: the candidate's base is not the one that was shown"
        newest = self.context.reader.verdicts(self.context.setup.id, candidate=candidate.id,
                                              limit=1)
        if control.expected_verdict is not None and \
                [row.id for row in newest] != [control.expected_verdict]:
            return "refused: the candidate's verdict is not the one that was shown"
        return candidate
