"""Reads the lines, JSON or text, that a coding agent prints.

They are untrusted: no line raises an error, and all that is kept is limited.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import msgspec

from engine.coding_agents.agent_templates import AgentTemplate, StreamRule

MAX_LINE, MAX_PRINTED, MAX_TEXT, MAX_STEPS = 1 << 20, 1000, 64 << 10, 10_000
"""Limits: bytes of a JSON line, bytes of a text line, characters kept of the model's text (its
end), steps counted."""
MAX_VALUES, MAX_WORD = 100, 200
"""Limits: values that a path gives in a line; characters of a value compared or counted."""
MOST = 1e9
"""Counts and costs of this or more are ignored."""

_OUTAGE = re.compile(
    r"\b(408|429|5\d\d)\b|overloaded|unavailable|rate.?limit|too many requests|timed? ?out"
    r"|connection (error|refused|reset|closed)|stream disconnected|fetch failed"
    r"|ECONN|ENOTFOUND|EAI_AGAIN", re.IGNORECASE)


def is_outage(error: str) -> bool:
    """Return whether an agent's last error says that its provider is down, busy or silent."""
    return _OUTAGE.search(error) is not None


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one line."""

    text: str = ""
    is_fragment: bool = False
    commands: tuple[str, ...] = ()
    output: str = ""
    error: str = ""


class AgentStream:
    """What an agent reports in its lines: steps, cost, text and errors."""

    def __init__(self, agent: AgentTemplate) -> None:
        self.steps = 0
        self.cost_usd: float | None = None
        """The cost that the agent reports, None if it reports none."""
        self.text = ""
        """The end of the model's text."""
        self.error = ""
        """The last error."""
        self._agent, self._seen = agent, set[str]()

    def take(self, line: bytes) -> StreamEvent | None:
        """Read one line; return its content, None if it is text, invalid JSON or too long."""
        if not self._agent.stream or len(line) > MAX_LINE or not line.lstrip().startswith(b"{"):
            self._take_printed(line[:MAX_PRINTED].decode(errors="replace"))
            return None
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        event = StreamEvent()
        for rule in self._agent.stream:
            if all(expected in map(_word, _values(value, path))
                   for path, expected in rule.when.items()):
                event = self._apply(rule, value, event)
        return event

    def _take_printed(self, line: str) -> None:
        """Take the totals of steps and cost from a line of text."""
        match = re.search(self._agent.printed, line) if self._agent.printed else None
        for name, text in match.groupdict().items() if match else ():
            with contextlib.suppress(ValueError):
                self._set_total(name, float(text))

    def _set_total(self, name: str, total: float) -> None:
        if not 0 <= total < MOST:
            return
        if name == "steps":
            self.steps = max(self.steps, min(MAX_STEPS, int(total)))
        else:
            self.cost_usd = max(self.cost_usd or 0.0, total)

    def _apply(self, rule: StreamRule, value: object, event: StreamEvent) -> StreamEvent:
        self._count(rule, value)
        text = "\n".join(_texts(value, rule.text))
        if text:
            glue = "" if rule.is_fragment or not self.text else "\n"
            self.text = (self.text + glue + text)[-MAX_TEXT:]
        error = " ".join(_texts(value, rule.error))[:MAX_TEXT]
        self.error = error or self.error
        return StreamEvent(
            error=error or event.error,
            text=text or event.text,
            is_fragment=rule.is_fragment if text else event.is_fragment,
            commands=(*event.commands, *(text for path in rule.commands
                                         for text in _texts(value, path))),
            output=event.output or "\n".join(text for path in rule.outputs
                                             for text in _texts(value, path)))

    def _count(self, rule: StreamRule, value: object) -> None:
        for step in map(_word, _values(value, rule.step)):
            if step not in self._seen and self.steps < MAX_STEPS:
                self._seen.add(step)
                self.steps += 1
                for cost in _numbers(value, rule.step_cost_usd):
                    self.cost_usd = (self.cost_usd or 0.0) + cost
        for name, path in (("steps", rule.steps), ("cost_usd", rule.cost_usd)):
            for total in _numbers(value, path):
                self._set_total(name, total)


def _values(value: object, path: str) -> list[object]:
    """Return the values at a path, at most MAX_VALUES."""
    values = [value] if path else []
    for key in path.split("."):
        name = key.removesuffix("[]")
        values = [node[name] for node in values if isinstance(node, dict) and name in node]
        if name != key:
            values = [item for node in values if isinstance(node, list)
                      for item in node[:MAX_VALUES]]
    return values[:MAX_VALUES]


def _texts(value: object, path: str) -> Iterator[str]:
    return (text for text in _values(value, path) if isinstance(text, str) and text)


def _numbers(value: object, path: str) -> Iterator[float]:
    """Yield the numbers at a path that can be a count or a cost."""
    for number in _values(value, path):
        if isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number < MOST:
            yield float(number)


def _word(value: object) -> str:
    """Return a value as a rule's `when` spells it, "" for values of other types."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if 0 <= value < MOST else ""
    return value[:MAX_WORD] if isinstance(value, str) else ""
