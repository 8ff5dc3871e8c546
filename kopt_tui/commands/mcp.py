"""`kopt mcp`: serve kopt's verbs to outside agents by the Model Context Protocol."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.errors import InputError
from kopt_tui.cli.parser import workspace_of

PORT = 8765


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", metavar="DIR", type=Path, default=Path(),
                        help="the folder whose manifests and sources agents may name (default: .)")
    parser.add_argument("--http", action="store_true",
                        help="serve on 127.0.0.1 instead of standard input and output; clients "
                        "need the token in the workspace's file mcp-token")
    parser.add_argument("--port", type=int, default=PORT, help=f"with --http (default {PORT})")
    parser.add_argument("--install-skill", metavar="DIR", type=Path,
                        help="write DIR/kopt/SKILL.md for coding agents, and exit")


def run(args: argparse.Namespace) -> int:
    if args.install_skill:
        from kopt_tui.mcp import skill

        print(f"wrote {skill.install(args.install_skill)}")
        return 0
    if not args.root.is_dir():
        raise InputError("the folder does not exist", where=str(args.root))
    from engine.run.space_document import Proposal
    from harness.verdict import Verdict
    from kopt_tui.commands import loop, new, show, status, submit
    from kopt_tui.mcp import server

    workspace = workspace_of(args).absolute()
    built = server.build(args.root, workspace, {
        "propose": Proposal, "evaluate": Verdict, "loop": loop.LoopAnswer,
        "new": new.WrittenManifest, "status": status.WorkspaceStatus,
        "submit": submit.SubmittedChanges, "show": show.ShownCandidate})
    if not args.http:
        built.run("stdio")
        return 0
    from kopt_tui.mcp import http

    listener = http.bind(args.port)  # first: if the port is taken, the other server's token stays
    token, path = http.write_token(workspace)
    address = f"http://{http.HOST}:{listener.getsockname()[1]}/mcp"
    print(f"kopt mcp: {address}, token in {path}", file=sys.stderr, flush=True)
    http.serve(built, listener, token)
    return 0
