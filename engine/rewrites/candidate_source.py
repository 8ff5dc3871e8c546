"""Writes the candidate: the person's file, the templates' kernels, and a readable ModelNew."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.rewrites.fused_lines import FusedCode, SizeOf
from engine.rewrites.module_graph import ModuleGraph, Node, Ref, SourceCode, TensorForm
from engine.rewrites.regions import Partition, Region, live_nodes
from engine.rewrites.rows import row_entry
from engine.rewrites.rows.row_entry import RowTemplate
from engine.rewrites.rows.row_region import RowRegion
from engine.rewrites.template_catalog import Catalog, TritonTemplate
from engine.rewrites.template_copy import copy, names_of

BEGIN = "# Kernels from kopt's templates, and a Model that calls them."
IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"
FUNCTIONS = ("tuple", "range", "len", "torch")
"""Names in the calls of templates.yaml that are no arguments of the torch function."""
INFIX = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "div": "/", "pow": "**",
         "matmul": "@"}


def without_rewrite(text: str) -> str:
    """Return the person's part of a source, without what an earlier rewrite added."""
    return text.partition(BEGIN)[0].rstrip() + "\n"


def write(source: str, graph: ModuleGraph, known: Catalog, cut: Partition, reason: str) -> str:
    """Return the candidate's source; `reason` becomes ModelNew's docstring."""
    person = without_rewrite(source)
    writer = _ForwardWriter(graph, cut, names_of(person))
    pieces = [writer.use(region, *(
        row_entry.write(graph, known, region) if isinstance(region, RowRegion)
        else (region.template, fused(graph, known, region)))) for region in cut.regions]
    kernels = "\n\n".join(dict.fromkeys(pieces))
    return (f"{person}\n\n{BEGIN}\n\n{IMPORTS}\n{kernels}\n\nclass ModelNew(Model):\n"
            f'    """{reason}"""\n\n' + "".join(f"    {line}\n" if line else "\n"
                                               for line in writer.forward()))


def fused(graph: ModuleGraph, known: Catalog, region: Region) -> FusedCode:
    """Return the lines that a region puts into its template."""
    code = FusedCode(places=region.template.places)
    fuses = region.template.fuses
    if region.prologue:
        code.prologue = code.write(graph, known, region.prologue, region.input,
                                   fuses["prologue"])
    if region.epilogue:
        first = Ref("node", region.core.name) if region.core is not None else region.input
        if region.core is not None and region.replacement.result:
            first = Ref("node", region.core.name, 0)
        code.epilogue = code.write(graph, known, region.epilogue, first, fuses["epilogue"])
    return code


