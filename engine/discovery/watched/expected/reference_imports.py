"""Write parts of a reference: imports with the folders to find them in, and autograd."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from pathlib import Path

from engine.discovery.watched.expected.statement_names import modules
from harness.call_trace.watched_calls import ObservedCaller


def lines(preamble: Sequence[ast.stmt], caller: ObservedCaller, project: Path) -> list[str]:
    """Return the definitions, after lines that make the project's own modules importable."""
    lines = [line for node in preamble for line in ("", *ast.unparse(node).splitlines())
             if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")]
    paths = _folders(caller, project)
    roots = {name.partition(".")[0] for node in preamble for name in modules(node)}
    if any((project / path / f"{root}{end}").exists() for path in paths
           for root in roots for end in (".py", "")):
        joined = ", ".join(f"str(ROOT / {path!r})" if path else "str(ROOT)" for path in paths)
        lines = ["import sys", "from pathlib import Path", "",
                 "ROOT = Path(__file__).resolve().parents[1]", f"sys.path[:0] = [{joined}]",
                 *lines]
    uses_torch = "torch" in {alias.asname or alias.name for node in preamble
                             if isinstance(node, ast.Import) for alias in node.names}
    return lines if uses_torch else ["import torch", *lines]


def with_autograd(body: Sequence[str], results: Sequence[str], leaves: Sequence[str]) -> list[str]:
    """Return the lines of a function that differentiates, with its last line, the return."""
    returned = f"return {', '.join(f'({each}).detach()' for each in results)}"
    return [*(f"{name} = {name}.detach().requires_grad_()" for name in leaves),
            "with torch.enable_grad():", *(f"    {line}" for line in (*body[:-1], returned))]


def _folders(caller: ObservedCaller, project: Path) -> list[str]:
    """Return the project's folders from which its program imported, the caller's included."""
    folders = (os.path.relpath(path, project) for path in (
        str(project), os.path.dirname(caller.file), *filter(os.path.isdir, caller.paths)))
    return list(dict.fromkeys("" if folder == "." else folder for folder in folders
                              if not folder.startswith("..")))
