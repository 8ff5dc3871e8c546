"""The texts of a campaign's files for people, each a function of its story."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from engine import history
from engine.history import Change, Past, Regression
from engine.journal.records import Round, VerdictRow
from engine.judge import describe_rows, describe_speedup
from engine.records.story import Stop, Story
from harness.text import plain
from harness.verdict import Verdict

PERFORMANCE = """# {campaign}

Only the baseline and kept gains are listed here; every attempt is in `kopt report`.

"""
GAINS = ("date", "commit", "status", "target", "latency", "against the last best", "why")
REGRESSIONS = ("attempt", "date", "BEST_COMMIT", "candidate", "hypothesis", "changed files",
               "call time best -> candidate", "GPU time best -> candidate", "delta", "notes")
SLOTS = ("slot", "kind", "worker", "hypothesis", "bottleneck", "came to", "detail")


def performance(story: Story, title: Callable[[str], str]) -> str:
    """Return performance.md: the baseline, what was kept, the stops; `title` is of a commit."""
    past = story.past
    rows = [_gain(row.at, "baseline", past.base, history.decode(row), "unmodified code", "")
            for row in past.verdicts.values() if row.purpose == "baseline"]
    for keep in past.keeps:
        if keep.verdict in past.verdicts:
            verdict = history.decode(past.verdicts[keep.verdict])
            rows.append(_gain(keep.at, "keep", keep.commit, verdict, title(keep.commit),
                              describe_speedup(verdict)))
    parts = [PERFORMANCE.format(campaign=story.campaign) + _table(GAINS, rows)]
    parts += [stop(story, at, told) for at, told in story.stops]
    return "\n".join(parts)


def trend(story: Story) -> str:
    """Return performance_trend.md: a line a round."""
    rows = [(str(r.n), str(r.outcome), best(r), r.summary) for r in _ended(story)]
    return f"# {story.campaign}\n\n" + _table(("round", "outcome", "best", "summary"), rows)


def log(story: Story) -> str:
    """Return optimize.md: rounds and stops as they came."""
    told: list[tuple[float, str]] = [
        (r.ended_at or 0.0, f"## Round {r.n}: {r.outcome}\n\n{_line(r.summary)}; best {best(r)}\n"
                            + "".join(f"\n{line}" for line in _review(story, r.n)))
        for r in _ended(story)]
    told += [(at, stop(story, at, what)) for at, what in story.stops]
    return "".join(f"{text.rstrip()}\n\n" for _, text in sorted(told, key=lambda one: one[0]))


def summary(story: Story, round: Round) -> str:
    """Return a round's summary.md."""
    times = f"{stamp(round.started_at)} to {stamp(round.ended_at or round.started_at)}"
    lines = [
        f"# Round {round.n}", "", f"- scope: {round.scope}", f"- incumbent: {round.incumbent}",
        f"- outcome: {round.outcome}", f"- best so far: {best(round)}", f"- time: {times}",
        f"- spent: {round.spent_s:.0f} s, {round.trials} trials" + _cost(round.cost), "",
        _line(round.summary), ""]
    lines += _review(story, round.n)
    rows = [(s.slot, s.kind, s.backend, s.hypothesis, s.bottleneck, s.stage, s.detail)
            for s in story.slots.get(round.n, ())]
    if rows:
        lines += ["## Slots: one hypothesis each", "", _table(SLOTS, rows)]
    limits = [(b.id, b.kernel, b.config_class, b.limiter, _value(b.metric, b.value), b.advice)
              for b in story.bottlenecks.get(round.n, ())]
    if limits:
        lines += ["## Bottlenecks", "", _table(
            ("id", "kernel", "class", "limiter", "value", "advice"), limits)]
    if (lost := story.past.regression(round)) is not None:
        lines += ["## Regression", "", regressions([lost])]
    lines += _transfer(story.past, round.n)
    return "\n".join(lines).rstrip() + "\n"


