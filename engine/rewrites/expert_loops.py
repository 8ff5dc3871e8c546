"""Replaces a loop over experts by one call; each may run on all tokens or on those that chose it.

The call is `kopt.experts`, which the template `moe` computes. An expert is two linear layers or
products with an activation between, or three with one as the gate; tokens choose by top k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.rewrites.fused_lines import FLOATS
from engine.rewrites.module_graph import ModuleGraph, Node, Ref, SourceCode, TensorForm, refs_of
from engine.rewrites.pattern_match import CASTS, match
from engine.rewrites.regions import live_nodes

TARGET = "kopt.experts"
LINEAR, PRODUCT = "F.linear({0}, {1}, {1}_bias)", "torch.matmul({0}, {1})"
FORMS = tuple((form.format(hidden.format(form.format("x", "up"), activation,
                                         form.format("x", "gate")), "down"),
               activation.rpartition(".")[2])
              for form in (LINEAR, PRODUCT)
              for activation in ("F.silu", "F.gelu", "F.relu", "torch.relu")
              for hidden in ("{1}({2}) * {0}", "{1}({0})"))
"""Expressions of an expert, and its activation."""
WEIGHTS = ("up", "down", "gate", "up_bias", "down_bias", "gate_bias")


@dataclass(frozen=True, kw_only=True)
class ExpertTerm:
    """One expert's term: its number, which tokens chose it, and its weights."""

    number: int
    indices: Ref
    shares: Ref
    x: Ref
    activation: str
    weights: dict[str, Ref]
    linear: bool


def as_experts(graph: ModuleGraph) -> ModuleGraph:
    """Return the graph with loops over experts as calls; the same graph if it has none."""
    reader = _LoopReader(graph)
    for last in reversed(graph.nodes):
        terms = reader.terms(last)
        if len(terms) > 1 and (changed := reader.replaced(last, terms)):
            return as_experts(changed)
    return graph


def by_value(graph: ModuleGraph) -> str:
    """Return a function whose result's shape depends on its input's values, "" if none is called.

    The shapes in the graph assume the largest possible size.
    """
    live = live_nodes(graph)
    for node in graph.nodes:
        word = node.target.rpartition(".")[2].strip("_")
        keys = refs_of(node.args[1:]) if word == "getitem" else ()
        if node.name in live and (word in ("nonzero", "masked_select") or (
                word == "where" and len(node.args) == 1) or any(
                    graph.form(ref).dtype == "bool" for ref in keys)):
            return word
    return ""


