"""What is to be made faster: a kernel's entry point, reference, arguments and config classes."""

from __future__ import annotations

import ast
import hashlib
import math
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from harness.errors import InputError

Language = Literal["c", "python", "triton"]
Role = Literal["input", "output", "inout", "scalar"]
Number = int | float
DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4,
               "int8": 1, "uint8": 1}
DTYPE_TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
MAX_CLASSES = 256
MAX_ELEMENTS = 1 << 32


class Arg(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One argument of the entry point, in call order; a dimension is a number or an expression."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None = None
    role: Role | None = None
    value: int | float | str | None = None
    low: float | None = None
    high: float | None = None

    @property
    def kind(self) -> Role:
        return self.role or ("scalar" if self.shape is None else "input")


class ConfigClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Inputs that take the same path through the kernel and are judged together.

    `interpret_shape` stands in for `shape` where a Triton kernel is interpreted, thousands of
    times slower than a GPU; it should take the same path.
    """

    name: str
    shape: dict[str, int]
    interpret_shape: dict[str, int] | None = None
    weight: float = 1.0
    core: bool = False
    tolerance: float | None = None


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """An argument with its numbers filled in for one config class."""

    name: str
    dtype: str
    role: Role
    shape: tuple[int, ...] = ()
    value: int | float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel target as its task file declares it; paths are relative to the project."""

    op: str
    language: Language
    source: str
    entry: str
    reference: str
    args: tuple[Arg, ...]
    classes: tuple[ConfigClass, ...]
    kind: Literal["kernel"] = "kernel"
    build: tuple[str, ...] = ("-O3", "-march=native")
    flops: str | int | None = None
    bytes: str | int | None = None
    tolerance: float | None = None
    returns: bool = False
    return_dtypes: tuple[str, ...] = ()
    """With `returns`: the dtypes of what is returned; empty leaves them to the kernel."""
    backend: str | None = None
    description: str = ""

    @property
    def content_hash(self) -> str:
        """Identify the task by its content."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:12]

    def interpretable(self) -> Target:
        """Return the target with the shapes that are meant for Triton's interpreter."""
        return msgspec.structs.replace(self, classes=tuple(
            msgspec.structs.replace(c, shape=c.interpret_shape or c.shape) for c in self.classes))

    @property
    def reference_file(self) -> str:
        return self.reference.partition(":")[0]

    @property
    def reference_function(self) -> str:
        return self.reference.partition(":")[2] or self.entry

    def config_class(self, name: str) -> ConfigClass:
        for item in self.classes:
            if item.name == name:
                return item
        raise InputError(f"no config class {name!r}",
                         fix=f"one of {', '.join(c.name for c in self.classes)}")

    def tensors(self, config_class: ConfigClass) -> tuple[Tensor, ...]:
        """Return the arguments in call order, their shapes and scalar values resolved."""
        return tuple(self._resolve(arg, config_class.shape) for arg in self.args)

    def _resolve(self, arg: Arg, names: Mapping[str, int]) -> Tensor:
        shape = tuple(int(evaluate_expression(dim, names)) for dim in arg.shape or ())
        value = None if arg.value is None else evaluate_expression(arg.value, names)
        if value is not None and not arg.dtype.startswith("float"):
            value = int(value)
        return Tensor(name=arg.name, dtype=arg.dtype, role=arg.kind, shape=shape, value=value,
                      low=arg.low, high=arg.high)

    def work(self, config_class: ConfigClass) -> tuple[float, float]:
        """Return (floating-point operations, bytes that must move) of one call.

        Bytes default to every input read once and every output written once, a lower bound.
        """
        tensors = self.tensors(config_class)
        moved = sum(t.nbytes * (2 if t.role == "inout" else 1) for t in tensors
                    if t.role != "scalar")
        flops = 0.0 if self.flops is None else evaluate_expression(self.flops, config_class.shape)
        if self.bytes is not None:
            moved = int(evaluate_expression(self.bytes, config_class.shape))
        return float(flops), float(moved)

    def tolerance_of(self, config_class: ConfigClass) -> float:
        """Return the allowed error relative to a value, or to the root mean square if larger."""
        if config_class.tolerance is not None:
            return config_class.tolerance
        if self.tolerance is not None:
            return self.tolerance
        outputs = [arg.dtype for arg in self.args if arg.kind in ("output", "inout")]
        floats = [arg.dtype for arg in self.args if arg.dtype in DTYPE_TOLERANCE]
        return max(DTYPE_TOLERANCE.get(dtype, 0.0) for dtype in outputs or floats or ["float32"])


_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}


