"""A provider of scripted answers: OpenAI's chat completions and Anthropic's messages."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import msgspec

Fault = Literal["", "500", "429", "401", "nonsense", "silent", "cut"]
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
TOKENS = (1000, 100)
"""Tokens that each answer claims to have read and written."""
Message = dict[str, Any]


class ScriptedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: a text, a command as a call of the tool `bash` (None for none), or a fault."""

    text: str = ""
    command: str | None = None
    fault: Fault = ""
    retry_after: str = "0"
    delay_s: float = 0.0
    """Silence before each piece of a streamed answer."""


class ScriptedProvider:
    """A context manager that runs a server on the loopback interface.

    The n-th request gets the n-th turn of the script. A script may also be a function that makes
    the turn from the request's messages.
    """

    def __init__(self, script: Sequence[ScriptedTurn] | Callable[[list[Message]], ScriptedTurn],
                 port: int = 0) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        """The API keys of the requests."""
        self.closing = threading.Event()
        self._script, self._lock = script, threading.Lock()
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", port), type("ScriptedHandler", (_Handler,), {"provider": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,),
                                        name="scripted-provider", daemon=True)

    @property
    def url(self) -> str:
        """The server's address; OpenAI's clients want `/v1` after it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def turn(self, body: dict[str, Any], key: str) -> ScriptedTurn:
        """Return the turn that answers a request; after the last one the script submits."""
        with self._lock:
            self.requests.append(body)
            self.keys.append(key)
            count = len(self.requests) - 1
        if callable(self._script):
            return self._script(body["messages"])
        return self._script[count] if count < len(self._script) else ScriptedTurn(command=SUBMIT)

    def __enter__(self) -> ScriptedProvider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    provider: ScriptedProvider
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("x-api-key") or self.headers.get("Authorization") or ""
        turn = self.provider.turn(body, key.removeprefix("Bearer "))
        is_anthropic = self.path.endswith("/messages")
        if turn.fault == "silent":
            self.provider.closing.wait()
            self.close_connection = True
        elif turn.fault.isdigit():
            self._whole(int(turn.fault), {"error": {"type": "scripted", "message": "scripted"}},
                        turn.retry_after)
        elif turn.fault == "nonsense":
            self._bytes(200, b"<html>no such thing</html>")
        elif body.get("stream"):
            events = _anthropic_events(turn) if is_anthropic else _openai_events(turn)
            self._stream(events, turn)
        else:
            self._whole(200, (_anthropic_answer if is_anthropic else _openai_answer)(turn))

    def _whole(self, status: int, body: Message, retry_after: str = "") -> None:
        self._bytes(status, json.dumps(body).encode(), retry_after)

    def _bytes(self, status: int, data: bytes, retry_after: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Iterator[str], turn: ScriptedTurn) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(events):
            if turn.fault == "cut" and number == 2:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                           struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
                return
            if turn.delay_s and self.provider.closing.wait(turn.delay_s):
                return
            data = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def _arguments(turn: ScriptedTurn) -> str:
    return json.dumps({"command": turn.command})


def _openai_call(turn: ScriptedTurn) -> list[Message]:
    return [] if turn.command is None else [
        {"index": 0, "id": "call_1", "type": "function",
         "function": {"name": "bash", "arguments": _arguments(turn)}}]


def _openai_answer(turn: ScriptedTurn) -> Message:
    read, written = TOKENS
    message: Message = {"role": "assistant", "content": turn.text}
    if calls := _openai_call(turn):
        message["tool_calls"] = calls
    return {"id": "chat-1", "object": "chat.completion", "created": 0, "model": "scripted",
            "choices": [{"index": 0, "message": message,
                         "finish_reason": "tool_calls" if calls else "stop"}],
            "usage": {"prompt_tokens": read, "completion_tokens": written,
                      "total_tokens": read + written}}


def _openai_events(turn: ScriptedTurn) -> Iterator[str]:
    def chunk(delta: Message, finish: str | None = None) -> str:
        return "data: " + json.dumps({
            "id": "chat-1", "object": "chat.completion.chunk", "created": 0, "model": "scripted",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}) + "\n\n"

    yield chunk({"role": "assistant", "content": ""})
    for word in re.findall(r"\S*\s*", turn.text)[:-1]:
        yield chunk({"content": word})
    calls = _openai_call(turn)
    for call in calls:
        arguments = call["function"]["arguments"]
        call["function"]["arguments"] = ""
        yield chunk({"tool_calls": [call]})
        for start in range(0, len(arguments), 400):
            yield chunk({"tool_calls": [{"index": 0, "function": {
                "arguments": arguments[start:start + 400]}}]})
    yield chunk({}, "tool_calls" if calls else "stop")
    usage = _openai_answer(turn)["usage"]
    yield "data: " + json.dumps({
        "id": "chat-1", "object": "chat.completion.chunk", "created": 0, "model": "scripted",
        "choices": [], "usage": usage}) + "\n\n"
    yield "data: [DONE]\n\n"


def _anthropic_answer(turn: ScriptedTurn) -> Message:
    content: list[Message] = [{"type": "text", "text": turn.text}] if turn.text else []
    if turn.command is not None:
        content.append({"type": "tool_use", "id": "call_1", "name": "bash",
                        "input": {"command": turn.command}})
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted",
            "content": content, "stop_sequence": None,
            "stop_reason": "end_turn" if turn.command is None else "tool_use",
            "usage": dict(zip(("input_tokens", "output_tokens"), TOKENS, strict=True))}


def _anthropic_events(turn: ScriptedTurn) -> Iterator[str]:
    def event(kind: str, **fields: object) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

    whole = _anthropic_answer(turn)
    yield event("message_start", message={**whole, "content": [], "stop_reason": None})
    for index, block in enumerate(whole["content"]):
        is_text = block["type"] == "text"
        empty = {**block, **({"text": ""} if is_text else {"input": {}})}
        delta = {"type": "text_delta", "text": block["text"]} if is_text else \
            {"type": "input_json_delta", "partial_json": _arguments(turn)}
        yield event("content_block_start", index=index, content_block=empty)
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    yield event("message_delta", delta={"stop_reason": whole["stop_reason"],
                                        "stop_sequence": None}, usage=whole["usage"])
    yield event("message_stop")