def stop(story: Story, at: float, told: Stop) -> str:
    """Return the Stop Summary of a stop, as things were then."""
    past = story.past.until(at)
    counts, recent = past.tally, past.recent()
    lines = [
        "## Stop Summary", "", f"- stop time: {stamp(at)}", f"- stop reason: {_line(told.reason)}",
        f"- current BEST_COMMIT: {past.best}", f"- current best metrics: {_metrics(past)}",
        f"- rounds: {counts.rounds}, at the end {counts.consecutive_regressions} regressions and "
        f"{counts.without_gain} rollbacks in a row",
        f"- spent: {told.wall_s:.0f} s, {told.trials} trials{_cost(told.cost)}",
        f"- candidates waiting for a person: {told.waiting}",
        f"- recent regressions: {len(recent)}", ""]
    if recent:
        lines.append(regressions(recent))
    return "\n".join(lines)


def regressions(found: Sequence[Regression]) -> str:
    """Return the table of regression summaries."""
    return _table(REGRESSIONS, [(
        f"round {one.round}", stamp(one.at), one.baseline[:8], one.candidate[:8],
        f"{one.hypothesis} (against {one.bottleneck})" if one.bottleneck else one.hypothesis,
        ", ".join(one.files), _change(one.wall_us), _change(one.kernel_us), f"{one.change:+.1%}",
        "; ".join(one.points)) for one in found])


def best(round: Round) -> str:
    return f"{round.best_speedup or 1.0:.2f}x"


def stamp(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _ended(story: Story) -> Iterator[Round]:
    return (round for round in story.past.rounds if round.ended_at is not None)


def _gain(at: float, status: str, commit: str, verdict: Verdict, why: str,
          change: str) -> tuple[str, ...]:
    latency = "" if verdict.latency_us is None else f"{verdict.latency_us:.3f} us"
    return (stamp(at), commit[:12], status, describe_rows(verdict.rows), latency, change, why)


def _metrics(past: Past) -> str:
    """Return what is known of the best: its verdict against the baseline, or the baseline's own."""
    newest: VerdictRow | None = None
    for row in past.verdicts.values():
        if row.correct and (row.purpose == "baseline" or (
                row.purpose == "headline" and row.candidate == past.best[:12])):
            newest = row
    if newest is None:
        return "not measured"
    verdict = history.decode(newest)
    latency = "not timed" if verdict.latency_us is None else \
        f"{verdict.latency_us:.3f} us ({verdict.latency_kind})"
    if newest.purpose == "baseline":
        kept = "nothing was kept" if past.best == past.base else "the best was not measured"
        return f"1.00x: {kept}; baseline {latency}"
    rows = ", ".join(f"{row.config_class} {row.latency_us:.3f} us" for row in verdict.rows
                     if row.latency_us is not None)
    return f"{describe_speedup(verdict)} against the baseline; {latency}; {rows}"


def _review(story: Story, n: int) -> list[str]:
    """Return the section on the stagnation review that a round began with, if it did."""
    review = story.reviews.get(n)
    if review is None:
        return []
    return [f"## Stagnation: {review.depth}", "",
            f"{review.rollbacks} rounds in a row were rolled back. {_line(review.demands)}", "",
            "New directions:", *(f"- {_line(text)}" for text in review.directions), ""]


def _transfer(past: Past, n: int) -> list[str]:
    """Return the real-training transfer check of the fastest correct candidate, if it had one."""
    verdicts = [history.decode(row) for _, row in past.judged(n)]
    found = next((verdict.transfer for verdict in verdicts if verdict.transfer is not None), None)
    if found is None:
        return []
    return ["## Real-training transfer check", "", *(f"- {_line(x)}" for x in found.lines())]


def _change(pair: Change | None) -> str:
    return "not scored" if pair is None else f"{pair[0]:.3f} -> {pair[1]:.3f} us"


def _value(metric: str, value: float | None) -> str:
    return "" if value is None else f"{value:.4g} {metric}"


def _cost(cost: float) -> str:
    return f", cost {cost:g}" if cost else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(map(_cell, cells)) + " |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:], ""])


def _line(text: str) -> str:
    return " ".join(plain(text, 600).split())


def _cell(text: str) -> str:
    return plain(text, 300).replace("|", "/").replace("\n", " ")