class _ForwardWriter:
    """Writes the statements of forward in the order of the graph."""

    def __init__(self, graph: ModuleGraph, cut: Partition, used: set[str]) -> None:
        self.graph, self.cut = graph, cut
        self.used = {*used, "self", "torch", "triton", "tl"}
        self.calls: dict[str, str] = {}
        self.firsts: set[str] = set()
        self.copies: dict[tuple[str, str], str] = {}
        self.values = {name: f"v{name[1:]}" for name in (node.name for node in graph.nodes)}
        self.used |= set(self.values.values())

    def use(self, region: Region | RowRegion, template: TritonTemplate | RowTemplate,
            code: FusedCode) -> str:
        """Note a region's call; return the text of its kernels, "" if they were returned before."""
        plain = copy(template, code, ())
        key = template.name, plain.text
        made = copy(template, code, sorted(self.used)) if key not in self.copies else None
        if made is not None:
            self.copies[key] = made.entry
            self.used |= names_of(made.text)
        entry = self.copies[key]
        arguments = [self._operand(region, value) for value in code.operands.values()]
        if isinstance(region, RowRegion):
            self.calls[region.result.name] = f"{entry}({', '.join(arguments)})"
            self.firsts |= {node.name for node in region.outputs if node.several}
        else:
            self.calls[region.result.name] = self._call(region, entry, arguments)
            if region.replacement.result:
                self.firsts.add(region.result.name)
        return made.text if made is not None else ""

    def _operand(self, region: Region | RowRegion, value: Ref | SizeOf) -> str:
        if isinstance(value, Ref):
            return f"{self.text(value)}.contiguous()"
        owner = self.text(value.tensor or region.input)
        return " * ".join(f"{owner}.shape[{axis}]" for axis in value.axes)

    def _call(self, region: Region, entry: str, operands: Sequence[str]) -> str:
        """Return the call of a template's entry with the arguments of the node that it replaces."""
        call = ast.parse(region.replacement.call, mode="eval").body
        assert isinstance(call, ast.Call)
        first = ast.unparse(call.args[0])
        bound = {**region.bound, first: region.input}
        arguments = [*operands, *(self._argument(part, bound) for part in call.args)]
        for word in call.keywords:
            text = self._argument(word.value, bound)
            if text != "None" or word.arg != "dtype":
                arguments.append(f"{word.arg}={text}")
        if call.args and ast.unparse(call.args[-1]) == "dtype" and arguments[-1] == "None":
            arguments.pop()
        return f"{entry}({', '.join(arguments)})"

    def _argument(self, expression: ast.expr, bound: Mapping[str, Any]) -> str:
        writer = self

        class Filled(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.AST:
                if node.id not in bound and node.id in FUNCTIONS:
                    return node
                return ast.parse(writer.text(bound.get(node.id)), mode="eval").body

        return ast.unparse(Filled().visit(ast.parse(ast.unparse(expression), mode="eval").body))

    def text(self, value: Any) -> str:
        """Return a value as source text."""
        if isinstance(value, Ref):
            name = "self." + indexed(value.name) if value.kind == "attribute" else \
                self.values[value.name] if value.kind == "node" else value.name
            is_part = value.item is not None and value.name not in self.firsts
            return f"{name}[{value.item}]" if is_part else name
        if isinstance(value, SourceCode):
            return value.text
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, tuple):
            return f"({', '.join(map(self.text, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key!r}: {self.text(part)}' for key, part in value.items())}}}"
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return f'float("{value}")'
        return repr(value)

    def forward(self) -> Iterator[str]:
        """Yield the lines of the method."""
        yield f"def forward(self, {', '.join(self.graph.parameters)}):"
        for name, value in self.graph.inputs.items():
            if not isinstance(value, TensorForm):
                yield f"    if {name} != {self.text(value)}:"
                yield f"        return super().forward({', '.join(self.graph.parameters)})"
        inside = {node.name for region in self.cut.regions for node in region.nodes}
        done: set[int] = set()
        live = live_nodes(self.graph)
        for node in self.graph.nodes:
            if node.name not in live:
                continue
            if node.name in self.calls:
                what = next(region for region in self.cut.regions if region.result is node)
                names = ", ".join(self.values[each.name] for each in (node, *what.more))
                yield f"    {names} = {self.calls[node.name]}{described(what)}"
            elif node.name not in inside and node.layer not in done:
                whole = self._layer(node, inside)
                if whole:
                    done.add(node.layer if node.layer is not None else -1)
                yield f"    {whole or self._statement(node)}"
        yield f"    return {self.text(self.graph.result)}"

    def _layer(self, node: Node, inside: set[str]) -> str:
        """Return the call of the layer that a node belongs to, "" if a template has part of it."""
        if node.layer is None:
            return ""
        layer = self.graph.layers[node.layer]
        in_layer = [each for each in self.graph.nodes if each.layer == node.layer]
        if any(each.name in inside for each in in_layer) or not isinstance(layer.result, Ref) \
                or layer.result.kind != "node" or layer.result.item is not None:
            return ""
        return f"{self.values[layer.result.name]} = self.{indexed(layer.path)}" \
               f"({', '.join(map(self.text, layer.args))})"

    def _statement(self, node: Node) -> str:
        head, _, last = node.target.removesuffix(".__get__").rpartition(".")
        arguments = list(map(self.text, node.args))
        named = [f"{name}={self.text(value)}" for name, value in node.kwargs.items()]
        name = self.values[node.name]
        if node.target.endswith(".__get__"):
            return f"{name} = {arguments[0]}.{last}"
        word = last.strip("_")
        if last == "__getitem__":
            return f"{name} = {arguments[0]}[{arguments[1]}]"
        if word.removeprefix("r") in INFIX and last.startswith("__"):
            pair = reversed(arguments) if word not in INFIX else arguments
            return f"{name} = " + f" {INFIX[word if word in INFIX else word[1:]]} ".join(pair)
        if head == "torch.Tensor":
            if last == "view" and not any(isinstance(each, SourceCode) for each in node.args):
                last = "reshape"  # a kernel's result may have other strides than torch's
            return f"{name} = {arguments[0]}.{last}({', '.join([*arguments[1:], *named])})"
        assert all(part.isidentifier() and not keyword.iskeyword(part)
                   for part in node.target.split("."))
        return f"{name} = {node.target}({', '.join([*arguments, *named])})"


def indexed(path: str) -> str:
    """Return a module's attribute path as source: "layers.0.weight" becomes "layers[0].weight"."""
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", path)


def described(region: Region | RowRegion) -> str:
    """Return a comment with the torch functions that a call replaces, "" for a single one."""
    names = [node.target.removesuffix(".__get__").rpartition(".")[2].strip("_")
             for node in region.nodes]
    return f"  # {', '.join(names)}"[:60] if len(names) > 1 else ""
