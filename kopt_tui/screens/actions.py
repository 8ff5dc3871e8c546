"""The requests that several screens offer: approve, reject, pause, resume, stop."""

from __future__ import annotations

from typing import Literal

from kopt_tui.control import ControlRequest
from kopt_tui.screens.base import KoptScreen
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import CampaignRow, WaitingRow

UNFINISHED = ("running", "paused")
NO_DECISION = {"approve": "", "reject": ""}
"""The labels of these actions where no candidate waits for approval."""


class CandidateActions(KoptScreen):
    """Approve and reject, for the candidate that the screen has chosen."""

    def chosen_candidate(self) -> tuple[str, WaitingRow | None]:
        """Return the id of the chosen candidate, and its row if it waits for approval."""
        raise NotImplementedError

    def action_approve(self) -> None:
        self._decide("approve")

    def action_reject(self) -> None:
        self._decide("reject")

    def _decide(self, verb: Literal["approve", "reject"]) -> None:
        name, waiting = self.chosen_candidate()
        if self.dashboard.requests.refuses(verb):
            return
        if waiting is None:
            self.keybar.say(f"! {phrases.short(name)} does not wait for approval" if name else
                            "! no candidate waits for approval here", "warn")
            return
        self.dashboard.requests.confirm(ControlRequest(
            campaign=waiting.candidate.campaign, verb=verb, candidate=waiting.candidate.id,
            expected_base=waiting.candidate.base_commit,
            expected_verdict=waiting.verdict), waiting)


class CampaignActions(KoptScreen):
    """Pause, resume and stop, for the campaign that the screen has chosen."""

    def chosen_campaign(self) -> CampaignRow | None:
        """Return the campaign that a request would be about."""
        raise NotImplementedError

    def labels(self) -> dict[str, str]:
        row = self.chosen_campaign()
        can_pause = row is not None and row.campaign.state in (*UNFINISHED, *phrases.CUT)
        return {"pause": _pause_or_resume(row) if row is not None and can_pause else ""}

    def action_pause(self) -> None:
        row = self.chosen_campaign()
        self._request(row, "pause" if row is None else _pause_or_resume(row))

    def action_stop(self) -> None:
        self._request(self.chosen_campaign(), "stop")

    def _request(self, row: CampaignRow | None, verb: Literal["pause", "resume", "stop"]) -> None:
        if row is None or self.dashboard.requests.refuses(verb):
            return
        state = row.campaign.state
        if state not in UNFINISHED and (verb == "stop" or state not in phrases.CUT):
            why = "nothing to stop" if verb == "stop" else row.how_to_go_on or "it has not begun"
            self.keybar.say(f"! {row.id} is {row.status}: {why}", "warn")
        elif verb == "stop" and row.engine.word != "alive":
            self.keybar.say(f"! no engine runs {row.id}: nothing to stop", "warn")
        else:
            self.dashboard.requests.confirm(ControlRequest(campaign=row.id, verb=verb))


def _pause_or_resume(row: CampaignRow) -> Literal["pause", "resume"]:
    """Return what the key `p` requests; a pause that is under way is undone."""
    resumes = row.campaign.state == "paused" or row.engine.word != "alive" \
        or row.engine.answers_only or row.pauses_soon
    return "resume" if resumes else "pause"
