"""Turn methods of a test's class into functions, which a reference can call without the object."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from engine.discovery.watched.entry_source import Function

OWN = "self."


def lifted(tree: ast.Module, function: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the other methods of the class in which a function's body is, without their `self`.

    `self.expected` becomes `self_expected`, as calls of it do in MemberNames.
    """
    for owner in ast.walk(tree):
        methods = [node for node in owner.body if isinstance(node, Function)] \
            if isinstance(owner, ast.ClassDef) else []
        if any(node.body is function for node in methods):
            return [_function(node) for node in methods
                    if node.body is not function and isinstance(node, ast.FunctionDef)]
    return []


def _function(method: ast.FunctionDef) -> ast.stmt:
    is_static = any(ast.unparse(mark) == "staticmethod" for mark in method.decorator_list)
    args = ast.arguments(
        posonlyargs=method.args.posonlyargs, args=method.args.args[not is_static:],
        vararg=method.args.vararg, kwonlyargs=method.args.kwonlyargs,
        kw_defaults=method.args.kw_defaults, kwarg=method.args.kwarg,
        defaults=method.args.defaults)
    made = ast.FunctionDef(name=name_of(f"{OWN}{method.name}"), args=args, body=method.body,
                           decorator_list=[], returns=None, type_comment=None)
    return ast.fix_missing_locations(ast.copy_location(made, method))


def name_of(member: str) -> str:
    """Return the variable that stands for a member of the test's object, such as `self.dtype`."""
    return member.replace(".", "_")
