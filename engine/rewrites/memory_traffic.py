"""How many bytes a rewritten forward pass moves: what decides between two ways to cut a graph."""

from __future__ import annotations

from collections.abc import Iterable, Set

from engine.rewrites.module_graph import VIEWS, ModuleGraph, Node, TensorForm
from engine.rewrites.regions import Partition
from harness.tasks.target import DTYPE_BYTES


def bytes_moved(graph: ModuleGraph, cut: Partition, live: Set[str]) -> int:
    """Return the bytes that regions and other calls read and write, each tensor once a call."""
    total, inside = 0, set[str]()
    for region in cut.regions:
        inside |= {node.name for node in region.nodes}
        total += _moved(graph, region.nodes, (region.result, *region.more))
    for node in graph.nodes:
        if node.name in live and node.name not in inside and \
                node.target.rpartition(".")[2] not in VIEWS:
            total += _moved(graph, (node,), (node,))
    return total


def _moved(graph: ModuleGraph, nodes: Iterable[Node], results: Iterable[Node]) -> int:
    names = {node.name for node in nodes}
    read = {ref for node in nodes for ref in node.reads
            if not (ref.kind == "node" and ref.name in names)}
    return sum(_size(graph.form(ref)) for ref in read) + sum(
        _size(form) for node in results for form in node.outputs)


def _size(form: TensorForm) -> int:
    return form.numel() * DTYPE_BYTES.get(form.dtype, 1)
