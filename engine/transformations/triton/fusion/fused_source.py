"""The source with two kernels and their launches as one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.transformations.transformation import Replacement, free_name, replaced
from engine.transformations.triton.fusion.launched_kernel import (
    LaunchedKernel,
    MemoryAccess,
)
from engine.transformations.triton.host_values import HostValues
from engine.transformations.triton.parsed_triton import ParsedTriton, names, stored


@dataclass(frozen=True, kw_only=True)
class FusedSource:
    """Two launched kernels; `passed`, by tensor: stores of the first that the second loads."""

    parsed: ParsedTriton
    values: HostValues
    first: LaunchedKernel
    second: LaunchedKernel
    passed: Mapping[str, MemoryAccess]

    def written(self) -> str:
        """Return the source with the two kernels and their launches as one."""
        parsed, first, other = self.parsed, self.first, self.second
        name = free_name(parsed.source,
                         f"{first.launch.kernel}_then_{other.launch.kernel.strip('_')}")
        renamed = self._renamed()
        parameters = [(first, argument, argument.arg) for argument in first.function.args.args]
        parameters += [(other, argument, renamed[argument.arg])
                       for argument in other.function.args.args
                       if renamed[argument.arg] not in first.bound]
        # constants are passed by name, at the end
        parameters.sort(key=lambda parameter: parameter[1].annotation is not None)
        heads = ", ".join(called + (f": {parsed.text(argument.annotation)}"
                                    if argument.annotation else "")
                          for _, argument, called in parameters)
        values = {tensor: free_name(parsed.source, f"{tensor}_value") for tensor in self.passed}
        decorator = parsed.text(first.function.decorator_list[0])
        kernel = "\n".join([f"@{decorator}", f"def {name}({heads}):",
                            self._first_body(values), self._second_body(values, renamed)])
        arguments = [(f"{called}=" if argument.annotation else "")
                     + parsed.text(launched.bound[argument.arg])
                     for launched, argument, called in parameters]
        options = [f"{key}={value}" for key, value in first.options.items()]
        launch = f"{name}[{parsed.text(first.launch.grid)}]({', '.join([*arguments, *options])})"
        return replaced(parsed.source, [
            *self._kernels(kernel), Replacement(
                parsed.at(first.launch.call.lineno, 0),
                parsed.at((first.launch.call.end_lineno or 0) + 1, 0), ""),
            Replacement(*parsed.span(other.launch.call), launch)])

    def _renamed(self) -> dict[str, str]:
        """Return the new names, in the fused kernel, of the second one's parameters and values."""
        first, other = self.first, self.second
        taken, name_of = names_in(first.function) | set(first.bound), dict[str, str]()
        changed = {*stored(first.function), *stored(other.function)}
        for argument in other.function.args.args:
            value = ast.unparse(other.bound[argument.arg])
            same = [known.arg for known in first.function.args.args
                    if ast.unparse(first.bound[known.arg]) == value
                    and (known.annotation is None) == (argument.annotation is None)
                    and known.arg not in changed and argument.arg not in changed]
            name_of[argument.arg] = same[0] if same else ""
        for name in (*name_of, *sorted({*stored(other.function)} - name_of.keys())):
            if not name_of.get(name):
                name_of[name] = name if name not in taken else free_name(
                    self.parsed.source, name, {*taken, *name_of.values()})
        return name_of

    def _first_body(self, values: dict[str, str]) -> str:
        edits = []
        for tensor, access in self.passed.items():
            pointer = next(name for name, value in self.first.bound.items()
                           if ast.unparse(value) == tensor)
            call = access.call
            indent = " " * call.col_offset
            value = f"({self.parsed.text(call.args[1])}).to({pointer}.dtype.element_ty)"
            line = f"{values[tensor]} = {value}"
            edits.append(Replacement(*self.parsed.span(call), line))
            if self._is_kept(tensor):
                stored = replaced(self.parsed.source, [Replacement(
                    *self.parsed.span(call.args[1]), values[tensor])], *self.parsed.span(call))
                edits[-1] = Replacement(*self.parsed.span(call), f"{line}\n{indent}{stored}")
        return self._body(self.first, edits)

    def _second_body(self, values: dict[str, str], renamed: dict[str, str]) -> str:
        renames = [Replacement(*self.parsed.span(node), renamed[node.id])
                   for node in ast.walk(self.second.function) if isinstance(node, ast.Name)
                   and renamed.get(node.id, node.id) != node.id]
        edits = []
        for access in self.second.accesses:
            if access.is_store or access.tensor not in values:
                continue
            value, mask = values[access.tensor], self.parsed.argument(access.call, "mask", 1)
            other = self.parsed.argument(access.call, "other", 2)
            if mask is not None and other is not None:
                tl = self.parsed.language
                mask_text = replaced(self.parsed.source, renames, *self.parsed.span(mask))
                value = f"{tl}.where({mask_text}, {value}, {tl}.cast({ast.unparse(other)}, " \
                        f"{value}.dtype))"
            edits.append(Replacement(*self.parsed.span(access.call), value))
        return self._body(self.second, [*edits, *renames])

    def _body(self, launched: LaunchedKernel, edits: Sequence[Replacement]) -> str:
        statements = launched.statements
        begin, end = self.parsed.at(statements[0].lineno, 0), self.parsed.span(statements[-1])[1]
        return replaced(self.parsed.source, edits, begin, end)

    def _is_kept(self, tensor: str) -> bool:
        """Return whether what the first kernel stores in a tensor is used after the two launches.
        """
        if any(access.is_store and access.tensor == tensor for access in self.second.accesses):
            return False  # overwritten, in the same places
        calls = {id(node) for launched in (self.first, self.second)
                 for node in ast.walk(launched.launch.call)}
        return any(id(use) not in calls for use in self.values.uses(tensor))

    def _kernels(self, kernel: str) -> Iterator[Replacement]:
        """Yield the edits that add the fused kernel, and remove kernels that are now unused."""
        both = {launched.function.name: launched.function for launched in (self.first, self.second)}
        last = max(both.values(), key=lambda function: function.lineno)
        for name, function in both.items():
            launches = sum(launched.launch.kernel == name for launched in (self.first, self.second))
            named = names(self.parsed.tree).count(name)
            begin = self.parsed.at(function.decorator_list[0].lineno, 0)
            end = self.parsed.span(function)[1]
            if function is last:
                text = "" if named == launches else self.parsed.source[begin:end] + "\n\n\n"
                yield Replacement(begin, end, text + kernel)
            elif named == launches:
                rest = self.parsed.source[end:]
                yield Replacement(begin, end + len(rest) - len(rest.lstrip("\n")), "")


def names_in(function: ast.FunctionDef) -> set[str]:
    return {name for statement in function.body for name in names(statement)}
