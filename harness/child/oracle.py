"""Makes secret inputs and keeps the expected values, in a process the candidate never sees.

Talks JSON lines over the socket given as its argument. The reference is the baseline's: a Python
function over float64 arrays (numpy for C targets, torch for Python and Triton), arguments by name
without the outputs. Standard library, plus numpy or torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import inspect
import json
import math
import os
import socket
import stat
import sys
import traceback
from typing import Any

DISTRIBUTIONS = ("normal", "wide", "shifted")


class NumpyArrays:
    """float64 arrays through numpy; bf16 is not known here."""

    def __init__(self) -> None:
        import numpy

        self.np = numpy

    def draw(self, shape: list[int], seed: int, distribution: str, low: Any, high: Any) -> Any:
        rng = self.np.random.default_rng(seed)
        if low is not None or high is not None:
            return rng.uniform(0.0 if low is None else low, 1.0 if high is None else high, shape)
        values = rng.standard_normal(shape)
        return spread(values, distribution)

    def integers(self, shape: list[int], seed: int, low: Any, high: Any) -> Any:
        rng = self.np.random.default_rng(seed)
        return rng.integers(0 if low is None else int(low), 2 if high is None else int(high), shape)

    def to_bytes(self, array: Any, dtype: str) -> bytes:
        return bytes(array.astype(dtype).tobytes())

    def from_bytes(self, data: bytes, dtype: str, shape: list[int]) -> Any:
        array = self.np.frombuffer(data, dtype=dtype).reshape(shape)
        return array.astype("float64") if dtype.startswith("float") else array.astype("int64")

    def errors(self, got: Any, want: Any) -> tuple[float, float, int]:
        """Return the largest error, the largest relative to `size`, and how many are not finite.

        A value's size is its own, and at least the root mean square of all values.
        """
        np = self.np
        bad = int(np.count_nonzero(~np.isfinite(got) & np.isfinite(want)))
        finite = np.isfinite(got) & np.isfinite(want)
        difference = np.abs(got - want, where=finite, out=np.zeros(got.shape))
        scale = float(np.sqrt(np.mean(np.square(want)))) or 1.0
        relative = difference / np.maximum(np.abs(want), scale)
        return float(difference.max(initial=0.0)), float(relative.max(initial=0.0)), bad

    def as_wide(self, value: Any) -> Any:
        return self.np.asarray(value, dtype="float64")

    def finite(self, value: Any) -> bool:
        return bool(self.np.isfinite(value).all())

    def shape(self, value: Any) -> list[int]:
        return list(value.shape)

    def controls(self, want: Any, inputs: list[Any]) -> dict[str, Any]:
        np = self.np
        controls = {"zeros": np.zeros_like(want), "constant": np.full_like(want, want.mean())}
        same = [x for x in inputs if x.shape == want.shape]
        return controls | ({"copied input": same[0]} if same else {})


class TorchArrays:
    """float64 tensors through torch, on the GPU that is judged or on the CPU; without numpy."""

    def __init__(self, device: str) -> None:
        import torch

        self.torch = torch
        self.device = device if torch.cuda.is_available() else "cpu"
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0))))

    def _generator(self, seed: int) -> Any:
        return self.torch.Generator(device=self.device).manual_seed(seed)

    def draw(self, shape: list[int], seed: int, distribution: str, low: Any, high: Any) -> Any:
        generator = self._generator(seed)
        if low is not None or high is not None:
            start = 0.0 if low is None else low
            stop = 1.0 if high is None else high
            drawn = self.torch.rand(shape, generator=generator, device=self.device)
            return drawn * (stop - start) + start
        return spread(self.torch.randn(shape, generator=generator, device=self.device),
                      distribution)

    def integers(self, shape: list[int], seed: int, low: Any, high: Any) -> Any:
        return self.torch.randint(0 if low is None else int(low), 2 if high is None else int(high),
                                  shape, generator=self._generator(seed), device=self.device)

    def to_bytes(self, array: Any, dtype: str) -> bytes:
        tensor = array.to(getattr(self.torch, dtype)).contiguous().cpu()
        return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())

    def from_bytes(self, data: bytes, dtype: str, shape: list[int]) -> Any:
        tensor = self.torch.frombuffer(bytearray(data), dtype=getattr(self.torch, dtype)) \
            if data else self.torch.empty(0, dtype=getattr(self.torch, dtype))
        wide = self.torch.float64 if tensor.is_floating_point() else self.torch.int64
        return tensor.reshape(shape).to(self.device).to(wide)

    def errors(self, got: Any, want: Any) -> tuple[float, float, int]:
        torch = self.torch
        finite = torch.isfinite(got) & torch.isfinite(want)
        bad = int((~torch.isfinite(got) & torch.isfinite(want)).sum())
        difference = torch.where(finite, (got - want).abs(), torch.zeros_like(want))
        scale = float(want.square().mean().sqrt()) or 1.0
        relative = difference / want.abs().clamp(min=scale)
        return float(difference.max()), float(relative.max()), bad

    def as_wide(self, value: Any) -> Any:
        return self.torch.as_tensor(value).to(self.device).to(self.torch.float64)

    def finite(self, value: Any) -> bool:
        return bool(self.torch.isfinite(value).all())

    def shape(self, value: Any) -> list[int]:
        return list(value.shape)

    def controls(self, want: Any, inputs: list[Any]) -> dict[str, Any]:
        torch = self.torch
        controls = {"zeros": torch.zeros_like(want),
                    "constant": torch.full_like(want, float(want.mean()))}
        same = [x for x in inputs if x.shape == want.shape]
        return controls | ({"copied input": same[0]} if same else {})


def spread(values: Any, distribution: str) -> Any:
    """Shift and scale standard normal values, so that a kernel cannot live on one range."""
    if distribution == "wide":
        return values * 4.0
    return values + 1.5 if distribution == "shifted" else values


class Oracle:
    def __init__(self, job: dict[str, Any]) -> None:
        self.arrays: Any = NumpyArrays() if job["library"] == "numpy" \
            else TorchArrays(job["device"])
        path = job["reference"]
        sys.path.insert(0, os.path.dirname(path))
        spec = importlib.util.spec_from_file_location("kopt_reference", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot load {path}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.function = getattr(module, job["function"])
        self.cases: dict[str, Any] = {}

    def make(self, job: dict[str, Any]) -> dict[str, Any]:
        """Draw one case's inputs, write them to files, compute and keep what is expected."""
        arrays = self.arrays
        values: dict[str, Any] = {}
        written: dict[str, str] = {}
        for index, tensor in enumerate(job["tensors"]):
            name, dtype = tensor["name"], tensor["dtype"]
            if tensor["role"] == "scalar":
                values[name] = tensor["value"]
            elif tensor["role"] != "output":
                seed = job["seed"] + index * 7919
                if "float" in dtype:
                    drawn = arrays.draw(tensor["shape"], seed, job["distribution"],
                                        tensor["low"], tensor["high"])
                else:
                    drawn = arrays.integers(tensor["shape"], seed, tensor["low"], tensor["high"])
                data = arrays.to_bytes(drawn, dtype)
                with open(tensor["path"], "wb") as file:
                    file.write(data)
                written[name] = hashlib.sha256(data).hexdigest()
                values[name] = arrays.from_bytes(data, dtype, tensor["shape"])
        accepted = inspect.signature(self.function).parameters
        named = {k: v for k, v in values.items() if k in accepted}
        inputs = [v for k, v in values.items() if k in written]
        result = self.function(**named)
        results = result if isinstance(result, tuple) else (result,)
        expected = [arrays.as_wide(value) for value in results]
        if not all(arrays.finite(value) for value in expected):
            raise ValueError("the reference gave values that are not finite")
        self.cases[job["case"]] = (expected, written)
        outputs = [t for t in job["tensors"] if t["role"] in ("output", "inout")]
        for tensor, value in zip(outputs, expected, strict=False):
            if arrays.shape(value) != tensor["shape"]:
                raise ValueError(f"the reference gave shape {arrays.shape(value)} "
                                 f"for {tensor['name']}, declared {tensor['shape']}")
        weak = [name for value in expected for name, control in
                arrays.controls(value, inputs).items()
                if self._score(control, value)["relative"] <= job["tolerance"]]
        return {"weak": weak, "outputs": [arrays.shape(value) for value in expected]}

    def _score(self, got: Any, want: Any) -> dict[str, Any]:
        absolute, relative, bad = self.arrays.errors(got, want)
        return {"absolute": absolute, "relative": relative, "bad": bad}

    def judge(self, job: dict[str, Any]) -> dict[str, Any]:
        """Compare one case's outputs with the expected values and its inputs with their bytes."""
        expected, written = self.cases[job["case"]]
        answer: dict[str, Any] = {"absolute": 0.0, "relative": 0.0, "bad": 0, "changed": []}
        if len(job["outputs"]) != len(expected):
            raise ValueError(f"{len(job['outputs'])} outputs, expected {len(expected)}")
        for output, want in zip(job["outputs"], expected, strict=True):
            if output["shape"] != self.arrays.shape(want):
                raise ValueError(f"shape {output['shape']}, expected {self.arrays.shape(want)}")
            data = take(output["path"], output["nbytes"])
            got = self.arrays.from_bytes(data, output["dtype"], output["shape"])
            score = self._score(self.arrays.as_wide(got), want)
            for key, value in score.items():
                answer[key] = max(answer[key], value) if key != "bad" else answer[key] + value
        for after in job["inputs"]:
            data = take(after["path"], after["nbytes"])
            if hashlib.sha256(data).hexdigest() != written[after["name"]]:
                answer["changed"].append(after["name"])
        if not math.isfinite(answer["relative"]):
            answer["relative"] = None
        return answer


    def drop(self, job: dict[str, Any]) -> dict[str, Any]:
        """Forget a case and remove its files."""
        self.cases.pop(job["case"], None)
        for path in job["paths"]:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
        return {}


def take(path: str, nbytes: int) -> bytes:
    """Read a file that a runner wrote, and remove it; a kernel may have put anything there."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size != nbytes:
            raise ValueError(f"{found.st_size} bytes of output, expected {nbytes}")
        data = file.read(nbytes)
    os.remove(path)
    return data


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    oracle: Oracle | None = None
    with channel, channel.makefile("rwb") as stream:
        for line in stream:
            job = json.loads(line)
            try:
                if job["op"] == "load":
                    oracle = Oracle(job)
                    answer: dict[str, Any] = {}
                else:
                    answer = getattr(oracle, job["op"])(job)
            except BaseException as error:
                last = traceback.format_exc().strip().splitlines()[-1]
                answer = {"error": f"{last}", "kind": type(error).__name__}
            stream.write(json.dumps(answer).encode() + b"\n")
            stream.flush()


if __name__ == "__main__":
    main()
