"""A slot in which an agent works, and its transcript, in the workspace of `dashboard_journal`."""

from __future__ import annotations

from pathlib import Path

from engine.campaign.folder import Folder
from engine.journal.records import Slot
from engine.task import AgentProgress
from engine.workers.transcript import Role, TranscriptEntry, TranscriptWriter
from kopt_tui.snapshot.snapshot import AttemptRef
from tests.support.dashboards.dashboard_journal import CAMPAIGN, NOW, Journal

SLOT = "agent-1"


def add_slot(workspace: Path, *, now: float = NOW, **fields: object) -> None:
    """Put an agent's slot into the running round."""
    agent = AgentProgress(began_at=now - 130, step=3, step_limit=60, cost_usd=0.0123,
                          command="cc -O3 rmsnorm.c && ./bench --quick")
    journal = Journal(workspace)
    journal.put(Slot(**{
        "campaign": CAMPAIGN, "round": 3, "slot": SLOT, "kind": "planned", "backend": "agent",
        "hypothesis": "keep a row in registers", "stage": "asking", "detail": "model-x",
        "started_at": now - 42, "agent": agent, **fields}))  # type: ignore[arg-type]
    journal.close()


def path_of(workspace: Path, *, round: int = 3, number: int = 1) -> Path:
    """Return the path of an attempt's transcript."""
    return Folder(workspace / CAMPAIGN).transcript(round, SLOT, number)


def attempt() -> AttemptRef:
    """Return a reference to the newest attempt of the slot."""
    return AttemptRef(campaign=CAMPAIGN, round=3, slot=SLOT)


def entry(role: Role, text: str, step: int = 1, **fields: object) -> TranscriptEntry:
    return TranscriptEntry(**{"step": step, "at": NOW + step, "role": role, "text": text,
                              **fields})  # type: ignore[arg-type]


def write(path: Path, *entries: TranscriptEntry) -> None:
    """Append entries as an agent's slot does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = TranscriptWriter(path)
    for one in entries:
        writer.add(one)


def step(number: int, said: str, command: str, output: str, code: int = 0) -> list[TranscriptEntry]:
    """Return what one step of an agent adds."""
    return [entry("assistant", said, number, command=command, cost_usd=number * 0.0041),
            entry("tool", output, number, command=command, exit_code=code,
                  cost_usd=number * 0.0041)]


def session(steps: int, output: str = "") -> list[TranscriptEntry]:
    """Return the entries of an attempt of so many steps; each command's `output` is the same."""
    begin = [entry("system", "You make kernels faster.", 0),
             entry("user", "Make rmsnorm faster.\n\nHypothesis: keep a row in registers.", 0)]
    return begin + [one for number in range(1, steps + 1) for one in step(
        number, f"Idea {number}: more accumulators, so that the loop vectorises.",
        f"sed -i s/LANES/{number}/ rmsnorm.c && make", output or f"cc -O3 rmsnorm.c\n{number}.7 us",
        int(number % 4 == 3))]
