"""The MCP server over HTTP: on loopback only, and only for those who have its token."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.journal import database
from harness.errors import InputError

HOST = "127.0.0.1"
TOKEN_FILE = "mcp-token"


class TokenCheck:
    """Answers 401 to every HTTP request without the token in its Authorization header.

    Other kinds of connections, such as WebSockets, are closed: kopt offers none.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http" and not self._has_token(scope):
            await send({"type": "http.response.start", "status": 401, "headers": [
                (b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]})
            await send({"type": "http.response.body", "body": b"the token is missing or wrong\n"})
        else:
            await self._app(scope, receive, send)

    def _has_token(self, scope: Scope) -> bool:
        scheme, _, token = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token, self._token)


def write_token(folder: Path) -> tuple[str, Path]:
    """Write a new token to a file that only its owner can read; return both."""
    database.make_workspace(folder)  # git ignores it
    token, path = secrets.token_hex(32), folder / TOKEN_FILE
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    return token, path


def bind(port: int) -> socket.socket:
    """Return a socket on loopback; port 0 takes a free one. Raises InputError for a busy port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(f"port {port} cannot be used: {error}",
                         fix="--port 0 chooses a free one") from None
    return listener


def serve(server: MCPServer, listener: socket.socket, token: str) -> None:
    """Serve until interrupted. The SDK refuses foreign Host and Origin headers on loopback."""
    app = TokenCheck(server.streamable_http_app(host=HOST), token)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])
