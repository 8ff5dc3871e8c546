"""The MCP server: which tools, resources and prompts an outside agent gets."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from engine.knowledge import page_library
from harness.errors import InputError, KoptError
from harness.formats.text import one_line, plain
from kopt_tui import __version__
from kopt_tui.cli.event_stream import EventLine
from kopt_tui.cli.parser import answer_schema
from kopt_tui.mcp.verb_call import Beat, VerbCall, VerbFailed, positional, words_of

INSTRUCTIONS = """\
kopt judges changes to GPU and CPU kernels: it checks results against a reference and times both
versions in turns. Trust its verdicts, not your own timings. Start with `propose` or `new`, judge
changes with `evaluate`, search knobs with `loop`. In a campaign use `submit_candidate`, then
`events_since`. Only a person approves what waits for approval.
"""
CALL_S = 1800.0
"""The longest that one tool may take, in seconds."""
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
"""It runs a kernel's code or adds files, and overwrites none."""

ManifestFile = Annotated[str, Field(description="a manifest in the folder of this server")]
Patch = Annotated[str, Field(description="a unified diff against the project's files")]
KnobValues = Annotated[dict[str, int | float | str] | None, Field(
    description='knobs and their values, such as {"TILE": 32}')]


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some events, oldest first; `last` is the number to go on after, null before the first."""

    events: tuple[EventLine, ...]
    last: int | None


class _Server(MCPServer):
    """A server that answers a bad request for a prompt with the reason, without a traceback."""

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None,
                         context: Context[Any, Any] | None = None) -> Any:
        try:
            return await super().get_prompt(name, arguments, context)
        except ValueError as error:
            reason: BaseException = error
            while reason.__cause__ is not None:
                reason = reason.__cause__
            raise MCPError(INVALID_PARAMS, one_line(str(reason), 300)) from None


def build(root: Path, workspace: Path, answers: Mapping[str, type]) -> MCPServer:
    """Return a server for the files in `root` and the campaigns in `workspace`.

    `answers` are the types of what its verbs print, by verb.
    """
    call = VerbCall(root, workspace, CALL_S)
    server = _Server("kopt", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING",
                     tools=[*_kernel_tools(call, answers), *_campaign_tools(call, answers)])

    @server.tool(annotations=READS, structured_output=False)
    def read_knowledge(page: str = "", words: str = "") -> str:
        """Return a page of kopt's knowledge, the pages with these words, or all names."""
        try:
            library = page_library.load(root)
            if page:
                return library.find(page).text
            return "\n".join(hit.page for hit in library.search([words])) if words else \
                "\n".join(library.by_name)
        except InputError as error:
            raise ToolError(str(error)) from None

    @server.resource("kopt://campaigns", mime_type="application/json")
    async def campaigns() -> Any:
        """All campaigns of the workspace and their states."""
        return await _answered(call.run, ResourceError)("status")

    @server.resource("kopt://report/{campaign}", mime_type="application/json")
    async def report(campaign: str) -> Any:
        """The report of a campaign."""
        async def work() -> Any:
            return await call.run("report", *positional(campaign))
        return await _answered(work, ResourceError)()

    server.prompt(name="optimise-a-kernel")(optimise_a_kernel)
    server.prompt(name="read-a-verdict")(read_a_verdict)
    return server


def _answered(function: Callable[..., Awaitable[Any]], shown: type[Exception] = ToolError
              ) -> Callable[..., Awaitable[Any]]:
    """Return the function with its errors as `shown`: the SDK hides the texts of all others."""
    @functools.wraps(function)
    async def answered(*args: Any, **arguments: Any) -> Any:
        try:
            return await function(*args, **arguments)
        except (VerbFailed, KoptError) as error:
            raise shown(str(error)) from None
        except (ValueError, OSError) as error:  # text that no command line can carry
            raise shown(f"the arguments of this call cannot be passed on: {error}") from None
    return answered


def _tool(function: Callable[..., Awaitable[Any]], kind: ToolAnnotations, answer: type) -> Tool:
    """Return a tool that answers with data of this type, and with the same as text."""
    answered = _answered(function)

    @functools.wraps(function)
    async def tool(**arguments: Any) -> CallToolResult:
        value = await answered(**arguments)
        return CallToolResult(content=[TextContent(text=json.dumps(value, ensure_ascii=False))],
                              structured_content=value)

    made = Tool.from_function(tool, description=inspect.getdoc(function), annotations=kind,
                              structured_output=False)
    made.fn_metadata.output_schema = answer_schema(answer)
    return made


def _beat(context: Context[Any, Any]) -> Beat:
    async def beat(seconds: float) -> None:
        await context.report_progress(seconds, message=f"{seconds:.0f} s")
    return beat


