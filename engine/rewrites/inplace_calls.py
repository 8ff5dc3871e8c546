"""Reads calls that write into their input, such as ReLU(inplace=True), as if they made a tensor.

This is equivalent where only this call uses its input: nothing else reads the changed tensor.
"""

from __future__ import annotations

import re
from dataclasses import replace

from engine.rewrites.module_graph import ModuleGraph, Node, Ref, refs_of
from engine.rewrites.template_catalog import Catalog

FRESH = re.compile(
    r"(conv(_transpose)?\dd|linear|\w+_norm|matmul|b?mm|addmm|a?max|a?min|\w+_pool\dd|sum|topk)$")
"""Functions whose result shares no memory with anything."""


def without_inplace(graph: ModuleGraph, known: Catalog) -> ModuleGraph:
    """Return the graph in which such calls no longer count as writing."""
    return replace(graph, nodes=tuple(
        replace(node, written=None, bound=node.bound | {"inplace": False} if "inplace" in node.bound
                else node.bound) if _is_private(graph, known, node) else node
        for node in graph.nodes))


def _is_private(graph: ModuleGraph, known: Catalog, node: Node) -> bool:
    written = node.written
    if not isinstance(written, Ref) or written.kind != "node" or known.form(node) is None:
        return False
    producer = graph.node(written.name)
    return not _is_seen(graph, node, written) and (
        FRESH.search(producer.target) is not None or known.form(producer) is not None)


def _is_seen(graph: ModuleGraph, node: Node, written: Ref) -> bool:
    """Return whether the tensor is used by anything that may read it after the call."""
    users = [user for user in graph.users(written.name) if user is not node
             and any(own in (written, Ref("node", written.name)) for own in user.reads)]
    return any(int(user.name[1:]) > int(node.name[1:]) or not FRESH.search(user.target)
               for user in users) or any(
        own in (written, Ref("node", written.name)) for own in refs_of(graph.result))
