"""The Transcript screen: what the model of one attempt said, its commands and their output."""

from __future__ import annotations

from kopt_tui.screens.base import Body, KoptScreen
from kopt_tui.snapshot.snapshot import AttemptRef, Focus, Snapshot
from kopt_tui.snapshot.transcript_feed import TranscriptFeed, TranscriptPart
from kopt_tui.widgets.transcript_pane import TranscriptHead, TranscriptPane


class TranscriptScreen(KoptScreen):
    """The newest attempt of a slot, or the attempt that made a candidate."""

    SCOPE = "transcript"

    def __init__(self, campaign: str, *, attempt: AttemptRef | None = None,
                 candidate: str = "") -> None:
        super().__init__()
        self.campaign, self.candidate = campaign, candidate
        self._attempt, self._newest = attempt, 0
        self._hypothesis = ""
        self.feed: TranscriptFeed | None = None

    def body(self) -> Body:
        self.head, self.transcript = TranscriptHead(), TranscriptPane()
        return [self.head, self.transcript]

    def focus_of_feed(self) -> Focus:
        return Focus(campaign=self.campaign, candidate=self.candidate)

    def draw(self, snapshot: Snapshot) -> None:
        view, row = snapshot.candidate, snapshot.row(self.campaign)
        if self.candidate and view is not None and view.candidate is not None \
                and view.candidate.id.startswith(self.candidate):
            self._attempt = self._attempt or view.attempt
            self._hypothesis = view.candidate.hypothesis
        if self._attempt is None or row is None:
            return
        if self.feed is None:
            self.feed = TranscriptFeed(self.dashboard.workspace / row.campaign.path,
                                       self._attempt, lambda part: self.call_later(
                                           self._take, part))
            self.feed.start()
        slot = next((entry for entry in (snapshot.view.slots if snapshot.view else ())
                     if (entry.slot.campaign, entry.slot.round, entry.slot.slot) == (
                         self.campaign, self._attempt.round, self._attempt.slot)), None)
        self.head.set_content((
            self._attempt, self._newest, slot if self._attempt.number == self._newest else None,
            self.transcript.came, self._hypothesis or (slot.slot.hypothesis if slot else "")))

    def _take(self, part: TranscriptPart) -> None:
        """Show what the feed has posted."""
        self._attempt, self._newest = part.attempt, part.newest
        self.transcript.take(part)
        self.show(self.dashboard.snapshot)

    def on_transcript_pane_search_changed(self) -> None:
        if self.feed is not None:
            self.feed.search(self.transcript.filter)

    def on_screen_resume(self) -> None:
        if self.feed is not None:
            self.feed.watch(True)

    def on_screen_suspend(self) -> None:
        if self.feed is not None:
            self.feed.watch(False)

    def on_unmount(self) -> None:
        if self.feed is not None:
            self.feed.stop()

    # Actions.

    def action_match(self, step: int) -> None:
        if not self.transcript.filter:
            self.keybar.say("no search is active: press / to start one")
        elif not self.transcript.find(step):
            self.keybar.say(f"! no entry contains {self.transcript.filter}", "warn")

    def action_step(self, step: int) -> None:
        self.transcript.jump(step)

    def action_attempt(self, step: int) -> None:
        if self.feed is not None:
            self.feed.go(step)