class _LoopReader:
    def __init__(self, graph: ModuleGraph) -> None:
        self.graph = graph

    def call(self, value: Any, *names: str) -> Node | None:
        """Return the node of a value if it calls one of the named functions."""
        if not isinstance(value, Ref) or value.kind != "node":
            return None
        node = self.graph.node(value.name)
        return node if node.target.rpartition(".")[2].strip("_") in names else None

    def terms(self, last: Node) -> list[ExpertTerm]:
        """Return the experts' terms whose sum a node is; [] if it is no such sum."""
        terms: list[ExpertTerm] = []
        value: Any = Ref("node", last.name)
        while value is not None and value != 0 and not self.call(
                value, "zeros", "zeros_like", "new_zeros"):
            added = self._added(value)
            if added is None:
                return []
            value, term = added
            terms.append(term)
        return terms

    def _added(self, value: Any) -> tuple[Any, ExpertTerm] | None:
        """Return the partial sum that a node adds to (None for the first) and the expert added."""
        node = self.call(value, "index_add", "setitem", "add", "iadd", "radd")
        if node is None:
            first = self._for_all(value)
            return None if first is None else (None, first)
        word = node.target.rpartition(".")[2].strip("_")
        if word == "index_add":
            term = self._chosen(node.args[3], node.args[2]) \
                if len(node.args) == 4 and node.args[1] == 0 and not node.kwargs else None
            return None if term is None else (node.args[0], term)
        if word == "setitem":
            more = self.call(node.args[2], "add", "iadd")
            read = self.call(more.args[0], "getitem") if more else None
            term = self._chosen(more.args[1], node.args[1]) \
                if more and read and read.args == node.args[:2] else None
            return None if term is None else (node.args[0], term)
        both = len(node.args) == 2 and not node.kwargs
        for rest, added in (node.args, node.args[::-1]) if both else ():
            if term := self._for_all(added):
                return rest, term
        return None

    def _factors(self, value: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the two factors of a product in both orders."""
        product = self.call(self._uncast(value), "mul", "multiply", "imul", "rmul")
        if product is not None:
            yield product.args[0], product.args[1]
            yield product.args[1], product.args[0]

    def _uncast(self, value: Any) -> Any:
        while cast := self.call(value, *CASTS):
            value = cast.args[0]
        return value

    def _chosen(self, value: Any, tokens: Any) -> ExpertTerm | None:
        """Return the expert that is applied to the tokens that `torch.where` found."""
        where = self.call(tokens, "where", "nonzero")
        choice = self._choice(where.args[0]) if where and len(where.args) == 1 else None
        if where is None or choice is None or choice[2] != tokens.item:
            return None
        slot = Ref("node", where.name, 1 - choice[2])
        for result, share in self._factors(value):
            inner, axis = self._without_axis(share)
            read = self.call(inner, "getitem")
            if read and read.args[1] == ((tokens, slot) if axis else (tokens, slot, None)):
                term = self._expert(result, choice, read.args[0])
                source = self._gathered(term.x, tokens) if term else None
                return replace(term, x=source) if term and source else None
        return None

    def _without_axis(self, value: Any) -> tuple[Any, bool]:
        """Return a value before `unsqueeze(-1)` or `[:, None]`, and whether there was one."""
        axis, read = self.call(value, "unsqueeze"), self.call(value, "getitem")
        if axis and axis.args[1] in (-1, 1):
            return axis.args[0], True
        if read and isinstance(read.args[1], tuple) and len(read.args[1]) == 2 and \
                isinstance(read.args[1][0], SourceCode) and read.args[1][1] is None:
            return read.args[0], True
        return value, False

    def _choice(self, value: Any) -> tuple[Ref, int, int] | None:
        """Return indices, an expert's number, and which of `where`'s results is the tokens."""
        value = self._uncast(value)
        if (equal := self.call(value, "eq")) and isinstance(equal.args[0], Ref):
            return equal.args[0], equal.args[1], 0
        read = self.call(value, "getitem")
        turned = self.call(read.args[0], "permute") if read else None
        hot = self.call(turned.args[0], "one_hot") if turned else None
        if read and turned and hot and turned.args[1:] in ((2, 1, 0), ((2, 1, 0),)):
            return hot.args[0], read.args[1], 1
        return None

    def _gathered(self, value: Ref, tokens: Ref) -> Ref | None:
        """Return the tensor whose rows were gathered for the chosen tokens."""
        columns = self.graph.form(value).shape[-1:]
        while shaped := self.call(value, "reshape", "view", "squeeze"):
            value = shaped.args[0]
        read, select = self.call(value, "getitem"), self.call(value, "index_select")
        source = read.args[0] if read and read.args[1] in (tokens, (tokens,), (None, tokens)) \
            else select.args[0] if select and select.args[1:] == (0, tokens) else None
        return source if isinstance(source, Ref) and \
            self.graph.form(source).shape[1:] == columns else None

    def _for_all(self, value: Any) -> ExpertTerm | None:
        """Return the expert that is applied to all tokens, with a share of 0 for most of them."""
        for result, share in self._factors(value):
            inner, axis = self._without_axis(self._uncast(share))
            total = self.call(inner, "sum")
            if total is None or total.bound.get("dim") not in (-1, 1, [-1], (-1,)) or \
                    bool(total.bound.get("keepdim")) == axis:
                continue
            where = self.call(total.args[0], "where")
            pairs = [(where.args[1], where.args[0])] if where and len(where.args) == 3 and \
                where.args[2] == 0 else list(self._factors(total.args[0]))
            for shares, mask in pairs:
                choice = self._choice(mask)
                if choice and choice[2] == 0 and isinstance(shares, Ref):
                    return self._expert(result, choice, shares)
        return None

    def _expert(self, value: Any, choice: tuple[Ref, int, int], shares: Any) -> ExpertTerm | None:
        value = self._uncast(value)
        if not isinstance(value, Ref) or value.kind != "node" or type(choice[1]) is not int or \
                not isinstance(shares, Ref):
            return None
        for expression, activation in FORMS:
            matched = match(self.graph, self.graph.node(value.name), expression)
            if matched is not None and isinstance(matched.bound["x"], Ref):
                return ExpertTerm(
                    number=choice[1], indices=choice[0], shares=shares, x=matched.bound["x"],
                    activation=activation, linear=expression.startswith("F.linear"),
                    weights={name: ref for name in WEIGHTS
                             if isinstance(ref := matched.bound.get(name), Ref)})
        return None

    def experts(self, indices: Ref) -> int:
        """Return the number of experts that indices choose from, 0 if unknown."""
        top = self.call(indices, "topk")
        return self.graph.form(top.args[0]).shape[-1] if top and indices.item == 1 and \
            top.bound.get("dim") in (-1, 1) else 0

    def whole(self, terms: Sequence[ExpertTerm], name: str) -> Ref | None:
        """Return the tensor whose items are the experts' weights, None if there is none."""
        origins = [self._origin(term.weights[name]) for term in terms]
        source, keys = origins[0]
        read = self.call(terms[0].weights[name], "getitem")
        if read is None or any(origin != (source, [*keys[:-1], term.number])
                               for term, origin in zip(terms, origins, strict=True)):
            return None
        return read.args[0] if self.graph.form(read.args[0]).shape[0] == len(terms) else None

    def _origin(self, value: Any) -> tuple[Any, list[Any]]:
        """Return the tensor that a value was indexed from, and the indices."""
        read = self.call(value, "getitem")
        if read is None:
            return value, []
        source, keys = self._origin(read.args[0])
        return source, [*keys, read.args[1]]

    def replaced(self, last: Node, terms: Sequence[ExpertTerm]) -> ModuleGraph | None:
        """Return the graph with one call for all terms, None if they cannot be combined."""
        graph, terms = self.graph, sorted(terms, key=lambda term: term.number)
        x, dtype = terms[0].x, last.form.dtype
        kinds = {(term.indices, term.shares, term.x, term.activation, term.linear,
                  tuple(term.weights)) for term in terms}
        numbers = [term.number for term in terms]
        if len(kinds) > 1 or numbers != list(range(self.experts(terms[0].indices))) or \
                dtype not in FLOATS or len(last.form.shape) != 2 or any(
                    graph.form(ref).dtype != dtype for term in terms
                    for ref in (term.x, *term.weights.values())) or \
                graph.form(x).shape != last.form.shape:
            return None
        bound: dict[str, Any] = {
            "input": x, "shares": terms[0].shares, "indices": terms[0].indices,
            "activation": terms[0].activation} | dict.fromkeys(WEIGHTS)
        wholes = {name: self.whole(terms, name) for name in terms[0].weights}
        if any(wholes[name] is None and term.weights[name].kind == "node"
               for term in terms for name in wholes):
            return None
        ends = {x, terms[0].shares, terms[0].indices, *filter(None, wholes.values())}
        inside = graph.before([last.name], lambda ref: ref not in ends)
        used = {ref.name for node in graph.nodes if node.name not in inside for ref in node.reads}
        free = sorted(int(name[1:]) for name in inside - {last.name})[-3 * len(WEIGHTS):]
        if (used | graph.returned()) & (inside - {last.name}) or len(free) < 2 * len(WEIGHTS):
            return None
        nodes = [replace(node, written=None) if node.name in inside else node
                 for node in graph.nodes]

        def add(target: str, args: tuple[Any, ...], shape: tuple[int, ...]) -> Ref:
            number = free.pop(0)  # the number of a node that the call replaces
            form = TensorForm(dtype=dtype, shape=shape)
            nodes[number] = Node(name=f"n{number}", target=target, args=args, kwargs={}, bound={},
                                 outputs=(form,), several=False, written=None, layer=None)
            return Ref("node", f"n{number}")

        for name, weight in wholes.items():
            each = [term.weights[name] for term in terms]
            shape = graph.form(each[0]).shape
            weight = weight or add("torch.stack", (each,), (len(each), *shape))
            if terms[0].linear and not name.endswith("_bias"):
                weight = add("torch.transpose", (weight, 1, 2), (len(each), *shape[::-1]))
            bound[name] = weight
        nodes[int(last.name[1:])] = replace(
            last, target=TARGET, kwargs={}, bound=bound, written=None, layer=None,
            args=tuple(value for value in bound.values() if isinstance(value, Ref)))
        return replace(graph, nodes=tuple(nodes))
