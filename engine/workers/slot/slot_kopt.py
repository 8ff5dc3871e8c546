"""The `kopt` command inside a slot: asks the engine for a screening verdict of the slot's files.

It runs among the worker's own processes, without a network and without rights of its own. The
request is a datagram, because the processes of a slot may not connect; it carries one end of a pair
of sockets, on which the answer comes. Standard library only.
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys

USAGE = "kopt evaluate --json"
SEND_S = 30.0


def fail(what: str, fix: str = "", exit_code: int = 2) -> int:
    """Print an error as kopt does, in one line and as JSON."""
    print(f"kopt: {what}{f' ({fix})' if fix else ''}", file=sys.stderr)
    print(json.dumps({"error": {"what": what, "where": "", "fix": fix, "exit_code": exit_code}}))
    return exit_code


def ask(folder: str, token: str) -> tuple[int, str]:
    """Return the exit code and the line that the engine answers. Raises OSError."""
    os.chdir(folder)  # a socket's path must be short
    ours, theirs = socket.socketpair()
    with ours, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as request:
        request.settimeout(SEND_S)
        with theirs:
            request.sendmsg([token.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array(
                "i", [theirs.fileno()]))], 0, "ask")
        answer = ours.makefile("rb").read()
    code, _, line = answer.decode(errors="replace").partition("\n")
    if not code.isdecimal():
        raise OSError("the engine has ended this attempt")
    return int(code), line.strip()


def main() -> int:
    folder, *args = sys.argv[1:]
    verbs = [word for word in args if not word.startswith("-")]
    options = [word for word in args if word.startswith("-")]
    if not verbs or verbs[0] != "evaluate":
        return fail(f"kopt {verbs[0] if verbs else ''} is not available in a slot".replace(
            "  ", " "), f"`{USAGE}` judges your files as they are now")
    if unknown := [word for word in options if word not in ("--json", "--quick")]:
        return fail(f"{unknown[0]} is not available in a slot", f"{USAGE} takes no options")
    try:
        code, line = ask(folder, os.environ.get("KOPT_SLOT", ""))
    except OSError as error:
        return fail(f"no verdict: {error.strerror or error}", exit_code=3)
    try:
        fault = json.loads(line).get("error")
    except ValueError:
        return fail("no verdict: the answer is incomplete", exit_code=3)
    if fault:
        print(f"kopt: {fault['what']}{' (' + fault['fix'] + ')' if fault['fix'] else ''}",
              file=sys.stderr)
    print(line)
    return code


if __name__ == "__main__":
    sys.exit(main())
