"""An index of a Triton kernel as a sum of terms, with names traced to the values they stand for."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Collection

from engine.transformations.triton.parsed_triton import ParsedTriton

Sum = Counter[tuple[str, ...]]
"""How often each term occurs; a term is the sorted tuple of its factors, () for the number 1."""
LANES = "arange(0, "
"""The beginning of each factor that differs between the lanes of a block."""
MOST_TERMS = 32
_HINTS = ("multiple_of", "max_contiguous", "max_constancy")


class IndexSums:
    """Indices as sums in straight-line code; call `set` for its assignments, in their order.

    A cast to 64 bits, a hint to the compiler and a further dimension do not change a sum's terms,
    but each block of lanes keeps its dimension.
    """

    def __init__(self, parsed: ParsedTriton, values: dict[str, Sum] | None = None,
                 scalars: Collection[str] = ()) -> None:
        self._parsed = parsed
        self._values = dict(values or {})
        self._scalars = scalars

    def set(self, name: str, node: ast.expr) -> None:
        self._values[name] = self.of(node)

    def forget(self, name: str, line: int) -> None:
        """Make a name's value unknown: it equals no other value."""
        self._values[name] = Counter({(f"{name} of line {line}",): 1})

    def of(self, node: ast.expr) -> Sum:
        match node:
            case ast.Constant(value=int(value)):
                return Counter({(): int(value)}) if value else Counter()
            case ast.Name(id=name):
                return self._values.get(name, Counter({(name,): 1}))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return plus(self.of(left), self.of(right))
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return minus(self.of(left), self.of(right))
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                factors = self.of(left), self.of(right)
                if len(factors[0]) * len(factors[1]) <= MOST_TERMS:
                    return _product(*factors)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return minus(Counter(), self.of(operand))
            case ast.Subscript(value=value, slice=part) if is_new_dimension(part):
                return self._with_dimension(self.of(value), ast.unparse(part).strip("()"))
            case ast.Call() if (inner := self._unchanged(node)) is not None:
                return self.of(inner)
            case ast.Call() if self._parsed.is_call(node, "arange") and len(node.args) == 2 \
                    and not self.of(node.args[0]):
                return Counter({(f"{LANES}{text(self.of(node.args[1]))})",): 1})
            case ast.Call() if self._parsed.is_call(node, "program_id"):
                axis = [*node.args, *(keyword.value for keyword in node.keywords)]
                return Counter({(f"program_id({ast.unparse(axis[0]) if axis else 0})",): 1})
            case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() as sign], comparators=[right]):
                return self._compared(left, right, sign)
            case ast.Compare(left=left, ops=[ast.Gt() | ast.GtE() as sign], comparators=[right]):
                return self._compared(right, left, sign)
            case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
                parts = sorted({text(self.of(left)), text(self.of(right))})
                return Counter({(f"({' & '.join(parts)})",): 1})
        return Counter({(ast.unparse(_Traced(self).visit(copy.deepcopy(node))),): 1})

    def _compared(self, smaller: ast.expr, larger: ast.expr, sign: ast.cmpop) -> Sum:
        word = "<=" if isinstance(sign, ast.LtE | ast.GtE) else "<"
        return Counter({(f"({text(minus(self.of(smaller), self.of(larger)))} {word} 0)",): 1})

    def _unchanged(self, node: ast.Call) -> ast.expr | None:
        """Return the operand of a cast to 64 bits or of a compiler hint."""
        is_hint = self._parsed.is_call(node, *_HINTS) and node.args
        return node.args[0] if is_hint else self._parsed.widened(node)

    def _with_dimension(self, total: Sum, part: str) -> Sum:
        return Counter({tuple(sorted(
            factor if factor in self._scalars or factor.startswith("program_id(")
            else f"{factor}[{part}]" for factor in term)): count for term, count in total.items()})


class _Traced(ast.NodeTransformer):
    """Replaces names by the sums that they stand for."""

    def __init__(self, sums: IndexSums) -> None:
        self._sums = sums

    def visit_Name(self, node: ast.Name) -> ast.Name:
        total = self._sums.of(node)
        return node if total == Counter({(node.id,): 1}) else ast.Name(id=f"{{{text(total)}}}")


def plus(left: Sum, right: Sum) -> Sum:
    return _without_zeros({term: left[term] + right[term] for term in {*left, *right}})


def minus(left: Sum, right: Sum) -> Sum:
    return _without_zeros({term: left[term] - right[term] for term in {*left, *right}})


def text(total: Sum) -> str:
    """Return a sum as text, the same for equal ones."""
    return " + ".join("*".join([*([str(count)] if count != 1 or not term else []), *term])
                      for term, count in sorted(total.items())) or "0"


def lanes(total: Sum) -> frozenset[str]:
    """Return the blocks of lanes in a sum, each with its dimension."""
    return frozenset(factor for term in total for factor in term if factor.startswith(LANES))


def _product(left: Sum, right: Sum) -> Sum:
    product: Sum = Counter()
    for term, count in left.items():
        for factor, times in right.items():
            product[tuple(sorted((*term, *factor)))] += count * times
    return _without_zeros(product)


def _without_zeros(counts: dict[tuple[str, ...], int]) -> Sum:
    return Counter({term: count for term, count in counts.items() if count})


def is_new_dimension(part: ast.expr) -> bool:
    """Return whether an index only adds dimensions: `[None, :]`."""
    elements = part.elts if isinstance(part, ast.Tuple) else [part]
    return all((isinstance(value, ast.Slice) and value.lower is value.upper is value.step is None)
               or (isinstance(value, ast.Constant) and value.value is None) for value in elements)
