"""A kernel target: its entry point, reference, arguments and config classes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from harness.errors import InputError
from harness.formats.expression import evaluate_expression, whole
from harness.formats.json_codec import to_json

AXES = 3


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The launch of one call: whole numbers, or expressions in names that `sizes` gets.

    Names are the sizes of the config class, the scalar arguments, and the constants of the source
    (`#define TILE 256`, `constexpr int TILE = 256`), so that a knob may change the launch.
    `defaults` are the values of constants that a source does not define.
    """

    grid: tuple[int | str, ...]
    block: tuple[int | str, ...]
    shared_bytes: int | str = 0
    defaults: Mapping[str, int] = field(default_factory=dict)

    def fault(self) -> str:
        """Return why it cannot be a launch, "" if it can."""
        for name, axes in (("grid", self.grid), ("block", self.block)):
            if not 1 <= len(axes) <= AXES:
                return f"a {name} has 1 to {AXES} dimensions, not {len(axes)}"
        return ""

    def sizes(self, names: Mapping[str, int]) -> tuple[int, ...]:
        """Return grid x, y, z, block x, y, z and the bytes of shared memory. Raises InputError."""
        names = {**self.defaults, **names}
        axes = [[whole(axis, names) for axis in each] for each in (self.grid, self.block)]
        grid, block = ([*each, 1, 1][:AXES] for each in axes)
        shared = whole(self.shared_bytes, names)
        if min(*grid, *block) < 1 or shared < 0:
            raise InputError(f"a grid of {grid} blocks of {block} threads with {shared} bytes "
                             "cannot be launched")
        return *grid, *block, shared


Language = Literal["c", "cuda", "hip", "python", "triton"]
OF_CARD: dict[str, str] = {"cuda": "nvidia", "hip": "amd"}
"""Languages whose kernels run on one vendor's cards only, with the vendor."""
Role = Literal["input", "output", "inout", "scalar"]
Structure = Literal["ascending", "increasing", "distinct", "offsets", "two_valued",
                    "probabilities", "log_probabilities"]
"""How a tensor's values are structured. Integers: `ascending`: sorted; `distinct`: no value twice;
`increasing`: both; `offsets`: increasing from `low` to `high` - 1, like cumulative lengths of
sequences. Any: `two_valued`: each value is the lowest or the highest. Floats: `probabilities`:
every row is positive and adds up to 1; `log_probabilities`: their logarithms."""
OF_ROWS = ("probabilities", "log_probabilities")
DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4,
               "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1}
BUILD_FLAGS: dict[str, tuple[str, ...]] = {"c": ("-O3", "-march=native")}
TORCH_ONLY = ("float8_e4m3fn", "float8_e5m2", "bool")
CONSTANTS = ("none", "bool", "str", "tuple", "dtype", "device")
"""What an argument without a shape may be besides a number: its `literal` is passed as it is."""
BASELINE = "baseline"
"""The reference of a task whose expected results the baseline's own entry computes."""
C_SOURCES = (".c", ".cpp", ".cc", ".cxx")
DTYPE_TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2,
                   "float8_e4m3fn": 0.125, "float8_e5m2": 0.25}
"""Used if the baseline's own error is unknown; see harness/correctness/tolerance.py."""
MAX_GPUS = 16
MAX_ELEMENTS = 1 << 32


@dataclass(frozen=True, kw_only=True)
class Arg:
    """One argument of the entry point, in call order; a dimension is a number or an expression."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None = None
    role: Role | None = None
    value: int | float | str | None = None
    literal: bool | str | tuple[int | float | str, ...] | None = None
    """A constant that is not a number; entries of a tuple may be expressions. See CONSTANTS."""
    low: float | str | None = None
    high: float | str | None = None
    """Bounds of its values; the upper one is exclusive for integers. May be expressions."""
    structure: Structure | None = None
    weight: bool = False
    """It changes rarely: a kernel may cache what it computes from it, by its version."""
    strided: bool = False
    """The kernel uses the tensor's strides; it is checked on views too."""

    @property
    def kind(self) -> Role:
        return self.role or ("scalar" if self.shape is None else "input")

    @property
    def is_constant(self) -> bool:
        return self.shape is None and self.dtype in CONSTANTS


