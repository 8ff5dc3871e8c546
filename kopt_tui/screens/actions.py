"""Actions that ask an engine for something, shared by the screens that offer them."""

from __future__ import annotations

from kopt_tui.control import Ask
from kopt_tui.screens.base import KoptScreen
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import CampaignRow, WaitingRow


class CandidateActions(KoptScreen):
    """Approve and reject for the candidate that the screen has chosen."""

    def chosen_candidate(self) -> tuple[str, WaitingRow | None]:
        """Return the id of the chosen candidate, and its line if it waits for a person."""
        raise NotImplementedError

    def action_approve(self) -> None:
        self._decide("approve")

    def action_reject(self) -> None:
        self._decide("reject")

    def _decide(self, verb: str) -> None:
        name, waiting = self.chosen_candidate()
        if self.dashboard.refuses(verb):
            return
        if waiting is None:
            said = f"{phrases.short(name)} does not wait for approval" if name else \
                "no candidate waits for approval here"
            self.keybar.say(f"! {said}", "warn")
            return
        self.dashboard.confirm(Ask(
            campaign=waiting.campaign, verb="approve" if verb == "approve" else "reject",
            candidate=waiting.candidate, expected_base=waiting.base_commit,
            expected_verdict=waiting.verdict), waiting)


class CampaignActions(KoptScreen):
    """Pause, resume and stop for the campaign that the screen has chosen."""

    def chosen_campaign(self) -> CampaignRow | None:
        """Return the campaign that the screen is about."""
        raise NotImplementedError

    def action_pause(self) -> None:
        row = self.chosen_campaign()
        if row is None or self.dashboard.refuses("pause"):
            return
        if row.state not in ("running", "paused"):
            self.keybar.say(f"! {row.id} is {row.state}: nothing to pause", "warn")
        else:
            self.dashboard.confirm(Ask(campaign=row.id,
                                  verb="resume" if row.state == "paused" else "pause"))

    def action_stop(self) -> None:
        row = self.chosen_campaign()
        if row is None or self.dashboard.refuses("stop"):
            return
        if row.state not in ("running", "paused"):
            self.keybar.say(f"! {row.id} is {row.state}: nothing to stop", "warn")
        else:
            self.dashboard.confirm(Ask(campaign=row.id, verb="stop"))
