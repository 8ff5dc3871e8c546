"""Runs one kernel, the candidate's or the incumbent's, in a process of its own.

Talks JSON lines over the socket given as its argument: get `ready` (import what the language
needs, nothing of anyone's), `load` the artefact, `call` it once on a case and write everything it
touched to files, `prepare` buffers for timing, time a `block` of calls. It knows nothing of
expected values, of the other side, or of why it is asked. Standard library only; the loader of
the target's language sits beside it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from report import one_line


def open_kernel(job: dict[str, Any]) -> Any:
    if job["language"] == "c":
        from load_c import CKernel

        return CKernel(job)
    from load_python import PythonKernel

    return PythonKernel(job)


class Runner:
    def __init__(self) -> None:
        self.kernel: Any = None
        self.prepared: dict[str, Any] = {}

    def ready(self, job: dict[str, Any]) -> dict[str, Any]:
        from load_python import preload

        return preload(job["language"], job["device"], job["interpret"])

    def load(self, job: dict[str, Any]) -> dict[str, Any]:
        self.kernel = open_kernel(job)
        return dict(self.kernel.facts)

    def call(self, job: dict[str, Any]) -> dict[str, Any]:
        buffers = self.kernel.buffers(job["tensors"])
        outputs = self.kernel.call(buffers)
        return {"outputs": self.kernel.write(buffers, outputs, job["tensors"])}

    def prepare(self, job: dict[str, Any]) -> dict[str, Any]:
        """Allocate and warm everything one class needs, before anything is timed."""
        buffers = self.kernel.buffers(job["tensors"])
        self.prepared[job["case"]] = buffers
        if hasattr(self.kernel, "prepare"):
            return dict(self.kernel.prepare(buffers, job["warm_ns"]))
        began = time.perf_counter_ns()
        calls = 0
        while calls < 3 or time.perf_counter_ns() - began < job["warm_ns"]:
            self.kernel.call(buffers)
            calls += 1
        self.kernel.synchronize()
        return {"call_ns": (time.perf_counter_ns() - began) / calls}

    def after(self, job: dict[str, Any]) -> dict[str, Any]:
        """Write what the timed calls left in the prepared buffers."""
        buffers = self.prepared[job["case"]]
        return {"outputs": self.kernel.write(buffers, self.kernel.last, job["tensors"])}

    def block(self, job: dict[str, Any]) -> dict[str, Any]:
        how = {"graph": True} if job.get("graph") else {}
        return {"ns": self.kernel.time_block(self.prepared[job["case"]], job["calls"], **how)}


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    runner = Runner()
    with channel, channel.makefile("rwb") as stream:
        for line in stream:
            job = json.loads(line)
            try:
                answer = getattr(runner, job["op"])(job)
            except BaseException as error:
                answer = {"error": one_line(error), "kind": type(error).__name__}
            stream.write(json.dumps(answer).encode() + b"\n")
            stream.flush()


if __name__ == "__main__":
    main()
