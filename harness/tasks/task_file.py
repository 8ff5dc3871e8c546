"""Task files: read one, and check that the target it declares can be run."""

from __future__ import annotations

import math
import re
from pathlib import Path

from harness.errors import InputError
from harness.formats import yaml_document
from harness.formats.expression import evaluate_expression
from harness.formats.text import suggest
from harness.formats.yaml_decode import decode
from harness.formats.yaml_values import Key
from harness.tasks.target import (
    CONSTANTS,
    DTYPE_BYTES,
    MAX_ELEMENTS,
    MAX_GPUS,
    OF_CARD,
    OF_ROWS,
    TORCH_ONLY,
    Arg,
    ConfigClass,
    Target,
    Tensor,
)

NO_C_SCALARS = ("float16", "bfloat16", *TORCH_ONLY)
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
MAX_CLASSES = 256


def load(path: Path) -> Target:
    """Read and check a task file. Raises InputError with the file, the line and the key."""
    document = yaml_document.read(path)
    target = decode(document, Target)
    try:
        check(target)
    except BadField as error:
        raise InputError(error.what, where=document.at(error.key), fix=error.fix) from None
    return target


class BadField(InputError):
    """A target cannot be run; `key` is that of the wrong field in the task file."""

    def __init__(self, what: str, key: Key, *, fix: str = "") -> None:
        super().__init__(what, where=".".join(str(step) for step in key), fix=fix)
        self.key = key


def check(target: Target) -> None:
    """Raise BadField for a target that cannot be run."""
    if not 1 <= len(target.classes) <= MAX_CLASSES:
        raise BadField(f"a task needs 1 to {MAX_CLASSES} config classes", ("classes",))
    _check_names("classes", [c.name for c in target.classes])
    _check_names("args", [a.name for a in target.args])
    for field, path in (("source", target.source), ("reference", target.reference_file),
                        ("adapter", target.adapter_file or target.source)):
        if not path or Path(path).is_absolute() or ".." in Path(path).parts:
            raise BadField(f"{path!r} must lie inside the project", (field,))
    if target.adapter is not None:
        _check_adapter(target)
    if not any(a.kind in ("output", "inout") for a in target.args) and not target.returns:
        raise BadField("the task has no output", ("args",),
                       fix="mark an argument with role: output")
    if target.returns and target.is_compiled:
        raise BadField(f"a {target.language.upper()} kernel cannot return values", ("returns",),
                       fix="use role: output")
    if not 1 <= target.num_gpus <= MAX_GPUS:
        raise BadField(f"num_gpus must be from 1 to {MAX_GPUS}", ("num_gpus",))
    if target.has_c_reference and (target.returns or not target.float64 or any(
            not _can_take(arg, "c") and not arg.dtype.endswith("float16")
            for arg in target.args)):
        raise BadField("a C reference takes the arguments in call order, every float as a double: "
                       "the task has others", ("reference",), fix="write it in Python")
    if target.num_gpus > 1 and target.language == "c":
        raise BadField("a C kernel runs on the CPU: num_gpus must be 1", ("num_gpus",))
    if target.launch is not None:
        if target.language not in OF_CARD:
            raise BadField(f"a {target.language} kernel takes no launch", ("launch",),
                           fix="remove it, or set language: cuda or hip")
        if why := target.launch.fault():
            raise BadField(why, ("launch",))
    if target.tolerance is not None and not 0 <= target.tolerance < 1:
        raise BadField("tolerance must be from 0 to 1", ("tolerance",))
    for index, arg in enumerate(target.args):
        _check_arg(arg, ("args", index))
        if target.is_compiled and (arg.strided or not _can_take(arg, target.language)):
            raise BadField(f"argument {arg.name!r}: a {target.language.upper()} kernel takes no "
                           + ("strided views" if arg.strided else f"{arg.kind} {arg.dtype}"),
                           ("args", index))
    for index, config_class in enumerate(target.classes):
        _check_class(target, config_class, ("classes", index))


def _check_adapter(target: Target) -> None:
    if not target.adapter_function.isidentifier():
        raise BadField(f"{target.adapter!r} is not FILE:FUNCTION", ("adapter",))
    if target.is_compiled:
        raise BadField(f"a {target.language.upper()} kernel is called directly", ("adapter",),
                       fix="remove it")
    if target.adapter_file == target.source:
        raise BadField("candidates edit the source, and no candidate may edit the adapter",
                       ("adapter",), fix="use another file")


def _check_names(field: str, names: list[str]) -> None:
    for index, name in enumerate(names):
        if not NAME.fullmatch(name):
            raise BadField(f"{name!r} is not a name", (field, index, "name"),
                           fix="use letters, digits, '.', '_' and '-', at most 64")
        if name in names[:index]:
            raise BadField(f"{name!r} is declared twice", (field, index, "name"))


