"""Texts of one line: words with signs, speedups, times, progress.

Every text that came from a worker passes through `clean` before it reaches a terminal.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from harness.formats import quantities
from harness.formats.text import plain
from harness.formats.text import quoted as in_quotes

if TYPE_CHECKING:  # for start-up time, see `snapshot`
    from engine.journal.records import Campaign, Slot
    from engine.task import AgentProgress

CUT = ("stopped", "failed")
"""States of a campaign that ended before its time, and may be resumed."""
CONTINUABLE = ("running", "paused")
"""States of a campaign that an engine runs; where that is gone, another one may continue it."""
ENDED = ("waiting", "finished", *CUT)
"""States of a campaign that no engine continues by itself."""
RAISE_A_LIMIT = "kopt set raises a limit, then kopt resume"
NOTHING_LEFT = "nothing is left to try; kopt submit PATCH judges your own change"
"""How a campaign that has ended goes on, by why it ended."""

SIGNS: Mapping[str, tuple[str, str]] = {
    "keep": ("✓", "good"), "kept": ("✓", "good"), "finished": ("✓", "good"),
    "faster": ("✓", "good"), "baseline": ("·", "dim"), "not judged here": ("·", "warn"),
    "headline": ("»", "info"), "e2e": ("»", "info"), "e2e.not_run": ("!", "warn"),
    "tie": ("=", "plain"), "uncertain": ("~", "plain"),
    "regression": ("▼", "warn"), "slower": ("▼", "warn"), "reject": ("✗", "bad"),
    "invalid": ("✗", "bad"), "incorrect": ("✗", "bad"), "broken": ("✗", "bad"),
    "failed": ("✗", "bad"), "lost": ("✗", "bad"), "not kept": ("✗", "bad"),
    "outage": ("!", "warn"),
    "repair": ("↻", "info"),
    "split": ("÷", "info"), "ask": ("?", "accent"), "waiting": ("?", "accent"),
    "provisional": ("?", "info"),
    "runner-up": ("+", "info"), "measured": ("·", "plain"), "verified": ("·", "plain"),
    "running": ("►", "good"), "judging": ("►", "good"), "paused": ("‖", "warn"),
    "stopped": ("■", "plain"), "new": ("·", "dim"), "flag": ("!", "warn"), "note": ("·", "dim"),
    "warning": ("!", "warn"),
}
"""Sign and tone of each word; neither appears without a word."""

ITSELF = "the unchanged code against itself"
"""What the baseline's verdict compares."""
UNMEASURED = "kept, not measured"
"""Shown for the best between a keep and its verdict against the baseline."""
BARS = "▁▂▃▄▅▆▇█"
CLIP = 2000
MODEL_STAGES = ("starting", "asking", "running", "waiting")
"""Stages of a slot while its model is at work."""
RATIO = re.compile(r"^(\d[\d.]*x|uncertain)( \[[^]]*\])?(;? +|$)")


def clean(text: str, limit: int = CLIP) -> str:
    """Return one line of plain text, without control characters, clipped to `limit` characters."""
    line = plain(text[: limit * 2], limit * 2).replace("\n", " ").replace("\t", " ")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def quoted(text: str, limit: int = CLIP) -> str:
    """Return what a worker or a model says, in quotation marks: no word of kopt's own. "" stays."""
    return in_quotes(clean(text, limit - 2), limit)


def sign(word: str) -> str:
    return SIGNS.get(word, ("·", "plain"))[0]


def tone(word: str) -> str:
    return SIGNS.get(word, ("·", "plain"))[1]


def signed(word: str) -> str:
    """Return a word after its sign: `✓ keep`."""
    return f"{sign(word)} {word}"


def ruled(kind: str, reason: str) -> tuple[str, str]:
    """Return a decision after its sign, and its tone: `▼ regression`, `~ regression`.

    A regression has the sign of an uncertain speedup if only a class is significantly slower.
    """
    is_open = kind == "regression" and "uncertain" in reason.partition(";")[0]
    word = "uncertain" if is_open else kind
    return f"{sign(word)} {kind}", tone(word)


def headline(campaign: Campaign) -> str:
    """Return the best's speedup over the baseline: `1.52x [1.49, 1.55]`, "" if not measured."""
    return quantities.speedup(campaign.speedup, campaign.speedup_low, campaign.speedup_high)


def best(campaign: Campaign) -> str:
    """Return the best's speedup, UNMEASURED if it is not known yet, "" if nothing is kept."""
    is_baseline = campaign.best_commit == campaign.base_commit
    return headline(campaign) or ("" if is_baseline else UNMEASURED)


def best_or_waiting(campaign: Campaign, provisional: str) -> str:
    """Return the best's speedup or, if nothing is kept, that of what waits: `? 2.04x`."""
    waits = provisional.removeprefix("provisional ").partition(" ")[0].rstrip(",")
    return best(campaign) or (f"? {waits}" if waits[:1].isdigit() else "")


def state(campaign: Campaign, *, live: bool, answers_only: bool = False) -> str:
    """Return a campaign's state in a word.

    It is "lost" for a running one whose engine is gone, and "judging" for one that has ended, or
    whose engine is gone, and whose host is at work on a submission or a decision.
    """
    if campaign.state == "running" and not live:
        return "lost"
    if campaign.state in CONTINUABLE and live and answers_only:
        return "judging"
    return "judging" if live and campaign.phase and campaign.state in ENDED else campaign.state


