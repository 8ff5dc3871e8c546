"""Replaces calls in a graph by equivalent ones, so that templates match them.

A call that writes into its input, such as ReLU(inplace=True), makes a new tensor instead. This is
equivalent if nothing else reads the input's memory after the call.

Attention whose heads are too long for one kernel becomes two products and a softmax: a row of such
a head's result does not fit into the registers of a block. Where both lengths are large, the
products take most of the time, and their templates are faster than what PyTorch has.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from engine.rewrites.module_graph import ModuleGraph, Node, Ref, TensorForm, refs_of
from engine.rewrites.template_catalog import Catalog

FRESH = re.compile(
    r"(conv(_transpose)?\dd|linear|\w+_norm|matmul|b?mm|addmm|a?max|a?min|\w+_pool\dd|sum|topk)$")
"""Functions whose result shares no memory with anything."""
ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
LONGEST_HEAD = 256
"""Most values of a head that the template `attention` takes."""
LEAST_LENGTH = 512
"""Least number of queries and of keys at which products of float32 are faster."""


def without_inplace(graph: ModuleGraph, known: Catalog) -> ModuleGraph:
    """Return the graph whose calls no longer write into an input if nothing reads it afterwards."""
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
    """Return whether anything may read the written tensor's memory after the call."""
    users = [user for user in graph.users(written.name) if user is not node
             and any(ref in (written, Ref("node", written.name)) for ref in user.reads)]
    return any(int(user.name[1:]) > int(node.name[1:]) or not FRESH.search(user.target)
               for user in users) or any(
        ref in (written, Ref("node", written.name)) for ref in refs_of(graph.result))


def as_products(graph: ModuleGraph) -> ModuleGraph:
    """Return the graph with attention of long heads as products; the same graph if it has none."""
    if not any(_is_long(graph, node) for node in graph.nodes):
        return graph
    names: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        moved = replace(node, args=_renamed(node.args, names), kwargs=_renamed(node.kwargs, names),
                        bound=_renamed(node.bound, names), written=_renamed(node.written, names))
        first = len(nodes)
        nodes += _products(graph, node, moved, first) if _is_long(graph, node) else \
            [replace(moved, name=f"n{first}")]
        names[node.name] = nodes[-1].name
    return replace(graph, nodes=tuple(nodes), result=_renamed(graph.result, names), layers=tuple(
        replace(layer, args=_renamed(layer.args, names), result=_renamed(layer.result, names))
        for layer in graph.layers))


def _is_long(graph: ModuleGraph, node: Node) -> bool:
    named = node.bound
    if node.target != ATTENTION or not named or named["attn_mask"] is not None or \
            named["is_causal"] or named["dropout_p"]:
        return False
    q, k, v = (graph.form(named[name]) for name in ("query", "key", "value"))
    return q.dtype == "float32" and q.dim() > 2 and q.shape[-1] > LONGEST_HEAD \
        and q.shape[:-2] == k.shape[:-2] == v.shape[:-2] \
        and min(q.shape[-2], k.shape[-2], v.shape[-1]) >= LEAST_LENGTH


def _products(graph: ModuleGraph, node: Node, moved: Node, first: int) -> list[Node]:
    """Return the nodes that compute an attention call, named from n<first> on."""
    query, key, value, scale = (moved.bound[name] for name in ("query", "key", "value", "scale"))
    q, k = (graph.form(node.bound[name]) for name in ("query", "key"))
    turned, scores = (*k.shape[:-2], *k.shape[:-3:-1]), (*q.shape[:-1], k.shape[-2])
    previous = [Ref("node", f"n{first + number}") for number in range(4)]

    def call(number: int, target: str, named: dict[str, Any], shape: tuple[int, ...]) -> Node:
        arguments = tuple(part for part in named.values() if part is not None)
        return Node(name=f"n{first + number}", target=target, args=arguments, kwargs={},
                    bound=named,
                    outputs=(TensorForm(dtype=q.dtype, shape=shape),), several=False, written=None,
                    layer=node.layer)

    return [
        call(0, "torch.transpose", {"input": key, "dim0": -2, "dim1": -1}, turned),
        call(1, "torch.matmul", {"input": query, "other": previous[0]}, scores),
        call(2, "torch.mul", {"input": previous[1],
                              "other": q.shape[-1] ** -0.5 if scale is None else scale}, scores),
        call(3, "torch.softmax", {"input": previous[2], "dim": -1, "dtype": None}, scores),
        call(4, "torch.matmul", {"input": previous[3], "other": value}, node.form.shape)]


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Return an argument in which nodes have their new names."""
    if isinstance(value, Ref):
        return replace(value, name=names[value.name]) if value.kind == "node" else value
    if isinstance(value, dict):
        return {name: _renamed(part, names) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_renamed(part, names) for part in value)
    return value
