"""Write a caller's variables as expressions over the watched function's arguments."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence

from engine.discovery.watched.expected.lifted_methods import OWN, name_of
from harness.call_trace.watched_calls import ObservedCaller, ObservedLocal, ObservedValue

SMALL = 1
"""A variable that is always this or less is a number, not a size of an argument."""


class NoValue(Exception):
    """Raised if a variable is not an argument and cannot be computed from one."""


class MemberNames(ast.NodeTransformer):
    """Replaces members of a caller's objects by names: `layer.weight`, `layer.state_dict()`.

    `owner` is the variable that holds the object whose method is watched; its members, and those of
    other modules, become arguments, of which `used` occur in the result. What the caller reads of
    its own object, as `self.dtype`, becomes one of `variables`, and its methods functions. Calls of
    `modules` get arguments as parameters.
    """

    def __init__(self, caller: ObservedCaller, names: Collection[str]) -> None:
        self.used, self.modules = set[str](), set[str]()
        self.line, self.is_inside = caller.line, False
        self.owner = next((local.name for local in caller.locals
                           if local.argument and local.value.kind == "other"), "")
        self.others = {local.name: local.argument for local in caller.locals
                       if "." in local.name and local.argument in names}
        self.variables = {local.name: name_of(local.name) for local in caller.locals
                          if local.name.startswith(OWN)}
        members = caller.call.members
        self.weights = {what.removeprefix("weight:"): name for name, what in members.items()
                        if what.startswith("weight:")}
        self.names = self.weights | {name.removeprefix("init_"): name for name, what
                                     in members.items() if what.startswith("init:")}

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outside = self.is_inside
        self.is_inside = node.lineno <= self.line <= (node.end_lineno or node.lineno)
        self.generic_visit(node)
        self.is_inside = outside
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        text = ast.unparse(node)
        if self.is_inside and (variable := self.variables.get(text)) is not None:
            return ast.copy_location(ast.Name(variable, node.ctx), node)
        name = self.names.get(text.removeprefix(f"{self.owner}.")) if text.startswith(
            f"{self.owner}.") else self.others.get(text)
        if name is None:
            return self.generic_visit(node)
        self.used.add(name)
        return ast.copy_location(ast.Name(name, node.ctx), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self.is_inside and isinstance(node.func, ast.Attribute) \
                and ast.unparse(node.func.value) + "." == OWN:
            node.func = ast.copy_location(
                ast.Name(name_of(ast.unparse(node.func)), ast.Load()), node.func)
        if isinstance(node.func, ast.Name) and node.func.id != self.owner and (
                weights := self._weights_of(node.func.id)):
            return self._with_weights(node, weights)
        if ast.unparse(node) != f"{self.owner}.state_dict()":
            return self.generic_visit(node)
        self.used |= set(self.weights.values())
        return ast.copy_location(ast.Dict([ast.Constant(weight) for weight in self.weights], [
            ast.Name(name, ast.Load()) for name in self.weights.values()]), node)


    def _weights_of(self, module: str) -> dict[str, str]:
        """Return the arguments that are parameters of a caller's module, by parameter."""
        return {name.removeprefix(f"{module}."): argument for name, argument
                in self.others.items() if name.startswith(f"{module}.")}

    def _with_weights(self, node: ast.Call, weights: Mapping[str, str]) -> ast.AST:
        """Return the call of a module with arguments of the reference as its parameters."""
        self.used |= {*weights.values()}
        self.modules.add(ast.unparse(node.func))
        positional = [self.visit(each) for each in node.args]
        named = [(each.arg, self.visit(each.value)) for each in node.keywords]
        made = ast.Call(ast.parse("torch.func.functional_call", mode="eval").body, [
            node.func, ast.Dict([ast.Constant(name) for name in weights], [
                ast.Name(argument, ast.Load()) for argument in weights.values()]),
            ast.Tuple(positional, ast.Load()), ast.Dict(
                [ast.Constant(name) for name, _ in named], [value for _, value in named])], [])
        return ast.fix_missing_locations(ast.copy_location(made, node))


