"""Requests of people to a campaign: approve, reject, pause, resume, stop, set a limit."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import msgspec

from engine.campaign import setup as campaigns
from engine.context import EngineContext
from engine.history import history, waiting_line
from engine.journal.records import Candidate, Control
from engine.lineage import provisional
from engine.lineage.promote import Keeper
from engine.manifest import limits, load
from harness.errors import InputError, KoptError
from harness.formats import file_copy
from harness.formats.quantities import counted
from harness.formats.text import one_line

NOTHING_LEFT = "nothing left to try"
"""How the reason of a campaign begins that ended for want of a task."""
SUBMIT = "; kopt submit PATCH judges your own change"
ANEW = "; kopt run MANIFEST --new starts another campaign, with more backends or agents if you " \
    "name them in the manifest's pool"
"""What a person can do then."""

SHORT_HOST_VERBS = ("approve", "reject", "set")
"""Verbs that a `decide_only` host carries out."""
MOST_REASON = 1000
"""Characters of a person's reason that are recorded."""


class _Request(msgspec.Struct, frozen=True):
    """The part of a `control.requested` event that is read here."""

    control: int = 0
    limits: dict[str, str] = {}
    reason: str = ""


@dataclass
class ControlHandler:
    """Reads open controls and answers each; approvals wait for `decide`, between verdicts."""

    context: EngineContext
    decide_only: bool = False
    paused: bool = False
    stop_reason: str = ""
    decided: bool = False
    """Whether a candidate was approved or rejected since the caller last set this to False."""
    approvals: list[Control] = field(default_factory=list)
    reopening: list[Control] = field(default_factory=list)
    """Requests to resume for which this engine was started."""

    def look(self) -> None:
        """Apply what can be applied at once, and collect approvals for `decide`."""
        known = {control.id for control in (*self.approvals, *self.reopening)}
        for control in self.context.writer.open_controls(self.context.setup.id):
            if control.id in known:
                continue
            if control.verb == "resume" and self.decide_only:
                continue  # the engine that continues the campaign answers it
            if control.verb == "approve":
                self.approvals.append(control)
            elif control.verb == "resume" and self._is_earlier(control):
                self.reopening.append(control)
            else:
                self.context.writer.finish_control(control.id, self._apply(control))

    def _is_earlier(self, control: Control) -> bool:
        """Return whether a request was made before this engine took the campaign.

        An earlier pause or stop was for another engine.
        """
        return control.id <= self.context.last_earlier_request

    def _apply(self, control: Control) -> str:
        if control.verb not in SHORT_HOST_VERBS and self.decide_only:
            return "refused: no engine runs the campaign: it cannot be paused or stopped"
        if control.verb in ("pause", "stop") and self._is_earlier(control):
            return "refused: the engine that it was sent to has ended"
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
            case "set":
                return self._set_limits(control)
            case _:
                return f"refused: unknown request {control.verb!r}"

    def answer_reopening(self, nothing_left: str, limit: str = "") -> None:
        """Answer the requests that started this engine: whether there is anything left to do.

        `limit` is the one whose change lets the campaign go on, "" if there is none.
        """
        advice = f"; kopt set {limit}=VALUE changes that limit" if limit else ""
        if nothing_left.startswith(NOTHING_LEFT) and "kopt resume" not in nothing_left:
            advice = ("" if "kopt submit" in nothing_left else SUBMIT) + ANEW
        for control in self.reopening:
            self.context.writer.finish_control(control.id, "resumed" if not nothing_left else (
                f"refused: the campaign has ended: {nothing_left}{advice}"))
        self.reopening.clear()

    def answer_early_end(self, why: str) -> None:
        """Answer the requests that started this engine, which ends before it looked at them."""
        self.reopening.clear()
        for control in self.context.writer.open_controls(self.context.setup.id):
            if control.verb == "resume" and self._is_earlier(control):
                self.context.writer.finish_control(control.id, f"refused: {why}")

    def _set_limits(self, control: Control) -> str:
        """Change limits in the campaign's manifest, for this engine and for later ones.

        The file comes first: an engine killed before the answer finds the request still open.
        """
        setup, writer, reader = self.context.setup, self.context.writer, self.context.reader
        try:
            manifest = limits.with_limits(setup.manifest, self._requested(control).limits)
        except InputError as error:
            return f"refused: {error}"
        row = reader.campaign(setup.id)
        last_round = history.read(reader, setup.id).rounds_max(campaigns.last_round(manifest))
        changes = limits.changes(setup.manifest, manifest)
        if not changes and row is not None and row.rounds_max == last_round:
            return "changed nothing: these are already the limits"
        changes = changes or "max_iterations"  # a killed engine has changed the file
        # Verdicts divide the error rate by the planned number of looks, which must not change.
        manifest = msgspec.structs.replace(manifest, decision=msgspec.structs.replace(
            manifest.decision, looks=setup.planned_looks))
        file_copy.replace_file(setup.folder.manifest, load.dump(manifest).encode())
        with writer.transaction():
            writer.set_campaign(
                setup.id, kind="limits", rounds_max=last_round,
                payload={"message": changes, "by": control.by})
            writer.finish_control(control.id, f"changed {changes}")
        self.context.use_setup(dataclasses.replace(setup, manifest=manifest))
        return f"changed {changes}"

    def _requested(self, control: Control) -> _Request:
        """Return a request's limits and reason, which only its event records."""
        requests = self.context.reader.payloads(
            self.context.setup.id, "control.requested", _Request)
        return next((request for request in requests if request.control == control.id), _Request())

    def _reject(self, control: Control) -> str:
        """Close a waiting candidate; the gains that rest on it are tried without it."""
        candidate = self._waiting(control)
        if isinstance(candidate, str):
            return candidate
        self.decided = True
        why = one_line(self._requested(control).reason, MOST_REASON)
        dropped = provisional.reject(
            self.context.writer, self.context.reader, self.context.setup.repo, candidate,
            reason=f"rejected by {control.by}{why and f': {why}'}", actor=control.by)
        return "rejected" + (f"; {counted(len(dropped), 'gain')} that built on it will be tried "
                             "without it" if dropped else "")

    def decide(self, keeper: Keeper) -> bool:
        """Carry out the collected approvals; return whether a candidate was kept."""
        kept = False
        while self.approvals:
            control = self.approvals.pop(0)
            try:
                outcome = self._approve(control, keeper)
            except KoptError as error:
                outcome = f"refused: {error}"
            self.context.writer.finish_control(control.id, outcome)
            kept = kept or outcome.startswith("kept")
        return kept

    def _approve(self, control: Control, keeper: Keeper) -> str:
        """Keep a waiting candidate, and what rests on it and needs no approval."""
        candidate = self._waiting(control)
        if isinstance(candidate, str):
            return candidate
        reader, setup = self.context.reader, self.context.setup
        if reason := waiting_line.obstacle(waiting_line.read(reader, setup.id), candidate):
            return f"refused: {reason}"
        self.decided = True
        kept = keeper.approve(candidate, control.by)
        for commit in kept:
            if commit.refusal:
                self.context.writer.event(setup.id, "log", commit.candidate,
                                          message=commit.refusal)
        return "kept" + (f", with {counted(len(kept) - 1, 'gain')} that built on it"
                         if len(kept) > 1 else "")

    def _waiting(self, control: Control) -> Candidate | str:
        """Return the candidate of a control, or the answer if it cannot be decided on."""
        matching = [candidate for candidate in
                    self.context.reader.candidates(self.context.setup.id)
                    if candidate.id == control.candidate]
        if not matching:
            return f"refused: no candidate {control.candidate!r}"
        candidate = matching[0]
        if candidate.state != "waiting":
            return self._done_before(control, candidate) or \
                f"refused: candidate {candidate.id} is {candidate.state}, not waiting"
        if control.expected_base and control.expected_base not in (
                candidate.base_commit, candidate.base_tree):
            return "refused: the candidate's base is not the one that was shown"
        newest = self.context.reader.newest_verdict(self.context.setup.id, candidate.id)
        if control.expected_verdict is not None and \
                (newest is None or newest.id != control.expected_verdict):
            return "refused: the candidate's verdict is not the one that was shown"
        return candidate

    def _done_before(self, control: Control, candidate: Candidate) -> str:
        """Return the answer to a request that was carried out already, "" to any other.

        An engine may have been killed between the decision and the answer.
        """
        newest = self.context.reader.newest_decision(self.context.setup.id, candidate.id)
        if control.verb == "approve" and candidate.state in ("keeping", "kept"):
            answer = "kept already"
        elif control.verb == "reject" and candidate.state == "closed" and newest is not None \
                and (newest.kind, newest.actor) == ("reject", control.by):
            answer = "rejected already"
        else:
            return ""
        self.decided = True
        return answer