def evaluate_expression(expression: int | float | str, names: Mapping[str, int]) -> Number:
    """Evaluate arithmetic over a class's shape names, such as `2*m*n*k`.

    Raises InputError for anything else than + - * / // % on numbers and known names.
    """
    if not isinstance(expression, str):
        return expression
    if len(expression) > 200:
        raise InputError("expression is too long", where=expression[:40] + "…")

    def walk(node: ast.expr) -> Number:
        match node:
            case ast.Constant(value=int() | float() as value):
                return value
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.Name(id=name):
                raise InputError(f"unknown name {name!r} in {expression!r}",
                                 fix=f"a class's shape gives {', '.join(names) or 'no names'}")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](walk(left), walk(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -walk(operand)
        raise InputError(f"cannot evaluate {expression!r}", fix="use + - * / // % on shape names")

    try:
        return walk(ast.parse(expression, mode="eval").body)
    except SyntaxError:
        raise InputError(f"cannot read the expression {expression!r}") from None
    except (ZeroDivisionError, OverflowError, RecursionError) as error:
        raise InputError(f"cannot evaluate {expression!r}: {error}") from None


def load(path: Path) -> Target:
    """Read and check a task file. Raises InputError with the file and the field."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise InputError(f"cannot read the task: {reason}", where=str(path)) from None
    try:
        raw = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"not YAML: {error.problem}", where=f"{path}:{line}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"not YAML: {str(error).splitlines()[0]}", where=str(path)) from None
    try:
        target = msgspec.convert(raw, Target)
    except msgspec.ValidationError as error:
        raise InputError(str(error), where=str(path), fix="see examples/*/task.yaml") from None
    try:
        check(target)
    except InputError as error:
        raise InputError(error.what, where=str(path), fix=error.fix) from None
    return target


def check(target: Target) -> None:
    """Refuse a target that cannot be run. Raises InputError."""
    if not target.classes or len(target.classes) > MAX_CLASSES:
        raise InputError(f"a task needs 1 to {MAX_CLASSES} config classes")
    for names, what in (([c.name for c in target.classes], "config class"),
                        ([a.name for a in target.args], "argument")):
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"{what} {name!r} is there twice")
    for path in (target.source, target.reference_file):
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise InputError(f"{path!r} must lie inside the project")
    outputs = [a for a in target.args if a.kind in ("output", "inout")]
    if not outputs and not target.returns:
        raise InputError("nothing is computed", fix="mark an argument with role: output")
    if target.returns and target.language == "c":
        raise InputError("a C kernel writes to an argument", fix="use role: output")
    for arg in target.args:
        if arg.dtype not in DTYPE_BYTES:
            raise InputError(f"argument {arg.name!r}: unknown dtype {arg.dtype!r}",
                             fix=f"one of {', '.join(DTYPE_BYTES)}")
        if arg.kind == "scalar" and arg.value is None:
            raise InputError(f"scalar {arg.name!r} has no value")
        if arg.kind != "scalar" and arg.shape is None:
            raise InputError(f"tensor {arg.name!r} has no shape")
    for config_class in target.classes:
        if not config_class.weight > 0:
            raise InputError(f"class {config_class.name!r}: weight must be above 0")
        for tensor in target.tensors(config_class):
            if tensor.role != "scalar" and not 0 < math.prod(tensor.shape) <= MAX_ELEMENTS:
                raise InputError(f"class {config_class.name!r}: {tensor.name} has shape "
                                 f"{list(tensor.shape)}")
        target.work(config_class)
