"""The MCP server: which tools, resources and prompts an outside agent gets."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from engine.knowledge import page_library
from harness.errors import InputError
from harness.formats.text import plain
from kopt_tui import __version__
from kopt_tui.mcp import prompts
from kopt_tui.mcp.verb_call import VerbCall, VerbFailed, lines_of_json, positional, words_of

INSTRUCTIONS = """\
kopt judges changes to GPU and CPU kernels: it checks results against a reference and times both
versions in turns. Trust its verdicts, not your own timings. Start with `propose` or `new`, judge
changes with `evaluate`, search knobs with `loop`. In a campaign use `submit_candidate`, then
`events_since`. Only a person approves what waits for approval.
"""
CALL_S = 1800.0
"""The longest that one tool may take, in seconds."""


async def _answer(call: Awaitable[Any]) -> dict[str, Any]:
    try:
        answer = await call
    except (VerbFailed, InputError) as error:
        raise ToolError(str(error)) from None
    except (ValueError, OSError) as error:  # text that no command line can carry
        raise ToolError(f"the words of this call cannot be passed on: {error}") from None
    return answer if isinstance(answer, dict) else {"answer": answer}


def build(root: Path, workspace: Path, timeout_s: float = CALL_S) -> MCPServer:
    """Return a server for the files in `root` and the campaigns in `workspace`."""
    server = MCPServer("kopt", version=__version__, instructions=INSTRUCTIONS)
    call = VerbCall(root, workspace, timeout_s)
    _add_kernel_tools(server, call)
    _add_campaign_tools(server, call)

    @server.tool()
    def read_knowledge(page: str = "", words: str = "") -> str:
        """Return a page of kopt's knowledge, the pages with these words, or all names."""
        try:
            if page:
                return page_library.find(page).text
            return "\n".join(hit.page for hit in page_library.search([words])) if words else \
                "\n".join(known.name for known in page_library.pages())
        except InputError as error:
            raise ToolError(str(error)) from None

    @server.resource("kopt://campaigns", mime_type="application/json")
    async def campaigns() -> dict[str, Any]:
        """All campaigns of the workspace and their states."""
        return await _answer(call.run("status"))

    @server.resource("kopt://report/{campaign}", mime_type="application/json")
    async def report(campaign: str) -> dict[str, Any]:
        """The report of a campaign."""
        return await _answer(_run(call, "report", positional(campaign)))

    server.prompt(name="optimise-a-kernel")(prompts.optimise_a_kernel)
    server.prompt(name="read-a-verdict")(prompts.read_a_verdict)
    return server


async def _run(call: VerbCall, verb: str, words: list[str], stdin: str = "") -> Any:
    return await call.run(verb, *words, stdin=stdin)


def _add_kernel_tools(server: MCPServer, call: VerbCall) -> None:
    @server.tool()
    async def propose(manifest: str = "manifest.yaml") -> dict[str, Any]:
        """List a kernel's knobs, their present values and their choices."""
        async def work() -> Any:
            return await call.run("propose", call.inside(manifest))
        return await _answer(work())

    @server.tool()
    async def evaluate(manifest: str = "manifest.yaml", patch: str = "", source: str = "",
                       config: str = "", quick: bool = False) -> dict[str, Any]:
        """Judge one change of a kernel: is it correct, and how much faster?

        Give one of `patch` (a unified diff), `source` (the whole new source of the kernel) and
        `config` (knobs as JSON, such as {"TILE": 32}); none judges the files as they are. `quick`
        measures few pairs. The verdict says for each config class what was measured.
        """
        async def work() -> Any:
            if sum(map(bool, (patch, source, config))) > 1:
                raise InputError("more than one change is given",
                                 fix="give one of patch, source and config")
            words = words_of(patch="-" if patch else "", candidate="-" if source else "",
                             config=config, quick=quick)
            return await call.run("evaluate", *words, call.inside(manifest), stdin=patch or source)
        return await _answer(work())

    @server.tool()
    async def loop(manifest: str = "manifest.yaml", budget: int | None = None,
                   only: str = "") -> dict[str, Any]:
        """Search the values of a kernel's knobs; `budget` is how many configurations to try."""
        async def work() -> Any:
            return await call.run("loop", *words_of(budget=budget, only=only),
                                  call.inside(manifest))
        return await _answer(work())

    @server.tool()
    async def new(what: str, manifest: str = "", force: bool = False) -> dict[str, Any]:
        """Write a manifest for a kernel or a benchmark: FILE, FILE:FUNCTION or FOLDER."""
        async def work() -> Any:
            if manifest and not manifest.endswith((".yaml", ".yml")):
                raise InputError("a manifest's name ends in .yaml", where=plain(manifest, 200))
            path, colon, name = what.partition(":")
            words = words_of(manifest=call.inside(manifest) if manifest else "", force=force)
            return await call.run("new", call.inside(path) + colon + name, "--yes", *words)
        return await _answer(work())


def _add_campaign_tools(server: MCPServer, call: VerbCall) -> None:
    @server.tool()
    async def campaign_status(campaign: str = "") -> dict[str, Any]:
        """Return the state of a campaign, or of all campaigns if none is named."""
        async def work() -> Any:
            return await call.run("status", *positional(campaign))
        return await _answer(work())

    @server.tool()
    async def submit_candidate(patch: str, hypothesis: str = "",
                               campaign: str = "") -> dict[str, Any]:
        """Submit a unified diff to a campaign, which judges it like any other candidate."""
        async def work() -> Any:
            return await call.run("submit", *words_of(hypothesis=hypothesis), "-",
                                  *positional(campaign), stdin=patch)
        return await _answer(work())

    @server.tool()
    async def verdict(candidate: str) -> dict[str, Any]:
        """Return all that is known of a candidate: its verdict, ruling and state."""
        async def work() -> Any:
            return await call.run("show", *positional(candidate))
        return await _answer(work())

    @server.tool()
    async def events_since(after: int = 0, campaign: str = "",
                           lines: int = 50) -> dict[str, Any]:
        """Return the last events of a campaign that have a number above `after`."""
        async def work() -> Any:
            return await call.run("events", *words_of(after=after or None, lines=lines),
                                  *positional(campaign), decode=lines_of_json)
        return await _answer(work())
