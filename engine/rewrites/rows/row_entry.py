"""Writes the kernels of a region of rows and the function that launches them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.rewrites.fused_lines import FusedCode
from engine.rewrites.module_graph import ModuleGraph, Node
from engine.rewrites.rows.row_kernel import RowKernel
from engine.rewrites.rows.row_region import RowRegion
from engine.rewrites.template_catalog import Catalog

NAME = "rows"
"""The name of the function, and of such regions in sentences."""
KNOBS = '''\
ROWS_TILE = 2048  # kopt: knob ROWS_TILE in [512, 1024, 2048, 4096] elements of short rows
ROWS_PER_THREAD = 16  # kopt: knob ROWS_PER_THREAD in [4, 8, 16, 32] elements of a thread
'''
LONG_KNOBS = '''\
ROWS_WHOLE = 16384  # kopt: knob ROWS_WHOLE in [4096, 8192, 16384, 32768] longest row in registers
ROWS_BLOCK = 4096  # kopt: knob ROWS_BLOCK in [1024, 2048, 4096, 8192] elements of a step
'''
WHOLE_OR_LONG = '''    is_whole = width <= ROWS_WHOLE
    block = width if is_whole else ROWS_BLOCK
    lanes = max(1, ROWS_TILE // block) if is_whole else 1
    steps, kernel = 1, rows_kernel if is_whole else rows_long_kernel
'''
IN_STEPS = '''    block = min(width, ROWS_TILE)
    lanes = ROWS_TILE // block
    steps, kernel = -(-columns // block), rows_kernel
'''
LAUNCH = '''    width = max(2, 1 << (columns - 1).bit_length())
{tiles}    if row_count:
        kernel[(-(-row_count // lanes) * steps,)](
            {arguments}, row_count, columns, WIDE=2 * row_count * columns >= 2**31, LANES=lanes,
            BLOCK=block,
            num_warps=max(1, min(16, lanes * block // (32 * ROWS_PER_THREAD))))
'''


@dataclass(frozen=True)
class RowTemplate:
    """The text of one region's kernels, as a template that needs no lines filled in."""

    name: str
    text: str


def write(graph: ModuleGraph, known: Catalog, region: RowRegion) -> tuple[RowTemplate, FusedCode]:
    """Return the source of a region's kernels, and the operands of its entry `rows`."""
    code = FusedCode()
    code.name_of(region.input)
    in_steps = region.has_separate_columns(graph)
    kernels = {"rows_kernel": False} if in_steps else {
        "rows_kernel": False, "rows_long_kernel": True}
    bodies = {name: RowKernel(graph, known, region, code, is_long).body()
              for name, is_long in kernels.items()}
    operands = ", ".join(code.operands)
    results = [f"y{place}" for place in range(len(region.outputs))]
    lead = code.name_of(region.input)
    is_double = region.space.extent(graph.form(region.input).shape) == "double"
    parameters = f"        {operands},\n        {', '.join(results)}, row_count, columns"
    text = KNOBS if in_steps else KNOBS + LONG_KNOBS
    for name, body in bodies.items():
        text += f"\n\n@triton.jit\ndef {name}(\n{parameters}, WIDE: tl.constexpr," \
                f" LANES: tl.constexpr,\n        BLOCK: tl.constexpr):\n"
        text += "".join(f"    {line}\n" for line in body)
    shape = f"(*{lead}.shape[:-1], {lead}.shape[-1] // 2)" if is_double else f"{lead}.shape"
    first = region.space.first
    text += f"\n\ndef rows(\n        {operands}):\n    shape = torch.Size({shape})\n" \
            f"    row_count, columns = shape[:{first}].numel(), shape[{first}:].numel()\n"
    for name, node in zip(results, region.outputs, strict=True):
        text += f"    {name} = torch.empty({_shape(region, node)}, " \
                f"dtype=torch.{node.form.dtype}, device={lead}.device)\n"
    text += LAUNCH.format(arguments=f"{operands}, {', '.join(results)}",
                          tiles=IN_STEPS if in_steps else WHOLE_OR_LONG)
    result = results.pop()
    return RowTemplate(name=NAME, text=text + f"    return {', '.join([result, *results])}\n"), code


def _shape(region: RowRegion, node: Node) -> str:
    """Return the source of an output's shape."""
    extent, first = region.space.extent(node.form.shape), region.space.first
    if extent == "row":
        ones = len(node.form.shape) - first
        return f"(*shape[:{first}]{', 1' * ones},)" if ones else f"shape[:{first}]"
    return {"full": "shape", "part": "(*shape[:-1], shape[-1] // 2)",
            "double": "(*shape[:-1], 2 * shape[-1])"}[extent or "full"]