def _check_arg(arg: Arg, key: Key) -> None:
    if arg.is_constant:
        fits = {"none": arg.literal is None, "bool": isinstance(arg.literal, bool),
                "tuple": isinstance(arg.literal, tuple)}
        if arg.role not in (None, "scalar") or arg.value is not None or not fits.get(
                arg.dtype, isinstance(arg.literal, str)):
            raise BadField(f"argument {arg.name!r}: {arg.literal!r} is not of type {arg.dtype}",
                           (*key, "literal"), fix="write the constant as literal: VALUE")
        return
    if arg.literal is not None:
        raise BadField(f"argument {arg.name!r}: a {arg.dtype} has no literal", (*key, "literal"),
                       fix=f"use value, or one of the dtypes {', '.join(CONSTANTS)}")
    if arg.dtype not in DTYPE_BYTES:
        raise BadField(f"argument {arg.name!r}: unknown dtype {arg.dtype!r}", (*key, "dtype"),
                       fix=suggest(arg.dtype, DTYPE_BYTES) or f"one of {', '.join(DTYPE_BYTES)}")
    if arg.kind == "scalar" and arg.value is None:
        raise BadField(f"scalar {arg.name!r} has no value", key)
    if arg.kind != "scalar" and arg.shape is None:
        raise BadField(f"tensor {arg.name!r} has no shape", key)
    is_float = "float" in arg.dtype
    if arg.structure and (arg.kind not in ("input", "inout") or (
            arg.structure != "two_valued" and (arg.structure in OF_ROWS) != is_float)):
        raise BadField(f"argument {arg.name!r}: only a tensor of "
                       f"{'floats' if arg.structure in OF_ROWS else 'integers'} that is read has "
                       f"the structure {arg.structure}", (*key, "structure"))
    if arg.structure in OF_ROWS and (not arg.shape or (arg.low, arg.high) != (None, None)):
        raise BadField(f"argument {arg.name!r}: {arg.structure} need a shape, and no low or high",
                       (*key, "structure"))


def _check_class(target: Target, config_class: ConfigClass, key: Key) -> None:
    name = config_class.name
    if not 0 < config_class.weight < math.inf:
        raise BadField(f"class {name!r}: weight must be above 0", (*key, "weight"))
    if config_class.tolerance is not None and not 0 <= config_class.tolerance < 1:
        raise BadField(f"class {name!r}: tolerance must be from 0 to 1", (*key, "tolerance"))
    inputs = {arg.name for arg in target.args if arg.kind in ("input", "inout")}
    for arg_name, text in (config_class.data or {}).items():
        path, _, tensor_key = text.rpartition(":")
        if arg_name not in inputs or not path or not tensor_key or Path(path).is_absolute() \
                or ".." in Path(path).parts:
            raise BadField(f"class {name!r}: {arg_name}: {text!r} cannot be read as data",
                           (*key, "data"), fix="write INPUT: FILE:KEY, a safetensors file of the "
                           "project")
    if inputs and inputs == set(config_class.data or {}):
        raise BadField(f"class {name!r}: all inputs are read from files, so a kernel could "
                       "remember the answer", (*key, "data"),
                       fix="leave one out, so that it is drawn")
    for index, arg in enumerate(target.args):
        try:
            tensor = target._resolve(arg, config_class.shape)
        except InputError as error:
            raise BadField(f"class {name!r}, {arg.name}: {error.what}", ("args", index),
                           fix=error.fix) from None
        if tensor.role != "scalar" and (min(tensor.shape, default=1) < 1
                                        or math.prod(tensor.shape) > MAX_ELEMENTS):
            raise BadField(f"class {name!r}: {arg.name} has shape {list(tensor.shape)}, "
                           f"which needs 1 to {MAX_ELEMENTS} elements", (*key, "shape"))
        _check_range(tensor, ("args", index))
        _check_bounds(tensor, name, ("args", index))
    for field in ("flops", "bytes"):
        try:
            amount = evaluate_expression(getattr(target, field) or 0, config_class.shape)
        except InputError as error:
            raise BadField(f"class {name!r}, {field}: {error.what}", (field,),
                           fix=error.fix) from None
        if not 0 <= amount < 1e18:
            raise BadField(f"class {name!r}: {field} is {amount}, not from 0 to 1e18", (field,))


def _check_bounds(tensor: Tensor, class_name: str, key: Key) -> None:
    if tensor.low is None or tensor.high is None:
        if tensor.structure is not None and tensor.structure not in OF_ROWS:
            raise BadField(f"argument {tensor.name!r}: {tensor.structure} values need low and high",
                           key)
        return
    if tensor.role == "scalar" and tensor.low == tensor.high:
        return  # a scalar may have one value only
    if not tensor.low < tensor.high:
        raise BadField(f"argument {tensor.name!r}: low must be below high", (*key, "low"))
    count = math.prod(tensor.shape)
    if tensor.structure in ("distinct", "increasing") and tensor.high - tensor.low < count:
        raise BadField(f"class {class_name!r}: {tensor.name} has {count} values, "
                       f"but low and high allow {tensor.high - tensor.low:g} distinct ones",
                       (*key, "high"))


def _can_take(arg: Arg, language: str) -> bool:
    """Return whether a kernel in C, CUDA or HIP (`language`) can take such an argument."""
    return not arg.is_constant and arg.dtype not in (
        NO_C_SCALARS if arg.kind == "scalar" else () if language in OF_CARD else TORCH_ONLY)


def _check_range(tensor: Tensor, key: Key) -> None:
    """Raise BadField for an integer that its dtype cannot hold: it would be truncated."""
    if not isinstance(tensor.value, int | float) \
            or tensor.dtype.startswith(("float", "bfloat", "bool")):
        return
    bits = 8 * DTYPE_BYTES[tensor.dtype]
    low = 0 if tensor.dtype.startswith("u") else -(2 ** (bits - 1))
    if not low <= tensor.value < low + 2**bits:
        raise BadField(f"argument {tensor.name!r}: {tensor.value} is not of type {tensor.dtype}",
                       (*key, "value"))
