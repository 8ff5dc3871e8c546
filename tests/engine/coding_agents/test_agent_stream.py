"""Output streams of coding agents: recorded ones, malformed lines and floods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.coding_agents.agent_stream import MAX_LINE, MAX_STEPS, MAX_TEXT, AgentStream
from engine.coding_agents.agent_templates import GENERIC, templates

STREAMS = Path(__file__).with_name("streams")
WITH_STREAM = [name for name, agent in templates().items() if agent.stream and name != GENERIC]


def read(name: str, *lines: bytes) -> tuple[AgentStream, list[str], list[str]]:
    """Let a stream take these lines; return it, the commands and their outputs."""
    stream, commands, outputs = AgentStream(templates()[name]), list[str](), list[str]()
    for line in lines:
        if event := stream.take(line):
            commands += event.commands
            outputs += [event.output] if event.output else []
    return stream, commands, outputs


@pytest.mark.parametrize("name", WITH_STREAM)
def test_recorded_stream_yields_commands_outputs_steps_and_cost(name: str) -> None:
    lines = (STREAMS / f"{name}.jsonl").read_bytes().splitlines()
    stream, commands, outputs = read(name, *lines)
    first, second = commands
    assert "echo one > made.txt; pwd; id -u" in first and "ls; cat k.c" in second
    assert outputs[0].startswith("/slot\n0") and "int k;" in outputs[1] and len(outputs) == 2
    assert stream.text.splitlines() == [
        "Step 1.", "Step 2.", "Done.", "Hypothesis: fewer passes are faster"] or \
        stream.text == "Step 1.Step 2.Done.\nHypothesis: fewer passes are faster"  # in fragments
    assert (stream.steps, stream.error) == (3, "")
    costs = {"claude": 0.03, "opencode": 0.0135}
    assert stream.cost_usd == pytest.approx(costs[name]) if name in costs \
        else stream.cost_usd is None


@pytest.mark.parametrize(("name", "line", "error"), [
    ("claude", {"type": "system", "subtype": "api_retry", "error": "authentication_failed"},
     "authentication_failed"),
    ("codex", {"type": "turn.failed", "error": {"message": "401 Unauthorized"}},
     "401 Unauthorized"),
    ("opencode", {"type": "error", "error": {"data": {"message": "invalid x-api-key"}}},
     "invalid x-api-key")])
def test_error_of_a_provider_is_found(name: str, line: object, error: str) -> None:
    assert read(name, json.dumps(line).encode())[0].error == error


@pytest.mark.parametrize(("name", "line", "expected"), [
    ("aider", b"Tokens: 1.0k sent. Cost: $0.0035 message, $0.0042 session.", (0, 0.0042)),
    ("mini", b"mini-swe-agent (step 2, $0.01):", (2, 0.01)),
    ("mini", b"mini-swe-agent (step 99999999999999999999, $1.2.3):", (0, None))])
def test_steps_and_cost_in_printed_lines_are_read(name: str, line: bytes,
                                                  expected: tuple[int, float | None]) -> None:
    stream = read(name, line)[0]
    assert (stream.steps, stream.cost_usd) == expected


@pytest.mark.parametrize("line", [
    b"", b"{", b"{}", b"null", b"[]", b'{"type": "assistant", "message": {"content": [{"te',
    b'{"text": "\xff\xfe"}', b'{"text": ' + b"[" * 100_000, b'{"a":' * 50_000,
    b'{"text": "' + b"x" * MAX_LINE + b'"}', b'{"text": 1, "command": [{}], "step": {}}',
    b'{"text": null, "cost_usd": true, "output": [["x"]]}',
    b'{"cost_usd": -5}', b'{"cost_usd": 1e400}', b'{"cost_usd": NaN}', b'{"cost_usd": "12"}',
    b'{"cost_usd": ' + b"9" * 5000 + b"}", b'{"step": ' + b"9" * 5000 + b"}"])
def test_unreadable_line_gives_no_text_cost_command_or_output(line: bytes) -> None:
    stream, commands, outputs = read(GENERIC, line)
    assert (stream.text, stream.cost_usd, stream.error, commands, outputs) == (
        "", None, "", [], [])


def test_steps_and_text_of_a_flood_of_events_are_limited() -> None:
    lines = [json.dumps({"step": n, "text": "x" * 1000, "cost_usd": n / 1e4}).encode()
             for n in range(MAX_STEPS + 500)]
    stream = read(GENERIC, *lines)[0]
    assert (stream.steps, len(stream.text)) == (MAX_STEPS, MAX_TEXT)
    assert stream.cost_usd == (MAX_STEPS + 499) / 1e4


def test_claimed_cost_never_falls() -> None:
    stream = read(GENERIC, b'{"cost_usd": 2.5}', b'{"cost_usd": 0.1}')[0]
    assert stream.cost_usd == 2.5
