"""The Candidate screen: a candidate's claim, what was measured, the audit, and the patch."""

from __future__ import annotations

from textual.containers import Container

from kopt_tui.screens.actions import NO_DECISION, CandidateActions
from kopt_tui.screens.base import Body
from kopt_tui.snapshot.snapshot import Focus, Snapshot, WaitingRow
from kopt_tui.widgets.candidate_pane import CandidatePane
from kopt_tui.widgets.pane import Column
from kopt_tui.widgets.patch_pane import PatchPane, patch_lines


class CandidateScreen(CandidateActions):
    """Facts beside the patch, or above it on a narrow terminal."""

    SCOPE = "candidate"
    CSS = """
    CandidateScreen #panes { layout: vertical; height: 1fr; }
    CandidateScreen.-wide #panes { layout: horizontal; }
    CandidateScreen.-wide #side { margin: 0 0 0 2; }
    """

    def __init__(self, campaign: str, candidate: str) -> None:
        super().__init__()
        self.campaign = campaign
        self.candidate = candidate
        self._patch: tuple[str, str] | None = None

    def body(self) -> Body:
        self.facts, self.patch = CandidatePane(), PatchPane()
        return [Container(Column(self.facts), Column(self.patch, id="side"), id="panes")]

    def focus_of_feed(self) -> Focus:
        return Focus(campaign=self.campaign, candidate=self.candidate)

    def draw(self, snapshot: Snapshot) -> None:
        view = snapshot.candidate
        if view is None or view.campaign != self.campaign:
            return
        if view.candidate is not None and not view.candidate.id.startswith(self.candidate):
            return
        self.facts.set_content(view)
        if (view.patch, view.patch_note) != self._patch:
            self._patch = view.patch, view.patch_note
            self.patch.set_content((patch_lines(view.patch, highlighted=False), view.patch_note))
            self.run_worker(self._highlight, thread=True, exclusive=True)

    def _highlight(self) -> None:
        patch, note = self._patch or ("", "")
        self.call_later(self.patch.set_content, (patch_lines(patch, highlighted=True), note))

    def labels(self) -> dict[str, str]:
        view = self.dashboard.snapshot.candidate
        shown = view if view is not None and view.campaign == self.campaign else None
        return ({} if shown and shown.waiting else NO_DECISION) \
            | ({} if shown and shown.again else {"measure_again": ""})

    def action_transcript(self) -> None:
        self.dashboard.open_transcript(self.campaign, candidate=self.candidate)

    def action_measure_again(self) -> None:
        view = self.dashboard.snapshot.candidate
        if self.dashboard.requests.refuses("measure again"):
            return
        if view is None or view.candidate is None or not view.again:
            self.keybar.say("! only a near gain, or what a person rejected, is measured again",
                            "warn")
            return
        self.dashboard.requests.measure_again(self.campaign, view.candidate.id)

    def chosen_candidate(self) -> tuple[str, WaitingRow | None]:
        view = self.dashboard.snapshot.candidate
        shown = view is not None and view.campaign == self.campaign
        return self.candidate, view.waiting if view and shown else None
