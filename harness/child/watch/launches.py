"""Who does the work: calls beside all timing, with a Triton kernel's launches counted or left out.

What a call writes without the candidate's own launches, something else has computed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, ModuleType
from typing import Any

HELD_BLOCKS = 4


class Launches:
    """Stands between a candidate and Triton: counts its launches, or leaves them out.

    A launch that failed when it was counted fails again when it is left out.
    """

    def __init__(self) -> None:
        self._homes = [(kind, name) for kind, name in _launchers()]
        self.codes = [vars(kind)[name].__code__ for kind, name in self._homes
                      if hasattr(vars(kind)[name], "__code__")]
        self.seen = self.done = 0
        self._failures: dict[int, BaseException] = {}

    @contextmanager
    def counted(self) -> Iterator[None]:
        def run(real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            number, self.seen = self.seen, self.seen + 1
            watched = sys.getprofile()
            sys.setprofile(None)  # what is interpreted within takes ten times as long with it
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
            setattr(kind, name, _instead(function, run, name))
        try:
            yield
        finally:
            for (kind, name), function in real.items():
                setattr(kind, name, function)


def _launchers() -> Iterator[tuple[Any, str]]:
    """Yield the classes by which kernels are launched, and under which name."""
    runtime = sys.modules.get("triton.runtime.jit")
    compiler = sys.modules.get("triton.compiler.compiler")
    interpreter = sys.modules.get("triton.runtime.interpreter")
    for module, kind, name in ((runtime, "JITFunction", "run"),
                               (interpreter, "InterpretedFunction", "run"),
                               (compiler, "CompiledKernel", "__getitem__")):
        if (found := getattr(module, kind, None)) is not None and name in vars(found):
            yield found, name


def _instead(real: Any, run: Callable[..., Any], name: str) -> Any:
    def launch(*args: Any, **kwargs: Any) -> Any:
        return real(*args, **kwargs) if kwargs.get("warmup") else run(real, args, kwargs)

    def item(*args: Any) -> Any:
        bound = real(*args)
        return lambda *given, **named: run(bound, given, named)

    return launch if name == "run" else item


def _refuse_unknown(function: Any, kwargs: dict[str, Any]) -> None:
    """Fail where a GPU would: the interpreter takes arguments that no kernel and no option has."""
    if type(function).__name__ != "InterpretedFunction":
        return
    options = {field for name, module in list(sys.modules.items())
               if name.startswith("triton.backends.") and name.endswith(".compiler")
               for kind in list(vars(module).values())
               for field in getattr(kind, "__dataclass_fields__", ())}
    known = {"grid", "warmup", *function.arg_names, *options}
    if options and (unknown := set(kwargs) - known):
        raise KeyError(f"keyword argument {min(unknown)} was specified but unrecognised")


class Calls:
    """Sees through Python's profiler which functions a call enters, outside of counted launches."""

    def __init__(self, reference: str, launchers: list[CodeType]) -> None:
        self._file, self._launchers = reference, launchers
        self._known: dict[int, tuple[CodeType, bool, bool]] = {}  # to hash code takes long
        self.launched = self.reference = False

    def see(self, call: Callable[[], Any]) -> None:
        before = sys.getprofile()
        sys.setprofile(self._entered)
        try:
            call()
        finally:
            sys.setprofile(before)

    def _entered(self, frame: Any, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            if id(code) not in self._known:
                self._known[id(code)] = (code, any(code is one for one in self._launchers),
                                         is_file(code.co_filename, self._file))
                self.launched |= self._known[id(code)][1]
                self.reference |= self._known[id(code)][2]


def trial(kept: Any, moves: dict[str, Any], reference: str, *, triton: bool) -> list[str]:
    """Say what of a call's work the kernel leaves to others; `reference` is the task's own file,
    relative to a tree.

    `kept` are the buffers of a case whose outputs were right. Their contents are changed by
    `moves`, so that nothing which memory still holds passes for an answer.
    """
    kernel, buffers = kept.kernel, kept.buffers
    launches = Launches()
    calls = Calls(reference, launches.codes)
    kernel.renew(buffers)
    try:
        with launches.counted():
            calls.see(lambda: kernel.call(buffers))
    except Exception:
        return []  # it was right in calls before; what fails only here proves nothing
    told = []
    if calls.reference or _holds(kernel.function, reference):
        told.append("the task's own reference is used")
    if not triton or calls.launched:
        return told  # launched past the names that are counted here: nothing is known
    if launches.done == 0:
        return [*told, "a call launched no Triton kernel, and its outputs are right"]
    if not told and _right_without(kept, launches, moves):
        told.append("a call's outputs are the same without its Triton kernels")
    return told


def _right_without(kept: Any, launches: Launches, moves: dict[str, Any]) -> bool:
    kernel, buffers = kept.kernel, kept.buffers
    before = _outputs(kernel, buffers)
    kernel.move(buffers, [tensor["name"] for tensor in kept.tensors], moves)
    kernel.renew(buffers)
    _spoil(before)
    try:
        with launches.left_out():
            kernel.call(buffers)
        alone = _outputs(kernel, buffers)
    except Exception:
        return False  # it cannot do without
    kernel.renew(buffers)
    kernel.call(buffers)
    after = _outputs(kernel, buffers)
    return _same(alone, after) and not _same(before, after)


def _outputs(kernel: Any, call: Any) -> list[Any]:
    """Return copies of what a call wrote and returned."""
    kernel.synchronize()
    written = [buffer.tensor for buffer in call.buffers
               if buffer is not None and buffer.role != "input"]
    values = call.returned if isinstance(call.returned, tuple) else (call.returned,)
    return [one.detach().contiguous().clone() for one in [*written, *values] if one is not None]


def _spoil(like: list[Any]) -> None:
    """Fill memory that new tensors of these sizes would be given, so that it holds no answer."""
    torch = sys.modules["torch"]
    held = [torch.empty_like(one) for one in like for _ in range(HELD_BLOCKS)]
    for one in held:
        one.reshape(-1).view(torch.uint8).fill_(0xFF)


def _same(one: list[Any], other: list[Any]) -> bool:
    torch = sys.modules["torch"]
    return len(one) == len(other) and all(
        a.shape == b.shape and a.dtype == b.dtype
        and bool((a.reshape(-1).view(torch.uint8) == b.reshape(-1).view(torch.uint8)).all())
        for a, b in zip(one, other, strict=True))


def _holds(function: Any, reference: str) -> bool:
    """Tell whether the kernel's module has the reference, or something of it, among its names."""
    for value in list(getattr(function, "__globals__", {}).values()):
        module = value if isinstance(value, ModuleType) else \
            sys.modules.get(str(getattr(value, "__module__", None)))
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and is_file(file, reference):
            return True
    return False


def is_file(file: str, reference: str) -> bool:
    """Tell whether a file is a tree's reference, and not a library's of the same name."""
    real = os.path.realpath(file)
    return bool(reference) and real.endswith(f"/{reference}") \
        and not real.startswith((f"{sys.prefix}/", f"{sys.base_prefix}/lib"))
