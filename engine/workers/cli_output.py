"""What a `cli` worker's command prints: progress, a transcript, its hypothesis, steps and cost."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path

from engine.coding_agents.agent_stream import AgentStream, StreamEvent
from engine.coding_agents.agent_templates import AgentTemplate
from engine.task import AgentProgress
from engine.workers.protocol import Tick
from engine.workers.transcript import Role, TranscriptEntry, TranscriptWriter
from harness.formats.text import plain

_HYPOTHESIS = re.compile(r"^Hypothesis: *(\S.*)$", re.MULTILINE)
MAX_LINE, MAX_TEXT = 400, 64 << 10
"""Characters of a printed line that are shown, and of a text in fragments that are kept."""
SHOWN = 120
"""Characters of a command, of last words, and of a text in fragments (its end) that are shown."""


def hypothesis_in(output: str) -> str:
    """Return the last hypothesis that a worker's output states, "" if none."""
    stated = _HYPOTHESIS.findall(output)
    return plain(stated[-1], 300) if stated else ""


class CliOutput:
    """Reads a command's standard output line by line, as its agent's template says.

    `clean` takes secrets out of a text. `book` gets what a known agent says its model cost since
    the last time, None if it does not say, and how many answers that is.
    """

    def __init__(self, agent: AgentTemplate | None, tick: Tick, clean: Callable[[str], str],
                 transcript: Path, book: Callable[[float | None, int], None]) -> None:
        self._is_agent = agent is not None
        self._stream = AgentStream(agent or AgentTemplate(title=""))
        self._has_json = bool(agent and agent.stream)
        self._tick, self._clean = tick, clean
        self._transcript = TranscriptWriter(transcript)
        self._fragments, self._began_at = "", time.time()
        self._book, self._booked_usd, self._booked_answers = book, 0.0, 0

    def begin(self, prompt: str) -> None:
        """Begin the transcript with what the agent is asked."""
        if self._has_json:
            self._add("user", prompt)

    def take(self, line: bytes) -> None:
        """Record and show a line."""
        event = self._stream.take(line)
        if (self.cost_usd or 0.0) > self._booked_usd:
            self._book_costs()
        if event is None:
            self._show(line[:MAX_TEXT].decode(errors="replace"))
            return
        self._note(event)
        text = self._fragments[-SHOWN:] if event.is_fragment else event.text
        if shown := event.error or (*event.commands[-1:], text)[0]:
            self._show(" ".join(shown.split()))

    def _show(self, text: str) -> None:
        shown = plain(self._clean(text), MAX_LINE)
        self._tick("working", shown, None, AgentProgress(
            began_at=self._began_at, step=self.steps, step_limit=0, cost_usd=self.cost_usd,
            command=shown[:SHOWN]) if self._is_agent else None)

    def end(self, stdout: bytes) -> None:
        """Take a last line without a newline; write and book what is left."""
        if rest := stdout.rpartition(b"\n")[2]:
            self.take(rest)
        self._flush()
        if self.steps > self._booked_answers:
            self._book_costs()

    def hypothesis(self, printed: str) -> str:
        """Return the last hypothesis that the command stated, "" if none."""
        return hypothesis_in(self._clean(self._stream.text)) or hypothesis_in(printed)

    @property
    def last_words(self) -> str:
        """The last line of a known agent's model."""
        lines = self._clean(self._stream.text).strip().splitlines()
        return plain(lines[-1], SHOWN) if lines else ""

    @property
    def error(self) -> str:
        """The last error of the stream."""
        return plain(" ".join(self._clean(self._stream.error).split()), 300)

    @property
    def steps(self) -> int:
        return self._stream.steps

    @property
    def cost_usd(self) -> float | None:
        """The cost that a known agent reports, None if it does not; 0 for other commands."""
        return self._stream.cost_usd if self._is_agent else 0.0

    def _book_costs(self) -> None:
        cost = None if self.cost_usd is None else self.cost_usd - self._booked_usd
        self._book(cost, max(0, self.steps - self._booked_answers))
        self._booked_usd, self._booked_answers = self.cost_usd or 0.0, self.steps

    def _note(self, event: StreamEvent) -> None:
        if event.text and event.is_fragment:
            self._fragments = (self._fragments + event.text)[-MAX_TEXT:]
        if event.commands or event.output or (event.text and not event.is_fragment):
            self._flush()
        if (event.text and not event.is_fragment) or event.commands:
            self._add("assistant", "" if event.is_fragment else event.text,
                      "\n".join(event.commands))
        if event.output:
            self._add("tool", event.output)

    def _flush(self) -> None:
        if self._fragments:
            self._add("assistant", self._fragments)
            self._fragments = ""

    def _add(self, role: Role, text: str, command: str = "") -> None:
        with contextlib.suppress(OSError):  # the disk is full: the work goes on
            self._transcript.add(TranscriptEntry(
                step=self.steps, at=time.time(), role=role, text=self._clean(text),
                command=self._clean(command), cost_usd=self.cost_usd))
