"""Renders a prompt's template; also a program that renders prompts that are not kopt's own.

The program imports the standard library and jinja2 only.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # jinja2 is imported when a prompt is rendered
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

BUILT_IN = Path(__file__).resolve().parent.parent.parent / "subagents"
"""The folder of kopt's own subagents."""


def render(template: str, context: Mapping[str, Any]) -> str:
    """Return a template filled with a context. Raises ValueError if it cannot be rendered."""
    from jinja2 import TemplateError

    try:
        return _template(template).render(context)
    except TemplateError as error:
        line = f" (line {error.lineno})" if hasattr(error, "lineno") else ""
        raise ValueError(f"{error.message}{line}") from error
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError,
            ValueError) as error:  # an expression of the template raised it
        raise ValueError(str(error) or type(error).__name__) from error


@functools.lru_cache(maxsize=64)
def _template(text: str) -> Template:
    return _environment().from_string(text)


@functools.cache
def _environment() -> SandboxedEnvironment:
    """A project's prompts are untrusted: they run in a sandbox and include shared parts only."""
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(loader=FileSystemLoader(BUILT_IN / "shared"), trim_blocks=True,
                                lstrip_blocks=True, keep_trailing_newline=True,
                                undefined=StrictUndefined)


def main() -> None:
    """Render the template of a file; print a JSON object with the `text` or a `fault`.

    The command line names the file: a JSON object with the `template` and its `context`.
    """
    request = json.loads(Path(sys.argv[1]).read_text())
    try:
        answer = {"text": render(request["template"], request["context"])}
    except ValueError as error:
        answer = {"fault": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
