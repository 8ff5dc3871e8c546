"""Detects delegated work: untimed calls in which Triton launches are counted, then left out.

If a call's outputs are right without the candidate's own launches, other code computed them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, ModuleType
from typing import Any

from .threads_and_code import of_python

HELD_BLOCKS = 4


class Launches:
    """Intercepts a candidate's Triton launches: counts them, or leaves them out.

    A launch that failed when launches were counted fails again when they are left out.
    """

    def __init__(self) -> None:
        self._homes = [(kind, name) for kind, name in _launchers()]
        self.codes = [vars(kind)[name].__code__ for kind, name in self._homes
                      if hasattr(vars(kind)[name], "__code__")]
        self.seen = self.done = 0
        self._failures: dict[int, BaseException] = {}

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the launches within the `with` block, and remember those that fail."""
        def run(real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            number, self.seen = self.seen, self.seen + 1
            watched = sys.getprofile()
            sys.setprofile(None)  # it makes the interpreter ten times slower
            try:
                _refuse_unknown(args[0] if args else None, kwargs)
                result = real(*args, **kwargs)
            except BaseException as error:
                self._failures[number] = error
                raise
            finally:
                sys.setprofile(watched)
            self.done += 1
            return result

        self.seen = self.done = 0
        self._failures = {}
        with self._through(run):
            yield

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Leave out all launches within the `with` block."""
        def run(real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            number, self.seen = self.seen, self.seen + 1
            if number in self._failures:
                raise self._failures[number]
            return None

        self.seen = 0
        with self._through(run):
            yield

    @contextmanager
    def _through(self, run: Callable[..., Any]) -> Iterator[None]:
        real = {(kind, name): vars(kind)[name] for kind, name in self._homes}
        for (kind, name), function in real.items():
            setattr(kind, name, _replacement(function, run, name))
        try:
            yield
        finally:
            for (kind, name), function in real.items():
                setattr(kind, name, function)


def _launchers() -> Iterator[tuple[Any, str]]:
    """Yield (class, method name) of everything that launches Triton kernels."""
    runtime = sys.modules.get("triton.runtime.jit")
    compiler = sys.modules.get("triton.compiler.compiler")
    interpreter = sys.modules.get("triton.runtime.interpreter")
    for module, kind, name in ((runtime, "JITFunction", "run"),
                               (interpreter, "InterpretedFunction", "run"),
                               (compiler, "CompiledKernel", "__getitem__")):
        if (launcher := getattr(module, kind, None)) is not None and name in vars(launcher):
            yield launcher, name


def _replacement(real: Any, run: Callable[..., Any], name: str) -> Any:
    def launch(*args: Any, **kwargs: Any) -> Any:
        return real(*args, **kwargs) if kwargs.get("warmup") else run(real, args, kwargs)

    def item(*args: Any) -> Any:
        bound = real(*args)
        return lambda *args, **kwargs: run(bound, args, kwargs)

    return launch if name == "run" else item


def _refuse_unknown(function: Any, kwargs: dict[str, Any]) -> None:
    """Raise KeyError for unknown keyword arguments, as a launch on a GPU does."""
    if type(function).__name__ != "InterpretedFunction":
        return
    options = {field for name, module in list(sys.modules.items())
               if name.startswith("triton.backends.") and name.endswith(".compiler")
               for kind in list(vars(module).values())
               for field in getattr(kind, "__dataclass_fields__", ())}
    known = {"grid", "warmup", *function.arg_names, *options}
    if options and (unknown := set(kwargs) - known):
        raise KeyError(f"keyword argument {min(unknown)} was specified but unrecognised")


@contextmanager
def profiled(observer: Callable[[Any, str, Any], None]) -> Iterator[None]:
    """Report this thread's function calls to an observer, through Python's profiler."""
    before = sys.getprofile()
    sys.setprofile(observer)
    try:
        yield
    finally:
        sys.setprofile(before)


class Calls:
    """Records, as an observer for `profiled`, whether a call enters launchers or the reference."""

    def __init__(self, reference: str, launchers: list[CodeType]) -> None:
        self._file, self._launchers = reference, launchers
        self._known: dict[int, tuple[CodeType, bool, bool]] = {}  # by id: hashing code is slow
        self.launched = self.reference = False

    def entered(self, frame: Any, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            if id(code) not in self._known:
                self._known[id(code)] = (code, any(code is known for known in self._launchers),
                                         is_file(code.co_filename, self._file))
                self.launched |= self._known[id(code)][1]
                self.reference |= self._known[id(code)][2]


def trial(kept: Any, moves: dict[str, Any], reference: str, *, triton: bool) -> list[str]:
    """Return findings about work that the kernel does not do itself, empty if there are none.

    `reference` is the task's reference file, relative to a tree. `kept` is a call whose outputs
    were right; `moves` change its inputs, so that its old outputs become wrong.
    """
    kernel, buffers = kept.kernel, kept.buffers
    launches = Launches()
    calls = Calls(reference, launches.codes)
    kept.renew()
    try:
        with launches.counted(), profiled(calls.entered):
            kernel.call(buffers)
    except Exception:
        return []  # earlier calls were right; a failure only here proves nothing
    findings = []
    if calls.reference or _holds(kernel.module, reference):
        findings.append("the task's own reference is used")
    if not triton or calls.launched:
        return findings  # it launched in a way that is not counted here
    if launches.done == 0:
        return [*findings, "a call launched no Triton kernel, but its outputs are correct"]
    if not findings and _right_without(kept, launches, moves):
        findings.append("a call's outputs are the same without its Triton kernels")
    return findings


def _right_without(kept: Any, launches: Launches, moves: dict[str, Any]) -> bool:
    kernel, buffers = kept.kernel, kept.buffers
    before = _outputs(kernel, buffers)
    kernel.move(buffers, [tensor["name"] for tensor in kept.tensors], moves)
    kept.renew()
    _spoil(before)
    try:
        with launches.left_out():
            kernel.call(buffers)
        alone = _outputs(kernel, buffers)
    except Exception:
        return False  # it needs its launches
    kept.renew()
    kernel.call(buffers)
    after = _outputs(kernel, buffers)
    return _same(alone, after) and not _same(before, after)


def _outputs(kernel: Any, call: Any) -> list[Any]:
    """Return copies of the tensors that a call wrote or returned."""
    kernel.synchronize()
    written = [buffer.tensor for buffer in call.buffers
               if buffer is not None and buffer.role != "input"]
    returned = kernel.returned(call) if kernel.returns else []
    return [tensor.detach().contiguous().clone() for tensor in [*written, *returned]]


def _spoil(like: list[Any]) -> None:
    """Overwrite the free memory that new tensors of these sizes would get: it may hold answers."""
    torch = sys.modules["torch"]
    held = [torch.empty_like(tensor) for tensor in like for _ in range(HELD_BLOCKS)]
    for block in held:
        block.reshape(-1).view(torch.uint8).fill_(0xFF)


def _same(left: list[Any], right: list[Any]) -> bool:
    torch = sys.modules["torch"]
    return len(left) == len(right) and all(
        a.shape == b.shape and a.dtype == b.dtype
        and bool((a.reshape(-1).view(torch.uint8) == b.reshape(-1).view(torch.uint8)).all())
        for a, b in zip(left, right, strict=True))


def _holds(kernel: ModuleType, reference: str) -> bool:
    """Return whether the kernel's module contains the reference module or something from it."""
    for value in list(vars(kernel).values()):
        module = value if isinstance(value, ModuleType) else \
            sys.modules.get(str(getattr(value, "__module__", None)))
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and is_file(file, reference):
            return True
    return False


def is_file(file: str, reference: str) -> bool:
    """Return whether a file is a tree's reference, and not a library file of the same name."""
    real = os.path.realpath(file)
    return bool(reference) and real.endswith(f"/{reference}") and not of_python(real)