@dataclass(frozen=True, kw_only=True)
class ConfigClass:
    """Inputs of one code path, judged together; Triton's interpreter gets `interpret_shape`."""

    name: str
    shape: dict[str, int]
    interpret_shape: dict[str, int] | None = None
    weight: float = 1.0
    core: bool = False
    tolerance: float | None = None
    data: dict[str, str] | None = None
    """FILE:KEY by argument: inputs whose values are a tensor of a safetensors file of the baseline,
    because random numbers have no such structure (offsets, page tables)."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An argument with its sizes and value resolved for one config class."""

    name: str
    dtype: str
    role: Role
    shape: tuple[int, ...] = ()
    value: int | float | bool | str | tuple[int | float, ...] | None = None
    low: float | None = None
    high: float | None = None
    structure: Structure | None = None
    weight: bool = False
    strided: bool = False
    data: str = ""
    """FILE:KEY of its values, "" if they are drawn."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BYTES.get(self.dtype, 0)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A kernel target as its task file declares it; paths are relative to the project."""

    op: str
    language: Language
    source: str
    entry: str
    reference: str
    args: tuple[Arg, ...]
    classes: tuple[ConfigClass, ...]
    kind: Literal["kernel"] = "kernel"
    build: tuple[str, ...] | None = None
    """The compiler's flags; None is `BUILD_FLAGS` of the language."""
    launch: Launch | None = None
    """CUDA and HIP: with it, the entry is a `__global__` function; without it, a host function."""
    flops: str | int | None = None
    bytes: str | int | None = None
    tolerance: float | None = None
    returns: bool = False
    return_dtypes: tuple[str, ...] = ()
    """With `returns`: the dtypes of the returned tensors; empty means the kernel decides."""
    precision: Literal["tf32"] | None = None
    """The precision that float32 may be computed in; None is float32 itself."""
    stochastic: bool = False
    """Two runs may differ."""
    num_gpus: int = 1
    """Cards that a call uses; the arguments are on the first of them."""
    float64: bool = True
    """Whether the reference can run in float64; otherwise it gets the declared dtypes."""
    adapter: str | None = None
    """FILE:FUNCTION, a file of the baseline; FUNCTION(module, *args) calls the loaded source."""
    backend: str | None = None
    description: str = ""

    @property
    def content_hash(self) -> str:
        """Identify the task by its content."""
        return hashlib.sha256(to_json(self)).hexdigest()[:12]

    @property
    def is_module(self) -> bool:
        """Whether it is a PyTorch module, as `kopt new` writes it."""
        return self.adapter is not None and self.entry == "Model" and self.language == "python"

    @property
    def is_compiled(self) -> bool:
        """Whether its source becomes machine code before a runner loads it."""
        return self.language == "c" or self.language in OF_CARD

    @property
    def flags(self) -> tuple[str, ...]:
        return BUILD_FLAGS.get(self.language, ()) if self.build is None else self.build

    def interpretable(self) -> Target:
        """Return the target with the shapes for Triton's interpreter."""
        return replace(self, classes=tuple(
            replace(c, shape=c.interpret_shape or c.shape) for c in self.classes))

    @property
    def by_baseline(self) -> bool:
        """Whether the baseline's own entry computes the expected results."""
        return self.reference == BASELINE

    @property
    def has_c_reference(self) -> bool:
        """Whether the reference is a C function, which gets every float as a double."""
        return not self.by_baseline and self.reference_file.endswith(C_SOURCES)

    @property
    def reference_file(self) -> str:
        return self.source if self.by_baseline else self.reference.partition(":")[0]

    @property
    def reference_function(self) -> str:
        return self.reference.partition(":")[2] or self.entry

    @property
    def adapter_file(self) -> str:
        return (self.adapter or "").partition(":")[0]

    @property
    def adapter_function(self) -> str:
        return (self.adapter or "").partition(":")[2]

    @property
    def frozen_files(self) -> tuple[str, ...]:
        """Return the reference, adapter and data files: no candidate may change them."""
        reference = "" if self.by_baseline else self.reference_file
        data = (text.rpartition(":")[0] for each in self.classes
                for text in (each.data or {}).values())
        return tuple(dict.fromkeys(filter(None, (reference, self.adapter_file, *data))))

    def config_class(self, name: str) -> ConfigClass:
        classes = {each.name: each for each in self.classes}
        if name not in classes:
            raise InputError(f"no config class {name!r}", fix=f"one of {', '.join(classes)}")
        return classes[name]

    def tensors(self, config_class: ConfigClass) -> tuple[Tensor, ...]:
        """Return the arguments in call order, their shapes and scalar values resolved."""
        return tuple(replace(self._resolve(arg, config_class.shape), data=(
            config_class.data or {}).get(arg.name, "")) for arg in self.args)

    def _resolve(self, arg: Arg, names: Mapping[str, int]) -> Tensor:
        shape = tuple(whole(dim, names) for dim in arg.shape or ())
        if arg.is_constant:
            literal = tuple(evaluate_expression(entry, names) for entry in arg.literal) \
                if isinstance(arg.literal, tuple) else arg.literal
            return Tensor(name=arg.name, dtype=arg.dtype, role="scalar", value=literal)
        value = None if arg.value is None else evaluate_expression(arg.value, names)
        if value is not None and "float" not in arg.dtype:
            value = whole(value, names)
        return Tensor(name=arg.name, dtype=arg.dtype, role=arg.kind, shape=shape, value=value,
                      low=_bound(arg.low, names), high=_bound(arg.high, names),
                      structure=arg.structure, weight=arg.weight, strided=arg.strided)

    def work(self, config_class: ConfigClass) -> tuple[float, float]:
        """Return (operations, bytes) of one call; by default tensors move once, `inout` twice."""
        tensors = self.tensors(config_class)
        moved = sum(t.nbytes * (2 if t.role == "inout" else 1) for t in tensors
                    if t.role != "scalar")
        flops = 0.0 if self.flops is None else evaluate_expression(self.flops, config_class.shape)
        if self.bytes is not None:
            moved = int(evaluate_expression(self.bytes, config_class.shape))
        return float(flops), float(moved)

    def declared_tolerance(self, config_class: ConfigClass) -> float | None:
        """Return the task's error limit, relative to a value or to the rms of all, or None."""
        return self.tolerance if config_class.tolerance is None else config_class.tolerance

    def tolerance_of(self, config_class: ConfigClass) -> float:
        """Return the declared tolerance, or the largest default of the outputs' dtypes."""
        declared = self.declared_tolerance(config_class)
        return declared if declared is not None else \
            max(DTYPE_TOLERANCE.get(dtype, 0.0) for dtype in self.output_dtypes)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Return the names of the arguments that a kernel writes, then those of returned values."""
        written = tuple(arg.name for arg in self.args if arg.kind in ("output", "inout"))
        returned = len(self.output_dtypes) - len(written)
        return written + tuple(f"returned value {number}" for number in range(1, returned + 1))

    @property
    def output_dtypes(self) -> tuple[str, ...]:
        """Return the outputs' dtypes; an undeclared one is the least exact float argument's."""
        written = tuple(arg.dtype for arg in self.args if arg.kind in ("output", "inout"))
        if not self.returns:
            return written
        floats = [arg.dtype for arg in self.args if arg.dtype in DTYPE_TOLERANCE]
        return written + (self.return_dtypes or (
            max(floats, key=DTYPE_TOLERANCE.__getitem__, default="float32"),))


def _bound(bound: float | str | None, names: Mapping[str, int]) -> float | None:
    return None if bound is None else float(evaluate_expression(bound, names))