def _kernel_tools(call: VerbCall, answers: Mapping[str, type]) -> list[Tool]:
    async def propose(context: Context[Any, Any], manifest: ManifestFile = "manifest.yaml") -> Any:
        """List a kernel's knobs, their present values and their choices."""
        return await call.run_on_kernel("propose", call.manifest(manifest), beat=_beat(context))

    async def evaluate(
            context: Context[Any, Any], manifest: ManifestFile = "manifest.yaml", patch: Patch = "",
            source: Annotated[str, Field(description="the whole new source of the kernel")] = "",
            config: KnobValues = None,
            quick: Annotated[bool, Field(description="measure few pairs, for a first impression")]
            = False) -> Any:
        """Judge one change of a kernel: is it correct, and how much faster?

        Give one of `patch`, `source` and `config`; none judges the files as they are. The verdict
        says for each config class what was measured. Nothing of the project is changed.
        """
        if sum((bool(patch), bool(source), config is not None)) > 1:
            raise InputError("more than one change is given",
                             fix="give one of patch, source and config")
        arguments = words_of(patch="-" if patch else "", candidate="-" if source else "",
                             config="" if config is None else json.dumps(config), quick=quick)
        return await call.run_on_kernel("evaluate", *arguments, call.manifest(manifest),
                                        stdin=patch or source, beat=_beat(context))

    async def loop(
            context: Context[Any, Any], manifest: ManifestFile = "manifest.yaml",
            budget: Annotated[int | None, Field(description="how many configurations to try")]
            = None,
            only: Annotated[str, Field(description="the only knob to change")] = "") -> Any:
        """Search the values of a kernel's knobs; the best configuration gets a verdict.

        Call it again to go on where it ended. Trials are screening values: report the verdict.
        """
        return await call.run_on_kernel("loop", *words_of(budget=budget, only=only),
                                        call.manifest(manifest), beat=_beat(context))

    async def new(
            context: Context[Any, Any],
            what: Annotated[str, Field(description="FILE, FILE:FUNCTION or FOLDER")],
            manifest: Annotated[str, Field(
                description="the file to write, default manifest.yaml in the project")] = ""
            ) -> Any:
        """Write a manifest for a kernel or a benchmark. It overwrites no file."""
        if manifest and not manifest.endswith((".yaml", ".yml")):
            raise InputError("a manifest's name ends in .yaml", where=plain(manifest, 200))
        arguments = words_of(manifest=call.inside(manifest) if manifest else "")
        return await call.run_on_kernel("new", *call.kernel(what), "--yes", *arguments,
                                        beat=_beat(context))

    return [_tool(propose, READS, answers["propose"]), _tool(evaluate, RUNS, answers["evaluate"]),
            _tool(loop, RUNS, answers["loop"]), _tool(new, RUNS, answers["new"])]


def _campaign_tools(call: VerbCall, answers: Mapping[str, type]) -> list[Tool]:
    async def campaign_status(
            campaign: Annotated[str, Field(description='"" for all campaigns')] = "") -> Any:
        """Return the state of a campaign, or of all campaigns if none is named."""
        return await call.run("status", *positional(campaign))

    async def submit_candidate(
            patch: Patch,
            hypothesis: Annotated[str, Field(description="why it should be faster, in one line")]
            = "", campaign: Annotated[str, Field(description='"" for the newest')] = "") -> Any:
        """Submit a unified diff to a campaign, which judges it like any other candidate."""
        return await call.run("submit", *words_of(hypothesis=hypothesis), "-",
                              *positional(campaign), stdin=patch)

    async def verdict(
            candidate: Annotated[str, Field(description="its id or the start of it")]) -> Any:
        """Return all that is known of a candidate: its verdicts, rulings and state."""
        answer = await call.run("show", *positional(candidate))
        if "candidate" not in answer:
            raise InputError(f"{plain(candidate, 100)!r} names no candidate",
                             fix="events_since names the candidates of a campaign")
        return answer

    async def events_since(
            after: Annotated[int | None, Field(
                description="the last number that you know; null for the newest events")] = None,
            campaign: Annotated[str, Field(description='"" for all campaigns')] = "",
            lines: Annotated[int, Field(ge=1, le=1000, description="how many at most")] = 50
            ) -> Any:
        """Return the next events after a number, or the newest events; oldest first.

        To wait for news, call it again with `last` as `after`.
        """
        events = await call.run("events", *words_of(after=after, lines=lines),
                                *positional(campaign), lines=True)
        return {"events": events, "last": events[-1]["seq"] if events else after}

    return [_tool(campaign_status, READS, answers["status"]),
            _tool(submit_candidate, RUNS, answers["submit"]),
            _tool(verdict, READS, answers["show"]), _tool(events_since, READS, EventPage)]


def optimise_a_kernel(manifest: str = "manifest.yaml") -> str:
    """Make the kernel of a manifest faster, with kopt's verdicts as the only measure."""
    return f"""\
Make the kernel of {manifest} faster.
1. Call `propose` and read the kernel's source and its reference.
2. Call `evaluate` without a change: it shows the latency of each config class and its share of the
   roofline. Choose the class with the largest share of the time.
3. State one hypothesis in one sentence: what limits this class, and what change removes the limit.
4. Make one change and call `evaluate` with it. A rejected or incorrect verdict says why: repair it.
   A tie means that the hypothesis is wrong or too small: state another one.
5. Tune what has knobs with `loop`.
Report only numbers from verdicts, with their intervals.
"""


def read_a_verdict(candidate: str) -> str:
    """Explain the verdict of a candidate to an engineer."""
    return f"""\
Call `verdict` for {candidate} and explain it in at most eight sentences: is the candidate valid and
correct; for which config classes is it faster, with the interval of each; what does the audit flag;
what is not measured; and what a person should look at before approving. Add no number of your own.
"""
