"""Rewrites a PyTorch module with kernels from templates."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import msgspec

from engine.rewrites import (
    candidate_source,
    equivalent_calls,
    expert_loops,
    module_graph,
    regions,
    template_catalog,
)
from engine.rewrites.memory_traffic import bytes_moved
from engine.rewrites.module_graph import ModuleGraph, Node
from engine.rewrites.regions import Partition
from engine.rewrites.rows import row_entry, row_region
from engine.rewrites.rows.row_region import RowRegion
from engine.rewrites.template_catalog import Catalog
from harness.errors import InputError
from harness.formats.quantities import counted
from harness.isolation.zygote_client import Zygote
from harness.tasks.target import Target

MOST_NAMED = 6
GRADIENTS = ("grad", "torch.Tensor.grad.__get__")
"""Targets that need a graph of autograd, which a rewrite does not build."""


class ModuleRewrite(msgspec.Struct, frozen=True, kw_only=True):
    """A whole source with a ModelNew, and why it should be faster, in one sentence."""

    name: str
    hypothesis: str
    source: str


class ModuleRewrites(msgspec.Struct, frozen=True, kw_only=True):
    """The rewrites of one module; without any, `nothing` says what came closest and why not."""

    rewrites: tuple[ModuleRewrite, ...] = ()
    nothing: str = ""


def find(target: Target, tree: Path, baseline: Path, scratch: Path, *, python: str | None = None,
         zygote: Zygote | None = None) -> ModuleRewrites:
    """Capture a tree's module and return its rewrites; `nothing` says why there are none."""
    try:
        text = (tree / target.source).read_text()
        if "class ModelNew" in candidate_source.without_rewrite(text):
            return ModuleRewrites(nothing=f"{target.source} already defines ModelNew")
        graph = module_graph.capture(target, tree, baseline, scratch, python=python,
                                     zygote=zygote)
    except (InputError, OSError, UnicodeDecodeError) as error:
        return ModuleRewrites(nothing=f"its forward cannot be captured: {error}")
    return of_graph(text, graph)


def of_graph(text: str, graph: ModuleGraph) -> ModuleRewrites:
    """Return the rewrites of a source whose module has a graph."""
    known = template_catalog.catalog()
    plain = equivalent_calls.as_products(equivalent_calls.without_inplace(graph, known))
    graph = expert_loops.as_experts(plain)
    if how := expert_loops.by_value(graph):
        return ModuleRewrites(nothing=f"sizes depend on values: {how}")
    for node in graph.nodes:
        # a write into a buffer of the module is allowed
        if node.written is not None and node.written.kind != "attribute":
            return ModuleRewrites(nothing=f"forward writes into a tensor: {_name(node)}")
    best = known.unrivalled()
    cuts = {"templates": regions.partition(graph, best),
            "general": regions.partition(graph, best.general()),
            "rivals": regions.partition(graph, known)}
    with_rows = _with_rows(graph, best)
    if any(isinstance(region, RowRegion) for region in with_rows.regions):
        cuts = {"rows": with_rows, **cuts}
    if graph is plain:  # else torch lacks functions for some of the graph's calls
        cuts["elementwise"] = regions.partition(graph, known, cores=False, least_elementwise=2)
    if gradient := next((node for node in graph.nodes if node.target in GRADIENTS), None):
        cuts = {name: cut for name, cut in cuts.items() if gradient.name not in cut.unmatched}
        if not cuts:
            return ModuleRewrites(nothing=f"{_name(gradient)}: no template computes "
                                          "this gradient in forward")
    rewrites: dict[str, ModuleRewrite] = {}
    for name, cut in cuts.items():
        hypothesis = _hypothesis(graph, cut)
        if cut.regions and hypothesis not in rewrites:
            rewrites[hypothesis] = ModuleRewrite(
                name=name, hypothesis=hypothesis,
                source=candidate_source.write(text, graph, known, cut, hypothesis))
    return ModuleRewrites(rewrites=tuple(rewrites.values()),
                          nothing="" if rewrites else _closest(graph, cuts["rivals"]))


def _with_rows(graph: ModuleGraph, known: Catalog) -> Partition:
    """Return the cut with those kernels of rows that save memory traffic."""
    live = regions.live_nodes(graph)
    alike: dict[Hashable, list[RowRegion]] = {}  # such as those of a model's equal blocks
    for region in row_region.find(graph, known, live):
        alike.setdefault(region.signature(graph), []).append(region)
    best, taken = regions.partition(graph, known), list[RowRegion]()
    least = bytes_moved(graph, best, live)
    for group in alike.values():
        cut = regions.partition(graph, known, rows=[*taken, *group])
        if (moved := bytes_moved(graph, cut, live)) < least:
            best, least = cut, moved
            taken += group
    return best


def _hypothesis(graph: ModuleGraph, cut: Partition) -> str:
    """Return in one sentence which calls are replaced by what."""
    covered = sum(len(region.nodes) for region in cut.regions)
    whole = len(regions.live_nodes(graph))
    parts = dict.fromkeys(
        f"{row_entry.NAME if isinstance(region, RowRegion) else region.template.name} for "
        f"{' + '.join(map(_name, region.nodes))}" for region in cut.regions)
    return f"{covered} of {whole} torch calls become {counted(len(cut.regions), 'kernel')}: " \
           f"{', '.join(list(parts)[:MOST_NAMED])}"[:300]


def _closest(graph: ModuleGraph, cut: Partition) -> str:
    """Return what came closest: the first reason of a template that has the function, if any."""
    reasons = {name: why for name, why in cut.unmatched.items() if why != regions.UNKNOWN}
    if name := next(iter(reasons), ""):
        return f"{_name(graph.node(name))}: {reasons[name]}"
    unknown = dict.fromkeys(_name(graph.node(name)) for name in cut.unmatched)
    return f"no template covers {', '.join(list(unknown)[:MOST_NAMED])}" if unknown \
        else "it calls no torch function"


def _name(node: Node) -> str:
    return node.target.removesuffix(".__get__").rpartition(".")[2].strip("_")
