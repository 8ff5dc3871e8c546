"""The MCP server over HTTP: on loopback only, and only for those who have its token."""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer

HOST = "127.0.0.1"
TOKEN_FILE = "mcp-token"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class TokenCheck:
    """Answers 401 to every HTTP request without the token in its Authorization header."""

    def __init__(self, app: App, token: str) -> None:
        self._app, self._expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not hmac.compare_digest(
                dict(scope["headers"]).get(b"authorization", b""), self._expected):
            await send({"type": "http.response.start", "status": 401,
                        "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"the token is missing or wrong\n"})
        else:
            await self._app(scope, receive, send)


def write_token(folder: Path) -> tuple[str, Path]:
    """Write a new token to a file that only its owner can read; return both."""
    folder.mkdir(parents=True, exist_ok=True)
    token, path = secrets.token_urlsafe(32), folder / TOKEN_FILE
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    return token, path


def serve(server: MCPServer, port: int, token: str) -> None:
    """Serve until interrupted. The SDK refuses foreign Host and Origin headers on loopback."""
    app = TokenCheck(server.streamable_http_app(host=HOST), token)
    uvicorn.run(app, host=HOST, port=port, log_level="warning", access_log=False)