class LocalValues:
    """The variables of a caller; `used` are the arguments that their expressions need.

    `same` are all calls by this caller: a variable is a size only if it equals that size in each.
    `names` are the names that the function's source gives to sizes, by (argument, axis).
    """

    def __init__(self, args: Mapping[str, ObservedValue], same: Sequence[ObservedCaller],
                 names: Mapping[tuple[str, int], str]) -> None:
        self.args, self.same, self.names = args, same, names
        self.used: set[str] = set()

    def text(self, local: ObservedLocal) -> str:
        """Return a variable as an expression over the arguments or a literal. Raises NoValue."""
        value = local.value
        tensors = {name: arg for name, arg in self.args.items() if arg.kind == "tensor"}
        if not tensors or value.kind == "tensor":
            raise NoValue(f"the expected result uses {local.name!r}, which is not an argument")
        if value.kind == "device" or "device" in local.name.lower():
            return self.device()
        if value.kind == "dtype":
            same = [name for name, arg in tensors.items() if arg.dtype == value.value]
            return self._of(same[0], "dtype") if same else f"torch.{value.value}"
        if value.kind == "tuple" and isinstance(value.value, tuple):
            whole = [name for name, arg in tensors.items() if arg.shape == value.value]
            if whole:
                return f"tuple({self._of(whole[0], 'shape')})"
            recorded = [name for name in tensors if self._always_holds(local.name, name)]
            if recorded:
                return self._of(recorded[0], "tolist()")
            return "(" + "".join(f"{self._size(local.name, each, tensors)}, "
                                 for each in value.value) + ")"
        return self._size(local.name, value.value, tensors)

    def container(self, local: ObservedLocal) -> str:
        """Return a container of arguments as an expression."""
        text = str(local.value.value)
        self.used |= {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        return text

    def device(self) -> str:
        """Return the arguments' device. Raises NoValue if none is a tensor."""
        for name, arg in self.args.items():
            if arg.kind == "tensor":
                return self._of(name, "device")
        raise NoValue("the expected result needs a device, and no argument is a tensor")

    def _size(self, local: str, value: object, tensors: Mapping[str, ObservedValue]) -> str:
        """Return a whole number as the size of an argument that equals it, else as a literal."""
        if not isinstance(value, int) or isinstance(value, bool):
            return repr(value)
        values = {each.value.value for caller in self.same for each in caller.locals
                  if each.name == local}
        axes = [(name, axis) for name, arg in tensors.items()
                for axis, size in enumerate(arg.shape)
                if size == value and self._always_equals(local, name, axis)
                and (len(values) > 1 or value > SMALL)]
        named = [(name, axis) for name, axis in axes if local.lower() in (
            self.names.get((name, axis)),
            self.names.get((name, axis - len(tensors[name].shape))))]
        if not axes:
            return repr(value)
        name, axis = (named or axes)[0]
        return f"{self._of(name, 'shape')}[{axis}]"

    def _always_equals(self, local: str, argument: str, axis: int) -> bool:
        """Return whether a variable equals an argument's size in every call by the caller."""
        for caller in self.same:
            values = [each.value.value for each in caller.locals if each.name == local]
            shape = caller.call.args[argument].shape
            if values and isinstance(values[0], int) and (
                    axis >= len(shape) or shape[axis] != values[0]):
                return False
        return True

    def _always_holds(self, local: str, argument: str) -> bool:
        """Return whether a sequence has the integers of an argument in every call by the caller."""
        return all(each.value.value == caller.call.integers.get(argument)
                   for caller in self.same for each in caller.locals if each.name == local)

    def _of(self, argument: str, attribute: str) -> str:
        self.used.add(argument)
        return f"{argument}.{attribute}"
