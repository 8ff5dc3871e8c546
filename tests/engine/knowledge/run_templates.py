"""Checks Triton templates: `run` against float64 in the interpreter, `compile` for two GPUs.

`python run_templates.py MODE MOST [NAME ...]` checks the first MOST cases of each template; MODE is
`run`, `compile`, `marks` or `expressions`.
"""

from __future__ import annotations

import operator  # noqa: F401  (evaluated targets use it)
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch

from bench.template_cases import FOLDER, arguments, error, load, reference, table

TABLE = table()


def teach_interpreter_bfloat16() -> None:
    """Make products and roundings of bfloat16 in Triton's interpreter those of a card.

    The interpreter stores bfloat16 as integers, and its products multiply those integers.
    """
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _convert_float

    plain = InterpreterBuilder.create_dot

    def widened(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return TensorHandle(_convert_float(handle.data, tl.bfloat16, tl.float32, None).view("f4"),
                            tl.float32)

    convert = interpreter._convert_float

    def rounded(values, given, wanted, mode):
        """Round to the nearest even, as a card does; the interpreter truncates."""
        if given != tl.float32 or wanted != tl.bfloat16:
            return convert(values, given, wanted, mode)
        return torch.from_numpy(np.ascontiguousarray(values).view("f4")).bfloat16().view(
            torch.uint16).numpy()

    interpreter._convert_float = rounded
    InterpreterBuilder.create_dot = lambda builder, a, b, *rest: plain(
        builder, widened(a), widened(b), *rest)


def run(template: dict, module, most: int) -> None:
    """Run the first cases in float32 and a 16-bit dtype, with the default and the `small` knobs.

    If `most` is at most 2: in float32, case 0 with the default and case 1 with the small knobs.
    """
    entry, every = getattr(module, template["entry"]), most > 2
    for chosen, knobs in enumerate(({}, template.get("small", {}))):
        for name, value in knobs.items():
            assert hasattr(module, name), name
            setattr(module, name, value)
        for number, case in enumerate(template["tests"][:most]):
            if not every and number != chosen:
                continue
            narrow = ("float16", "bfloat16")[number % 2]
            both = every and narrow in template["dtypes"]
            for dtype in (torch.float32, getattr(torch, narrow)) if both else (torch.float32,):
                torch.manual_seed(0)
                given = arguments(entry, case, dtype)
                before = {name: value.clone() for name, value in given.items()
                          if torch.is_tensor(value)}
                expected = reference(template, given)
                away = error(template, given, entry(**given), expected)
                assert away <= 1, f"{case} in {dtype}, {knobs}: {away:.2g} times what is allowed"
                for name, value in before.items():
                    assert torch.equal(value, given[name]), f"{case} changed {name}"


ARCHS = ({"backend": "cuda", "number": 90, "warp": 32, "multiprocessors": 132,
          "shared_per_block": 232448},
         {"backend": "hip", "number": "gfx942", "warp": 64, "multiprocessors": 304,
          "shared_per_block": 65536})


def compile_for(template: dict, module, most: int) -> None:
    """Compile the kernels that the first bench cases launch, with tensors that have no values."""
    from triton.runtime import jit
    from triton.runtime.driver import driver

    from harness.child.compile.aot import gpu_driver

    plain = jit.JITFunction.run
    entry = getattr(module, template["entry"])
    for arch in ARCHS:
        driver.set_active(gpu_driver(arch))
        torch.cuda.get_device_properties = lambda *_, arch=arch: SimpleNamespace(
            multi_processor_count=arch["multiprocessors"],
            shared_memory_per_block_optin=arch["shared_per_block"])
        shared = []
        jit.JITFunction.run = lambda kernel, *args, to=shared, **kwargs: to.append(
            plain(kernel, *args, **{**kwargs, "warmup": True}).metadata.shared)
        for case in template["bench"][:most]:
            entry(**arguments(entry, case, getattr(torch, template["dtypes"][-1]), empty=True))
        assert shared and max(shared) <= arch["shared_per_block"], shared
    jit.JITFunction.run = plain


def marks(template: dict, folder: Path) -> None:
    """Insert a line that reads one more operand at each mark, and check the result.

    In the line, `at` is the index of an element of the input or of the result.
    """
    text = (FOLDER / template["file"]).read_text()
    for kind, name in template.get("fuses", {}).items():
        line = f"{name} = {name} * tl.load(more + at % 3, mask=inside, other=1.0)"
        lines = {f"{kind} {name}": line, "operands": "more,"}
        filled = re.sub(r"# kopt: (operands|(?:prologue|epilogue) \w+)",
                        lambda mark, to=lines: to.get(mark[1], mark[0]), text)
        path = folder / f"{template['name']}_{kind}.py"
        path.write_text(filled)
        module = load(path)
        entry = getattr(module, template["entry"])
        more = torch.tensor([1.0, 2.0, 0.5])

        def weighted(tensor, more=more):
            return tensor * more.to(tensor.dtype)[torch.arange(tensor.numel()) % 3].view(
                tensor.shape)

        for knob, value in template.get("small", {}).items():
            setattr(module, knob, value)
        torch.manual_seed(0)
        given = arguments(getattr(load(FOLDER / template["file"]), template["entry"]),
                          template["tests"][0])
        first = next(key for key, value in given.items() if torch.is_tensor(value))
        changed = given | {first: weighted(given[first].contiguous())} \
            if kind == "prologue" else given
        expected = reference(template, changed)
        expected = weighted(expected) if kind == "epilogue" else expected
        away = error(template | {"tolerance": 4 * template.get("tolerance", 1)}, given,
                     entry(more, **given), expected)
        assert away <= 1, f"{kind} of {template['name']}: {away:.2g} times what is allowed"


def expressions(folder: Path) -> None:
    """Write each expression into the template `pointwise`; compare it with its PyTorch target."""
    text = (FOLDER / "pointwise.py").read_text()
    mark = "    # kopt: epilogue value\n"
    assert mark in text
    for number, rule in enumerate(TABLE["expressions"]):
        given = {**rule.get("defaults", {}), **rule.get("test", {})}
        if "when" in rule:
            assert eval(rule["when"], dict(given)), rule["targets"][0]
        lines = rule["code"].format(**given).splitlines()
        path = folder / f"expression{number}.py"
        path.write_text(text.replace(mark, "".join(f"    {line}\n" for line in lines)))
        x = torch.cat([torch.linspace(-9, 9, 181), torch.tensor([1e-3, -1e-3, 30.0, -30.0, 1e-7])])
        if "other" in given:
            given["other"] = torch.tensor(given["other"], dtype=torch.float64)
        expected = eval(rule["targets"][0])(x.double(), **given)
        kept = ~expected.isnan()  # roots and logarithms of negative values
        away = error({}, {}, load(path).pointwise(x)[kept], expected[kept])
        assert away <= 2, f"{rule['targets'][0]} {given}: {away:.2g} times what is allowed"
        print(rule["targets"][0], flush=True)


if __name__ == "__main__":
    mode, most, *names = sys.argv[1:]
    chosen = [template for template in TABLE["templates"]
              if not names or template["name"] in names]
    if mode == "expressions":
        with tempfile.TemporaryDirectory() as folder:
            expressions(Path(folder))
        sys.exit()
    if mode == "run":
        teach_interpreter_bfloat16()
    for template in chosen:
        if mode == "marks":
            with tempfile.TemporaryDirectory() as folder:
                marks(template, Path(folder))
        else:
            (run if mode == "run" else compile_for)(template, load(FOLDER / template["file"]),
                                                    int(most))
        print(template["name"], flush=True)
