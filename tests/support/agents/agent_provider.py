"""A provider for real coding agents: OpenAI's two protocols, Anthropic's and Gemini's.

Its answers make an agent run the given commands, by the shell tool that the request offers; after
them it sends the last text.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
SHELLS = ("bash", "Bash", "run_shell_command", "exec_command", "shell")


@contextmanager
def agent_provider(commands: list[str], last: str) -> Iterator[str]:
    """Run the provider; yield its address. Requests without a shell tool get the last text."""
    remaining = [*commands]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._send(404, b"{}")

        def do_HEAD(self) -> None:
            self._send(200, b"")

        def do_POST(self) -> None:
            body, path = json.loads(self._body()), self.path.partition("?")[0]
            tool = _shell_of(body)
            command = remaining.pop(0) if tool and remaining else None
            call = None if tool is None or command is None else \
                {"name": tool["name"], "input": _arguments(tool, command)}
            text = "I run a command." if call else last
            protocol = next((make for end, make in PROTOCOLS.items() if end in path), None)
            if protocol is None:
                self._send(404, b"{}")
                return
            is_stream = bool(body.get("stream")) or "streamGenerate" in path
            kind = "text/event-stream" if is_stream else "application/json"
            self._send(200, protocol(text, call, len(remaining), is_stream).encode(), kind)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data

        def _send(self, status: int, data: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _shell_of(body: Json) -> Json | None:
    """Return the shell tool that a request offers, None if it offers none."""
    offered = [function for tool in body.get("tools") or ()
               for function in tool.get("functionDeclarations", [tool.get("function", tool)])]
    return next((tool for tool in offered if tool.get("name") in SHELLS), None)


def _arguments(tool: Json, command: str) -> Json:
    """Return a tool's arguments for a command, as its schema wants them."""
    schema = next((tool[key] for key in ("parameters", "input_schema", "parametersJsonSchema")
                   if key in tool), {})
    fields = schema.get("properties", {})
    values: Json = {name: ["sh", "-c", command] if fields[name].get("type") == "array" else command
                    for name in fields if name in ("cmd", "command")}
    return {**{name: False if fields[name].get("type") == "boolean" else "scripted"
               for name in schema.get("required", ())}, **values}


def _events(events: list[Json], named: bool = True) -> str:
    return "".join((f"event: {event['type']}\n" if named else "")
                   + f"data: {json.dumps(event)}\n\n" for event in events)


def _anthropic(text: str, call: Json | None, number: int, is_stream: bool) -> str:
    content: list[Json] = [{"type": "text", "text": text}]
    if call:
        content.append({"type": "tool_use", "id": f"toolu_{number}", **call})
    reason = "tool_use" if call else "end_turn"
    usage = {"input_tokens": 1000, "output_tokens": 100}
    whole = {"id": f"msg_{number}_{reason}", "type": "message", "role": "assistant",
             "model": "claude-sonnet-4-5", "content": content, "stop_sequence": None,
             "stop_reason": reason, "usage": usage}
    if not is_stream:
        return json.dumps(whole)
    events: list[Json] = [{"type": "message_start",
                           "message": {**whole, "content": [], "stop_reason": None}}]
    for index, block in enumerate(content):
        is_text = block["type"] == "text"
        empty, delta = ({"text": ""}, {"type": "text_delta", "text": text}) if is_text else (
            {"input": {}}, {"type": "input_json_delta",
                            "partial_json": json.dumps(block["input"])})
        events += [{"type": "content_block_start", "index": index,
                    "content_block": {**block, **empty}},
                   {"type": "content_block_delta", "index": index, "delta": delta},
                   {"type": "content_block_stop", "index": index}]
    return _events([*events, {"type": "message_delta", "usage": usage, "delta": {
        "stop_reason": reason, "stop_sequence": None}}, {"type": "message_stop"}])


def _chat(text: str, call: Json | None, number: int, is_stream: bool) -> str:
    message: Json = {"role": "assistant", "content": text}
    if call:
        message["tool_calls"] = [{
            "index": 0, "id": f"call_{number}", "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["input"])}}]
    reason = "tool_calls" if call else "stop"
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    head = {"id": "chat", "created": 0, "model": "gpt-4o"}
    if not is_stream:
        return json.dumps({**head, "object": "chat.completion", "usage": usage, "choices": [
            {"index": 0, "message": message, "finish_reason": reason}]})
    head["object"] = "chat.completion.chunk"
    return _events([
        {**head, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {**head, "choices": [], "usage": usage}], named=False) + "data: [DONE]\n\n"


def _responses(text: str, call: Json | None, number: int, is_stream: bool) -> str:
    items: list[Json] = [{"type": "message", "id": f"m{number}", "role": "assistant",
                          "status": "completed", "content": [
                              {"type": "output_text", "text": text, "annotations": []}]}]
    if call:
        items.append({"type": "function_call", "id": f"f{number}", "call_id": f"call_{number}",
                      "name": call["name"], "arguments": json.dumps(call["input"]),
                      "status": "completed"})
    whole = {"id": f"r{number}", "object": "response", "created_at": 0, "model": "gpt-5",
             "status": "completed", "output": items, "usage": {
                 "input_tokens": 1000, "input_tokens_details": {"cached_tokens": 0},
                 "output_tokens": 100, "output_tokens_details": {"reasoning_tokens": 0},
                 "total_tokens": 1100}}
    events: list[Json] = [{"type": "response.created", "response": {
        **whole, "status": "in_progress", "output": [], "usage": None}}]
    for index, item in enumerate(items):
        events += [{"type": f"response.output_item.{step}", "output_index": index, "item": item}
                   for step in ("added", "done")]
    return _events([*events, {"type": "response.completed", "response": whole}])


def _gemini(text: str, call: Json | None, number: int, is_stream: bool) -> str:
    parts: list[Json] = [{"text": text}]
    if call:
        parts.append({"functionCall": {"name": call["name"], "args": call["input"]}})
    whole: Json = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP",
                        "index": 0}],
        "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 100,
                          "totalTokenCount": 1100}, "modelVersion": "gemini-2.5-pro"}
    return _events([whole], named=False) if is_stream else json.dumps(whole)


PROTOCOLS: dict[str, Callable[[str, Json | None, int, bool], str]] = {
    "/messages": _anthropic, "/chat/completions": _chat, "/responses": _responses,
    "enerateContent": _gemini}
