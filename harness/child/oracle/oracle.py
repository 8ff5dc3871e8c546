"""Draws secret inputs and keeps the expected outputs, in a process that no candidate can reach.

Talks JSON lines over a socket. The reference is the baseline's: a Python function over float64
arrays (numpy for C targets, torch for Python and Triton) that takes the inputs by name.
Standard library, plus numpy or torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import json
import math
import os
import socket
import sys
import traceback
from typing import Any

from .case_files import CaseFiles, take
from .inputs import draw


class NoAnswer(ValueError):
    """The reference has no usable answer for these inputs."""


class OracleProgram:
    """The reference function, and the cases that are drawn and not dropped yet."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.arrays = open_arrays(job)
        self.wide = job["float64"]
        path = job["reference"]
        sys.path.insert(0, os.path.dirname(path))
        spec = importlib.util.spec_from_file_location("kopt_reference", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot load {path}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.function = getattr(module, job["function"])
        self.accepted = inspect.signature(self.function).parameters
        self.cases: dict[str, CaseFiles] = {}

    def make(self, job: dict[str, Any]) -> dict[str, Any]:
        """Draw one case's inputs, write them to files, compute and keep the expected outputs.

        `skip` is the reason if the reference has no answer and the case may be skipped.
        """
        case = CaseFiles(job["tensors"])
        for index, tensor in enumerate(job["tensors"]):
            if tensor["role"] not in ("scalar", "output"):
                drawn = draw(self.arrays, tensor, job["seed"] + index * 7919, job["distribution"])
                case.put(tensor, self.arrays.to_bytes(drawn, tensor["dtype"]))
        try:
            values = self._expect(case, job["dtypes"])
        except Exception as error:
            if not job["may_skip"]:
                raise
            self._remove([tensor["path"] for tensor in job["tensors"]])
            return {"skip": one_line(error), "controls": []}
        self.cases[job["case"]] = case
        return {"skip": "", "controls": self._controls(case, values, job["first"])}

    def _expect(self, case: CaseFiles, dtypes: list[str]) -> dict[str, Any]:
        """Compute and keep a case's expected outputs; return the arguments by name."""
        arrays, values = self.arrays, self._values(case)
        case.expected, case.dtypes = self._call(values), dtypes
        outputs = [t for t in case.tensors if t["role"] in ("output", "inout")]
        for index, value in enumerate(case.expected):
            name = outputs[index]["name"] if index < len(outputs) else "the returned value"
            if not arrays.finite(value):
                raise NoAnswer("the reference gave values that are not finite")
            if index < len(outputs) and arrays.shape(value) != outputs[index]["shape"]:
                raise ValueError(f"the reference gave shape {arrays.shape(value)} "
                                 f"for {name}, declared {outputs[index]['shape']}")
            dtype = dtypes[index] if index < len(dtypes) else ""
            if "float" in dtype and arrays.peak(value) > arrays.largest(dtype):
                raise NoAnswer(f"the reference gave values that are too large for {dtype} "
                               f"in {name}")
        return values

    def _values(self, case: CaseFiles) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for tensor in case.tensors:
            name = tensor["name"]
            if tensor["role"] == "scalar":
                values[name] = tensor["value"]
            elif name in case.data:
                values[name] = self.arrays.from_bytes(case.data[name], tensor["dtype"],
                                                      tensor["shape"], wide=self.wide)
        return values

    def _call(self, values: dict[str, Any]) -> list[Any]:
        result = self.function(**{k: v for k, v in values.items() if k in self.accepted})
        results = result if isinstance(result, tuple) else (result,)
        return [self.arrays.as_wide(value) for value in results]

    def _controls(self, case: CaseFiles, values: dict[str, Any],
                  first: str) -> list[dict[str, Any]]:
        """Return the relative error of each trivial answer: [output, name, relative error]."""
        arrays, errors = self.arrays, []
        inputs = [arrays.as_wide(values[name]) for name in case.data]
        other = self.cases[first].expected if first in self.cases else []
        for index, want in enumerate(case.expected):
            fakes = {"zeros": arrays.full(want, 0.0), "half of the answer": want / 2,
                     "constant": arrays.full(want, float(want.mean()))}
            for value in inputs:
                if arrays.shape(value) == arrays.shape(want):
                    fakes["copied input"] = value
            if index < len(other):
                fakes["the answer to other inputs"] = other[index]
            errors += [{"output": index, "name": name, "relative": arrays.errors(fake, want)[1]}
                       for name, fake in fakes.items()]
        return errors

    def exchange(self, job: dict[str, Any]) -> dict[str, Any]:
        """Move elements within a case's inputs and compute the expected outputs again."""
        case = self.cases[job["case"]]
        for tensor in case.tensors:
            if tensor["name"] in job["moves"]:
                case.move(tensor, *job["moves"][tensor["name"]])
        self._expect(case, case.dtypes)
        return {}

    def sensitivity(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return for each output its typical relative change when inputs change by `part`."""
        case, arrays = self.cases[job["case"]], self.arrays
        generator = arrays.generator(job["seed"])
        values = self._values(case)
        for name in case.data:
            values[name] = arrays.nudged(values[name], job["part"], generator)
        return {"typical": [arrays.typical(near, want) for near, want in
                            zip(self._call(values), case.expected, strict=True)]}

    def judge(self, job: dict[str, Any]) -> dict[str, Any]:
        """Compare a case's outputs with the expected values, and its inputs with their bytes.

        Outputs with the digests in `known` were compared before and are skipped.
        """
        case = self.cases[job["case"]]
        if len(job["outputs"]) != len(case.expected):
            raise ValueError(f"{len(job['outputs'])} outputs, expected {len(case.expected)}")
        changed = [after["name"] for after in job["inputs"]
                   if take(after["path"], after["nbytes"]) != case.data[after["name"]]]
        data, digests = [], []
        for output, want in zip(job["outputs"], case.expected, strict=True):
            if output["shape"] != self.arrays.shape(want):
                raise ValueError(f"shape {output['shape']}, expected {self.arrays.shape(want)}")
            data.append(take(output["path"], output["nbytes"]))
            digests.append(_digest(data[-1]))
        answer: dict[str, Any] = {"absolute": 0.0, "relative": 0.0, "bad": 0, "each": [],
                                  "changed": changed, "digests": digests}
        if digests == job["known"]:
            return answer
        for output, want, raw in zip(job["outputs"], case.expected, data, strict=True):
            got = self.arrays.from_bytes(raw, output["dtype"], output["shape"])
            absolute, relative, bad = self.arrays.errors(self.arrays.as_wide(got), want)
            answer["absolute"] = max(answer["absolute"], absolute)
            answer["bad"] += bad
            answer["each"].append(relative if math.isfinite(relative) else None)
        answer["relative"] = None if None in answer["each"] else max(answer["each"], default=0.0)
        return answer

    def drop(self, job: dict[str, Any]) -> dict[str, Any]:
        """Forget a case and remove its files."""
        self.cases.pop(job["case"], None)
        self._remove(job["paths"])
        return {}

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def open_arrays(job: dict[str, Any]) -> Any:
    if job["library"] == "numpy":
        from .arrays_numpy import NumpyArrays

        return NumpyArrays()
    from .arrays_torch import TorchArrays

    return TorchArrays(job["device"])


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def one_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip().splitlines()[-1][:300]


def main(descriptor: int) -> None:
    channel = socket.socket(fileno=descriptor)
    oracle: OracleProgram | None = None
    with channel, channel.makefile("rwb") as stream:
        for line in stream:
            job = json.loads(line)
            try:
                if job["op"] == "load":
                    oracle = OracleProgram(job)
                    answer: dict[str, Any] = {}
                else:
                    answer = getattr(oracle, job["op"])(job)
            except BaseException as error:
                last = traceback.format_exc().strip().splitlines()[-1]
                answer = {"error": f"{last}", "kind": type(error).__name__}
            stream.write(json.dumps(answer).encode() + b"\n")
            stream.flush()