def phase(campaign: Campaign, *, live: bool, answers_only: bool = False) -> str:
    """Return that a campaign's engine is gone, or what it does, and how the campaign ended and
    goes on if that was before its time.
    """
    parts = (work(campaign), campaign.outcome) if live else (campaign.outcome, cut(campaign))
    return without_engine(campaign, live=live, answers_only=answers_only) or \
        "; ".join(filter(None, parts))


def without_engine(campaign: Campaign, *, live: bool, answers_only: bool = False) -> str:
    """Return that a campaign's engine is gone, and what continues it; "" for other campaigns."""
    if campaign.state in CONTINUABLE and not live:
        return engine_gone(campaign)
    return only_answers(campaign) if campaign.state in CONTINUABLE and answers_only else ""


def cut(campaign: Campaign) -> str:
    """Return what continues a campaign that ended before its time, "" if its outcome says it."""
    return f"kopt resume {campaign.id} continues it" \
        if campaign.state in CUT and "kopt resume" not in campaign.outcome else ""


def result(campaign: Campaign) -> str:
    """Return how to take the result of a campaign that has ended, "" if it has kept nothing."""
    has_result = campaign.state in ENDED and campaign.best_commit != campaign.base_commit
    return f"kopt merge {campaign.id} applies the result" if has_result else ""


def untried_best(campaign: Campaign) -> str:
    """Return how a campaign goes on that has kept something after nothing was left to try."""
    return f"kopt resume {campaign.id} goes on from the new best"


def engine_gone(campaign: Campaign) -> str:
    """Return that a campaign's engine was killed, and what to do."""
    return f"its engine is gone; kopt resume {campaign.id} continues it"


def only_answers(campaign: Campaign) -> str:
    """Return that a process does not continue a campaign whose engine is gone, and what does."""
    return "its engine is gone, and a process only answers a request; " \
        f"kopt resume {campaign.id} continues it after that"


def work(campaign: Campaign) -> str:
    """Return what a live campaign's engine or host does; if paused, what continues it."""
    if campaign.state == "paused":
        return f"kopt resume {campaign.id} continues it"
    return f"after its end: {campaign.phase}" if state(campaign, live=True) == "judging" \
        else campaign.phase


def clock(at: float) -> str:
    """Return the local time of day: `14:02:11`; "" for a time that is out of range."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return ""


def moment(at: float, now: float) -> str:
    """Return `14:02` for a time of today, `Nov 20` for an older one.

    An age such as "3 min ago" would change, and be repainted, without an event.
    """
    then, today = time.localtime(at), time.localtime(now)
    is_today = (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M" if is_today else "%b %d", then)


def age(seconds: float) -> str:
    """Return how long something lasts, in steps so large that a wait costs few repaints.

    `20 s`, `3 min`, `5 h`; "" below ten seconds.
    """
    if seconds < 60:
        return f"{seconds // 10 * 10:.0f} s" if seconds >= 10 else ""
    return f"{seconds // 60:.0f} min" if seconds < 3600 else f"{seconds // 3600:.0f} h"


def stamp(at: float) -> str:
    """Return the local date and time: `2026-11-20 14:02:11`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def spark(values: Sequence[float], width: int) -> str:
    """Return the last values as a row of bars."""
    shown = values[-width:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    reach = (high - low) or 1.0
    return "".join(BARS[round((value - low) / reach * (len(BARS) - 1))] for value in shown)


def bar(part: float | None, width: int) -> str:
    """Return a progress bar of `width` cells, blank where progress is unknown."""
    if part is None:
        return " " * width
    full = round(max(0.0, min(1.0, part)) * width)
    return "━" * full + "╌" * (width - full)


def short(name: str, length: int = 8) -> str:
    """Return the first characters of a hash."""
    return clean(name, 64)[:length]


def unprefixed(reason: str) -> str:
    """Return a reason without the speedup that it begins with: another column shows it."""
    return RATIO.sub("", reason)


def measure_again(candidate: str) -> str:
    """Return how a person has a near gain measured again."""
    return f"kopt submit --from {candidate[:12]} measures it again"


def agent(progress: AgentProgress | None) -> str:
    """Return how far a model is: `step 3/60 $0.0123`, `step 3 $0.0123` without a limit, or ""."""
    if progress is None:
        return ""
    limit = f"/{progress.step_limit}" if progress.step_limit else ""
    return f"step {progress.step}{limit} {quantities.dollars(progress.cost_usd)}"


def slot(row: Slot, elapsed: str = "") -> str:
    """Return what happens in a slot: how far its model is and its last command, or the detail.

    `elapsed` is for how long the attempt lasts.
    """
    detail = unprefixed(row.detail).removeprefix("waiting ")
    if row.agent is not None and row.stage in ("asking", "running"):
        detail = row.agent.command
    if row.stage not in MODEL_STAGES:
        elapsed = ""
    progress = " ".join(filter(None, (agent(row.agent), elapsed)))
    return "  ".join(filter(None, (progress, detail)))


def cut_off(row: Slot) -> Slot:
    """Return a slot without its work if no engine goes on with it."""
    return row if row.progress == 1.0 else msgspec.structs.replace(
        row, stage="cut off", progress=None, detail="", agent=None)


def noise(low: object, high: object) -> str:
    """Return the interval of the baseline against itself: `noise [0.96, 1.05]`, "" if not timed."""
    is_timed = isinstance(low, int | float) and isinstance(high, int | float)
    return f"noise [{low:.2f}, {high:.2f}]" if is_timed else ""
