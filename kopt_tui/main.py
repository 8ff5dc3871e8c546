"""The `kopt` command: imports the module of one verb, runs it, and reports every error in a line.

Exit codes: 0 ok, 1 the answer is no, 2 bad usage or input, 3 environment.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence

from harness.errors import EnvironmentFault, InputError, KoptError, os_fault
from harness.formats.text import one_line, suggest
from kopt_tui import __version__
from kopt_tui.cli.parser import Parser, add_workspace, workspace_of
from kopt_tui.cli.text_lines import print_unencodable_as_ascii

VERBS = {
    "demo": "run a short campaign on an example, from start to end",
    "new": "write a manifest for your kernel or benchmark; asks for what it cannot infer",
    "run": "start or continue a campaign in a background process",
    "attach": "open the dashboard on one campaign",
    "status": "list campaigns and their states",
    "show": "print everything about a campaign or a candidate",
    "diff": "print the patch of a candidate",
    "logs": "print the log of a campaign, or what a candidate's runs printed",
    "events": "print what happened, one event per line; --follow waits for more",
    "approve": "keep a candidate that waits for your approval",
    "reject": "turn down a candidate that waits for your approval",
    "pause": "pause a campaign at the end of its round; resume continues it",
    "resume": "continue a paused, interrupted or ended campaign",
    "stop": "end a campaign now and cut off running work; resume continues it",
    "set": "change a campaign's limits, also while it runs: kopt set max_iterations=8",
    "submit": "submit a patch of your own; the campaign judges it like any other",
    "merge": "apply a campaign's result as a merge, one commit or a patch",
    "prune": "delete checkouts, scratch files and caches of ended campaigns",
    "propose": "print a kernel's knobs and current values, without a campaign",
    "evaluate": "judge one patch or configuration, without a campaign",
    "loop": "search the values of a kernel's knobs, without a campaign",
    "trace": "count the shapes with which a program calls a kernel, as weights",
    "report": "print a campaign's report, or rewrite all its records",
    "gpus": "list the devices of this machine and their states",
    "subagents": "list, show, check or render the prompts with which models work in slots",
    "knowledge": "list, show and search knowledge of ops, hardware and languages; add to it",
    "mcp": "serve kopt's most useful commands to other agents over MCP",
    "doctor": "check that this machine has what kopt needs",
    "manifest": "check a manifest, or print the schema of manifests",
}
MODULES = dict.fromkeys(("approve", "reject", "pause", "resume", "stop", "set"), "control")
"""Verbs that share a module; the others have one of their own name."""
RUNS_A_PROGRAM = ("trace", "new")
"""Verbs with the command line of another program after `--`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    arguments, command = _split(list(sys.argv[1:] if argv is None else argv))
    _complete_streams()
    try:
        code = _run(arguments, command)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has closed the pipe; flushing the rest must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except (KoptError, ImportError, OSError) as error:
        return _report(_as_kopt_error(error), as_json=any(
            word in ("--j", "--js", "--jso", "--json") for word in arguments))


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return kopt's arguments, and those of the program that the verb runs."""
    if "--" in arguments and any(verb in arguments[:arguments.index("--")]
                                 for verb in RUNS_A_PROGRAM):
        return arguments[:arguments.index("--")], arguments[arguments.index("--") + 1:]
    return arguments, []


def _complete_streams() -> None:
    """Open /dev/null for closed standard streams, and write unprintable signs in ASCII."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            print_unencodable_as_ascii(stream)


def _run(arguments: list[str], command: list[str]) -> int:
    parser = Parser(prog="kopt", description="Makes GPU kernels faster in campaigns that run "
                    "unattended. Without a command, opens the dashboard.")
    parser.add_argument("--version", action="version", version=f"kopt {__version__}")
    parser.add_argument("--readonly", action="store_true",
                        help="open a dashboard that sends no requests")
    parser.add_argument("--campaign", metavar="ID", default=None,
                        help="open the dashboard on this campaign")
    add_workspace(parser, default=None)
    verb = _verb(arguments)
    if verb is None:
        if any(word in ("-h", "--help") for word in arguments):
            commands = parser.add_subparsers(metavar="COMMAND", title="commands")
            for name, purpose in VERBS.items():
                commands.add_parser(name, help=purpose)
        args = parser.parse_args(arguments)
        from kopt_tui.dashboard import launch

        return launch.main(workspace_of(args), readonly=args.readonly, campaign=args.campaign)
    module = importlib.import_module(f"kopt_tui.commands.{MODULES.get(verb, verb)}")
    commands = parser.add_subparsers(prog="kopt", parser_class=Parser)
    own_parser = commands.add_parser(verb, description=VERBS[verb])
    own_parser.set_defaults(verb=verb)
    module.add(own_parser)
    add_workspace(own_parser, default=argparse.SUPPRESS)
    args, unknown = parser.parse_known_args(arguments, argparse.Namespace(command=command))
    if unknown:
        own_parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    code: int = module.run(args)
    return code


def _verb(arguments: Sequence[str]) -> str | None:
    """Return the verb of a command line, None for the dashboard."""
    takes_value = False
    for word in arguments:
        if takes_value:
            takes_value = False
        elif word in ("--workspace", "--campaign"):
            takes_value = True
        elif not word.startswith("-"):
            if word not in VERBS:
                raise InputError(f"unknown command {word!r}",
                                 fix=suggest(word, VERBS) or "see kopt --help")
            return word
    return None


def _as_kopt_error(error: KoptError | ImportError | OSError) -> KoptError:
    """Return an error that a person can act on; raise an ImportError that is kopt's own fault."""
    if isinstance(error, KoptError):
        return error
    if isinstance(error, OSError):
        return os_fault(error)
    from engine.doctor import declared_packages

    package = declared_packages.culprit(error)
    if package is None:
        raise error
    what = declared_packages.describe(package, str(error))
    return EnvironmentFault(f"the package {package.name} {what}",
                            fix=f"{package.fix}; kopt doctor checks all packages")


def _report(error: KoptError, *, as_json: bool) -> int:
    """Print an error as one line, with --json also as JSON, and return its exit code."""
    from kopt_tui.cli.text_lines import print_text  # start-up time

    print_text(f"kopt: {one_line(str(error))}", sys.stderr)
    if as_json:
        import json

        fields = {"what": error.what, "where": error.where, "fix": error.fix,
                  "exit_code": error.exit_code}
        print(json.dumps({"error": fields}, ensure_ascii=False), flush=True)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
